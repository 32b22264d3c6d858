"""Look-ahead changes no match: random streams in random batches, with look-ahead and without."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

from cep.engine.matching.matcher import Matcher
from cep.engine.order.lookahead import Lookahead, final_mask
from cep.program.program import Program
from tests.unit.engine.events import SECOND, prepared, program

PATTERNS = ("a -> b", "a -> b -> c", "a->{2,} -> b", "a -> (b | c)", "a -> b->* -> c", "a -> b -> a")
CLAUSES = (
    "",
    "MATCH ALL AFTER MATCH NO SKIP",
    "AFTER MATCH NO SKIP",
    "AFTER MATCH SKIP TO NEXT EVENT",
    "AFTER MATCH NO SKIP MAX RUNS 2 PER KEY ON OVERFLOW DROP NEWEST",
)


def found(
    compiled: Program, rows: list[tuple[Any, ...]], watermarks: list[int], *, restores: bool = True
) -> list[list[Any]]:
    """Return the matches of each advance, and the number of dropped runs."""
    matcher = Matcher(compiled)
    result: list[list[Any]] = []
    before = -1
    for now in watermarks:
        batch = [row for row in rows if before < row[1] <= now]
        if batch:
            matcher.push(prepared(compiled, *batch))
        result.append(matcher.advance(now * SECOND).to_pylist())
        if restores:
            matcher = Matcher.restore(compiled, matcher.snapshot())
        before = now
    return [*result, matcher.finish().to_pylist(), [matcher.counters.dropped_runs]]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("after", CLAUSES)
def test_matches_are_the_same_without_looking_ahead(pattern: str, after: str) -> None:
    drawn = random.Random(f"{pattern} {after}")
    letters = [letter for letter in "abc" if letter in pattern]
    define = ", ".join(f"{letter} AS letter = '{letter}'" for letter in letters)
    compiled = program(pattern, "WITHIN 6 SECONDS", define=define, measures="a.n AS n", after=after)
    is_looked_ahead = final_mask(compiled.rules[0]) != 0
    n_matches = 0
    for _ in range(30):
        times = sorted(drawn.randrange(40) for _ in range(40))
        rows = [(drawn.choice("kkm"), time, drawn.choice("aabcd"), 0.0, n) for n, time in enumerate(times)]
        watermarks = sorted(drawn.sample(range(40), drawn.randrange(6)))
        ahead = found(compiled, rows, [*watermarks, 40])
        with patch.object(Lookahead, "rows", return_value={}):
            assert found(compiled, rows, [*watermarks, 40]) == ahead
        n_matches += sum(map(len, ahead)) - 1
    assert n_matches > 0
    assert is_looked_ahead or "ALL" in after or pattern not in ("a -> b", "a -> b -> c", "a -> (b | c)")


def test_a_match_that_waited_for_a_dropped_run_is_reported_at_once_with_and_without_snapshots() -> None:
    define = ", ".join(f"{letter} AS letter = '{letter}'" for letter in "abc")
    compiled = program(
        "a -> b->+ -> c",
        "WITHIN 9 SECONDS",
        define=define,
        measures="a.n AS n",
        after="MATCH PREFERRED MAX RUNS 2 PER KEY",
    )
    drawn = random.Random("dropped")
    n_dropped = 0
    for _ in range(60):
        times = sorted(drawn.randrange(20) for _ in range(14))
        rows = [("k", time, drawn.choice("aabbc"), 0.0, n) for n, time in enumerate(times)]
        restored = found(compiled, rows, list(range(22)))
        assert found(compiled, rows, list(range(22)), restores=False) == restored
        n_dropped += restored[-1][0]["r"]
    assert n_dropped > 10
