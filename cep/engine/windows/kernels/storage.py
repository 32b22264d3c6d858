"""The state that earlier events left: listed, compacted, trimmed; and the starts of tumbling windows.

Parameters
----------
keys : (slots, KEY_WIDTH) int64
    `Ring.keys`; changed where entries move.
entries : (capacity, 2) int64
    `Ring.entries`.
"""

from __future__ import annotations

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import kernel


@kernel
def list_entries(keys: I64, order: I64) -> None:
    """List the entries of all keys, key by key.

    Parameters
    ----------
    order : (entries,) int64
        Rows of `Ring.entries`; written.
    """
    target = 0
    for slot in range(keys.shape[0]):
        start = keys[slot, at.START]
        for entry in range(start, start + keys[slot, at.LENGTH]):
            order[target] = entry
            target += 1


@kernel
def move_entries(keys: I64, entries: I64, to: I64) -> int:
    """Compact the entries of all keys; return their number.

    Parameters
    ----------
    to : (capacity, 2) int64
        Written.
    """
    target = 0
    for slot in range(keys.shape[0]):
        start = keys[slot, at.START]
        keys[slot, at.START], keys[slot, at.CAPACITY] = target, keys[slot, at.LENGTH]
        for entry in range(start, start + keys[slot, at.LENGTH]):
            to[target, at.WORD], to[target, at.VALUE] = entries[entry, at.WORD], entries[entry, at.VALUE]
            target += 1
    return target


@kernel
def trim_entries(keys: I64, entries: I64, bound: int) -> None:
    """Drop the first entries of all keys, up to a time."""
    for slot in range(keys.shape[0]):
        while keys[slot, at.LENGTH] > 0 and entries[keys[slot, at.START], at.WORD] >> 1 < bound:
            keys[slot, at.START] += 1
            keys[slot, at.LENGTH] -= 1
            keys[slot, at.CAPACITY] -= 1


@kernel
def begin_windows(
    time_us: I64, segments: I64, length_us: int, offset_us: int, is_days: bool, begins: I64
) -> None:
    """Write when the tumbling window of each event starts.

    Parameters
    ----------
    time_us : (n,) int64
        The times of the events; fast if they mostly ascend.
    segments : (segments, 4) int64
        Stretches in which the clocks of a zone run steadily, ascending: the first time, how far the clocks
        are ahead of UTC, the start of the window that contains this time, the greatest number of a window
        before it.
    length_us, offset_us : int
        Those of `Window`, in microseconds.
    is_days : bool
        Whether a window is not divided when clocks that are set back show its start a second time.
    begins : (n,) int64
        Written.
    """
    segment, begin, end = 0, 0, 0  # the window of an event, and how long it lasts at least
    for place in range(time_us.shape[0]):
        time = time_us[place]
        if time < begin or time >= end:
            while segment > 0 and time < segments[segment, 0]:
                segment -= 1
            while segment + 1 < segments.shape[0] and time >= segments[segment + 1, 0]:
                segment += 1
            number = (time + segments[segment, 1] - offset_us) // length_us
            begin = number * length_us + offset_us - segments[segment, 1]
            end = begin + length_us
            if begin < segments[segment, 0] or (is_days and number <= segments[segment, 3]):
                begin = segments[segment, 2]
            if segment + 1 < segments.shape[0]:
                end = min(end, segments[segment + 1, 0])
        begins[place] = begin


@kernel
def scatter(values: I64, rows: I64, to: I64) -> None:
    """Copy values to some rows.

    Parameters
    ----------
    values : (n,) int64
        The values.
    rows : (n,) int64
        Rows of `to`, each at most once.
    to : (m,) int64
        Written at `rows`.
    """
    for place in range(rows.shape[0]):
        to[rows[place]] = values[place]


@kernel
def gather_marks(marks: U8, rows: I64, to: U8) -> None:
    """Copy the marks of some rows.

    Parameters
    ----------
    marks : (m,) uint8
        The marks.
    rows : (n,) int64
        Rows of `marks`.
    to : (n,) uint8
        ``marks[rows]``; written.
    """
    for place in range(rows.shape[0]):
        to[place] = marks[rows[place]]


@kernel
def scatter_marks(marks: U8, rows: I64, to: U8) -> None:
    """Copy marks to some rows.

    Parameters
    ----------
    marks : (n,) uint8
        The marks.
    rows : (n,) int64
        Rows of `to`, each at most once.
    to : (m,) uint8
        Written at `rows`.
    """
    for place in range(rows.shape[0]):
        to[rows[place]] = marks[place]
