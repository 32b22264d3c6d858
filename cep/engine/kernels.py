"""The compiled loops: step, close, enumerate. One set of kernels serves every rule: rules are tables.

A key's open runs are a linked list in a pool, ordered by start and then by preference, as the threads of
Pike's VM (Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009). The order makes
selection trivial: the first run of the list that completes is the match to report. A run that takes
nothing costs one test of its state's predicate bits.

Arguments are few plain matrices of int64: a run is a row of `runs` (column-major: an array per field), an
event a row of `events`, a rule one packed array. Tuples of many small arrays read better, but each access to
a member counts references and each call copies the tuple: measured 5 to 8 times slower. Floats are stored by
their bits; ``x_f`` is the same memory seen as float64.

The other rejected way, a function generated per rule, gains nothing over tables (predicates are bits,
computed before) and costs a tenth of a second of compilation per rule and process.

Kernels hold no Python objects and allocate nothing. When a pool could overflow, `run_events` stops *before*
the event and says where; the driver makes room and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from cep.engine.function_kernels import compute
from cep.program import (
    I32,
    I64,
    U8,
    U64,
    Code,
    Mode,
    OverflowCode,
    RuleTables,
    SelectionCode,
    SkipCode,
    Update,
)

F64 = npt.NDArray[np.float64]
_F = TypeVar("_F", bound=Callable[..., Any])


KERNELS: dict[str, Any] = {}
"""The kernels of all modules, by name."""


def _source_stamp() -> tuple[tuple[str, float, int], ...]:
    """Return what changes when a source of any kernel does: parts and numbers come from several files."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parent / "program.py"]
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files if file.exists())


_STAMP = _source_stamp()


def kernel(function: _F) -> _F:
    """Compile a loop that Python calls, at its first call; the machine code is kept on disk.

    No fastmath: NaN and times are exact. numba looks only at the file a kernel stands in to see whether the
    code on disk is still good; with the layout of another file's changed it would run on wrong memory.
    """
    compiled: Any = numba.njit(cache=True, nogil=True)(function)
    if hasattr(compiled, "_cache"):  # without the compiler it is the function itself
        compiled._cache._cache_file._source_stamp = _STAMP
    KERNELS[function.__name__] = compiled
    return compiled


def part(function: _F) -> _F:
    """Compile a part of a kernel into its callers."""
    return numba.njit(nogil=True, forceinline=True)(function)  # type: ignore[return-value]


def apart(function: _F) -> _F:
    """Compile a part of a kernel that is called, not inlined: what happens seldom keeps the loops small."""
    return numba.njit(nogil=True)(function)  # type: ignore[return-value]


NONE = -1
HELD = -2
"""State of a run that is complete and waits for its turn (MATCH PREFERRED, MATCH ALL with a skip clause)."""

# Columns of `runs`. A run's registers follow from REGISTER on.
NEXT, STATE = 0, 1  # the list a run is in
START_US, START_POS = 2, 3  # of its first event; a position is a sequence number
LAST_POS = 4  # of the last event it took
CHAIN = 5  # hash of (variable, event) so far
VALID = 6  # bit r: register r is not NULL
END_US, AT_INSTANT = (
    7,
    8,
)  # of a HELD run: its match_end, and the instant at which it completed; of a note: its end
REGISTER = 9

# A run's clocks, from column ``rule[CLOCK]`` on (`cep.engine.clocks`): the wait ends after the last event of
# time WAIT_US and after the key's event number WAIT_EVENT; the event taken last was of LAST_US; what follows
# it, or the timed absence behind it, began at MOMENT_US; the first event had number START_EVENT. Then for
# each group the time or the number of its first event.
WAIT_US, WAIT_EVENT, LAST_US, MOMENT_US, START_EVENT, GROUP_CLOCK = range(6)

# Columns of `keys`: a key's list of runs and its length. For a rule with clocks also: no wait ends before
# EARLIEST_US; how many events there were; then, from MEMORY on, time and number of remembered events.
HEAD, N_RUNS = 0, 1
EARLIEST_US, N_EVENTS = 2, 3
MEMORY = 4

# Places in `meta`.
FREE, N_FREE, N_OUT, DROPPED, INSTANT, INSTANT_OUT = range(6)
OVERFLOWED = 6  # 1 + slot of a key that had too many runs under ON OVERFLOW FAIL; 0: none
N_NODES = 7
NOTED = 8  # 1 + the first of the notes of this instant (`note`); 0: there are none
N_META = 9

# Columns of `nodes`: events that runs have taken (`cep.engine.list_kernels`).
NODE_PARENT, NODE_EVENT, NODE_VARIABLE = range(3)
NODE_WIDTH = 3

# Columns of `events`. The values of `Program.columns` follow from VALUE on, then words of bits that say
# which of them are not NULL.
TIME_US, SLOT, IDENTITY = 0, 1, 2
VALUE = 3

# Columns of `matches`. Registers follow from MATCH_REGISTER on.
MATCH_SLOT, MATCH_START, MATCH_END, MATCH_CHAIN, MATCH_VALID = range(5)
MATCH_TIMED_OUT = 5  # 1: a timeout; 0: a match
MATCH_REGISTER = 6

