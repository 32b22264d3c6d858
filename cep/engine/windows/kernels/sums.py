"""COUNT, SUM, AVG, VARIANCE and STDDEV."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import (
    SCALE,
    add_digits,
    add_square,
    as_double,
    bits_of,
    carry_over,
    digits_of,
    is_special,
    rounded_to_odd,
    scaled,
    spread,
    spread_of_four,
    total,
)
from cep.engine.windows.kernels.frames import make_segment
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Results, Ring, Sums

NUMBER, CHUNKS, SPECIAL, OF_TOTALS, OF_SQUARES = 0, 1, 2, 16, 256
"""Words of the entries that sums are kept as. Chunk k of the sum is OF_TOTALS + k."""

MOST_KEPT = 5 + at.N_TOTALS + at.N_SQUARES

_NAN = 0x7FF8 << 48
_DIGIT = 0xFFFF_FFFF
_FRACTION = (1 << 52) - 1


@inlined
def clear_sums(sums: Sums, low: int, high: int) -> None:
    """Set sums to zero."""
    for chunk in range(low, high + 1):
        sums.totals[chunk] = 0
    for chunk in range(2 * low, 2 * high + 2):
        sums.squares[chunk] = 0
    for kind in range(3):
        sums.special[kind] = 0


@inlined
def load_sums(ring: Ring, slot: int, sums: Sums) -> tuple[int, int, int]:
    """Return the number of values and the first and last chunk of what a key kept.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left: sums.
    sums : Sums
        Zeros; written.
    """
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
    """Write an entry, permanently unless its value is 0."""
    ring.entries[target, at.WORD] = word
    ring.entries[target, at.VALUE] = value
    return target + (1 if value != 0 else 0)


@inlined
def store_sums(ring: Ring, slot: int, sums: Sums, n: int, low: int, high: int) -> None:
    """Keep the sums of a key.

    Parameters
    ----------
    ring : Ring
        Changed. After the last entry there is room for MOST_KEPT more.
    sums : Sums
        The sums to keep.
    """
    n_entries = 0
    if n > 0:
        if high >= 0:  # the uppermost chunks have room for the carry
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
        if n_entries > ring.keys[slot, at.CAPACITY]:  # they remain where they are
            make_segment(ring, slot, n_entries)
        else:
            target = ring.keys[slot, at.START]
            for entry in range(n_entries):
                ring.entries[target + entry, at.WORD] = ring.entries[start + entry, at.WORD]
                ring.entries[target + entry, at.VALUE] = ring.entries[start + entry, at.VALUE]
    ring.keys[slot, at.LENGTH] = n_entries


@inlined
def add_value(sums: Sums, value: int, is_double: bool, with_squares: bool, step: int) -> int:
    """Add or remove a value; return its chunk, or -1 if it has none.

    Parameters
    ----------
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
    """Return the sum as a double."""
    nans, positive, negative = sums.special[0], sums.special[1], sums.special[2]
    if nans + positive + negative > 0:
        if nans > 0 or (positive > 0 and negative > 0):
            return as_double(_NAN)
        return as_double((0x7FF if positive > 0 else -1) << 52)
    return total(sums, low, high, scale) if high >= 0 else 0.0


@inlined
def _double_sum(sums: Sums, low: int, high: int, scale: int) -> float:
    """Return the sum as a double, like `sum_of`. A sum of numbers of similar size stays in registers."""
    if high - low > 3 or high < 0 or sums.special[0] + sums.special[1] + sums.special[2] > 0:
        return sum_of(sums, low, high, scale)
    totals = sums.totals
    a = totals[low]
    b = totals[low + 1] + (a >> 32)
    c = totals[low + 2] + (b >> 32)
    head, exponent = totals[low + 3] + (c >> 32), 96
    a, b, c = a & _DIGIT, b & _DIGIT, c & _DIGIT
    while exponent > 0 and -0x8000_0000 <= head < 0x8000_0000:
        head, c, b, a = head << 32 | c, b, a, 0
        exponent -= 32
    if exponent > 0:
        head, exponent = rounded_to_odd(head, exponent, c, b | a)
    return scaled(np.float64(head), exponent + 32 * low + scale)


@inlined
def _integer_sum(totals: I64) -> tuple[int, bool]:
    """Return the sum of integers, and whether it fits into 64 bits."""
    middle = totals[1] + (totals[0] >> 32)
    above = totals[2] + (middle >> 32) + (totals[3] << 32)
    return middle << 32 | totals[0] & _DIGIT, above == -(middle >> 31 & 1)


@inlined
def root_of(value: float, exponent: int) -> float:
    """Return the square root of a number.

    Parameters
    ----------
    value : float
        The number without a factor, a power of two.
    exponent : int
        The exponent of this factor.
    """
    if exponent & 1 != 0:
        value *= 2.0
    return scaled(np.sqrt(value), exponent >> 1)


