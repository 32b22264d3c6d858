"""``python -m tests.bench.spark``: the four rules of `tests.bench.peer_rules` on Spark, as `cep run` does it.

Parquet files in, matches to Parquet files; a stream in micro-batches of a million events, and a batch. Beside
each, in the same session: the same pipeline with an operator that takes its input in, keeps a trivial state
and gives nothing ("no-op"), and the source alone. A figure is the median of micro-batches after the first, or
of runs after the first.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import SparkSession

from scenarios.run_folder import read_matches
from tests.bench import baselines
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import (
    DENSE_KEYS,
    EXPECTED,
    N_EXPECTED,
    RULES,
    SPARSE_KEYS,
    STREAM,
    Found,
    events,
    found,
)
from tests.bench.processes import MemorySampler, Peaks, cpu_seconds

N_CORES = 2
MIB = 1 << 20
FILES_PER_TRIGGER = 2  # one for each core
TARGETS = {
    ("stream", False): Target(2e6),
    ("stream", True): Target(800e3),  # R3, which keeps every event
    ("batch", False): Target(4e6),
    ("batch", True): Target(1.2e6),
}
RATIO = Target(1.25, at_most=True)
FIRST = Target(3.0, at_most=True)
PAUSE_MS = 100_000
"""Between two copies of the events: longer than every window, so that each copy has the expected matches."""


@dataclass(frozen=True, slots=True)
class Input:
    """Events of `peer_rules` in Parquet files, some copies one after the other."""

    folder: Path
    keys: int
    events: int  # in all copies
    copies: int
    per_batch: int

    @property
    def stride_ms(self) -> int:
        """How far a copy's times are behind those of the copy before."""
        return self.events // self.copies + PAUSE_MS

    def expected(self, rule: str) -> Found | None:
        """Return what all copies together must give; None if nobody counted it."""
        if self.events != self.copies * N_EXPECTED:
            return None
        one = EXPECTED[rule, self.keys]
        shift_ms = one.matches * self.stride_ms * sum(range(self.copies))
        return Found(
            self.copies * one.matches,
            self.copies * one.first_ms + shift_ms,
            self.copies * one.last_ms + shift_ms,
        )


