"""Parts of the kernel for JSON lines: signs, strings and numbers of RFC 8259.

A part takes `data` and the place `at` where something starts, and returns the place after it, or REFUSED. If
it returns REFUSED, another reader decides about the line: a part may refuse sound input, but never accepts
unsound input. Parts read one byte after another and stop at a line feed, so none reads past the end of
`data`, whose last byte is a line feed.

Parameters
----------
data : (n,) uint8
    JSON lines, and a line feed at the end.
at : int
    A place in `data`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cep.arrays import F64, U8, U64
from cep.jit.compiled import inlined, outlined

REFUSED = -1

MAX_SKIPPED_NESTING = 60
"""Levels of a value that no column has. It may lie some levels deep itself; a line may have 100 of them."""

QUOTE, BACKSLASH, OPENING, CLOSING, COMMA, COLON, MINUS = 0x22, 0x5C, 0x7B, 0x7D, 0x2C, 0x3A, 0x2D
FIRST_OF_LIST, END_OF_LIST, POINT, SMALL_E, LARGE_E, ZERO, PLUS = 0x5B, 0x5D, 0x2E, 0x65, 0x45, 0x30, 0x2B
SMALL_N, SMALL_T, SMALL_F, SMALL_U = 0x6E, 0x74, 0x66, 0x75

# Kinds of bytes within a text.
PLAIN, END, ESCAPE, LONG, NEVER = 0, 1, 2, 3, 4


def _kinds() -> U8:
    kinds = np.full(256, PLAIN, np.uint8)
    kinds[:0x20] = NEVER
    kinds[0x80:] = LONG
    kinds[QUOTE], kinds[BACKSLASH] = END, ESCAPE
    return kinds


KINDS = _kinds()
"""(256,) uint8: the kind of each byte."""


def _escapes() -> U8:
    escapes = np.zeros(256, np.uint8)
    for sign, meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
        escapes[sign] = meant
    return escapes


ESCAPES = _escapes()
"""(256,) uint8: what a sign behind a backslash means; 0: nothing."""

MAX_DIGITS = 18
"""Digits that an int64 holds, whatever they are."""

EXACT = 1 << 53
"""Whole numbers below it are DOUBLEs."""

LOWEST_POWER, HIGHEST_POWER = -330, 310


def _exact_powers() -> F64:
    return np.array([float(10**power) for power in range(23)])


POWERS = _exact_powers()
"""(23,) float64: the powers of ten that a DOUBLE holds."""


def _wide_powers() -> U64:
    """Return powers of ten, (powers, 2) uint64: 128 bits from the highest one on; the upper word first."""
    words = []
    for power in range(LOWEST_POWER, HIGHEST_POWER + 1):
        number = 10**power if power >= 0 else (1 << (128 - 10 * power)) // 10**-power
        n_bits = number.bit_length()
        number = number << (128 - n_bits) if n_bits < 128 else number >> (n_bits - 128)
        words.append((number >> 64, number & (1 << 64) - 1))
    return np.array(words, np.uint64)


WIDE_POWERS = _wide_powers()


@inlined
def skip_space(data: U8, at: int) -> int:
    """Return the place of the next sign that is not white space. A line feed is not skipped."""
    while data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0D:
        at += 1
    return at


@inlined
def follows(data: U8, at: int) -> bool:
    """Return whether the byte at a place continues a character of several bytes."""
    return data[at] & 0xC0 == 0x80


@outlined
def long_character(data: U8, at: int) -> int:
    """Return the place after a character of several bytes, if UTF-8 allows it."""
    first, second = data[at], data[at + 1]
    if first < 0xC2 or first > 0xF4 or not follows(data, at + 1):
        return REFUSED
    if first < 0xE0:
        return at + 2
    if not follows(data, at + 2):
        return REFUSED
    if first < 0xF0:
        # Neither encoded too long, nor half of a surrogate pair.
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return REFUSED
        return at + 3
    if not follows(data, at + 3) or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return REFUSED
    return at + 4


@inlined
def hex_digit(sign: int) -> int:
    """Return the value of a hexadecimal digit."""
    if 0x30 <= sign <= 0x39:
        return sign - 0x30
    lower = sign | 0x20
    if 0x61 <= lower <= 0x66:
        return lower - 0x61 + 10
    return REFUSED


@outlined
def code_unit(data: U8, at: int) -> int:
    """Return the value of four hexadecimal digits."""
    number = 0
    for place in range(at, at + 4):
        digit = hex_digit(data[place])
        if digit < 0:
            return REFUSED
        number = number * 16 + digit
    return number


@outlined
def skip_escape(data: U8, at: int) -> int:
    """Return the place after an escape sequence, in a string that is not examined."""
    sign = data[at + 1]
    if sign == SMALL_U:
        return REFUSED if code_unit(data, at + 2) < 0 else at + 6
    return REFUSED if ESCAPES[sign] == 0 else at + 2


@inlined
def skip_text(data: U8, at: int) -> int:
    """Return the place of the quote that ends a text; `at` is after the first quote."""
    while True:
        kind = KINDS[data[at]]
        if kind == PLAIN:
            at += 1
            continue
        if kind == END:
            return at
        if kind == ESCAPE:
            at = skip_escape(data, at)
        elif kind == LONG:
            at = long_character(data, at)
        else:
            return REFUSED
        if at < 0:
            return REFUSED


@inlined
def skip_name(data: U8, at: int) -> tuple[int, bool]:
    """Return the place of the quote that ends a name, and whether it contains escapes.

    `at` is after the first quote.
    """
    is_escaped = False
    while True:
        kind = KINDS[data[at]]
        if kind == PLAIN:
            at += 1
            continue
        if kind == END:
            return at, is_escaped
        if kind == ESCAPE:
            is_escaped = True
            at = skip_escape(data, at)
        elif kind == LONG:
            at = long_character(data, at)
        else:
            return REFUSED, is_escaped
        if at < 0:
            return REFUSED, is_escaped


@outlined
def copy_escape(data: U8, at: int, texts: U8, column: int, to: int) -> tuple[int, int]:
    """Copy the character of an escape sequence; return the places after both."""
    sign = data[at + 1]
    if sign != SMALL_U:
        texts[column, to] = ESCAPES[sign]
        return (REFUSED if ESCAPES[sign] == 0 else at + 2), to + 1
    code = code_unit(data, at + 2)
    if 0xD800 <= code < 0xDC00 and data[at + 6] == BACKSLASH and data[at + 7] == SMALL_U:
        second = code_unit(data, at + 8)
        if second < 0xDC00 or second > 0xDFFF:
            return REFUSED, to
        code = 0x10000 + ((code - 0xD800) << 10) + second - 0xDC00
        texts[column, to] = 0xF0 | code >> 18
        texts[column, to + 1] = 0x80 | code >> 12 & 0x3F
        texts[column, to + 2] = 0x80 | code >> 6 & 0x3F
        texts[column, to + 3] = 0x80 | code & 0x3F
        return at + 12, to + 4
    if code < 0 or 0xD800 <= code <= 0xDFFF:  # half of a pair
        return REFUSED, to
    if code < 0x80:
        texts[column, to] = code
        return at + 6, to + 1
    if code < 0x800:
        texts[column, to] = 0xC0 | code >> 6
        texts[column, to + 1] = 0x80 | code & 0x3F
        return at + 6, to + 2
    texts[column, to] = 0xE0 | code >> 12
    texts[column, to + 1] = 0x80 | code >> 6 & 0x3F
    texts[column, to + 2] = 0x80 | code & 0x3F
    return at + 6, to + 3


@inlined
def copy_text(data: U8, at: int, texts: U8, column: int, to: int) -> tuple[int, int]:
    """Copy a text; return the place of the quote that ends it, and the place after the copy.

    Parameters
    ----------
    texts : (columns, room) uint8
        What it is copied into.
    column : int
        A row of `texts`.
    to : int
        The place in this row.
    """
    while True:
        sign = data[at]
        kind = KINDS[sign]
        if kind == PLAIN:
            texts[column, to] = sign
            at += 1
            to += 1
            continue
        if kind == END:
            return at, to
        if kind == LONG:
            behind = long_character(data, at)
            while at < behind:
                texts[column, to] = data[at]
                at += 1
                to += 1
            if behind < 0:
                return REFUSED, to
        elif kind == ESCAPE:
            at, to = copy_escape(data, at, texts, column, to)
            if at < 0:
                return REFUSED, to
        else:
            return REFUSED, to


@inlined
def skip_true(data: U8, at: int) -> int:
    """Return the place after ``true``."""
    is_true = data[at] == 0x74 and data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65
    return at + 4 if is_true else REFUSED


@inlined
def skip_false(data: U8, at: int) -> int:
    """Return the place after ``false``."""
    is_fals = data[at] == 0x66 and data[at + 1] == 0x61 and data[at + 2] == 0x6C and data[at + 3] == 0x73
    return at + 5 if is_fals and data[at + 4] == 0x65 else REFUSED


@inlined
def skip_null(data: U8, at: int) -> int:
    """Return the place after ``null``."""
    is_null = data[at] == 0x6E and data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C
    return at + 4 if is_null else REFUSED


# ---------------------------------------------------------------- numbers


@inlined
def digit(data: U8, at: int) -> int:
    """Return the value of a digit; other characters give a value that is not between 0 and 9."""
    return data[at] - ZERO


@outlined
def skip_number(data: U8, at: int) -> int:
    """Return the place after a number of any length."""
    if data[at] == MINUS:
        at += 1
    if data[at] == ZERO:
        at += 1
    else:
        if not 1 <= digit(data, at) <= 9:
            return REFUSED
        while 0 <= digit(data, at) <= 9:
            at += 1
    if data[at] == POINT:
        at += 1
        if not 0 <= digit(data, at) <= 9:
            return REFUSED
        while 0 <= digit(data, at) <= 9:
            at += 1
    if data[at] | 0x20 == SMALL_E:
        at += 1
        if data[at] == PLUS or data[at] == MINUS:
            at += 1
        if not 0 <= digit(data, at) <= 9:
            return REFUSED
        while 0 <= digit(data, at) <= 9:
            at += 1
    return at


@inlined
def whole_number(data: U8, at: int) -> tuple[int, int]:
    """Return the place after a whole number without its sign, and the number; `at` is after the sign.

    At most 18 digits, or 19 up to the largest int64.
    """
    first = at
    value = digit(data, at)
    if not 0 <= value <= 9:
        return REFUSED, 0
    at += 1
    following = digit(data, at)
    if value == 0:
        return (REFUSED if 0 <= following <= 9 else at), 0
    while 0 <= following <= 9:
        if at - first >= MAX_DIGITS and (
            at - first > MAX_DIGITS
            or value > 922337203685477580
            or (value == 922337203685477580 and following > 7)
        ):
            return REFUSED, 0
        value = value * 10 + following
        at += 1
        following = digit(data, at)
    return at, value


@inlined
def fraction(data: U8, at: int, value: int) -> tuple[int, int, int]:
    """Return the place after a point, digits and an exponent, all digits as a number, and its power of ten.

    Parameters
    ----------
    value : int
        The number before the point, below 10 to the power of 18.
    """
    power = 0
    if data[at] == POINT:
        at += 1
        first = at
        following = digit(data, at)
        while 0 <= following <= 9:
            if value >= 100_000_000_000_000_000:
                return REFUSED, 0, 0  # more than 18 digits
            value = value * 10 + following
            at += 1
            following = digit(data, at)
        power = first - at
        if power == 0:
            return REFUSED, 0, 0
    if data[at] | 0x20 == SMALL_E:
        at += 1
        is_below = data[at] == MINUS
        if is_below or data[at] == PLUS:
            at += 1
        first, exponent = at, 0
        following = digit(data, at)
        while 0 <= following <= 9:
            exponent = exponent * 10 + following
            at += 1
            following = digit(data, at)
            if at - first > 4:
                return REFUSED, 0, 0
        if at == first:
            return REFUSED, 0, 0
        power += -exponent if is_below else exponent
    return at, value, power


@inlined
def high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the upper 64 bits of the product of two uint64."""
    low_half = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a_low, a_high, b_low, b_high = a & low_half, a >> half, b & low_half, b >> half
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low_half)
    return a_high * b_high + (middle >> half) + (other >> half)