@inlined
def variance_of(sums: Sums, low: int, high: int, scale: int, n: int, is_root: bool) -> float:
    """Return the variance of at least two values, or its root.

    Parameters
    ----------
    is_root : bool
        Whether to return the root.
    """
    if sums.special[0] + sums.special[1] + sums.special[2] > 0:
        return as_double(_NAN)
    if high < 0:
        return 0.0
    # Numbers of similar size have four chunks. An event then takes 60 ns instead of 100.
    head, exponent = spread_of_four(sums, low, n) if high - low <= 3 else spread(sums, low, high, n)
    exponent += 2 * scale
    value = np.float64(head) / (np.float64(n) * np.float64(n - 1))
    return root_of(value, exponent) if is_root else scaled(value, exponent)


@inlined
def reads_double(functions: I64, is_double: bool) -> bool:
    """Return whether some function needs the sum as a double."""
    found = False
    for function in functions:
        found |= function == at.AVG or (is_double and function == at.SUM)
    return found


@inlined
def write_results(results: Results, place: int, sums: Sums, n: int, low: int, high: int) -> None:
    """Write the functions of the sums of a window: one case for each function.

    Parameters
    ----------
    results : Results
        The columns; written at `place`.
    sums : Sums
        The sums of its window.
    """
    scale = SCALE if results.is_double else 0
    double_sum = _double_sum(sums, low, high, scale) if results.with_double and n > 0 else 0.0
    for column in range(results.functions.shape[0]):
        function, result, is_known = results.functions[column], n, n > 0
        if function == at.COUNT:
            is_known = True
        elif function == at.AVG:
            result = bits_of(double_sum / max(n, 1))
        elif function == at.SUM and results.is_double:
            result = bits_of(double_sum)
        elif function == at.SUM:
            result, fits = _integer_sum(sums.totals)
            is_known = is_known and fits
        else:
            is_known = n > 1
            if is_known:
                result = bits_of(variance_of(sums, low, high, scale, n, function == at.STDDEV))
        results.out[column, place] = result
        results.known[column, place] = is_known


@inlined
def add_within(
    sums: Sums, value: int, is_double: bool, with_squares: bool, low: int, high: int
) -> tuple[int, int]:
    """Add a value; return the first and the last chunk.

    Parameters
    ----------
    low, high : int
        The first and the last chunk so far.
    """
    chunk = add_value(sums, value, is_double, with_squares, 1)
    if chunk >= 0:
        return min(low, chunk), max(high, chunk + 2)
    return low, high


@inlined
def _remove_values(ring: Ring, frames: Frames, sums: Sums, begin: int, first: int) -> int:
    """Remove the values of the entries from `begin` to before `first`; return their number."""
    is_double, summed = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.SUMMED]
    n = 0
    for entry in range(begin, first):
        is_known = frames.words[entry] & 1
        n += is_known
        if summed != at.NO_VALUES and is_known != 0:
            add_value(sums, frames.values[entry], is_double, summed == at.SQUARES, -1)
    return n


@kernel
def sum_windows(
    ring: Ring, batch: KeyedBatch, frames: Frames, sums: Sums, functions: I64, out: I64, known: U8, keys: I64
) -> int:
    """Write the functions of the sums of windows. Return the first key for which `ring` has no room: continue
    with this key.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left. If it keeps sums, they are written.
    sums : Sums
        Room.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG, VARIANCE, STDDEV.
    keys : (3,) int64
        The first key in `frames`, the first one to compute, and the one after the last.
    """
    is_double, keeps_sums = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.KEPT] == at.SUMS
    with_totals, with_squares = ring.spec[at.SUMMED] != at.NO_VALUES, ring.spec[at.SUMMED] == at.SQUARES
    results = Results(functions, out, known, is_double, reads_double(functions, is_double))
    block = batch.starts[keys[0]]
    for key in range(keys[1], keys[2]):
        if keeps_sums and ring.meta[0] + 2 * MOST_KEPT > ring.entries.shape[0]:
            return key
        base = frames.bases[key - keys[0]]
        begin = end = base
        n, low, high = 0, at.N_TOTALS, -1
        behind = batch.starts[key + 1]
        for place in range(batch.starts[key], behind + keeps_sums):
            if place == behind:  # what is kept includes the last event, whether or not its own window did
                first, last = frames.ends[key - keys[0], 0], frames.ends[key - keys[0], 1]
            else:
                first, last = frames.first[place - block], frames.last[place - block]
            if first >= end:
                clear_sums(sums, low, high)
                n, low, high = 0, at.N_TOTALS, -1
                begin = end = first
            n -= _remove_values(ring, frames, sums, begin, first)
            begin = max(begin, first)
            while end < last:
                is_known = frames.words[end] & 1
                if keeps_sums and end == base:
                    n, low, high = load_sums(ring, batch.slots[key], sums)
                else:
                    n += is_known
                    if with_totals and is_known != 0:
                        low, high = add_within(sums, frames.values[end], is_double, with_squares, low, high)
                end += 1
            if place < behind:
                write_results(results, place, sums, n, low, high)
        if keeps_sums:
            store_sums(ring, batch.slots[key], sums, n, low, high)
        clear_sums(sums, low, high)
    return keys[2]
