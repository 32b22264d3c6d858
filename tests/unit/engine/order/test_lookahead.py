"""Events that no completing one follows in time are not offered, and nothing else changes."""

from __future__ import annotations

import pytest

from cep.engine.matching.matcher import Matcher
from cep.engine.order.lookahead import final_mask
from cep.program.program import Program
from tests.unit.engine.events import SECOND, prepared, program


def compiled_rule(pattern: str, clauses: str, *, measures: str = "", after: str = "") -> Program:
    letters = [letter for letter in "abc" if letter in pattern]
    define = ", ".join(f"{letter} AS letter = '{letter}'" for letter in letters)
    return program(pattern, clauses, define=define, measures=measures, after=after)


def open_runs(compiled: Program, *letters: tuple[object, ...], watermark_s: int) -> int:
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *letters))
    matcher.advance(watermark_s * SECOND)
    return matcher.n_open_runs


def test_what_cannot_complete_any_more_opens_no_run() -> None:
    compiled = compiled_rule("a -> b", "WITHIN 10 SECONDS")
    assert final_mask(compiled.rules[0]) != 0
    assert open_runs(compiled, ("k", 1, "a"), ("m", 30, "a"), watermark_s=30) == 1  # that of m
    assert open_runs(compiled, ("k", 1, "a"), watermark_s=10) == 1
    assert open_runs(compiled, ("k", 1, "a"), watermark_s=11) == 0  # at 11 a `b` would be late


def test_a_last_event_of_another_key_or_too_late_does_not_count() -> None:
    compiled = compiled_rule("a -> b", "WITHIN 10 SECONDS", measures="a.n AS n")
    matcher = Matcher(compiled)
    rows = [("k", 1, "a", 0.0, 1), ("m", 2, "b"), ("k", 5, "a", 0.0, 2), ("k", 15, "b")]
    matcher.push(prepared(compiled, *rows))
    assert matcher.finish().column("n").to_pylist() == [2]


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("a -> !b", "WITHIN 10 SECONDS"),  # the window's end completes it
        ("a -> b", ""),  # no window
        ("a b", "WITHIN 10 SECONDS"),  # every event counts
        ("a ->> b -> c", "WITHIN 10 SECONDS"),  # one run becomes several
        ("a -> b", "WITHIN 5 EVENTS"),
    ],
)
def test_of_other_rules_nothing_is_said(pattern: str, clauses: str) -> None:
    assert final_mask(compiled_rule(pattern, clauses).rules[0]) == 0


def test_runs_in_vain_count_where_the_limit_of_runs_could_be_reached() -> None:
    """The first `a` cannot complete, yet while it waits it takes the place of another."""
    rows = [("k", 1, "a"), ("k", 3, "a"), ("k", 4, "a"), ("k", 12, "b")]
    for limit, n_matches in ((2, 1), (5, 2)):
        after = f"AFTER MATCH NO SKIP MAX RUNS {limit} PER KEY ON OVERFLOW DROP NEWEST"
        compiled = compiled_rule("a -> b", "WITHIN 10 SECONDS", after=after)
        matcher = Matcher(compiled)
        matcher.push(prepared(compiled, *rows))
        assert len(matcher.finish()) == n_matches
        assert matcher.counters.dropped_runs["r"] == 2 - n_matches
