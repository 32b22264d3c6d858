"""Events by key, and the identity of events and keys."""

from __future__ import annotations

import numpy as np

from cep.arrays import I32, I64, U8, U64
from cep.engine.kernels.compiled import inlined, kernel
from cep.engine.kernels.registers import GOLDEN, ONE, ZERO, mix
from cep.jit.memory import prefetch
from cep.jit.texts import text_word


@inlined
def lowest_bit(word: int) -> int:
    """Return the number of the lowest bit of `word` that is set. At least one is."""
    bit = 0
    if word & 0xFFFFFFFF == 0:
        bit += 32
        word >>= 32
    if word & 0xFFFF == 0:
        bit += 16
        word >>= 16
    if word & 0xFF == 0:
        bit += 8
        word >>= 8
    if word & 0xF == 0:
        bit += 4
        word >>= 4
    if word & 0x3 == 0:
        bit += 2
        word >>= 2
    return bit + 1 - (word & 1)


@kernel
def pack_bits(truths: U8, n_bits: int, bits: I64) -> None:
    """Set bit b of each word where row b of `truths` holds.

    Parameters
    ----------
    truths : (n_bits or more, n) uint8
        1: the predicate holds.
    bits : (n,) int64
        Zeros; written.
    """
    for bit in range(n_bits):
        for row in range(bits.shape[0]):
            bits[row] |= np.int64(truths[bit, row]) << bit


@kernel
def clear_bit(holds: U8, bit: int, bits: I64) -> None:
    """Clear a bit of each word where a predicate does not hold.

    Parameters
    ----------
    holds : (n,) uint8
        0: it does not hold; otherwise 1.
    bit : int
        The number of the bit.
    bits : (n,) int64
        Changed.
    """
    for row in range(bits.shape[0]):
        bits[row] &= ~(np.int64(1 - holds[row]) << bit)


@kernel
def rows_with(bits: I64, mask: int, rows: I64) -> int:
    """List the rows that have one of the bits of `mask`; return their number.

    Parameters
    ----------
    mask : int
        The bits.
    rows : (n + 1,) int64
        The rows, in order; written.
    """
    # Every row is written, but the count grows only for rows that count: the processor has no branch to
    # mispredict.
    n = 0
    for row in range(bits.shape[0]):
        rows[n] = row
        n += bits[row] & mask != 0
    return n


@kernel
def gather(values: I64, rows: I64, to: I64) -> None:
    """Copy the values of some rows. Indexing with an array takes twice as long.

    Parameters
    ----------
    rows : (m,) int64
        Rows of `values`.
    to : (m,) int64
        ``values[rows]``; written.
    """
    for place in range(rows.shape[0]):
        to[place] = values[rows[place]]


@kernel
def write_hexadecimal(words: U64, text: U8) -> None:
    """Write 16 hexadecimal digits for each word.

    Parameters
    ----------
    words : (n,) uint64
        The words.
    text : (16 * n,) uint8
        ASCII; written.
    """
    for word in range(words.shape[0]):
        value = words[word]
        for place in range(15, -1, -1):
            digit = np.int64(value & np.uint64(15))
            text[16 * word + place] = digit + (48 if digit < 10 else 87)  # ASCII
            value >>= np.uint64(4)


@kernel
def count_keys(codes: I32, starts: I64) -> None:
    """Build a row pointer from the number of occurrences of each code.

    Parameters
    ----------
    starts : (keys + 1,) int64
        Zeros; written: the events of key c take places ``starts[c]`` to ``starts[c + 1]``.
    """
    for code in codes:
        starts[code + 1] += 1
    for code in range(starts.shape[0] - 1):
        starts[code + 1] += starts[code]


@kernel
def group_by_key(codes: I32, order: I64, starts: I64, grouped: I64) -> None:
    """Sort `order` by key: a counting sort, which is stable.

    Parameters
    ----------
    order : (n,) int64
        Rows of `codes`.
    starts : (keys + 1,) int64
        From `count_keys`; advanced.
    grouped : (n,) int64
        The sorted rows; written.
    """
    for row in order:
        code = codes[row]
        grouped[starts[code]] = row
        starts[code] += 1


@kernel
def number_keys(values: I64, lowest: int, codes: I32, first_rows: I64, places: I32) -> int:
    """Number the distinct `values` in order of their first rows; return how many there are.

    Parameters
    ----------
    codes : (n,) int32
        The number of each value; written.
    places : (highest - lowest + 1,) int32
        -1 everywhere; overwritten.
    """
    n = 0
    for row in range(values.shape[0]):
        place = values[row] - lowest
        if places[place] < 0:
            places[place] = n
            first_rows[n] = row
            n += 1
        codes[row] = places[place]
    return n


@inlined
def _hash_text(data: U8, start: int, end: int) -> np.uint64:
    """Return the hash FNV-1a (Fowler, Noll and Vo) of a string, mixed."""
    value = np.uint64(0xCBF29CE484222325)
    for at in range(start, end):
        value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
    return mix(value ^ np.uint64(end - start))


_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)

_TOGETHER = 128
"""So many texts are looked up together."""


@inlined
def _hash_words(data: U8, start: int, end: int) -> np.uint64:
    """Return a hash of a string for tables in memory. It is much faster than `_hash_text`.

    It may change between versions. Stored values and the places of keys use `_hash_text`.
    """
    value = GOLDEN ^ np.uint64(end - start)
    at = start
    while at < end:
        value = (value ^ text_word(data, start, at, end)) * _FACTOR
        value ^= value >> _HALF
        at += 8
    return mix(value)


