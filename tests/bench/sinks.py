"""``python -m tests.bench.sinks``: what sinks that are exactly once cost a micro-batch.

Every event is a match. A pipeline reads a file in each micro-batch, for each sink and with a sink that does
nothing. What a micro-batch takes more than with that one is the cost of the sink, with the way to the driver.
Servers run on the same cores, so their work counts, too.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cep.settings.settings import Settings
from spark_runtime import run_pipeline, session
from spark_runtime.pipeline.delivering import Delivering
from spark_runtime.sinks.protocol import Guarantee, MicroBatch, Output, Rows, WorkerSink
from spark_runtime.sinks.registry import ALL_KINDS, SINKS, SinkContext
from tests.bench.figures import Figure, Target, report
from tests.servers.kafka_broker import running_broker
from tests.servers.postgres_server import running_postgres

N_CORES = 2
FEW, MANY = 100, 200_000
N_FEW, N_MANY, N_WARM = 20, 6, 3
COST, RATE = Target(150, at_most=True), Target(50_000)
START_US = 1_714_521_600_000_000
RULE = (
    "RULE alert FROM events PARTITION BY k PATTERN a DEFINE a AS n >= 0 MEASURES a.n AS n, a.amount AS amount"
)


@dataclass(frozen=True, slots=True)
class NoOp:
    """A sink that does nothing, in the workers; its settings and its type, too."""

    output: Output | None = None

    settings = ()
    kinds = ALL_KINDS
    guarantee = Guarantee.EXACTLY_ONCE

    def spec(self, settings: Settings) -> NoOp:
        """Return it."""
        return self

    def open(self, output: Output, context: SinkContext) -> WorkerSink:
        """Return it, of an output."""
        return NoOp(output)  # type: ignore[return-value]

    def check(self) -> None:
        """Do nothing."""

    def begin(self, batch: MicroBatch) -> None:
        """Do nothing."""

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
        """Do nothing."""

    def commit(self, batch: MicroBatch) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def write(folder: Path, number: int, n: int) -> None:
    """Write a file of events, all of them after those of the file before."""
    drawn = np.random.default_rng(number)
    ids = np.arange(n)
    columns = {
        "n": pa.array(ids),
        "k": pa.array([f"card-{key}" for key in drawn.integers(0, 10_000, n)]),
        "ts": pa.array(START_US + number * 1_000_000 + ids * 1_000_000 // n, pa.timestamp("us", tz="UTC")),
        "amount": pa.array(drawn.random(n)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{number:06}.parquet")


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of a micro-batch, the median of those after the first ones.

    Parameters
    ----------
    whole
        Of all of it.
    in_sink
        From the rows on the driver to the end of the commit; of a sink in the workers 0.
    processor
        Of the driver's processor meanwhile; a server's is not in it.
    """

    whole: float
    in_sink: float
    processor: float


def measure(folder: Path, events: Path, sink: dict[str, str]) -> Took:
    """Run a pipeline over a folder of events, a file in each micro-batch."""
    write_one = Delivering._write_one
    walls, processors = [], []

    def timed(self: Delivering, *given: Any) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        write_one(self, *given)
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)

    with patch.object(Delivering, "_write_one", timed):
        whole = run(folder, events, sink)
    in_sink, processor = (statistics.median(found[N_WARM:] or [0.0]) for found in (walls, processors))
    return Took(whole, in_sink, processor)


def run(folder: Path, events: Path, sink: dict[str, str]) -> float:
    """Run a pipeline; return the seconds of a micro-batch."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "rule.cep").write_text(RULE)
    fields = {"n": "bigint", "k": "string", "ts": "timestamp", "amount": "double"}
    spec = {
        "streams": {"events": {"event_time": "ts", "lateness": "0 seconds", "schema": fields}},
        "rules": ["rule.cep"],
        "source": {
            "stream": "events",
            "format": "parquet",
            "path": str(events),
            "max_files_per_trigger": 1,
        },
        "sinks": [sink],
        "checkpoint": "checkpoint",
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    summary = run_pipeline(path, quiet=True)
    return statistics.median(summary.batch_seconds[N_WARM:])


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the sinks by name, for `{}` in a value the name of a place; their servers run meanwhile."""
    with ExitStack() as stack:
        (folder / "kafka").mkdir(parents=True)
        broker = stack.enter_context(running_broker(folder / "kafka"))
        postgres = stack.enter_context(running_postgres(fsync="on"))
        found = {
            "no-op": {"format": "no-op"},
            "parquet": {"format": "parquet", "path": "out"},
            "delta": {"format": "delta", "path": "out"},
        }
        for size in ("few", "many"):
            found[f"postgres {size}"] = {"format": "postgres", "table": "out"} | {
                "dsn": postgres.dsn(postgres.database())
            }
            topic = broker.topic(size)
            found[f"kafka {size}"] = {"format": "kafka", "brokers": broker.address, "topic": topic}
        yield found


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of everything")
def main(quick: bool) -> None:
    """Measure and report."""
    folder = Path("out/bench/sinks").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    many = MANY // 10 if quick else MANY
    for size, n, n_files in (("few", FEW, N_FEW), ("many", many, N_MANY)):
        for number in range(n_files):
            write(folder / size, number, n)
    session({"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(N_CORES)})
    took: dict[tuple[str, str], Took] = {}
    with patch.dict(SINKS._loaded, {"no-op": NoOp()}), servers(folder / "servers") as sinks:
        for size in ("few", "many"):
            for name in ("no-op", "parquet", "delta", "postgres", "kafka"):
                sink = sinks.get(name) or sinks[f"{name} {size}"]
                took[name, size] = measure(folder / f"run-{name}-{size}", folder / size, sink)
    figures = []
    few_case, many_case = f"{FEW} matches a micro-batch", f"{many:,} matches a micro-batch"
    for name in ("parquet", "delta", "postgres", "kafka"):
        base, more = took["no-op", "few"].whole, took[name, "few"]
        figures.append(Figure(f"{name}: a micro-batch", few_case, more.whole * 1e3, "ms", base * 1e3))
        cost = (more.whole - base) * 1e3
        figures.append(Figure(f"{name}: more than no-op", few_case, cost, "ms", target=COST))
        if more.in_sink:
            figures.append(Figure(f"{name}: in the sink", few_case, more.in_sink * 1e3, "ms", target=COST))
    for name in ("parquet", "delta", "postgres", "kafka"):
        base, more = took["no-op", "many"].whole, took[name, "many"]
        figures.append(
            Figure(f"{name}: a micro-batch", many_case, many / more.whole, "matches/s", many / base)
        )
        if more.in_sink:
            rate, us = many / more.in_sink, more.processor / many * 1e6
            figures.append(Figure(f"{name}: in the sink", many_case, rate, "matches/s", target=RATE))
            figures.append(Figure(f"{name}: the driver's processor", many_case, us, "us a match"))
    report("sinks", figures, {"quick": quick}, Path("out/bench/sinks.json"))


if __name__ == "__main__":
    main()
