"""``python -m tests.bench.state_on_spark``: micro-batches over a large state, in a stream on two cores.

The same small micro-batches pass through the same pipeline in four ways:

- *counts*: the operator counts its rows and keeps nothing else; what this costs is Spark's;
- *empty*: the engine, whose state is empty when the small micro-batches begin;
- *inline*: the engine with a full state in Spark's store (``state: inline``);
- *files*: the engine with a full state in files (``state: files``).

The state is that of a rule: open runs of a pattern (R1), or windows of 30 days. A figure is the median of the
micro-batches after the first; the first one restores the state, and is the cold start.

With ``--batches 140`` or more, each key group writes a snapshot among them. Then the 99th of 100
is shown by the median, and beside it that of the operator that counts: what a snapshot costs the micro-batch
that writes it.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from spark_runtime import run_pipeline, session
from spark_runtime.pipeline.progress import Summary
from tests.bench.baselines import NoOpDataflow
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import STREAM
from tests.bench.processes import MemorySampler
from tests.bench.state import MIB, N_TARGET, RULES, SECONDS_LONG, columns

N_CORES = 2
FILL = 1_000_000
KINDS = {
    "runs": RULES["R1"].format(seconds=SECONDS_LONG),
    "windows": """
RULE R1 FROM e PARTITION BY key PATTERN a
LET n = COUNT(*) OVER LAST 30 DAYS, total = SUM(amount) OVER LAST 30 DAYS
DEFINE a AS n > 1000000 AND total > 90
MEASURES a.ts AS last_ts
""",
}
SMALL, LARGE, COLD = Target(1.3, at_most=True), Target(2.0, at_most=True), Target(5.0, at_most=True)
SNAPSHOT = Target(1.2, at_most=True)
MANY = 100
"""Micro-batches from which on the 99th of 100 means something."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way: seconds of the first of the small micro-batches; of the others the median, the 99th of 100."""

    first: float
    seconds: float
    longest: float
    peak: int  # of all processes, in bytes


