"""Registers and bytecode: the values that a run remembers, and the predicates over them."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, outlined
from cep.engine.kernels.event_nodes import look_up
from cep.engine.kernels.functions import as_f, as_i, compute
from cep.engine.kernels.layout import Offered, Pool
from cep.program.opcodes import Code, Update

_POISON = 1  # content of a NULL register whose sum overflowed: it stays NULL
_INT64_MIN = np.iinfo(np.int64).min
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
ONE, ZERO = np.uint64(1), np.uint64(0)


@inlined
def mix(value: np.uint64) -> np.uint64:
    """Return the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of `value`."""
    value = (value ^ (value >> _S30)) * _MIX_A
    value = (value ^ (value >> _S27)) * _MIX_B
    return value ^ (value >> _S31)


@inlined
def less_f(a: float, b: float) -> bool:
    """Return whether `a` is less than `b` in Spark's order of doubles: NaN is the greatest."""
    if np.isnan(a):
        return False
    return np.isnan(b) or a < b


@inlined
def equal_f(a: float, b: float) -> bool:
    """Return whether two doubles are equal for Spark: NaN equals NaN."""
    return a == b or (np.isnan(a) and np.isnan(b))


@inlined
def extend_match_hash(chain: int, variable_hash: int, identity: int) -> int:
    """Return the hash of a run after one more (variable, event)."""
    value = mix((np.uint64(chain) + GOLDEN) ^ np.uint64(variable_hash))
    return np.int64(mix(value ^ np.uint64(identity)))  # type: ignore[return-value]


@inlined
def all_are_known(rule: I64, events: I64) -> bool:
    """Return whether no value of these events is NULL. If so, there are no words of known bits."""
    return events.shape[0] == at.VALUE + rule[at.N_VALUES]


@inlined
def is_known(rule: I64, events: I64, row: int, column: int) -> bool:
    """Return whether the value of an event is not NULL; the caller knows that there are words of known bits.

    Parameters
    ----------
    column : int
        Index into `Program.columns`.
    """
    return events[at.VALUE + rule[at.N_VALUES] + (column >> 6), row] >> (column & 63) & 1 != 0


@inlined
def signed(value: np.uint64) -> int:
    """Return the signed number with the same bits."""
    return np.int64(value)  # type: ignore[return-value]


@inlined
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """Return the 64-bit sum and whether it fits.

    Results that may wrap are computed unsigned, here and below: LLVM assumes that a signed sum fits and would
    remove the test.
    """
    total = signed(np.uint64(a) + np.uint64(b))
    return total, ((a ^ total) & (b ^ total)) >= 0


@inlined
def _accumulate(rule: I64, runs: I64, run: int, update: int, number: float, known: bool) -> None:
    """Bring a register of doubles up to date; `known`: it holds a number."""
    packed = rule[update + at.UPDATE_WORD]
    op, register = packed & 255, at.REGISTER + (packed >> 8 & 255)
    held, result = as_f(runs[run, register]), number
    if not known:
        result = 0.0 if op == Update.SQUARES_F else number
    elif op == Update.SUM_F:
        result = held + number
    elif op == Update.MIN_F:
        result = number if less_f(number, held) else held
    elif op == Update.MAX_F:
        result = number if less_f(held, number) else held
    else:
        n = runs[run, at.REGISTER + (packed >> 16 & 255)]
        if op == Update.MEAN_F:
            result = held + (number - held) / n
        else:
            mean = as_f(runs[run, at.REGISTER + rule[update + at.UPDATE_ARG2]])
            result = held + (number - mean) * (number - (mean + (number - mean) / n))
    runs[run, register] = as_i(result)


