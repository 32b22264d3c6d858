"""The compiled loops: step, close, enumerate. One set of kernels serves every rule: rules are tables.

A key's open runs are a linked list in a pool of arrays, ordered by start and then by preference, as the threads of
Pike's VM (Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009). The order makes selection
trivial: the first run of the list that completes is the match to report. A run that takes nothing costs one test
of its state's predicate bits.

The rejected alternative, a function generated per rule, gains nothing over tables (the bits are computed before) and
costs a tenth of a second of compilation per rule and process.

Kernels hold no Python objects and allocate nothing; arrays for results are arguments. When a pool could overflow,
`run_events` stops *before* the event and says where, the driver makes room and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from cep.program import (
    I32,
    I64,
    U8,
    U64,
    Code,
    Mode,
    RuleTables,
    SelectionCode,
    SkipCode,
    Update,
)

F64 = npt.NDArray[np.float64]
_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile `function` at its first call and keep the machine code on disk. No fastmath: NaN and times are exact."""
    return numba.njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


HELD = -2  # state of a run that is complete and waits for its turn (MATCH ALL with a skip clause)
NONE = -1

# Slots of `Runs.meta`.
FREE, N_FREE, N_OUT, DROPPED, INSTANT, INSTANT_OUT = range(6)
N_META = 6

_STRICT, _NEXT, _ANY = int(Mode.STRICT), int(Mode.NEXT), int(Mode.ANY)
_ALL = int(SelectionCode.ALL)
_NO_SKIP, _PAST_LAST, _TO_NEXT = int(SkipCode.NO_SKIP), int(SkipCode.PAST_LAST), int(SkipCode.TO_NEXT)
_POISON = np.int64(1)  # content of a NULL register whose sum overflowed: it stays NULL
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


class Options(NamedTuple):
    """What the kernels need of a rule besides its tables."""

    span_us: int  # -1: no window
    close_us: int
    selection: int
    skip: int
    skip_register: int
    max_runs: int
    zero_valid: np.uint64  # registers that start at zero instead of NULL


class Events(NamedTuple):
    """n events ordered by key, time and tie breakers. Floats are stored by their bits."""

    time_us: I64  # (n,)
    slot: I32  # (n,) of the key
    bits: U64  # (n,) local predicates of the rule's word
    identity: U64  # (n,) for match ids
    values: I64  # (n_columns, n)
    values_f: F64  # the same memory
    valid: U8  # (n_columns, n) 0: NULL


class Runs(NamedTuple):
    """Open runs of one rule, all keys: a pool of `capacity` runs and one more row for trying a take."""

    next: I32  # (capacity + 1,) the list a run is in; NONE: last
    state: I32
    start_us: I64
    start_pos: I64  # sequence number of the first event
    last_pos: I64  # of the last event taken
    chain: U64  # hash of (variable, event) so far
    valid: U64  # bit r: register r is not NULL
    end_us: I64  # of a HELD run
    instant: I64  # number of the instant at which a HELD run completed
    registers: I64  # (capacity + 1, n_registers)
    registers_f: F64  # the same memory
    head: I32  # (n_slots,) first run of the key
    n_runs: I32  # (n_slots,) runs of the key
    meta: I64  # (N_META,)


class Matches(NamedTuple):
    """Room for matches; `meta[N_OUT]` of the runs counts them."""

    slot: I32
    start_us: I64
    end_us: I64
    chain: U64
    valid: U64
    registers: I64  # (capacity, n_registers)


class Stack(NamedTuple):
    """Operand stack of the bytecode; `i` and `f` are the same memory."""

    i: I64
    f: F64
    null: U8


@kernel
def mix(value: np.uint64) -> np.uint64:
    """Return the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of `value`."""
    value = (value ^ (value >> _S30)) * _MIX_A
    value = (value ^ (value >> _S27)) * _MIX_B
    return value ^ (value >> _S31)


@kernel
def less_f(a: float, b: float) -> bool:
    """Spark's order of doubles: NaN is the greatest."""
    if np.isnan(a):
        return False
    return np.isnan(b) or a < b


@kernel
def equal_f(a: float, b: float) -> bool:
    """Spark's equality of doubles: NaN equals NaN."""
    return a == b or (np.isnan(a) and np.isnan(b))


# ---------------------------------------------------------------- registers


