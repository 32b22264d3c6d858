"""COUNT, SUM and AVG of sliding windows: a sum for each key that continues from event to event.

The work for a batch does not grow with the contents of its windows: an entry is touched when it enters and
when it leaves. This method is for finite numbers of similar size, which have two halves (`prefixes.py`), and
for windows of at most `_MOST_ENTRIES`. For other keys the caller recomputes all windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import bit_length, bits_of, halves_of, power_of_two
from cep.engine.windows.kernels.frames import counts
from cep.engine.windows.kernels.layout import KeyedBatch, Reads, Ring
from cep.jit.memory import prefetch

# More columns of `Ring.keys`. BASE: where the room of the key starts, before START. UPPER, LOWER: the halves
# of the sum of its entries. SCALE: in its lower 12 bits the exponent of the unit, in the next 12 the greatest
# allowed exponent, above them how many entries, the last ones, the sum does not contain yet; 0: neither BASE
# nor the sum is known.
BASE, UPPER, LOWER, SCALE = range(at.KEY_WIDTH, at.KEY_WIDTH + 4)
SLIDING_WIDTH = at.KEY_WIDTH + 4

DONE, NO_ROOM, OTHER_NUMBERS = range(3)
"""Why `slide_windows` returns."""

_MOST_ENTRIES = 1 << 24
_LOW_BITS = 46
_LOW = (1 << _LOW_BITS) - 1
_MOST_GROWTH = 46
"""The bits by which a sum of upper halves may be longer than one of them, which has 53 less `_LOW_BITS`: some
for the exponents of a key's numbers, which differ, and some for how many there are. So it is a double."""

_EXPONENT, _BITS_OF_EXPONENT, _BITS_OF_SCALE = 0xFFF, 12, 24
_SCALE = (1 << _BITS_OF_SCALE) - 1
_SPECIAL = 0x7FF
_GREATEST = 1900
"""The greatest exponent of doubles whose sums do not overflow."""

_FEW_ENTRIES = 64
"""The sum of at most this many entries may be computed again when it is read. The sum of more is kept up to
date.
"""

_AHEAD = 8
"""What a key has kept is fetched this many keys ahead, because it may be anywhere in memory."""


class _Columns(NamedTuple):
    """The columns that are written, by event in order."""

    rows: tuple[int, int, int]  # the rows of COUNT, SUM and AVG; -1: not wanted
    out: I64  # (columns, n)
    known: U8  # (columns, n) 1: no NULL
    is_double: bool  # whether the values are doubles


_AT_ONCE = 16
"""Room is made for this many events of a key at once. Otherwise a key with very many events would need room
for all of them, although most leave its window soon.
"""


_SOME_ROOM = 16
"""Entries for which each key may keep room. The windows of many keys are empty between two batches."""


@inlined
def _most_spread(n: int) -> int:
    """Return how much the exponents of this many numbers may differ."""
    return _MOST_GROWTH - bit_length(n)


@inlined
def _unit(least: int, greatest: int, most: int) -> int:
    """Return the exponent of the unit for numbers with these exponents: in the middle of those that fit."""
    if least > greatest:  # all numbers are 0
        return 1
    return max(least - max((most - (greatest - least)) >> 1, 0), 1)


@inlined
def _range_with(value: int, is_double: bool, least: int, greatest: int) -> tuple[int, int]:
    """Return the least and the greatest exponent with those of one more value; 0 has none."""
    if not is_double or value << 1 == 0:
        return least, greatest
    exponent = max(value >> 52 & _SPECIAL, 1)
    return min(least, exponent), max(greatest, exponent)


@inlined
def _range_of(reads: Reads, first: int, last: int, is_double: bool) -> tuple[int, int]:
    """Return the least and the greatest exponent of the values of the events from `first` to `last`."""
    least, greatest = _SPECIAL, 1
    for place in range(first, last):
        if counts(reads, place):
            least, greatest = _range_with(reads.values[place], is_double, least, greatest)
    return least, greatest


@inlined
def _fits(least: int, greatest: int, most: int) -> bool:
    """Return whether numbers with these exponents are finite and of similar size."""
    return greatest <= _GREATEST and greatest - least <= most


