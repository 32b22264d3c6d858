"""The memory that kernels share: the arrays, and the names of their columns and of the fields of a packed
rule.

Kernels import it as `at`: ``runs[run, at.STATE]``, ``rule[place + at.STATE_MODE]``. numba reads attributes of
a module as constants, as it does global names (docs/design/decisions/0016).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import I64, U8
from cep.engine.kernels.compiled import inlined
from cep.program.records import RECORDS, SCALARS

NONE = -1
"""No row, no address; as the successor of a take: the run is complete (`cep.program.records.ACCEPT`)."""

EVERY_BIT = -1
PENDING = -2
"""State of a run that is complete and waits for its turn (MATCH PREFERRED, MATCH ALL with a skip clause)."""

# Columns of `runs`. A run's registers follow from REGISTER on.
NEXT, STATE = 0, 1  # the list a run is in
START_US, START_POS = 2, 3  # of its first event; a position is a sequence number
LAST_POS = 4  # of the last event it took
RUN_HASH = 5  # hash of (variable, event) so far
VALID = 6  # bit r: register r is not NULL
REGISTER = 7

# The last columns, counted from the end, of rules that report timeouts or whose complete runs can wait for
# their turn (`runs.holds`). Other rules omit them: a run with one register then fits a cache line.
END_US = 2  # of a PENDING run: its match_end; of a pending timeout: its end
AT_INSTANT = 1  # of a PENDING run: the instant at which it completed
N_HOLDING = 2

# A run's clocks, from column ``rule[CLOCK]`` on (`clocks`): the run ends after the last event of time
# DEADLINE_US, and after the key's event number DEADLINE_EVENT; the last taken event has time LAST_US; what
# follows it, or the timed absence after it, started at MOMENT_US; the first event has number START_EVENT.
# Then follows for each group the time or the number of its first event.
DEADLINE_US, DEADLINE_EVENT, LAST_US, MOMENT_US, START_EVENT, GROUP_CLOCK = range(6)

# Columns of `keys`: first and last of a key's list of runs, the predicate bits that may move one of them (or
# more bits), the length of the list. For a rule with clocks also: EARLIEST_US, before which no run has a
# deadline; the number of events; then, from LAST_MET on, time and number of the last events that look-behinds
# need.
HEAD, TAIL, TRIGGER_MASK, N_RUNS = range(4)
EARLIEST_US, N_EVENTS = 4, 5
LAST_MET = 6

BLOCK = 64
"""Keys for which one time says before when none of their runs ends by time."""

# Places in `meta`.
FREE, N_FREE, N_OUT, DROPPED, INSTANT, INSTANT_OUT = range(6)
OVERFLOWED = 6  # 1 + slot of a key that had too many runs under ON OVERFLOW FAIL; 0: none
N_NODES = 7
PENDING_TIMEOUTS = 8  # 1 + the first record of this instant (`record_timeout`); 0: none
SCRATCH_RUN = 9  # the run on which a take is tried; it is neither in a list nor free
USED = 10  # rows of `runs` that are in a list or free; the rows after them were never used
N_META = 11

# Columns of `nodes`: events that runs have taken (`cep.engine.kernels.event_nodes`).
NODE_PARENT, NODE_EVENT, NODE_VARIABLE = range(3)
NODE_WIDTH = 3
# A node of a set of values (`cep.engine.kernels.event_nodes`) has the value in place of the event. In place
# of the variable it has FIRST_SET less the number of the register that counts the values, or NULL_NODE.
FIRST_SET, NULL_NODE = -1, -1_000

# Whether a value is in a set. UNKNOWN: it is not among the values, but there is a NULL.
NOT_FOUND, FOUND, UNKNOWN = range(3)

# Rows of `events`; each field is contiguous. (Otherwise a single event and several would differ in
# contiguity, and numba would compile every kernel twice.) `Program.columns` start at VALUE, followed by words
# of bits that say which of them are not NULL.
TIME_US, SLOT, IDENTITY = 0, 1, 2
VALUE = 3

# Columns of `matches`. Registers follow from MATCH_REGISTER on.
MATCH_SLOT, MATCH_START, MATCH_END, MATCH_HASH, MATCH_VALID = range(5)
MATCH_TIMED_OUT = 5  # 1: a timeout; 0: a match
MATCH_REGISTER = 6

# A packed rule (`matching.packed_rule`): scalars, a record for each state, then other records and lists. The
# names come from `cep.program.records`: scalar `span_us` is SPAN_US, field `mode` of a state STATE_MODE, the
# distance from one state to the next STATE_WIDTH. A record refers to another one by its address, its place in
# the array. It refers to a list by two addresses: of its first word and, `END` further, after its last word.
# So a step reads what it needs with one load. A table for each field needed two, because the start of the
# table depends on the rule (decision 11). States also have numbers, which snapshots can store.
END = 1
N_SCALARS = len(SCALARS)

INT64_MAX = np.iinfo(np.int64).max
NEVER = INT64_MAX

PUSHED, SECOND, KEEPS, POPS = 7, 3, 64, 128
OPERATION = 8
"""An instruction of the packed code. Its lowest bits say what it pushes first: `Code` + 1, or 0 for nothing,
and the same for a second value three bits further. Two bits say whether the old top of the stack must be kept
in memory, or comes from there. The bits above are the operation that it computes then: `Code`, or 0."""

_STATE_WIDTH = RECORDS["state"].width


class Pool(NamedTuple):
    """The arrays of one rule. Kernels receive them as one tuple, and read them as `pool.runs`."""

    rule: I64  # (words,) the packed rule
    runs: I64  # (capacity, REGISTER + registers + ...) a run is a row
    keys: I64  # (slots, N_RUNS + 1 or more) a key is a row
    meta: I64  # (N_META,) values of the whole rule
    matches: I64  # (capacity, MATCH_REGISTER + registers) found but not yet removed
    nodes: I64  # (capacity, NODE_WIDTH) events that runs have taken
    stack: I64  # (depth,) operands of a predicate; floats by their bits
    null: U8  # (depth,) 1: the operand is NULL


class Offered(NamedTuple):
    """The event that is offered to the runs of its key."""

    fields: I64  # (VALUE + columns + words of known bits, events of the block)
    word: int  # bits of the local predicates that hold for it
    slot: int  # row of its key in `Pool.keys`
    row: int  # its column in `fields`
    position: int  # its sequence number
    time_us: int  # its event time, microseconds since 1970


def _names() -> dict[str, int]:
    names = {name.upper(): place for place, name in enumerate(SCALARS)}
    for kind, record in RECORDS.items():
        names |= {f"{kind}_{field}".upper(): place for field, place in record.places.items()}
        names[f"{kind}_width".upper()] = record.width
    assert names.keys().isdisjoint(globals())
    return names


globals().update(_names())


def __getattr__(name: str) -> int:
    """Raise an error: no such name. From this mypy learns that the names of `_names` are numbers."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@inlined
def place_of(state: int) -> int:
    """Return the address of a state's record in a packed rule."""
    return N_SCALARS + _STATE_WIDTH * state