@dataclass(frozen=True, slots=True)
class Case:
    """A state, and the micro-batches over it.

    Parameters
    ----------
    kind
        Of `KINDS`.
    filled
        The events that fill the state.
    keys, groups
        Keys, key groups.
    events, batches
        Events of a small micro-batch; how many of these.
    memory_mb
        The memory for warm state; None: as by default.
    """

    kind: str
    filled: int
    keys: int
    groups: int
    events: int
    batches: int
    memory_mb: int | None = None

    def write(self, folder: Path, first: int, n: int, n_types: int) -> None:
        """Write events from number `first` on as the next file."""
        table = columns(first, n, self.keys, n_types)
        times = table.column("ts").cast(pa.timestamp("us", tz="UTC"))
        at = table.column_names.index("ts")
        pq.write_table(table.set_column(at, "ts", times), folder / f"{first:012}.parquet")

    def pipeline_file(self, folder: Path, state: str) -> Path:
        """Write and return the pipeline, which reads a file in each micro-batch."""
        (folder / "R1.cep").write_text(KINDS[self.kind])
        fields = {field.name: field.ddl for field in STREAM.fields}
        spec: dict[str, Any] = {
            "streams": {STREAM.name: {"event_time": STREAM.event_time, "schema": fields}},
            "rules": ["R1.cep"],
            "source": {
                "stream": STREAM.name,
                "format": "parquet",
                "path": "events",
                "max_files_per_trigger": 1,
            },
            "sinks": [{"format": "parquet", "path": "matches"}],
            "checkpoint": "checkpoint",
            "mode": "stream",
            "state": state,
        }
        if state == "files" and self.memory_mb is not None:
            spec["state_memory_mb"] = self.memory_mb
        path = folder / "pipeline.yaml"
        path.write_text(yaml.safe_dump(spec, sort_keys=False))
        return path

    def measure(self, folder: Path, way: str) -> Measured:
        """Return what the small micro-batches take in one way."""
        shutil.rmtree(folder, ignore_errors=True)
        data = folder / "events"
        data.mkdir(parents=True)
        path = self.pipeline_file(folder, "files" if way == "files" else "inline")
        n = 0 if way == "empty" else self.filled
        for first in range(0, n, FILL):
            self.write(data, first, min(FILL, n - first), 1)
        if n:
            self.run(path, way)
        for batch in range(self.batches):
            self.write(data, self.filled + batch * self.events, self.events, 2)
        with MemorySampler() as sampler:
            summary = self.run(path, way)
        first_s, *later = summary.batch_seconds[: self.batches]
        peaks = sampler.peaks
        whole = peaks.jvm + peaks.workers + peaks.driver
        return Measured(first_s, statistics.median(later), float(np.percentile(later, 99)), whole)

    def run(self, path: Path, way: str) -> Summary:
        """Run the pipeline over the files that it has not read yet."""
        if way != "counts":
            return run_pipeline(path, quiet=True)
        with patch("spark_runtime.pipeline.runs.Dataflow", NoOpDataflow):
            return run_pipeline(path, quiet=True)

    def figures(self, folder: Path, ways: tuple[str, ...]) -> list[Figure]:
        """Return the figures of all ways."""
        found = {}
        self.measure(folder, "empty")  # Java compiles what runs often
        for way in ways:
            print(f"{self.kind}, {way}", flush=True)
            found[way] = self.measure(folder, way)
        case = f"{self.kind}: {self.filled:,} events of {self.keys:,} keys, {self.groups} key groups"
        path = f"micro-batch of {self.events:,}"
        counts = found["counts"].seconds if "counts" in found else None
        target = SMALL if self.events < FILL // 10 else LARGE
        shown = []
        for way, measured in found.items():
            shown.append(Figure(f"{path}, {way}", case, measured.seconds, "s", counts))
            shown.append(Figure(f"peak of all processes, {way}", case, measured.peak / MIB, "MiB"))
            if self.batches >= MANY:
                times = measured.longest / measured.seconds
                shown.append(Figure(f"99th of 100 by median, {way}", case, times, "times"))
        if self.batches >= MANY and {"counts", "files"} <= found.keys():
            # Spark alone has micro-batches that take twice the median.
            files, plain = (found[way].longest / found[way].seconds for way in ("files", "counts"))
            path_of = "99th of 100 by median, files by counts"
            shown.append(Figure(path_of, case, files / plain, "times", target=SNAPSHOT))
        for way in {"inline", "files"} & found.keys():
            if "empty" in found:
                times = found[way].seconds / found["empty"].seconds
                aim = target if way == "files" else None
                shown.append(Figure(f"{path}, {way} by empty", case, times, "times", target=aim))
            cold = found[way].first - found[way].seconds
            shown.append(
                Figure(f"cold start, {way}", case, cold, "s", target=COLD if way == "files" else None)
            )
        return shown


@click.command(help="Measure micro-batches over a large state in a stream.")
@click.option("--kind", type=click.Choice(tuple(KINDS)), default="runs", show_default=True)
@click.option("--filled", type=click.IntRange(min=1), default=N_TARGET, show_default=True)
@click.option("--keys", type=click.IntRange(min=1), default=N_TARGET // 10, show_default=True)
@click.option("--events", type=click.IntRange(min=1), default=5_000, show_default=True)
@click.option("--batches", type=click.IntRange(min=2), default=12, show_default=True)
@click.option("--groups", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--memory-mb", type=click.IntRange(min=1), help="for warm state")
@click.option("--ways", default="counts,empty,inline,files", show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the state")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(ways: str, quick: bool, out: Path, filled: int, keys: int, **of_case: Any) -> None:
    """Measure and show."""
    share = 10 if quick else 1
    case = Case(filled=max(filled // share, 1), keys=max(keys // share, 1), **of_case)
    folder = (out / "state_on_spark").resolve()
    session({"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(case.groups)})
    figures = case.figures(folder, tuple(ways.split(",")))
    shutil.rmtree(folder)
    options = {"case": str(case), "ways": ways}
    report("A large state in a stream, two cores", figures, options, out / "state_on_spark.json")


if __name__ == "__main__":
    main()