@inlined
def _added(upper: int, lower: int, value: int, sign: int, is_double: bool, least: int) -> tuple[int, int]:
    """Return the halves of a sum after adding (`sign` 1) or removing (-1) a value. The lower is positive."""
    one, other = halves_of(value, is_double, least, _LOW_BITS)
    lower += sign * other
    return upper + sign * one + (lower >> _LOW_BITS), lower & _LOW


@inlined
def _sum_of(ring: Ring, start: int, end: int, is_double: bool, least: int) -> tuple[int, int]:
    """Return the halves of the sum of some entries."""
    upper = lower = 0
    for entry in range(start, end):
        upper, lower = _added(upper, lower, ring.entries[entry, at.VALUE], 1, is_double, least)
    return upper, lower


@inlined
def _leave(
    ring: Ring, entries: tuple[int, int], total: tuple[int, int], bound: int, least: int, is_double: bool
) -> tuple[int, int, int]:
    """Drop the first entries, up to a bound, also from their sum. Return the first entry, and the halves of
    their sum.

    `entries`: the first entry, and the one after the last.
    """
    start, end = entries
    upper, lower = total
    while start < end and ring.entries[start, at.WORD] >> 1 < bound:
        upper, lower = _added(upper, lower, ring.entries[start, at.VALUE], -1, is_double, least)
        start += 1
    return start, upper, lower


@inlined
def _first_within(ring: Ring, start: int, end: int, bound: int) -> int:
    """Drop the first entries, up to a bound; return the first entry."""
    while start < end and ring.entries[start, at.WORD] >> 1 < bound:
        start += 1
    return start


@inlined
def _leave_first(
    ring: Ring, entries: tuple[int, int, int], total: tuple[int, int], bound: int, least: int, is_double: bool
) -> tuple[int, int, int]:
    """As `_leave`, if a sum does not contain the last entries.

    `entries`: the first entry, the first one that the sum does not contain, and the one after the last.
    """
    start, added, end = entries
    start, upper, lower = _leave(ring, (start, added), total, bound, least, is_double)
    if start == added:
        start = _first_within(ring, start, end, bound)
    return start, upper, lower


@inlined
def _keep(ring: Ring, slot: int, entries: tuple[int, int], total: tuple[int, int], scale: int) -> None:
    """Write the state of a key: the first entry and the one after the last, the halves of their sum."""
    start, end = entries
    ring.keys[slot, at.CAPACITY] += ring.keys[slot, at.START] - start
    ring.keys[slot, at.START], ring.keys[slot, at.LENGTH] = start, end - start
    ring.keys[slot, UPPER], ring.keys[slot, LOWER] = total
    ring.keys[slot, SCALE] = scale


@inlined
def _make_room(ring: Ring, slot: int, n_new: int) -> None:
    """Make room for some more entries after those of a key.

    The entries move to the start of its room, if as many again fit beside the new ones. Otherwise the key
    gets more room; that of the last key grows.
    """
    base, start, length = ring.keys[slot, BASE], ring.keys[slot, at.START], ring.keys[slot, at.LENGTH]
    end = start + ring.keys[slot, at.CAPACITY]
    if start + length + n_new <= end:
        return
    target, wanted = base, 2 * length + n_new
    if base == end or wanted > end - base:
        if base == end or end != ring.meta[0]:
            target = ring.meta[0]
        end = ring.meta[0] = target + wanted + 2
    for entry in range(length if target != start else 0):
        ring.entries[target + entry, at.WORD] = ring.entries[start + entry, at.WORD]
        ring.entries[target + entry, at.VALUE] = ring.entries[start + entry, at.VALUE]
    ring.keys[slot, BASE] = ring.keys[slot, at.START] = target
    ring.keys[slot, at.CAPACITY] = end - target


@inlined
def _first_bound(ring: Ring, batch: KeyedBatch, key: int) -> int:
    """Return a bound for the entries of a key before its first event."""
    if ring.spec[at.FRAME] == at.EVENTS:
        return ring.keys[batch.slots[key], at.MARK] - ring.spec[at.SPAN] + 1
    return batch.time_us[batch.starts[key]] - ring.spec[at.SPAN]


