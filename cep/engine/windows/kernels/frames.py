"""Finds which events are in the window of each event, and keeps what is needed of each key's last window."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Reads, Ring
from cep.jit.memory import prefetch

AHEAD = 12
"""So many keys ahead what a key kept is fetched: it lies anywhere."""

_GREATEST = (1 << 63) - 1
_INFINITY = 0x7FF << 52


@inlined
def sort_key(value: int, is_double: bool) -> int:
    """Return a number that orders cells like their values: NaN is the greatest double, -0.0 equals 0.0."""
    if not is_double:
        return value
    if value & _GREATEST > _INFINITY:
        return _GREATEST
    if value >= 0:
        return value
    return -(value & _GREATEST)


@inlined
def counts(reads: Reads, place: int) -> bool:
    """Return whether the value of an event counts, and is known."""
    return (reads.counting.shape[0] == 0 or reads.counting[place] != 0) and (
        reads.known.shape[0] == 0 or reads.known[place] != 0
    )


@inlined
def window_start(spec: I64, words: I64, low: int, size: int, mark: int, time_us: int, begin_us: int) -> int:
    """Return the first entry in the window of an event.

    Parameters
    ----------
    spec : (N_SPEC,) int64
        `Ring.spec`.
    words : (entries,) int64
        `Frames.words`.
    low : int
        The first entry in the window of the previous event.
    size : int
        The number of entries so far, without this event.
    mark : int
        Like the column MARK. For the last n events: including this event if its own window contains it.
    time_us : int
        The time of the event.
    begin_us : int
        The start of its tumbling window.
    """
    frame = spec[at.FRAME]
    if frame == at.ALL:
        return low
    if frame == at.SESSION:
        return size if time_us - mark > spec[at.SPAN] else low
    bound = begin_us
    if frame == at.TIME:
        bound = time_us - spec[at.SPAN]
    elif frame == at.EVENTS:
        bound = mark - spec[at.SPAN] + 1
    while low < size and words[low] >> 1 < bound:
        low += 1
    return low


@inlined
def make_segment(ring: Ring, slot: int, n: int) -> int:
    """Return where `n` entries of a key go; the caller has ensured that there is room, and writes them.

    Parameters
    ----------
    n : int
        The number of entries.
    """
    if n > ring.keys[slot, at.CAPACITY]:
        ring.keys[slot, at.START] = ring.meta[0]
        ring.keys[slot, at.CAPACITY] = n + (n >> 1)
        ring.meta[0] += n + (n >> 1)
    ring.keys[slot, at.LENGTH] = n
    return ring.keys[slot, at.START]


@inlined
def keep_entry(ring: Ring, frames: Frames, target: int, entry: int) -> int:
    """Keep an entry of a window; return where the next one goes.

    Parameters
    ----------
    target : int
        The place to write it.
    entry : int
        Its place in `frames`.
    """
    ring.entries[target, at.WORD] = frames.words[entry]
    ring.entries[target, at.VALUE] = frames.values[entry]
    return target + 1


@inlined
def _extremes_of_panes(ring: Ring, frames: Frames, low: int, size: int, target: int) -> int:
    """Return how many entries can be the least or the greatest of a window that starts with some pane.

    Among equal entries the first counts. If `target` is not negative, the last entry is written there and the
    others before it.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
    n, entry = 0, size - 1
    least_entry = greatest_entry = -1  # of all panes after this one
    least = greatest = 0
    while entry >= low:
        pane = frames.words[entry] >> 1
        low_entry = high_entry = entry
        low_key = high_key = sort_key(frames.values[entry], is_double)
        entry -= 1
        while entry >= low and frames.words[entry] >> 1 == pane:
            key = sort_key(frames.values[entry], is_double)
            if key <= low_key:
                low_entry, low_key = entry, key
            if key >= high_key:
                high_entry, high_key = entry, key
            entry -= 1
        # An entry with identical bits is reported by itself until it leaves.
        is_least = least_entry < 0 or low_key < least
        is_least |= low_key == least and frames.values[low_entry] != frames.values[least_entry]
        is_greatest = greatest_entry < 0 or high_key > greatest
        is_greatest |= high_key == greatest and frames.values[high_entry] != frames.values[greatest_entry]
        if is_least:
            least_entry, least = low_entry, low_key
        if is_greatest:
            greatest_entry, greatest = high_entry, high_key
        for later in range(2):
            kept = max(low_entry, high_entry) if later == 0 else min(low_entry, high_entry)
            is_kept = (kept == low_entry and is_least) or (kept == high_entry and is_greatest)
            if is_kept and (later == 0 or low_entry != high_entry):
                if target >= 0:
                    keep_entry(ring, frames, target - n, kept)
                n += 1
    return n