# Places in a packed rule (`pack_rule`): scalars, then where each table begins.
SPAN_US, CLOSE_US, SELECTION, SKIP, SKIP_REGISTER, MAX_RUNS, ZERO_VALID, N_VALUES = range(8)
OVERFLOW, TIMEOUTS = 8, 9
SPAN_EVENTS, CLOCK, HAS_FENCES = 10, 11, 12
NODE_REGISTER = 13  # holds a run's last node; NONE: the rule does not report events
N_SCALARS = 14
(
    STATE_MODE,
    STATE_INTEREST,
    STATE_ALWAYS,
    STATE_NEXT,
    STATE_CLOSES,
    STATE_AFTER_SKIP,
    TAKE_PTR,
    TAKE_VARIABLE,
    TAKE_AFTER,
    BEGIN_PTR,
    BEGIN_VARIABLE,
    BAR_PTR,
    BAR_VARIABLE,
    GUARD_PTR,
    GUARD_VARIABLE,
    LIFT_PTR,
    LIFT_VARIABLE,
    LIFT_STATE,
    STATE_FENCE_PTR,
    TAKE_FENCE_PTR,
    FENCE_VARIABLE,
    FENCE_UNTIL,
    AFTER_PTR,
    AFTER_STATE,
    VARIABLE_MASK,
    VARIABLE_HASH,
    VARIABLE_AFTER_TAKE,
    CODE_PTR,
    CODE_OP,
    CODE_ARG,
    UPDATE_PTR,
    UPDATE_OP,
    UPDATE_REGISTER,
    UPDATE_COLUMN,
    UPDATE_ARG,
    UPDATE_ARG2,
    STATE_LOW,
    STATE_HIGH,
    STATE_TIMER,
    STATE_TIMER_LENGTH,
    STATE_TIMER_AFTER,
    STATE_LIMIT,
    LIMIT_PTR,
    LIMIT_GROUP,
    OPEN_PTR,
    OPEN_GROUP,
    LOOK_PTR,
    LOOK_MEMORY,
    LOOK_US,
    LOOK_EVENTS,
    GROUP_US,
    GROUP_EVENTS,
    GROUP_LIMIT,
    MEMORY_VARIABLE,
) = range(N_SCALARS, N_SCALARS + 54)
N_HEADER = N_SCALARS + 54

_STRICT, _NEXT, _ANY = int(Mode.STRICT), int(Mode.NEXT), int(Mode.ANY)
_ALL, _PREFERRED = int(SelectionCode.ALL), int(SelectionCode.PREFERRED)
_NO_SKIP, _PAST_LAST, _TO_NEXT = int(SkipCode.NO_SKIP), int(SkipCode.PAST_LAST), int(SkipCode.TO_NEXT)
_DROP_OLDEST, _FAIL = int(OverflowCode.DROP_OLDEST), int(OverflowCode.FAIL)
_POISON = 1  # content of a NULL register whose sum overflowed: it stays NULL
_INT64_MIN = np.iinfo(np.int64).min
_INT64_MAX = np.iinfo(np.int64).max
NEVER = _INT64_MAX
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE, _ZERO = np.uint64(1), np.uint64(0)


def pack_rule(scalars: dict[int, int], tables: RuleTables, n_values: int) -> I64:
    """Return a rule as one array: `scalars` by place, the places of the tables, the tables.

    `n_values` is the number of columns in `Program.columns`. Unsigned words keep their bits.
    """
    header = np.zeros(N_HEADER, np.int64)
    for place, scalar in scalars.items():
        header[place] = scalar
    header[N_VALUES] = n_values
    header[HAS_FENCES] = len(tables.fence_variable) > 0
    arrays = [
        table.astype(np.uint64).view(np.int64) if table.dtype == np.uint64 else table for table in tables
    ]
    header[N_SCALARS:] = N_HEADER + np.concatenate(([0], np.cumsum([len(table) for table in arrays])[:-1]))
    return np.concatenate((header, *(table.astype(np.int64) for table in arrays)))


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
    value = mix((np.uint64(chain) + _GOLDEN) ^ np.uint64(variable_hash))
    return np.int64(mix(value ^ np.uint64(identity)))  # type: ignore[return-value]


# ---------------------------------------------------------------- registers


@part
def is_known(rule: I64, events: I64, row: int, column: int) -> bool:
    """Say whether the value of an event is not NULL."""
    return events[row, VALUE + rule[N_VALUES] + (column >> 6)] >> (column & 63) & 1 != 0


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
            value = events[row, VALUE + column]
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
            number = events_f[row, VALUE + column]
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


# ---------------------------------------------------------------- bytecode


@part
def evaluate(
    rule: I64, events: I64, runs: I64, i: I64, f: F64, null: U8, variable: int, run: int, row: int
) -> bool:
    """Return whether the correlated predicate of `variable` is TRUE for event `row` and what `run` holds."""
    top = -1
    for at in range(rule[rule[CODE_PTR] + variable], rule[rule[CODE_PTR] + variable + 1]):
        op = rule[rule[CODE_OP] + at]
        arg = rule[rule[CODE_ARG] + at]
        if op <= Code.REGISTER:
            top += 1
            null[top] = 0
            if op == Code.COLUMN:
                i[top] = events[row, VALUE + arg]
                null[top] = 0 if is_known(rule, events, row, arg) else 1
            elif op == Code.REGISTER:
                i[top] = runs[run, REGISTER + arg]
                null[top] = 1 - (runs[run, VALID] >> arg & 1)
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


# ---------------------------------------------------------------- pool and lists


