"""Rules with joined tables: the engine against the oracle, with snapshots, corrections, rules reordered.

``python -m tests.property.tables`` draws as many cases as one likes.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cep.compiler.compile import check_sources
from cep.diagnostics.diagnostic import render
from cep.engine.corrections.corrector import Corrector
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.errors import Source
from cep.program.program import Program
from cep.rule_set import Corrections
from tests.deep import n_cases
from tests.oracle import TooManyRunsError
from tests.property.corrected_rules import FOREVER_US, PLENTY
from tests.property.differential import canonical, in_order, rows_of, stream_table
from tests.property.rule_text import rule_text
from tests.property.tables import (
    TableCase,
    check,
    given_tables,
    oracle_rows,
    oracle_tables,
    prepared,
    programs_of,
    reads_tables,
    table_cases,
    watermarks,
)
from tests.property.test_engine import SLOW
from tests.property.test_rule_text import REFUSED
from tests.standing import Standing

GATE = settings(
    max_examples=n_cases(30), deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
FEW = settings(GATE, max_examples=n_cases(10))


@GATE
@given(table_cases())
def test_the_engine_reports_what_the_oracle_reports_of_tables(case: TableCase) -> None:
    assume(check(case, also_unoptimized=False))


@GATE
@given(table_cases(has_window_rules=True))
def test_window_rules_have_the_rows_of_the_oracle_with_tables(case: TableCase) -> None:
    assume(check(case, also_unoptimized=False))


@FEW
@given(st.one_of(table_cases(max_rules=3), table_cases(has_window_rules=True)))
def test_the_same_rules_in_another_order_go_on_from_a_snapshot(case: TableCase) -> None:
    assume(len(case.case.rules) > 1 and is_small(case))
    others = {
        program.fingerprint: program
        for program in programs_of(replace(case, case=replace(case.case, rules=case.case.rules[::-1])))
    }
    rows = []
    for program in programs_of(case):
        turns = (program, others.pop(program.fingerprint))
        given_by_name = given_tables(case)
        matcher, tables, seen = Matcher(program, given_by_name), [], 0
        reached = watermarks(case.case, case.case.steps)
        for number, (step, reach_us) in enumerate(zip(case.case.steps, reached, strict=True)):
            batch = case.case.events[seen : seen + step.n_events]
            seen += step.n_events
            for table in prepared(matcher.program, case, number):
                matcher.push(table)
            matcher.push(prepare(matcher.program, stream_table(case.case.stream, batch)))
            if reach_us is not None:
                tables.append(matcher.advance(reach_us))
            matcher = Matcher.restore(turns[(number + 1) % 2], matcher.snapshot(), given_by_name)
        for table in prepared(matcher.program, case, len(case.case.steps)):
            matcher.push(table)
        tables.append(matcher.finish())
        rows += [row for table in tables for row in rows_of(table, case.case.rules)]
    assert in_order(rows) == oracle_rows(case)


@FEW
@given(st.one_of(table_cases(), table_cases(has_window_rules=True)), st.integers(0, 2**16))
def test_late_versions_and_late_events_correct_matches(case: TableCase, seed: int) -> None:
    """Events and versions come in any order; the rows that stand in the end are right."""
    assume(is_small(case) and reads_tables(case))
    for program in programs_of(case):
        check_corrections(program, case, Random(seed))


def check_corrections(program: Program, case: TableCase, random: Random) -> None:
    given_by_name = given_tables(case)
    corrector = Corrector(program, Corrections(FOREVER_US, PLENTY), given_by_name)
    standing = Standing(lambda value: repr(canonical(value)))
    arrivals: list[tuple[int, pa.Table]] = []
    for event in case.case.events:
        typed = stream_table(case.case.stream, [event])
        told = extents(program, case.case.stream, typed)
        arrivals += [(event["ts"], table) for table in (prepare(program, typed), *told)]
    for name, (stream, versions) in oracle_tables(case).items():
        if name not in case.given:
            for version in versions:
                rows = stream_table(stream, [version])
                arrivals += [(version["at"], table) for table in prepared_versions(program, stream, rows)]
                arrivals += [(version["at"], table) for table in extents(program, stream, rows)]
    # Equals of one time keep their order of arrival, in which they count.
    order = sorted(range(len(arrivals)), key=lambda at: (arrivals[at][0], at))
    delayed = {time: time + random.choice([0, 0, 3, 8]) * 1_000_000 for time, _ in arrivals}
    order.sort(key=lambda at: delayed[arrivals[at][0]])
    newest_us = 0
    for at in order:
        time_us, table = arrivals[at]
        assert corrector.push(table).num_rows == 0
        newest_us = max(newest_us, time_us)
        if random.random() < 0.5:
            standing.read(corrector.advance(newest_us - 1).to_pylist())
        if random.random() < 0.2:
            corrections = Corrections(FOREVER_US, PLENTY)
            corrector = Corrector.restore(program, corrector.snapshot(), corrections, given_by_name)
    standing.read(corrector.finish().to_pylist())
    matcher = Matcher(program, given_by_name)
    for _, table in arrivals:
        matcher.push(table)
    standing.check(matcher.finish().to_pylist())


@FEW
@given(st.one_of(table_cases(), table_cases(has_window_rules=True)))
def test_a_rule_with_tables_written_as_text_has_the_same_matches(case: TableCase) -> None:
    streams = {stream.name: stream for stream in (case.case.stream, *case.tables)}
    case = replace(case, case=replace(case.case, rules=case.case.rules[:1]))
    read, problems = check_sources([Source("drawn.cep", rule_text(case.case.rules[0]))], streams)
    errors = [problem for problem in problems if problem.is_error]
    assert {problem.code for problem in errors} <= REFUSED, render(errors)
    assume(not errors and is_small(case))
    assert oracle_rows(replace(case, case=replace(case.case, rules=read))) == oracle_rows(case)


def is_small(case: TableCase) -> bool:
    try:
        oracle_rows(case)
    except TooManyRunsError:
        return False
    return True
