"""Aggregates -> registers: what a run must remember, each in 64 bits that a take updates in constant time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from cep.expression import Aggregate, Call, Column, Expression, Literal, Type
from cep.program import (
    MAX_BITS,
    Register,
    Update,
)
from cep.schema import Stream


@dataclass
class Shared:
    """What the rules of one program have in common."""

    streams: tuple[Stream, ...]
    optimize: bool = True
    words: list[dict[Expression, None]] = field(default_factory=list)
    derived: dict[Expression, str] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    listed: dict[str, None] = field(default_factory=dict)

    def word_for(self, predicates: dict[Expression, None]) -> int:
        """Return the first word that can take `predicates`; equal ones share a bit."""
        for number, word in enumerate(self.words):
            if len(word | predicates) <= MAX_BITS:
                word.update(predicates)
                return number
        self.words.append(dict(predicates))
        return len(self.words) - 1

    def column(self, expression: Expression) -> int:
        """Return the index of the column that holds `expression` for each event."""
        return self.columns.setdefault(self._name(expression), len(self.columns))

    def listed_column(self, expression: Expression) -> Column:
        """Return the column that holds `expression` for each event that is reported."""
        name = self._name(expression)
        self.listed[name] = None
        return Column(name, expression.type)

    def _name(self, expression: Expression) -> str:
        if isinstance(expression, Column):
            return expression.name
        return self.derived.setdefault(expression, f"_d{len(self.derived)}")


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """One register update; `phase` orders the updates of one take (readers before what they read)."""

    phase: int
    op: Update
    register: int
    column: int = -1
    arg: int = 0
    arg2: int = 0


Members = Callable[[str], tuple[str, ...]]
"""The variables that a name stands for: itself, or the members of a subset."""

_MakeUpdates = Callable[[int], list[UpdateStep]]


class Registers:
    """Hands out the registers of one rule: the same aggregate, the same register."""

    def __init__(self, shared: Shared, members: Members) -> None:
        self.shared = shared
        self.members = members
        self.registers: list[Register] = []
        self.known: dict[object, int] = {}
        self.updates: dict[str, list[UpdateStep]] = {}

    def read(self, aggregate: Aggregate) -> Expression:
        """Return an expression over registers that has the value of `aggregate`."""
        kind, variable, argument = aggregate.kind, aggregate.variable, aggregate.argument
        if argument is None:
            return self._of(self.count(variable))
        match kind:
            case "LAST":
                return self._of(self.last(variable, argument, aggregate.offset))
            case "FIRST":
                return self._of(self.first(variable, argument, aggregate.offset))
            case "COUNT":
                return self._of(self.count_values(variable, argument))
            case "SUM":
                return self._of(self.accumulate("SUM", variable, argument))
            case "MIN" | "MAX":
                return self._of(self.accumulate(kind, variable, argument))
            case "AVG":
                value = _as_double(argument)
                total = self._of(self.accumulate("SUM", variable, value))
                count = self._of(self.count_values(variable, argument))
                return Call("/", (total, _as_double(count)), Type.DOUBLE)
            case "STDDEV":
                return self._stddev(variable, _as_double(argument))
            case _:
                raise AssertionError(kind)

    def count(self, variable: str) -> int:
        """Return the register that counts the events taken as `variable`."""
        return self._new(
            ("COUNT", variable),
            Register(Type.BIGINT, f"COUNT({variable}.*)" if variable else "COUNT(*)", starts_at_zero=True),
            variable,
            lambda register: [UpdateStep(2, Update.COUNT, register)],
        )

    def count_values(self, variable: str, argument: Expression) -> int:
        """Return the register that counts those where `argument` is not NULL."""
        return self._new(
            ("COUNT", variable, argument),
            Register(Type.BIGINT, f"COUNT({_label(variable, argument)})", starts_at_zero=True),
            variable,
            lambda register: [UpdateStep(2, Update.COUNT_VALUE, register, self.shared.column(argument))],
        )

    def last(self, variable: str, argument: Expression, offset: int) -> int:
        """Offsets shift along a chain of registers, the oldest first, before the newest is set."""
        chain = [
            self._new(
                ("LAST", variable, argument, back),
                Register(argument.type, f"LAST({_label(variable, argument)}, {back})"),
                variable,
                lambda register: [],
            )
            for back in range(offset + 1)
        ]
        for back, register in enumerate(chain):
            step = (
                UpdateStep(1, Update.LAST, register, self.shared.column(argument))
                if back == 0
                else UpdateStep(-back, Update.SHIFT, register, arg=chain[back - 1])
            )
            for member in self.members(variable):
                steps = self.updates.setdefault(member, [])
                if step not in steps:
                    steps.append(step)
        return chain[offset]

    def first(self, variable: str, argument: Expression, offset: int) -> int:
        """Return the register of FIRST with an offset."""
        count = self.count(variable)
        return self._new(
            ("FIRST", variable, argument, offset),
            Register(argument.type, f"FIRST({_label(variable, argument)}, {offset})"),
            variable,
            lambda register: [
                UpdateStep(1, Update.FIRST, register, self.shared.column(argument), count, offset)
            ],
        )

    def accumulate(self, kind: str, variable: str, argument: Expression) -> int:
        """Return the register of a SUM, MIN or MAX."""
        suffix = "F" if argument.type is Type.DOUBLE else "I"
        return self._new(
            (kind, variable, argument),
            Register(argument.type, f"{kind}({_label(variable, argument)})"),
            variable,
            lambda register: [
                UpdateStep(3, Update[f"{kind}_{suffix}"], register, self.shared.column(argument))
            ],
        )

    def position(self, variable: str, *, first: bool) -> int:
        """Return the register that holds which event was taken first or last as `variable`."""
        count = self.count(variable) if first else 0
        op = Update.POSITION_FIRST if first else Update.POSITION
        return self._new(
            (op, variable),
            Register(Type.BIGINT, f"position of the {'first' if first else 'last'} {variable}"),
            variable,
            lambda register: [UpdateStep(1, op, register, arg=count)],
        )

    def last_event(self) -> int:
        """Return the register that leads to the events taken; kernels keep it up to date themselves."""
        label = Register(Type.BIGINT, "the events taken")
        return self._new("EVENTS", label, "", lambda register: [])

    def _stddev(self, variable: str, value: Expression) -> Expression:
        """Sample standard deviation by Welford's update (Technometrics 4(3), 1962)."""
        count = self.count_values(variable, value)
        column = self.shared.column(value)
        mean = self._new(
            ("MEAN", variable, value),
            Register(Type.DOUBLE, f"mean of {_label(variable, value)}"),
            variable,
            lambda register: [UpdateStep(4, Update.MEAN_F, register, column, count)],
        )
        squares = self._new(
            ("SQUARES", variable, value),
            Register(Type.DOUBLE, f"squares of {_label(variable, value)}"),
            variable,
            lambda register: [UpdateStep(3, Update.SQUARES_F, register, column, count, mean)],
        )
        degrees = Call("-", (self._of(count), Literal(1, Type.BIGINT)), Type.BIGINT)
        variance = Call("/", (self._of(squares), _as_double(degrees)), Type.DOUBLE)  # by zero: NULL
        return Call("sqrt", (variance,), Type.DOUBLE)

    def _new(self, key: object, register: Register, variable: str, updates: _MakeUpdates) -> int:
        if key not in self.known:
            self.known[key] = len(self.registers)
            self.registers.append(register)
            for member in self.members(variable):
                self.updates.setdefault(member, []).extend(updates(self.known[key]))
        return self.known[key]

    def _of(self, register: int) -> Column:
        return Column(f"#{register}", self.registers[register].type)


