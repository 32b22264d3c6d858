"""``python -m tests.bench.sizes``: micro-batches of several sizes, beside what the simulator predicts.

A part of the micro-batches gives the costs (`tests.bench.sizing`). From these the others are predicted, which
are larger, or have other key groups or a frequent key. Then the loads of docs/operate/scaling.md are sized.

The predictions are compared by processor time, because others may use the machine. A duration is the least of
several micro-batches.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.bench import baselines, processes
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import STREAM
from tests.bench.sizing import Costs, Layout, Load, Measured, cpu_seconds, fitted, needed, seconds
from tests.bench.state import RULES, SECONDS_LONG, columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

N_CORES = 2
N_BATCHES = 6
FILL = 1_000_000
N_KEYS = 100_000
N_TASKS = 400
ROUNDS = 2
ERROR = Target(0.25, at_most=True)


@dataclass(frozen=True, slots=True)
class Size:
    """A micro-batch of a size.

    Parameters
    ----------
    fits
        It gives the costs, and is not predicted.
    files
        The state is in files, so the micro-batch does not carry its runs.
    """

    name: str
    events: int
    groups: int
    runs: int = 0
    hot: float = 0
    fits: bool = False
    files: bool = False

    @property
    def load(self) -> Load:
        """The load for the simulator."""
        return Load(self.events, 0 if self.files else self.runs, self.hot)


SIZES = (
    Size("100,000 events", 100_000, 2, fits=True),
    Size("1,000,000 events", 1_000_000, 2, fits=True),
    Size("100,000 events, 32 key groups", 100_000, 32, fits=True),
    Size("100,000 events, 32 key groups, 1,000,000 runs", 100_000, 32, 1_000_000, fits=True),
    Size("2,000,000 events", 2_000_000, 2),
    Size("1,000,000 events, 1 key group", 1_000_000, 1),
    Size("500,000 events, 8 key groups", 500_000, 8),
    Size("1,000,000 events, 16 key groups", 1_000_000, 16),
    Size("1,000,000 events, one key with half", 1_000_000, 2, hot=0.5),
    Size("1,000,000 events, 16 key groups, one key with half", 1_000_000, 16, hot=0.5),
    Size("100,000 events, 16 key groups, 3,000,000 runs", 100_000, 16, 3_000_000),
    Size("500,000 events, 32 key groups, 3,000,000 runs", 500_000, 32, 3_000_000),
    Size("100,000 events, 16 key groups, 3,000,000 runs in files", 100_000, 16, 3_000_000, files=True),
)

LOADS = (
    ("1 M events/s", 1e6, 0.0),
    ("10 M events/s", 1e7, 0.0),
    ("100 M events/s", 1e8, 0.0),
    ("1 M events/s, 100 M open runs", 1e6, 1e8),
)
INTERVALS_S = (2.0, 10.0)


def write(folder: Path, first: int, n: int, n_types: int, hot: float) -> None:
    """Write events from number `first` on as the two files of a micro-batch."""
    for half in (first, first + n // 2):
        table = columns(half, n // 2, N_KEYS, n_types)
        if hot:
            is_hot = np.random.default_rng(half).random(n // 2) < hot
            keys = np.where(is_hot, 0, np.asarray(table.column("key")))
            table = table.set_column(0, "key", pa.array(keys))
        table = table.set_column(1, "ts", table.column("ts").cast(pa.timestamp("us", tz="UTC")))
        pq.write_table(table, folder / f"{half:012}.parquet")


def pipeline_file(folder: Path, *, files: bool) -> Path:
    """Write and return the pipeline: every event is needed, and runs stay open until an event ends them."""
    (folder / "R1.cep").write_text(RULES["R1"].format(seconds=SECONDS_LONG))
    fields = {field.name: field.ddl for field in STREAM.fields}
    spec = {
        "streams": {STREAM.name: {"event_time": STREAM.event_time, "schema": fields}},
        "rules": ["R1.cep"],
        "source": {"stream": STREAM.name, "format": "parquet", "path": "events", "max_files_per_trigger": 2},
        "sinks": [{"format": "parquet", "path": "matches"}],
        "checkpoint": "checkpoint",
        "state": "files" if files else "inline",
        "mode": "stream",
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def measured(spark: SparkSession, size: Size, folder: Path) -> Measured:
    """Return what a micro-batch of a size takes."""
    from spark_runtime import run_pipeline

    shutil.rmtree(folder, ignore_errors=True)
    (folder / "events").mkdir(parents=True)
    spark.conf.set("spark.sql.shuffle.partitions", str(size.groups))
    path = pipeline_file(folder, files=size.files)
    for first in range(0, size.runs, FILL):
        write(folder / "events", first, FILL, 1, 0)
    if size.runs:
        run_pipeline(path, quiet=True)
    for number in range(N_BATCHES):
        write(folder / "events", size.runs + number * size.events, size.events, 2, size.hot)
    before = processes.cpu_seconds()
    found = run_pipeline(path, quiet=True).batch_seconds
    cpu = (processes.cpu_seconds() - before) / N_BATCHES
    shutil.rmtree(folder)
    assert len(found) >= N_BATCHES  # more of them, without events, may end what waits
    return Measured(size.name, size.load, Layout(N_CORES, size.groups), min(found[:N_BATCHES]), cpu)


def call_seconds(spark: SparkSession, folder: Path) -> float:
    """Return the processor time of an event in its key group: that of an operator without rules is less."""
    size = SIZES[1]
    with patch("spark_runtime.pipeline.runs.Dataflow", baselines.NoOpDataflow):
        without = measured(spark, size, folder)
    return max(0.0, (measured(spark, size, folder).cpu_seconds - without.cpu_seconds) / size.events)


def task_seconds(spark: SparkSession) -> float:
    """Return how long a task without work takes; all cores are the driver's, so this is the most it takes."""
    spark.range(0, N_TASKS, 1, N_TASKS).count()
    found = []
    for _ in range(3):
        before = time.perf_counter()
        spark.range(0, N_TASKS, 1, N_TASKS).count()
        found.append(time.perf_counter() - before)
    return min(found) / N_TASKS


