"""COUNT, SUM and AVG of sliding windows: a sum for each key that continues from event to event.

The work for a batch does not grow with the contents of its windows: an entry is touched when it enters and
when it leaves. This method is for finite numbers of similar size, which have two halves (`prefixes.py`), and
for windows of at most `_MOST_ENTRIES`. For other keys the caller recomputes all windows.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import bit_length, bits_of, halves_of, power_of_two
from cep.engine.windows.kernels.frames import counts
from cep.engine.windows.kernels.layout import KeyedBatch, Reads, Results, Ring
from cep.jit.memory import prefetch

# More columns of `Ring.keys`. BASE: where the room of the key starts, before START. UPPER, LOWER: the halves
# of the sum of its entries. SCALE: in its lower 12 bits the exponent of the unit, above them the greatest
# allowed exponent; 0: neither BASE nor the sum is known.
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

_EXPONENT, _BITS_OF_EXPONENT = 0xFFF, 12
_SPECIAL = 0x7FF
_GREATEST = 1900
"""The greatest exponent of doubles of which no sum overflows."""

_AHEAD = 12
"""So many keys ahead what a key kept is fetched: it lies anywhere."""


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
def _sum_of(ring: Ring, start: int, length: int, is_double: bool, least: int) -> tuple[int, int]:
    """Return the halves of the sum of some entries."""
    upper = lower = 0
    for entry in range(start, start + length):
        upper, lower = _added(upper, lower, ring.entries[entry, at.VALUE], 1, is_double, least)
    return upper, lower


@inlined
def _leave(
    ring: Ring, entries: tuple[int, int], total: tuple[int, int], bound: int, least: int, is_summed: bool
) -> tuple[int, int, int, int]:
    """Drop the first entries, up to a bound, also from their sum if it is kept. Return the first entry, the
    number of entries, the halves of their sum.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
    start, length = entries
    upper, lower = total
    while length > 0 and ring.entries[start, at.WORD] >> 1 < bound:
        if is_summed:
            upper, lower = _added(upper, lower, ring.entries[start, at.VALUE], -1, is_double, least)
        start += 1
        length -= 1
    return start, length, upper, lower


@inlined
def _keep(ring: Ring, slot: int, entries: tuple[int, int], total: tuple[int, int], scale: int) -> None:
    """Write the state of a key: the first entry, the number of entries, the halves of their sum."""
    start, length = entries
    ring.keys[slot, at.CAPACITY] += ring.keys[slot, at.START] - start
    ring.keys[slot, at.START], ring.keys[slot, at.LENGTH] = start, length
    ring.keys[slot, UPPER], ring.keys[slot, LOWER] = total
    ring.keys[slot, SCALE] = scale


@inlined
def _make_room(ring: Ring, slot: int, start: int, length: int) -> int:
    """Make room for one more entry after those of a key; return where they then start.

    If half of its room is free, they move to its start. Otherwise the key gets room for twice as many; for
    the last key its own room grows.
    """
    base, end = ring.keys[slot, BASE], ring.keys[slot, at.START] + ring.keys[slot, at.CAPACITY]
    target = base
    if 2 * length > end - base or base == end:
        if end == ring.meta[0] and base < end:
            more = 2 * length + 2 - (end - base)
            ring.keys[slot, at.CAPACITY] += more
            ring.meta[0] += more
            return start
        target = ring.meta[0]
        ring.meta[0] += 2 * length + 2
        end = ring.meta[0]
    for entry in range(length):
        ring.entries[target + entry, at.WORD] = ring.entries[start + entry, at.WORD]
        ring.entries[target + entry, at.VALUE] = ring.entries[start + entry, at.VALUE]
    ring.keys[slot, BASE] = ring.keys[slot, at.START] = target
    ring.keys[slot, at.CAPACITY] = end - target
    return target