def write_input(folder: Path, n: int, n_keys: int, copies: int, per_batch: int) -> Input:
    """Write the events as files of half a micro-batch."""
    made = Input(folder, n_keys, n * copies, copies, per_batch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = per_batch // FILES_PER_TRIGGER
    for copy in range(copies):
        for first in range(0, n, size):
            table = events(min(size, n - first), n_keys, first)
            time_us = np.asarray(table.column("ts")) + copy * made.stride_ms * 1000
            times = pa.array(time_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            table = table.set_column(table.column_names.index("ts"), "ts", times)
            pq.write_table(table, folder / f"{copy:03}-{first:09}.parquet")
    return made


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of running one rule."""

    events: int  # in what `seconds` are of: a micro-batch, or the whole input
    seconds: tuple[float, ...]
    first_seconds: float  # of the first micro-batch or run
    cpu_seconds: float  # of all processes, per million events
    peaks: Peaks

    @property
    def events_per_second(self) -> float:
        """At the median."""
        return self.events / statistics.median(self.seconds)


class Bench:
    """The ways of running rules over one input."""

    def __init__(self, spark: SparkSession, data: Input, folder: Path, repeats: int) -> None:
        self.spark = spark
        self.data = data
        self.folder = folder
        self.repeats = repeats
        self.n_runs = 0

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the last run: another for each: executors write into that before."""
        return self.folder / f"checkpoint-{self.n_runs}"

    def pipeline_file(self, rule: str, mode: str) -> Path:
        """Write and return the pipeline of one rule."""
        fields = {field.name: field.ddl for field in STREAM.fields}
        rule_file = self.folder / f"{rule}.cep"
        rule_file.write_text(RULES[rule])
        spec = {
            "streams": {STREAM.name: {"event_time": STREAM.event_time, "schema": fields}},
            "rules": [rule_file.name],
            "source": {
                "stream": STREAM.name,
                "format": "parquet",
                "path": str(self.data.folder.resolve()),
                "max_files_per_trigger": FILES_PER_TRIGGER,
            },
            "sinks": [{"format": "parquet", "path": "matches"}],
            "checkpoint": self.checkpoint.name,
            "at_end": "finish",
            "mode": mode,
        }
        path = self.folder / "pipeline.yaml"
        path.write_text(yaml.safe_dump(spec, sort_keys=False))
        return path

    def run_pipeline(self, rule: str, mode: str) -> tuple[float, ...]:
        """Run the pipeline; return the seconds of its micro-batches."""
        from spark_runtime import run_pipeline

        shutil.rmtree(self.folder / "matches", ignore_errors=True)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.n_runs += 1
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return run_pipeline(self.pipeline_file(rule, mode), quiet=True).batch_seconds

    def run_source(self, mode: str) -> tuple[float, ...]:
        """Read the files to nowhere; return the seconds of the micro-batches."""
        checkpoint = self.folder / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        path = str(self.data.folder)
        if mode == "stream":
            frame = baselines.events(self.spark, STREAM, path, "parquet", FILES_PER_TRIGGER)
            return baselines.run_stream(frame, str(checkpoint))
        start = time.perf_counter()
        baselines.run_batch(baselines.events(self.spark, STREAM, path, "parquet", None))
        return (time.perf_counter() - start,)

    def measure(self, mode: str, rule: str, way: str) -> Measured:
        """Return what one way takes; a wrong count is an error."""

        def run() -> tuple[float, ...]:
            if way == "source":
                return self.run_source(mode)
            if way == "engine":
                return self.run_pipeline(rule, mode)
            with patch("spark_runtime.pipeline.runs.Dataflow", baselines.NoOpDataflow):
                return self.run_pipeline(rule, mode)

        n_batches = self.data.events // self.data.per_batch
        first = run() if mode == "batch" else ()
        cpu_before = cpu_seconds()
        with MemorySampler() as sampler:
            runs = [run() for _ in range(self.repeats if mode == "batch" else 1)]
        cpu = (cpu_seconds() - cpu_before) / len(runs) / (self.data.events / 1e6)
        if way == "engine":
            self.check_matches(rule)
        if mode == "batch":
            seconds = tuple(run[0] for run in runs)
            return Measured(self.data.events, seconds, first[0], cpu, sampler.peaks)
        (batches,) = runs
        return Measured(self.data.per_batch, batches[1:n_batches], batches[0], cpu, sampler.peaks)

    def figures(self, mode: str, rule: str) -> list[Figure]:
        """Return the figures of one rule: the engine beside the no-op, the source alone."""
        source, no_op, ours = (self.measure(mode, rule, way) for way in ("source", "no-op", "engine"))
        case = f"{mode}, {rule}, {self.data.keys:,} keys"
        speed = ours.events_per_second
        peaks = ours.peaks
        return [
            Figure("source only", case, source.events_per_second, "events/s"),
            Figure("pipeline", case, speed, "events/s", no_op.events_per_second, TARGETS[mode, rule == "R3"]),
            Figure("time by the no-op's", case, no_op.events_per_second / speed, "", target=RATIO),
            Figure("processor time", case, ours.cpu_seconds, "s/M", no_op.cpu_seconds),
            Figure("peak of JVM", case, peaks.jvm / MIB, "MiB", no_op.peaks.jvm / MIB),
            Figure("peak of workers", case, peaks.workers / MIB, "MiB", no_op.peaks.workers / MIB),
        ]

    def first_batch(self) -> Figure:
        """Return how much longer the first micro-batch of a new session takes than the next ones."""
        ours = self.measure("stream", "R1", "engine")
        later = ours.first_seconds - statistics.median(ours.seconds)
        return Figure("first micro-batch after start, beyond the next", "stream", later, "s", target=FIRST)

    def check_matches(self, rule: str) -> None:
        """Compare the matches in the sink with what is known of them."""
        expected = self.data.expected(rule)
        if expected is None:
            return
        matches = found(read_matches(self.folder / "matches", ["match_start", "last_ts"]))
        if matches != expected:
            raise AssertionError(f"{rule} at {self.data.keys} keys gave {matches}, not {expected}")


@click.command(help="Measure the four rules on Spark, stream and batch, beside no-ops.")
@click.option("--rules", default=",".join(RULES), show_default=True, help="which of them")
@click.option("--modes", default="stream,batch", show_default=True)
@click.option("--keys", default=f"{SPARSE_KEYS},{DENSE_KEYS}", show_default=True)
@click.option("--copies", type=click.IntRange(min=1), default=3, show_default=True, help="of 2 M events")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="of a batch")
@click.option("--quick", is_flag=True, help="a tenth of the events, micro-batches of a tenth")
@click.option("--long-run", is_flag=True, help="start the JVM as for a stream that goes on")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(
    rules: str, modes: str, keys: str, copies: int, repeats: int, quick: bool, long_run: bool, out: Path
) -> None:
    """Measure and show."""
    from spark_runtime import session

    n = N_EXPECTED // 10 if quick else N_EXPECTED
    settings = {"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(N_CORES)}
    spark = session(settings, is_short=not long_run)
    figures: list[Figure] = []
    for n_keys in map(int, keys.split(",")):
        folder = (out / "spark").resolve()
        bench = Bench(spark, write_input(folder / "events", n, n_keys, copies, n // 2), folder, repeats)
        if not figures:
            figures.append(bench.first_batch())
        for mode in modes.split(","):
            for rule in rules.split(","):
                print(f"{mode}, {rule}, {n_keys:,} keys", flush=True)
                figures += bench.figures(mode, rule)
        shutil.rmtree(folder)
    options = {"events": n, "copies": copies, "repeats": repeats, "long_run": long_run}
    report("Four rules on Spark, two cores", figures, options, out / "spark.json")


if __name__ == "__main__":
    main()
