"""``python -m tests.bench.fraud``: events per second of the fraud scenario, stream and batch; peak memory.

Every figure is the median of some repeats in one warm session on two cores. "stream" and "batch" are whole
pipelines as `cep run` runs them: files in, malformed lines set aside, all rules, matches to Parquet files.
"""

from __future__ import annotations

import json
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cep.settings.schema_file import load_streams
from scenarios.fraud.__main__ import PIPELINE
from scenarios.fraud.generate import Options, generate
from scenarios.run_folder import clear_results, place_pipeline
from tests.bench.processes import MemorySampler, Peaks, cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
N_CORES = 2
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured way of running: seconds of each repeat, processor time, the largest memory seen."""

    name: str
    file_format: str
    events: int
    seconds: tuple[float, ...]
    cpu_seconds: float  # per run, of all processes
    peaks: Peaks
    full_batches: tuple[float, ...] = ()  # seconds of the micro-batches with as many files as one may have
    batch_events: int = 0  # in one of them

    @property
    def events_per_second(self) -> float:
        """Median over the repeats, with the start and the end of the query."""
        return self.events / statistics.median(self.seconds)

    @property
    def events_per_batch_second(self) -> float | None:
        """Median over the full micro-batches."""
        return self.batch_events / statistics.median(self.full_batches) if self.full_batches else None


Way = Callable[[], tuple[float, ...]]
"""Runs once, returns the seconds of the micro-batches that are full."""


def measure(name: str, file_format: str, n_events: int, repeats: int, run: Way, batch_events: int) -> Figure:
    """Run once to warm up, then `repeats` times."""
    run()
    seconds = []
    batches: list[float] = []
    cpu_before = cpu_seconds()
    with MemorySampler() as sampler:
        for _ in range(repeats):
            start = time.perf_counter()
            batches += run()
            seconds.append(time.perf_counter() - start)
    cpu = (cpu_seconds() - cpu_before) / repeats
    return Figure(
        name,
        file_format,
        n_events,
        tuple(seconds),
        round(cpu, 2),
        sampler.peaks,
        tuple(batches),
        batch_events if batches else 0,
    )


def measure_format(
    file_format: str, events: int, seed: int, repeats: int, files: int, files_per_trigger: int, out: Path
) -> list[Figure]:
    """Return the figures over events in one format."""
    from spark_runtime import run_pipeline, session
    from tests.bench import baselines

    folder = out / file_format
    n_lines = int(generate(Options(events, seed, file_format, files), folder)["lines"])
    stream = load_streams(ROOT / "rules" / "fraud" / "streams.yaml")["card_events"]
    settings = {"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(N_CORES)}
    spark = session(settings, is_short=True)  # as `cep run` has it
    data = str(folder / "events")
    every_column = tuple(field.name for field in stream.fields)
    numbers = ("event_id", "ts", "amount")

    def fresh_checkpoint() -> str:
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return str(folder / "checkpoint")

    n_full = files // files_per_trigger

    def stream_source() -> tuple[float, ...]:
        frame = baselines.events(spark, stream, data, file_format, files_per_trigger)
        return baselines.run_stream(frame, fresh_checkpoint())[:n_full]

    def stateful(columns: tuple[str, ...]) -> tuple[float, ...]:
        frame = baselines.events(spark, stream, data, file_format, files_per_trigger)
        counted = baselines.counted(frame, stream, columns, N_CORES)
        return baselines.run_stream(counted, fresh_checkpoint())[:n_full]

    def batch_source() -> tuple[float, ...]:
        baselines.run_batch(baselines.events(spark, stream, data, file_format, None))
        return ()

    def pipeline(mode: str) -> tuple[float, ...]:
        clear_results(folder)
        path = place_pipeline(
            PIPELINE,
            folder,
            file_format=file_format,
            mode=mode,
            files_per_trigger=files_per_trigger,
            to_console=False,
        )
        seconds = run_pipeline(path, quiet=True).batch_seconds
        return seconds[:n_full] if mode == "stream" else ()

    ways: dict[str, Way] = {
        "stream, all rules": lambda: pipeline("stream"),
        "stream, Spark's operator that counts, all columns": lambda: stateful(every_column),
        "stream, Spark's operator that counts, three numbers": lambda: stateful(numbers),
        "stream, source only": stream_source,
        "batch, all rules": lambda: pipeline("batch"),
        "batch, source only": batch_source,
    }
    batch_events = n_lines * files_per_trigger // files
    return [measure(name, file_format, n_lines, repeats, way, batch_events) for name, way in ways.items()]


def figure_table(figures: list[Figure]) -> Table:
    """Return the figures as a table for the terminal; ratios are to the all rules of the same mode."""
    table = Table(title="Fraud scenario, two cores")
    for heading in ("input", "what"):
        table.add_column(heading)
    for heading in (
        "events/s",
        "in micro-batches",
        "ours / it",
        "CPU s",
        "JVM MiB",
        "driver MiB",
        "workers MiB",
    ):
        table.add_column(heading, justify="right")
    ours: Figure | None = None
    for figure in figures:
        if figure.name.endswith("all rules"):
            ours = figure
            table.add_section()
        assert ours is not None
        table.add_row(
            figure.file_format,
            figure.name,
            f"{figure.events_per_second:,.0f}",
            "" if figure.events_per_batch_second is None else f"{figure.events_per_batch_second:,.0f}",
            f"{ours.events_per_second / figure.events_per_second:.2f}",
            f"{figure.cpu_seconds:,.1f}",
            *(f"{size / MIB:,.0f}" for size in (figure.peaks.jvm, figure.peaks.driver, figure.peaks.workers)),
        )
    return table


def to_json(figures: list[Figure], options: dict[str, int]) -> str:
    """Return everything measured as JSON."""
    rows = [{**asdict(figure), "events_per_second": round(figure.events_per_second)} for figure in figures]
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores_used": N_CORES}
    return json.dumps({"options": options, "machine": machine, "figures": rows}, indent=2) + "\n"


@click.command(help="Measure throughput and memory of the fraud scenario, beside Spark's own operators.")
@click.option("--events", type=click.IntRange(min=5_000), default=4_000_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--files", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--files-per-trigger", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["json", "parquet"]),
    multiple=True,
    default=["parquet", "json"],
    show_default=True,
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(
    events: int,
    seed: int,
    repeats: int,
    quick: bool,
    files: int,
    files_per_trigger: int,
    formats: tuple[str, ...],
    out: Path,
) -> None:
    """Measure and show."""
    console = Console()
    events = events // 10 if quick else events
    figures: list[Figure] = []
    for file_format in formats:
        console.print(f"measuring {events:,} events of {file_format}: six ways, {repeats + 1} runs each")
        figures += measure_format(file_format, events, seed, repeats, files, files_per_trigger, out)
    console.print(figure_table(figures))
    options = {
        "events": events,
        "seed": seed,
        "repeats": repeats,
        "files": files,
        "files_per_trigger": files_per_trigger,
    }
    (out / "fraud.json").write_text(to_json(figures, options))
    console.print(f"all figures: {out / 'fraud.json'}")


if __name__ == "__main__":
    main()