@inlined
def _begin_key(
    ring: Ring, batch: KeyedBatch, reads: Reads, key: int, batch_least: int, batch_greatest: int
) -> bool:
    """Give a key no entries before its first event, and a unit for its numbers; return whether there is one.

    Parameters
    ----------
    batch_least, batch_greatest : int
        The least and the greatest exponent of the values of the batch.
    """
    slot, first, last = batch.slots[key], batch.starts[key], batch.starts[key + 1]
    is_double, has_values = ring.spec[at.IS_DOUBLE] != 0, reads.values.shape[0] > 0
    scale = ring.keys[slot, SCALE]
    least, greatest = scale & _EXPONENT, scale >> _BITS_OF_EXPONENT
    bound = batch.time_us[first] - ring.spec[at.SPAN]
    if ring.spec[at.FRAME] == at.EVENTS:
        bound = ring.keys[slot, at.MARK] - ring.spec[at.SPAN] + 1
    entries = (ring.keys[slot, at.START], ring.keys[slot, at.LENGTH])
    total = (ring.keys[slot, UPPER], ring.keys[slot, LOWER])
    start, length, upper, lower = _leave(ring, entries, total, bound, least, has_values and scale != 0)
    if length == 0:  # which does not mean that all have left the sum
        upper, lower, least, greatest = 0, 0, _SPECIAL, 1
    if scale == 0:
        ring.keys[slot, BASE] = ring.keys[slot, at.START]
    if has_values:
        most = _most_spread(length + last - first)
        new_least, new_greatest = batch_least, batch_greatest
        if scale == 0 or not _fits(min(least, new_least), max(greatest, new_greatest), most):
            new_least, new_greatest = _range_of(reads, first, last, is_double)  # of this key only
        if scale == 0 or not _fits(min(least, new_least), max(greatest, new_greatest), most):
            # Values that have left may have been greater or less than all present ones.
            scale, least, greatest = 0, _SPECIAL, 1
            for entry in range(start, start + length):
                value = ring.entries[entry, at.VALUE]
                least, greatest = _range_with(value, is_double, least, greatest)
        is_lower = new_least < least
        least, greatest = min(least, new_least), max(greatest, new_greatest)
        if length + last - first > _MOST_ENTRIES or not _fits(least, greatest, most):
            _keep(ring, slot, (start, length), (0, 0), 0)
            return False
        if scale == 0 or is_lower:
            if _fits(min(least, batch_least), max(greatest, batch_greatest), most):
                least, greatest = min(least, batch_least), max(greatest, batch_greatest)
            least = _unit(least, greatest, most - 2)  # also with more entries
            upper, lower = _sum_of(ring, start, length, is_double, least)
    _keep(ring, slot, (start, length), (upper, lower), max(least, 1) | greatest << _BITS_OF_EXPONENT)
    return True


@inlined
def _write_results(results: Results, place: int, n: int, upper: int, lower: int, unit: float) -> None:
    """Write the functions of the sum of a window: one case for each function."""
    for column in range(results.functions.shape[0]):
        function = results.functions[column]
        results.out[column, place], results.known[column, place] = n, n > 0
        if function == at.COUNT:
            results.known[column, place] = 1
        elif function == at.SUM and not results.is_double:
            result = upper << _LOW_BITS | lower
            results.out[column, place] = result
            results.known[column, place] = n > 0 and upper == result >> _LOW_BITS
        else:
            value = np.float64(upper) * power_of_two(_LOW_BITS) * unit + np.float64(lower) * unit
            if function == at.AVG:
                value /= np.float64(max(n, 1))
            results.out[column, place] = bits_of(value)


@inlined
def _slide_key(ring: Ring, batch: KeyedBatch, reads: Reads, results: Results, key: int) -> None:
    """Write the columns of the events of a key, and keep what later events may see; there is room."""
    span, is_previous = ring.spec[at.SPAN], ring.spec[at.PREVIOUS] != 0
    is_events, is_double = ring.spec[at.FRAME] == at.EVENTS, results.is_double
    all_within, has_values = reads.within.shape[0] == 0, reads.values.shape[0] > 0
    slot = batch.slots[key]
    start, length, mark = ring.keys[slot, at.START], ring.keys[slot, at.LENGTH], ring.keys[slot, at.MARK]
    upper, lower, scale = ring.keys[slot, UPPER], ring.keys[slot, LOWER], ring.keys[slot, SCALE]
    least, end = scale & _EXPONENT, start + ring.keys[slot, at.CAPACITY]
    unit = power_of_two(least - 1075) if is_double else 1.0
    for place in range(batch.starts[key], batch.starts[key + 1]):
        time_us = batch.time_us[place]
        bound = time_us - span
        if is_events:
            is_within = all_within or reads.within[place] != 0
            bound = mark - span + 1
            mark += is_within
            if not is_previous:
                bound = mark - span + 1
        start, length, upper, lower = _leave(ring, (start, length), (upper, lower), bound, least, has_values)
        n, total, other = length, upper, lower
        if counts(reads, place):
            if start + length == end:
                start = _make_room(ring, slot, start, length)
                end = ring.keys[slot, at.START] + ring.keys[slot, at.CAPACITY]
            value = reads.values[place] if has_values else 0
            ring.entries[start + length, at.WORD] = 2 * (mark if is_events else time_us) + 1
            ring.entries[start + length, at.VALUE] = value
            length += 1
            if has_values:
                upper, lower = _added(upper, lower, value, 1, is_double, least)
            if not is_events:
                mark = time_us
        if not is_previous:
            n, total, other = length, upper, lower
        _write_results(results, place, n, total, other, unit)
    _keep(ring, slot, (start, length), (upper, lower), scale)
    ring.keys[slot, at.MARK] = mark


