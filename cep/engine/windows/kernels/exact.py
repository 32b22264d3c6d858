"""Exact sums of doubles and of their squares, rounded once: numbers of many digits in base 2**32.

A double is a whole number of at most 53 bits times a power of two. Divided at multiples of 32 bits, it
becomes three digits, which are added to three chunks of a sum. A chunk has 64 bits, so nothing is carried
until the sum is read (Neal, Fast Exact Summation Using Small and Large Superaccumulators, 2015). A value is
removed by subtracting its digits. So a sum depends only on the values that it contains.

The lowest bit of chunk k of a sum is worth 2**(32 * k + scale), that of a sum of squares 2**(32 * k + 2 *
scale). `scale` is `SCALE` for doubles and 0 for integers.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64
from cep.engine.windows.kernels.compiled import inlined
from cep.engine.windows.kernels.layout import Sums
from cep.jit.wide import leading_zeros, spread_of_chunks

SCALE = -1074
_DIGIT = 0xFFFF_FFFF
_FRACTION = (1 << 52) - 1
_SPECIAL = 0x7FF
_U_DIGIT, _U_32 = np.uint64(_DIGIT), np.uint64(32)


@inlined
def as_double(cell: int) -> float:
    """Return the double with the bits of a cell."""
    return np.int64(cell).view(np.float64)


@inlined
def bits_of(value: float) -> int:
    """Return the bits of a double."""
    return np.float64(value).view(np.int64)  # type: ignore[return-value]


@inlined
def is_special(cell: int) -> bool:
    """Return whether a double is infinite or NaN."""
    return cell >> 52 & _SPECIAL == _SPECIAL


@inlined
def bit_length(value: int) -> int:
    """Return the number of bits of a whole number from 1 to 2**53."""
    return (bits_of(np.float64(value)) >> 52) - 1022


@inlined
def power_of_two(exponent: int) -> float:
    """Return a power of two, from 2**-1074 to 2**1000."""
    return as_double(exponent + 1023 << 52) if exponent > -1023 else as_double(1 << exponent + 1074)


@inlined
def halves_of(value: int, is_double: bool, least: int, low_bits: int) -> tuple[int, int]:
    """Return a number as ``upper * 2**low_bits + lower``; both halves have its sign, or `lower` is positive.

    A double is counted in units of the lowest bit of a double with the exponent `least`.
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


@inlined
def digits_of(value: int, is_double: bool) -> tuple[int, int, int, int, int]:
    """Return the first chunk of a cell, its three digits, and 1 or -1. The double is finite."""
    if not is_double:
        if value >= 0:
            return 0, value & _DIGIT, value >> 32, 0, 1
        low, high = (~value & _DIGIT) + 1, ~value >> 32  # the magnitude of the least integer has 64 bits
        return 0, low & _DIGIT, high + (low >> 32), 0, -1
    exponent, number = value >> 52 & _SPECIAL, value & _FRACTION
    if exponent > 0:
        number |= 1 << 52
        exponent -= 1
    shift = exponent & 31
    upper = number >> 32 << shift | (number & _DIGIT) >> (32 - shift)
    return exponent >> 5, number << shift & _DIGIT, upper & _DIGIT, upper >> 32, -1 if value < 0 else 1


@inlined
def add_digits(chunks: I64, chunk: int, first: int, second: int, third: int) -> None:
    """Add three digits to a sum.

    Parameters
    ----------
    chunks : (chunks,) int64
        The sum; changed.
    chunk : int
        The chunk of the first digit.
    first, second, third : int
        The signed digits.
    """
    chunks[chunk] += first
    chunks[chunk + 1] += second
    chunks[chunk + 2] += third


@inlined
def _low(value: np.uint64) -> int:
    return np.int64(value & _U_DIGIT)  # type: ignore[return-value]


@inlined
def _high(value: np.uint64) -> int:
    return np.int64(value >> _U_32)  # type: ignore[return-value]