@inlined
def update_registers(  # noqa: C901, PLR0912 - a case for each instruction
    rule: I64,
    events: I64,
    runs: I64,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> None:
    """Bring the registers of `run` up to date: it takes event `row` as `variable`."""
    all_known = all_are_known(rule, events)
    valid = runs[run, at.VALID]
    update, last = rule[variable + at.VARIABLE_UPDATES], rule[variable + at.VARIABLE_UPDATES + at.END]
    # One word for all but one part: one load instead of four. A rule like `b+` runs an update at each take.
    while update < last:
        packed = rule[update + at.UPDATE_WORD]
        op, register, arg, column = packed & 255, packed >> 8 & 255, packed >> 16 & 255, (packed >> 24) - 1
        bit = 1 << register
        known = valid & bit != 0
        is_value = all_known or column < 0 or is_known(rule, events, row, column)
        value = 0
        if column >= 0:
            value = events[at.VALUE + column, row]
        if op == Update.LAST or (
            op == Update.FIRST and runs[run, at.REGISTER + arg] == rule[update + at.UPDATE_ARG2]
        ):
            runs[run, at.REGISTER + register] = value
            valid = valid | bit if is_value else valid & ~bit
        elif op == Update.SHIFT:
            runs[run, at.REGISTER + register] = runs[run, at.REGISTER + arg]
            valid = (valid & ~bit) | ((valid >> arg & 1) << register)
        elif op == Update.COUNT or (op == Update.COUNT_VALUE and is_value):
            runs[run, at.REGISTER + register] += 1
        elif op == Update.POSITION or (op == Update.POSITION_FIRST and runs[run, at.REGISTER + arg] == 0):
            runs[run, at.REGISTER + register] = position
            valid |= bit
        elif op == Update.FIRST or op == Update.POSITION_FIRST or op == Update.DISTINCT or not is_value:
            pass
        elif op == Update.SUM_I:
            if known:
                total, fits = add_checked(runs[run, at.REGISTER + register], value)
                runs[run, at.REGISTER + register] = total
                if not fits:
                    valid &= ~bit
                    runs[run, at.REGISTER + register] = _POISON
            elif runs[run, at.REGISTER + register] != _POISON:
                runs[run, at.REGISTER + register] = value
                valid |= bit
        elif op == Update.MIN_I or op == Update.MAX_I:
            held = runs[run, at.REGISTER + register]
            if not known or (value < held if op == Update.MIN_I else value > held):
                runs[run, at.REGISTER + register] = value
            valid |= bit
        else:
            _accumulate(rule, runs, run, update, as_f(value), known)
            valid |= bit
        update += at.UPDATE_WIDTH
    runs[run, at.VALID] = valid


@outlined
def extend_sets(pool: Pool, event: Offered, variable: int, run: int) -> None:
    """Add the values of the event that `run` takes to the sets that grow; there is room for them."""
    rule, runs, nodes = pool.rule, pool.runs, pool.nodes
    all_known = all_are_known(rule, event.fields)
    update = rule[variable + at.VARIABLE_UPDATES]
    while update < rule[variable + at.VARIABLE_UPDATES + at.END]:
        packed = rule[update + at.UPDATE_WORD]
        if packed & 255 == Update.DISTINCT:
            count = at.REGISTER + (packed >> 8 & 255)
            column = (packed >> 24) - 1
            last = runs[run, count + 1]
            is_value = all_known or is_known(rule, event.fields, event.row, column)
            value, is_new = 0, True
            if is_value:
                value = event.fields[at.VALUE + column, event.row]
                is_new = look_up(nodes, last, value, rule[update + at.UPDATE_ARG2] != 0) != at.FOUND
            else:
                node = last - 1
                while node >= 0 and is_new:
                    is_new = nodes[node, at.NODE_VARIABLE] != at.NULL_NODE
                    node = nodes[node, at.NODE_PARENT]
            if is_new:
                node = pool.meta[at.N_NODES]
                nodes[node, at.NODE_PARENT] = last - 1
                nodes[node, at.NODE_EVENT] = value
                nodes[node, at.NODE_VARIABLE] = (
                    at.FIRST_SET - (packed >> 8 & 255) if is_value else at.NULL_NODE
                )
                pool.meta[at.N_NODES] = node + 1
                runs[run, count + 1] = node + 1
                if is_value:
                    runs[run, count] += 1
        update += at.UPDATE_WIDTH


@inlined
def operand(
    rule: I64, events: I64, runs: I64, all_known: bool, run: int, row: int, kind: int, arg: int
) -> tuple[int, int]:
    """Return a value that the code pushes, and 1 if it is NULL.

    Parameters
    ----------
    all_known : bool
        Whether no value of these events is NULL.
    kind : int
        What to push: one of the first codes of `Code`.
    arg : int
        The constant, the column or the register.
    """
    if kind == Code.COLUMN:
        return events[at.VALUE + arg, row], 0 if all_known or is_known(rule, events, row, arg) else 1
    if kind == Code.REGISTER:
        return runs[run, at.REGISTER + arg], 1 - (runs[run, at.VALID] >> arg & 1)
    return arg, 1 if kind == Code.CONST_NULL else 0


@inlined
def evaluate(pool: Pool, events: I64, variable: int, run: int, row: int) -> bool:  # noqa: C901, PLR0912, PLR0915 - a case for each kind
    """Return whether the correlated predicate of `variable` is TRUE for event `row` and the values of `run`.

    The top of the stack is in `value` and `missing` (1: NULL), as in the abstract machine of ZINC (Leroy,
    INRIA report 117, 1990); `i` and `null` hold the operands below it. So comparing a value of the event with
    one of the run touches no other memory.

    Parameters
    ----------
    run : int
        A row of `runs`.
    """
    rule, runs, i, null = pool.rule, pool.runs, pool.stack, pool.null
    all_known = all_are_known(rule, events)
    top, value, missing = -1, 0, 1
    address, last = rule[variable + at.VARIABLE_CODE], rule[variable + at.VARIABLE_CODE + at.END]
    while address < last:
        op, arg = rule[address + at.CODE_OP], rule[address + at.CODE_ARG]
        pushed = op & at.PUSHED
        below, below_missing = value, missing
        if op & at.KEEPS != 0:
            top += 1
            i[top] = value
            null[top] = missing
        if pushed != 0:
            value, missing = operand(rule, events, runs, all_known, run, row, pushed - 1, arg)
            pushed = op >> at.SECOND & at.PUSHED
            if pushed != 0:
                below, below_missing = value, missing
                arg_2 = rule[address + at.CODE_SECOND]
                value, missing = operand(rule, events, runs, all_known, run, row, pushed - 1, arg_2)
        elif op & at.POPS != 0:
            below, below_missing = i[top], null[top]
            top -= 1
        address += at.CODE_WIDTH
        op >>= at.OPERATION
        if op == 0:
            continue
        if op >= Code.EQ_I and op <= Code.LE_F:  # first, because most predicates are comparisons
            missing |= below_missing
            if missing == 0:
                value = _compared(op, below, value)
        elif op < Code.EQ_I:
            if op >= Code.NEG_F or op == Code.I_TO_F or op == Code.NEG_I or op == Code.ABS_I:
                value, missing = _of_one(op, value, missing)
            else:
                missing |= below_missing
                if missing == 0:
                    value, missing = _binary(op, below, value)
        elif op == Code.SELECT:
            if null[top] == 0 and i[top] == 1:
                value, missing = below, below_missing
            top -= 1
        elif op < Code.DATE_PART:
            value, missing = _chosen(op, below, below_missing, value, missing)
        elif op >= Code.IN_SET_I:
            value, missing = _is_in_set(pool, runs[run, at.REGISTER + arg + 1], op, value, missing)
        else:
            if op == Code.POWER_F or op == Code.ATAN2_F or op == Code.DISTANCE_KM:
                missing |= below_missing
                i[top + 1] = below
                i[top + 2] = value
            else:
                i[top + 1] = value
            if op == Code.DISTANCE_KM:
                missing |= null[top] | null[top - 1]
                top -= 2
            if missing == 0:
                missing = compute(op, arg, i, top + 1)
                value = i[top + 1]
    return missing == 0 and value == 1


@inlined
def _of_one(op: int, value: int, missing: int) -> tuple[int, int]:
    """Return the result of a function of one number, and 1 if it is NULL."""
    if op == Code.I_TO_F:
        value = as_i(np.float64(value))
    elif op == Code.NEG_I or op == Code.ABS_I:
        if value == _INT64_MIN:
            missing = 1
        elif op == Code.NEG_I or value < 0:
            value = -value
    elif op == Code.NEG_F:
        value = as_i(-as_f(value))
    elif op == Code.ABS_F:
        value = as_i(abs(as_f(value)))
    elif op == Code.SQRT_F:
        value = as_i(np.sqrt(as_f(value)) if as_f(value) >= 0.0 else np.nan)
    elif missing == 0:
        rounded = np.floor(as_f(value)) if op == Code.FLOOR_F else np.ceil(as_f(value))
        if rounded >= -9.223372036854775808e18 and rounded < 9.223372036854775808e18:
            value = int(rounded)
        else:
            missing = 1
    return value, missing


@inlined
def _is_in_set(pool: Pool, last_node: int, op: int, value: int, missing: int) -> tuple[int, int]:
    """Return 1 if a value is in the set with this last node, else 0; and 1 if this is unknown."""
    if last_node == 0:  # no event was taken: the set is empty, without even NULL
        return 0, 0
    if missing != 0:
        return value, missing
    found = look_up(pool.nodes, last_node, value, op == Code.IN_SET_F)
    return found & 1, found >> 1  # of NOT_FOUND, FOUND and UNKNOWN


@inlined
def _chosen(op: int, below: int, below_missing: int, value: int, missing: int) -> tuple[int, int]:
    """Return the result of a connective, or one of two values, and 1 if it is NULL."""
    if op == Code.IS_NULL:
        return missing, 0
    if op == Code.NOT:
        return 1 - value, missing
    if op == Code.AND or op == Code.OR:
        # FALSE decides an AND and TRUE an OR, whatever the other side is
        strong = 0 if op == Code.AND else 1
        if (missing == 0 and value == strong) or (below_missing == 0 and below == strong):
            return strong, 0
        return 1 - strong, missing | below_missing
    if below_missing == 0 and (
        op == Code.COALESCE
        or missing != 0
        or (op == Code.MIN_OF_I and below <= value)
        or (op == Code.MAX_OF_I and below >= value)
        or (op == Code.MIN_OF_F and not less_f(as_f(value), as_f(below)))
        or (op == Code.MAX_OF_F and not less_f(as_f(below), as_f(value)))
    ):
        return below, below_missing
    return value, missing


@inlined
def _compared(op: int, a: int, b: int) -> int:
    """Return 1 if ``a op b``, else 0."""
    x, y = as_f(a), as_f(b)
    if op == Code.EQ_I:
        return 1 if a == b else 0
    if op == Code.LT_I:
        return 1 if a < b else 0
    if op == Code.LE_I:
        return 1 if a <= b else 0
    if op == Code.EQ_F:
        return 1 if equal_f(x, y) else 0
    if op == Code.LT_F:
        return 1 if less_f(x, y) else 0
    return 0 if less_f(y, x) else 1


@inlined
def _binary(op: int, a: int, b: int) -> tuple[int, int]:
    """Return ``a op b``, and 1 if there is no result (division by zero, overflow), else 0."""
    x, y = as_f(a), as_f(b)
    if op == Code.ADD_F:
        return as_i(x + y), 0
    if op == Code.SUB_F:
        return as_i(x - y), 0
    if op == Code.MUL_F:
        return as_i(x * y), 0
    if op == Code.DIV_F:
        return (0, 1) if y == 0.0 else (as_i(x / y), 0)
    if op == Code.MOD_F:
        return (0, 1) if y == 0.0 else (as_i(np.fmod(x, y)), 0)
    if op == Code.ADD_I:
        total, fits = add_checked(a, b)
        return total, 0 if fits else 1
    if op == Code.SUB_I:
        difference = signed(np.uint64(a) - np.uint64(b))
        return difference, 0 if ((a ^ b) & (a ^ difference)) >= 0 else 1
    if op == Code.MUL_I:
        product = signed(np.uint64(a) * np.uint64(b))
        if (a == -1 and b == _INT64_MIN) or (b == -1 and a == _INT64_MIN):
            return 0, 1
        return product, 1 if b != 0 and b != -1 and product // b != a else 0
    # MOD_I
    if b == 0:
        return 0, 1
    # numba's remainder has the sign of the divisor, SQL's the sign of the dividend. -1 is a special case: the
    # processor traps when the lowest number is divided by it.
    remainder = 0 if b == -1 else a % b
    if remainder != 0 and (a < 0) != (b < 0):
        remainder -= b
    return remainder, 0
