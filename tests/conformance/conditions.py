"""Facts about the conditions of a case that follow from their form alone."""

from __future__ import annotations

from typing import Any

from tests.conformance.expressions import AGGREGATES
from tests.conformance.stages import Expression


def conjuncts(expression: Expression) -> set[str]:
    """Return the conditions that must all hold."""
    if expression is True or expression == ["true"]:
        return set()
    if isinstance(expression, list) and expression[0] == "and":
        return {part for inner in expression[1:] for part in conjuncts(inner)}
    return {repr(expression)}


def renamed(expression: Expression, name: str, variable: str) -> Expression:
    """Return the expression with the variable of the stage `name` replaced by `variable`."""
    if not isinstance(expression, list):
        return expression
    parts = [renamed(part, name, variable) for part in expression]
    return [parts[0], variable, *parts[2:]] if parts[0] in AGGREGATES and parts[1] == name else parts


def excludes(one: Expression, other: Expression) -> bool:
    """Return whether two conditions demand different values of the same field."""
    ours, theirs = _demands(one), _demands(other)
    return any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys())


def _demands(expression: Expression) -> dict[str, Any]:
    if not isinstance(expression, list):
        return {}
    if expression[0] == "and":
        found: dict[str, Any] = {}
        for part in expression[1:]:
            found |= _demands(part)
        return found
    if expression[0] == "==" and isinstance(expression[1], list) and expression[1][0] == "field":
        return {} if isinstance(expression[2], list) else {expression[1][1]: expression[2]}
    return {}
