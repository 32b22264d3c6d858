"""The kernel for JSON lines: each byte is examined once, and lines become columns.

It reads a line only if all of it is plain; `read_lines` defines this. It refuses every other line, and
`parse_line` then reads it. So no line has a different meaning in the two.

Parameters
----------
data : (n,) uint8
    See `cep.formats.text.json.scan`.
names : Names
    The names of the values of columns in objects.
columns : Columns
    The columns of the values.
row : int
    The event: its place in every column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import F64, I32, I64, U8
from cep.formats.text.json.compiled import kernel
from cep.formats.text.json.scan import (
    CLOSING,
    COLON,
    COMMA,
    END_OF_LIST,
    EXACT,
    FIRST_OF_LIST,
    LARGE_E,
    MAX_SKIPPED_NESTING,
    MINUS,
    OPENING,
    POINT,
    POWERS,
    QUOTE,
    REFUSED,
    SMALL_E,
    SMALL_F,
    SMALL_N,
    SMALL_T,
    copy_text,
    fraction,
    skip_false,
    skip_name,
    skip_null,
    skip_number,
    skip_space,
    skip_text,
    skip_true,
    whole_number,
    wide_bits,
)
from cep.formats.text.json.times import iso_time
from cep.jit.compiled import inlined, outlined

TEXT, FLAG, WHOLE, REAL, COUNT, TIME, DAY = range(7)
"""What a column takes: texts, booleans, whole numbers, numbers, counts of a unit, ISO times, ISO days."""

ABSENT, PRESENT, PRESENT_REAL = range(3)
"""What a column has in a row; the last one is a count that is not written as a whole number."""

NAN, INFINITY = (np.frombuffer(word.encode(), np.uint8) for word in ("NaN", "Infinity"))
"""What texts of columns of numbers may say."""

N_BUCKETS = 256

OTHER = -1
"""A name where no value of a column is."""

ROOT, OUTSIDE = 0, -1
"""The object that is the line, and what is around it."""


class Names(NamedTuple):
    """Names in objects. Each object inside another has a number; that of the line is ROOT.

    `text[ptr[name] : ptr[name + 1]]` are the bytes of a name as JSON writes it, between quotes. It is in the
    object `inside`; `column` is its column, or ``-1 - object``. A name may be written in two ways; `same` is
    the number of the first one. `enclosing[object]` is the object around it. `bucket` and `next_name` are a
    hash table with a list of names in each bucket. `usual[i]` is the i-th name of the last lines.
    `seen[same]` is the last line that had the name. `is_list` is room for `skip_value`.
    """

    text: U8
    ptr: I64
    inside: I64
    column: I64
    same: I64
    enclosing: I64
    bucket: I64
    next_name: I64
    usual: I64
    seen: I64
    is_list: U8


class Columns(NamedTuple):
    """Columns, by number, in rows of matrices: (columns, lines).

    `numbers` are int64, or the bits of doubles; `reals` is the same memory. A text ends at `ends[number, row
    + 1]` of the row `number` of `texts`, and `text_number` is the number of a column among these.
    `text_end[number]` is the end of the last text, perhaps in a line that is refused later.
    """

    kind: I64
    low: I64
    high: I64
    text_number: I64
    state: U8
    numbers: I64
    reals: F64
    texts: U8
    ends: I32
    text_end: I64


@inlined
def bucket_of(inside: int, length: int, first: int, last: int) -> int:
    """Return the bucket of a name by the object, its length, and its first and its last byte."""
    return (31 * inside + length + 5 * first + 11 * last) & (N_BUCKETS - 1)


def bucket_of_bytes(inside: int, name: bytes) -> int:
    """Return the bucket of a name; for an empty name the quotes around it count."""
    first, last = (name[0], name[-1]) if name else (QUOTE, QUOTE)
    return (31 * inside + len(name) + 5 * first + 11 * last) & (N_BUCKETS - 1)


@inlined
def is_name(data: U8, at: int, names: Names, name: int) -> int:
    """Return the place after this name and its quote, if it is here; `at` is after the first quote."""
    for place in range(names.ptr[name], names.ptr[name + 1]):
        if data[at] != names.text[place]:
            return REFUSED
        at += 1
    return at + 1 if data[at] == QUOTE else REFUSED


@outlined
def look_up(data: U8, at: int, names: Names, inside: int) -> tuple[int, int]:
    """Return the place after a name and its quote, and which name it is; `at` is after the first quote.

    Parameters
    ----------
    inside : int
        The object it is in.
    """
    end, is_escaped = skip_name(data, at)
    if end < 0:
        return REFUSED, OTHER
    name = names.bucket[bucket_of(inside, end - at, data[at], data[end - 1])]
    while name != OTHER:
        if names.inside[name] == inside and is_name(data, at, names, name) == end + 1:
            return end + 1, name
        name = names.next_name[name]
    # With escapes it may be the name of a column in an unusual spelling.
    return (REFUSED if is_escaped else end + 1), OTHER


@inlined
def skip_colon(data: U8, at: int) -> int:
    """Return the place of the value after a name."""
    if data[at] != COLON:
        at = skip_space(data, at)
        if data[at] != COLON:
            return REFUSED
    return skip_space(data, at + 1)


@inlined
def skip_other_name(data: U8, at: int) -> int:
    """Return the place of the value after any name; `at` is where the name starts."""
    if data[at] != QUOTE:
        return REFUSED
    at = skip_text(data, at + 1)
    return REFUSED if at < 0 else skip_colon(data, at + 1)


@inlined
def skip_single(data: U8, at: int) -> int:
    """Return the place after a value that is neither an object nor a list."""
    sign = data[at]
    if sign == QUOTE:
        at = skip_text(data, at + 1)
        return REFUSED if at < 0 else at + 1
    if sign == SMALL_T:
        return skip_true(data, at)
    if sign == SMALL_F:
        return skip_false(data, at)
    if sign == SMALL_N:
        return skip_null(data, at)
    return skip_number(data, at)


@inlined
def skip_ends(data: U8, at: int, is_list: U8, depth: int) -> tuple[int, int]:
    """Return the place of the next value in the open objects and lists, and the depth there.

    Parameters
    ----------
    depth : int
        The number of open objects and lists. If it becomes 0, there is no next value.
    """
    while depth > 0:
        at = skip_space(data, at)
        sign = data[at]
        at += 1
        if sign == COMMA:
            at = skip_space(data, at)
            return (at if is_list[depth] else skip_other_name(data, at)), depth
        if sign != (END_OF_LIST if is_list[depth] else CLOSING):
            return REFUSED, depth
        depth -= 1
    return at, depth


@outlined
def skip_value(data: U8, at: int, is_list: U8) -> int:
    """Return the place after any value.

    Parameters
    ----------
    is_list : (MAX_SKIPPED_NESTING + 1,) uint8
        Room for the open objects and lists.
    """
    depth = 0
    while True:
        sign = data[at]
        is_empty = True
        if sign in (OPENING, FIRST_OF_LIST):
            depth += 1
            if depth > MAX_SKIPPED_NESTING:
                return REFUSED
            is_list[depth] = sign == FIRST_OF_LIST
            at = skip_space(data, at + 1)
            is_empty = data[at] in (CLOSING, END_OF_LIST)
            if not is_empty and sign == OPENING:
                at = skip_other_name(data, at)
        else:
            at = skip_single(data, at)
        if is_empty and at >= 0:
            at, depth = skip_ends(data, at, is_list, depth)
            if depth == 0:
                return at
        if at < 0:
            return REFUSED


@inlined
def read_real(data: U8, at: int, value: int, is_below: bool, columns: Columns, column: int, row: int) -> int:
    """Set the number that ``value``, a point, digits and an exponent form; return the place after it."""
    at, value, power = fraction(data, at, value)
    if at < 0:
        return REFUSED
    if value >= EXACT:
        while power < 0 and value % 10 == 0:  # as in 3763959363293954.0
            value //= 10
            power += 1
    if value < EXACT and -22 <= power <= 22:  # two DOUBLEs, so the result is the nearest one
        real = np.float64(value)
        if power < 0:
            real /= POWERS[-power]
        else:
            real *= POWERS[power]
        columns.reals[column, row] = -real if is_below else real
        return at
    if value == 0:
        columns.reals[column, row] = -0.0 if is_below else 0.0
        return at
    bits = wide_bits(value, power)
    if bits < 0:
        return REFUSED
    columns.numbers[column, row] = bits
    if is_below:
        columns.reals[column, row] = -columns.reals[column, row]
    return at


@inlined
def read_number(data: U8, at: int, columns: Columns, column: int, row: int) -> int:
    """Set a number of a column; return the place after it."""
    kind = columns.kind[column]
    is_below = data[at] == MINUS
    if is_below:
        at += 1
    at, value = whole_number(data, at)
    if at < 0:
        return REFUSED
    sign = data[at]
    is_whole = sign != POINT and sign != SMALL_E and sign != LARGE_E
    if kind == REAL or not is_whole:
        if kind == WHOLE:
            return REFUSED
        columns.state[column, row] = PRESENT if kind == REAL else PRESENT_REAL
        at = read_real(data, at, value, is_below, columns, column, row)
        # As with Arrow's columns, counts with this many digits are left to `parse_line`.
        if at >= 0 and kind == COUNT and not -EXACT < columns.reals[column, row] < EXACT:
            return REFUSED
        return at
    if is_below:
        value = -value
    if value < columns.low[column] or value > columns.high[column]:
        return REFUSED
    columns.numbers[column, row] = value
    columns.state[column, row] = PRESENT
    return at


@outlined
def read_word(data: U8, at: int, columns: Columns, column: int, row: int) -> int:
    """Set a number that JSON lacks, from its text; return the place of the quote after it."""
    is_below = data[at] == MINUS
    if is_below:
        at += 1
    is_nan = data[at] == NAN[0] and not is_below
    word = NAN if is_nan else INFINITY
    for sign in word:
        if data[at] != sign:
            return REFUSED
        at += 1
    if data[at] != QUOTE:
        return REFUSED
    columns.reals[column, row] = np.nan if is_nan else -np.inf if is_below else np.inf
    return at


@inlined
def read_value(data: U8, at: int, columns: Columns, column: int, row: int) -> int:
    """Set the value of a column; return the place after it."""
    sign = data[at]
    kind = columns.kind[column]
    if sign == QUOTE:
        if kind == TEXT:
            number = columns.text_number[column]
            at, end = copy_text(data, at + 1, columns.texts, number, columns.text_end[number])
            columns.text_end[number] = end
        elif kind in (TIME, DAY):
            at, us = iso_time(data, at + 1, kind == DAY)
            if us < columns.low[column] or us > columns.high[column]:
                return REFUSED
            columns.numbers[column, row] = us
        elif kind == REAL:
            at = read_word(data, at + 1, columns, column, row)
        else:
            return REFUSED
        columns.state[column, row] = PRESENT
        return REFUSED if at < 0 else at + 1
    if sign == SMALL_N:
        return skip_null(data, at)
    if kind == FLAG:
        at = skip_true(data, at) if sign == SMALL_T else skip_false(data, at)
        columns.numbers[column, row] = sign == SMALL_T
        columns.state[column, row] = PRESENT
        return at
    if kind in (TEXT, TIME, DAY):
        return REFUSED
    return read_number(data, at, columns, column, row)


@inlined
def read_name(data: U8, at: int, names: Names, inside: int, member: int) -> tuple[int, int]:
    """Return the place of the value after a name, and which name it is; `at` is where the name starts.

    Parameters
    ----------
    inside : int
        The object it is in.
    member : int
        The number of names before it in the line.
    """
    n_usual = len(names.usual)
    name = names.usual[member] if member < n_usual else OTHER
    behind = REFUSED
    if name != OTHER and names.inside[name] == inside:
        behind = is_name(data, at + 1, names, name)
    if behind < 0:
        behind, name = look_up(data, at + 1, names, inside)
        if behind < 0:
            return REFUSED, OTHER
        if member < n_usual:
            names.usual[member] = name
    return skip_colon(data, behind), name


@inlined
def read_named(
    data: U8, at: int, line: int, names: Names, name: int, columns: Columns, row: int, inside: int
) -> tuple[int, int]:
    """Set the value after a name; return the place after it, and the object that is then open.

    Parameters
    ----------
    line : int
        The number of the line.
    name : int
        A name, or OTHER.
    inside : int
        The object the name is in.
    """
    if name == OTHER:
        return skip_value(data, at, names.is_list), inside
    first = names.same[name]
    if names.seen[first] == line:
        return REFUSED, inside  # twice in an object
    names.seen[first] = line
    column = names.column[name]
    if column >= 0:
        return read_value(data, at, columns, column, row), inside
    if data[at] == OPENING:
        return at + 1, -1 - column
    return skip_null(data, at), inside


@inlined
def skip_closings(data: U8, at: int, names: Names, inside: int) -> tuple[int, int]:
    """Return the place after the comma after a value, and the object that is open there.

    Parameters
    ----------
    inside : int
        The object that contains the value. If it ends, and the line with it, OUTSIDE is open.
    """
    while True:
        at = skip_space(data, at)
        sign = data[at]
        at += 1
        if sign == COMMA:
            return at, inside
        if sign != CLOSING:
            return REFUSED, inside
        inside = names.enclosing[inside]
        if inside == OUTSIDE:
            return at, inside


@inlined
def read_line(data: U8, at: int, end: int, line: int, names: Names, columns: Columns, row: int) -> bool:
    """Set the values of a line, from `at` to `end`, as event `row`; return whether all of it is plain.

    Parameters
    ----------
    line : int
        The number of the line.
    """
    at = skip_space(data, at)
    if data[at] != OPENING:
        return False
    inside, member, is_begin = ROOT, 0, True
    at += 1
    while True:
        at = skip_space(data, at)
        if data[at] == QUOTE:
            at, name = read_name(data, at, names, inside, member)
            if at < 0 or at >= end:
                return False
            member += 1
            around = inside
            at, inside = read_named(data, at, line, names, name, columns, row, inside)
            is_begin = inside != around
        elif data[at] != CLOSING or not is_begin:
            return False
        else:
            is_begin = False
        if not is_begin and at >= 0:
            at, inside = skip_closings(data, at, names, inside)
            if inside == OUTSIDE:
                return is_end(data, at, end)
        if at < 0:
            return False


@inlined
def is_end(data: U8, at: int, end: int) -> bool:
    """Return whether nothing but white space is between two places."""
    while at < end and (data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0D):
        at += 1
    return at == end


@kernel
def read_lines(
    data: U8, starts: I64, ends: I64, names: Names, columns: Columns, lines: I64, refused: I64
) -> int:
    """Set the columns to the values of plain lines, and say which lines are not plain; return the number of
    events.

    A line is plain if it is an object of RFC 8259 in UTF-8, with only blanks, tabs and carriage returns
    around it; if no name of a column occurs twice in an object, or has unusual escapes; if values are NULL or
    of the types of their columns, whole numbers of at most 19 digits, other numbers of at most 18 digits or a
    word for what JSON lacks, strings without halves of surrogate pairs; if it is not nested deeply; and if no
    number is hard to round.

    Parameters
    ----------
    starts, ends : (n,) int64
        The places of lines in `data`.
    lines : (n,) int64
        Is set to the line of each event.
    refused : (n,) int64
        Is set to the lines that are not plain.
    """
    row = 0
    n_columns, n_texts = len(columns.kind), len(columns.text_end)
    for line in range(len(starts)):
        if read_line(data, starts[line], ends[line], line, names, columns, row):
            lines[row] = line
            row += 1
            for number in range(n_texts):
                columns.ends[number, row] = columns.text_end[number]
        else:
            refused[line - row] = line
            for number in range(n_texts):
                columns.text_end[number] = columns.ends[number, row]
            for column in range(n_columns):
                columns.state[column, row] = ABSENT
    return row