@kernel
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """Return the 64-bit sum and whether it fits."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) >= 0


@kernel
def update_registers(
    tables: RuleTables, events: Events, runs: Runs, variable: int, run: int, row: int, position: int
) -> None:
    """Take event `row` as `variable`: bring the registers of `run` up to date."""
    valid = runs.valid[run]
    registers, registers_f = runs.registers[run], runs.registers_f[run]
    for step in range(tables.update_ptr[variable], tables.update_ptr[variable + 1]):
        op = tables.update_op[step]
        register = tables.update_register[step]
        column = tables.update_column[step]
        arg = tables.update_arg[step]
        bit = _ONE << np.uint64(register)
        known = (valid & bit) != _ZERO
        is_value = column < 0 or events.valid[column, row] != 0
        value = np.int64(0)
        if column >= 0:
            value = events.values[column, row]
        if op == Update.LAST or (op == Update.FIRST and registers[arg] == tables.update_arg2[step]):
            registers[register] = value
            valid = valid | bit if is_value else valid & ~bit
        elif op == Update.SHIFT:
            registers[register] = registers[arg]
            source = (valid >> np.uint64(arg)) & _ONE
            valid = (valid & ~bit) | (source << np.uint64(register))
        elif op == Update.COUNT or (op == Update.COUNT_VALUE and is_value):
            registers[register] += 1
        elif op == Update.POSITION or (op == Update.POSITION_FIRST and registers[arg] == 0):
            registers[register] = position
            valid |= bit
        elif op == Update.FIRST or op == Update.POSITION_FIRST or not is_value:
            pass
        elif op == Update.SUM_I:
            if known:
                total, fits = add_checked(registers[register], value)
                registers[register] = total
                if not fits:
                    valid &= ~bit
                    registers[register] = _POISON
            elif registers[register] != _POISON:
                registers[register] = value
                valid |= bit
        elif op == Update.MIN_I or op == Update.MAX_I:
            held = registers[register]
            if not known or (value < held if op == Update.MIN_I else value > held):
                registers[register] = value
            valid |= bit
        else:
            number = events.values_f[column, row]
            if not known:
                registers_f[register] = 0.0 if op == Update.SQUARES_F else number
            elif op == Update.SUM_F:
                registers_f[register] += number
            elif op == Update.MIN_F:
                if less_f(number, registers_f[register]):
                    registers_f[register] = number
            elif op == Update.MAX_F:
                if less_f(registers_f[register], number):
                    registers_f[register] = number
            elif op == Update.MEAN_F:
                registers_f[register] += (number - registers_f[register]) / registers[arg]
            elif op == Update.SQUARES_F:
                mean = registers_f[tables.update_arg2[step]]
                registers_f[register] += (number - mean) * (
                    number - (mean + (number - mean) / registers[arg])
                )
            valid |= bit
    runs.valid[run] = valid


# ---------------------------------------------------------------- bytecode


@kernel
def evaluate(
    tables: RuleTables, events: Events, runs: Runs, stack: Stack, variable: int, run: int, row: int
) -> bool:
    """Return whether the correlated predicate of `variable` is TRUE for event `row` and the registers of `run`."""
    i, f, null = stack.i, stack.f, stack.null
    top = -1
    for at in range(tables.code_ptr[variable], tables.code_ptr[variable + 1]):
        op = tables.code_op[at]
        arg = tables.code_arg[at]
        if op <= Code.REGISTER:
            top += 1
            null[top] = 0
            if op == Code.COLUMN:
                i[top] = events.values[arg, row]
                null[top] = 1 - events.valid[arg, row]
            elif op == Code.REGISTER:
                i[top] = runs.registers[run, arg]
                null[top] = 0 if (runs.valid[run] >> np.uint64(arg)) & _ONE else 1
            elif op == Code.CONST_NULL:
                null[top] = 1
            else:
                i[top] = arg
        elif op == Code.IS_NULL:
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
            if i[top] == np.iinfo(np.int64).min:
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
        else:
            top -= 1
            null[top] |= null[top + 1]
            if null[top] == 0:
                null[top] = _binary(op, i, f, top)
    return null[0] == 0 and i[0] == 1


@kernel
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
        difference = a - b
        i[top] = difference
        return 0 if ((a ^ b) & (a ^ difference)) >= 0 else 1
    elif op == Code.MUL_I:
        product = a * b
        i[top] = product
        if (a == -1 and b == np.iinfo(np.int64).min) or (b == -1 and a == np.iinfo(np.int64).min):
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


# ---------------------------------------------------------------- pool and lists


@kernel
def allocate(runs: Runs) -> int:
    """Take a run from the free list; the caller made sure there is one."""
    run = runs.meta[FREE]
    runs.meta[FREE] = runs.next[run]
    runs.meta[N_FREE] -= 1
    return run


@kernel
def release(runs: Runs, run: int) -> None:
    """Give a run back to the free list."""
    runs.next[run] = runs.meta[FREE]
    runs.meta[FREE] = run
    runs.meta[N_FREE] += 1


@kernel
def copy_run(runs: Runs, source: int, target: int) -> None:
    """Copy what a run holds, but not its place in a list nor its state."""
    runs.start_us[target] = runs.start_us[source]
    runs.start_pos[target] = runs.start_pos[source]
    runs.last_pos[target] = runs.last_pos[source]
    runs.chain[target] = runs.chain[source]
    runs.valid[target] = runs.valid[source]
    for register in range(runs.registers.shape[1]):
        runs.registers[target, register] = runs.registers[source, register]


@kernel
def insert_after(runs: Runs, slot: int, previous: int, run: int) -> None:
    """Put `run` behind `previous` in the key's list; NONE: at its head."""
    if previous == NONE:
        runs.next[run] = runs.head[slot]
        runs.head[slot] = run
    else:
        runs.next[run] = runs.next[previous]
        runs.next[previous] = run
    runs.n_runs[slot] += 1


