"""Calls of the functions of text, numbers and time to draw from, for tests that compare evaluators."""

from __future__ import annotations

from random import Random

from cep.expression import Call, Expression, Literal, Type
from cep.program.opcodes import DATE_PARTS, TRUNC_UNITS

_T, _N, _D, _TIME = Type.STRING, Type.BIGINT, Type.DOUBLE, Type.TIMESTAMP

Shape = tuple[str, Type, tuple[Type | tuple[int | str, ...], ...]]
"""A function, what it gives, and for each argument its type or the constants it may be."""

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia")

EXACT: tuple[Shape, ...] = (
    *[(name, _T, (_T,)) for name in ("lower", "upper", "trim", "ltrim", "rtrim", "reverse")],
    ("length", _N, (_T,)),
    ("substring", _T, (_T, _N, _N)),
    ("substring", _T, (_T, (-3, -1, 0, 1, 2, 5), (-1, 0, 1, 2, 2**31 - 1))),
    ("right", _T, (_T, (-1, 0, 1, 2, 9))),
    ("right", _T, (_T, _N)),
    ("concat", _T, (_T, _T)),
    ("concat", _T, (_T, _T, _T)),
    ("replace", _T, (_T, _T, _T)),
    ("replace", _T, (_T, ("a", "b", "", "p", "ß"), ("", "x", "aa"))),
    ("instr", _N, (_T, _T)),
    ("instr", _N, (_T, ("a", "b", "", "n", "語"))),
    ("split_part", _T, (_T, ("a", "b", "_", "", "in"), (-2, -1, 1, 2, 7))),
    ("parse_bigint", _N, (_T,)),
    ("parse_double", _D, (_T,)),
    ("text", _T, (_N,)),
    ("round", _D, (_D, tuple(range(16)))),
    ("sign", _D, (_D,)),
    *[(name, _D, (_D,)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")],
    ("atan2", _D, (_D, _D)),
    ("distance_km", _D, (_D, _D, _D, _D)),
    *[(name, _N, (_TIME,)) for name in (*DATE_PARTS, "unix_seconds", "unix_millis", "unix_micros")],
    ("date_trunc", _TIME, (TRUNC_UNITS, _TIME)),
    *[(f"{way}_utc_timestamp", _TIME, (_TIME, ZONES)) for way in ("from", "to")],
    *[(f"timestamp_{unit}", _TIME, (_N,)) for unit in ("seconds", "millis", "micros")],
)
"""Functions with the same value, to the last bit, in every evaluator."""

CLOSE: tuple[Shape, ...] = (
    *[(name, _D, (_D,)) for name in ("exp", "ln", "log2", "log10")],
    ("power", _D, (_D, _D)),
)
"""Functions whose last bits depend on the library that computes them."""


def constant(values: tuple[int | str, ...], random: Random) -> Literal:
    """Draw one of `values`."""
    value = random.choice(values)
    return Literal(value, Type.STRING if isinstance(value, str) else Type.BIGINT)


def call(shape: Shape, args: list[Expression]) -> Call:
    """Return the call of a shape."""
    return Call(shape[0], tuple(args), shape[1])
