"""Warnings about a pattern: what is legal and probably not meant."""

from __future__ import annotations

from collections.abc import Mapping

from cep.compiler.pattern_shape import can_be_empty, can_wait_for_ever, first_variables, walk_pattern
from cep.compiler.time_limits import Report
from cep.language import ast


def warn_of_pattern(rule: ast.Rule, role_of: Mapping[str, int], report: Report) -> None:
    """Report what is odd in the pattern of `rule`; `role_of` has the roles of its variables, if any."""
    written = rule.pattern
    if rule.window is None and can_wait_for_ever(written):
        report(
            "W0501",
            "nothing bounds how long a run of this rule lives",
            written.span,
            "waits for ever",
            "add WITHIN and a time after the pattern",
        )
    for node in walk_pattern(written):
        if isinstance(node, ast.Sequence):
            _check_sequence(node, rule, role_of, report)
    _check_tail(written, report)


def _check_sequence(
    sequence: ast.Sequence, rule: ast.Rule, role_of: Mapping[str, int], report: Report
) -> None:
    for item, after in zip(sequence.items, sequence.items[1:], strict=False):
        node = item.pattern
        if isinstance(node, ast.Repetition):
            _check_claims(node, after.pattern, rule, role_of, report)
        if (
            isinstance(node, ast.Repetition)
            and node.most is None
            and node.least <= 1
            and node.joint is ast.Joint.STRICT
            and after.joint is not ast.Joint.STRICT
        ):
            sign, bounds = f"{'+' if node.least else '*'}{node.greed}", f"{{{node.least},}}{node.greed}"
            report(
                "W0504",
                "a strict loop before an arrow",
                node.quantifier_span,
                "the repetitions must follow one another directly",
                f"write ->{sign} if other events may come between them, {bounds} if not",
            )
        if (
            isinstance(node, ast.Absence)
            and item.joint is not ast.Joint.STRICT
            and node.period is None
            and after.joint is ast.Joint.STRICT
            and not can_be_empty(after.pattern)
        ):
            report(
                "W0506",
                f"`{node.text}` has no effect",
                node.span,
                "the next step follows directly: nothing can come between",
                "put an arrow after it",
            )


def _check_claims(
    loop: ast.Repetition, after: ast.Pattern, rule: ast.Rule, role_of: Mapping[str, int], report: Report
) -> None:
    """Warn if a possessive loop claims every event that what follows it can begin with."""
    if loop.greed is not ast.Greed.POSSESSIVE or loop.least == loop.most or loop.until is not None:
        return
    claims, wanted = first_variables(loop.body), first_variables(after)
    if (
        wanted
        and not can_be_empty(after)
        and all(_is_claimed(name, claims, rule, role_of) for name in wanted)
    ):
        report(
            "W0509",
            "this loop leaves nothing for what follows it",
            loop.quantifier_span,
            "a possessive loop claims every event it could begin with",
            "drop the last `+`, or let the conditions exclude each other",
        )


def _is_claimed(name: str, claims: set[str], rule: ast.Rule, role_of: Mapping[str, int]) -> bool:
    """Say whether each event for which `name` holds is one of `claims`, as far as it is plain to see."""
    conditions = {one.variable.text: one.condition for one in rule.definitions}
    terms = {one: set(_terms(condition)) for one, condition in conditions.items() if condition is not None}
    return any(
        role_of.get(claim, -1) == role_of.get(name, -1)
        and (claim == name or terms.get(claim, set()) <= terms.get(name, set()))
        for claim in claims
    )


def _check_tail(pattern: ast.Pattern, report: Report) -> None:
    if not isinstance(pattern, ast.Sequence):
        return
    optional: ast.Pattern | None = None
    for item in reversed(pattern.items):
        if isinstance(item.pattern, ast.Absence):
            if optional is not None and item.pattern.period is None:
                report(
                    "W0505",
                    f"what follows `{item.pattern.text}` may be left out",
                    optional.span,
                    f"taken, it ends the watch `{item.pattern.text}`; left out, the window's end decides",
                    "make it necessary, or leave it out",
                )
            return
        if not can_be_empty(item.pattern):
            return
        optional = item.pattern


def _terms(condition: ast.Expression) -> tuple[ast.Expression, ...]:
    """Return what AND joins in `condition`."""
    if isinstance(condition, ast.Junction) and condition.operator == "and":
        return condition.terms
    return (condition,)
