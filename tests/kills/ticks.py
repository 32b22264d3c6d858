"""Events for pipelines that are killed, the rule over them, and what is right in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook

START = datetime(2024, 5, 1, tzinfo=UTC)

STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
"""
RULES = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""
N_KEYS = 5

Row = tuple[str, int, int]
"""A match: its identifier, the first and the second event."""


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
        return json.dumps({"id": self.number, "k": self.key, "ts": self.time})


def write_rules(folder: Path) -> None:
    """Write the rule and its stream."""
    (folder / "rules.cep").write_text(RULES)
    (folder / "streams.yaml").write_text(STREAMS)


def expected_rows(folder: Path, ticks: Iterable[Tick]) -> list[Row]:
    """Return the matches of a local run, in the order of their second events."""
    file = folder / "all.json"
    file.write_text("".join(f"{tick.text}\n" for tick in ticks))
    rules = compile_rulebook(load_rulebook([folder / "rules.cep"])).rule_set
    rows = match_file(rules, file).matches.select(["match_id", "first", "second"]).to_pylist()
    return sorted(map(row_of, rows), key=lambda row: row[2])


def row_of(found: Mapping[str, object]) -> Row:
    """Return a match that a sink has."""
    first, second = found["first"], found["second"]
    return str(found["match_id"]), int(str(first)), int(str(second))


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


def compared(expected: Sequence[Row], found: Sequence[Row]) -> Compared:
    """Compare what a sink has with what is right; a match that is there twice must be the same row."""
    times, right = Counter(found), set(expected)
    return Compared(
        tuple(row for row in expected if row not in times),
        sum(n - 1 for n in times.values()),
        tuple(row for row in times if row not in right),
    )