@inlined
def add_square(chunks: I64, chunk: int, first: int, second: int, third: int, sign: int) -> None:
    """Add the square of a number of three digits to a sum of squares, or remove it.

    Parameters
    ----------
    chunks : (chunks,) int64
        The sum; changed.
    chunk : int
        The chunk of the first digit in a sum of numbers.
    first, second, third : int
        The digits.
    sign : int
        1 or -1.
    """
    a, b, c = np.uint64(first), np.uint64(second), np.uint64(third)
    aa, ab, ac, bb, bc, cc = a * a, a * b, a * c, b * b, b * c, c * c
    at = 2 * chunk
    chunks[at] += sign * _low(aa)
    chunks[at + 1] += sign * (_high(aa) + 2 * _low(ab))
    chunks[at + 2] += sign * (2 * (_high(ab) + _low(ac)) + _low(bb))
    chunks[at + 3] += sign * (2 * (_high(ac) + _low(bc)) + _high(bb))
    chunks[at + 4] += sign * (2 * _high(bc) + _low(cc))
    chunks[at + 5] += sign * _high(cc)


@inlined
def carried(chunks: I64, low: int, high: int, digits: I64) -> int:
    """Write a sum as digits from 0 to 2**32 - 1, and return the signed rest above the last of them.

    Parameters
    ----------
    chunks : (chunks,) int64
        The sum.
    low, high : int
        Its first and last chunk.
    digits : (chunks,) int64
        Written from `low` to `high`.
    """
    carry = 0
    for chunk in range(low, high + 1):
        value = chunks[chunk] + carry
        digits[chunk] = value & _DIGIT
        carry = value >> 32
    return carry


@inlined
def carry_over(chunks: I64, low: int, high: int) -> None:
    """Turn the chunks of a sum into digits, except the last one.

    Parameters
    ----------
    chunks : (chunks,) int64
        The sum; changed.
    low, high : int
        Its first and last chunk.
    """
    for chunk in range(low, high):
        chunks[chunk + 1] += chunks[chunk] >> 32
        chunks[chunk] &= _DIGIT


@inlined
def rounded_to_odd(head: int, exponent: int, digit: int, rest: int) -> tuple[int, int]:
    """Extend a whole number of at least 32 bits to at least 54 bits; return it and its exponent.

    If bits remain, its lowest bit is set. As a double it is the number rounded once.

    Parameters
    ----------
    head, exponent : int
        The given number, and the power of two by which it is multiplied.
    digit : int
        The next 32 bits.
    rest : int
        Not 0: more bits follow these.
    """
    shift = max(1084 - (bits_of(np.float64(head)) >> 52 & _SPECIAL), 0)  # to 62 bits
    if digit & (_DIGIT >> shift) != 0 or rest != 0:
        return head << shift | digit >> (32 - shift) | 1, exponent - shift
    return head << shift | digit >> (32 - shift), exponent - shift


@inlined
def leading(digits: I64, low: int, high: int, above: int) -> tuple[int, int]:
    """Return a whole number of up to 63 bits, and the power of two by which it is multiplied.

    If one of the remaining bits is set, so is its lowest bit. It then still has more than 54 bits, so as a
    double it is the whole number rounded once.

    Parameters
    ----------
    digits : (chunks,) int64
        Digits from 0 to 2**32 - 1.
    low, high : int
        The first and the last one.
    above : int
        The signed rest above the last digit.
    """
    head, at = above, high
    while at >= low and -0x8000_0000 <= head < 0x8000_0000:
        head = head << 32 | digits[at]
        at -= 1
    exponent = 32 * (at + 1)
    if at < low:
        return head, exponent
    rest = 0
    for chunk in range(low, at):
        rest |= digits[chunk]
    return rounded_to_odd(head, exponent, digits[at], rest)


@inlined
def leading_of(first: int, second: int, third: int, fourth: int, fifth: int, sixth: int) -> tuple[int, int]:
    """Return a number of six words, the lowest first and not all 0, as `leading` does."""
    if sixth != 0:
        upper, middle, rest, exponent = sixth, fifth, fourth | third | second | first, 320
    elif fifth != 0:
        upper, middle, rest, exponent = fifth, fourth, third | second | first, 256
    elif fourth != 0:
        upper, middle, rest, exponent = fourth, third, second | first, 192
    elif third != 0:
        upper, middle, rest, exponent = third, second, first, 128
    elif second != 0:
        upper, middle, rest, exponent = second, first, 0, 64
    else:
        upper, middle, rest, exponent = first, 0, 0, 0
    shift = leading_zeros(upper)
    if shift > 0:
        upper = upper << shift | middle >> (64 - shift) & (1 << shift) - 1
        middle <<= shift
    head, rest = upper >> 1 & (1 << 63) - 1, rest | middle | upper & 1
    return head | (1 if rest != 0 else 0), exponent - shift + 1


