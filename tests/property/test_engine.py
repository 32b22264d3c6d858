"""The engine reports what the oracle reports, however the events are delivered.

The examples are the same each time and take less than a minute. `python -m tests.property` draws new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import compile_rules
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.columns import whole
from cep.engine.prepare.predicates import Vectors, evaluate, prepare
from cep.expression import Expression
from tests.deep import n_cases
from tests.oracle import TooManyRunsError, find_matches
from tests.oracle.expressions import evaluate as evaluate_one
from tests.property.differential import (
    canonical,
    engine_rows,
    in_order,
    match_ids,
    oracle_rows,
    reachable_us,
    rows_of,
    stream_table,
)
from tests.property.strategies.cases import Case, Step, cases, cases_of_values, crowds
from tests.property.strategies.events import MAX_EVENTS, event_lists, streams
from tests.property.strategies.expressions import local_expressions

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
GATE = settings(
    max_examples=n_cases(250), deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
FEW = settings(GATE, max_examples=n_cases(60))
LARGE = settings(GATE, max_examples=n_cases(30))


def is_small(case: Case) -> bool:
    """Return whether the oracle can follow every run of the case."""
    try:
        oracle_rows(case)
    except TooManyRunsError:
        return False
    return True


def check_engine_agrees_with_oracle(case: Case) -> bool:
    """Compare the engine with the oracle. Return False if the case is too large to compare."""
    try:
        expected = oracle_rows(case)
    except TooManyRunsError:
        return False
    assert engine_rows(case) == expected
    return True


@GATE
@given(cases())
def test_engine_reports_what_the_oracle_reports(case: Case) -> None:
    assume(check_engine_agrees_with_oracle(case))


@FEW
@given(cases(max_rules=1, max_events=4 * MAX_EVENTS, max_size=3))
def test_engine_agrees_with_the_oracle_on_longer_streams(case: Case) -> None:
    assume(check_engine_agrees_with_oracle(case))


@FEW
@given(cases_of_values())
def test_windowed_values_of_every_event_are_those_of_the_oracle(case: Case) -> None:
    assert check_engine_agrees_with_oracle(case)


@LARGE
@given(crowds(n_keys=200))
def test_engine_agrees_with_the_oracle_while_keys_come_and_go(case: Case) -> None:
    assume(check_engine_agrees_with_oracle(case))


@FEW
@given(cases())
def test_deliveries_snapshots_and_restores_change_nothing(case: Case) -> None:
    at_once = (Step(len(case.events), advances=False, restores=False),)
    one_by_one = tuple(Step(1, advances=True, restores=True) for _ in case.events)
    assume(is_small(case))
    ids = match_ids(case, at_once)
    assert match_ids(case, one_by_one) == ids
    assert match_ids(case, case.steps) == ids
    assert engine_rows(case, one_by_one) == engine_rows(case, at_once)


@FEW
@given(cases(max_rules=3))
def test_the_same_rules_in_another_order_go_on_from_a_snapshot(case: Case) -> None:
    assume(len(case.rules) > 1 and is_small(case))
    streams_of_case = {case.stream.name: case.stream}
    others = {program.fingerprint: program for program in compile_rules(case.rules[::-1], streams_of_case)}
    rows = []
    for program in compile_rules(case.rules, streams_of_case):
        turns = (program, others.pop(program.fingerprint))
        matcher = Matcher(program)
        tables = []
        for number, event in enumerate(case.events, 1):
            matcher.push(prepare(matcher.program, stream_table(case.stream, [event])))
            newest_us = max(event["ts"] for event in case.events[:number])
            tables.append(matcher.advance(reachable_us(case, number, newest_us, ahead=number % 2 == 0)))
            matcher = Matcher.restore(turns[number % 2], matcher.snapshot())
        tables.append(matcher.finish())
        rows += [row for table in tables for row in rows_of(table, case.rules)]
    assert not others
    assert in_order(rows) == oracle_rows(case)


@FEW
@given(cases())
def test_nothing_happens_before_the_next_deadline(case: Case) -> None:
    assume(is_small(case))
    for program in compile_rules(case.rules, {case.stream.name: case.stream}):
        matcher, found, seen = Matcher(program), [], 0
        for step in case.steps:
            batch = case.events[seen : seen + step.n_events]
            seen += step.n_events
            matcher.push(prepare(program, stream_table(case.stream, batch)))
            reach_us = reachable_us(case, seen, batch[-1]["ts"], ahead=True)
            while (due_us := matcher.next_deadline_us()) is not None and due_us <= reach_us:
                before = matcher.n_open_runs
                assert matcher.advance(due_us - 1).num_rows == 0
                assert matcher.n_open_runs == before
                found.append(matcher.advance(due_us))
        while (due_us := matcher.next_deadline_us()) is not None:
            found.append(matcher.advance(due_us))
        found.append(matcher.finish())
        # If no time ends the runs, only the end of the input decides which match is preferred.
        waits = [rule for rule in case.rules if not isinstance(rule.window, ir.Window)]
        assert found[-1].num_rows == 0 or any(rule.selection is ir.Selection.PREFERRED for rule in waits)
        rows = in_order([row for table in found for row in rows_of(table, case.rules)])
        names = {rule.name for rule in program.rules}
        assert rows == [row for row in oracle_rows(case) if row[0] in names]


@FEW
@given(cases())
def test_ids_tell_matches_apart_and_do_not_depend_on_arrival(case: Case) -> None:
    assume(is_small(case))
    ids = match_ids(case, case.steps)
    different = {
        (rule.name, match.key, match.assignment, match.end_us, match.is_timeout)
        for rule in case.rules
        for match in find_matches(rule, case.stream, case.events)
    }
    assert len(set(ids)) == len(different)
    places = [tuple(event[name] for name in ("ts", *case.stream.tie_break)) for event in case.events]
    if len(set(places)) == len(places):
        by_time = replace(case, events=tuple(sorted(case.events, key=lambda event: event["ts"])))
        assert match_ids(by_time, case.steps) == ids


@FEW
@given(st.data())
def test_late_events_are_handed_back_and_change_nothing(data: st.DataObject) -> None:
    case: Case = data.draw(cases(max_rules=1))
    assume(is_small(case))
    arrival = data.draw(st.permutations(case.events))
    (program,) = compile_rules(case.rules, {case.stream.name: case.stream})
    matcher = Matcher(program)
    found, accepted, n_late = [], [], 0
    watermark_us = -1
    for step in case.steps:
        batch, arrival = arrival[: step.n_events], arrival[step.n_events :]
        in_time = [event for event in batch if event["ts"] > watermark_us]
        late = matcher.push(prepare(program, stream_table(case.stream, batch)))
        late_here = prepare(
            program, stream_table(case.stream, [event for event in batch if event["ts"] <= watermark_us])
        )
        assert late.num_rows == late_here.num_rows
        accepted += in_time
        n_late += late.num_rows
        if step.advances:
            watermark_us = max(watermark_us, *(event["ts"] for event in batch)) - case.stream.lateness_us
            found.append(matcher.advance(watermark_us))
            watermark_us = matcher.watermark_us
    found.append(matcher.finish())
    assert matcher.counters.late == n_late
    kept = Case(case.rules, case.stream, tuple(accepted), ())
    assert in_order([row for table in found for row in rows_of(table, case.rules)]) == oracle_rows(kept)


@FEW
@given(local_expressions(), event_lists(), streams())
def test_an_expression_has_the_same_value_over_columns_and_over_single_events(
    expression: Expression, events: Sequence[dict[str, Any]], stream: Any
) -> None:
    batch = Vectors(stream_table(stream, events))
    by_column = evaluate(expression, batch).to_arrow().to_pylist()
    by_event = [evaluate_one(expression, event, {}) for event in events]
    assert [canonical(value) for value in by_column] == [canonical(value) for value in by_event]


@FEW
@given(local_expressions(), event_lists(), streams())
def test_texts_that_come_as_dictionaries_give_the_same_values(
    expression: Expression, events: Sequence[dict[str, Any]], stream: Any
) -> None:
    # Copies make each text frequent, so a value that depends only on the text is computed once for each text.
    table = pa.concat_tables([stream_table(stream, events)] * COPIES)
    coded = Vectors(coded_texts(table))
    expected = evaluate(expression, Vectors(table)).to_arrow().to_pylist()
    found = evaluate(expression, coded).to_arrow().to_pylist()
    assert [canonical(value) for value in found] == [canonical(value) for value in expected]


COPIES = 8


def coded_texts(table: pa.Table) -> pa.Table:
    """Return a table with its texts as dictionaries."""
    columns = [
        whole(column).dictionary_encode() if column.type == pa.string() else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


@FEW
@given(cases())
def test_events_with_texts_as_dictionaries_are_prepared_in_the_same_way(case: Case) -> None:
    for program in compile_rules(case.rules, {case.stream.name: case.stream}):
        table = pa.concat_tables([stream_table(case.stream, case.events)] * COPIES)
        plain, coded = prepare(program, table), prepare(program, coded_texts(table))
        assert coded.schema == plain.schema
        assert [canonical_row(row) for row in coded.to_pylist()] == list(
            map(canonical_row, plain.to_pylist())
        )


def canonical_row(row: dict[str, Any]) -> list[Any]:
    return [canonical(value) for value in row.values()]