def _as_double(expression: Expression) -> Expression:
    return expression if expression.type is Type.DOUBLE else Call("double", (expression,), Type.DOUBLE)


def _label(variable: str, argument: Expression) -> str:
    return f"{variable}.{argument.name}" if isinstance(argument, Column) else f"expression of {variable}"


def replace_aggregates(expression: Expression, registers: Registers) -> Expression:
    """Return `expression` with every aggregate read from registers."""
    match expression:
        case Aggregate():
            return registers.read(expression)
        case Call(function=function, args=args, type=kind):
            return Call(function, tuple(replace_aggregates(arg, registers) for arg in args), kind)
        case Literal() | Column():
            return expression
        case _:
            assert_never(expression)


def before_take(expression: Expression, variable: str, members: Members) -> Expression | None:
    """Return `expression` with what it says of `variable` itself told from before the event is taken.

    The event under test counts as taken, so ``COUNT(v.*)`` becomes the count so far plus one and
    ``LAST(v.x, 1)`` the last so far. A predicate in this form can be tested without copying the run, and most
    tests fail. None: an aggregate has no such form (STDDEV; a sum of integers, which may have overflowed).
    """
    match expression:
        case Aggregate() if variable in members(expression.variable):
            return _before(expression)
        case Call(function=function, args=args, type=kind):
            rewritten = [before_take(arg, variable, members) for arg in args]
            parts = tuple(arg for arg in rewritten if arg is not None)
            return Call(function, parts, kind) if len(parts) == len(args) else None
        case _:
            return expression


def _before(aggregate: Aggregate) -> Expression | None:
    kind, variable, value = aggregate.kind, aggregate.variable, aggregate.argument
    counted = Aggregate("COUNT", variable, None, 0, Type.BIGINT)
    if value is None:
        return Call("+", (counted, Literal(1, Type.BIGINT)), Type.BIGINT)
    match kind:
        case "LAST" if aggregate.offset == 0:
            return value
        case "LAST":
            return dataclasses.replace(aggregate, offset=aggregate.offset - 1)
        case "FIRST":
            is_this = Call("=", (counted, Literal(aggregate.offset, Type.BIGINT)), Type.BOOLEAN)
            return Call("case", (is_this, value, aggregate), aggregate.type)
        case "COUNT":
            is_value = Call("is_not_null", (value,), Type.BOOLEAN)
            one, none = Literal(1, Type.BIGINT), Literal(0, Type.BIGINT)
            added = Call("case", (is_value, one, none), Type.BIGINT)
            return Call("+", (aggregate, added), Type.BIGINT)
        case "MIN" | "MAX":
            return Call("least" if kind == "MIN" else "greatest", (aggregate, value), aggregate.type)
        case "SUM" if aggregate.type is Type.DOUBLE:
            both = Call("+", (aggregate, value), Type.DOUBLE)
            return Call("coalesce", (both, aggregate, value), Type.DOUBLE)
        case "AVG":
            total = _before(Aggregate("SUM", variable, _as_double(value), 0, Type.DOUBLE))
            count = _before(Aggregate("COUNT", variable, value, 0, Type.BIGINT))
            assert total is not None
            assert count is not None
            return Call("/", (total, _as_double(count)), Type.DOUBLE)
        case _:
            return None
