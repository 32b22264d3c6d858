"""``python -m tests.e2e.behind``: `cep run` with one source an hour, a day and a month behind.

Orders come fast, payments slowly. More events wait than `max_waiting_events`, and the pipeline pauses or goes
on. With `pause` the matches must be those of a batch, whoever is paused, killed or stopped meanwhile. With
`go_on` they must be those of a batch over the events that were not late, and the late ones must be written.
Waiting events, memory, checkpoint and micro-batches are measured from outside.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import yaml

from cep.errors import CepError
from tests.bench.processes import MemorySampler, Peaks

START_S = 1_714_521_600  # 2024-05-01
LATENESS_S = 10
N_SHOPS = 50
SHARE = 10
"""An order in so many is paid: payments are so much rarer than orders."""
HOUR, DAY = 3600, 86_400
MARGIN_S = 600
"""Both sources go on for so long after the time by which one is behind."""
MIB = 1 << 20

RULES = """
RULE paid FROM orders, payments PARTITION BY shop PATTERN o -> p WITHIN 5 MINUTES
DEFINE o ON orders AS n < 30, p ON payments AS n < 300 MEASURES o.id AS o, p.id AS p

RULE unpaid FROM orders, payments PARTITION BY shop PATTERN o -> !p FOR 3 MINUTES
DEFINE o ON orders AS n > 990, p ON payments AS TRUE MEASURES o.id AS o, o.id AS p

RULE rest FROM orders, payments PARTITION BY shop PATTERN o -> p WITHIN 1 SECOND
DEFINE o ON orders AS n >= 0, p ON payments AS n = 7 MEASURES o.id AS o, p.id AS p
"""

SCHEMA = {"id": "bigint", "shop": "string", "ts": "timestamp", "n": "bigint"}
NAMES = ("orders", "payments")


class WrongError(click.ClickException):
    """What the trial found."""


def expect(is_so: bool, what: str) -> None:
    """Raise WrongError unless it is so."""
    if not is_so:
        raise WrongError(what)


# ---------------------------------------------------------------- input


@dataclass(frozen=True)
class Kind:
    """How the trial is set up.

    Parameters
    ----------
    behind_s
        By how much event time payments are behind.
    rate
        Orders a second.
    n_files
        Files of each source: one of each in a micro-batch.
    limit
        `max_waiting_events`.
    at_max
        `at_max_waiting`.
    formats
        Of orders and payments.
    """

    behind_s: int = HOUR
    rate: float = 20.0
    n_files: int = 24
    limit: int = 10_000
    at_max: str = "pause"
    formats: tuple[str, str] = ("json", "parquet")

    @property
    def end_s(self) -> int:
        """How long the input is."""
        return self.behind_s + MARGIN_S


@dataclass
class Input:
    """Two folders of files; each source is written up to some second of event time."""

    kind: Kind
    folder: Path
    written_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    n_written: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    largest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))  # events of a file

    def write(self, name: str, until_s: float) -> None:
        """Go on up to a second, in files of equal spans."""
        step = self.kind.end_s / self.kind.n_files
        while self.written_s[name] < until_s:
            first_s = self.written_s[name]
            last_s = min(first_s + step, until_s)
            self._write(name, self._events(name, first_s, last_s))
            self.written_s[name] = last_s

    def _events(self, name: str, first_s: float, last_s: float) -> pa.Table:
        rate = self.kind.rate if name == "orders" else self.kind.rate / SHARE
        n, first_id = max(round((last_s - first_s) * rate), 1), self.n_written[name]
        drawn = np.random.default_rng([first_id, len(name)])
        seconds = np.sort(drawn.uniform(first_s, last_s, n))
        order = np.argsort(seconds + drawn.uniform(0, 0.9 * LATENESS_S, n))  # nearly in order
        times = START_S * 1_000_000 + np.round(seconds * 1e6).astype(np.int64)
        columns = {
            "id": pa.array(np.arange(first_id, first_id + n)),
            "shop": pa.array(np.char.add("s", drawn.integers(0, N_SHOPS, n).astype(str))),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "n": pa.array(drawn.integers(0, 1000, n)),
        }
        return pa.table(columns).take(pa.array(order))

    def _write(self, name: str, events: pa.Table) -> None:
        self.n_written[name] += events.num_rows
        self.largest[name] = max(self.largest[name], events.num_rows)
        write_events(self.folder / name, self.format_of(name), self.n_written[name], events)

    def format_of(self, name: str) -> str:
        """Return the format of a source."""
        return self.kind.formats[NAMES.index(name)]

    def events(self, name: str) -> pa.Table:
        """Return all that was written of a source."""
        return read_events(self.folder / name, self.format_of(name))


def write_events(folder: Path, file_format: str, number: int, events: pa.Table) -> None:
    """Write a file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:012}.{file_format}"
    if file_format == "parquet":
        pq.write_table(events, file)
        return
    texts = events.column("ts").cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
    ids, shops, numbers = (events.column(name).to_pylist() for name in ("id", "shop", "n"))
    with file.open("w") as lines:
        for number, shop, text, n in zip(ids, shops, texts, numbers, strict=True):
            lines.write(
                f'{{"id": {number}, "shop": "{shop}", "ts": "{text.replace(" ", "T")}Z", "n": {n}}}\n'
            )


