"""Registers and bytecode: what a run remembers, and predicates over it."""

from __future__ import annotations

import numpy as np

from cep.engine.kernels.compiled import part
from cep.engine.kernels.functions import compute
from cep.engine.kernels.layout import (
    CODE_ARG,
    CODE_OP,
    CODE_PTR,
    F64,
    N_VALUES,
    PUSH_BITS,
    REGISTER,
    UPDATE_ARG,
    UPDATE_ARG2,
    UPDATE_COLUMN,
    UPDATE_OP,
    UPDATE_PTR,
    UPDATE_REGISTER,
    VALID,
    VALUE,
)
from cep.program import I64, U8, Code, Update

_POISON = 1  # content of a NULL register whose sum overflowed: it stays NULL
_INT64_MIN = np.iinfo(np.int64).min
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
ONE, ZERO = np.uint64(1), np.uint64(0)


@part
def mix(value: np.uint64) -> np.uint64:
    """Return the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of `value`."""
    value = (value ^ (value >> _S30)) * _MIX_A
    value = (value ^ (value >> _S27)) * _MIX_B
    return value ^ (value >> _S31)


@part
def less_f(a: float, b: float) -> bool:
    """Spark's order of doubles: NaN is the greatest."""
    if np.isnan(a):
        return False
    return np.isnan(b) or a < b


@part
def equal_f(a: float, b: float) -> bool:
    """Spark's equality of doubles: NaN equals NaN."""
    return a == b or (np.isnan(a) and np.isnan(b))


@part
def extend_chain(chain: int, variable_hash: int, identity: int) -> int:
    """Return the hash of a run after one more (variable, event)."""
    value = mix((np.uint64(chain) + GOLDEN) ^ np.uint64(variable_hash))
    return np.int64(mix(value ^ np.uint64(identity)))  # type: ignore[return-value]


@part
def is_known(rule: I64, events: I64, row: int, column: int) -> bool:
    """Say whether the value of an event is not NULL."""
    return events[VALUE + rule[N_VALUES] + (column >> 6), row] >> (column & 63) & 1 != 0


@part
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """Return the 64-bit sum and whether it fits.

    Here and below results that may wrap are computed unsigned: of a signed one LLVM assumes that it fits, and
    drops the test.
    """
    total = np.int64(np.uint64(a) + np.uint64(b))
    return total, ((a ^ total) & (b ^ total)) >= 0  # type: ignore[return-value]