@kernel
def slide_windows(
    ring: Ring, batch: KeyedBatch, reads: Reads, functions: I64, out: I64, known: U8, progress: I64
) -> int:
    """Write counts, sums and averages of sliding windows, and keep what later events may see. Return DONE;
    NO_ROOM; OTHER_NUMBERS: those of the next key are not finite, differ in size, or are too many.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left: whole windows. Its keys have `SLIDING_WIDTH` columns.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG.
    progress : (2,) int64
        The number of keys that are done; if there is no room for the next one, the number of entries it may
        need.
    """
    is_double, n_keys = ring.spec[at.IS_DOUBLE] != 0, batch.slots.shape[0]
    results = Results(functions, out, known, is_double, False)
    least, greatest = _SPECIAL, 1
    if is_double and reads.values.shape[0] > 0:
        least, greatest = _range_of(reads, batch.starts[progress[0]], int(batch.starts[n_keys]), True)
    for key in range(progress[0], n_keys):
        if key + 2 * _AHEAD < n_keys:
            prefetch(ring.keys, batch.slots[key + 2 * _AHEAD])
            soon = batch.slots[key + _AHEAD]
            prefetch(ring.entries, ring.keys[soon, at.START])
            prefetch(ring.entries, ring.keys[soon, at.START] + ring.keys[soon, at.LENGTH])
        progress[0] = key
        if not _begin_key(ring, batch, reads, key, least, greatest):
            return OTHER_NUMBERS
        n_new = batch.starts[key + 1] - batch.starts[key]
        progress[1] = 2 * (ring.keys[batch.slots[key], at.LENGTH] + n_new) + 2
        if ring.meta[0] + progress[1] > ring.entries.shape[0]:
            return NO_ROOM
        _slide_key(ring, batch, reads, results, key)
    progress[0] = n_keys
    return DONE


@kernel
def slide_to(ring: Ring, bound: int) -> None:
    """Drop the first entries of all keys, up to a time, and subtract them from the sums.

    Parameters
    ----------
    ring : Ring
        Changed. Its keys have `SLIDING_WIDTH` columns.
    """
    for slot in range(ring.keys.shape[0]):
        if slot + _AHEAD < ring.keys.shape[0]:
            prefetch(ring.entries, ring.keys[slot + _AHEAD, at.START])
        start, length, scale = ring.keys[slot, at.START], ring.keys[slot, at.LENGTH], ring.keys[slot, SCALE]
        upper, lower = ring.keys[slot, UPPER], ring.keys[slot, LOWER]
        start, length, upper, lower = _leave(
            ring, (start, length), (upper, lower), bound, scale & _EXPONENT, scale != 0
        )
        _keep(ring, slot, (start, length), (upper, lower), scale)


@inlined
def room_of(length: int) -> int:
    """Return the number of entries for which a key gets room.

    Parameters
    ----------
    length : int
        The number of its entries.
    """
    return length + (length >> 1)


@kernel
def move_with_room(keys: I64, entries: I64, to: I64) -> int:
    """Move the entries of all keys, each with room for half as many more; return how much they use.

    Parameters
    ----------
    keys : (slots, SLIDING_WIDTH) int64
        `Ring.keys`; changed.
    entries : (capacity, 2) int64
        `Ring.entries`.
    to : (capacity, 2) int64
        Written.
    """
    target = 0
    for slot in range(keys.shape[0]):
        start, length = keys[slot, at.START], keys[slot, at.LENGTH]
        for entry in range(length):
            to[target + entry, at.WORD] = entries[start + entry, at.WORD]
            to[target + entry, at.VALUE] = entries[start + entry, at.VALUE]
        keys[slot, at.START] = keys[slot, BASE] = target
        keys[slot, at.CAPACITY] = room_of(length)
        target += room_of(length)
    return target
