"""What a late event does to reported matches: explicit cases. Any order: `tests.property.corrections`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.corrections.corrector import SAVES, Corrector, restored
from cep.engine.matching.matcher import Matcher
from cep.errors import Source, StateError
from cep.program.program import Program
from cep.rule_set import Corrections, RuleSet
from tests.unit.engine.events import SECOND, STREAM, events, prepared, program

AB = "a -> b"
AB_DEFINE = "a AS letter = 'a', b AS letter = 'b'"
MINUTE = Corrections(60 * SECOND)

Row = tuple[str, int, float, float]


def corrector(compiled: Program, within_seconds: float = 60, max_retained: int = 1000) -> Corrector:
    return Corrector(compiled, Corrections(int(within_seconds * SECOND), max_retained))


def step(found: Corrector, at_second: float, *rows: tuple[object, ...]) -> list[Row]:
    """Push events and advance; return kind, revision, start and end of each row."""
    assert isinstance(found.program, Program)
    assert found.push(prepared(found.program, *rows)).num_rows == 0
    return short(found.advance(int(at_second * SECOND)))


def short(rows: pa.Table) -> list[Row]:
    times = {name: rows.column(name).cast(pa.int64()).to_pylist() for name in ("match_start", "match_end")}
    columns = (rows.column("kind").to_pylist(), rows.column("revision").to_pylist(), *times.values())
    return [(kind, n, start / SECOND, end / SECOND) for kind, n, start, end in zip(*columns, strict=True)]


def test_a_late_event_completes_a_match() -> None:
    found = corrector(program(AB, define=AB_DEFINE))
    assert step(found, 10, ("k", 1, "a"), ("k", 9, "x")) == []
    assert step(found, 10, ("k", 3, "b")) == [("match", 0, 1.0, 3.0)]


def test_a_late_event_withdraws_a_match_and_the_row_is_the_one_that_was_reported() -> None:
    compiled = program("a -> !c -> b", define=f"{AB_DEFINE}, c AS letter = 'c'", measures="b.x AS x")
    found = corrector(compiled)
    found.push(prepared(compiled, ("k", 1, "a", 0.5), ("k", 3, "b", 1.5)))
    (reported,) = found.advance(5 * SECOND).to_pylist()
    assert (reported["kind"], reported["revision"], reported["x"]) == ("match", 0, 1.5)
    found.push(prepared(compiled, ("k", 2, "c")))
    (withdrawn,) = found.advance(5 * SECOND).to_pylist()
    assert withdrawn == {**reported, "kind": "retract", "revision": 1}
    assert found.counters.matches == {"r": 0}
    assert found.counters.retracted == {"r": 1}


def test_another_match_takes_the_place_of_one_that_a_late_event_makes_wrong() -> None:
    found = corrector(program(AB, after="AFTER MATCH SKIP PAST LAST EVENT", define=AB_DEFINE))
    assert step(found, 5, ("k", 1, "a"), ("k", 3, "b")) == [("match", 0, 1.0, 3.0)]
    assert step(found, 6, ("k", 2, "b")) == [("retract", 1, 1.0, 3.0), ("match", 0, 1.0, 2.0)]


def test_a_match_that_was_withdrawn_comes_back_with_a_higher_revision() -> None:
    found = corrector(program("a", after="SUPPRESS FOR 3 SECONDS", define="a AS letter = 'a'"))
    assert step(found, 20, ("k", 15, "a")) == [("match", 0, 15.0, 15.0)]
    assert step(found, 20, ("k", 13, "a")) == [("retract", 1, 15.0, 15.0), ("match", 0, 13.0, 13.0)]
    assert step(found, 20, ("k", 11, "a")) == [
        *(("retract", 1, 13.0, 13.0), ("match", 0, 11.0, 11.0)),
        ("match", 2, 15.0, 15.0),
    ]
    assert found.counters.suppressed == {"r": 1}


def test_a_match_that_waits_for_an_earlier_run_comes_back_when_the_run_ends() -> None:
    """Matches come in order of their start, so a late event can make one wait that was reported."""
    compiled = program("a ->> b", after="AFTER MATCH SKIP PAST LAST EVENT", define=AB_DEFINE)
    found = corrector(compiled)
    assert step(found, 6, ("k", 4, "a"), ("k", 5, "b")) == [("match", 0, 4.0, 5.0)]
    assert step(found, 6, ("k", 1, "a")) == [("retract", 1, 4.0, 5.0), ("match", 0, 1.0, 5.0)]


def test_a_timeout_is_corrected_like_a_match() -> None:
    compiled = program(AB, after="ON TIMEOUT", clauses="WITHIN 4 SECONDS", define=AB_DEFINE)
    found = corrector(compiled)
    found.push(prepared(compiled, ("k", 1, "a")))
    (timeout,) = found.advance(20 * SECOND).to_pylist()
    assert (timeout["outcome"], timeout["kind"]) == ("timeout", "match")
    found.push(prepared(compiled, ("k", 2, "b")))
    withdrawn, match = found.advance(20 * SECOND).to_pylist()
    assert withdrawn == {**timeout, "kind": "retract", "revision": 1}
    assert (match["outcome"], match["kind"], match["revision"]) == ("match", "match", 0)
    assert match["match_id"] != timeout["match_id"]
    assert (found.counters.matches, found.counters.timeouts) == ({"r": 1}, {"r": 0})


def test_all_rows_of_a_match_are_withdrawn_together() -> None:
    compiled = program("a b", after="ALL ROWS PER MATCH", define=AB_DEFINE)
    found = corrector(compiled)
    assert step(found, 5, ("k", 1, "a"), ("k", 3, "b")) == [("match", 0, 1.0, 3.0)] * 2
    assert step(found, 5, ("k", 2, "x")) == [("retract", 1, 1.0, 3.0)] * 2
    assert found.counters.retracted == {"r": 1}


def test_runs_dropped_at_the_limit_are_those_of_a_batch() -> None:
    compiled = program(AB, after="MAX RUNS 1 PER KEY", define=AB_DEFINE)
    found = corrector(compiled)
    assert step(found, 3, ("k", 1, "a")) == []
    assert step(found, 3, ("k", 2, "a")) == []  # the run of second 1 is dropped
    assert step(found, 5, ("k", 4, "b")) == [("match", 0, 2.0, 4.0)]
    assert found.counters.dropped_runs == {"r": 1}
    assert step(found, 5, ("k", 1.5, "b")) == [("match", 0, 1.0, 1.5)]
    assert found.counters.dropped_runs == {"r": 0}


def test_an_event_that_is_late_by_the_bound_is_handed_back() -> None:
    compiled = program(AB, define=AB_DEFINE)
    found = corrector(compiled, within_seconds=5)
    found.advance(20 * SECOND)
    late = found.push(prepared(compiled, ("k", 15, "a"), ("k", 15.000001, "a"), ("k", 16, "b")))
    assert late.column("_ts_us").to_pylist() == [15 * SECOND]
    assert short(found.advance(20 * SECOND)) == [("match", 0, 15.000001, 16.0)]
    assert (found.counters.events, found.counters.late, found.counters.uncorrected) == (2, 1, 0)


def test_what_is_final_is_not_retained() -> None:
    compiled = program(AB, define=AB_DEFINE)
    found = corrector(compiled, within_seconds=10)
    most = 0
    for second in range(200):
        step(found, second, ("k", second, "a" if second % 2 else "b"))
        most = max(most, found.n_retained)
    # Events of the last 10 seconds and of the time between two saved states; as many matches at most.
    assert 10 < most <= 2 * (10 + 10 / SAVES + 1)


def test_one_large_step_retains_no_more_than_small_ones() -> None:
    compiled = program(AB, define=AB_DEFINE)
    found = corrector(compiled, within_seconds=10)
    found.push(prepared(compiled, *(("k", second, "a") for second in range(1000))))
    found.advance(1000 * SECOND)
    assert found.n_retained <= 13
    assert step(found, 1000, ("k", 991, "b")) == [("match", 0, 981.0, 991.0)]


def test_more_than_may_be_retained_is_final_earlier_and_what_comes_too_late_for_it_is_counted() -> None:
    compiled = program(AB, define=AB_DEFINE)
    found = corrector(compiled, within_seconds=1000, max_retained=8)
    for second in range(100):
        step(found, second, ("k", second, "a"))
        assert found.n_retained <= 8
    assert 91 <= found.final_us / SECOND <= 97
    assert found.push(prepared(compiled, ("k", 50, "b"))).num_rows == 1
    assert (found.counters.late, found.counters.uncorrected) == (1, 1)
    assert step(found, 99, ("k", 98.5, "b")) == [("match", 0, 89.0, 98.5)]


def test_after_the_end_of_the_input_nothing_is_retained_and_all_is_late() -> None:
    compiled = program(AB, define=AB_DEFINE)
    found = corrector(compiled)
    found.push(prepared(compiled, ("k", 1, "a"), ("k", 2, "b")))
    assert short(found.finish()) == [("match", 0, 1.0, 2.0)]
    assert found.n_retained == 0
    assert found.push(prepared(compiled, ("k", 3, "a"))).num_rows == 1
    again = Corrector.restore(compiled, found.snapshot(), MINUTE)
    assert again.push(prepared(compiled, ("k", 3, "a"))).num_rows == 1


def test_revisions_are_forgotten_when_the_match_can_not_come_back() -> None:
    compiled = program(AB, after="AFTER MATCH SKIP PAST LAST EVENT", define=AB_DEFINE)
    found = corrector(compiled, within_seconds=4)
    step(found, 5, ("k", 1, "a"), ("k", 3, "b"))
    step(found, 5, ("k", 2, "b"))
    assert found._withdrawn.num_rows == 1
    for second in range(6, 30):
        step(found, second, ("k", second, "x"), ("k", second, "a"))
    assert found._withdrawn.num_rows == 0


def test_where_too_many_withdrawn_matches_would_be_remembered_revisions_begin_higher() -> None:
    compiled = program("a b", clauses="", define=AB_DEFINE)
    found = corrector(compiled, max_retained=3)
    reported: list[Row] = []
    for at in range(0, 60, 6):
        reported += step(found, at + 5, ("k", at + 1, "a"), ("k", at + 3, "b"))
        reported += step(found, at + 5, ("k", at + 4, "x"), ("k", at + 2, "x"))
    assert [revision for _, revision, _, _ in reported] == [0, 1] * 4 + [2, 3] * 4 + [4, 5] * 2


def test_a_snapshot_is_refused_by_what_runs_the_other_way() -> None:
    compiled = program(AB, define=AB_DEFINE)
    with pytest.raises(StateError) as error:
        restored(compiled, Matcher(compiled).snapshot(), MINUTE)
    assert str(error.value) == (
        "error[E0649]: the stored state was written without corrections\n"
        "help: leave out `correct within`, or start from a new checkpoint"
    )
    with pytest.raises(StateError) as error:
        restored(compiled, Corrector(compiled, MINUTE).snapshot(), None)
    assert str(error.value) == (
        "error[E0649]: the stored state was written with corrections\n"
        "help: set `correct within` again, or start from a new checkpoint"
    )


def _damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_damaged, "E0702"),
        (lambda data: data[:4] + b"\x63" + data[5:], "E0703"),
        (lambda data: data[:6] + bytes(16) + data[22:], "E0701"),
    ],
)
def test_stored_bytes_that_do_not_fit_are_refused(change: Any, code: str) -> None:
    compiled = program(AB, define=AB_DEFINE)
    data = Corrector(compiled, MINUTE).snapshot()
    with pytest.raises(StateError) as error:
        Corrector.restore(compiled, change(data), MINUTE)
    assert error.value.code == code


def test_a_wider_bound_counts_from_what_is_still_retained() -> None:
    compiled = program(AB, define=AB_DEFINE)
    narrow = corrector(compiled, within_seconds=4)
    for second in range(20):
        step(narrow, second, ("k", second, "a"))
    wide = Corrector.restore(compiled, narrow.snapshot(), MINUTE)
    assert wide.final_us > 10 * SECOND
    assert wide.push(prepared(compiled, ("k", 10, "b"))).num_rows == 1


def test_without_corrections_there_is_a_plain_matcher() -> None:
    assert isinstance(Chain(RuleSet((program(AB, define=AB_DEFINE),))).matchers[0], Matcher)
    assert isinstance(Chain(RuleSet((program(AB, define=AB_DEFINE),), MINUTE)).matchers[0], Corrector)


A = "a AS letter = 'a'"


@pytest.mark.parametrize(
    ("measure", "late", "then", "now"),
    [
        ("SUM(x) OVER LAST 40 SECONDS", 1.5, 10.0, 11.5),
        ("COUNT(*) OVER ALL", 1.5, 1, 2),
        ("PREV(a.x)", 1.5, None, 1.5),
        ("PREV(a.x)", float("nan"), None, float("nan")),
        ("MIN(x) OVER LAST 40 SECONDS", -0.0, 10.0, -0.0),
    ],
)
def test_a_late_event_corrects_a_value_of_a_match_that_keeps_its_events(
    measure: str, late: float, then: float | None, now: float
) -> None:
    compiled = program("a", define=A, measures=f"{measure} AS w, a.x AS x")
    found = corrector(compiled)
    found.push(prepared(compiled, ("k", 20, "a", 10.0), ("k", 60, "x")))
    (reported,) = found.advance(30 * SECOND).to_pylist()
    assert (reported["w"], reported["x"]) == (then, 10.0)
    found.push(prepared(compiled, ("k", 5, "x", late)))
    withdrawn, match = found.advance(30 * SECOND).to_pylist()
    assert withdrawn == {**reported, "kind": "retract", "revision": 1}
    assert repr(match) == repr({**reported, "w": now, "revision": 2})
    assert found.counters.matches == {"r": 1}
    assert found.counters.retracted == {"r": 1}
    found.push(prepared(compiled, ("k2", 6, "x", 7.0)))  # changes nothing
    assert found.advance(30 * SECOND).num_rows == 0


def test_rows_of_an_event_whose_values_change_are_all_replaced() -> None:
    compiled = program(
        "a b",
        after="ALL ROWS PER MATCH",
        define=AB_DEFINE,
        measures="LAST(b.id) AS id, PREV(a.letter) AS before",
    )
    found = corrector(compiled)
    assert step(found, 5, ("k", 1, "a"), ("k", 3, "b")) == [("match", 0, 1.0, 3.0)] * 2
    assert step(found, 5, ("k", 0.5, "x")) == [*[("retract", 1, 1.0, 3.0)] * 2, *[("match", 2, 1.0, 3.0)] * 2]


def test_rules_over_a_match_whose_values_change_agree_with_it() -> None:
    rules = compile_sources(
        [
            Source(
                "chain.cep",
                "RULE m FROM events PARTITION BY k PATTERN a DEFINE a AS letter = 'a'"
                " MEASURES COUNT(*) OVER ALL AS c, SUM(x) OVER ALL AS total\n"
                "RULE of_m FROM MATCHES OF m PARTITION BY k PATTERN z DEFINE z AS c < 3"
                " MEASURES z.total AS w\n"
                "RULE second FROM MATCHES OF m PARTITION BY k PATTERN z DEFINE z AS c = 2 MEASURES z.c AS c",
            )
        ],
        {"events": STREAM},
    ).rule_set.with_corrections(MINUTE)
    chain = Chain(rules)
    rows: list[dict[str, Any]] = []
    take: Callable[[pa.Table], None] = lambda table: rows.extend(table.to_pylist())  # noqa: E731
    chain.push_events(STREAM, events(("k", 10, "a", 1.0), ("k", 20, "x", 5.0)))
    chain.advance(20 * SECOND, take)
    assert [(row["rule"], row["c"], row["total"], row["w"]) for row in rows] == [
        ("m", 1, 1.0, None),
        ("of_m", None, None, 1.0),
    ]
    rows.clear()
    chain.push_events(STREAM, events(("k", 5, "x", 0.5)))
    chain.advance(20 * SECOND, take)
    assert [(row["rule"], row["kind"], row["c"], row["total"], row["w"]) for row in rows] == [
        ("m", "retract", 1, 1.0, None),
        ("of_m", "retract", None, None, 1.0),
        ("m", "match", 2, 1.5, None),
        ("of_m", "match", None, None, 1.5),
        ("second", "match", 2, None, None),
    ]
