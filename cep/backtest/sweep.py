"""Values of parameters to try: those that are given, and those that the events suggest."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from cep.arrays import F64
from cep.errors import InputError
from cep.language import ast
from cep.language.parameters import assignment
from cep.schema.time_literals import parse_duration, print_duration

MAX_RUNS = 200
"""Most rule sets of a sweep."""

_Number = TypeVar("_Number", int, float)

_TUNED = (ast.Kind.INTEGER, ast.Kind.DECIMAL, ast.Kind.INTERVAL)

_RANGE = re.compile(r"(-?[\d.]+?)\.\.(-?[\d.]+?)(?:\.\.([\d.]+))?")

_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Multiples of the declared value that are tried if no column says which values there are."""

_TAILS = (1e-3, 1e-4, 1e-5, 1e-6)
"""Shares of the values seen that are below, and above, the values that `beyond` tries."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""The whole numbers that a parameter can be are from the one to the other."""

_GREATEST = sys.float_info.max

_DIGITS = 3
"""Digits of a fraction that is tried."""

NAME_ITS_VALUES = "name its values: cep backtest --sweep NAME=VALUE,VALUE"
"""What to do about a parameter that cannot be tuned."""

_COMPARISONS = ("<", "<=", ">", ">=")


def values_of(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the parameter and the values in ``small=1..10``, ``small=0.5..2..0.5`` or ``small=1,2,5``.

    Raises InputError (E0692): the string has a different form, or too many values.
    """
    name, listed = assignment(text) or ("", "")
    form = "write NAME=1..10, NAME=0.5..2..0.5 (with a step) or NAME=1,2,5"
    if not listed:
        raise InputError("E0692", f"`{text}` names no values", form)
    found = _RANGE.fullmatch(listed)
    if found is None:
        values = tuple(dict.fromkeys(part.strip() for part in listed.split(",") if part.strip()))
        if not values:
            raise InputError("E0692", f"`{text}` names no values", form)
        return name, values
    try:
        first, last, step = (Decimal(part) for part in (found[1], found[2], found[3] or "1"))
    except InvalidOperation:
        raise InputError("E0692", f"`{listed}` is no range of numbers", form) from None
    if step <= 0 or last < first or (last - first) / step >= MAX_RUNS:
        raise InputError(
            "E0692", f"the range `{listed}` has no values, or more than {MAX_RUNS}", "write a <= b and a step"
        )
    return name, tuple(format(first + number * step, "f") for number in range(int((last - first) / step) + 1))


def combinations(sweeps: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Return the values of each run: all combinations of those of each parameter.

    Raises InputError (E0692): there are too many.
    """
    named: dict[str, tuple[str, ...]] = {}
    for text in sweeps:
        name, values = values_of(text)
        named[name] = tuple(dict.fromkeys((*named.get(name, ()), *values)))
    n_runs = int(np.prod([len(values) for values in named.values()]))
    if n_runs > MAX_RUNS:
        raise InputError("E0692", f"these are {n_runs:,} runs, more than {MAX_RUNS}", "name fewer values")
    return tuple(dict(zip(named, values, strict=True)) for values in product(*named.values()))


def shown_values(values: Mapping[str, str]) -> str:
    """Return values of parameters as text: ``small=4, large=500``."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def compared_column(rule: ast.Rule, name: str) -> str | None:
    """Return the column that a rule compares with a parameter; None: no column is compared directly."""
    for part in (*rule.definitions, *rule.lets, rule.where, rule.having):
        for left, right in _compared(part):
            for one, other in ((left, right), (right, left)):
                if _is_name(one, name) and isinstance(other, ast.Column) and other.table is None:
                    return other.name.text
    return None


def _compared(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the sides of all comparisons of sizes."""
    if isinstance(node, tuple):
        for part in node:
            yield from _compared(part)
    elif is_dataclass(node) and not isinstance(node, type):
        if isinstance(node, ast.Binary) and node.operator in _COMPARISONS:
            yield node.left, node.right
        for one in fields(node):
            yield from _compared(getattr(node, one.name))


def _is_name(node: Any, name: str) -> bool:
    return isinstance(node, ast.Column) and node.variable is None and node.name.text == name


def why_not_tuned(
    declared: ast.Constant, seen: pa.ChunkedArray | None, column: str | None = None
) -> str | None:
    """Return why there are no values to try for a parameter, as a predicate; None: there are some.

    `column`: the column that is compared with the parameter; None: none is.
    """
    if declared.kind not in _TUNED or declared.value is None:
        return "is not a number or a duration"
    if declared.value or _has_values(seen):
        return None
    if column is None:
        return "is 0, and no column is compared with it"
    if seen is None:
        return f"is 0, and `{column}`, which is compared with it, is no column of the events"
    return f"is 0, and the column `{column}`, which is compared with it, has no numbers"


def candidates(declared: ast.Constant, seen: pa.ChunkedArray | None, n_values: int) -> tuple[str, ...]:
    """Return about `n_values` values to try for a parameter, the declared one among them, in order.

    Raises InputError: the parameter is a string, a time or a boolean, or is 0 and is compared with no numbers
    (E0693).

    `seen`: the values of the column that is compared with the parameter: their quantiles are tried. None:
    multiples of the declared value are tried.
    """
    reason = why_not_tuned(declared, seen)
    if reason is not None:
        raise InputError("E0693", f"the parameter {reason}", NAME_ITS_VALUES)
    if _has_values(seen):
        ranks = np.linspace(0.01, 0.99, n_values - 1)
        tried = np.quantile(_known(seen), ranks, method="inverted_cdf")
    else:
        with np.errstate(over="ignore"):  # `texts_of` has a value for what is too great
            tried = float(declared.value or 0) * np.array(_FACTORS)
    texts = {*texts_of(declared, tried.tolist()), declared_text(declared)}
    return tuple(sorted(texts, key=lambda text: number_of(declared, text)))


def beyond(declared: ast.Constant, seen: pa.ChunkedArray | None) -> tuple[str, ...]:
    """Return values to try outside of the quantiles of `candidates`: up to both extremes of the values seen.

    None are returned if no values are known.
    """
    if not _has_values(seen):
        return ()
    known = _known(seen)
    tails = np.array([share for share in _TAILS if share * len(known) > 1])
    inner = np.quantile(known, np.concatenate([tails, 1 - tails]), method="inverted_cdf")
    # No event may be left between an extreme and the value that is tried for it.
    extremes = [_outward(float(known.min()), ROUND_FLOOR), _outward(float(known.max()), ROUND_CEILING)]
    return texts_of(declared, [*inner.tolist(), *extremes])


def _has_values(seen: pa.ChunkedArray | None) -> bool:
    return seen is not None and len(seen) > seen.null_count


def _known(seen: pa.ChunkedArray | None) -> F64:
    assert seen is not None
    known: F64 = seen.drop_null().to_numpy().astype(np.float64)
    return known


def _outward(number: float, rounding: str) -> float:
    """Return a number with as many digits as `texts_of` writes, rounded away from the values seen."""
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal(repr(number)))


