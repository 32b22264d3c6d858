"""Whether a pattern is sound: its quantifiers, its size, its absences and its limits in time."""

from __future__ import annotations

from cep.compiler.analysis.patterns.anchors import check_anchors, check_without
from cep.compiler.analysis.patterns.misplaced_absences import check_absences
from cep.compiler.analysis.patterns.time_limits import check_times
from cep.compiler.pattern_shape import count_positions, summary, variable_names
from cep.diagnostics.report import Reporter
from cep.language import ast

MAX_VARIABLES = 200
"""Different variables of a pattern."""

MAX_POSITIONS = 1_000
"""Positions of a pattern once its bounded loops are unrolled."""


def is_sound(rule: ast.Rule, report: Reporter) -> bool:
    """Return whether the pattern of `rule` is sound; if not, report why."""
    n_before = len(report.problems)
    check_absences(rule.pattern, report)
    check_anchors(rule.pattern, report)
    check_without(rule.pattern, report)
    _check_quantifiers(rule.pattern, report)
    if not report.has_error_since(n_before):
        _check_size(rule.pattern, report)
    if not report.has_error_since(n_before):
        check_times(rule, report)
    return not report.has_error_since(n_before)


def _check_quantifiers(pattern: ast.Pattern, report: Reporter) -> None:
    for node in ast.walk(pattern):
        if not isinstance(node, ast.Repetition):
            continue
        if node.most == 0:
            report(
                "E0306",
                "a quantifier that allows no repetition",
                node.quantifier_span,
                "at most 0 times",
                "leave the step out, or write !v for an event that must not come",
            )
        elif node.most is not None and node.least > node.most:
            report(
                "E0307",
                f"at least {node.least} but at most {node.most}",
                node.quantifier_span,
                "the lower bound comes first",
                f"write {{{node.most},{node.least}}}",
            )


def _check_size(pattern: ast.Pattern, report: Reporter) -> None:
    positions = count_positions(pattern)
    n_variables = len(variable_names(pattern))
    if positions > MAX_POSITIONS:
        many = f"{positions:,}" if positions < 10**15 else "very many"
        report(
            "E0903",
            f"the pattern has {many} positions; the limit is {MAX_POSITIONS:,}",
            pattern.span,
            "bounded loops count as often as they repeat, n parts in any order 2^(n - 1) times",
            "use smaller bounds, a loop without an upper one: a->{3,}, or fewer parts in any order",
        )
    elif n_variables > MAX_VARIABLES:
        report(
            "E0914",
            f"the pattern has {n_variables:,} variables; the limit is {MAX_VARIABLES:,}",
            pattern.span,
            "too many different names",
            "give steps with the same condition the same name",
        )
    elif summary(pattern).nullable:
        report(
            "E0308",
            "the pattern matches without any event",
            pattern.span,
            "every part of it may be left out",
            "make one step necessary: a+ instead of a*",
        )
