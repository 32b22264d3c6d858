"""``python -m tests.bench.state_on_spark``: micro-batches over many open runs in a stream on two cores.

The pipeline fills the state, then goes on over small micro-batches, first with an operator that gives its
state back as it got it, then with the engine: the same pipeline, state and bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from spark_runtime import session
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.operator.operator import KeyGroups
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import STREAM
from tests.bench.processes import MemorySampler
from tests.bench.state import MEMORY_MIB, MIB, N_TARGET, RULES, SECONDS, SECONDS_LONG, columns

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

N_CORES = 2
FILL = 1_000_000
N_BATCHES = 4


class Carrier(KeyGroups):
    """In place of the engine: takes its rows and its state in and gives the state back."""

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Read the rows."""
        if not state.hasTimedOut:
            for frame in frames:
                len(frame)
        state.update((bytes(state.get[0]),))
        return iter(())


class CarrierDataflow(Dataflow):
    """The plan of the rules, with `Carrier` for the operator."""

    @property
    def operator(self) -> KeyGroups:
        """The function that runs on the executors."""
        return Carrier(self.rules, self.n_groups)


def write(folder: Path, first: int, n: int, n_keys: int, n_types: int) -> None:
    """Write events from number `first` on as the next file."""
    table = columns(first, n, n_keys, n_types)
    times = table.column("ts").cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(
        table.set_column(table.column_names.index("ts"), "ts", times), folder / f"{first:012}.parquet"
    )


def pipeline_file(folder: Path) -> Path:
    """Write and return a pipeline of the rule with long windows, a file in each micro-batch."""
    (folder / "R1.cep").write_text(RULES["R1"].format(seconds=SECONDS_LONG))
    fields = {field.name: field.ddl for field in STREAM.fields}
    spec = {
        "streams": {STREAM.name: {"event_time": STREAM.event_time, "schema": fields}},
        "rules": ["R1.cep"],
        "source": {"stream": STREAM.name, "format": "parquet", "path": "events", "max_files_per_trigger": 1},
        "sinks": [{"format": "parquet", "path": "matches"}],
        "checkpoint": "checkpoint",
        "mode": "stream",
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def measure(n_runs: int, n_keys: int, n_events: int, n_groups: int, folder: Path) -> list[Figure]:
    """Return the figures of micro-batches of `n_events` over `n_runs` open runs."""
    from spark_runtime import run_pipeline

    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "events"
    data.mkdir(parents=True)
    session({"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(n_groups)})
    path = pipeline_file(folder)
    for first in range(0, n_runs, FILL):
        write(data, first, min(FILL, n_runs - first), n_keys, 1)
    run_pipeline(path, quiet=True)
    first = n_runs

    def seconds_of_a_batch() -> float:
        nonlocal first
        for _ in range(N_BATCHES):
            write(data, first, n_events, n_keys, 2)
            first += n_events
        summary = run_pipeline(path, quiet=True)
        return summary.processing_seconds / summary.n_batches

    with patch("spark_runtime.pipeline.runs.Dataflow", CarrierDataflow):
        carried = seconds_of_a_batch()
    with MemorySampler() as sampler:
        seconds = seconds_of_a_batch()
    peaks = sampler.peaks
    is_full = n_runs >= N_TARGET
    case = f"R1, {n_runs:,} runs, {n_groups} key groups"
    path_name = f"micro-batch of {n_events:,}"
    figures = [Figure(path_name, case, seconds, "s", carried, SECONDS if is_full else None)]
    for name, size in (("JVM", peaks.jvm), ("workers", peaks.workers), ("driver", peaks.driver)):
        figures.append(Figure(f"peak of {name}", case, size / MIB, "MiB"))
    total = (peaks.jvm + peaks.workers + peaks.driver) / MIB
    target: Target | None = MEMORY_MIB if is_full else None
    return [*figures, Figure("peak of all", case, total, "MiB", target=target)]


@click.command(help="Measure micro-batches over many open runs in a stream.")
@click.option("--runs", type=click.IntRange(min=1), default=N_TARGET, show_default=True)
@click.option("--events", "n_events", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--groups", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the runs")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(runs: int, n_events: int, groups: int, quick: bool, out: Path) -> None:
    """Measure and show."""
    n = runs // 10 if quick else runs
    folder = (out / "state_on_spark").resolve()
    figures = measure(n, max(n // 10, 1), n_events, groups, folder)
    shutil.rmtree(folder)
    options = {"runs": n, "events": n_events, "groups": groups}
    report("Open runs in a stream, two cores", figures, options, out / "state_on_spark.json")


if __name__ == "__main__":
    main()
