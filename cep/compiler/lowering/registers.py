"""Aggregates -> registers: what a run must remember, each in 64 bits that a take updates in constant time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cep.compiler.lowering.shared import Shared
from cep.expression import Column, Expression, Joined, RegisterRef, Type
from cep.program.opcodes import Update
from cep.program.program import Register


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
    """Assigns the registers of one rule. Equal aggregates share a register."""

    def __init__(self, shared: Shared, members: Members) -> None:
        self.shared = shared
        self.members = members
        self.registers: list[Register] = []
        self.known: dict[object, int] = {}
        self.updates: dict[str, list[UpdateStep]] = {}

    def ref(self, register: int) -> RegisterRef:
        """Return the expression that reads `register`."""
        return RegisterRef(register, self.registers[register].type)

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

    def distinct(self, variable: str, argument: Expression) -> int:
        """Return the register that counts different values; the one after it leads to the set of them."""
        label = _label(variable, argument)
        count = self._new(
            ("DISTINCT", variable, argument),
            Register(Type.BIGINT, f"COUNT(DISTINCT {label})", starts_at_zero=True),
            variable,
            lambda register: [
                UpdateStep(
                    5,
                    Update.DISTINCT,
                    register,
                    self.shared.column(argument),
                    arg2=int(argument.type is Type.DOUBLE),
                )
            ],
        )
        behind = Register(Type.BIGINT, f"values of {label}", values=argument.type)
        values = self._new(("VALUES", variable, argument), behind, variable, lambda register: [])
        assert values == count + 1
        return count

    def last(self, variable: str, argument: Expression, offset: int) -> int:
        """Return the register of LAST. Values shift along a chain of registers, oldest first."""
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
        """Return the register that holds the event taken first or last as `variable`."""
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

    def squares(self, variable: str, value: Expression) -> int:
        """Return the register of the squared distances from the mean.

        Welford's update (Technometrics 4(3), 1962) needs the mean before the event. So the mean has its own
        register, which is updated later in the same take.
        """
        count = self.count_values(variable, value)
        column = self.shared.column(value)
        mean = self._new(
            ("MEAN", variable, value),
            Register(Type.DOUBLE, f"mean of {_label(variable, value)}"),
            variable,
            lambda register: [UpdateStep(4, Update.MEAN_F, register, column, count)],
        )
        return self._new(
            ("SQUARES", variable, value),
            Register(Type.DOUBLE, f"squares of {_label(variable, value)}"),
            variable,
            lambda register: [UpdateStep(3, Update.SQUARES_F, register, column, count, mean)],
        )

    def _new(self, key: object, register: Register, variable: str, updates: _MakeUpdates) -> int:
        if key not in self.known:
            self.known[key] = len(self.registers)
            self.registers.append(register)
            for member in self.members(variable):
                self.updates.setdefault(member, []).extend(updates(self.known[key]))
        return self.known[key]


def _label(variable: str, argument: Expression) -> str:
    if isinstance(argument, Joined):
        return f"{variable}.{argument.table}.{argument.column}"
    if isinstance(argument, Column):
        return f"{variable}.{argument.name}" if variable else argument.name
    return f"expression of {variable}" if variable else "expression"