@inlined
def _begin_counts(ring: Ring, batch: KeyedBatch, key: int) -> None:
    """Drop the entries of a key before its first event."""
    slot = batch.slots[key]
    start = ring.keys[slot, at.START]
    end = start + ring.keys[slot, at.LENGTH]
    if ring.keys[slot, SCALE] == 0:
        ring.keys[slot, BASE] = start
    _keep(ring, slot, (_first_within(ring, start, end, _first_bound(ring, batch, key)), end), (0, 0), 1)


@inlined
def _begin_sums(
    ring: Ring, batch: KeyedBatch, reads: Reads, key: int, batch_least: int, batch_greatest: int
) -> bool:
    """Drop the entries of a key before its first event, and choose a unit for its numbers; return whether
    there is one.

    Parameters
    ----------
    batch_least, batch_greatest : int
        The least and the greatest exponent of the values of the batch.
    """
    slot, first, last = batch.slots[key], batch.starts[key], batch.starts[key + 1]
    is_double = ring.spec[at.IS_DOUBLE] != 0
    scale = ring.keys[slot, SCALE] & _SCALE
    least, greatest = scale & _EXPONENT, scale >> _BITS_OF_EXPONENT
    bound = _first_bound(ring, batch, key)
    start = ring.keys[slot, at.START]
    end = start + ring.keys[slot, at.LENGTH]
    added = end - (ring.keys[slot, SCALE] >> _BITS_OF_SCALE)
    upper = lower = 0
    if scale != 0:
        total = (ring.keys[slot, UPPER], ring.keys[slot, LOWER])
        start, upper, lower = _leave_first(ring, (start, added, end), total, bound, least, is_double)
    else:
        start = _first_within(ring, start, end, bound)
        ring.keys[slot, BASE] = ring.keys[slot, at.START]
    added = max(start, added)
    if start == added:  # which does not mean that all have left the sum
        upper, lower, least, greatest = 0, 0, _SPECIAL, 1
    n = end - start + last - first
    most = _most_spread(n)
    new_least, new_greatest = batch_least, batch_greatest
    for entry in range(added, end):
        value = ring.entries[entry, at.VALUE]
        new_least, new_greatest = _range_with(value, is_double, new_least, new_greatest)
    if scale == 0 or not _fits(min(least, new_least), max(greatest, new_greatest), most):
        new_least, new_greatest = _range_of(reads, first, last, is_double)  # of this key only
        for entry in range(added, end):
            value = ring.entries[entry, at.VALUE]
            new_least, new_greatest = _range_with(value, is_double, new_least, new_greatest)
    if scale == 0 or not _fits(min(least, new_least), max(greatest, new_greatest), most):
        # Values that have left may have been greater or less than all present ones.
        scale, least, greatest = 0, _SPECIAL, 1
        for entry in range(start, end):
            least, greatest = _range_with(ring.entries[entry, at.VALUE], is_double, least, greatest)
    is_lower = new_least < least
    least, greatest = min(least, new_least), max(greatest, new_greatest)
    if n > _MOST_ENTRIES or not _fits(least, greatest, most):
        _keep(ring, slot, (start, end), (0, 0), 0)
        return False
    if scale == 0 or is_lower:
        if _fits(min(least, batch_least), max(greatest, batch_greatest), most):
            least, greatest = min(least, batch_least), max(greatest, batch_greatest)
        least = _unit(least, greatest, most - 2)  # also with more entries
        upper, lower = _sum_of(ring, start, end, is_double, least)
    elif added < end:
        one, other = _sum_of(ring, added, end, is_double, max(least, 1))
        lower += other
        upper, lower = upper + one + (lower >> _LOW_BITS), lower & _LOW
    _keep(ring, slot, (start, end), (upper, lower), max(least, 1) | greatest << _BITS_OF_EXPONENT)
    return True


