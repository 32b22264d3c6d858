"""Sums over windows, including those of squares, as differences of sums from the start of a block.

No event needs a loop over the entries that leave and enter, whose length the processor cannot predict. This
method is for finite numbers of similar size, as most are. `sums.py` handles the others.

A number is counted in units and split into two halves: ``upper * 2**low_bits + lower``. So is a sum of
numbers. Each half of a sum is a double without rounding, so adding the two as doubles rounds the exact sum
once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import bit_length, bits_of, halves_of, leading_of, power_of_two, scaled
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Results, Ring, Sums
from cep.engine.windows.kernels.sums import OF_TOTALS, clear_sums, load_sums, root_of, store_sums
from cep.jit.wide import add_square, less, spread

MOST_OF_HALVES = 24
"""Entries that are room enough for a sum of two halves: there and, in the worst case, behind all others."""

_DIGIT = 0xFFFF_FFFF
_FRACTION = (1 << 52) - 1
_SPECIAL = 0x7FF
_GREATEST = 1900
"""The greatest exponent of doubles whose sums do not overflow."""
_MOST_GROWTH = 24
"""A sum may have this many bits more than a value: it is a sum of fewer than 2**24 values."""
_BITS_OF_KEPT = 51
"""Bits of the upper half of a sum that was kept: with one of new values it is a double."""
_MOST_OF_SQUARES = 84
"""Bits by which a sum of squares may be longer than the square of a number of 53 bits: it has 192 at most."""


@inlined
def _most(frames: Frames, n_keys: int) -> int:
    """Return the largest number of entries of a key, which bounds that of a window; at least 1."""
    most = 1
    for key in range(n_keys):
        most = max(most, frames.ends[key, 1] - frames.bases[key])
    return most


@inlined
def _unit(frames: Frames, n_entries: int) -> tuple[int, int]:
    """Return the least and the greatest exponent of the nonzero doubles of a block."""
    least, greatest = _SPECIAL, 1
    for entry in range(n_entries):
        value = frames.values[entry]
        exponent = max(value >> 52 & _SPECIAL, 1)
        least = min(least, _SPECIAL if value << 1 == 0 else exponent)
        greatest = max(greatest, exponent)
    return least, greatest


@inlined
def _lowest_of_kept(ring: Ring, slot: int, least: int) -> int:
    """Return `least`, or the exponent whose unit is the lowest bit of what a key kept, if it is less."""
    start = ring.keys[slot, at.START]
    for entry in range(start, start + ring.keys[slot, at.LENGTH]):
        chunk, digit = ring.entries[entry, at.WORD] - OF_TOTALS, ring.entries[entry, at.VALUE]
        if chunk >= 0 and digit != 0:
            bit = 0
            while digit >> bit & 1 == 0:
                bit += 1
            least = min(least, 32 * chunk + bit + 1)
    return least


@inlined
def _halves_of_kept(
    ring: Ring, slot: int, sums: Sums, least: int, low_bits: int
) -> tuple[int, int, int, bool]:
    """Return the number of values that a key kept, the halves of their sum, and whether it has halves."""
    n, low, high = load_sums(ring, slot, sums)
    fits = sums.special[0] + sums.special[1] + sums.special[2] == 0
    upper = lower = 0
    for chunk in range(high, low - 1, -1):
        digit = sums.totals[chunk]
        place = 32 * chunk - (least - 1)  # the bit of the sum that is the lowest bit of the digit
        if place >= low_bits:
            fits = fits and abs(upper) < 1 << 30
            upper = (upper << 32) + digit
            if place < low_bits + 32:
                fits = fits and abs(upper) < 1 << _BITS_OF_KEPT - (place - low_bits)
                upper <<= place - low_bits
        elif place >= 0:
            upper += digit >> min(low_bits - place, 63)
            lower += digit << place & (1 << low_bits) - 1
        else:  # everything below the unit is 0
            lower += digit >> min(-place, 63)
    if high >= 0 and 32 * low - (least - 1) >= low_bits + 32:
        fits = fits and upper == 0
    clear_sums(sums, low, high)
    return n, upper + (lower >> low_bits), lower & (1 << low_bits) - 1, fits


@inlined
def _keep_halves(
    ring: Ring, slot: int, sums: Sums, n: int, upper: int, lower: int, least: int, low_bits: int
) -> None:
    """Keep a sum of two halves. After the last entry there is room for MOST_OF_HALVES entries."""
    low, high = at.N_TOTALS, -1
    if upper != 0 or lower != 0:
        low, shift = least - 1 >> 5, least - 1 & 31
        sums.totals[low] += lower << shift & _DIGIT
        sums.totals[low + 1] += lower >> (32 - shift) & _DIGIT
        sums.totals[low + 2] += lower >> (32 - shift) >> 32
        place = least - 1 + low_bits
        high, shift = (place >> 5) + 1, place & 31  # at least the second chunk above `low`
        sums.totals[high - 1] += upper << shift & _DIGIT
        upper >>= 32 - shift
        if abs(upper) > _DIGIT:
            sums.totals[high] += upper & _DIGIT
            upper >>= 32
            high += 1
        sums.totals[high] += upper
    store_sums(ring, slot, sums, n, low, high)
    clear_sums(sums, low, high)


class Halves(NamedTuple):
    """Sums from the start of a block."""

    prefixes: I64  # (m, 2) the upper half and the lower half
    low_bits: int
    unit: float  # the unit of the lower half
    above: float  # the unit of the upper half


@inlined
def _difference(halves: Halves, first: int, last: int) -> tuple[int, int]:
    """Return the halves of the sum of the entries from `first` to `last`. The lower one is positive."""
    lower = halves.prefixes[last, 1] - halves.prefixes[first, 1]
    upper = halves.prefixes[last, 0] - halves.prefixes[first, 0] + (lower >> halves.low_bits)
    return upper, lower & (1 << halves.low_bits) - 1


@inlined
def _write_sums(
    frames: Frames, halves: Halves, results: Results, block: int, start: int, end: int, base: int, n_kept: int
) -> None:
    """Write the columns of the events from `start` to `end`. The entry `base` represents several values."""
    out, known = results.out, results.known
    for column in range(results.functions.shape[0]):
        function = results.functions[column]
        for place in range(start, end):
            first, last = frames.first[place - block], frames.last[place - block]
            n = last - first
            if first == base and last > base:
                n += n_kept
            out[column, place], known[column, place] = n, n > 0
            if function == at.COUNT:
                known[column, place] = 1
                continue
            upper, lower = _difference(halves, first, last)
            if function == at.SUM and not results.is_double:
                result = upper << halves.low_bits | lower
                out[column, place] = result
                known[column, place] = n > 0 and upper == result >> halves.low_bits
                continue
            value = np.float64(upper) * halves.above + np.float64(lower) * halves.unit
            if function == at.AVG:
                value /= np.float64(max(n, 1))
            out[column, place] = bits_of(value)


@inlined
def _begin_sums(
    ring: Ring, batch: KeyedBatch, frames: Frames, sums: Sums, halves: Halves, least: int
) -> bool:
    """Write the sums from the start of the block; return whether what each key kept has halves.

    The words of what was kept become the numbers of its values. `least`: the exponent of the unit.
    """
    is_double, keeps_sums = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.KEPT] == at.SUMS
    prefixes, low_bits, n_keys = halves.prefixes, halves.low_bits, batch.slots.shape[0]
    n_entries = frames.ends[n_keys - 1, 1]
    upper = lower = key = 0
    for entry in range(n_entries):
        prefixes[entry, 0], prefixes[entry, 1] = upper, lower
        if keeps_sums and key < n_keys and entry == frames.bases[key]:
            n, one, other, fits = _halves_of_kept(ring, batch.slots[key], sums, least, low_bits)
            if not fits:
                return False
            frames.words[entry] = n
            key += 1
        else:
            one, other = halves_of(frames.values[entry], is_double, least, low_bits)
        upper += one
        lower += other
    prefixes[n_entries, 0], prefixes[n_entries, 1] = upper, lower
    return True


@kernel
def sum_by_prefixes(
    ring: Ring,
    batch: KeyedBatch,
    frames: Frames,
    sums: Sums,
    functions: I64,
    out: I64,
    known: U8,
    prefixes: I64,
) -> bool:
    """Write sums and averages of windows; return False, and write nothing, unless the numbers are finite and
    of similar size.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left. If it keeps sums, they are written; for each key there is room for
        MOST_OF_HALVES entries. Windows have no NULL.
    batch : KeyedBatch
        The events of only the keys in `frames`.
    frames : Frames
        Their windows. The words of kept entries are overwritten.
    sums : Sums
        Room.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG.
    prefixes : (m, 2) int64
        Room for two numbers for each entry and for one more; overwritten.
    """
    is_double, keeps_sums = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.KEPT] == at.SUMS
    n_keys, n_entries = batch.slots.shape[0], frames.ends[batch.slots.shape[0] - 1, 1]
    block, end = batch.starts[0], int(batch.starts[n_keys])
    growth = bit_length(_most(frames, n_keys)) + keeps_sums
    if growth > _MOST_GROWTH:
        return False
    # A sum of lower halves fits into 62 bits, and one of them is a double.
    low_bits = min(62 - growth, 52)
    least, unit = 1, 1.0
    if is_double:
        least, greatest = _unit(frames, n_entries)
        if keeps_sums:
            for key in range(n_keys):
                least = _lowest_of_kept(ring, batch.slots[key], least)
        if least == _SPECIAL:  # all numbers are 0, or one is not a number
            least = 1
        # A sum of upper halves is a double: it has 53 bits minus `low_bits`, and more for greater values. A
        # kept sum may be greater than all values.
        if max(greatest, least) > _GREATEST or greatest - least + growth >= low_bits:
            return False
        unit = power_of_two(least - 1075)
    halves = Halves(prefixes, low_bits, unit, unit * power_of_two(low_bits))
    if not _begin_sums(ring, batch, frames, sums, halves, least):
        return False
    results = Results(functions, out, known, is_double, False)
    if not keeps_sums:
        _write_sums(frames, halves, results, block, block, end, -1, 0)
        return True
    for key in range(n_keys):
        base = frames.bases[key]
        n_kept = frames.words[base] - 1
        _write_sums(frames, halves, results, block, batch.starts[key], batch.starts[key + 1], base, n_kept)
        first, last = frames.ends[key, 0], frames.ends[key, 1]
        upper, lower = _difference(halves, first, last)
        n = last - first + (n_kept if first == base else 0)
        _keep_halves(ring, batch.slots[key], sums, n, upper, lower, least, low_bits)
    return True


@kernel
def spread_by_prefixes(
    ring: Ring, batch: KeyedBatch, frames: Frames, functions: I64, out: I64, known: U8, prefixes: I64
) -> bool:
    """Write variances and standard deviations of windows that slide; return as `sum_by_prefixes`.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left: whole windows without NULL.
    batch : KeyedBatch
        The events of only the keys in `frames`.
    functions : (columns,) int64
        What each column is: VARIANCE, STDDEV.
    prefixes : (m, 5) int64
        Room for the halves of a sum and three words of a sum of squares, for each entry and for one more;
        overwritten.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
    n_keys = batch.slots.shape[0]
    n_entries = frames.ends[n_keys - 1, 1]
    block, end = batch.starts[0], batch.starts[n_keys]
    growth = bit_length(_most(frames, n_keys))
    low_bits = min(62 - growth, 52)
    least, scale = 1, 0
    if is_double:
        least, greatest = _unit(frames, n_entries)
        least = 1 if least == _SPECIAL else least
        n_bits = greatest - least
        if greatest > _GREATEST or n_bits + growth >= low_bits or 2 * n_bits + growth > _MOST_OF_SQUARES:
            return False
        scale = 2 * (least - 1075)
    if growth > _MOST_GROWTH:
        return False
    upper = lower = 0
    first, second, third = np.int64(0), np.int64(0), np.int64(0)
    for entry in range(n_entries):
        prefixes[entry, 0], prefixes[entry, 1] = upper, lower
        prefixes[entry, 2], prefixes[entry, 3], prefixes[entry, 4] = first, second, third
        one, other = halves_of(frames.values[entry], is_double, least, low_bits)
        upper += one
        lower += other
        first, second, third = add_square(one, other, low_bits, first, second, third)
    prefixes[n_entries, 0], prefixes[n_entries, 1] = upper, lower
    prefixes[n_entries, 2], prefixes[n_entries, 3], prefixes[n_entries, 4] = first, second, third
    for place in range(block, end):
        low, high = frames.first[place - block], frames.last[place - block]
        n = high - low
        value, is_zero = 0.0, True
        exponent = scale
        if n > 1:
            squares = less(
                prefixes[high, 2],
                prefixes[high, 3],
                prefixes[high, 4],
                prefixes[low, 2],
                prefixes[low, 3],
                prefixes[low, 4],
            )
            upper, lower = prefixes[high, 0] - prefixes[low, 0], prefixes[high, 1] - prefixes[low, 1]
            words = spread(n, upper, lower, low_bits, squares[0], squares[1], squares[2])
            is_zero = (words[0] | words[1] | words[2] | words[3]) == 0
            head, shift = leading_of(words[0], words[1], words[2], words[3], 0, 0)
            exponent += shift
            value = np.float64(head) / (np.float64(n) * np.float64(n - 1))
        for column in range(functions.shape[0]):
            result = 0.0
            if not is_zero:
                is_root = functions[column] == at.STDDEV
                result = root_of(value, exponent) if is_root else scaled(value, exponent)
            out[column, place], known[column, place] = bits_of(result), n > 1
    return True