@part
def allocate(runs: I64, meta: I64) -> int:
    """Take a run from the free list; the caller made sure there is one."""
    run = meta[FREE]
    meta[FREE] = runs[run, NEXT]
    meta[N_FREE] -= 1
    return run


@part
def release(runs: I64, meta: I64, run: int) -> None:
    """Give a run back to the free list."""
    runs[run, NEXT] = meta[FREE]
    meta[FREE] = run
    meta[N_FREE] += 1


@part
def copy_run(runs: I64, source: int, target: int) -> None:
    """Copy what a run holds, but not its place in a list nor its state."""
    runs[target, START_US] = runs[source, START_US]
    runs[target, START_POS] = runs[source, START_POS]
    runs[target, LAST_POS] = runs[source, LAST_POS]
    runs[target, CHAIN] = runs[source, CHAIN]
    runs[target, VALID] = runs[source, VALID]
    for register in range(runs.shape[1] - REGISTER):
        runs[target, REGISTER + register] = runs[source, REGISTER + register]


@part
def insert_after(runs: I64, keys: I64, slot: int, previous: int, run: int) -> None:
    """Put `run` behind `previous` in the key's list; NONE: at its head."""
    if previous == NONE:
        runs[run, NEXT] = keys[slot, HEAD]
        keys[slot, HEAD] = run
    else:
        runs[run, NEXT] = runs[previous, NEXT]
        runs[previous, NEXT] = run
    keys[slot, N_RUNS] += 1


@part
def remove_after(runs: I64, keys: I64, meta: I64, slot: int, previous: int) -> None:
    """Take the run behind `previous` (NONE: the head) out of the list and free it."""
    if previous == NONE:
        run = keys[slot, HEAD]
        keys[slot, HEAD] = runs[run, NEXT]
    else:
        run = runs[previous, NEXT]
        runs[previous, NEXT] = runs[run, NEXT]
    keys[slot, N_RUNS] -= 1
    release(runs, meta, run)


@part
def prune(runs: I64, keys: I64, meta: I64, slot: int, floor: int) -> None:
    """Drop the runs of a key that start before position `floor`; lists are ordered by start."""
    while keys[slot, HEAD] != NONE and runs[keys[slot, HEAD], START_POS] < floor:
        remove_after(runs, keys, meta, slot, NONE)


# ---------------------------------------------------------------- completion


@part
def is_reported(runs: I64, meta: I64, matches: I64, slot: int, run: int) -> bool:
    """Say whether this instant already reported a match of the same events. (Of held ones, `hold` knows.)"""
    for other in range(meta[INSTANT_OUT], meta[N_OUT]):
        if (
            matches[other, MATCH_CHAIN] == runs[run, CHAIN]
            and matches[other, MATCH_START] == runs[run, START_US]
            and matches[other, MATCH_SLOT] == slot
        ):
            return True
    return False


@part
def emit(runs: I64, meta: I64, matches: I64, slot: int, run: int, end_us: int) -> None:
    """Write a match from the registers of `run`."""
    n_out = meta[N_OUT]
    matches[n_out, MATCH_SLOT] = slot
    matches[n_out, MATCH_START] = runs[run, START_US]
    matches[n_out, MATCH_END] = end_us
    matches[n_out, MATCH_CHAIN] = runs[run, CHAIN]
    matches[n_out, MATCH_VALID] = runs[run, VALID]
    matches[n_out, MATCH_TIMED_OUT] = 0
    for register in range(runs.shape[1] - REGISTER):
        matches[n_out, MATCH_REGISTER + register] = runs[run, REGISTER + register]
    meta[N_OUT] = n_out + 1


@part
def skip_target(rule: I64, runs: I64, run: int) -> int:
    """Return the position at which matching resumes after the match of `run`; NONE: nothing is skipped."""
    if rule[SKIP] == _NO_SKIP:
        return NONE
    if rule[SKIP] == _PAST_LAST:
        return runs[run, LAST_POS] + 1
    if rule[SKIP] == _TO_NEXT:
        return runs[run, START_POS] + 1
    if runs[run, VALID] >> rule[SKIP_REGISTER] & 1 == 0:
        return NONE if rule[SELECTION] == _ALL else runs[run, START_POS] + 1
    target = runs[run, REGISTER + rule[SKIP_REGISTER]]
    if rule[SELECTION] == _ALL:
        return target
    return max(target, runs[run, START_POS] + 1)


@part
def hold(runs: I64, keys: I64, meta: I64, slot: int, previous: int, run: int, end_us: int) -> int:
    """Keep the match of `run` in the key's list until its turn; return where, or NONE if it is known."""
    other = keys[slot, HEAD]
    while other != NONE:
        if (
            runs[other, STATE] == HELD
            and runs[other, AT_INSTANT] == meta[INSTANT]
            and runs[other, START_POS] == runs[run, START_POS]
            and runs[other, CHAIN] == runs[run, CHAIN]
        ):
            return NONE
        other = runs[other, NEXT]
    kept = allocate(runs, meta)
    copy_run(runs, run, kept)
    runs[kept, STATE] = HELD
    runs[kept, END_US] = end_us
    runs[kept, AT_INSTANT] = meta[INSTANT]
    insert_after(runs, keys, slot, previous, kept)
    return kept