@inlined
def _keep_of_panes(ring: Ring, frames: Frames, slot: int, low: int, size: int) -> None:
    """Keep the part of a window that moves in steps which later events may see."""
    if ring.spec[at.KEPT] == at.PANE_EXTREMES:
        n = _extremes_of_panes(ring, frames, low, size, -1)
        _extremes_of_panes(ring, frames, low, size, make_segment(ring, slot, n) + n - 1)
        return
    start = max(size - ring.spec[at.N_LAST], low)
    n = size - start
    for entry in range(low, start):
        n += np.int64(entry == low or frames.words[entry] >> 1 != frames.words[entry - 1] >> 1)
    target = make_segment(ring, slot, n)
    for entry in range(low, size):
        if entry >= start or entry == low or frames.words[entry] >> 1 != frames.words[entry - 1] >> 1:
            target = keep_entry(ring, frames, target, entry)


@inlined
def keep_window(ring: Ring, frames: Frames, slot: int, low: int, size: int) -> None:
    """Keep those of the entries `low` to `size` that later events may see.

    Parameters
    ----------
    low, size : int
        The window of the key's last event, with this event.
    """
    kept = ring.spec[at.KEPT]
    start, n_last = low, ring.spec[at.N_LAST]
    if kept == at.PANE_EXTREMES or kept == at.PANE_FIRSTS:
        _keep_of_panes(ring, frames, slot, low, size)
        return
    if kept == at.EXTREMES and low < size:
        least = greatest = low
        is_double = ring.spec[at.IS_DOUBLE] != 0
        low_key = high_key = sort_key(frames.values[low], is_double)
        for entry in range(low + 1, size):
            key = sort_key(frames.values[entry], is_double)
            if key < low_key:
                least, low_key = entry, key
            elif key > high_key:
                greatest, high_key = entry, key
        target = make_segment(ring, slot, 1 if least == greatest else 2)
        target = keep_entry(ring, frames, target, min(least, greatest))
        if least != greatest:
            keep_entry(ring, frames, target, max(least, greatest))
        return
    has_first = 0
    if kept == at.LAST and size - low > n_last:
        start = size - n_last
        has_first = ring.spec[at.WITH_FIRST]
    target = make_segment(ring, slot, size - start + has_first)
    if has_first != 0:
        target = keep_entry(ring, frames, target, low)
    for entry in range(start, size):
        target = keep_entry(ring, frames, target, entry)


@kernel
def frame_events(  # noqa: C901, PLR0912, PLR0915 - the steps of a window
    ring: Ring, batch: KeyedBatch, reads: Reads, frames: Frames, first_key: int, last_key: int
) -> None:
    """Write the windows of the events of some keys, and keep what later events may see.

    State that is kept as SUMS has only one entry here, the first of its key. The entries of `ring` remain.

    Parameters
    ----------
    frames : Frames
        Written.
    first_key, last_key : int
        The keys, as numbers in `batch`.
    """
    frame, is_previous = ring.spec[at.FRAME], ring.spec[at.PREVIOUS] != 0
    keeps_sums, with_null = ring.spec[at.KEPT] == at.SUMS, ring.spec[at.WITH_NULL] != 0
    all_within, all_counting = reads.within.shape[0] == 0, reads.counting.shape[0] == 0
    all_known, has_values = reads.known.shape[0] == 0, reads.values.shape[0] > 0
    block = batch.starts[first_key]
    size = 0
    for key in range(first_key, last_key):
        if key + 2 * AHEAD < last_key:
            prefetch(ring.keys, batch.slots[key + 2 * AHEAD])
            if not keeps_sums:
                prefetch(ring.entries, ring.keys[batch.slots[key + AHEAD], at.START])
        slot = batch.slots[key]
        mark, low = ring.keys[slot, at.MARK], size
        frames.bases[key - first_key] = size
        if keeps_sums:
            frames.words[size] = 2 * mark + 1
            frames.values[size] = 0
            size += 1
        else:
            start = ring.keys[slot, at.START]
            for entry in range(start, start + ring.keys[slot, at.LENGTH]):
                frames.words[size] = ring.entries[entry, at.WORD]
                frames.values[size] = ring.entries[entry, at.VALUE]
                size += 1
        for place in range(batch.starts[key], batch.starts[key + 1]):
            time_us, begin_us = batch.time_us[place], 0
            is_within = all_within or reads.within[place] != 0
            if frame == at.TUMBLING:
                begin_us = batch.begins_us[place]
                mark = begin_us
            if frame == at.EVENTS and is_within and not is_previous:
                mark += 1
            low = window_start(ring.spec, frames.words, low, size, mark, time_us, begin_us)
            before = size
            if frame == at.EVENTS and is_within and is_previous:
                mark += 1
            if frame == at.SESSION and is_within:
                mark = time_us
            if all_counting or reads.counting[place] != 0:
                is_known = all_known or reads.known[place] != 0
                if is_known or with_null:
                    moment = mark if frame == at.EVENTS else time_us
                    frames.words[size] = 2 * moment + np.int64(is_known)
                    frames.values[size] = reads.values[place] if has_values else 0
                    size += 1
                    if frame == at.TIME or frame == at.ALL:
                        mark = time_us
            frames.first[place - block] = low
            frames.last[place - block] = before if is_previous else size
            frames.own[place - block] = 0 if is_previous else size - before
        ring.keys[slot, at.MARK] = mark
        frames.ends[key - first_key, 0], frames.ends[key - first_key, 1] = low, size
        if not keeps_sums:
            keep_window(ring, frames, slot, low, size)
