"""What the kernels share: the columns of their matrices and the packed rule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cep.program import I64, Code, RuleTables

F64 = npt.NDArray[np.float64]

NONE = -1
EVERY_BIT = -1
HELD = -2
"""State of a run that is complete and waits for its turn (MATCH PREFERRED, MATCH ALL with a skip clause)."""

# Columns of `runs`. A run's registers follow from REGISTER on.
NEXT, STATE = 0, 1  # the list a run is in
START_US, START_POS = 2, 3  # of its first event; a position is a sequence number
LAST_POS = 4  # of the last event it took
CHAIN = 5  # hash of (variable, event) so far
VALID = 6  # bit r: register r is not NULL
REGISTER = 7

# The last columns, of rules whose complete runs can wait for their turn or that note timeouts (`runs.holds`);
# counted from the end. Other rules do without: a run with one register is one line of the cache.
END_US = 2  # of a HELD run: its match_end; of a note: its end
AT_INSTANT = 1  # of a HELD run: the instant at which it completed
N_HOLDING = 2

# A run's clocks, from column ``rule[CLOCK]`` on (`clocks`): the wait ends after the last event of
# time WAIT_US and after the key's event number WAIT_EVENT; the event taken last was of LAST_US; what follows
# it, or the timed absence behind it, began at MOMENT_US; the first event had number START_EVENT. Then for
# each group the time or the number of its first event.
WAIT_US, WAIT_EVENT, LAST_US, MOMENT_US, START_EVENT, GROUP_CLOCK = range(6)

# Columns of `keys`: first and last of a key's list of runs, the predicate bits that may move one of them (or
# more bits), the length of the list. For a rule with clocks also: no wait ends before EARLIEST_US; how many
# events there were; then, from MEMORY on, time and number of remembered events.
HEAD, TAIL, INTEREST, N_RUNS = range(4)
EARLIEST_US, N_EVENTS = 4, 5
MEMORY = 6

# Places in `meta`.
FREE, N_FREE, N_OUT, DROPPED, INSTANT, INSTANT_OUT = range(6)
OVERFLOWED = 6  # 1 + slot of a key that had too many runs under ON OVERFLOW FAIL; 0: none
N_NODES = 7
NOTED = 8  # 1 + the first of the notes of this instant (`note`); 0: there are none
SPARE = 9  # a run that is neither in a list nor free: for trying a take
USED = 10  # rows of `runs` that are in a list or free; those behind them were never touched
N_META = 11

# Columns of `nodes`: events that runs have taken (`cep.engine.kernels.event_nodes`).
NODE_PARENT, NODE_EVENT, NODE_VARIABLE = range(3)
NODE_WIDTH = 3

# Rows of `events`; each field lies together. (The other way round a single event would be contiguous in
# another way than many, and numba compile every kernel twice.) `Program.columns` follow from VALUE on, then
# words of bits that say which of them are not NULL.
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
ALWAYS_WALKS = 14  # 1: a run may wait in a state where every event must be looked at
ZERO = 15  # what registers begin with
N_SCALARS = 16
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
INT64_MAX = np.iinfo(np.int64).max
NEVER = INT64_MAX


def pack_rule(scalars: dict[int, int], tables: RuleTables, n_values: int) -> I64:
    """Return a rule as one array: `scalars` by place, the places of the tables, the tables.

    `n_values` is the number of columns in `Program.columns`. Unsigned words keep their bits.
    """
    header = np.zeros(N_HEADER, np.int64)
    for place, scalar in scalars.items():
        header[place] = scalar
    header[N_VALUES] = n_values
    header[HAS_FENCES] = len(tables.fence_variable) > 0
    header[ALWAYS_WALKS] = bool(tables.state_always[1:].any())
    tables = _with_pushes(_with_packed_updates(tables))
    header[N_SCALARS:] = N_HEADER + np.concatenate(([0], np.cumsum([len(table) for table in tables])[:-1]))
    return np.concatenate((header, *tables), dtype=np.int64, casting="unsafe")


PUSHED, KEEPS, POPS = 7, 8, 16
OPERATION = 5
"""An instruction of the packed code: what it pushes first (`Code` + 1, or 0), whether what was on top must be
kept in memory, or got from there; above these bits what it computes then (`Code`, or 0)."""

_OF_TWO = frozenset(
    {
        *(Code.ADD_I, Code.SUB_I, Code.MUL_I, Code.MOD_I, Code.ADD_F, Code.SUB_F, Code.MUL_F, Code.DIV_F),
        *(Code.MOD_F, Code.EQ_I, Code.LT_I, Code.LE_I, Code.EQ_F, Code.LT_F, Code.LE_F, Code.AND, Code.OR),
        *(Code.COALESCE, Code.MIN_OF_I, Code.MIN_OF_F, Code.MAX_OF_I, Code.MAX_OF_F, Code.POWER_F),
        Code.SELECT,  # of three: the first is always in memory
    }
)
_WITH_ARG = frozenset({Code.DATE_PART, Code.DATE_TRUNC, Code.FLOOR_DIV, Code.SCALE, Code.ROUND_F})


def _with_packed_updates(tables: RuleTables) -> RuleTables:
    """Return `tables` with all but the last part of each update in one word: a load instead of eight."""
    columns = (tables.update_op, tables.update_register, tables.update_arg, tables.update_column)
    parts = zip(*(column.tolist() for column in columns), strict=True)
    packed = [op | to << 8 | arg << 16 | column + 1 << 24 for op, to, arg, column in parts]
    return tables._replace(update_op=np.array(packed, np.int64))


def _with_pushes(tables: RuleTables) -> RuleTables:
    """Return `tables` with each value that the next instruction computes with pushed by that instruction.

    Halves the number of instructions: a comparison with what the run has taken is two.
    """
    ops: list[int] = []
    args: list[int] = []
    ends = [0]
    for first, last in pairwise(tables.code_ptr.tolist()):
        begin = len(ops)
        for op, arg in zip(
            tables.code_op[first:last].tolist(), tables.code_arg[first:last].tolist(), strict=True
        ):
            if op <= Code.REGISTER:
                keeps = KEEPS if len(ops) > begin else 0  # at first there is nothing on top
                ops.append(op + 1 | keeps)
                args.append(arg)
            elif op not in _WITH_ARG and len(ops) > begin and ops[-1] >> OPERATION == 0:
                ops[-1] |= op << OPERATION
                if op in _OF_TWO:  # what was on top is the other operand
                    ops[-1] &= ~KEEPS
            else:
                ops.append(op << OPERATION | (POPS if op in _OF_TWO else 0))
                args.append(arg)
        ends.append(len(ops))
    return tables._replace(
        code_ptr=np.array(ends, np.int32), code_op=np.array(ops, np.int32), code_arg=np.array(args, np.int64)
    )
