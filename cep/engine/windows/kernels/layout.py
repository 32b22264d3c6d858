"""The memory that the kernels of windows share: the arrays, and names for their columns."""

from __future__ import annotations

from typing import NamedTuple

from cep.arrays import I64, U8
from cep.program.window_functions import Function

# Columns of `Ring.keys`. MARK: for a tumbling window its start, for a session the time of its last event, for
# the last n events the number of events so far, else the time of the newest entry.
START, LENGTH, CAPACITY, MARK = range(4)
KEY_WIDTH = 4

WORD, VALUE = 0, 1
"""Columns of `Ring.entries`. WORD: twice the time (or number) of an event, and 1 if its value is known."""

# Places in `Ring.spec`.
FRAME, SPAN, PREVIOUS, KEPT, N_LAST, WITH_FIRST, IS_DOUBLE, WITH_NULL, SUMMED = range(9)
N_SPEC = 9

# SUMMED: of what sums are needed.
NO_VALUES, VALUES, SQUARES = range(3)

# Kinds of frames.
TIME, EVENTS, TUMBLING, SESSION, ALL = range(5)

# What is kept of the window after the last event of a batch: all of it; its last events and its first one;
# its least and its greatest value; sums. For windows that move in steps: sums of each pane; the values that
# can be the least or the greatest of a later window; the last events, and the first one of each pane.
WHOLE, LAST, EXTREMES, SUMS, PANE_SUMS, PANE_EXTREMES, PANE_FIRSTS = range(7)

# What is computed.
COUNT, SUM, AVG, VARIANCE, STDDEV, MAX, LAST_VALUE, LAG = (
    Function[name].value.number
    for name in ("COUNT", "SUM", "AVG", "VARIANCE", "STDDEV", "MAX", "LAST_VALUE", "LAG")
)

NEVER = -(1 << 61)
"""A time before all events: differences to it have 64 bits, and it can be doubled."""


class Ring(NamedTuple):
    """The state that earlier events left: the entries of each key are contiguous, oldest first."""

    spec: I64  # (N_SPEC,) the window
    keys: I64  # (slots, KEY_WIDTH) where the entries of each key are
    entries: I64  # (capacity, 2) an entry is a row
    meta: I64  # (1,) the number of rows of `entries` that were assigned to a key


class KeyedBatch(NamedTuple):
    """The events of a batch, in order."""

    time_us: I64  # (n,) microseconds since 1970
    begins_us: I64  # (n,) when the tumbling window of each event starts; empty for other frames
    starts: I64  # (keys + 1,) the events of key k take places ``starts[k]`` to ``starts[k + 1]``
    slots: I64  # (keys,) the row of each key in `Ring.keys`


class Reads(NamedTuple):
    """The columns that a window reads, in order. If something holds for all events, its array is empty."""

    values: I64  # (n,) doubles by their bits; empty: none are read
    within: U8  # (n,) 1: the window sees the event
    counting: U8  # (n,) 1: the window sees the event, and the event's value counts
    known: U8  # (n,) 1: the value is not NULL


class Frames(NamedTuple):
    """The windows of the events of a block of keys, as ranges of the kept and new entries of these keys."""

    words: I64  # (entries,) as WORD; key by key: the kept entries, then the new events that count
    values: I64  # (entries,)
    bases: I64  # (keys,) the first entry of each key
    first: I64  # (events,) the first entry of each window
    last: I64  # (events,) the entry after its last
    own: U8  # (events,) 1: the last entry of the window is the event itself
    ends: I64  # (keys, 2) after the last event of each key: the first entry, and the one after the last


class Sums(NamedTuple):
    """Room for the exact sums of one key. Zeros before and after each call."""

    totals: I64  # (chunks of a double,)
    squares: I64  # (chunks of a square,)
    digits: I64  # (chunks of a square,) overwritten
    product: I64  # (chunks of a square,) overwritten
    special: I64  # (3,) how many values are NaN, Infinity, -Infinity


class Results(NamedTuple):
    """The columns that are computed from sums, by event in order."""

    functions: I64  # (columns,) what each column is
    out: I64  # (columns, n) written
    known: U8  # (columns, n) 1: no NULL; written
    is_double: bool  # whether the values are doubles
    with_double: bool  # whether some function needs the sum as a double


N_TOTALS, N_SQUARES = 72, 148
"""Chunks that hold any sum of doubles, and any sum of their squares, with room for what is carried."""
