"""``python -m tests.bench.waiting_on_spark``: micro-batches while many events wait for a slow source.

One source gives one event and no more, so the events of the other one wait in the state. The pipeline fills
it, then goes on over small micro-batches. Each of them reads and writes all that waits.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from spark_runtime import run_pipeline, session
from tests.bench.figures import Figure, report
from tests.bench.processes import MemorySampler
from tests.bench.state import MIB

N_CORES = 2
FILL = 250_000
N_BATCHES = 4
N_KEYS = 100_000
RATE = 20
START_US = 1_714_521_600_000_000

FIELDS = {"id": "bigint", "k": "bigint", "ts": "timestamp", "n": "bigint", "text": "string"}

RULE = """
RULE unpaid FROM orders, payments PARTITION BY orders.k = payments.k PATTERN o -> p WITHIN 5 MINUTES
DEFINE o ON orders AS n >= 0, p ON payments AS n = o.n MEASURES o.id AS o, p.id AS p{more}
"""

TEXT = ", o.text AS text"
"""The measure of wide events: they wait with a text of 64 characters, hardly to be compressed."""


def texts(drawn: np.random.Generator, n: int) -> pa.Array:
    """Return `n` random texts of 64 characters."""
    letters = pa.py_buffer(drawn.bytes(32 * n).hex().encode())
    ends = pa.py_buffer(np.arange(0, 64 * n + 1, 64, dtype=np.int32))
    return pa.StringArray.from_buffers(n, ends, letters)


def write(folder: Path, first: int, n: int) -> None:
    """Write events from number `first` on as the next file, `RATE` of them a second."""
    drawn = np.random.default_rng(first)
    ids = np.arange(first, first + n)
    times = pa.array(START_US + ids * 1_000_000 // RATE, pa.timestamp("us", tz="UTC"))
    columns = {
        "id": pa.array(ids),
        "k": pa.array(drawn.integers(0, N_KEYS, n)),
        "ts": times,
        "n": pa.array(drawn.integers(0, 1_000_000, n)),
        "text": texts(drawn, n),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{first:012}.parquet")


def pipeline_file(folder: Path, limit: int, *, is_wide: bool) -> Path:
    """Write and return a pipeline over a fast and a slow source, a file of each in a micro-batch."""
    (folder / "rules.cep").write_text(RULE.format(more=TEXT if is_wide else ""))
    one = {"format": "parquet", "max_files_per_trigger": 1}
    spec = {
        "streams": {
            name: {"event_time": "ts", "tie_break": ["id"], "lateness": "10 seconds", "schema": dict(FIELDS)}
            for name in ("orders", "payments")
        },
        "rules": ["rules.cep"],
        "sources": [one | {"stream": name, "path": name} for name in ("orders", "payments")],
        "sinks": [{"format": "parquet", "path": "matches"}],
        "checkpoint": "checkpoint",
        "max_waiting_events": limit,
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_waiting(folder: Path) -> int:
    """Return the bytes in memory of what waits after the last micro-batch."""
    found = json.loads((folder / "checkpoint/done.json").read_text())
    *_, waiting = found[max(found, key=int)]
    return sum(waiting[1].values())


def measure(n_waiting: int, n_events: int, n_groups: int, folder: Path, *, is_wide: bool) -> list[Figure]:
    """Return the figures of micro-batches of `n_events` while `n_waiting` events wait."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    session({"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(n_groups)})
    path = pipeline_file(folder, 100 * n_waiting, is_wide=is_wide)
    write(folder / "payments", 0, 1)
    for first in range(0, n_waiting, FILL):
        write(folder / "orders", first, min(FILL, n_waiting - first))
    no_limit = patch("spark_runtime.pipeline.runs._HEAP_FOR_WAITING", 1e-6)
    with no_limit, MemorySampler() as sampler:
        filled = run_pipeline(path, quiet=True)
        for number in range(N_BATCHES):
            write(folder / "orders", n_waiting + number * n_events, n_events)
        summary = run_pipeline(path, quiet=True)
    assert summary.time is not None
    if summary.time.waiting != 1 + n_waiting + N_BATCHES * n_events:  # the event of the slow source, too
        raise click.ClickException(f"{summary.time.waiting:,} events wait")
    peaks = sampler.peaks
    case = f"{n_waiting:,} {'wide ' if is_wide else ''}waiting, {n_groups} key groups"
    seconds = summary.processing_seconds / summary.n_batches
    figures = [
        Figure(f"micro-batch of {n_events:,}", case, seconds, "s"),
        Figure("all micro-batches that filled it", case, filled.processing_seconds, "s"),
        Figure("bytes of an event", case, bytes_waiting(folder) / summary.time.waiting, "B"),
        Figure("checkpoint", case, size_of(folder / "checkpoint") / MIB, "MiB"),
    ]
    for name, size in (("JVM", peaks.jvm), ("workers", peaks.workers), ("driver", peaks.driver)):
        figures.append(Figure(f"peak of {name}", case, size / MIB, "MiB"))
    return [*figures, Figure("peak of all", case, (peaks.jvm + peaks.workers + peaks.driver) / MIB, "MiB")]


@click.command(help="Measure micro-batches while many events wait for a slow source.")
@click.option("--waiting", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--events", "n_events", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--groups", type=click.IntRange(min=1), default=N_CORES, show_default=True)
@click.option("--wide", is_flag=True, help="events with a text of 64 characters that a rule reports")
@click.option("--quick", is_flag=True, help="a tenth of the events that wait")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(waiting: int, n_events: int, groups: int, wide: bool, quick: bool, out: Path) -> None:
    """Measure and show."""
    n = waiting // 10 if quick else waiting
    folder = (out / "waiting_on_spark").resolve()
    figures = measure(n, n_events, groups, folder, is_wide=wide)
    shutil.rmtree(folder)
    options = {"waiting": n, "events": n_events, "groups": groups, "wide": wide}
    report("Events that wait for a slow source, two cores", figures, options, out / "waiting_on_spark.json")


if __name__ == "__main__":
    main()
