"""State that is divided by key and joined again gives the matches of state that stays together."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from cep.engine.matching.matcher import Matcher
from cep.engine.matching.regrouping import divided, joined
from cep.program.program import Program
from tests.unit.engine.events import SECOND, prepared, program

KEYS = [f"k{number}" for number in range(9)]

RULES = {
    "sets of texts": program(
        "a->+ -> b",
        "WITHIN 60 SECONDS",
        define="a AS n >= 0, b AS n < 0 AND s IN (a.s) AND COUNT(DISTINCT a.s) > 1",
        measures="COUNT(DISTINCT a.s) AS different, LAST(a.s) AS last, b.s AS s",
    ),
    "events of a match": program(
        "a->{2} -> b",
        "WITHIN 60 SECONDS",
        define="a AS n >= 0, b AS n < 0",
        measures="ARRAY_AGG(a.s) AS texts",
        after="ALL ROWS PER MATCH ON TIMEOUT",
    ),
    "windows of texts": program(
        "a",
        "LET seen = COUNT(DISTINCT s) OVER LAST 9 EVENTS, before = LAG(s, 2) OVER ALL",
        define="a AS seen > 1",
        measures="a.seen AS seen, a.before AS before, a.s AS s",
        after="SUPPRESS FOR 3 SECONDS",
    ),
}


def groups_of(n: int) -> object:
    def of(rows: pa.Table) -> npt.NDArray[np.int64]:
        return np.array([int(key[1:]) % n for key in rows.column("k").to_pylist()], np.int64)

    return of


def batches(random: Random) -> list[list[tuple[object, ...]]]:
    """Return events of a few seconds each."""
    found: list[list[tuple[object, ...]]] = []
    for first in range(0, 40, 4):
        seconds = sorted(random.uniform(first, first + 6) for _ in range(40))
        found.append([
            (random.choice(KEYS), second, "a", 0.0, random.randrange(-1, 4), random.choice("pqrst"))
            for second in seconds
        ])  # fmt: skip
    return found


def rows_of(table: pa.Table) -> list[str]:
    return [repr(sorted(row.items())) for row in table.to_pylist()]


def moved(compiled: Program, matcher: Matcher, n: int) -> Matcher:
    """Return the matcher that `n` parts of a matcher are together, in another order."""
    parts = divided(compiled, matcher.snapshot(), groups_of(n), n)  # type: ignore[arg-type]
    assert sum(part.is_empty for part in parts) >= n - len(KEYS)
    restored = [Matcher.restore(compiled, part.data) for part in parts]
    assert sum(part.n_open_runs for part in restored) == matcher.n_open_runs
    assert sum(part.n_waiting for part in restored) == matcher.n_waiting
    return Matcher.restore(compiled, joined(compiled, [part.snapshot() for part in reversed(restored)]))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("n", [2, 3, 11])
def test_the_matches_and_the_counts_are_the_same(name: str, n: int) -> None:
    compiled, random = RULES[name], Random(f"{name} {n}")
    stays, moves = Matcher(compiled), Matcher(compiled)
    expected: list[str] = []
    found: list[str] = []
    for number, rows in enumerate(batches(random)):
        events = prepared(compiled, *rows)
        for matcher, to in ((stays, expected), (moves, found)):
            matcher.push(events)
            to += rows_of(matcher.advance((number + 1) * 4 * SECOND))
        if number % 3 == 2:
            moves = moved(compiled, moves, n)
    expected += rows_of(stays.finish())
    found += rows_of(moves.finish())
    assert sorted(found) == sorted(expected)
    assert len(found) > 20
    assert moves.counters == stays.counters
