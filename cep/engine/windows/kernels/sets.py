"""COUNT(DISTINCT x) and SEEN: only the latest event with each value counts and is kept."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.frames import make_segment, window_start
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Reads, Ring

_NAN = 0x7FF8 << 48
_MAGNITUDE = (1 << 63) - 1
_INFINITY = 0x7FF << 52
_DIGIT = 0xFFFF_FFFF
_ONE, _OTHER, _LAST = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D)
_U_DIGIT, _U_32 = np.uint64(_DIGIT), np.uint64(32)


@inlined
def _alike(value: int, is_double: bool) -> int:
    """Return the same number for equal values: NaN equals NaN, -0.0 equals 0.0."""
    if is_double:
        magnitude = value & _MAGNITUDE
        if magnitude == 0:
            return 0
        if magnitude > _INFINITY:
            return _NAN
    return value


@inlined
def _hash(value: int) -> int:
    """Return 32 bits that depend on all bits of `value`. No product has more than 64 bits."""
    mixed = np.uint64(value & _DIGIT) * _ONE ^ np.uint64(value >> 32 & _DIGIT) * _OTHER
    mixed = ((mixed ^ mixed >> _U_32) & _U_DIGIT) * _LAST
    return np.int64((mixed ^ mixed >> _U_32) & _U_DIGIT)  # type: ignore[return-value]


@inlined
def _place_of(table: I64, mask: int, values: I64, value: int) -> int:
    """Return where a table has the latest entry with a value, or where it would be."""
    place = _hash(value) & mask
    while table[place] >= 0 and values[table[place]] != value:
        place = (place + 1) & mask
    return place


@inlined
def _load_values(ring: Ring, frames: Frames, slot: int, table: I64, n: int) -> int:
    """Write the entries that a key kept, and a table of them with room for `n`; return the table's mask."""
    start, size = ring.keys[slot, at.START], ring.keys[slot, at.LENGTH]
    n_places = 4
    while n_places < 2 * (size + n):
        n_places *= 2
    table[:n_places] = -1
    for entry in range(size):
        frames.words[entry] = ring.entries[start + entry, at.WORD]
        frames.values[entry] = ring.entries[start + entry, at.VALUE]
        frames.own[entry] = 1
        table[_place_of(table, n_places - 1, frames.values, frames.values[entry])] = entry
    return n_places - 1


@inlined
def _keep_values(ring: Ring, frames: Frames, slot: int, low: int, size: int, n_distinct: int) -> None:
    """Keep the latest entry with each value."""
    target = make_segment(ring, slot, n_distinct)
    for entry in range(low, size):
        if frames.own[entry] != 0:
            ring.entries[target, at.WORD] = frames.words[entry]
            ring.entries[target, at.VALUE] = frames.values[entry]
            target += 1


@kernel
def set_windows(  # noqa: C901, PLR0912, PLR0915 - the steps of a window, as in `frame_events`
    ring: Ring, batch: KeyedBatch, reads: Reads, frames: Frames, table: I64, out: I64, known: U8, keys: I64
) -> None:
    """Write how many values each window has, and whether the value of its event is one of them.

    Parameters
    ----------
    frames : Frames
        Room for the entries of a key; `own` has room for a mark for each.
    table : (n,) int64
        Room for places: a power of two, at least twice the number of entries of a key.
    out : (2, n) int64
        By event, in order: the number of values, and whether the event's own value is one of them; written.
    known : (2, n) uint8
        1: no NULL; written.
    """
    spec, words, values, is_latest = ring.spec, frames.words, frames.values, frames.own
    frame, is_previous = spec[at.FRAME], spec[at.PREVIOUS] != 0
    is_double = spec[at.IS_DOUBLE] != 0
    all_within, all_counting = reads.within.shape[0] == 0, reads.counting.shape[0] == 0
    all_known = reads.known.shape[0] == 0
    for key in range(keys[0], keys[1]):
        slot = batch.slots[key]
        mark, size = ring.keys[slot, at.MARK], ring.keys[slot, at.LENGTH]
        mask = _load_values(ring, frames, slot, table, batch.starts[key + 1] - batch.starts[key])
        low, n_distinct = 0, size
        for place in range(batch.starts[key], batch.starts[key + 1]):
            time_us, begin_us = batch.time_us[place], 0
            is_within = all_within or reads.within[place] != 0
            if frame == at.TUMBLING:
                begin_us = batch.begins_us[place]
                mark = begin_us
            if frame == at.EVENTS and is_within and not is_previous:
                mark += 1
            next_low = window_start(spec, words, low, size, mark, time_us, begin_us)
            while low < next_low:
                n_distinct -= is_latest[low]
                low += 1
            if is_within and is_previous and frame == at.EVENTS:
                mark += 1
            if frame == at.SESSION and is_within:
                mark = time_us
            is_known = all_known or reads.known[place] != 0
            n_before, is_seen = n_distinct, False
            if is_known:
                value = _alike(reads.values[place], is_double)
                found = _place_of(table, mask, values, value)
                latest = table[found]
                is_seen = latest >= low
                if all_counting or reads.counting[place] != 0:
                    if latest >= low:
                        is_latest[latest] = 0
                    else:
                        n_distinct += 1
                    words[size] = 2 * (mark if frame == at.EVENTS else time_us) + 1
                    values[size] = value
                    is_latest[size] = 1
                    table[found] = size
                    size += 1
                    if frame == at.TIME or frame == at.ALL:
                        mark = time_us
                    if not is_previous:
                        is_seen = True
            out[0, place] = n_before if is_previous else n_distinct
            known[0, place] = 1
            out[1, place] = is_seen
            known[1, place] = is_known
        ring.keys[slot, at.MARK] = mark
        _keep_values(ring, frames, slot, low, size, n_distinct)