@kernel
def remove_after(runs: Runs, slot: int, previous: int) -> None:
    """Take the run behind `previous` (NONE: the head) out of the list and free it."""
    if previous == NONE:
        run = runs.head[slot]
        runs.head[slot] = runs.next[run]
    else:
        run = runs.next[previous]
        runs.next[previous] = runs.next[run]
    runs.n_runs[slot] -= 1
    release(runs, run)


@kernel
def prune(runs: Runs, slot: int, floor: int) -> None:
    """Drop the runs of a key that start before position `floor`; lists are ordered by start."""
    while runs.head[slot] != NONE and runs.start_pos[runs.head[slot]] < floor:
        remove_after(runs, slot, NONE)


# ---------------------------------------------------------------- completion


@kernel
def emit(runs: Runs, matches: Matches, slot: int, run: int, end_us: int) -> None:
    """Write a match from the registers of `run`, unless this instant already reported the same events."""
    n_out = runs.meta[N_OUT]
    for other in range(runs.meta[INSTANT_OUT], n_out):
        if (
            matches.chain[other] == runs.chain[run]
            and matches.start_us[other] == runs.start_us[run]
            and matches.slot[other] == slot
        ):
            return
    matches.slot[n_out] = slot
    matches.start_us[n_out] = runs.start_us[run]
    matches.end_us[n_out] = end_us
    matches.chain[n_out] = runs.chain[run]
    matches.valid[n_out] = runs.valid[run]
    for register in range(runs.registers.shape[1]):
        matches.registers[n_out, register] = runs.registers[run, register]
    runs.meta[N_OUT] = n_out + 1


@kernel
def skip_target(options: Options, runs: Runs, run: int) -> int:
    """Return the position at which matching resumes after the match of `run`; NONE: nothing is skipped."""
    if options.skip == _NO_SKIP:
        return NONE
    if options.skip == _PAST_LAST:
        return runs.last_pos[run] + 1
    if options.skip == _TO_NEXT:
        return runs.start_pos[run] + 1
    if (runs.valid[run] >> np.uint64(options.skip_register)) & _ONE == _ZERO:
        return NONE if options.selection == _ALL else runs.start_pos[run] + 1
    target = runs.registers[run, options.skip_register]
    if options.selection == _ALL:
        return target
    return max(target, runs.start_pos[run] + 1)


@kernel
def hold(runs: Runs, slot: int, previous: int, run: int, end_us: int) -> int:
    """Keep the match of `run` in the key's list until its turn; return the run it is kept in, or NONE if known."""
    other = runs.head[slot]
    while other != NONE:
        if (
            runs.state[other] == HELD
            and runs.instant[other] == runs.meta[INSTANT]
            and runs.start_pos[other] == runs.start_pos[run]
            and runs.chain[other] == runs.chain[run]
        ):
            return NONE
        other = runs.next[other]
    kept = allocate(runs)
    copy_run(runs, run, kept)
    runs.state[kept] = HELD
    runs.end_us[kept] = end_us
    runs.instant[kept] = runs.meta[INSTANT]
    insert_after(runs, slot, previous, kept)
    return kept