@kernel
def hash_texts(offsets: I32, data: U8, hashes: U64) -> None:
    """Hash the strings of an Arrow array as `number_texts` does.

    Parameters
    ----------
    hashes : (n,) uint64
        Written.
    """
    for row in range(hashes.shape[0]):
        hashes[row] = _hash_words(data, offsets[row], offsets[row + 1])


@inlined
def _is_same_text(data: U8, start: int, end: int, other: int, other_end: int) -> bool:
    if other_end - other != end - start:
        return False
    at = start
    while at < end and text_word(data, start, at, end) == text_word(
        data, other, at - start + other, other_end
    ):
        at += 8
    return at >= end


@kernel
def number_texts(offsets: I32, data: U8, codes: I32, first_rows: I64, index: I64, hashes: U64) -> int:
    """Number the distinct strings of an Arrow array without NULL in order of first rows; return how many.

    They are found in an open-addressed hash table (linear probing: Knuth, The Art of Computer Programming 3,
    6.4). The places of several rows are fetched together. Arrow's own numbering takes twice as long if most
    strings differ, and equally long if few do.

    Parameters
    ----------
    codes : (n,) int32
        The number of each string; written.
    index : (2**k,) int64
        -1 everywhere, at least twice as long as there are rows; overwritten.
    hashes : (n,) uint64
        The hash of each number; written.
    """
    n, mask = 0, index.shape[0] - 1
    for first in range(0, codes.shape[0], _TOGETHER):
        last = min(first + _TOGETHER, codes.shape[0])
        for row in range(first, last):  # a number never exceeds its row, so none is overwritten too early
            hashes[row] = _hash_words(data, offsets[row], offsets[row + 1])
            prefetch(index, np.int64(hashes[row]) & mask)
        for row in range(first, last):
            hashed = np.int64(hashes[row])
            place, tag = hashed & mask, hashed >> 32 & 0x7FFF_FFFF
            entry = index[place]
            while entry >= 0:
                known = first_rows[entry & 0xFFFF_FFFF]
                if entry >> 32 == tag and _is_same_text(
                    data, offsets[row], offsets[row + 1], offsets[known], offsets[known + 1]
                ):
                    break
                place = (place + 1) & mask
                entry = index[place]
            if entry < 0:
                entry = tag << 32 | n
                index[place] = entry
                first_rows[n] = row
                hashes[n] = hashes[row]
                n += 1
            codes[row] = entry & 0xFFFF_FFFF
    return n


@kernel
def sort_digits(values: I64, other: I64, counts: I64, low: int, high: int) -> bool:
    """Sort `values` by their bits from `low` to `high`; return whether the result is in `other` instead.

    Each digit, from the lowest to the highest, is a counting sort (Knuth, The Art of Computer Programming 3,
    5.2.5). For 400,000 numbers of 31 bits that is 11 times as fast as numpy's sort.

    Parameters
    ----------
    values : (n,) int64
        The numbers, all at least 0; overwritten.
    other : (n,) int64
        Room for equally many numbers; overwritten.
    counts : (values of a digit,) int64
        Room for counts; its length, a power of two, is the size of a digit.
    low, high : int
        The first bit, and the bit after the last one.
    """
    source, target = values, other
    n_bits = lowest_bit(counts.shape[0])
    is_other = False
    for shift in range(low, high, n_bits):
        counts[:] = 0
        for place in range(source.shape[0]):
            counts[source[place] >> shift & (counts.shape[0] - 1)] += 1
        start = 0
        for digit in range(counts.shape[0]):
            count = counts[digit]
            counts[digit] = start
            start += count
        for place in range(source.shape[0]):
            value = source[place]
            digit = value >> shift & (counts.shape[0] - 1)
            target[counts[digit]] = value
            counts[digit] += 1
        source, target = target, source
        is_other = not is_other
    return is_other


@kernel
def list_codes(ends: I64, codes: I32) -> None:
    """Repeat each code so that code c ends at ``ends[c]``.

    Parameters
    ----------
    ends : (keys,) int64
        Where each code ends.
    codes : (n,) int32
        0 0 1 2 2 ...; written.
    """
    place = 0
    for code in range(ends.shape[0]):
        while place < ends[code]:
            codes[place] = code
            place += 1


@kernel
def mark_same(codes: I32, time_us: I64, same: U8) -> int:
    """Mark the events with the same key and time as the previous event; return how many.

    Parameters
    ----------
    same : (n,) uint8
        1: the same as for the previous event; written.
    """
    n_same = 0
    for place in range(codes.shape[0]):
        is_same = place > 0 and codes[place] == codes[place - 1] and time_us[place] == time_us[place - 1]
        same[place] = is_same
        n_same += is_same
    return n_same


@kernel
def hash_bytes(offsets: I32, data: U8, valid: U8, seeds: U64) -> None:
    """Mix every string of an Arrow array into `seeds` by FNV-1a (Fowler, Noll and Vo) over its bytes."""
    for row in range(seeds.shape[0]):
        value = _hash_text(data, offsets[row], offsets[row + 1]) if valid[row] else ZERO
        seeds[row] = mix(seeds[row] + GOLDEN) ^ value


@kernel
def hash_values(values: I64, valid: U8, seeds: U64) -> None:
    """Mix 64-bit values into `seeds`. NULL differs from every value.

    Parameters
    ----------
    values : (n,) int64
        Doubles by their bits.
    """
    for row in range(seeds.shape[0]):
        value = mix(np.uint64(values[row]) + GOLDEN) | ONE if valid[row] else ZERO
        seeds[row] = mix(seeds[row] + GOLDEN) ^ value
