"""Correlated expressions -> bytecode of the kernels."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import assert_never

from cep.compiler.lowering.shared import Shared
from cep.expression import (
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
    children,
)
from cep.program.opcodes import Code, computation_of


class Assembler:
    """Writes bytecode for one expression over registers and event columns."""

    _BINARY: Mapping[str, tuple[Code, Code]] = {
        "+": (Code.ADD_I, Code.ADD_F),
        "-": (Code.SUB_I, Code.SUB_F),
        "*": (Code.MUL_I, Code.MUL_F),
        "/": (Code.DIV_F, Code.DIV_F),
        "%": (Code.MOD_I, Code.MOD_F),
        "=": (Code.EQ_I, Code.EQ_F),
        "<": (Code.LT_I, Code.LT_F),
        "<=": (Code.LE_I, Code.LE_F),
        "least": (Code.MIN_OF_I, Code.MIN_OF_F),
        "greatest": (Code.MAX_OF_I, Code.MAX_OF_F),
    }
    _UNARY: Mapping[str, tuple[Code, Code]] = {
        "negate": (Code.NEG_I, Code.NEG_F),
        "abs": (Code.ABS_I, Code.ABS_F),
        "sqrt": (Code.SQRT_F, Code.SQRT_F),
        "floor": (Code.FLOOR_F, Code.FLOOR_F),
        "ceil": (Code.CEIL_F, Code.CEIL_F),
        "not": (Code.NOT, Code.NOT),
        "is_null": (Code.IS_NULL, Code.IS_NULL),
        "double": (Code.I_TO_F, Code.I_TO_F),
    }

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.code: list[tuple[Code, int]] = []
        self.known: dict[int, tuple[Expression, bool]] = {}  # by identity; this dictionary keeps them alive

    def reads_registers(self, expression: Expression) -> bool:
        """Return whether `expression` concerns what the run has taken. Each part is examined once."""
        if id(expression) not in self.known:
            found = isinstance(expression, RegisterRef) or any(
                map(self.reads_registers, children(expression))
            )
            self.known[id(expression)] = (expression, found)
        return self.known[id(expression)][1]

    def emit(self, code: Code, arg: int = 0) -> None:
        """Add one instruction."""
        self.code.append((code, arg))

    def write(self, expression: Expression) -> None:
        """Add the instructions that leave the value of `expression` on the stack."""
        match expression:
            case Literal():
                self._literal(expression)
            case RegisterRef(number=number):
                self.emit(Code.REGISTER, number)
            case Column() | Windowed() | Joined():
                self.emit(Code.COLUMN, self.shared.column(expression))
            case Call() if not self.reads_registers(expression):
                self.emit(Code.COLUMN, self.shared.column(expression))
            case Call() if computation := computation_of(expression):
                for operand in computation.operands:
                    self.write(operand)
                self.emit(computation.code, computation.arg)
            case Call(function=function, args=args):
                self._call(function, args)
                if expression.type is Type.TIMESTAMP and function in ("+", "-"):
                    self.emit(Code.SCALE, 1)  # NULL outside the years 1 to 9999
            case Aggregate() | RoleTest():
                raise AssertionError("aggregates are replaced before; only local predicates ask for roles")
            case _:
                assert_never(expression)

    def _literal(self, literal: Literal) -> None:
        if literal.value is None:
            self.emit(Code.CONST_NULL)
        elif literal.type is Type.STRING:  # codes are given to columns
            self.emit(Code.COLUMN, self.shared.column(literal))
        elif literal.type is Type.DOUBLE:
            self.emit(Code.CONST_F, struct.unpack("<q", struct.pack("<d", float(literal.value)))[0])
        else:
            self.emit(Code.CONST_I, int(literal.value))

    def _call(self, function: str, args: tuple[Expression, ...]) -> None:
        is_float = args[0].type is Type.DOUBLE
        match function:
            case ">" | ">=":
                self._call(function.replace(">", "<"), (args[1], args[0]))
            case "<>":
                self._call("=", args)
                self.emit(Code.NOT)
            case "is_not_null":
                self._call("is_null", args)
                self.emit(Code.NOT)
            case "in_taken":
                values = args[1]
                assert isinstance(values, RegisterRef)
                self.write(args[0])
                self.emit(Code.IN_SET_F if is_float else Code.IN_SET_I, values.number)
            case "in":
                same = tuple(Call("=", (args[0], arg), Type.BOOLEAN) for arg in args[1:])
                self._chain(Code.OR, same)
            case "and" | "or" | "coalesce":
                self._chain(Code[function.upper()], args)
            case "case":
                self._case(args)
            case _ if function in self._BINARY:
                self._chain(self._BINARY[function][is_float], args)
            case _ if function in self._UNARY:
                self.write(args[0])
                self.emit(self._UNARY[function][is_float])
            case _:
                raise AssertionError(f"{function} has no bytecode")

    def _chain(self, code: Code, args: tuple[Expression, ...]) -> None:
        self.write(args[0])
        for arg in args[1:]:
            self.write(arg)
            self.emit(code)

    def _case(self, args: tuple[Expression, ...]) -> None:
        for arg in args:
            self.write(arg)
        for _ in args[1::2]:
            self.emit(Code.SELECT)
