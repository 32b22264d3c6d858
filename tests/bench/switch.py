"""``python -m tests.bench.switch``: what a change of rules costs a running stream, on two cores.

A stream with two rules has a state, and reads a small file in each micro-batch. Its rules change meanwhile:

- *words*: the title of one rule;
- *window*: the window of one rule, which begins again; the state of the other one continues.

The pause is the time from the last micro-batch with matches under the rules before to the first one under
those after. The no-op is the median of the time from one micro-batch to the next where nothing changes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import yaml

from spark_runtime import run_pipeline, session
from tests.bench.figures import Figure, report
from tests.bench.state import SECONDS_LONG
from tests.bench.state_on_spark import FILL, KINDS, N_CORES, Case

CHANGES = ("words", "window")
BEFORE, AFTER = 16, 16
"""Micro-batches that are measured before and after a change."""

_MOST_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Switch:
    """The pause of a change in seconds, and the seconds between other micro-batches (median)."""

    pause: float
    usual: float


def rules(change: str = "") -> str:
    """Return the two rules, before or after a change."""
    other = KINDS["runs"].replace("RULE R1", "RULE R2").replace("amount > 90", "amount > 91")
    if change == "words":
        other = other.replace("RULE R2", "RULE R2 TITLE 'changed'")
    elif change == "window":
        other = other.replace(f"{SECONDS_LONG} SECONDS", f"{SECONDS_LONG - 1} SECONDS")
    return KINDS["runs"] + other


def measure(case: Case, folder: Path, change: str) -> Switch:
    """Return what a change costs in a run of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "events").mkdir(parents=True)
    path = case.pipeline_file(folder, "files")
    spec = yaml.safe_load(path.read_text()) | {"trigger": "0 seconds", "reload": "on change"}
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    (folder / "R1.cep").write_text(rules())
    for first in range(0, case.filled, FILL):
        case.write(folder / "events", first, min(FILL, case.filled - first), 1)
    found: list[Switch] = []
    beside = threading.Thread(target=_beside, args=(case, folder, change, found))
    beside.start()
    run_pipeline(path, quiet=True)
    beside.join()
    return found[0]


def _beside(case: Case, folder: Path, change: str, found: list[Switch]) -> None:
    """Add a file whenever one was read, change the rules in between, measure, and end the run."""
    checkpoint, begun = folder / "checkpoint", time.monotonic()
    n_files, matched, batch = 0, [], None
    try:
        while time.monotonic() < begun + _MOST_SECONDS:
            time.sleep(0.01)
            commits = sorted(int(file.name) for file in (checkpoint / "query/commits").glob("[0-9]*"))
            matched = sorted({int(file.name.rpartition("-")[2]) for file in (folder / "matches").glob("*-*")})
            matched = [number for number in matched if number in commits]
            if n_files <= len(commits) and commits:  # a file waits
                first = case.filled + n_files * case.events
                case.write(folder, first, case.events, 2)
                (folder / f"{first:012}.parquet").rename(folder / f"events/{first:012}.parquet")
                n_files += 1
            if len(matched) == BEFORE and batch is None:
                (folder / "R1.cep").write_text(rules(change))
                batch = -1
            with suppress(OSError, ValueError):
                batch = int(json.loads((checkpoint / "rules/1.json").read_text())["batch"])
            if batch is not None and sum(number > batch >= 0 for number in matched) >= AFTER:
                found.append(_switch(checkpoint, matched, batch))
                return
        print(f"not measured: change in {batch}, matches in {matched}, {n_files} files", flush=True)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def _switch(checkpoint: Path, matched: list[int], batch: int) -> Switch:
    """Return what a change in micro-batch `batch` cost; `matched`: the micro-batches with matches."""
    at = {n: (checkpoint / f"query/commits/{n}").stat().st_mtime for n in matched}
    before, after = [n for n in matched if n < batch], [n for n in matched if n >= batch]
    parts = before[2:], after[1:]  # the first ones after a start restore state
    usual = [at[later] - at[n] for part in parts for n, later in pairwise(part)]
    return Switch(at[after[0]] - at[before[-1]], statistics.median(usual))


@click.command(help="Measure the pause of a stream while its rules change.")
@click.option(
    "--filled", type=click.IntRange(min=1), default=FILL, show_default=True, help="events of the state"
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the state, and once")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(filled: int, repeats: int, quick: bool, out: Path) -> None:
    """Measure and show."""
    filled, repeats = (max(filled // 10, 1), 1) if quick else (filled, repeats)
    case = Case("runs", filled, max(filled // 10, 1), groups=4, events=5_000, batches=0)
    folder = (out / "switch").resolve()
    session({"spark.master": f"local[{N_CORES}]", "spark.sql.shuffle.partitions": str(case.groups)})
    shown = f"two rules, {filled:,} events of {case.keys:,} keys each, {case.groups} key groups"
    figures = []
    for change in CHANGES:
        runs = [measure(case, folder, change) for _ in range(repeats)]
        print(f"{change}: {runs}", flush=True)
        middle = sorted(runs, key=lambda run: run.pause / run.usual)[len(runs) // 2]
        figures.append(Figure(f"pause, {change}", shown, middle.pause, "s", middle.usual))
        figures.append(Figure(f"more than a micro-batch, {change}", shown, middle.pause - middle.usual, "s"))
    shutil.rmtree(folder)
    report("A change of rules in a stream, two cores", figures, {"case": str(case)}, out / "switch.json")


if __name__ == "__main__":
    main()
