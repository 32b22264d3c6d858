"""Windows without events: the engine against the oracle, with restores, corrections and few at a time."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cep.compiler.compile import check_sources
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from tests.deep import n_cases
from tests.property.rule_text import rule_text
from tests.property.tables import TableCase, check, engine_rows, oracle_rows, programs_of, silent_cases
from tests.property.test_rule_text import REFUSED
from tests.property.test_tables import GATE, check_corrections

SOME = settings(GATE, max_examples=n_cases(15))
FEW = settings(GATE, max_examples=n_cases(6))


@SOME
@given(silent_cases())
def test_windows_without_events_have_the_rows_of_the_oracle(case: TableCase) -> None:
    check(case, also_unoptimized=False)


@FEW
@given(silent_cases())
def test_so_they_have_if_few_windows_are_looked_at_together(case: TableCase) -> None:
    with mock.patch("cep.engine.window_rules.window_rules._MOST_ENDS", 2):
        assert engine_rows(case, programs_of(case), case.case.steps) == oracle_rows(case)


@FEW
@given(silent_cases(), st.integers(0, 2**16))
def test_with_corrections_what_stands_is_what_a_batch_reports(case: TableCase, seed: int) -> None:
    for program in programs_of(case):
        check_corrections(program, case, Random(seed))


@FEW
@given(silent_cases())
def test_such_a_rule_written_as_text_has_the_same_rows(case: TableCase) -> None:
    assume(all(len(rule.key) == 1 for rule in case.case.rules))
    streams = {stream.name: stream for stream in (case.case.stream, *case.tables)}
    texts = "\n".join(map(rule_text, case.case.rules))
    read, problems = check_sources([Source("drawn.cep", texts)], streams)
    errors = [problem for problem in problems if problem.is_error]
    assert {problem.code for problem in errors} <= REFUSED, render(errors)
    assume(not errors)
    assert oracle_rows(replace(case, case=replace(case.case, rules=read))) == oracle_rows(case)
