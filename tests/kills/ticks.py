"""Events for pipelines that are killed, the rules over them, and what is right in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cep.local.match_file import match_file
from cep.rule_set import RETRACT
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime.tables.content import timed_inputs

START = datetime(2024, 5, 1, tzinfo=UTC)

N_KEYS = 5

_OTHER = "other_rules"

Row = tuple[str, int, int]
"""A match: its identifier, the first and the second event.

A row of a view: its identifier, its value, and the event that changed it. With corrections: its identifier,
the first event, and the revision. A row that is withdrawn has the value `GONE`.
"""

GONE = -1

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Running:
    """What a pipeline runs.

    Parameters
    ----------
    rules
        The text of its rules.
    streams
        The streams file.
    inputs
        The streams or tables that read the source, each as a pipeline file names it.
    static
        By static table, its rows as CSV. Rows that no event has are added when events come.
    changed
        The text of rules that take turns with `rules`; empty: the rules do not change. Matches are the same.
    corrects
        Whether some events are late and correct matches.
    """

    rules: str
    streams: str
    inputs: tuple[str, ...]
    static: Mapping[str, str] = field(default_factory=dict)
    changed: str = ""
    corrects: bool = False


PAIR = Running(
    """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
""",
    """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
""",
    ("stream: ticks",),
)
RELOADED = replace(
    PAIR,
    changed=f"""{PAIR.rules.replace("a.id AS first", "a.id + 0 AS first")}
RULE never FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id < 0, b AS id < 0 MEASURES a.id AS first, b.id AS second
""",
)
"""A rule whose measures change, and which then has the same values, and a rule that comes and goes."""
VIEW = Running(
    """
VIEW joined KEY k FROM ticks LEFT JOIN marks ON k = marks.m WHERE ticks.id % 3 <> 0 AND marks.id % 7 <> 0
SELECT ticks.id * 10000 + marks.id AS first
""",
    """
tables:
  ticks: {key: [k], event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
  marks: {key: [m], replicated: true, event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, m: string, ts: timestamp}}
""",
    ("table: ticks", "table: marks"),
)

WITH_STATIC = Running(
    """
RULE pair FROM ticks JOIN codes ON m = codes.code PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS codes.wanted = 1, b AS codes.wanted >= a.id % 2 MEASURES a.id AS first, b.id AS second
""",
    """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp, m: string}}
tables:
  codes: {key: [code], static: true, schema: {code: string, wanted: bigint}}
""",
    ("stream: ticks",),
    {"codes": "code,wanted\nk0,1\nk1,0\nk2,1\nk3,1\nk4,0\n"},
)

WINDOWS = replace(
    PAIR,
    rules="""
RULE often FROM ticks PARTITION BY k PATTERN a -> b -> c WITHIN 2 MINUTES
DEFINE a AS id % 3 = 0, b AS SUM(id) OVER LAST 1 MINUTE > a.id, c AS id - a.id >= 50
MEASURES a.id AS first, c.id AS second

RULE busy FROM ticks PARTITION BY k WINDOW HOPPING 20 SECONDS EVERY 10 SECONDS
HAVING COUNT(*) > 1 MEASURES MIN(id) AS first, MAX(id) AS second
""",
)
"""Open runs that take the values of windows, and windows that end."""
JOINED = replace(
    PAIR,
    rules="""
RULE pair FROM ticks JOIN marks ON k = marks.m PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS marks.id % 2 = 0, b AS marks.id > a.id - 40 MEASURES a.id AS first, b.id AS second
""",
    streams=f"""{PAIR.streams}
tables:
  marks: {{key: [m], event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {{id: bigint, m: string, ts: timestamp}}}}
""",
    inputs=("stream: ticks", "table: marks"),
)
CORRECTED = replace(PAIR, corrects=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """An event; `number` orders all of them, one a second."""

    number: int

    @property
    def key(self) -> str:
        """Its key."""
        return f"k{self.number % N_KEYS}"

    @property
    def time(self) -> str:
        """Its event time."""
        return (START + timedelta(seconds=self.number)).isoformat()

    @property
    def text(self) -> str:
        """The event as JSON."""
        other = f"k{self.number // 2 % N_KEYS}"
        return json.dumps({"id": self.number, "k": self.key, "ts": self.time, "m": other})


def write_rules(folder: Path, running: Running = PAIR) -> None:
    """Write the rules and their streams."""
    (folder / "rules.cep").write_text(running.rules)
    (folder / "streams.yaml").write_text(running.streams)
    if running.changed:
        (folder / _OTHER).write_text(running.changed)


def turn_rules(folder: Path) -> None:
    """Exchange the rules and those that take turns with them."""
    rules, other, unfinished = folder / "rules.cep", folder / _OTHER, folder / "unfinished"
    before = rules.read_text()
    unfinished.write_text(other.read_text())
    unfinished.replace(rules)
    other.write_text(before)


def expected_rows(folder: Path, ticks: Iterable[Tick]) -> list[Row]:
    """Return the matches of a local run, in the order of their second events."""
    file = folder / "all.json"
    file.write_text("".join(f"{tick.text}\n" for tick in ticks))
    rules = compile_rulebook(load_rulebook([folder / "rules.cep"])).rule_set
    paths = {name: file if name in timed_inputs(rules) else folder / f"{name}.csv" for name in rules.inputs}
    rows = match_file(rules, paths).matches.to_pylist()
    return sorted(map(row_of, rows), key=lambda row: row[2])


def standing(rows: Iterable[Row]) -> list[Row]:
    """Return what is there in the end: of each identifier the last row, unless it is withdrawn."""
    last = {row[0]: row for row in sorted(rows, key=lambda row: row[2])}
    return [row for row in last.values() if row[1] != GONE]


def row_of(found: Mapping[str, object]) -> Row:
    """Return a match, or a row of a view, that a sink has."""
    if found.get("revision") is not None:
        revision = int(str(found["revision"]))  # of a view: the time of the change
        number = revision if revision < _MICROSECONDS else revision // _MICROSECONDS - int(START.timestamp())
        first = GONE if found["kind"] == RETRACT else int(str(found["first"]))
        return str(found["match_id"]), first, number
    return str(found["match_id"]), int(str(found["first"])), int(str(found["second"]))


@dataclass(frozen=True, slots=True)
class Compared:
    """What a sink has beside what is right.

    Parameters
    ----------
    lost
        Matches that it does not have.
    n_twice
        Rows that it has again.
    foreign
        Rows that are no such match.
    """

    lost: tuple[Row, ...]
    n_twice: int
    foreign: tuple[Row, ...]


def compared(expected: Sequence[Row], found: Sequence[Row], *, corrects: bool = False) -> Compared:
    """Compare what a sink has with what is right; a match that occurs twice must be the same row.

    `corrects`: what stands in the end is compared, but for the revisions.
    """
    times, right = Counter(found), set(expected)
    if corrects:
        stands = {(name, first, 0) for name, first, _ in standing(found)}
        what = compared([(name, first, 0) for name, first, _ in expected], sorted(stands))
        return replace(what, n_twice=sum(n - 1 for n in times.values()))
    return Compared(
        tuple(row for row in expected if row not in times),
        sum(n - 1 for n in times.values()),
        tuple(row for row in times if row not in right),
    )
