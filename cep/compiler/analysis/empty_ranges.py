"""Conditions whose comparisons with constants exclude each other: ``x > 10 AND x < 5``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cep.compiler.lowering.shared import conjuncts
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.expression import Aggregate, Call, Column, Expression, Joined, Literal, Type, Windowed

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(slots=True)
class _Range:
    """The values that comparisons leave; None: no limit. A limit that `is_open` is itself outside."""

    low: Any = None
    low_is_open: bool = False
    high: Any = None
    high_is_open: bool = False

    def narrow(self, operator: str, value: Any) -> None:
        is_open = operator in ("<", ">")
        if operator in ("=", ">", ">=") and (self.low is None or value >= self.low):
            self.low_is_open = is_open or (value == self.low and self.low_is_open)
            self.low = value
        if operator in ("=", "<", "<=") and (self.high is None or value <= self.high):
            self.high_is_open = is_open or (value == self.high and self.high_is_open)
            self.high = value

    @property
    def is_empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return bool(
            self.low > self.high or (self.low == self.high and (self.low_is_open or self.high_is_open))
        )


def warn_of_empty_range(
    condition: Expression | None, span: Span, report: Reporter, *, has_silent_windows: bool = False
) -> None:
    """Warn if no event can fulfil a condition, because no value fits all of its comparisons with constants.

    `has_silent_windows`: it is the HAVING of a window rule that also has windows without events.
    """
    ranges: dict[Expression, _Range] = {}
    for part in () if condition is None else conjuncts(condition):
        if not isinstance(part, Call) or part.function not in _MIRRORED:
            continue
        left, right = map(_without_cast, part.args)
        operator = part.function
        if isinstance(left, Literal):
            left, right, operator = right, left, _MIRRORED[operator]
        if not _is_plain(left) or not isinstance(right, Literal) or not _has_order(right.value):
            continue
        known = ranges.setdefault(left, _Range())
        if _counts_its_event(left) and not has_silent_windows:
            known.narrow(">=", 1)
        _narrow(known, operator, right.value, left.type)
        if known.is_empty:
            report("W0502", "this condition is never true", span, *_reason(left))
            return


def _without_cast(value: Expression) -> Expression:
    return value.args[0] if isinstance(value, Call) and value.function == "double" else value


def _is_plain(value: Expression) -> bool:
    """Return whether `value` is a column, or an aggregate of one: others may be too large to be compared."""
    if isinstance(value, Windowed | Aggregate):
        return value.argument is None or isinstance(value.argument, Column)
    return isinstance(value, Column | Joined)


def _has_order(value: Any) -> bool:
    return value is not None and value == value  # not NaN


def _narrow(known: _Range, operator: str, value: Any, kind: Type) -> None:
    """Narrow a range. Of whole numbers, `> 3` means the same as `>= 4`."""
    if kind is Type.BIGINT and operator in ("<", ">") and math.isfinite(value):
        if operator == ">":
            operator, value = ">=", math.floor(value) + 1
        else:
            operator, value = "<=", math.ceil(value) - 1
    known.narrow(operator, value)


def _counts_its_event(value: Expression) -> bool:
    """Return whether `value` is the COUNT(*) of a window that contains the event under test, or any event."""
    return (
        isinstance(value, Windowed)
        and value.function == "COUNT"
        and value.argument is None
        and not value.window.previous
        and (value.window.is_whole or (value.condition is None and not value.stream))
    )


def _reason(value: Expression) -> tuple[str, str]:
    """Return what is wrong with the comparisons of `value`, and what to write."""
    if not _counts_its_event(value):
        return "its comparisons exclude each other", "write OR between them, or other limits"
    assert isinstance(value, Windowed)
    if value.window.is_whole:
        return (
            "a window without events gives no row",
            "write FOR EACH and a table of the keys after the window: silent windows have rows then",
        )
    return (
        "COUNT(*) counts this event, too",
        "write PREVIOUS in place of LAST, or compare with a larger number",
    )