@kernel
def release_held(options: Options, runs: Runs, matches: Matches, slot: int) -> None:
    """Report held matches in order of start while no open run started earlier (Flink's order for skips)."""
    while runs.head[slot] != NONE:
        start = runs.start_pos[runs.head[slot]]
        best, before_best = NONE, NONE
        previous, run = NONE, runs.head[slot]
        while run != NONE and runs.start_pos[run] == start:
            if runs.state[run] == HELD and (best == NONE or runs.instant[run] < runs.instant[best]):
                best, before_best = run, previous
            previous, run = run, runs.next[run]
        if best == NONE:
            return
        emit(runs, matches, slot, best, runs.end_us[best])
        floor = skip_target(options, runs, best)
        remove_after(runs, slot, before_best)
        prune(runs, slot, floor)


# ---------------------------------------------------------------- one event


@kernel
def try_take(
    tables: RuleTables,
    options: Options,
    events: Events,
    runs: Runs,
    stack: Stack,
    variable: int,
    run: int,
    row: int,
    position: int,
    only_test: bool,
) -> bool:
    """Say whether `run` (NONE: a new one) can take event `row` as `variable`; the result is in the spare run.

    With `only_test` the spare run is filled only as far as the answer needs it.
    """
    mask = tables.variable_mask[variable]
    if mask != _ZERO and events.bits[row] & mask == _ZERO:
        return False
    is_correlated = tables.code_ptr[variable] < tables.code_ptr[variable + 1]
    if only_test and not is_correlated:
        return True
    spare = runs.next.shape[0] - 1
    if run == NONE:
        runs.start_us[spare] = events.time_us[row]
        runs.start_pos[spare] = position
        runs.chain[spare] = _ZERO
        runs.valid[spare] = options.zero_valid
        for register in range(runs.registers.shape[1]):
            runs.registers[spare, register] = 0
    else:
        copy_run(runs, run, spare)
    runs.last_pos[spare] = position
    update_registers(tables, events, runs, variable, spare, row, position)
    if is_correlated and not evaluate(tables, events, runs, stack, variable, spare, row):
        return False
    runs.chain[spare] = mix(
        mix(runs.chain[spare] + _GOLDEN ^ tables.variable_hash[variable]) ^ events.identity[row]
    )
    return True


