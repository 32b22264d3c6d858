"""The text of a drawn rule has the same matches as the rule, so parser and analyzer agree with the oracle."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings

from cep.compiler.compile import check_sources
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from tests.deep import n_cases
from tests.property.differential import oracle_rows
from tests.property.rule_text import rule_text
from tests.property.strategies.cases import Case, cases
from tests.property.test_engine import GATE, is_small

REFUSED = {
    "E0150",  # ON TIMEOUT beside other limits
    "E0202",  # an aggregate over a variable that is only absent
    "E0206",  # an operation on a bare NULL
    "E0212",  # a measure that is NULL
    "E0310",  # a skip to the first event of the match
    "E0322",  # an absence at the end of a group with a window
}
"""Codes of drawn rules that the language rightly refuses."""


@settings(GATE, max_examples=n_cases(120))
@given(cases(max_rules=1))
def test_a_rule_written_as_text_has_the_same_matches(case: Case) -> None:
    source = Source("drawn.cep", rule_text(case.rules[0]))
    read, problems = check_sources([source], {case.stream.name: case.stream})
    errors = [problem for problem in problems if problem.is_error]
    assert {problem.code for problem in errors} <= REFUSED, render(errors)
    assume(not errors)
    assume(is_small(case))
    assert oracle_rows(replace(case, rules=read)) == oracle_rows(case)