@inlined
def _write_results(columns: _Columns, place: int, n: int, upper: int, lower: int, unit: float) -> None:
    """Write the functions of the sum of a window of n values."""
    out, known, (of_count, of_sum, of_avg) = columns.out, columns.known, columns.rows
    value = np.float64(upper) * power_of_two(_LOW_BITS) * unit + np.float64(lower) * unit
    if of_count >= 0:
        out[of_count, place], known[of_count, place] = n, 1
    if of_sum >= 0 and columns.is_double:
        out[of_sum, place], known[of_sum, place] = bits_of(value), n > 0
    elif of_sum >= 0:
        result = upper << _LOW_BITS | lower
        out[of_sum, place], known[of_sum, place] = result, n > 0 and upper == result >> _LOW_BITS
    if of_avg >= 0:
        out[of_avg, place], known[of_avg, place] = bits_of(value / np.float64(max(n, 1))), n > 0


@inlined
def _arrive(
    time_us: int, mark: int, span: int, is_events: bool, is_previous: bool, is_within: bool
) -> tuple[int, int, int]:
    """Return the bound of the window of an event, the time of the event, and the mark after it. If the window
    contains the last events, the times are numbers.
    """
    if not is_events:
        return time_us - span, time_us, mark
    after = mark + is_within
    return (mark if is_previous else after) - span + 1, after, after


@inlined
def _slide_sums(
    ring: Ring, batch: KeyedBatch, reads: Reads, columns: _Columns, slot: int, first: int, behind: int
) -> None:
    """Write the columns of events of a key, and keep what later events may see; there is room.

    `first`, `behind`: the first of the events and the one after the last.
    """
    is_events, is_previous = ring.spec[at.FRAME] == at.EVENTS, ring.spec[at.PREVIOUS] != 0
    span, is_double, all_within = ring.spec[at.SPAN], columns.is_double, reads.within.shape[0] == 0
    start, mark = ring.keys[slot, at.START], ring.keys[slot, at.MARK]
    end = start + ring.keys[slot, at.LENGTH]
    upper, lower, scale = ring.keys[slot, UPPER], ring.keys[slot, LOWER], ring.keys[slot, SCALE]
    least = scale & _EXPONENT
    unit = power_of_two(least - 1075) if is_double else 1.0
    for place in range(first, behind):
        is_within = all_within or reads.within[place] != 0
        bound, moment, mark = _arrive(batch.time_us[place], mark, span, is_events, is_previous, is_within)
        start, upper, lower = _leave(ring, (start, end), (upper, lower), bound, least, is_double)
        n, total, other = end - start, upper, lower
        if counts(reads, place):
            value = reads.values[place]
            ring.entries[end, at.WORD], ring.entries[end, at.VALUE] = 2 * moment + 1, value
            end += 1
            upper, lower = _added(upper, lower, value, 1, is_double, least)
            mark = moment
        if not is_previous:
            n, total, other = end - start, upper, lower
        _write_results(columns, place, n, total, other, unit)
    _keep(ring, slot, (start, end), (upper, lower), scale)
    ring.keys[slot, at.MARK] = mark


@inlined
def _slide_counts(
    ring: Ring, batch: KeyedBatch, reads: Reads, columns: _Columns, slot: int, first: int, behind: int
) -> None:
    """As `_slide_sums`, without sums."""
    is_events, is_previous = ring.spec[at.FRAME] == at.EVENTS, ring.spec[at.PREVIOUS] != 0
    span, all_within = ring.spec[at.SPAN], reads.within.shape[0] == 0
    start, mark = ring.keys[slot, at.START], ring.keys[slot, at.MARK]
    end = start + ring.keys[slot, at.LENGTH]
    for place in range(first, behind):
        is_within = all_within or reads.within[place] != 0
        bound, moment, mark = _arrive(batch.time_us[place], mark, span, is_events, is_previous, is_within)
        start = _first_within(ring, start, end, bound)
        n = end - start
        if counts(reads, place):
            ring.entries[end, at.WORD], ring.entries[end, at.VALUE] = 2 * moment + 1, 0
            end += 1
            mark = moment
        if not is_previous:
            n = end - start
        columns.out[0, place], columns.known[0, place] = n, 1
    _keep(ring, slot, (start, end), (0, 0), 1)
    ring.keys[slot, at.MARK] = mark