@part
def update_registers(
    rule: I64,
    events: I64,
    events_f: F64,
    runs: I64,
    runs_f: F64,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> None:
    """Take event `row` as `variable`: bring the registers of `run` up to date."""
    valid = runs[run, VALID]
    for step in range(rule[rule[UPDATE_PTR] + variable], rule[rule[UPDATE_PTR] + variable + 1]):
        op = rule[rule[UPDATE_OP] + step]
        register = rule[rule[UPDATE_REGISTER] + step]
        column = rule[rule[UPDATE_COLUMN] + step]
        arg = rule[rule[UPDATE_ARG] + step]
        bit = 1 << register
        known = valid & bit != 0
        is_value = column < 0 or is_known(rule, events, row, column)
        value = 0
        if column >= 0:
            value = events[VALUE + column, row]
        if op == Update.LAST or (
            op == Update.FIRST and runs[run, REGISTER + arg] == rule[rule[UPDATE_ARG2] + step]
        ):
            runs[run, REGISTER + register] = value
            valid = valid | bit if is_value else valid & ~bit
        elif op == Update.SHIFT:
            runs[run, REGISTER + register] = runs[run, REGISTER + arg]
            valid = (valid & ~bit) | ((valid >> arg & 1) << register)
        elif op == Update.COUNT or (op == Update.COUNT_VALUE and is_value):
            runs[run, REGISTER + register] += 1
        elif op == Update.POSITION or (op == Update.POSITION_FIRST and runs[run, REGISTER + arg] == 0):
            runs[run, REGISTER + register] = position
            valid |= bit
        elif op == Update.FIRST or op == Update.POSITION_FIRST or not is_value:
            pass
        elif op == Update.SUM_I:
            if known:
                total, fits = add_checked(runs[run, REGISTER + register], value)
                runs[run, REGISTER + register] = total
                if not fits:
                    valid &= ~bit
                    runs[run, REGISTER + register] = _POISON
            elif runs[run, REGISTER + register] != _POISON:
                runs[run, REGISTER + register] = value
                valid |= bit
        elif op == Update.MIN_I or op == Update.MAX_I:
            held = runs[run, REGISTER + register]
            if not known or (value < held if op == Update.MIN_I else value > held):
                runs[run, REGISTER + register] = value
            valid |= bit
        else:
            number = events_f[VALUE + column, row]
            if not known:
                runs_f[run, REGISTER + register] = 0.0 if op == Update.SQUARES_F else number
            elif op == Update.SUM_F:
                runs_f[run, REGISTER + register] += number
            elif op == Update.MIN_F:
                if less_f(number, runs_f[run, REGISTER + register]):
                    runs_f[run, REGISTER + register] = number
            elif op == Update.MAX_F:
                if less_f(runs_f[run, REGISTER + register], number):
                    runs_f[run, REGISTER + register] = number
            elif op == Update.MEAN_F:
                runs_f[run, REGISTER + register] += (number - runs_f[run, REGISTER + register]) / runs[
                    run, REGISTER + arg
                ]
            elif op == Update.SQUARES_F:
                mean = runs_f[run, REGISTER + rule[rule[UPDATE_ARG2] + step]]
                runs_f[run, REGISTER + register] += (number - mean) * (
                    number - (mean + (number - mean) / runs[run, REGISTER + arg])
                )
            valid |= bit
    runs[run, VALID] = valid


@part
def evaluate(
    rule: I64, events: I64, runs: I64, i: I64, f: F64, null: U8, variable: int, run: int, row: int
) -> bool:
    """Return whether the correlated predicate of `variable` is TRUE for event `row` and what `run` holds."""
    top = -1
    for at in range(rule[rule[CODE_PTR] + variable], rule[rule[CODE_PTR] + variable + 1]):
        op = rule[rule[CODE_OP] + at]
        arg = rule[rule[CODE_ARG] + at]
        pushed = (op & ((1 << PUSH_BITS) - 1)) - 1
        op >>= PUSH_BITS
        if pushed >= 0:
            top += 1
            null[top] = 0
            if pushed == Code.COLUMN:
                i[top] = events[VALUE + arg, row]
                null[top] = 0 if is_known(rule, events, row, arg) else 1
            elif pushed == Code.REGISTER:
                i[top] = runs[run, REGISTER + arg]
                null[top] = 1 - (runs[run, VALID] >> arg & 1)
            elif pushed == Code.CONST_NULL:
                null[top] = 1
            else:
                i[top] = arg
        if op == 0:
            continue
        if op == Code.IS_NULL:
            i[top] = null[top]
            null[top] = 0
        elif op == Code.NOT:
            i[top] = 1 - i[top]
        elif op == Code.AND or op == Code.OR:
            top -= 1
            strong = (
                0 if op == Code.AND else 1
            )  # FALSE decides an AND, TRUE an OR, whatever the other side is
            if (null[top] == 0 and i[top] == strong) or (null[top + 1] == 0 and i[top + 1] == strong):
                i[top] = strong
                null[top] = 0
            else:
                i[top] = 1 - strong
                null[top] |= null[top + 1]
        elif op == Code.COALESCE:
            top -= 1
            if null[top]:
                i[top] = i[top + 1]
                null[top] = null[top + 1]
        elif op == Code.SELECT:
            top -= 2
            chosen = top + 1 if null[top] == 0 and i[top] == 1 else top + 2
            i[top] = i[chosen]
            null[top] = null[chosen]
        elif op == Code.MIN_OF_I or op == Code.MIN_OF_F or op == Code.MAX_OF_I or op == Code.MAX_OF_F:
            top -= 1
            if null[top + 1] == 0:
                other = top + 1
                if (
                    null[top] != 0
                    or (op == Code.MIN_OF_I and i[other] < i[top])
                    or (op == Code.MAX_OF_I and i[other] > i[top])
                    or (op == Code.MIN_OF_F and less_f(f[other], f[top]))
                    or (op == Code.MAX_OF_F and less_f(f[top], f[other]))
                ):
                    i[top] = i[other]
                null[top] = 0
        elif op == Code.I_TO_F:
            f[top] = np.float64(i[top])
        elif op == Code.NEG_I or op == Code.ABS_I:
            if i[top] == _INT64_MIN:
                null[top] = 1
            elif op == Code.NEG_I or i[top] < 0:
                i[top] = -i[top]
        elif op == Code.NEG_F:
            f[top] = -f[top]
        elif op == Code.ABS_F:
            f[top] = abs(f[top])
        elif op == Code.SQRT_F:
            f[top] = np.sqrt(f[top]) if f[top] >= 0.0 else np.nan
        elif op == Code.FLOOR_F or op == Code.CEIL_F:
            if null[top] == 0:
                rounded = np.floor(f[top]) if op == Code.FLOOR_F else np.ceil(f[top])
                if rounded >= -9.223372036854775808e18 and rounded < 9.223372036854775808e18:
                    i[top] = np.int64(rounded)
                else:
                    null[top] = 1
        elif op >= Code.DATE_PART:
            if op == Code.POWER_F:
                top -= 1
                null[top] |= null[top + 1]
            if null[top] == 0:
                null[top] = compute(op, arg, i, f, top)
        else:
            top -= 1
            null[top] |= null[top + 1]
            if null[top] == 0:
                null[top] = _binary(op, i, f, top)
    return null[0] == 0 and i[0] == 1


@part
def _binary(op: int, i: I64, f: F64, top: int) -> int:
    """Compute ``top = top op (top + 1)``; return 1 where there is no result."""
    a, b = i[top], i[top + 1]
    x, y = f[top], f[top + 1]
    if op == Code.EQ_I:
        i[top] = 1 if a == b else 0
    elif op == Code.LT_I:
        i[top] = 1 if a < b else 0
    elif op == Code.LE_I:
        i[top] = 1 if a <= b else 0
    elif op == Code.EQ_F:
        i[top] = 1 if equal_f(x, y) else 0
    elif op == Code.LT_F:
        i[top] = 1 if less_f(x, y) else 0
    elif op == Code.LE_F:
        i[top] = 0 if less_f(y, x) else 1
    elif op == Code.ADD_F:
        f[top] = x + y
    elif op == Code.SUB_F:
        f[top] = x - y
    elif op == Code.MUL_F:
        f[top] = x * y
    elif op == Code.DIV_F:
        if y == 0.0:
            return 1
        f[top] = x / y
    elif op == Code.MOD_F:
        if y == 0.0:
            return 1
        f[top] = np.fmod(x, y)
    elif op == Code.ADD_I:
        i[top], fits = add_checked(a, b)
        return 0 if fits else 1
    elif op == Code.SUB_I:
        difference = np.int64(np.uint64(a) - np.uint64(b))
        i[top] = difference
        return 0 if ((a ^ b) & (a ^ difference)) >= 0 else 1
    elif op == Code.MUL_I:
        product = np.int64(np.uint64(a) * np.uint64(b))
        i[top] = product
        if (a == -1 and b == _INT64_MIN) or (b == -1 and a == _INT64_MIN):
            return 1
        return 1 if b != 0 and b != -1 and product // b != a else 0
    elif op == Code.MOD_I:
        if b == 0:
            return 1
        remainder = np.int64(0) if b == -1 else a % b  # the sign of the divisor ...
        if remainder != 0 and (a < 0) != (b < 0):
            remainder -= b  # ... becomes that of the dividend
        i[top] = remainder
    return 0