@kernel
def holds_any(
    tables: RuleTables,
    options: Options,
    events: Events,
    runs: Runs,
    stack: Stack,
    variables: I32,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether the event could be taken as one of ``variables[first:last]``."""
    for at in range(first, last):
        if try_take(tables, options, events, runs, stack, variables[at], run, row, position, True):
            return True
    return False


@kernel
def complete(
    options: Options,
    runs: Runs,
    matches: Matches,
    slot: int,
    previous: int,
    run: int,
    end_us: int,
    reported: int,
    floor: int,
) -> tuple[int, int, int]:
    """`run` is a match. Return the new (previous, reported, floor).

    `reported` is the start of the last match of this instant: MATCH EARLIEST reports one per start. `floor` is
    the position before which no run may start any more.
    """
    if options.selection == _ALL:
        if options.skip == _NO_SKIP:
            emit(runs, matches, slot, run, end_us)
        else:
            kept = hold(runs, slot, previous, run, end_us)
            if kept != NONE:
                previous = kept
        return previous, reported, floor
    start = runs.start_pos[run]
    if start != reported and start >= floor:
        emit(runs, matches, slot, run, end_us)
        reported = start
        floor = max(floor, skip_target(options, runs, run))
    return previous, reported, floor


@kernel
def spread(
    tables: RuleTables,
    options: Options,
    runs: Runs,
    matches: Matches,
    slot: int,
    previous: int,
    after: int,
    time_us: int,
    reported: int,
    floor: int,
) -> tuple[int, int, int]:
    """Give the spare run's take its successors, behind `previous`, in order of preference."""
    spare = runs.next.shape[0] - 1
    for at in range(tables.after_ptr[after], tables.after_ptr[after + 1]):
        state = tables.after_state[at]
        if state == NONE:  # ACCEPT
            previous, reported, floor = complete(
                options, runs, matches, slot, previous, spare, time_us, reported, floor
            )
        else:
            run = allocate(runs)
            copy_run(runs, spare, run)
            runs.state[run] = state
            insert_after(runs, slot, previous, run)
            previous = run
    return previous, reported, floor


@kernel
def step(
    tables: RuleTables,
    options: Options,
    events: Events,
    runs: Runs,
    matches: Matches,
    stack: Stack,
    slot: int,
    row: int,
    position: int,
) -> None:
    """Offer event `row` to every run of its key, in order, then let it begin new ones."""
    bits, time_us = events.bits[row], events.time_us[row]
    runs.meta[INSTANT] += 1
    runs.meta[INSTANT_OUT] = runs.meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, runs.head[slot]
    while run != NONE:
        following = runs.next[run]
        state = runs.state[run]
        if state == HELD or (
            tables.state_always[state] == 0 and bits & tables.state_interest[state] == _ZERO
        ):
            previous, run = run, following
            continue
        if runs.start_pos[run] < floor:
            remove_after(runs, slot, previous)
            run = following
            continue
        mode = tables.state_mode[state]
        stays = not holds_any(
            tables, options, events, runs, stack, tables.guard_variable,
            tables.guard_ptr[state], tables.guard_ptr[state + 1], run, row, position,
        )  # fmt: skip
        if stays:
            for take in range(tables.take_ptr[state], tables.take_ptr[state + 1]):
                variable = tables.take_variable[take]
                if try_take(tables, options, events, runs, stack, variable, run, row, position, False):
                    stays = stays and mode == _ANY
                    previous, reported, floor = spread(
                        tables, options, runs, matches, slot, previous,
                        tables.take_after[take], time_us, reported, floor,
                    )  # fmt: skip
        if mode == _STRICT:
            stays = False
        if stays and mode == _NEXT:
            stays = not holds_any(
                tables, options, events, runs, stack, tables.begin_variable,
                tables.begin_ptr[state], tables.begin_ptr[state + 1], run, row, position,
            )  # fmt: skip
        if stays:
            stays = not holds_any(
                tables, options, events, runs, stack, tables.bar_variable,
                tables.bar_ptr[state], tables.bar_ptr[state + 1], run, row, position,
            )  # fmt: skip
        if stays and tables.state_after_skip[state] == NONE:  # a trailing "not next" was decided
            previous, reported, floor = complete(
                options, runs, matches, slot, previous, run, time_us, reported, floor
            )
            stays = False
        if stays:
            runs.state[run] = tables.state_next[state]
            previous = run
        else:
            remove_after(runs, slot, previous)
        run = following

    if position >= floor:
        for take in range(tables.take_ptr[0], tables.take_ptr[1]):
            variable = tables.take_variable[take]
            if try_take(tables, options, events, runs, stack, variable, NONE, row, position, False):
                previous, reported, floor = spread(
                    tables, options, runs, matches, slot, previous,
                    tables.take_after[take], time_us, reported, floor,
                )  # fmt: skip
    prune(runs, slot, floor)
    if options.selection == _ALL and options.skip != _NO_SKIP:
        release_held(options, runs, matches, slot)
    while runs.n_runs[slot] > options.max_runs:
        runs.meta[DROPPED] += 1
        remove_after(runs, slot, NONE)


@kernel
def close(
    tables: RuleTables, options: Options, runs: Runs, matches: Matches, slot: int, bound_us: int
) -> None:
    """End the runs of a key whose window closed at or before `bound_us`; some of them are matches then."""
    runs.meta[INSTANT] += 1
    runs.meta[INSTANT_OUT] = runs.meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, runs.head[slot]
    while run != NONE and (runs.state[run] == HELD or runs.start_us[run] <= bound_us - options.span_us):
        following = runs.next[run]
        if runs.state[run] == HELD:
            previous, run = run, following
            continue
        if runs.start_pos[run] >= floor and tables.state_closes[runs.state[run]] != 0:
            previous, reported, floor = complete(
                options, runs, matches, slot, previous, run,
                runs.start_us[run] + options.close_us, reported, floor,
            )  # fmt: skip
        remove_after(runs, slot, previous)
        run = following
    prune(runs, slot, floor)
    if options.selection == _ALL and options.skip != _NO_SKIP:
        release_held(options, runs, matches, slot)


# ---------------------------------------------------------------- drivers of the loops


@kernel
def has_room(runs: Runs, matches: Matches, slot: int, fan_out: int) -> bool:
    """Say whether one event of the key can neither overflow the pool nor the matches."""
    needed = (runs.n_runs[slot] + 1) * (fan_out + 1)
    return (
        runs.meta[N_FREE] >= needed and matches.slot.shape[0] - runs.meta[N_OUT] >= needed + runs.n_runs[slot]
    )


@kernel
def run_events(
    tables: RuleTables,
    options: Options,
    events: Events,
    runs: Runs,
    matches: Matches,
    stack: Stack,
    rows: I64,
    first: int,
    base: int,
    fan_out: int,
) -> int:
    """Offer ``rows[first:]`` to the rule; return the index at which room is needed, or ``len(rows)``.

    `base` + row is an event's position: it only grows, over all calls. `fan_out` is the largest number of
    successors that one run can get from one event.
    """
    for index in range(first, rows.shape[0]):
        row = rows[index]
        slot = events.slot[row]
        if not has_room(runs, matches, slot, fan_out):
            return index
        head = runs.head[slot]
        if options.span_us >= 0 and head != NONE:
            # A HELD head hides the ages behind it: look.
            if runs.state[head] == HELD or runs.start_us[head] < events.time_us[row] - options.span_us:
                close(tables, options, runs, matches, slot, events.time_us[row] - 1)
        step(tables, options, events, runs, matches, stack, slot, row, base + row)
    return rows.shape[0]


@kernel
def close_all(
    tables: RuleTables, options: Options, runs: Runs, matches: Matches, first: int, bound_us: int
) -> int:
    """Close windows up to `bound_us` for all keys from slot `first`; return where room is needed, or n_slots."""
    for slot in range(first, runs.head.shape[0]):
        if runs.head[slot] == NONE:
            continue
        if not has_room(runs, matches, slot, 1):
            return slot
        close(tables, options, runs, matches, slot, bound_us)
    return runs.head.shape[0]


@kernel
def earliest_close(runs: Runs, span_us: int) -> int:
    """Return the first time at which the window of an open run closes; the largest int64: never."""
    earliest = np.iinfo(np.int64).max
    for slot in range(runs.head.shape[0]):
        run = runs.head[slot]
        while run != NONE and runs.state[run] == HELD:
            run = runs.next[run]
        if run != NONE:
            earliest = min(earliest, runs.start_us[run] + span_us)
    return earliest


@kernel
def list_runs(runs: Runs, order: I64) -> int:
    """Write the runs of all keys to `order`, key by key, each list in its order; return how many there are."""
    n = 0
    for slot in range(runs.head.shape[0]):
        run = runs.head[slot]
        while run != NONE:
            order[n] = run
            n += 1
            run = runs.next[run]
    return n


@kernel
def link_runs(runs: Runs, n_runs: int) -> None:
    """Make lists of the first `n_runs` rows by `runs.n_runs`, and a free list of the rest."""
    row = 0
    for slot in range(runs.head.shape[0]):
        runs.head[slot] = row if runs.n_runs[slot] > 0 else NONE
        for left in range(runs.n_runs[slot], 0, -1):
            runs.next[row] = row + 1 if left > 1 else NONE
            row += 1
    capacity = runs.next.shape[0] - 1
    runs.meta[FREE] = NONE
    runs.meta[N_FREE] = 0
    for free in range(capacity - 1, n_runs - 1, -1):
        release(runs, free)


# ---------------------------------------------------------------- order and identity


@kernel
def count_keys(codes: I32, starts: I64) -> None:
    """Count each code: ``starts[c + 1]`` is the number of events of key c, summed up to a row pointer."""
    for code in codes:
        starts[code + 1] += 1
    for code in range(starts.shape[0] - 1):
        starts[code + 1] += starts[code]


@kernel
def group_by_key(codes: I32, order: I64, starts: I64, grouped: I64) -> None:
    """Counting sort of `order` by key code, stable. `starts` (row pointer) is moved along."""
    for row in order:
        code = codes[row]
        grouped[starts[code]] = row
        starts[code] += 1


@kernel
def hash_bytes(offsets: I32, data: U8, valid: U8, seeds: U64) -> None:
    """Mix every string of an Arrow array into ``seeds`` (FNV-1a over the bytes, Fowler, Noll and Vo, then mixed)."""
    for row in range(seeds.shape[0]):
        value = np.uint64(0xCBF29CE484222325)
        if valid[row]:
            for at in range(offsets[row], offsets[row + 1]):
                value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
            value = mix(value ^ np.uint64(offsets[row + 1] - offsets[row]))
        else:
            value = _ZERO
        seeds[row] = mix(seeds[row] + _GOLDEN) ^ value


@kernel
def hash_values(values: I64, valid: U8, seeds: U64) -> None:
    """Mix 64-bit values into ``seeds``; NULL differs from every value."""
    for row in range(seeds.shape[0]):
        value = mix(np.uint64(values[row]) + _GOLDEN) | _ONE if valid[row] else _ZERO
        seeds[row] = mix(seeds[row] + _GOLDEN) ^ value
