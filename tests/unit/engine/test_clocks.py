"""Limits in time and in events where they meet the matcher: deadlines, snapshots, what keys remember."""

from __future__ import annotations

import pytest

from cep.compiler.compile import check_sources, compile_rules
from cep.engine.kernels.compiled import _SOURCES
from cep.engine.matching.matcher import Matcher
from cep.errors import Source, StateError
from cep.program.program import Program
from tests.unit.engine.events import SECOND, STREAM, prepared, program, spans

AB_DEFINE = "a AS letter = 'a', b AS letter = 'b'"
ABC_DEFINE = AB_DEFINE + ", c AS letter = 'c'"


def moved(compiled: Program, matcher: Matcher) -> Matcher:
    """Return the matcher as it goes on elsewhere."""
    return Matcher.restore(compiled, matcher.snapshot())


def test_a_silence_is_over_without_any_event() -> None:
    compiled = program("a -> !b FOR 5 SECONDS", "", define=AB_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a"), ("m", 2, "a"), ("m", 4, "b")))
    assert matcher.advance(5 * SECOND).num_rows == 0
    matcher = moved(compiled, matcher)
    assert matcher.next_deadline_us() == 6 * SECOND
    assert spans(matcher.advance(6 * SECOND)) == [("k", 1.0, 6.0)]
    assert matcher.next_deadline_us() is None
    assert matcher.n_open_runs == 0


def test_what_is_due_at_different_times_happens_in_order_of_time() -> None:
    compiled = program("a -> !b FOR 5 SECONDS | c -> !b FOR 1 SECOND", "", define=ABC_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 0, "a"), ("k", 1, "c"), ("k", 3, "b"), ("k", 4, "a")))
    assert spans(matcher.finish()) == [("k", 1.0, 2.0), ("k", 4.0, 9.0)]


@pytest.mark.parametrize(
    "pattern",
    ["a ->[<= 5 SECONDS] b", "(a -> b WITHIN 5 SECONDS)", "a -> !b FOR 5 SECONDS ->[<= 5 SECONDS] b"],
)
def test_limits_end_runs_where_there_is_no_window(pattern: str) -> None:
    compiled = program(pattern, "", define=AB_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 0, "a")))
    matcher.advance(4 * SECOND)
    assert matcher.n_open_runs == 1
    assert matcher.next_deadline_us() == 5 * SECOND
    matcher.advance(5 * SECOND)
    assert matcher.n_open_runs == 0


def test_events_are_counted_across_snapshots() -> None:
    compiled = program("a -> b", "WITHIN 3 EVENTS", define=AB_DEFINE)
    for n_others, expected in [(1, [("k", 0.0, 9.0)]), (2, [])]:
        matcher = Matcher(compiled)
        rows = [("k", 0, "a"), *(("k", at, "x") for at in range(1, n_others + 1)), ("k", 9, "b")]
        found = []
        for row in rows:
            matcher.push(prepared(compiled, row))
            found += spans(matcher.advance(row[1] * SECOND))
            matcher = moved(compiled, matcher)
        assert found == expected


def test_a_key_remembers_what_no_run_may_begin_after_and_no_longer() -> None:
    compiled = program("!b -> a", "WITHIN 5 SECONDS", define=AB_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *((f"k{number}", 0, "b") for number in range(2000))))
    matcher.advance(4 * SECOND)
    before = matcher.snapshot()
    matcher = Matcher.restore(compiled, before)
    matcher.push(prepared(compiled, ("k7", 5, "a"), ("new", 5, "a")))
    assert spans(matcher.advance(5 * SECOND)) == [("new", 5.0, 5.0)]
    after = matcher.snapshot()
    assert len(after) < len(before) / 10
    matcher = Matcher.restore(compiled, after)
    matcher.push(prepared(compiled, ("k7", 6, "a")))
    assert spans(matcher.finish()) == [("k7", 6.0, 6.0)]


def test_what_a_key_remembers_is_the_same_without_optimizations() -> None:
    text = f"RULE r FROM events PARTITION BY k PATTERN !b -> a WITHIN 5 SECONDS DEFINE {AB_DEFINE}"
    rules, _ = check_sources([Source("test.cep", text)], {"events": STREAM})
    (plain,) = compile_rules(rules, {"events": STREAM}, optimize=False)
    matcher = Matcher(plain)
    matcher.push(prepared(plain, ("k", 0, "x"), ("k", 1, "a"), ("m", 0, "b"), ("m", 1, "a")))
    assert spans(matcher.finish()) == [("k", 1.0, 1.0)]


@pytest.mark.parametrize(
    ("overflow", "expected", "n_dropped"),
    [("OLDEST", [("k", 1.0, 4.0)], 2), ("NEWEST", [("k", 0.0, 4.0)], 1)],
)
def test_the_limit_on_runs_holds_where_time_makes_them_more(
    overflow: str, expected: list[tuple[str, float, float]], n_dropped: int
) -> None:
    # When its silence is over, a run waits for b and for c: two runs of each start.
    clauses = f"MATCH ALL MAX RUNS 2 PER KEY ON OVERFLOW DROP {overflow}"
    compiled = program("a -> !b FOR 2 SECONDS -> b? -> c", clauses, define=ABC_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 0, "a"), ("k", 1, "a")))
    matcher.advance(3 * SECOND)
    assert matcher.n_open_runs == 2
    matcher.push(prepared(compiled, ("k", 4, "c")))
    assert spans(matcher.finish()) == expected
    assert matcher.counters.dropped_runs == {"r": n_dropped}


def test_too_many_runs_by_time_alone_are_an_error_if_the_rule_says_so() -> None:
    clauses = "MATCH ALL MAX RUNS 1 PER KEY ON OVERFLOW FAIL"
    compiled = program("a -> !b FOR 2 SECONDS -> b? -> c", clauses, define=ABC_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 0, "a")))
    with pytest.raises(StateError, match="more than 1 open runs for the key k = 'k'"):
        matcher.advance(2 * SECOND)


def test_pool_and_matches_grow_where_many_silences_end_at_once() -> None:
    compiled = program("a -> !b FOR 500 SECONDS", "", define=AB_DEFINE, after="MATCH ALL")
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *(("k", at // 50, "a") for at in range(5000))))
    assert matcher.finish().num_rows == 5000


def test_compiled_kernels_on_disk_depend_on_all_their_sources() -> None:
    names = {name.rpartition("/")[2] for name in _SOURCES.files()}
    assert {
        "step.py",
        "clocks.py",
        "functions.py",
        "opcodes.py",
        "records.py",
        "compiled.py",
        "numba_compiler.py",
    } <= names