def read_events(folder: Path, file_format: str) -> pa.Table:
    """Return the events of a folder of Parquet or JSON, in no order."""
    files = sorted(file for file in folder.rglob(f"*.{file_format}") if file.stat().st_size)
    if file_format == "parquet":
        return pa.concat_tables(pq.read_table(file, columns=list(SCHEMA)) for file in files)
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    times = pa.array([row["ts"].removesuffix("Z") for row in rows], pa.string())
    columns = {name: pa.array([row[name] for row in rows]) for name in ("id", "shop", "n")}
    return pa.table({**columns, "ts": times.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))})


# ---------------------------------------------------------------- runs

Run = Callable[[Path], dict[str, Any]]
"""Runs a pipeline file to its end and returns its summary, as `cep run --format json` has it."""


def pipeline_file(given: Input, name: str, **settings: Any) -> Path:
    """Write and return a pipeline over the two sources; its matches are in the folder `name`."""
    folder = given.folder
    (folder / "rules.cep").write_text(RULES)
    idle = settings.pop("idle_after", None)
    sources = [
        {"stream": n, "format": given.format_of(n), "path": n, "max_files_per_trigger": 1}
        | ({"idle_after": idle} if idle is not None else {})
        for n in NAMES
    ]
    streams = {
        n: {"event_time": "ts", "tie_break": ["id"], "lateness": "10 seconds", "schema": dict(SCHEMA)}
        for n in NAMES
    }
    spec = {
        "streams": streams,
        "rules": ["rules.cep"],
        "sources": settings.pop("sources", sources),
        "sinks": [{"format": "parquet", "path": name}],
        "late": {"format": "parquet", "path": f"{name}-late"},
        **settings,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def stream_file(given: Input, **settings: Any) -> Path:
    """Write and return the pipeline under trial."""
    kind = given.kind
    return pipeline_file(
        given,
        "stream",
        checkpoint="checkpoint",
        max_waiting_events=kind.limit,
        at_max_waiting=kind.at_max,
        **settings,
    )


Matches = Counter[tuple[Any, ...]]


def matches_in(folder: Path) -> Matches:
    """Return the matches that were written."""
    if not folder.is_dir() or not any(folder.rglob("*.parquet")):
        return Counter()
    table = ds.dataset(folder, partitioning=None, format="parquet").to_table(["rule", "match_id", "o", "p"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def late_ids(folder: Path, name: str) -> set[int]:
    """Return the ids of the late events of a stream that were written; each is there once."""
    found = folder / "stream-late" / f"stream={name}"
    if not found.is_dir() or not any(found.rglob("*.parquet")):
        return set()
    ids = ds.dataset(found, partitioning=None, format="parquet").to_table(["id"]).column(0).to_pylist()
    expect(len(ids) == len(set(ids)), f"late events of {name} were written twice")
    return set(ids)


def in_batch(given: Input, run: Run, late: dict[str, set[int]]) -> Matches:
    """Return the matches of a batch over all events but the late ones."""
    sources = []
    for name in NAMES:
        path, file_format = name, given.format_of(name)
        if late.get(name):
            events = given.events(name)
            is_late = np.isin(np.asarray(events.column("id")), sorted(late[name]))
            path, file_format = f"{name}-in-time", "parquet"
            shutil.rmtree(given.folder / path, ignore_errors=True)
            write_events(given.folder / path, "parquet", 0, events.filter(pa.array(~is_late)))
        sources.append({"stream": name, "format": file_format, "path": path})
    run(pipeline_file(given, "batch", mode="batch", sources=sources))
    return matches_in(given.folder / "batch")


def check_end(given: Input, run: Run, n_events: int, n_late: int | None) -> str:
    """Compare what a stream has written in the end with a batch; return what it came to.

    `n_late` is how many late events the summaries counted; None: a run was killed, and said nothing.
    """
    late = {name: late_ids(given.folder, name) for name in NAMES}
    n_written = sum(map(len, late.values()))
    if n_late is not None:
        expect(n_late == n_written, f"{n_late:,} late events were counted, {n_written:,} written")
        total = sum(given.n_written.values())
        expect(n_events == total, f"{n_events:,} events were counted of {total:,}")
    if given.kind.at_max == "pause":
        expect(n_written == 0, f"{n_written:,} events were late with `pause`")
    expected, found = in_batch(given, run, late), matches_in(given.folder / "stream")
    missing, more = (expected - found).total(), (found - expected).total()
    expect(
        found == expected, f"of {expected.total():,} matches {missing:,} are missing; {more:,} are too many"
    )
    expect(found.total() > 0, "there are no matches at all")
    return f"{sum(given.n_written.values()):,} events, {n_written:,} late, {found.total():,} matches"


def waits(summary: dict[str, Any]) -> tuple[int, str | None]:
    """Return how many events wait in the end, and for whom."""
    return summary["time"]["waiting_events"], summary["time"]["held_by"]


def states(summary: dict[str, Any], word: str) -> list[str]:
    """Return the source partitions that are `paused`, `given_up` or `idle` at the end of a run."""
    return sorted(part["name"] for part in summary["time"]["partitions"] if part[f"is_{word}"])


def most_waiting(given: Input) -> int:
    """Return how many events may wait with `pause`: the limit, and a micro-batch."""
    return given.kind.limit + sum(given.largest.values())


# ---------------------------------------------------------------- trials


def falls_behind(given: Input, run: Run, interrupt: Callable[[Path], None]) -> str:
    """Payments stop after a minute; when all orders are there the payments follow."""
    kind = given.kind
    given.write("orders", kind.end_s)
    given.write("payments", 60)
    first = run(stream_file(given))
    waiting, holder = waits(first)
    n_late, n_events = first["counts"]["late"], first["counts"]["events"]
    if kind.at_max == "pause":
        expect(holder == "payments", f"held by {holder}")
        expect(states(first, "paused") == ["orders"], "orders are not paused")
        expect(kind.limit < waiting <= most_waiting(given), f"{waiting:,} events wait")
    else:
        expect(first["time"]["given_up"] == ["payments"], "payments are not given up")
        expect(states(first, "given_up") == ["payments"], "payments do not count as given up")
        expect(n_events == sum(given.n_written.values()), f"only {n_events:,} events were read")
    given.write("payments", kind.end_s)
    path = stream_file(given, at_end="finish")
    interrupt(path)
    second = run(path)
    if kind.at_max == "go_on":
        expect(second["time"]["given_up"] == ["payments"], "the summary does not say who was given up")
    was_interrupted = interrupt is not nothing
    total_late = None if was_interrupted else n_late + second["counts"]["late"]
    return check_end(given, run, n_events + second["counts"]["events"], total_late)


def nothing(_: Path) -> None:
    """Do not interrupt a run."""


def takes_turns(given: Input, run: Run) -> str:
    """Payments are behind, then orders are, then both are there."""
    third = given.kind.end_s / 3
    steps = ((2 * third, 60, "payments"), (2 * third, 3 * third, "orders"))
    for orders_s, payments_s, slow in steps:
        given.write("orders", orders_s)
        given.write("payments", payments_s)
        waiting, holder = waits(run(stream_file(given)))
        expect(holder == slow, f"held by {holder}, not by {slow}")
        expect(waiting <= most_waiting(given), f"{waiting:,} events wait")
    given.write("orders", given.kind.end_s)
    run(stream_file(given, at_end="finish"))
    return check_end(given, run, 0, None)


def is_silent(given: Input, run: Run, idle_after: str | None) -> str:
    """Payments never come."""
    given.write("orders", given.kind.end_s)
    path = given.folder / "payments"
    path.mkdir()
    (path / f"none.{given.format_of('payments')}").write_text("no event\n")
    settings = {} if idle_after is None else {"idle_after": idle_after}
    first = run(stream_file(given, **settings))
    waiting, holder = waits(first)
    n_events = first["counts"]["events"]
    if idle_after is not None:
        expect(states(first, "idle") != [], "payments are not idle")
    elif given.kind.at_max == "pause":
        expect((holder, states(first, "paused")) == ("payments", ["orders"]), f"held by {holder}")
        expect(waiting <= most_waiting(given), f"{waiting:,} events wait")
        said = refusal(run, stream_file(given))
        expect("E0847" in said, f"another run can read nothing, and says: {said or 'nothing'}")
    else:
        expect(first["time"]["given_up"] == ["payments"], "payments are not given up")
    last = run(stream_file(given, at_end="finish", **settings))
    n_late = first["counts"]["late"] + last["counts"]["late"]
    return check_end(given, run, n_events + last["counts"]["events"], n_late)


def refusal(run: Run, pipeline: Path) -> str:
    """Return what a run says that ends with an error; an empty text: it ends well."""
    try:
        run(pipeline)
    except (CepError, WrongError) as error:
        return f"{error} {getattr(error, 'message', '')}"
    return ""


# ---------------------------------------------------------------- from outside


@dataclass
class Watched:
    """What was seen of the runs of a trial."""

    waiting: int = 0
    checkpoint: int = 0
    n_batches: int = 0
    longest_s: float = 0.0
    peaks: Peaks = field(default_factory=Peaks)

    def text(self) -> str:
        """Return it in a line."""
        peaks = self.peaks
        return (
            f"at most {self.waiting:,} waiting, checkpoint {self.checkpoint / MIB:.0f} MiB, "
            f"{self.n_batches} micro-batches of up to {self.longest_s:.1f} s, "
            f"largest worker {peaks.worker / MIB:.0f} MiB, driver {peaks.driver / MIB:.0f}, "
            f"JVM {peaks.jvm / MIB:.0f}"
        )


class Watch:
    """Looks at the checkpoint while a process runs."""

    def __init__(self, checkpoint: Path, seen: Watched) -> None:
        self.checkpoint, self.seen = checkpoint, seen
        self._known: dict[str, float] = dict.fromkeys(self._read(), float("nan"))  # when it was seen first

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.checkpoint / "done.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def look(self) -> int:
        """Look once; return how many micro-batches were seen so far."""
        for number, (*_, waiting) in self._read().items():
            if number not in self._known:
                self._known[number] = now = time.monotonic()
                self.seen.waiting = max(self.seen.waiting, sum(waiting[0].values()))
                self.seen.checkpoint = max(self.seen.checkpoint, size_of(self.checkpoint))
                self.seen.n_batches += 1
                seconds = now - self._known.get(str(int(number) - 1), float("nan"))
                self.seen.longest_s = max(self.seen.longest_s, seconds)  # not if it is not known
        return len(self._known)


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder that changes."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


def start(pipeline: Path) -> subprocess.Popen[str]:
    """Start the command with a process group of its own."""
    command = [sys.executable, "-m", "cep", "run", "--format", "json", str(pipeline)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@dataclass
class Processes:
    """Runs pipelines as commands and watches them."""

    seen: Watched = field(default_factory=Watched)

    def run(self, pipeline: Path) -> dict[str, Any]:
        """Run a pipeline to its end."""
        process = start(pipeline)
        with self._watched(process, pipeline) as watch:
            out, errors = process.communicate()
            watch.look()
        if process.returncode != 0:
            raise WrongError(f"{pipeline} ended with {process.returncode}: {errors[-2000:]}")
        summary: dict[str, Any] = json.loads(out)
        return summary

    def interrupt(self, pipeline: Path) -> None:
        """Stop a run with Ctrl-C, then kill one, each after some micro-batches."""
        for number, after in ((signal.SIGINT, 2), (signal.SIGKILL, 5)):
            process = start(pipeline)
            with self._watched(process, pipeline) as watch:
                n_before = watch.look()
                while process.poll() is None and watch.look() < n_before + after:
                    time.sleep(0.01)
                if process.poll() is not None:
                    raise WrongError(f"the run ended before it got signal {number}")
                if number == signal.SIGINT:
                    process.send_signal(number)
                else:
                    time.sleep(random.random())  # in the middle of something
                    os.killpg(process.pid, number)
                process.communicate()

    def _watched(self, process: subprocess.Popen[str], pipeline: Path) -> _Watching:
        return _Watching(process, Watch(pipeline.parent / "checkpoint", self.seen), self.seen.peaks)


class _Watching:
    """Looks at a process and at the checkpoint while a block runs."""

    def __init__(self, process: subprocess.Popen[str], watch: Watch, peaks: Peaks) -> None:
        self.watch = watch
        self.sampler = MemorySampler(process.pid, peaks)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def _go_on(self) -> None:
        while not self._stop.wait(0.02):
            self.watch.look()

    def __enter__(self) -> Watch:
        self.sampler.__enter__()
        self._thread.start()
        return self.watch

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.sampler.__exit__(None, None, None)


SPANS = {
    "hour": Kind(HOUR, 20, 24, 10_000, formats=("json", "parquet")),
    "day": Kind(DAY, 20, 48, 300_000, formats=("parquet", "json")),
    "month": Kind(30 * DAY, 1, 48, 500_000, formats=("parquet", "parquet")),
}


def trials(spans: Iterable[str]) -> Iterator[tuple[str, Kind, Callable[[Input, Processes], str]]]:
    """Yield all trials: name, kind, how it goes."""
    for span in spans:
        kind = SPANS[span]
        yield f"a {span} behind, pause", kind, lambda given, p: falls_behind(given, p.run, nothing)
        stopped = f"a {span} behind, pause, stopped and killed"
        yield stopped, kind, lambda given, p: falls_behind(given, p.run, p.interrupt)
        goes_on = replace(kind, at_max="go_on")
        yield f"a {span} behind, go on", goes_on, lambda given, p: falls_behind(given, p.run, nothing)
    json_only = replace(SPANS["hour"], formats=("json", "json"))
    tiny = replace(json_only, limit=1)
    yield "a limit of one event, pause", tiny, lambda given, p: falls_behind(given, p.run, nothing)
    yield "in turns, pause", json_only, lambda given, p: takes_turns(given, p.run)
    yield "silent, pause", json_only, lambda given, p: is_silent(given, p.run, None)
    yield "silent, idle after a second", json_only, lambda given, p: is_silent(given, p.run, "1 second")
    goes_on = replace(json_only, at_max="go_on")
    yield "silent, go on", goes_on, lambda given, p: is_silent(given, p.run, None)


@click.command(help="Run pipelines with a source that is far behind; compare with batches; measure.")
@click.option("--span", type=click.Choice(list(SPANS)), multiple=True, help="not all of them")
@click.option("--only", default="", help="trials whose name has this text")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/behind"), show_default=True
)
def main(span: tuple[str, ...], only: str, out: Path) -> None:
    """Try all of them; say what was wrong."""
    n_wrong = 0
    for number, (name, kind, trial) in enumerate(trials(span or SPANS)):
        if only not in name:
            continue
        folder = (out / str(number)).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        processes, begun = Processes(), time.monotonic()
        given = Input(kind, folder)
        try:
            found = trial(given, processes)
            seen = processes.seen.waiting
            if kind.at_max == "pause":
                expect(seen <= most_waiting(given), f"{seen:,} events waited, the limit is {kind.limit:,}")
            shutil.rmtree(folder)
        except WrongError as error:
            n_wrong += 1
            found = f"WRONG: {error.message} (in {folder})"
        click.echo(f"{name} (limit {kind.limit:,}): {found}; {time.monotonic() - begun:.0f} s")
        click.echo(f"    {processes.seen.text()}")
    if n_wrong:
        raise click.ClickException(f"{n_wrong} trials went wrong")
    click.echo("nothing lost, nothing twice, nothing silent")


if __name__ == "__main__":
    main()
