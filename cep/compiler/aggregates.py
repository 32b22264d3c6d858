"""The aggregates over the events of a variable: one table entry each.

An entry gives the types of an aggregate's argument and value, the registers of its value, and its form before
the event under test is taken. A new aggregate is an entry in `AGGREGATES`. It needs a branch of
`cep.engine.kernels.registers` only if none of the updates there (`cep.program.opcodes.Update`) fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from cep.compiler.lowering.registers import Members, Registers
from cep.expression import (
    IN_TAKEN,
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Windowed,
    rebuild,
)

_NUMBERS = (Type.BIGINT, Type.DOUBLE)

_Read = Callable[[Registers, str, Expression, int], Expression]
"""Takes the registers of a rule, variable, argument and offset; returns the value of an aggregate."""

_Before = Callable[[Aggregate, Expression], Expression | None]
"""Takes an aggregate and its argument; returns its form before the take, or None if it has none."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """The definition of an aggregate.

    `takes` are the types of its argument; None: any type, including opaque ones. `gives` is the type of its
    value; None: the type of its argument. `read` computes its value from registers; None: its value is a
    list, which no register holds.

    `before` has the same value, but reads registers as they are before the event under test is taken. A
    condition in this form is tested without a copy of the run, and most tests fail. None: no such form.
    """

    name: str
    takes: tuple[Type, ...] | None
    gives: Type | None
    read: _Read | None
    before: _Before | None = None
    has_offset: bool = False
    of_durations: str = ""  # what to write for a duration, if it takes none


def _first(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    return registers.ref(registers.first(variable, value, offset))


def _before_first(aggregate: Aggregate, value: Expression) -> Expression:
    is_this = Call("=", (_counted(aggregate.variable), Literal(aggregate.offset, Type.BIGINT)), Type.BOOLEAN)
    return Call("case", (is_this, value, aggregate), aggregate.type)


def _last(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    return registers.ref(registers.last(variable, value, offset))


def _before_last(aggregate: Aggregate, value: Expression) -> Expression:
    return value if aggregate.offset == 0 else dataclasses.replace(aggregate, offset=aggregate.offset - 1)


def _count(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    return registers.ref(registers.count_values(variable, value))


def _before_count(aggregate: Aggregate, value: Expression) -> Expression:
    is_value = Call("is_not_null", (value,), Type.BOOLEAN)
    one, none = Literal(1, Type.BIGINT), Literal(0, Type.BIGINT)
    return Call("+", (aggregate, Call("case", (is_value, one, none), Type.BIGINT)), Type.BIGINT)


def _accumulated(kind: str) -> _Read:
    def read(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
        return registers.ref(registers.accumulate(kind, variable, value))

    return read


def _before_sum(aggregate: Aggregate, value: Expression) -> Expression | None:
    if aggregate.type is not Type.DOUBLE:
        return None  # a sum of integers may have overflowed, and then stays NULL
    both = Call("+", (aggregate, value), Type.DOUBLE)
    return Call("coalesce", (both, aggregate, value), Type.DOUBLE)


def _before_extreme(function: str) -> _Before:
    def before(aggregate: Aggregate, value: Expression) -> Expression:
        return Call(function, (aggregate, value), aggregate.type)

    return before


def _average(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    total = registers.ref(registers.accumulate("SUM", variable, _as_double(value)))
    count = registers.ref(registers.count_values(variable, value))
    return Call("/", (total, _as_double(count)), Type.DOUBLE)


def _before_average(aggregate: Aggregate, value: Expression) -> Expression | None:
    number = _as_double(value)
    total = _before_sum(Aggregate("SUM", aggregate.variable, number, 0, Type.DOUBLE), number)
    count = _before_count(Aggregate("COUNT", aggregate.variable, value, 0, Type.BIGINT), value)
    return None if total is None else Call("/", (total, _as_double(count)), Type.DOUBLE)


def _deviation(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    number = _as_double(value)
    squares = registers.ref(registers.squares(variable, number))
    count = registers.ref(registers.count_values(variable, number))
    degrees = Call("-", (count, Literal(1, Type.BIGINT)), Type.BIGINT)
    variance = Call("/", (squares, _as_double(degrees)), Type.DOUBLE)  # division by zero gives NULL
    return Call("sqrt", (variance,), Type.DOUBLE)


def _as_double(value: Expression) -> Expression:
    return value if value.type is Type.DOUBLE else Call("double", (value,), Type.DOUBLE)


def _counted(variable: str) -> Aggregate:
    return Aggregate("COUNT", variable, None, 0, Type.BIGINT)


_TABLE = (
    AggregateFunction("FIRST", None, None, _first, _before_first, has_offset=True),
    AggregateFunction("LAST", None, None, _last, _before_last, has_offset=True),
    AggregateFunction("COUNT", None, Type.BIGINT, _count, _before_count),
    AggregateFunction("SUM", (*_NUMBERS, Type.INTERVAL), None, _accumulated("SUM"), _before_sum),
    AggregateFunction(
        "AVG",
        _NUMBERS,
        Type.DOUBLE,
        _average,
        _before_average,
        of_durations="of durations write SUM(...) / COUNT(...)",
    ),
    AggregateFunction(
        "MIN", (*_NUMBERS, Type.TIMESTAMP, Type.INTERVAL), None, _accumulated("MIN"), _before_extreme("least")
    ),
    AggregateFunction(
        "MAX",
        (*_NUMBERS, Type.TIMESTAMP, Type.INTERVAL),
        None,
        _accumulated("MAX"),
        _before_extreme("greatest"),
    ),
    # Welford's mean and squares change when an event is taken: no form before the take.
    AggregateFunction("STDDEV", _NUMBERS, Type.DOUBLE, _deviation),
    AggregateFunction("ARRAY_AGG", None, None, read=None),
)

AGGREGATES: dict[str, AggregateFunction] = {function.name: function for function in _TABLE}
"""Name -> aggregate."""


def _distinct(registers: Registers, variable: str, value: Expression, offset: int) -> Expression:
    return registers.ref(registers.distinct(variable, value))


_OF_SETS = {
    "DISTINCT": AggregateFunction("DISTINCT", None, Type.BIGINT, _distinct),
    "VALUES": AggregateFunction("VALUES", None, None, _distinct),  # from the register that counts
}
"""Kind -> aggregate over the different values of a variable. Sets do not grow before the event is taken for
good, so what reads them is always in the form before the take: `sets_before_take`.
"""


def is_list(function: str) -> bool:
    """Return whether the value of an aggregate is a list; only a measure can be one."""
    return function in AGGREGATES and AGGREGATES[function].read is None


def replace_aggregates(expression: Expression, registers: Registers) -> Expression:
    """Return `expression` with every aggregate read from registers."""

    def read(leaf: Expression) -> Expression:
        if not isinstance(leaf, Aggregate):
            return leaf
        if leaf.argument is None:
            return registers.ref(registers.count(leaf.variable))
        of_table = (_OF_SETS if leaf.kind in _OF_SETS else AGGREGATES)[leaf.kind].read
        assert of_table is not None, "lists are reported, not read from registers"
        return of_table(registers, leaf.variable, leaf.argument, leaf.offset)

    return rebuild(expression, read)


def before_take(expression: Expression, variable: str, members: Members) -> Expression | None:
    """Return `expression` with its aggregates over `variable` read as they are before the event is taken.

    The event under test counts as taken, so ``COUNT(v.*)`` becomes the count so far plus one, and
    ``LAST(v.x, 1)`` the last so far. None: an aggregate has no such form.
    """
    if isinstance(expression, Aggregate) and expression.kind in _OF_SETS:
        return expression  # `sets_before_take` existed
    if isinstance(expression, Aggregate) and variable in members(expression.variable):
        if expression.argument is None:
            one = Literal(1, Type.BIGINT)
            return Call("+", (_counted(expression.variable), one), Type.BIGINT)
        before = AGGREGATES[expression.kind].before
        return None if before is None else before(expression, expression.argument)
    if isinstance(expression, Call):
        rewritten = [before_take(arg, variable, members) for arg in expression.args]
        args = tuple(arg for arg in rewritten if arg is not None)
        is_whole = len(args) == len(rewritten)
        return Call(expression.function, args, expression.type) if is_whole else None
    return expression


def sets_before_take(expression: Expression, variable: str, members: Members) -> Expression:
    """Return `expression` with the sets of `variable` read as they are before the event is taken.

    The event under test counts as taken, so ``x IN (v.y)`` is also TRUE if x equals its y.
    """
    match expression:
        case Call(function=function, args=(operand, Aggregate(argument=value) as values)) if (
            function == IN_TAKEN and value is not None and variable in members(values.variable)
        ):
            operand = sets_before_take(operand, variable, members)
            before = Call(IN_TAKEN, (operand, values), Type.BOOLEAN)
            return Call("or", (before, Call("=", (operand, value), Type.BOOLEAN)), Type.BOOLEAN)
        case Call(function=function, args=args, type=kind):
            return Call(function, tuple(sets_before_take(arg, variable, members) for arg in args), kind)
        case Aggregate(kind="DISTINCT", argument=value) if value is not None and variable in members(
            expression.variable
        ):
            values = dataclasses.replace(expression, kind="VALUES", type=value.type)
            is_null = Call("is_null", (value,), Type.BOOLEAN)
            is_known = Call("or", (is_null, Call(IN_TAKEN, (value, values), Type.BOOLEAN)), Type.BOOLEAN)
            none, one = Literal(0, Type.BIGINT), Literal(1, Type.BIGINT)
            is_more = Call("case", (is_known, none, one), Type.BIGINT)
            return Call("+", (expression, is_more), Type.BIGINT)
        case Aggregate() | Column() | Joined() | Literal() | RegisterRef() | RoleTest() | Windowed():
            return expression
        case _:
            assert_never(expression)
