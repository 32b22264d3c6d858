"""The matcher's own promises: time, lateness, duplicates, limits, memory. Meaning is the oracle's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from cep.engine.matching.matcher import Matcher
from tests.unit.engine.events import SECOND, STREAM, prepared, program, spans

AB = "a -> b"
AB_DEFINE = "a AS letter = 'a', b AS letter = 'b'"


def test_nothing_is_reported_before_the_watermark_reaches_it() -> None:
    matcher = Matcher(compiled := program(AB, define=AB_DEFINE))
    matcher.push(prepared(compiled, ("k", 1, "a"), ("k", 2, "b")))
    assert matcher.advance(1 * SECOND).num_rows == 0
    assert spans(matcher.advance(2 * SECOND)) == [("k", 1.0, 2.0)]


def test_events_within_the_lateness_may_arrive_in_any_order() -> None:
    matcher = Matcher(compiled := program(AB, define=AB_DEFINE))
    matcher.push(prepared(compiled, ("k", 2, "b")))
    matcher.push(prepared(compiled, ("k", 1, "a")))
    assert spans(matcher.finish()) == [("k", 1.0, 2.0)]


def test_an_event_at_the_watermark_is_late_and_changes_nothing() -> None:
    matcher = Matcher(compiled := program(AB, define=AB_DEFINE))
    matcher.advance(5 * SECOND)
    late = matcher.push(prepared(compiled, ("k", 5, "a"), ("k", 6, "a"), ("k", 7, "b")))
    assert late.column("_ts_us").to_pylist() == [5 * SECOND]
    assert spans(matcher.finish()) == [("k", 6.0, 7.0)]
    assert (matcher.counters.events, matcher.counters.late) == (2, 1)


def test_a_watermark_never_goes_back() -> None:
    matcher = Matcher(program(AB, define=AB_DEFINE))
    matcher.advance(5 * SECOND)
    matcher.advance(3 * SECOND)
    assert matcher.watermark_us == 5 * SECOND


def test_keys_do_not_see_each_other() -> None:
    matcher = Matcher(compiled := program("a b", define=AB_DEFINE))
    matcher.push(prepared(compiled, ("k", 1, "a"), ("m", 2, "b"), ("k", 3, "b"), ("m", 4, "b")))
    assert spans(matcher.finish()) == [("k", 1.0, 3.0)]


def test_keys_with_events_are_counted_in_each_advance() -> None:
    matcher = Matcher(compiled := program(AB, define=AB_DEFINE))
    matcher.push(prepared(compiled, ("k", 1, "a"), ("m", 1, "a"), ("k", 2, "b"), ("n", 9, "a")))
    assert matcher.counters.keys == 0
    matcher.advance(5 * SECOND)
    assert matcher.counters.keys == 2
    matcher.push(prepared(compiled, ("k", 8, "a")))
    matcher.advance(9 * SECOND + 1)
    assert matcher.counters.keys == 4


def test_a_row_without_a_key_takes_part_in_nothing() -> None:
    compiled = program(AB, define=AB_DEFINE)
    assert prepared(compiled, (None, 1, "a"), (None, 2, "b")).num_rows == 0


def test_second_deliveries_are_dropped_and_counted() -> None:
    stream = dataclasses.replace(STREAM, deduplicate=True)
    compiled = program("a->{2}", define="a AS letter = 'a'", stream=stream)
    table = prepared(compiled, ("k", 1, "a"), ("k", 2, "a"), ("k", 3, "c"))
    matcher = Matcher(compiled)
    matcher.push(pa.concat_tables([table, table]))
    assert spans(matcher.finish()) == [("k", 1.0, 2.0)]
    assert matcher.counters.duplicates == 2


def test_without_deduplicate_equal_events_are_two_events_with_two_ids() -> None:
    compiled = program("a", define="a AS letter = 'a'")
    table = prepared(compiled, ("k", 1, "a"))
    matcher = Matcher(compiled)
    matcher.push(pa.concat_tables([table, table]))
    ids = matcher.finish()["match_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 2


def test_an_absence_comes_out_when_its_window_closes_without_any_event() -> None:
    compiled = program("a -> !b", define=AB_DEFINE)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a")))
    assert matcher.advance(10 * SECOND).num_rows == 0
    assert matcher.next_deadline_us() == 11 * SECOND
    assert spans(matcher.advance(11 * SECOND)) == [("k", 1.0, 11.0)]
    assert matcher.next_deadline_us() is None


def test_an_event_exactly_at_the_close_is_inside_unless_the_window_is_exclusive() -> None:
    for clause, expected in [("WITHIN 10 SECONDS", [("k", 0.0, 10.0)]), ("WITHIN < 10 SECONDS", [])]:
        matcher = Matcher(compiled := program(AB, clause, define=AB_DEFINE))
        matcher.push(prepared(compiled, ("k", 0, "a"), ("k", 10, "b")))
        assert spans(matcher.finish()) == expected, clause


def test_the_oldest_run_is_dropped_at_the_limit_and_counted() -> None:
    compiled = program(AB, define=AB_DEFINE)
    rule = dataclasses.replace(compiled.rules[0], max_runs=3)
    compiled = dataclasses.replace(compiled, rules=(rule,))
    matcher = Matcher(compiled)
    rows = [("k", at, "a") for at in range(5)]
    matcher.push(prepared(compiled, *rows, ("k", 5, "b")))
    assert spans(matcher.finish()) == [("k", 2.0, 5.0)]
    assert matcher.counters.dropped_runs == {"r": 2}


def test_pool_and_matches_grow_as_far_as_needed() -> None:
    compiled = program("a ->> b", define=AB_DEFINE, clauses="WITHIN 1 HOUR MATCH ALL")
    matcher = Matcher(compiled)
    rows = [("k", at, "a") for at in range(200)] + [("k", 200 + at, "b") for at in range(50)]
    matcher.push(prepared(compiled, *rows))
    assert matcher.finish().num_rows == 200 * 50


def test_keys_and_strings_without_runs_are_forgotten() -> None:
    compiled = program(
        "a -> b", "WITHIN 1 SECOND", define="a AS letter = 'a', b AS s = a.s", measures="a.s AS first"
    )
    matcher = Matcher(compiled)
    for batch in range(20):
        rows = [(f"k{batch}-{i}", 10 * batch, "a", None, None, f"text {batch}-{i}") for i in range(1000)]
        matcher.push(prepared(compiled, *rows))
        matcher.advance((10 * batch + 5) * SECOND)
    assert matcher.n_open_runs == 0
    assert len(matcher.snapshot()) < 3000


def test_match_ids_depend_on_rule_key_and_events_only() -> None:
    rows = [("k", 1, "a"), ("k", 2, "b"), ("m", 1, "a"), ("m", 2, "b")]
    compiled = program(AB, define=AB_DEFINE)
    whole, cut = Matcher(compiled), Matcher(compiled)
    whole.push(prepared(compiled, *rows))
    ids = whole.finish()["match_id"].to_pylist()
    assert len(set(ids)) == 2
    assert all(len(text) == 32 for text in ids)
    table = prepared(compiled, *rows)
    for at in (2, 0, 3, 1):
        cut.push(table.slice(at, 1))
    found = [cut.advance(second * SECOND) for second in range(1, 4)]
    assert pa.concat_tables(found)["match_id"].to_pylist() == ids
    other = Matcher(compiled_other := program(AB, define=AB_DEFINE, name="other"))
    other.push(prepared(compiled_other, *rows))
    assert not set(other.finish()["match_id"].to_pylist()) & set(ids)


def test_positions_go_on_after_a_restore() -> None:
    compiled = program(
        "a->+ -> b", "WITHIN 100 SECONDS", define=AB_DEFINE, after="AFTER MATCH SKIP TO LAST a"
    )
    rows = [("k", 1, "a"), ("k", 2, "a"), ("k", 3, "a"), ("k", 4, "b"), ("k", 5, "b")]
    matcher = Matcher(compiled)
    found = []
    for at in range(len(rows)):
        matcher.push(prepared(compiled, *rows).slice(at, 1))
        found.append(matcher.advance((at + 1) * SECOND))
        matcher = Matcher.restore(compiled, matcher.snapshot())
    found.append(matcher.finish())
    assert spans(pa.concat_tables(found)) == [("k", 1.0, 4.0), ("k", 3.0, 4.0)]


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("COUNT(a.*)", [1.0, None], 2),
        ("COUNT(a.x)", [1.0, None], 1),
        ("SUM(a.x)", [1.5, 2.5], 4.0),
        ("SUM(a.x)", [None, None], None),
        ("AVG(a.x)", [1.0, None, 2.0], 1.5),
        ("MIN(a.x)", [2.0, 1.0, float("nan")], 1.0),
        ("STDDEV(a.x)", [1.0, 2.0, 3.0, 4.0], 1.2909944487358056),
        ("STDDEV(a.x)", [1.0], None),
        ("FIRST(a.x)", [None, 2.0], None),
        ("FIRST(a.x, 1)", [None, 2.0, 3.0], 2.0),
        ("LAST(a.x, 1)", [1.0, 2.0, 3.0], 2.0),
        ("LAST(a.x, 3)", [1.0, 2.0, 3.0], None),
        ("SUM(a.x * 2)", [1.0, 2.0], 6.0),
    ],
)
def test_aggregates(expression: str, values: list[float | None], expected: float | None) -> None:
    compiled = program("a->+ -> b", "WITHIN 1 HOUR", define=AB_DEFINE, measures=f"{expression} AS m")
    rows = [("k", at, "a", value) for at, value in enumerate(values)]
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *rows, ("k", 100, "b")))
    (measured,) = matcher.finish()["m"].to_pylist()
    assert measured == (None if expected is None else pytest.approx(expected, rel=1e-15))


def test_an_overflowing_sum_is_null_from_then_on() -> None:
    compiled = program("a->+ -> b", "WITHIN 1 HOUR", define=AB_DEFINE, measures="SUM(a.n) AS m")
    largest = int(np.iinfo(np.int64).max)
    rows = [("k", 0, "a", None, largest), ("k", 1, "a", None, 1), ("k", 2, "a", None, -5), ("k", 3, "b")]
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *rows))
    assert matcher.finish()["m"].to_pylist() == [None]


def test_strings_of_two_events_compare_across_batches_and_restores() -> None:
    compiled = program(
        "a -> b",
        define="a AS letter = 'a', b AS letter = 'b' AND UPPER(s) <> UPPER(a.s)",
        measures="a.s AS s",
    )
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a", None, None, "nl"), ("m", 1, "a", None, None, None)))
    matcher.advance(1 * SECOND)
    matcher = Matcher.restore(compiled, matcher.snapshot())
    rows = [("k", 2, "b", None, None, "NL"), ("k", 3, "b", None, None, "de"), ("m", 3, "b", None, None, "de")]
    matcher.push(prepared(compiled, *rows))
    matches = matcher.finish()
    assert spans(matches) == [("k", 1.0, 3.0)]
    assert matches["s"].to_pylist() == ["nl"]
