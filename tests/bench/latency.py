"""``python -m tests.bench.latency``: from the arrival of an event in the source to its match in the sink.

A pipeline runs with trigger 0 in a process of its own. A file of events is put into its source every 100 ms.
The latency of a match runs from the moment when the file with its last event was there to the moment when the
sink had committed the match. With a lateness the watermark must pass the event first: what remains after the
first event that takes the watermark that far has arrived stands apart.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from scenarios.run_folder import read_matches
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import DENSE_KEYS, RULES, STREAM, events

N_CORES = 2
RATE = 5_000
FILE_MS = 100
WARM_UP_S = 15.0
P50, P99 = Target(1.0, at_most=True), Target(3.0, at_most=True)

Seconds = npt.NDArray[np.float64]


def pipeline_file(folder: Path, lateness_s: int) -> Path:
    """Write and return the pipeline."""
    (folder / "R1.cep").write_text(RULES["R1"])
    stream = {
        "event_time": STREAM.event_time,
        "lateness": f"{lateness_s} seconds",
        "schema": {field.name: field.ddl for field in STREAM.fields},
    }
    spec = {
        "streams": {STREAM.name: stream},
        "rules": ["R1.cep"],
        "source": {"stream": STREAM.name, "format": "parquet", "path": "events"},
        "sinks": [{"format": "parquet", "path": "matches"}],
        "checkpoint": "checkpoint",
        "trigger": "0 seconds",
        "spark": {"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(N_CORES)},
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def put(folder: Path, number: int, size: int) -> float:
    """Put file `number` into the source, its events spread over its 100 ms; return when it was there."""
    table = events(size, DENSE_KEYS, number * size)
    time_us = number * FILE_MS * 1000 + np.arange(size) * (FILE_MS * 1000 // size)
    times = pa.array(time_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    hidden = folder / f".{number:08}"
    pq.write_table(table.set_column(table.column_names.index("ts"), "ts", times), hidden)
    hidden.rename(folder / f"{number:08}.parquet")
    return time.time()


def feed(folder: Path, seconds: float, size: int, process: subprocess.Popen[bytes]) -> Seconds:
    """Put files into the source for some seconds; return when each was there."""
    arrived: list[float] = []
    start = time.time()
    while len(arrived) * FILE_MS / 1000 < seconds:
        time.sleep(max(start + len(arrived) * FILE_MS / 1000 - time.time(), 0))
        assert process.poll() is None, "the pipeline has ended"
        arrived.append(put(folder, len(arrived), size))
    return np.array(arrived)


def committed(folder: Path) -> tuple[Seconds, Seconds]:
    """Return of each match in the sink: the time of its last event in seconds, and when it was there."""
    last: list[Seconds] = []
    there: list[Seconds] = []
    for batch in folder.glob("batch=*"):
        done = batch / "_SUCCESS"
        if done.exists():
            column = read_matches(batch, ["last_ts"]).column("last_ts")
            last.append(np.asarray(column.cast(pa.int64())) / 1e6)
            there.append(np.full(len(column), done.stat().st_mtime))
    return np.concatenate(last), np.concatenate(there)


def measure(lateness_s: int, rate: int, seconds: float, folder: Path) -> list[Figure]:
    """Return the figures of one run."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "events"
    source.mkdir(parents=True)
    size = rate * FILE_MS // 1000
    put(source, 0, size)  # so that there is a schema
    command = [sys.executable, "-m", "cep", "run", str(pipeline_file(folder, lateness_s))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.time() + 180
        while not list(folder.glob("matches/batch=*/_SUCCESS")):
            assert process.poll() is None, "the pipeline did not start"
            assert time.time() < deadline, "the pipeline takes too long to start"
            time.sleep(0.2)
        arrived = feed(source, WARM_UP_S + seconds, size, process)
        time.sleep(5)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    last_s, there = committed(folder / "matches")
    shutil.rmtree(folder)
    # Files are as long as events are apart, so an event's time says in which file it was.
    of_event = np.floor(last_s * 1000 / FILE_MS).astype(np.int64)
    of_watermark = np.floor((last_s + lateness_s) * 1000 / FILE_MS).astype(np.int64)
    counted = (last_s > WARM_UP_S) & (of_watermark < len(arrived))
    total = there[counted] - arrived[of_event[counted]]
    beyond = there[counted] - arrived[of_watermark[counted]]
    case = f"{rate:,} events/s, lateness {lateness_s} s"
    return [
        Figure("matches", case, int(counted.sum()), ""),
        Figure("arrival to sink, p50", case, float(np.quantile(total, 0.5)), "s"),
        Figure("arrival to sink, p99", case, float(np.quantile(total, 0.99)), "s"),
        Figure("without the watermark's wait, p50", case, float(np.quantile(beyond, 0.5)), "s", target=P50),
        Figure("without the watermark's wait, p99", case, float(np.quantile(beyond, 0.99)), "s", target=P99),
    ]


@click.command(help="Measure the latency of matches in a running stream.")
@click.option("--rate", type=click.IntRange(min=100), default=RATE, show_default=True, help="events a second")
@click.option("--seconds", type=float, default=40.0, show_default=True)
@click.option("--quick", is_flag=True, help="ten seconds, without a lateness only")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(rate: int, seconds: float, quick: bool, out: Path) -> None:
    """Measure and show."""
    figures: list[Figure] = []
    for lateness_s in (0,) if quick else (0, 2):
        figures += measure(lateness_s, rate, 10.0 if quick else seconds, (out / "latency").resolve())
    report("Latency in a running stream, two cores", figures, {"rate": rate}, out / "latency.json")


if __name__ == "__main__":
    main()