@part
def release_held(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> int:
    """Report held matches in order of start while no open run started earlier (Flink's order for skips).

    Return the position before which runs were pruned.
    """
    reached = NONE
    while keys[slot, HEAD] != NONE:
        start = runs[keys[slot, HEAD], START_POS]
        best, before_best = NONE, NONE
        previous, run = NONE, keys[slot, HEAD]
        while run != NONE and runs[run, START_POS] == start:
            if runs[run, STATE] == HELD and (best == NONE or runs[run, AT_INSTANT] < runs[best, AT_INSTANT]):
                best, before_best = run, previous
            previous, run = run, runs[run, NEXT]
        if best == NONE:
            break
        emit(runs, meta, matches, slot, best, runs[best, END_US])
        floor = skip_target(rule, runs, best)
        remove_after(runs, keys, meta, slot, before_best)
        prune(runs, keys, meta, slot, floor)
        reached = max(reached, floor)
    return reached


@part
def choose_preferred(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> None:
    """Report of each start the match that no open run can beat any more (MATCH PREFERRED).

    A start's runs are in order of preference, so its match is decided when a HELD one comes first; what comes
    after a HELD one is beaten and goes. A start behind an undecided one waits if that one's match could skip
    over it.
    """
    waits = rule[SKIP] != _NO_SKIP and rule[SKIP] != _TO_NEXT
    is_behind = False
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE:
        start = runs[run, START_POS]
        has_match = runs[run, STATE] == HELD
        if has_match and not (waits and is_behind):
            emit(runs, meta, matches, slot, run, runs[run, END_US])
            floor = skip_target(rule, runs, run)
            while run != NONE and (runs[run, START_POS] == start or runs[run, START_POS] < floor):
                following = runs[run, NEXT]
                remove_after(runs, keys, meta, slot, previous)
                run = following
            continue
        is_behind = True
        has_match = False
        while run != NONE and runs[run, START_POS] == start:
            following = runs[run, NEXT]
            if has_match:
                remove_after(runs, keys, meta, slot, previous)
            else:
                has_match = runs[run, STATE] == HELD
                previous = run
            run = following


@part
def settle(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> int:
    """An instant is over: report what need not be held any longer.

    Return the position before which runs were pruned (of rules that can have timeouts).
    """
    if rule[SELECTION] == _PREFERRED:
        choose_preferred(rule, runs, keys, meta, matches, slot)
    elif rule[SELECTION] == _ALL and rule[SKIP] != _NO_SKIP:
        return release_held(rule, runs, keys, meta, matches, slot)
    return NONE


# ---------------------------------------------------------------- clocks


@part
def set_waits(rule: I64, runs: I64, run: int, state: int) -> None:
    """Find out until when `run` may wait in `state`: the first of all its limits."""
    clock = rule[CLOCK]
    wait_us, wait_event = NEVER, NEVER
    if rule[SPAN_US] >= 0:
        wait_us = runs[run, START_US] + rule[SPAN_US]
    if rule[SPAN_EVENTS] >= 0:
        wait_event = runs[run, clock + START_EVENT] + rule[SPAN_EVENTS]
    if rule[rule[STATE_HIGH] + state] >= 0:
        wait_us = min(wait_us, runs[run, clock + LAST_US] + rule[rule[STATE_HIGH] + state])
    if rule[rule[STATE_TIMER] + state] >= 0:
        wait_us = min(wait_us, runs[run, clock + MOMENT_US] + rule[rule[STATE_TIMER] + state])
    for at in range(rule[rule[LIMIT_PTR] + state], rule[rule[LIMIT_PTR] + state + 1]):
        group = rule[rule[LIMIT_GROUP] + at]
        opened = runs[run, clock + GROUP_CLOCK + group]
        if rule[rule[GROUP_US] + group] >= 0:
            wait_us = min(wait_us, opened + rule[rule[GROUP_US] + group])
        else:
            wait_event = min(wait_event, opened + rule[rule[GROUP_EVENTS] + group])
    runs[run, clock + WAIT_US] = wait_us
    runs[run, clock + WAIT_EVENT] = wait_event


@part
def set_clocks(rule: I64, runs: I64, run: int, take: int, time_us: int, event: int) -> None:
    """The run took an event by edge `take`."""
    clock = rule[CLOCK]
    runs[run, clock + LAST_US] = time_us
    runs[run, clock + MOMENT_US] = time_us
    for at in range(rule[rule[OPEN_PTR] + take], rule[rule[OPEN_PTR] + take + 1]):
        group = rule[rule[OPEN_GROUP] + at]
        in_time = rule[rule[GROUP_US] + group] >= 0
        runs[run, clock + GROUP_CLOCK + group] = time_us if in_time else event


@part
def may_begin(rule: I64, keys: I64, slot: int, take: int, time_us: int) -> bool:
    """Say whether no event that a run must not begin after lies before this one."""
    for at in range(rule[rule[LOOK_PTR] + take], rule[rule[LOOK_PTR] + take + 1]):
        memory = MEMORY + 2 * rule[rule[LOOK_MEMORY] + at]
        if (
            keys[slot, memory] + rule[rule[LOOK_US] + at] >= time_us
            and keys[slot, memory + 1] + rule[rule[LOOK_EVENTS] + at] >= keys[slot, N_EVENTS]
        ):
            return False
    return True


@part
def remember(rule: I64, keys: I64, slot: int, word: int, time_us: int) -> None:
    """Keep time and number of the event where it is one that later runs must not begin after."""
    for memory in range((keys.shape[1] - MEMORY) // 2):
        mask = rule[rule[VARIABLE_MASK] + rule[rule[MEMORY_VARIABLE] + memory]]
        if mask == 0 or word & mask != 0:
            keys[slot, MEMORY + 2 * memory] = time_us
            keys[slot, MEMORY + 2 * memory + 1] = keys[slot, N_EVENTS]


# ---------------------------------------------------------------- timeouts


@part
def note(runs: I64, meta: I64, run: int, state: int, end_us: int) -> None:
    """Remember until the instant is over: `run` is complete (`state` is HELD), or a limit ended it."""
    noted = allocate(runs, meta)
    copy_run(runs, run, noted)
    runs[noted, STATE] = state
    runs[noted, END_US] = end_us
    runs[noted, NEXT] = meta[NOTED] - 1
    meta[NOTED] = noted + 1


@part
def took_the_same(runs: I64, run: int, other: int) -> bool:
    """Say whether two runs are waits of one assignment."""
    return runs[run, CHAIN] == runs[other, CHAIN] and runs[run, START_POS] == runs[other, START_POS]


@part
def times_out(runs: I64, keys: I64, slot: int, first: int, run: int) -> bool:
    """Say whether what the note `run` took waits no more, is not complete, and has no note before this one.

    Of several notes (from `first` on) the first gets the earliest end.
    """
    other = keys[slot, HEAD]
    while other != NONE and runs[other, START_POS] <= runs[run, START_POS]:
        if runs[other, STATE] != HELD and took_the_same(runs, run, other):
            return False
        other = runs[other, NEXT]
    is_before = True
    other = first
    while other != NONE:
        if other == run:
            is_before = False
        elif took_the_same(runs, run, other):
            if is_before or runs[other, STATE] == HELD:
                return False
            runs[run, END_US] = min(runs[run, END_US], runs[other, END_US])
        other = runs[other, NEXT]
    return True


@apart
def report_timeouts(runs: I64, keys: I64, meta: I64, matches: I64, slot: int, floor: int) -> None:
    """The instant is over: report what limits ended, each assignment once, and forget the notes."""
    first = meta[NOTED] - 1
    run = first
    while run != NONE:
        if (
            runs[run, STATE] != HELD
            and runs[run, START_POS] >= floor
            and times_out(runs, keys, slot, first, run)
        ):
            emit(runs, meta, matches, slot, run, runs[run, END_US])
            matches[meta[N_OUT] - 1, MATCH_TIMED_OUT] = 1
        run = runs[run, NEXT]
    while first != NONE:
        run = first
        first = runs[run, NEXT]
        release(runs, meta, run)
    meta[NOTED] = 0


# ---------------------------------------------------------------- one event


@part
def try_take(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    stack: I64,
    stack_f: F64,
    null: U8,
    variable: int,
    run: int,
    row: int,
    position: int,
    only_test: bool,
) -> bool:
    """Say whether `run` (NONE: a new one) can take event `row` as `variable`; the result is in the spare run.

    With `only_test` the spare run is filled only as far as the answer needs it.
    """
    mask = rule[rule[VARIABLE_MASK] + variable]
    if mask != 0 and bits[row] & mask == 0:
        return False
    is_correlated = rule[rule[CODE_PTR] + variable] < rule[rule[CODE_PTR] + variable + 1]
    if only_test and not is_correlated:
        return True
    spare = runs.shape[0] - 1
    after_take = rule[rule[VARIABLE_AFTER_TAKE] + variable] != 0
    if run == NONE:
        runs[spare, START_US] = events[row, TIME_US]
        runs[spare, START_POS] = position
        runs[spare, CHAIN] = 0
        runs[spare, VALID] = rule[ZERO_VALID]
        for register in range(runs.shape[1] - REGISTER):
            runs[spare, REGISTER + register] = 0
    if is_correlated and not after_take:
        before = spare if run == NONE else run
        if not evaluate(rule, events, runs, stack, stack_f, null, variable, before, row):
            return False
        if only_test:
            return True
    if run != NONE:
        copy_run(runs, run, spare)
    runs[spare, LAST_POS] = position
    update_registers(rule, events, events_f, runs, runs_f, variable, spare, row, position)
    if after_take and not evaluate(rule, events, runs, stack, stack_f, null, variable, spare, row):
        return False
    runs[spare, CHAIN] = extend_chain(
        runs[spare, CHAIN], rule[rule[VARIABLE_HASH] + variable], events[row, IDENTITY]
    )
    return True


@part
def holds_any(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    stack: I64,
    stack_f: F64,
    null: U8,
    table: int,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether the event could be taken as one of ``first:last`` in the list at `table`."""
    for at in range(first, last):
        if try_take(
            rule,
            events,
            events_f,
            bits,
            runs,
            runs_f,
            stack,
            stack_f,
            null,
            rule[table + at],
            run,
            row,
            position,
            True,
        ):
            return True
    return False


@apart
def is_fenced(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    stack: I64,
    stack_f: F64,
    null: U8,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether one of the fences ``first:last`` keeps the event off."""
    for at in range(first, last):
        until = rule[rule[FENCE_UNTIL] + at]
        if try_take(
            rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
            rule[rule[FENCE_VARIABLE] + at], run, row, position, True,
        ) and not (
            until != NONE
            and try_take(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
                until, run, row, position, True,
            )
        ):  # fmt: skip
            return True
    return False


@apart
def lifted(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    stack: I64,
    stack_f: F64,
    null: U8,
    state: int,
    run: int,
    row: int,
    position: int,
) -> int:
    """Return the state after every fence that the event lifts is gone."""
    at = rule[rule[LIFT_PTR] + state]
    while at < rule[rule[LIFT_PTR] + state + 1]:
        if try_take(
            rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
            rule[rule[LIFT_VARIABLE] + at], run, row, position, True,
        ):  # fmt: skip
            state = rule[rule[LIFT_STATE] + at]
            at = rule[rule[LIFT_PTR] + state]
        else:
            at += 1
    return state


@part
def complete(
    rule: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    slot: int,
    previous: int,
    run: int,
    end_us: int,
    reported: int,
    floor: int,
) -> tuple[int, int, int]:
    """`run` is a match. Return the new (previous, reported, floor).

    `reported` is the start of the last match of this instant: MATCH EARLIEST reports one per start. `floor`
    is the position before which no run may start any more.
    """
    if rule[TIMEOUTS] != 0:
        note(runs, meta, run, HELD, end_us)
    if rule[SELECTION] == _PREFERRED or (rule[SELECTION] == _ALL and rule[SKIP] != _NO_SKIP):
        kept = hold(runs, keys, meta, slot, previous, run, end_us)
        if kept != NONE:
            previous = kept
        return previous, reported, floor
    if rule[SELECTION] == _ALL:
        if not is_reported(runs, meta, matches, slot, run):
            emit(runs, meta, matches, slot, run, end_us)
        return previous, reported, floor
    start = runs[run, START_POS]
    if start != reported and start >= floor:
        emit(runs, meta, matches, slot, run, end_us)
        reported = start
        floor = max(floor, skip_target(rule, runs, run))
    return previous, reported, floor


@part
def spread(
    rule: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    slot: int,
    previous: int,
    after: int,
    time_us: int,
    reported: int,
    floor: int,
    timed: bool,
) -> tuple[int, int, int]:
    """Give the spare run's take its successors, behind `previous`, in order of preference."""
    spare = runs.shape[0] - 1
    for at in range(rule[rule[AFTER_PTR] + after], rule[rule[AFTER_PTR] + after + 1]):
        state = rule[rule[AFTER_STATE] + at]
        if state == NONE:  # ACCEPT
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, spare, time_us, reported, floor
            )
        else:
            if timed:
                set_waits(rule, runs, spare, state)
                if runs[spare, rule[CLOCK] + WAIT_EVENT] <= keys[slot, N_EVENTS]:  # over as it begins
                    if rule[rule[STATE_CLOSES] + state] != 0:
                        previous, reported, floor = complete(
                            rule, runs, keys, meta, matches, slot, previous, spare, time_us, reported, floor
                        )
                    elif rule[TIMEOUTS] != 0:
                        note(runs, meta, spare, state, time_us)
                    continue
                keys[slot, EARLIEST_US] = min(keys[slot, EARLIEST_US], runs[spare, rule[CLOCK] + WAIT_US])
            run = allocate(runs, meta)
            copy_run(runs, spare, run)
            runs[run, STATE] = state
            insert_after(runs, keys, slot, previous, run)
            previous = run
    return previous, reported, floor


@part
def note_take(rule: I64, runs: I64, nodes: I64, meta: I64, variable: int, position: int) -> None:
    """Remember the event that the spare run has just taken; the caller made sure there is room."""
    spare = runs.shape[0] - 1
    register = REGISTER + rule[NODE_REGISTER]
    node = meta[N_NODES]
    nodes[node, NODE_PARENT] = runs[spare, register] - 1
    nodes[node, NODE_EVENT] = position
    nodes[node, NODE_VARIABLE] = variable
    meta[N_NODES] = node + 1
    runs[spare, register] = node + 1


@part
def step(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    keys: I64,
    meta: I64,
    matches: I64,
    nodes: I64,
    stack: I64,
    stack_f: F64,
    null: U8,
    slot: int,
    row: int,
    position: int,
    timed: bool,
) -> None:
    """Offer event `row` to every run of its key, in order, then let it begin new ones.

    `timed` is a constant in each caller: for a rule without clocks what they need is not even compiled.
    """
    word, time_us = bits[row], events[row, TIME_US]
    clock = rule[CLOCK]
    if timed:
        keys[slot, N_EVENTS] += 1
    meta[INSTANT] += 1
    meta[INSTANT_OUT] = meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE:
        following = runs[run, NEXT]
        state = runs[run, STATE]
        if state == HELD or (
            rule[rule[STATE_ALWAYS] + state] == 0
            and word & rule[rule[STATE_INTEREST] + state] == 0
            and not (timed and runs[run, clock + WAIT_EVENT] <= keys[slot, N_EVENTS])
        ):
            previous, run = run, following
            continue
        if runs[run, START_POS] < floor:
            remove_after(runs, keys, meta, slot, previous)
            run = following
            continue
        if rule[HAS_FENCES] != 0:
            state = lifted(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null, state, run, row, position
            )
            if is_fenced(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
                rule[rule[STATE_FENCE_PTR] + state], rule[rule[STATE_FENCE_PTR] + state + 1], run, row,
                position,
            ):  # fmt: skip
                remove_after(runs, keys, meta, slot, previous)
                run = following
                continue
        mode = rule[rule[STATE_MODE] + state]
        early = timed and time_us < runs[run, clock + LAST_US] + rule[rule[STATE_LOW] + state]
        stays = not holds_any(
            rule, events, events_f, bits, runs, runs_f, stack, stack_f, null, rule[GUARD_VARIABLE],
            rule[rule[GUARD_PTR] + state], rule[rule[GUARD_PTR] + state + 1], run, row, position,
        )  # fmt: skip
        if stays and not early:
            for take in range(rule[rule[TAKE_PTR] + state], rule[rule[TAKE_PTR] + state + 1]):
                variable = rule[rule[TAKE_VARIABLE] + take]
                if rule[HAS_FENCES] != 0 and is_fenced(
                    rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
                    rule[rule[TAKE_FENCE_PTR] + take], rule[rule[TAKE_FENCE_PTR] + take + 1], run, row,
                    position,
                ):  # fmt: skip
                    continue
                if try_take(
                    rule,
                    events,
                    events_f,
                    bits,
                    runs,
                    runs_f,
                    stack,
                    stack_f,
                    null,
                    variable,
                    run,
                    row,
                    position,
                    False,
                ):
                    if rule[NODE_REGISTER] != NONE:
                        note_take(rule, runs, nodes, meta, variable, position)
                    stays = stays and mode == _ANY
                    if timed:
                        set_clocks(rule, runs, runs.shape[0] - 1, take, time_us, keys[slot, N_EVENTS])
                    previous, reported, floor = spread(
                        rule, runs, keys, meta, matches, slot, previous,
                        rule[rule[TAKE_AFTER] + take], time_us, reported, floor, timed,
                    )  # fmt: skip
        if mode == _STRICT:
            stays = False
        if stays and mode == _NEXT and not early:
            stays = not holds_any(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null, rule[BEGIN_VARIABLE],
                rule[rule[BEGIN_PTR] + state], rule[rule[BEGIN_PTR] + state + 1], run, row, position,
            )  # fmt: skip
        if stays:
            stays = not holds_any(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null, rule[BAR_VARIABLE],
                rule[rule[BAR_PTR] + state], rule[rule[BAR_PTR] + state + 1], run, row, position,
            )  # fmt: skip
        if stays and rule[rule[STATE_AFTER_SKIP] + state] == NONE:  # a trailing "not next" was decided
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
            )
            stays = False
        if timed and stays and runs[run, clock + WAIT_EVENT] <= keys[slot, N_EVENTS]:
            if rule[rule[STATE_CLOSES] + rule[rule[STATE_NEXT] + state]] != 0:
                previous, reported, floor = complete(
                    rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
                )
            elif rule[TIMEOUTS] != 0:
                note(runs, meta, run, state, time_us)
            stays = False  # here a count of events ends a run
        if stays:
            runs[run, STATE] = rule[rule[STATE_NEXT] + state]
            previous = run
        else:
            remove_after(runs, keys, meta, slot, previous)
        run = following

    if position >= floor:
        for take in range(rule[rule[TAKE_PTR] + 0], rule[rule[TAKE_PTR] + 1]):
            variable = rule[rule[TAKE_VARIABLE] + take]
            if timed and not may_begin(rule, keys, slot, take, time_us):
                continue
            if rule[HAS_FENCES] != 0 and is_fenced(
                rule, events, events_f, bits, runs, runs_f, stack, stack_f, null,
                rule[rule[TAKE_FENCE_PTR] + take], rule[rule[TAKE_FENCE_PTR] + take + 1], NONE, row,
                position,
            ):  # fmt: skip
                continue
            if try_take(
                rule,
                events,
                events_f,
                bits,
                runs,
                runs_f,
                stack,
                stack_f,
                null,
                variable,
                NONE,
                row,
                position,
                False,
            ):
                if rule[NODE_REGISTER] != NONE:
                    note_take(rule, runs, nodes, meta, variable, position)
                if timed:
                    runs[runs.shape[0] - 1, clock + START_EVENT] = keys[slot, N_EVENTS]
                    set_clocks(rule, runs, runs.shape[0] - 1, take, time_us, keys[slot, N_EVENTS])
                previous, reported, floor = spread(
                    rule, runs, keys, meta, matches, slot, previous,
                    rule[rule[TAKE_AFTER] + take], time_us, reported, floor, timed,
                )  # fmt: skip
    if timed:
        remember(rule, keys, slot, word, time_us)
    prune(runs, keys, meta, slot, floor)
    floor = max(floor, settle(rule, runs, keys, meta, matches, slot))
    if timed and meta[NOTED] != 0:
        report_timeouts(runs, keys, meta, matches, slot, floor)
    if keys[slot, N_RUNS] > rule[MAX_RUNS]:
        drop_runs(rule, runs, keys, meta, slot)


@apart
def drop_runs(rule: I64, runs: I64, keys: I64, meta: I64, slot: int) -> None:
    """Bring a key that has too many runs back to its limit (ON OVERFLOW)."""
    excess = keys[slot, N_RUNS] - rule[MAX_RUNS]
    meta[DROPPED] += excess
    if rule[OVERFLOW] == _FAIL:
        meta[OVERFLOWED] = slot + 1
    last = NONE
    if rule[OVERFLOW] != _DROP_OLDEST:
        last = keys[slot, HEAD]
        for _ in range(rule[MAX_RUNS] - 1):
            last = runs[last, NEXT]
    for _ in range(excess):
        remove_after(runs, keys, meta, slot, last)


@part
def close(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int, bound_us: int) -> None:
    """End the runs of a key whose window closed at or before `bound_us`; some of them are matches then."""
    meta[INSTANT] += 1
    meta[INSTANT_OUT] = meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE and (runs[run, STATE] == HELD or runs[run, START_US] <= bound_us - rule[SPAN_US]):
        following = runs[run, NEXT]
        if runs[run, STATE] == HELD:
            previous, run = run, following
            continue
        if runs[run, START_POS] >= floor and rule[rule[STATE_CLOSES] + runs[run, STATE]] != 0:
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, run,
                runs[run, START_US] + rule[CLOSE_US], reported, floor,
            )  # fmt: skip
        remove_after(runs, keys, meta, slot, previous)
        run = following
    prune(runs, keys, meta, slot, floor)
    settle(rule, runs, keys, meta, matches, slot)


# ---------------------------------------------------------------- drivers of the loops


@part
def room_needed(keys: I64, slot: int, fan_out: int) -> int:
    """Return how many runs one event of the key can make, and how often it can be taken, at most."""
    return (keys[slot, N_RUNS] + 1) * (fan_out + 1)


@part
def has_room(keys: I64, meta: I64, matches: I64, slot: int, fan_out: int) -> bool:
    """Say whether one event of the key can neither overflow the pool nor the matches."""
    needed = room_needed(keys, slot, fan_out)
    return meta[N_FREE] >= needed and matches.shape[0] - meta[N_OUT] >= needed + keys[slot, N_RUNS]


@kernel
def run_events(
    rule: I64,
    events: I64,
    events_f: F64,
    bits: I64,
    runs: I64,
    runs_f: F64,
    keys: I64,
    meta: I64,
    matches: I64,
    nodes: I64,
    stack: I64,
    stack_f: F64,
    null: U8,
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
        slot = events[row, SLOT]
        if not has_room(keys, meta, matches, slot, fan_out):
            return index
        if rule[NODE_REGISTER] != NONE and nodes.shape[0] - meta[N_NODES] < room_needed(keys, slot, fan_out):
            return index
        head = keys[slot, HEAD]
        # A HELD head hides the ages behind it: look.
        if (
            rule[SPAN_US] >= 0
            and head != NONE
            and (runs[head, STATE] == HELD or runs[head, START_US] < events[row, TIME_US] - rule[SPAN_US])
        ):
            close(rule, runs, keys, meta, matches, slot, events[row, TIME_US] - 1)
        step(
            rule,
            events,
            events_f,
            bits,
            runs,
            runs_f,
            keys,
            meta,
            matches,
            nodes,
            stack,
            stack_f,
            null,
            slot,
            row,
            base + row,
            False,
        )
    return rows.shape[0]


@kernel
def close_all(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, first: int, bound_us: int) -> int:
    """Close windows up to `bound_us` from slot `first` on; return where room is needed, or the end."""
    for slot in range(first, keys.shape[0]):
        if keys[slot, HEAD] == NONE:
            continue
        if not has_room(keys, meta, matches, slot, 1):
            return slot
        close(rule, runs, keys, meta, matches, slot, bound_us)
    return keys.shape[0]


@kernel
def end_all(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, first: int) -> int:
    """Nothing follows any more: end the open runs from slot `first` on; return where room is needed."""
    for slot in range(first, keys.shape[0]):
        if not has_room(keys, meta, matches, slot, 0):
            return slot
        meta[INSTANT] += 1
        previous, run = NONE, keys[slot, HEAD]
        while run != NONE:
            following = runs[run, NEXT]
            if runs[run, STATE] == HELD:
                previous = run
            else:
                remove_after(runs, keys, meta, slot, previous)
            run = following
        settle(rule, runs, keys, meta, matches, slot)
    return keys.shape[0]


@kernel
def earliest_close(runs: I64, keys: I64, span_us: int) -> int:
    """Return the first time at which the window of an open run closes; the largest int64: never."""
    earliest = _INT64_MAX
    for slot in range(keys.shape[0]):
        run = keys[slot, HEAD]
        while run != NONE and runs[run, STATE] == HELD:
            run = runs[run, NEXT]
        if run != NONE:
            earliest = min(earliest, runs[run, START_US] + span_us)
    return earliest


@kernel
def list_runs(runs: I64, keys: I64, order: I64) -> int:
    """Write the runs of all keys to `order`, key by key, each in its order; return how many there are."""
    n = 0
    for slot in range(keys.shape[0]):
        run = keys[slot, HEAD]
        while run != NONE:
            order[n] = run
            n += 1
            run = runs[run, NEXT]
    return n


@kernel
def link_runs(runs: I64, keys: I64, meta: I64, n_runs: int) -> None:
    """Make lists of the first `n_runs` rows by `keys`, and a free list of the rest."""
    row = 0
    for slot in range(keys.shape[0]):
        keys[slot, HEAD] = row if keys[slot, N_RUNS] > 0 else NONE
        for left in range(keys[slot, N_RUNS], 0, -1):
            runs[row, NEXT] = row + 1 if left > 1 else NONE
            row += 1
    capacity = runs.shape[0] - 1
    meta[FREE] = NONE
    meta[N_FREE] = 0
    for free in range(capacity - 1, n_runs - 1, -1):
        release(runs, meta, free)


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
    """Mix every string of an Arrow array into ``seeds`` by FNV-1a (Fowler, Noll and Vo) over its bytes."""
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