@inlined
def _has_room(ring: Ring, batch: KeyedBatch, key: int, has_values: bool) -> bool:
    """Return whether the events of a key fit after its entries. If they did not, drop entries first, and get
    some room; the sum of the remaining entries is computed again when it is needed.
    """
    slot, n_new = batch.slots[key], batch.starts[key + 1] - batch.starts[key]
    start, length = ring.keys[slot, at.START], ring.keys[slot, at.LENGTH]
    if length + n_new <= ring.keys[slot, at.CAPACITY]:
        return True
    if n_new > _AT_ONCE or length > _FEW_ENTRIES:
        return False
    if ring.meta[0] + 2 * (length + n_new) + 2 > ring.entries.shape[0]:
        return False
    end, scale = start + length, ring.keys[slot, SCALE]
    if scale == 0:
        ring.keys[slot, BASE], scale = start, 1
    first = _first_within(ring, start, end, _first_bound(ring, batch, key))
    if has_values and (first > start or ring.keys[slot, SCALE] == 0):
        scale = scale & _SCALE | end - first << _BITS_OF_SCALE
    _keep(ring, slot, (first, end), (ring.keys[slot, UPPER], ring.keys[slot, LOWER]), scale)
    _make_room(ring, slot, n_new)
    return True


@inlined
def _append(ring: Ring, batch: KeyedBatch, reads: Reads, key: int, has_values: bool) -> None:
    """Keep the events of a key; there is room. Its sum does not contain them."""
    slot, first, behind = batch.slots[key], batch.starts[key], batch.starts[key + 1]
    is_events, all_within = ring.spec[at.FRAME] == at.EVENTS, reads.within.shape[0] == 0
    start, mark = ring.keys[slot, at.START], ring.keys[slot, at.MARK]
    end = before = start + ring.keys[slot, at.LENGTH]
    for place in range(first, behind):
        moment = batch.time_us[place]
        if is_events:
            mark += all_within or reads.within[place] != 0
            moment = mark
        if counts(reads, place):
            ring.entries[end, at.WORD] = 2 * moment + 1
            ring.entries[end, at.VALUE] = reads.values[place] if has_values else 0
            end += 1
            mark = moment
    ring.keys[slot, at.LENGTH], ring.keys[slot, at.MARK] = end - start, mark
    if has_values and ring.keys[slot, SCALE] != 0:
        ring.keys[slot, SCALE] += end - before << _BITS_OF_SCALE


@kernel
def slide_windows(
    ring: Ring,
    batch: KeyedBatch,
    reads: Reads,
    wanted: U8,
    rows: I64,
    out: I64,
    known: U8,
    progress: I64,
) -> int:
    """Write counts, sums and averages of sliding windows, and keep what later events may see. Return DONE;
    NO_ROOM; OTHER_NUMBERS: those of the next key are not finite, differ in size, or are too many.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left: whole windows. Its keys have `SLIDING_WIDTH` columns.
    wanted : (keys,) uint8
        1: the results of the key are read. Those of others may not be written. Empty: all are read.
    rows : (3,) int64
        The rows of `out` for COUNT, SUM and AVG; -1: not wanted. Without values it is COUNT, in row 0.
    progress : (2,) int64
        The number of keys that are done; if there is no room for the next one, the number of entries it may
        need.
    """
    is_double, has_values = ring.spec[at.IS_DOUBLE] != 0, reads.values.shape[0] > 0
    n_keys = batch.slots.shape[0]
    columns = _Columns((rows[0], rows[1], rows[2]), out, known, is_double)
    least, greatest = _SPECIAL, 1
    if is_double and has_values and wanted.shape[0] == 0:
        least, greatest = _range_of(reads, batch.starts[progress[0]], int(batch.starts[n_keys]), True)
    for key in range(progress[0], n_keys):
        if key + 2 * _AHEAD < n_keys:
            prefetch(ring.keys, batch.slots[key + 2 * _AHEAD])
            soon = batch.slots[key + _AHEAD]
            prefetch(ring.entries, ring.keys[soon, at.START] + ring.keys[soon, at.LENGTH])
            if wanted.shape[0] == 0 or wanted[key + _AHEAD] != 0:
                prefetch(ring.entries, ring.keys[soon, at.START])
        progress[0] = key
        if key < wanted.shape[0] and wanted[key] == 0 and _has_room(ring, batch, key, has_values):
            _append(ring, batch, reads, key, has_values)
            continue
        if is_double and has_values and wanted.shape[0] != 0:
            least, greatest = _range_of(reads, batch.starts[key], batch.starts[key + 1], True)
        if not has_values:
            _begin_counts(ring, batch, key)
        elif not _begin_sums(ring, batch, reads, key, least, greatest):
            return OTHER_NUMBERS
        slot, end = batch.slots[key], batch.starts[key + 1]
        progress[1] = 2 * (ring.keys[slot, at.LENGTH] + end - batch.starts[key]) + 2
        if ring.meta[0] + progress[1] > ring.entries.shape[0]:
            return NO_ROOM
        for first in range(batch.starts[key], end, _AT_ONCE):
            behind = min(first + _AT_ONCE, end)
            _make_room(ring, slot, behind - first)
            if has_values:
                _slide_sums(ring, batch, reads, columns, slot, first, behind)
            else:
                _slide_counts(ring, batch, reads, columns, slot, first, behind)
    progress[0] = n_keys
    return DONE


