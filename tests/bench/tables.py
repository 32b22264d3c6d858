"""``python -m tests.bench.tables``: what a joined table costs, beside the same stream without it.

A stream of JSON lines is read, prepared and matched, portion by portion, with the watermark behind each
portion. Every event is needed, and looks up its row among a million keys, while versions come in. The no-op
is the same stream and the same rule with a constant in place of the column of the table. Other cases have
three windows besides, and a thousand events a key, a hundred, or ten. A figure is the processor time of the
process for an event, the least of some repeats; with and without take turns.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import prepared_versions
from cep.errors import Source
from cep.formats.files import read_events
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.bench.figures import Figure, Target, report

TIMES = Target(1.3, at_most=True)
TIMES_WITH_WINDOWS = Target(1.5, at_most=True)
WINDOWS = (
    "LET lately = COUNT(*) OVER LAST 10 MINUTES, spent = SUM(amount) OVER LAST 1 MINUTE, "
    "usual = AVG(amount) OVER PREVIOUS 5 EVENTS"
)
OF_WINDOWS = "AND lately > 0 AND spent > 0.5 AND (usual IS NULL OR amount > usual)"
PER_MINUTE = 100_000
"""Versions of the table in a minute of event time."""

SECOND_US = 1_000_000
EVENTS = Stream(
    "e",
    (Field("id", "string"), Field("shop", "string"), Field("ts", "timestamp"), Field("amount", "double")),
    "ts",
)


def table(kind: TableKind) -> Stream:
    """Return the table: with the key of the rule, or with another one."""
    key = "id" if kind is TableKind.CHANGELOG else "shop"
    fields = (
        Field(key, "string"),
        Field("at", "timestamp"),
        Field("most", "double"),
        Field("note", "string"),
    )
    return Stream("c", fields, "at", table=TableSettings((key,), kind))


class Input:
    """A file of events at 10,000 a second, and the versions that come with them."""

    def __init__(self, folder: Path, n: int, n_keys: int) -> None:
        draw = np.random.default_rng(3)
        self.n, self.names = n, pa.array([f"key{number:07}" for number in range(n_keys)])
        self.draw = draw
        self.path = folder / "events.jsonl"
        numbers = draw.integers(0, n_keys, (2, n))
        with self.path.open("w") as file:
            for at, (key, shop, amount) in enumerate(zip(*numbers, draw.random(n), strict=True)):
                row = {"id": f"key{key:07}", "shop": f"key{shop:07}", "ts": _text(at * 100), "amount": amount}
                file.write(json.dumps(row) + "\n")

    def versions(self, of: Stream, numbers: I64, at: I64) -> pa.Table:
        """Return versions of keys."""
        n = len(numbers)
        columns = [self.names.take(pa.array(numbers)), pa.array(at), pa.array(np.full(n, 0.999)), ["x"] * n]
        return pa.table(columns, names=[field.name for field in of.fields])

    def chunks(self) -> Iterator[pa.Table]:
        """Yield the events."""
        for chunk in read_events(self.path, EVENTS):
            yield chunk.events


def _text(at_us: int) -> str:
    return str(np.datetime64(SECOND_US + at_us, "us")) + "Z"


def ns_per_event(given: Input, of: Stream | None, *, has_windows: bool = False) -> tuple[float, float]:
    """Return the time for an event, and the bytes kept for a row of the table."""
    join = "" if of is None else f"JOIN c ON {of.fields[0].name}"
    most = "0.999" if of is None else "c.most"
    text = (
        f"RULE r FROM e {join} PARTITION BY id PATTERN a b WITHIN 1 HOUR {WINDOWS if has_windows else ''} "
        f"DEFINE a AS amount > {most} {OF_WINDOWS if has_windows else ''}, b AS amount < 0.001 "
        "MEASURES a.amount AS amount"
    )
    streams = {"e": EVENTS} if of is None else {"e": EVENTS, "c": of}
    (program,) = compile_sources([Source("bench.cep", text)], streams).programs
    matcher = Matcher(program)
    n_keys = len(given.names)
    if of is not None:
        first = given.versions(of, np.arange(n_keys), np.zeros(n_keys, np.int64))
        for rows in prepared_versions(program, of, first):
            matcher.push(rows)
    matcher.advance(1)
    seconds = 0.0
    reached_us = SECOND_US
    chunks = given.chunks()
    while True:
        started = time.process_time()
        events = next(chunks, None)
        if events is None:
            break
        latest_us = int(np.asarray(events.column("ts"))[-1])
        seconds += time.process_time() - started
        if of is not None:
            n = (latest_us - reached_us) * PER_MINUTE // (60 * SECOND_US)
            at = np.sort(given.draw.integers(reached_us, latest_us, n))
            versions = given.versions(of, given.draw.integers(0, n_keys, n), at)
            started = time.process_time()
            for rows in prepared_versions(program, of, versions):
                matcher.push(rows)
            seconds += time.process_time() - started
        started = time.process_time()
        matcher.push(prepare(program, events))
        matcher.advance(latest_us)
        seconds += time.process_time() - started
        reached_us = latest_us
    context = matcher._context
    kept = 0.0 if context is None else context.tables.n_bytes / n_keys
    return seconds / given.n * 1e9, kept


def in_turns(
    given: Input, case: str, of: Stream, repeats: int, target: Target, *, has_windows: bool = False
) -> list[Figure]:
    """Return the figures of a case; the first run of each kind is not counted."""
    least, kept = {False: float("inf"), True: float("inf")}, 0.0
    for turn in range(repeats + 1):
        for is_with in (False, True):
            found = ns_per_event(given, of if is_with else None, has_windows=has_windows and is_with)
            if turn:
                least[is_with] = min(least[is_with], found[0])
            kept = max(kept, found[1])
    return [
        Figure("JSON lines to matches", case, least[True], "ns", least[False]),
        Figure("times without", case, least[True] / least[False], "times", target=target),
        Figure("kept for a row", case, kept, "bytes"),
    ]


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events and keys")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/tables.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n, n_keys, repeats = (100_000, 100_000, 2) if quick else (1_000_000, 1_000_000, 3)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in (TableKind.CHANGELOG, TableKind.REPLICATED):
            case = f"{kind.value}, {n_keys:,} keys, {PER_MINUTE:,} versions a minute"
            given = Input(Path(folder), n, n_keys)
            figures += in_turns(given, case, table(kind), repeats, TIMES)
        for some in (n_keys // 1000, n_keys // 100, n_keys // 10):
            case = f"changelog and three windows, {some:,} keys, {PER_MINUTE:,} versions a minute"
            given = Input(Path(folder), n, some)
            figures += in_turns(
                given, case, table(TableKind.CHANGELOG), repeats, TIMES_WITH_WINDOWS, has_windows=True
            )
    report("tables", figures, {"events": n, "keys": n_keys, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