def figures_of(found: Measured, costs: Costs, *, fits: bool) -> list[Figure]:
    """Return a measured micro-batch; in the place of a no-op is the prediction."""
    predicted = cpu_seconds(costs, found.load, found.layout)
    error = abs(predicted / found.cpu_seconds - 1)
    case = f"{found.name}{' (gives costs)' if fits else ''}"
    return [
        Figure("processor time", case, found.cpu_seconds, "s", predicted),
        Figure("error of the prediction", case, error, "", target=None if fits else ERROR),
        Figure("duration", case, found.seconds, "s", seconds(costs, found.load, found.layout)),
    ]


def sized(costs: Costs) -> list[Figure]:
    """Return the cores and key groups that the loads need."""
    figures = []
    for (name, rate, runs), interval in ((load, interval) for load in LOADS for interval in INTERVALS_S):
        layout = needed(costs, rate, runs, interval)
        case = f"{name}, micro-batches of {interval:g} s"
        figures += [
            Figure("cores", case, layout.cores if layout else float("inf"), ""),
            Figure("key groups", case, layout.groups if layout else float("inf"), ""),
        ]
    return figures


@click.command(help="Measure micro-batches of several sizes, and compare them with predictions.")
@click.option("--quick", is_flag=True, help="no open runs, and one size that is predicted")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(quick: bool, out: Path) -> None:
    """Measure and show."""
    from spark_runtime import session

    spark = session({"spark.master": f"local[{N_CORES}]", "spark.driver.memory": "3g"}, is_short=True)
    folder = (out / "sizes").resolve()
    is_short = {size for size in SIZES if not size.runs and (size.fits or size.events < FILL)}
    sizes = [size for size in SIZES if not quick or size in is_short]
    for size in sizes[:4]:  # Java compiles what runs often, for a minute
        measured(spark, size, folder)
    found: list[Measured] = []
    for size in sizes:
        rounds = [measured(spark, size, folder) for _ in range(ROUNDS)]
        found.append(min(rounds, key=lambda one: one.cpu_seconds))
        print(f"{size.name}: {found[-1].seconds:.3f} s, {found[-1].cpu_seconds:.3f} processor s", flush=True)
    given = [one for one, size in zip(found, sizes, strict=True) if size.fits]
    costs = fitted(given, task_seconds(spark), call_seconds(spark, folder))
    print(costs)
    figures = [
        figure
        for one, size in zip(found, sizes, strict=True)
        for figure in figures_of(one, costs, fits=size.fits)
    ]
    load = {"load of the machine": os.getloadavg()[1]}
    report("Sizes, two cores", [*figures, *sized(costs)], load, out / "sizes.json")
    data = {"costs": asdict(costs), "measured": [asdict(one) for one in found]}
    (out / "sizes_costs.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
