"""``python -m tests.bench.scale``: streams of `cep run` in which one thing is large, beside the plain stream.

The plain stream has 10,000 keys, four columns and one rule. Then half of all events have one key; every event
has a key of its own, with and without a run that stays open; there are 500 rules; there are 200 columns, as
Parquet and as JSON lines. A figure is the least of the micro-batches; its no-op is that of the plain stream.
For the number of events, key groups and open runs see `tests.bench.sizes`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from tests.bench.engine import many
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import RULES, SPARSE_KEYS, STREAM, events
from tests.bench.processes import MemorySampler, cpu_seconds

N_CORES = 2
N_BATCHES = 5
FILES = 2  # of a micro-batch, one for each core
MIB = 1 << 20

OPEN = """
RULE open FROM e PARTITION BY key PATTERN a -> b WITHIN < 10 HOURS
DEFINE a AS amount >= 0, b AS type = 10
MEASURES b.ts AS last_ts
"""
"""Every event starts a run that stays open."""


@dataclass(frozen=True, slots=True)
class Case:
    """A stream.

    Parameters
    ----------
    rules
        The texts of its rules.
    beside
        The case with which it is compared.
    at_most
        The most times the processor time of that case.
    part
        The part of the events that it has.
    keys
        Number of keys; 0: each event has one of its own.
    hot
        The share of the events that have one key.
    columns
        Number of columns that no rule reads.
    """

    name: str
    rules: tuple[str, ...]
    beside: str
    at_most: float | None = None
    part: float = 1.0
    keys: int = SPARSE_KEYS
    hot: float = 0.0
    columns: int = 0
    file_format: str = "parquet"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a micro-batch of a case took."""

    seconds: float
    cpu_seconds: float
    jvm_mib: float
    workers_mib: float


R1, R3 = (RULES[name] for name in ("R1", "R3"))

CASES = (
    Case("R1", (R1,), "R1"),
    Case("R1, one key with half", (R1,), "R1", 1.5, hot=0.5),
    Case("R3", (R3,), "R3"),
    Case("R3, one key with half", (R3,), "R3", 1.5, hot=0.5),
    Case("R1, a key for each event", (R1,), "R1", 2, keys=0),
    Case("R3, a key for each event", (R3,), "R3", 2, keys=0),
    Case("an open run for each event and key", (OPEN,), "R1", keys=0),
    Case("500 rules", tuple(many(500)), "R1", 10),
    Case("Parquet", (R1,), "Parquet", part=0.2),
    Case("Parquet, 200 columns", (R1,), "Parquet", 2, part=0.2, columns=196),
    Case("JSON lines", (R1,), "JSON lines", part=0.05, file_format="json"),
    Case("JSON lines, 200 columns", (R1,), "JSON lines", part=0.05, columns=196, file_format="json"),
)


def table_of(case: Case, n: int, first: int) -> pa.Table:
    """Return events ``first : first + n`` of a case."""
    found = events(n, case.keys or SPARSE_KEYS, first)
    index = np.arange(first, first + n)
    if not case.keys:
        found = found.set_column(0, "key", pa.array(index))
    elif case.hot:
        is_hot = np.random.default_rng(first).random(n) < case.hot
        found = found.set_column(0, "key", pa.array(np.where(is_hot, 0, np.asarray(found.column("key")))))
    found = found.set_column(1, "ts", found.column("ts").cast(pa.timestamp("us", tz="UTC")))
    for number in range(case.columns):
        found = found.append_column(f"c{number}", pa.array((index * (number + 1) % 9973) / 4))
    return found


def write(case: Case, folder: Path, n: int) -> None:
    """Write the events of a case, `n` for each micro-batch."""
    folder.mkdir(parents=True)
    size = n // FILES
    for first in range(0, n * N_BATCHES, size):
        table = table_of(case, size, first)
        file = folder / f"{first:012}.{case.file_format}"
        if case.file_format == "parquet":
            pq.write_table(table, file)
        else:
            texts = table.set_column(1, "ts", pc.strftime(table.column("ts"), format="%Y-%m-%dT%H:%M:%SZ"))
            file.write_text("".join(f"{json.dumps(row)}\n" for row in texts.to_pylist()))


def pipeline_file(case: Case, folder: Path) -> Path:
    """Write and return the pipeline of a case."""
    fields = {field.name: field.ddl for field in STREAM.fields}
    fields |= {f"c{number}": "double" for number in range(case.columns)}
    for number, text in enumerate(case.rules):
        (folder / f"{number}.cep").write_text(text)
    spec = {
        "streams": {"e": {"event_time": "ts", "schema": fields}},
        "rules": ["*.cep"],
        "source": {
            "stream": "e", "format": case.file_format, "path": "events", "max_files_per_trigger": FILES,
        },
        "sinks": [{"format": "parquet", "path": "matches"}],
        "checkpoint": "checkpoint",
        "at_end": "finish",
        "mode": "stream",
    }  # fmt: skip
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def measure(case: Case, folder: Path, n: int) -> Cost:
    """Return what a micro-batch of `n` events of a case takes."""
    from spark_runtime import run_pipeline

    shutil.rmtree(folder, ignore_errors=True)
    write(case, folder / "events", n)
    path = pipeline_file(case, folder)
    before = cpu_seconds()
    with MemorySampler() as sampler:
        seconds = run_pipeline(path, quiet=True).batch_seconds
    cpu = (cpu_seconds() - before) / N_BATCHES
    shutil.rmtree(folder)
    peaks = sampler.peaks
    return Cost(min(seconds[:N_BATCHES]), cpu, peaks.jvm / MIB, peaks.workers / MIB)


def figures_of(case: Case, cost: Cost, plain: Cost) -> list[Figure]:
    """Return the figures of a case beside those of the plain stream."""
    bound = None if case.at_most is None else Target(case.at_most, at_most=True)
    return [
        Figure("micro-batch", case.name, cost.seconds, "s", plain.seconds),
        Figure("processor time", case.name, cost.cpu_seconds, "s", plain.cpu_seconds),
        Figure("times the plain stream", case.name, cost.cpu_seconds / plain.cpu_seconds, "", target=bound),
        Figure("peak of JVM", case.name, cost.jvm_mib, "MiB", plain.jvm_mib),
        Figure("peak of workers", case.name, cost.workers_mib, "MiB", plain.workers_mib),
    ]


@click.command(help="Measure streams in which one thing is large: a key, keys, rules, columns.")
@click.option("--events", "n", type=click.IntRange(min=1000), default=1_000_000, show_default=True)
@click.option(
    "--only", multiple=True, type=click.Choice([case.name for case in CASES]), help="not all of them"
)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(n: int, only: tuple[str, ...], quick: bool, out: Path) -> None:
    """Measure and show."""
    from spark_runtime import session

    session(
        {"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(N_CORES)}, is_short=True
    )
    size = n // 10 if quick else n
    folder = (out / "scale").resolve()
    measure(CASES[0], folder, size)  # warms up
    chosen = [case for case in CASES if not only or case.name in only]
    wanted = {name for case in chosen for name in (case.name, case.beside)}
    costs: dict[str, Cost] = {}
    figures: list[Figure] = []
    for case in CASES:
        if case.name not in wanted:
            continue
        print(case.name, flush=True)
        costs[case.name] = measure(case, folder, int(size * case.part))
        figures += figures_of(case, costs[case.name], costs[case.beside])
    report("One thing is large", figures, {"events": size}, out / "scale.json")


if __name__ == "__main__":
    main()