@kernel
def slide_to(ring: Ring, bound: int) -> None:
    """Drop the first entries of all keys, up to a time, and subtract them from the sums. If windows contain
    the last events, drop what the next one does not see.

    Parameters
    ----------
    ring : Ring
        Changed. Its keys have `SLIDING_WIDTH` columns.
    """
    is_events = ring.spec[at.FRAME] == at.EVENTS
    for slot in range(ring.keys.shape[0]):
        if slot + _AHEAD < ring.keys.shape[0]:
            prefetch(ring.entries, ring.keys[slot + _AHEAD, at.START])
        start, scale = ring.keys[slot, at.START], ring.keys[slot, SCALE]
        end = start + ring.keys[slot, at.LENGTH]
        added = end - (scale >> _BITS_OF_SCALE)
        if is_events:
            bound = ring.keys[slot, at.MARK] - ring.spec[at.SPAN] + 1
        upper = lower = 0
        if scale != 0:
            total, is_double = (ring.keys[slot, UPPER], ring.keys[slot, LOWER]), ring.spec[at.IS_DOUBLE] != 0
            entries = (start, added, end)
            start, upper, lower = _leave_first(ring, entries, total, bound, scale & _EXPONENT, is_double)
            scale = scale & _SCALE | end - max(start, added) << _BITS_OF_SCALE
        else:
            start = _first_within(ring, start, end, bound)
        _keep(ring, slot, (start, end), (upper, lower), scale)


@inlined
def _kept_room(keys: I64, slot: int) -> int:
    """Return the number of entries for which a key gets room when the entries of all keys move: as before,
    unless it has much more room than entries.
    """
    start, length = keys[slot, at.START], keys[slot, at.LENGTH]
    base = keys[slot, BASE] if keys[slot, SCALE] != 0 else start
    room = start + keys[slot, at.CAPACITY] - base
    return room if room <= 4 * length + _SOME_ROOM else length + (length >> 1)


@kernel
def rooms_of(keys: I64) -> int:
    """Return how much `move_with_room` uses.

    Parameters
    ----------
    keys : (slots, SLIDING_WIDTH) int64
        `Ring.keys`.
    """
    n = 0
    for slot in range(keys.shape[0]):
        n += _kept_room(keys, slot)
    return n


@kernel
def move_with_room(keys: I64, order: I64, entries: I64, to: I64) -> int:
    """Move the entries of all keys, each to the start of its room; return how much they use.

    Parameters
    ----------
    keys : (slots, SLIDING_WIDTH) int64
        `Ring.keys`; changed.
    order : (slots,) int64
        The keys in the order of their entries in `entries`.
    entries : (capacity, 2) int64
        `Ring.entries`.
    to : (capacity, 2) int64
        Written; it may be `entries`, because no key gets more room than it has.
    """
    target = 0
    for slot in order:
        start, length = keys[slot, at.START], keys[slot, at.LENGTH]
        for entry in range(length):
            to[target + entry, at.WORD] = entries[start + entry, at.WORD]
            to[target + entry, at.VALUE] = entries[start + entry, at.VALUE]
        room = _kept_room(keys, slot)
        keys[slot, at.START] = keys[slot, BASE] = target
        keys[slot, at.CAPACITY] = room
        target += room
    return target