def between(
    declared: ast.Constant, low: str, high: str, seen: pa.ChunkedArray | None, n_values: int
) -> tuple[str, ...]:
    """Return `n_values` values from one value to another: quantiles of the values seen, or evenly spaced."""
    first, last = sorted(number_of(declared, text) for text in (low, high))
    if seen is not None:
        known = seen.drop_null().to_numpy()
        inside = known[(known > first) & (known < last)]
        if len(inside):
            ranks = np.linspace(0, 1, n_values + 2)[1:-1]
            return texts_of(declared, np.quantile(inside, ranks, method="inverted_cdf").tolist())
    quarters = np.linspace(first / 4, last / 4, n_values + 2)[1:-1]  # `last - first` may be too great
    return texts_of(declared, (4 * quarters).tolist())


def number_of(declared: ast.Constant, text: str) -> float:
    """Return the value of a parameter as a number; for a duration, its microseconds."""
    return float(parse_duration(text) or 0) if declared.kind is ast.Kind.INTERVAL else float(text)


def declared_text(declared: ast.Constant) -> str:
    """Return the exact value of a number or a duration as text; nothing for strings and booleans."""
    if declared.kind not in _TUNED or declared.value is None:
        return ""
    if declared.kind is ast.Kind.INTERVAL:
        return print_duration(int(declared.value))
    return str(declared.value) if declared.kind is ast.Kind.INTEGER else _decimal(float(declared.value))


def texts_of(declared: ast.Constant, numbers: Sequence[float]) -> tuple[str, ...]:
    """Return numbers as distinct values of a parameter, in order; fractions have three digits.

    In place of a number that a parameter cannot be, because it is too great, the greatest is returned.
    """
    finite = [_within(one, -_GREATEST, _GREATEST) for one in numbers]
    if declared.kind is ast.Kind.INTERVAL:
        return tuple(print_duration(one) for one in sorted({*map(_round_us, finite)}) if one > 0)
    if declared.kind is ast.Kind.INTEGER:
        return tuple(map(str, sorted({_within(round(one), _LEAST, _MOST) for one in finite})))
    rounded = {_within(float(f"{one:.{_DIGITS}g}"), -_GREATEST, _GREATEST) for one in finite}
    return tuple(map(_decimal, sorted(rounded)))


def _within(number: _Number, least: _Number, most: _Number) -> _Number:
    """Return a number, or the bound that is the nearest to it."""
    return min(max(number, least), most)


def _decimal(number: float) -> str:
    """Return a number as a rule can have it: of many digits, an INTEGER would be too large."""
    text = repr(number + 0.0)  # -0.0 becomes 0.0
    return text if "e+" in text else format(Decimal(text), "f")


def _round_us(length_us: float) -> int:
    """Return a duration as whole seconds, milliseconds or microseconds: the unit is at most a tenth of it."""
    unit = next((unit for unit in (1_000_000, 1_000) if length_us >= 10 * unit), 1)
    return round(length_us / unit) * unit
