"""What the kernels share: the columns of their matrices and the packed rule."""

from __future__ import annotations

import numpy as np

from cep.engine.kernels.compiled import part

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

# A packed rule (`cep.engine.packed_rule`): scalars, a record for each state, then other records and lists.
# A record refers to another one by its address, its place in the array, and to a list by two: those of its
# first word and, `END` further, of what follows its last. So a step reads what it needs with one load.
# (With a table for each field it was two: where the table begins depends on the rule.) States have numbers,
# which snapshots can keep.
SPAN_US, CLOSE_US, SELECTION, SKIP, SKIP_REGISTER, MAX_RUNS, ZERO_VALID, N_VALUES = range(8)
OVERFLOW, TIMEOUTS = 8, 9
SPAN_EVENTS, CLOCK, HAS_FENCES = 10, 11, 12
NODE_REGISTER = 13  # holds a run's last node; NONE: the rule does not report events
ALWAYS_WALKS = 14  # 1: a run may wait in a state where every event must be looked at
ZERO = 15  # what registers begin with
GROUPS = 16  # where the records of groups begin
MEMORIES = 17  # where the list begins of the variables whose last events a key remembers
N_SCALARS = 18

END = 1
STATE_MODE, STATE_INTEREST, STATE_ALWAYS, STATE_NEXT, STATE_CLOSES, STATE_AFTER_SKIP = range(6)
STATE_TAKES, STATE_BEGINS, STATE_BARS, STATE_GUARDS, STATE_LIFTS, STATE_FENCES = range(6, 18, 2)
STATE_LOW, STATE_HIGH, STATE_TIMER, STATE_TIMER_LENGTH, STATE_LIMIT = range(18, 23)
STATE_TIMER_AFTERS, STATE_LIMITS = 23, 25
STATE_WIDTH = 32  # a power of two: a number becomes an address by a shift

# Lists of takes, fences, lifts and looks hold such records; those of variables, of states (afters) and of the
# numbers of groups (opens, limits) have a word for each.
TAKE_VARIABLE, TAKE_AFTERS, TAKE_FENCES, TAKE_OPENS, TAKE_LOOKS = 0, 1, 3, 5, 7
TAKE_WIDTH = 9
VARIABLE_NUMBER, VARIABLE_MASK, VARIABLE_HASH, VARIABLE_AFTER_TAKE = range(4)
VARIABLE_CODE, VARIABLE_UPDATES = 4, 6
VARIABLE_WIDTH = 8
CODE_OP, CODE_ARG, CODE_SECOND = range(3)
CODE_WIDTH = 3
UPDATE, UPDATE_ARG2 = range(2)
UPDATE_WIDTH = 2
FENCE_VARIABLE, FENCE_UNTIL = range(2)
FENCE_WIDTH = 2
LIFT_VARIABLE, LIFT_STATE = range(2)
LIFT_WIDTH = 2
LOOK_MEMORY, LOOK_US, LOOK_EVENTS = range(3)
LOOK_WIDTH = 3
GROUP_US, GROUP_EVENTS, GROUP_LIMIT = range(3)
GROUP_WIDTH = 3

INT64_MAX = np.iinfo(np.int64).max
NEVER = INT64_MAX

PUSHED, SECOND, KEEPS, POPS = 7, 3, 64, 128
OPERATION = 8
"""An instruction of the packed code: what it pushes first (`Code` + 1, or 0; the second three bits further),
whether what was on top must be kept in memory, or got from there; above these bits what it computes then
(`Code`, or 0)."""


@part
def place_of(state: int) -> int:
    """Return the address of a state's record in a packed rule."""
    return N_SCALARS + STATE_WIDTH * state
