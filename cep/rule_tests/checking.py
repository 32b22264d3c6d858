"""Whether a case passes: the expected matches, whatever the delivery of its events."""

from __future__ import annotations

from cep.errors import CepError, Diagnostic
from cep.output.rows import json_line
from cep.rule_set import RuleSet
from cep.rule_tests.cases import Case, RuleTests
from cep.rule_tests.delivery import Row, Way, all_ways, matches_of
from cep.rule_tests.expected import compared, shown_row


def check_case(tests: RuleTests, case: Case) -> list[Diagnostic]:
    """Return what is wrong with a case, delivered in all ways; empty: it passes."""
    rules = tests.compiled.rule_set
    written: list[Row] = []
    try:
        for way, seed in all_ways(rules, case):
            rows = matches_of(rules, tests.names, case, way, seed)
            if way is Way.WRITTEN:
                written = rows
                if problems := _problems(tests, case, rows):
                    return problems
            elif _texts(rows) != _texts(written):
                return [_depends(tests, case, way, rows, written)]
    except CepError as error:
        return [Diagnostic(error.code, str(error.args[0]), tests.source, case.span, "fails", error.help)]
    return []


def passes(rules: RuleSet, tests: RuleTests, case: Case) -> bool:
    """Return whether other `rules` have the matches that a case of `tests` expects."""
    try:
        missing, others = compared(case, matches_of(rules, tests.names, case))
    except CepError:
        return False
    return not missing and not others


def _problems(tests: RuleTests, case: Case, rows: list[Row]) -> list[Diagnostic]:
    missing, others = compared(case, rows)
    found = [
        Diagnostic(
            "E0674", f"{case.name}: an expected match is missing", tests.source, expected.span, nearest
        )
        for expected, nearest in missing
    ]
    for row in others:
        title = f"{case.name}: a match that is not expected"
        advice = f"if it is right, add to `expect`: - {shown_row(row, tests.names)}"
        found.append(Diagnostic("E0674", title, tests.source, case.span, "not all are expected", advice))
    return found


def _texts(rows: list[Row]) -> list[str]:
    return [json_line(row) for row in rows]


def _depends(tests: RuleTests, case: Case, way: Way, rows: list[Row], written: list[Row]) -> Diagnostic:
    """Return the problem of a case whose matches depend on the delivery."""
    title = f"{case.name}: the matches depend on how events arrive"
    one = next(iter(set(_texts(rows)) ^ set(_texts(written))), "their order")
    advice = "events of one time need a `tie_break` in the streams file that tells them apart"
    return Diagnostic("E0675", title, tests.source, case.span, f"{way}: differs in {one}", advice)
