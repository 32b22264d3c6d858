"""The numbers with which the compiler instructs the engine, and the functions that they stand for."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from cep.expression import Call, Expression, Literal

SEVERITIES = ("info", "low", "medium", "high", "critical")
"""What the severity of a rule may be, the lowest first."""


class Mode(IntEnum):
    """How a waiting run treats an event that it does not take (`ir.Contiguity`, as numbers)."""

    STRICT = 0
    NEXT = 1
    ANY = 2


class SelectionCode(IntEnum):
    """`ir.Selection`, as numbers."""

    EARLIEST = 0
    ALL = 1
    PREFERRED = 2


class SkipCode(IntEnum):
    """`ir.SkipKind`, as numbers."""

    NO_SKIP = 0
    PAST_LAST = 1
    TO_NEXT = 2
    TO_FIRST = 3
    TO_LAST = 4


class OverflowCode(IntEnum):
    """`ir.Overflow`, as numbers."""

    DROP_OLDEST = 0
    DROP_NEWEST = 1
    FAIL = 2


class Update(IntEnum):
    """What taking an event does to one register, executed in order."""

    LAST = 0  # register = column
    FIRST = 1  # register = column, if register `arg` (a count) equals the offset in `arg2`
    SHIFT = 2  # register = register `arg`
    COUNT = 3  # register += 1
    COUNT_VALUE = 4  # register += 1, if the column is not NULL
    SUM_I = 5
    SUM_F = 6
    MIN_I = 7
    MIN_F = 8
    MAX_I = 9
    MAX_F = 10
    POSITION = 11  # register = sequence number of the event
    POSITION_FIRST = 12  # the same, if register `arg` (a count) is 0
    MEAN_F = 13  # Welford's running mean; register `arg` holds the count of values, this event included
    SQUARES_F = 14  # Welford's squares; `arg`: the count, `arg2`: the register of the mean before this event
    DISTINCT = 15  # register += 1 and the set after it grows, if the value is new; `arg2`: of doubles


class Code(IntEnum):
    """Bytecode of correlated predicates: a stack machine over int64 and float64 with NULLs."""

    CONST_I = 0
    CONST_F = 1
    CONST_NULL = 2
    COLUMN = 3  # int64 or float64 by the operation that reads it: 64 bits are copied
    REGISTER = 4
    I_TO_F = 5
    ADD_I = 6
    SUB_I = 7
    MUL_I = 8
    MOD_I = 9
    NEG_I = 10
    ABS_I = 11
    ADD_F = 12
    SUB_F = 13
    MUL_F = 14
    DIV_F = 15
    MOD_F = 16
    NEG_F = 17
    ABS_F = 18
    SQRT_F = 19
    FLOOR_F = 20
    CEIL_F = 21
    EQ_I = 22
    LT_I = 23
    LE_I = 24
    EQ_F = 25
    LT_F = 26
    LE_F = 27
    AND = 28
    OR = 29
    NOT = 30
    IS_NULL = 31
    COALESCE = 32  # of the two on top
    SELECT = 33  # condition, value, else
    MIN_OF_I = 34
    MIN_OF_F = 35
    MAX_OF_I = 36
    MAX_OF_F = 37
    # From here on: `kernels.functions`.
    DATE_PART = 38  # arg: place in DATE_PARTS
    DATE_TRUNC = 39  # arg: place in TRUNC_UNITS
    FLOOR_DIV = 40  # by arg
    SCALE = 41  # times arg; NULL outside the years 1 to 9999 of microseconds since 1970
    ROUND_F = 42  # to arg digits
    SIGN_F = 43
    EXP_F = 44
    LN_F = 45
    LOG2_F = 46
    LOG10_F = 47
    POWER_F = 48  # of the two on top
    SIN_F = 49
    COS_F = 50
    TAN_F = 51
    ASIN_F = 52
    ACOS_F = 53
    ATAN_F = 54
    ATAN2_F = 55  # of the two on top
    DISTANCE_KM = 56  # of the four on top
    # From here on: sets of values (`kernels.event_nodes`).
    IN_SET_I = 57  # whether the top is in the set that register `arg` counts
    IN_SET_F = 58


DATE_PARTS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofweek",
    "weekday",
    "dayofyear",
    "hour",
    "minute",
    "second",
)
"""Functions that take a part of a point in time."""

TRUNC_UNITS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
"""Units of ``date_trunc``."""

_COMPUTED: dict[str, tuple[Code, int]] = {
    **{name: (Code.DATE_PART, number) for number, name in enumerate(DATE_PARTS)},
    "unix_seconds": (Code.FLOOR_DIV, 1_000_000),
    "unix_millis": (Code.FLOOR_DIV, 1_000),
    "unix_micros": (Code.FLOOR_DIV, 1),
    "timestamp_seconds": (Code.SCALE, 1_000_000),
    "timestamp_millis": (Code.SCALE, 1_000),
    "timestamp_micros": (Code.SCALE, 1),
    "sign": (Code.SIGN_F, 0),
    "exp": (Code.EXP_F, 0),
    "ln": (Code.LN_F, 0),
    "log2": (Code.LOG2_F, 0),
    "log10": (Code.LOG10_F, 0),
    "power": (Code.POWER_F, 0),
    "sin": (Code.SIN_F, 0),
    "cos": (Code.COS_F, 0),
    "tan": (Code.TAN_F, 0),
    "asin": (Code.ASIN_F, 0),
    "acos": (Code.ACOS_F, 0),
    "atan": (Code.ATAN_F, 0),
    "atan2": (Code.ATAN2_F, 0),
    "distance_km": (Code.DISTANCE_KM, 0),
}


class Computation(NamedTuple):
    """How `kernels.functions` computes a call from its operands."""

    code: Code
    arg: int
    operands: tuple[Expression, ...]


def computation_of(call: Call) -> Computation | None:
    """Return how a call of a function of numbers or times is computed; None: it is another function."""
    match call:
        case Call(function="round", args=(value, Literal(value=int() as places))):
            return Computation(Code.ROUND_F, places, (value,))
        case Call(function="date_trunc", args=(Literal(value=str() as unit), value)):
            return Computation(Code.DATE_TRUNC, TRUNC_UNITS.index(unit), (value,))
        case Call(function=function, args=args) if function in _COMPUTED:
            return Computation(*_COMPUTED[function], args)
        case _:
            return None
