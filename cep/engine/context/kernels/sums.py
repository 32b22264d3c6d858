"""COUNT, SUM, AVG, VARIANCE and STDDEV."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.context.kernels import layout as at
from cep.engine.context.kernels.compiled import inlined, kernel
from cep.engine.context.kernels.exact import (
    SCALE,
    add_digits,
    add_square,
    as_double,
    bits_of,
    carry_over,
    digits_of,
    is_special,
    scaled,
    spread,
    total,
)
from cep.engine.context.kernels.frames import make_segment
from cep.engine.context.kernels.layout import Batch, Frames, Ring, Sums

NUMBER, CHUNKS, SPECIAL, OF_TOTALS, OF_SQUARES = 0, 1, 2, 16, 256
"""Words of the entries that sums are kept as. Chunk k of the sum is OF_TOTALS + k."""

MOST_KEPT = 5 + at.N_TOTALS + at.N_SQUARES
MOST_OF_HALVES = 24
"""Entries that are room enough for a sum of two halves: there and, in the worst case, behind all others."""

_NAN = 0x7FF8 << 48
_DIGIT = 0xFFFF_FFFF
_FRACTION = (1 << 52) - 1
_SPECIAL = 0x7FF
_GREATEST = 1900
"""The greatest exponent of doubles of which no sum overflows."""
_MOST_GROWTH = 24
"""A sum may have so many bits more than a value: it is of less than 2**24."""
_BITS_OF_KEPT = 51
"""Bits of the upper half of a sum that was kept: with one of new values it is a double."""


@inlined
def clear_sums(sums: Sums, low: int, high: int) -> None:
    """Set sums to zero.

    Parameters
    ----------
    sums : Sums
        The sums of a key.
    low, high : int
        The first chunk and the last one of `sums.totals`.
    """
    for chunk in range(low, high + 1):
        sums.totals[chunk] = 0
    for chunk in range(2 * low, 2 * high + 2):
        sums.squares[chunk] = 0
    for kind in range(3):
        sums.special[kind] = 0


@inlined
def _load(ring: Ring, slot: int, sums: Sums) -> tuple[int, int, int]:
    """Return the number of values, the first chunk and the last one of what a key kept."""
    n, low, high = 0, at.N_TOTALS, -1
    start = ring.keys[slot, at.START]
    for entry in range(start, start + ring.keys[slot, at.LENGTH]):
        word, value = ring.entries[entry, at.WORD], ring.entries[entry, at.VALUE]
        if word == NUMBER:
            n = value
        elif word == CHUNKS:
            low, high = value >> 8, value & 255
        elif word < OF_TOTALS:
            sums.special[word - SPECIAL] = value
        elif word < OF_SQUARES:
            sums.totals[word - OF_TOTALS] = value
        else:
            sums.squares[word - OF_SQUARES] = value
    return n, low, high


@inlined
def _keep(ring: Ring, target: int, word: int, value: int) -> int:
    """Write an entry, for good unless its value is 0."""
    ring.entries[target, at.WORD] = word
    ring.entries[target, at.VALUE] = value
    return target + (1 if value != 0 else 0)


@inlined
def _store(ring: Ring, slot: int, sums: Sums, n: int, low: int, high: int) -> None:
    """Keep the sums of a key. Behind the last one there is room for MOST_KEPT entries."""
    n_entries = 0
    if n > 0:
        if high >= 0:  # the uppermost chunks have room for what is carried
            carry_over(sums.totals, low, high)
            carry_over(sums.squares, 2 * low, 2 * high + 1)
        start = ring.meta[0]
        target = _keep(ring, start, NUMBER, n)
        if high >= 0:
            target = _keep(ring, target, CHUNKS, low << 8 | high)
        for kind in range(3):
            target = _keep(ring, target, SPECIAL + kind, sums.special[kind])
        for chunk in range(low, high + 1):
            target = _keep(ring, target, OF_TOTALS + chunk, sums.totals[chunk])
        for chunk in range(2 * low, 2 * high + 2):
            target = _keep(ring, target, OF_SQUARES + chunk, sums.squares[chunk])
        n_entries = target - start
        if n_entries > ring.keys[slot, at.CAPACITY]:  # they stay where they are
            make_segment(ring, slot, n_entries)
        else:
            target = ring.keys[slot, at.START]
            for entry in range(n_entries):
                ring.entries[target + entry, at.WORD] = ring.entries[start + entry, at.WORD]
                ring.entries[target + entry, at.VALUE] = ring.entries[start + entry, at.VALUE]
    ring.keys[slot, at.LENGTH] = n_entries


@inlined
def add_value(sums: Sums, value: int, is_double: bool, with_squares: bool, step: int) -> int:
    """Add a value or remove it; return its chunk, or -1 if it has none.

    Parameters
    ----------
    sums : Sums
        The sums of a key.
    value : int
        The cell.
    is_double : bool
        Whether the cell has the bits of a double.
    with_squares : bool
        Whether sums of squares are needed.
    step : int
        1: it is added; -1: it is removed.
    """
    if is_double:
        if is_special(value):
            kind = 0 if value & _FRACTION != 0 else 1 if value > 0 else 2
            sums.special[kind] += step
            return -1
        if value << 1 == 0:
            return -1
    elif value == 0:
        return -1
    chunk, first, second, third, sign = digits_of(value, is_double)
    sign *= step
    add_digits(sums.totals, chunk, sign * first, sign * second, sign * third)
    if with_squares:
        add_square(sums.squares, chunk, first, second, third, step)
    return chunk


@inlined
def sum_of(sums: Sums, low: int, high: int, scale: int) -> float:
    """Return the sum as a double.

    Parameters
    ----------
    sums : Sums
        The sums of a key.
    low, high : int
        The first chunk and the last one of `sums.totals`; `high` is negative if all is zero.
    scale : int
        What their bits are worth.
    """
    nans, positive, negative = sums.special[0], sums.special[1], sums.special[2]
    if nans + positive + negative > 0:
        if nans > 0 or (positive > 0 and negative > 0):
            return as_double(_NAN)
        return as_double((0x7FF if positive > 0 else -1) << 52)
    return total(sums, low, high, scale) if high >= 0 else 0.0


@inlined
def _integer_sum(totals: I64) -> tuple[int, bool]:
    """Return the sum of integers, and whether it fits into 64 bits."""
    middle = totals[1] + (totals[0] >> 32)
    above = totals[2] + (middle >> 32)
    return middle << 32 | totals[0] & _DIGIT, above == -(middle >> 31 & 1)


@inlined
def variance_of(sums: Sums, low: int, high: int, scale: int, n: int, is_root: bool) -> float:
    """Return the variance of at least two values, or its root.

    Parameters
    ----------
    sums : Sums
        The sums of a key.
    low, high : int
        The first chunk and the last one of `sums.totals`; `high` is negative if all is zero.
    scale : int
        What their bits are worth.
    n : int
        The number of values.
    is_root : bool
        Whether the root is asked for.
    """
    if sums.special[0] + sums.special[1] + sums.special[2] > 0:
        return as_double(_NAN)
    if high < 0:
        return 0.0
    head, exponent = spread(sums, low, high, n)
    exponent += 2 * scale
    value = np.float64(head) / (np.float64(n) * np.float64(n - 1))
    if is_root:
        if exponent & 1 != 0:
            value *= 2.0
        value = np.sqrt(value)
        exponent >>= 1
    return scaled(value, exponent)


@kernel
def sum_windows(  # noqa: C901, PLR0912, PLR0915 - a case for each function
    ring: Ring, batch: Batch, frames: Frames, sums: Sums, functions: I64, out: I64, known: U8, keys: I64
) -> int:
    """Write what is computed of the sums of windows.

    Parameters
    ----------
    ring : Ring
        What earlier events left. If it keeps sums, they are written.
    batch : Batch
        The events.
    frames : Frames
        Their windows.
    sums : Sums
        Room.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG, VARIANCE, STDDEV.
    out : (columns, n) int64
        By event, in order; written.
    known : (columns, n) uint8
        1: no NULL; written.
    keys : (3,) int64
        The first key in `frames`, the first one to compute, and the one behind the last.

    Returns
    -------
    The key to go on with: for this one there is no room in `ring`.
    """
    is_double, keeps_sums = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.KEPT] == at.SUMS
    with_totals = with_squares = with_double = False
    for function in functions:
        with_totals |= function != at.COUNT
        with_squares |= function >= at.VARIANCE
        with_double |= function == at.AVG or (is_double and function == at.SUM)
    scale = SCALE if is_double else 0
    block = batch.starts[keys[0]]
    for key in range(keys[1], keys[2]):
        if keeps_sums and ring.meta[0] + 2 * MOST_KEPT > ring.entries.shape[0]:
            return key
        base = frames.bases[key - keys[0]]
        begin = end = base
        n, low, high = 0, at.N_TOTALS, -1
        behind = batch.starts[key + 1]
        for place in range(batch.starts[key], behind + keeps_sums):
            if place == behind:  # what is kept has the last event in it, whether or not its own window had
                first, last = frames.ends[key - keys[0], 0], frames.ends[key - keys[0], 1]
            else:
                first, last = frames.first[place - block], frames.last[place - block]
            if first >= end:
                clear_sums(sums, low, high)
                n, low, high = 0, at.N_TOTALS, -1
                begin = end = first
            while begin < first:
                if frames.words[begin] & 1 != 0:
                    n -= 1
                    if with_totals:
                        add_value(sums, frames.values[begin], is_double, with_squares, -1)
                begin += 1
            while end < last:
                if keeps_sums and end == base:
                    n, low, high = _load(ring, batch.slots[key], sums)
                elif frames.words[end] & 1 != 0:
                    n += 1
                    if with_totals:
                        chunk = add_value(sums, frames.values[end], is_double, with_squares, 1)
                        if chunk >= 0:
                            low, high = min(low, chunk), max(high, chunk + 2)
                end += 1
            if place == behind:
                break
            double_sum = sum_of(sums, low, high, scale) if with_double and n > 0 else 0.0
            for column in range(functions.shape[0]):
                function, result, is_known = functions[column], n, n > 0
                if function == at.COUNT:
                    is_known = True
                elif function == at.AVG:
                    result = bits_of(double_sum / max(n, 1))
                elif function == at.SUM:
                    if is_double:
                        result = bits_of(double_sum)
                    else:
                        result, fits = _integer_sum(sums.totals)
                        is_known = is_known and fits
                else:
                    is_known = n > 1
                    if is_known:
                        result = bits_of(variance_of(sums, low, high, scale, n, function == at.STDDEV))
                out[column, place] = result
                known[column, place] = is_known
        if keeps_sums:
            _store(ring, batch.slots[key], sums, n, low, high)
        clear_sums(sums, low, high)
    return keys[2]


@inlined
def _bit_length(value: int) -> int:
    """Return how many bits a whole number from 1 to 2**53 has."""
    return (bits_of(np.float64(value)) >> 52) - 1022


@inlined
def _power(exponent: int) -> float:
    """Return a power of two, from 2**-1074 to 2**1000."""
    return as_double(exponent + 1023 << 52) if exponent > -1023 else as_double(1 << exponent + 1074)


@inlined
def _unit(frames: Frames, n_entries: int) -> tuple[int, int]:
    """Return the least exponent of the doubles of a block that are not 0, and the greatest one."""
    least, greatest = _SPECIAL, 1
    for entry in range(n_entries):
        value = frames.values[entry]
        exponent = max(value >> 52 & _SPECIAL, 1)
        least = min(least, _SPECIAL if value << 1 == 0 else exponent)
        greatest = max(greatest, exponent)
    return least, greatest


@inlined
def _lowest_of_kept(ring: Ring, slot: int, least: int) -> int:
    """Return `least`, or the exponent whose unit is the lowest bit of what a key kept, if that is less."""
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
    n, low, high = _load(ring, slot, sums)
    fits = sums.special[0] + sums.special[1] + sums.special[2] == 0
    upper = lower = 0
    for chunk in range(high, low - 1, -1):
        digit = sums.totals[chunk]
        place = 32 * chunk - (least - 1)  # the bit of the sum that the lowest bit of the digit is
        if place >= low_bits:
            fits = fits and abs(upper) < 1 << 30
            upper = (upper << 32) + digit
            if place < low_bits + 32:
                fits = fits and abs(upper) < 1 << _BITS_OF_KEPT - (place - low_bits)
                upper <<= place - low_bits
        elif place >= 0:
            upper += digit >> min(low_bits - place, 63)
            lower += digit << place & (1 << low_bits) - 1
        else:  # what is below the unit is 0
            lower += digit >> min(-place, 63)
    if high >= 0 and 32 * low - (least - 1) >= low_bits + 32:
        fits = fits and upper == 0
    clear_sums(sums, low, high)
    return n, upper + (lower >> low_bits), lower & (1 << low_bits) - 1, fits


@inlined
def _keep_halves(
    ring: Ring, slot: int, sums: Sums, n: int, upper: int, lower: int, least: int, low_bits: int
) -> None:
    """Keep a sum that has two halves. Behind the last one there is room for MOST_OF_HALVES entries."""
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
    _store(ring, slot, sums, n, low, high)
    clear_sums(sums, low, high)


@inlined
def _halves(value: int, is_double: bool, least: int, low_bits: int) -> tuple[int, int]:
    """Return a number as ``upper * 2**low_bits + lower``; both halves have its sign, or `lower` is positive.

    A double counts in units: the lowest bit of a double with the exponent `least`.
    """
    if not is_double:
        return value >> low_bits, value & (1 << low_bits) - 1
    exponent, number = value >> 52 & _SPECIAL, value & _FRACTION
    if exponent != 0:
        number |= 1 << 52
    shift = max(exponent, 1) - least if number != 0 else 0
    sign = value >> 63  # 0 or -1
    upper, lower = number >> (low_bits - shift), number << shift & (1 << low_bits) - 1
    return (upper ^ sign) - sign, (lower ^ sign) - sign


@kernel
def sum_by_prefixes(  # noqa: C901, PLR0912, PLR0915 - what was kept, what comes, what is computed of both
    ring: Ring, batch: Batch, frames: Frames, sums: Sums, functions: I64, out: I64, known: U8, prefixes: I64
) -> bool:
    """Write sums and averages of windows, as differences of sums that begin with the block.

    For each event there is no loop over what leaves and what comes, of which the processor cannot guess how
    long it lasts. It is for numbers that are finite and of similar size. A sum of them has two halves, of
    which each is a double without rounding, so their sum as doubles is the exact sum, rounded once.

    Parameters
    ----------
    ring : Ring
        What earlier events left. If it keeps sums, they are written; for each key there is room for
        MOST_OF_HALVES entries. Windows have no NULL.
    batch : Batch
        The events of the keys in `frames` only.
    frames : Frames
        Their windows.
    sums : Sums
        Room.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG.
    out : (columns, n) int64
        By event, in order; written.
    known : (columns, n) uint8
        1: no NULL; written.
    prefixes : (m, 2) int64
        Room for two numbers of each entry and of one more; overwritten.

    Returns
    -------
    Whether the numbers are such ones. Otherwise nothing is written.
    """
    is_double, keeps_sums = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.KEPT] == at.SUMS
    n_keys = batch.slots.shape[0]
    n_entries = frames.ends[n_keys - 1, 1]
    block = batch.starts[0]
    longest = 1
    for place in range(batch.starts[n_keys] - block):
        longest = max(longest, frames.last[place] - frames.first[place])
    growth = _bit_length(longest) + keeps_sums
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
        if least == _SPECIAL:  # there is no number but 0, or one that is no number
            least = 1
        # A sum of upper halves is a double: it has 53 bits less `low_bits`, and more for greater values.
        if greatest > _GREATEST or greatest - least + growth >= low_bits:
            return False
        unit = _power(least - 1075)
    above = unit * _power(low_bits)
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
            one, other = _halves(frames.values[entry], is_double, least, low_bits)
        upper += one
        lower += other
    prefixes[n_entries, 0], prefixes[n_entries, 1] = upper, lower
    mask = (1 << low_bits) - 1
    for key in range(n_keys):
        base, n_kept = frames.bases[key], 0
        if keeps_sums:
            n_kept = frames.words[base] - 1
        for column in range(functions.shape[0]):
            function = functions[column]
            for place in range(batch.starts[key], batch.starts[key + 1]):
                first, last = frames.first[place - block], frames.last[place - block]
                lower = prefixes[last, 1] - prefixes[first, 1]
                upper = prefixes[last, 0] - prefixes[first, 0] + (lower >> low_bits)
                lower &= mask
                n = last - first
                if keeps_sums and first == base and last > base:
                    n += n_kept
                is_known = n > 0
                if function == at.COUNT:
                    result, is_known = n, True
                elif function == at.SUM and not is_double:
                    result = upper << low_bits | lower
                    is_known = is_known and upper == result >> low_bits
                else:
                    value = np.float64(upper) * above + np.float64(lower) * unit
                    result = bits_of(value if function == at.SUM else value / np.float64(max(n, 1)))
                out[column, place], known[column, place] = result, is_known
        if keeps_sums:
            first, last = frames.ends[key, 0], frames.ends[key, 1]
            lower = prefixes[last, 1] - prefixes[first, 1]
            upper = prefixes[last, 0] - prefixes[first, 0] + (lower >> low_bits)
            n = last - first + (n_kept if first == base else 0)
            _keep_halves(ring, batch.slots[key], sums, n, upper, lower & mask, least, low_bits)
    return True
