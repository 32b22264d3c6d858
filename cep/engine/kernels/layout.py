"""What the kernels share: the columns of their matrices, the packed rule, how they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from cep.program import I64, RuleTables

F64 = npt.NDArray[np.float64]
_F = TypeVar("_F", bound=Callable[..., Any])


KERNELS: dict[str, Any] = {}
"""The kernels of all modules, by name."""


def _source_stamp() -> tuple[tuple[str, float, int], ...]:
    """Return what changes when a source of any kernel does: parts and numbers come from several files."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parents[1] / "program.py"]
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files if file.exists())


_STAMP = _source_stamp()

# Kernels make no arrays, so numba need not count references to those they are given. It would do so with two
# atomic operations for each array and each part, inlined or not: 3 to 9 times the whole run time.
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}


def kernel(function: _F) -> _F:
    """Compile a loop that Python calls, at its first call; the machine code is kept on disk.

    No fastmath: NaN and times are exact. numba looks only at the file a kernel stands in to see whether the
    code on disk is still good; with the layout of another file's changed it would run on wrong memory.
    """
    compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    if hasattr(compiled, "_cache"):  # without the compiler it is the function itself
        compiled._cache._cache_file._source_stamp = _STAMP
    KERNELS[function.__name__] = compiled
    return compiled


def part(function: _F) -> _F:
    """Compile a part of a kernel into its callers."""
    compiled: _F = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def apart(function: _F) -> _F:
    """Compile a part of a kernel that is called, not inlined: what happens seldom keeps the loops small."""
    compiled: _F = numba.njit(**_OPTIONS)(function)
    return compiled


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

# A run's clocks, from column ``rule[CLOCK]`` on (`clocks`): the wait ends after the last event of
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

# Columns of `nodes`: events that runs have taken (`cep.engine.kernels.event_nodes`).
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
    arrays = [
        table.astype(np.uint64).view(np.int64) if table.dtype == np.uint64 else table for table in tables
    ]
    header[N_SCALARS:] = N_HEADER + np.concatenate(([0], np.cumsum([len(table) for table in arrays])[:-1]))
    return np.concatenate((header, *(table.astype(np.int64) for table in arrays)))
