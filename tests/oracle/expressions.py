"""Expressions for one event at a time (docs/semantics.md, "Predicates" and "Expressions")."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from cep.expression import Aggregate, Call, Column, Expression, Literal, Type

Event = Mapping[str, Any]
"""Column name to value. Timestamps are int microseconds, None is NULL."""

Taken = Mapping[str, Sequence[Event]]
"""Variable to the events taken as it, oldest first."""

_INT64 = range(-(2**63), 2**63)
_INTEGERS = (Type.BIGINT, Type.TIMESTAMP, Type.INTERVAL)


def evaluate(expression: Expression, event: Event | None, taken: Taken) -> Any:
    """Return the value of `expression` (None: NULL) for the event under test and what was taken so far."""
    match expression:
        case Literal(value=value):
            return value
        case Column(name=name):
            assert event is not None, "a measure has no event under test"
            return event[name]
        case Aggregate():
            return _aggregate(expression, taken.get(expression.variable, ()))
        case Call():
            return _call(expression, event, taken)
        case _:
            assert_never(expression)


def _aggregate(aggregate: Aggregate, events: Sequence[Event]) -> Any:
    """Carry out "Aggregates": NULLs do not count, but FIRST and LAST point at events, not at values."""
    argument = aggregate.argument
    if argument is None:
        return len(events)
    values = [evaluate(argument, event, {}) for event in events]
    if aggregate.kind == "FIRST":
        return values[aggregate.offset] if aggregate.offset < len(values) else None
    if aggregate.kind == "LAST":
        return values[-1 - aggregate.offset] if aggregate.offset < len(values) else None
    known = [value for value in values if value is not None]
    if aggregate.kind == "COUNT":
        return len(known)
    if not known:
        return None
    match aggregate.kind:
        case "SUM":
            return _total(known, aggregate.type)
        case "AVG":
            return _total([float(value) for value in known], Type.DOUBLE) / len(known)
        case "MIN":
            return min(known, key=_rank)
        case "MAX":
            return max(known, key=_rank)
        case "STDDEV":
            if len(known) < 2:
                return None
            mean = sum(known) / len(known)
            return math.sqrt(sum((value - mean) * (value - mean) for value in known) / (len(known) - 1))
        case _:
            raise AssertionError(aggregate.kind)


def _total(values: list[Any], kind: Type) -> Any:
    """Add in the order of taking; an integer total that leaves 64 bits stays NULL."""
    total = values[0]
    for value in values[1:]:
        total += value
        if kind in _INTEGERS and total not in _INT64:
            return None
    return total


def _rank(value: Any) -> tuple[bool, Any]:
    """Order of values: NaN is greater than every number and equal to itself."""
    return (True, 0) if value != value else (False, value)


def _call(call: Call, event: Event | None, taken: Taken) -> Any:
    args = [evaluate(arg, event, taken) for arg in call.args]
    match call.function:
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "is_null":
            return args[0] is None
        case "is_not_null":
            return args[0] is not None
        case "in":
            equal = [None if arg is None else _rank(arg) == _rank(args[0]) for arg in args[1:]]
            return None if args[0] is None else True if True in equal else None if None in equal else False
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "case":
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            return next((value for condition, value in pairs if condition is True), args[-1])
        case "least":
            return min((arg for arg in args if arg is not None), key=_rank, default=None)
        case "greatest":
            return max((arg for arg in args if arg is not None), key=_rank, default=None)
        case function:
            if any(arg is None for arg in args):
                return None
            value = _FUNCTIONS[function](*args)
            return None if call.type in _INTEGERS and value is not None and value not in _INT64 else value


def _divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float):
        return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _whole(round_: Callable[[float], int]) -> Callable[[float], int | None]:
    return lambda x: round_(x) if math.isfinite(x) else None


def _like(text: str, pattern: str) -> bool:
    parts, quoted = [], False
    for letter in pattern:
        if quoted or letter not in "%_\\":
            parts.append(re.escape(letter))
            quoted = False
        elif letter == "\\":
            quoted = True
        else:
            parts.append(".*" if letter == "%" else ".")
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "=": lambda a, b: _rank(a) == _rank(b),
    "<>": lambda a, b: _rank(a) != _rank(b),
    "<": lambda a, b: _rank(a) < _rank(b),
    "<=": lambda a, b: _rank(a) <= _rank(b),
    ">": lambda a, b: _rank(a) > _rank(b),
    ">=": lambda a, b: _rank(a) >= _rank(b),
    "not": lambda a: not a,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": _remainder,
    "negate": lambda a: -a,
    "abs": abs,
    "double": float,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "sqrt": lambda a: math.nan if a < 0 or a != a else math.sqrt(a),
    "like": _like,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "contains": lambda text, other: other in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