@inlined
def scaled(value: float, exponent: int) -> float:
    """Return `value` times a power of two, rounded once. The value is 0, or from 2**-64 to 2**64."""
    exponent = min(max(exponent, -1400), 1400)
    half = exponent >> 1
    return value * as_double((half + 1023) << 52) * as_double((exponent - half + 1023) << 52)


@inlined
def total(sums: Sums, low: int, high: int, scale: int) -> float:
    """Return the sum in the chunks from `low` to `high` as a double."""
    above = carried(sums.totals, low, high, sums.digits)
    head, exponent = leading(sums.digits, low, high, above)
    return scaled(np.float64(head), exponent + scale)


@inlined
def _magnitude(digits: I64, low: int, high: int, above: int) -> int:
    """Change the sign of a negative number, in place; return its uppermost digit."""
    if above >= 0:
        return above
    carry = 1
    for chunk in range(low, high + 1):
        value = (~digits[chunk] & _DIGIT) + carry
        digits[chunk] = value & _DIGIT
        carry = value >> 32
    return ~above + carry


@inlined
def spread_of_four(sums: Sums, low: int, n: int) -> tuple[int, int]:
    """Return what `spread` does, for at most four chunks, in registers.

    Parameters
    ----------
    sums : Sums
        The sums of a key. The fourth chunk may have more than 32 bits.
    low : int
        The first chunk of `sums.totals`.
    n : int
        The number of values, at least 1.
    """
    totals, squares, at = sums.totals, sums.squares, 2 * low
    words = spread_of_chunks(
        n,
        (totals[low], totals[low + 1], totals[low + 2], totals[low + 3]),
        (
            squares[at],
            squares[at + 1],
            squares[at + 2],
            squares[at + 3],
            squares[at + 4],
            squares[at + 5],
            squares[at + 6],
            squares[at + 7],
        ),
    )
    if (words[0] | words[1] | words[2] | words[3] | words[4] | words[5]) == 0:
        return 0, 0
    head, exponent = leading_of(words[0], words[1], words[2], words[3], words[4], words[5])
    return head, exponent + 32 * at


@inlined
def spread(sums: Sums, low: int, high: int, n: int) -> tuple[int, int]:
    """Return n times the sum of squares minus the square of the sum, like `leading`. It is never negative.

    Parameters
    ----------
    n : int
        The number of values, at least 1.
    """
    digits, product, squares = sums.digits, sums.product, sums.squares
    above = carried(sums.totals, low, high, digits)
    digits[high + 1] = _magnitude(digits, low, high, above)
    top, bottom = high + 1, low
    while top > bottom and digits[top] == 0:
        top -= 1
    while bottom < top and digits[bottom] == 0:
        bottom += 1
    lower_n, upper_n = np.uint64(n & _DIGIT), np.uint64(n >> 32)
    carry = squares_carry = above_low = pending = 0
    end = 2 * high + 4
    for chunk in range(2 * low, end + 1):
        value = squares[chunk] + squares_carry
        digit = np.uint64(value & _DIGIT)
        squares_carry = value >> 32
        lows = highs = 0
        for one in range(max(bottom, chunk - top), (chunk >> 1) + 1):
            other = chunk - one
            if other <= top:
                pair = np.uint64(digits[one]) * np.uint64(digits[other])
                twice = 1 if one == other else 2
                lows += twice * _low(pair)
                highs += twice * _high(pair)
        of_n = digit * lower_n
        difference = carry + _low(of_n) + pending - lows - above_low
        carry = (difference >> 32) + _high(of_n)
        product[chunk] = difference & _DIGIT
        above_low, pending = highs, 0
        if upper_n > 0:  # more than four billion values
            of_n = digit * upper_n
            pending = _low(of_n)
            carry += _high(of_n) << 32
    while end > 2 * low and carry == 0 and product[end] == 0:
        end -= 1
    return leading(product, 2 * low, end, carry)