@outlined
def wide_bits(value: int, power: int) -> int:
    """Return the bits of the DOUBLE nearest to ``value * 10 ** power``, or REFUSED if it is hard to round.

    Eisel and Lemire's way (Lemire, "Number Parsing at a Gigabyte per Second", 2021).

    Parameters
    ----------
    value : int
        At least 1.
    """
    if power < LOWEST_POWER or power > HIGHEST_POWER:
        return REFUSED
    shift = 0
    number = np.uint64(value)
    for step in (32, 16, 8, 4, 2, 1):
        if number >> np.uint64(64 - step) == np.uint64(0):
            number <<= np.uint64(step)
            shift += step
    exponent = (217706 * power >> 16) + 64 + 1023 - shift
    row = power - LOWEST_POWER
    factor = WIDE_POWERS[row, 0]
    low_bits, all_bits = np.uint64(0x1FF), np.uint64(0xFFFFFFFFFFFFFFFF)
    high, low = high_word(number, factor), number * factor
    if high & low_bits == low_bits and low > all_bits - number:
        lower_factor = WIDE_POWERS[row, 1]
        carried, lowest = high_word(number, lower_factor), number * lower_factor
        sum_low = low + carried
        if sum_low < low:
            high += np.uint64(1)
        low = sum_low
        if high & low_bits == low_bits and low == all_bits and lowest > all_bits - number:
            return REFUSED
    top = high >> np.uint64(63)
    mantissa = high >> (top + np.uint64(9))
    if top == np.uint64(0):
        exponent -= 1
    if low == np.uint64(0) and high & low_bits == np.uint64(0) and mantissa & np.uint64(3) == np.uint64(1):
        return REFUSED  # halfway between two DOUBLEs, perhaps
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa >> np.uint64(53) != np.uint64(0):
        mantissa >>= np.uint64(1)
        exponent += 1
    if exponent < 1 or exponent > 2046:
        return REFUSED
    bits: Any = np.int64(mantissa & np.uint64((1 << 52) - 1))
    return exponent << 52 | bits
