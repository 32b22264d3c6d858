"""Rows of 64-bit numbers to bytes and back: each column as distances from its lowest value, in units.

The bytes of a column are stored plane by plane, all lowest bytes first (BYTE_STREAM_SPLIT of Parquet). So one
simple loop serves any width, and a compressor finds the planes that hardly change. Rows are read in blocks
that stay in the cache, so the order in which the matrix keeps its cells does not matter.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8, U64
from cep.engine.kernels.compiled import inlined, kernel

BLOCK = 256
MOST_DIGITS = 9
"""So many digits behind the point are looked for."""

_BYTE, _LOWEST_BYTE, _NONE, _ONE = np.uint64(8), np.uint64(255), np.uint64(0), np.uint64(1)
_LARGEST = 1 << 50
"""Decimal fractions are of smaller whole numbers.

A double is off from its fraction by one part in 2**53, and its product with a power of ten by one more: less
than a quarter here. So the whole number is found again, whatever the power.
"""
_POWERS = np.array([10.0**digits for digits in range(MOST_DIGITS + 1)])


@inlined
def _cell(number: float, power: float) -> int:
    """Return the bits of a decimal fraction. For 0 they are 0."""
    return np.float64((number + 0.0) / power).view(np.int64)  # type: ignore[return-value]


@kernel
def column_bounds(matrix: I64, first: int, order: I64, low: I64, high: I64) -> None:
    """Lower `low` and raise `high` to the bounds of each column over the rows in `order`.

    Parameters
    ----------
    low, high : (columns,) int64
        The bounds; written.
    """
    n = order.shape[0]
    for start in range(0, n, BLOCK):
        for column in range(low.shape[0]):
            least, most = low[column], high[column]
            for index in range(start, min(start + BLOCK, n)):
                value = matrix[order[index], first + column]
                least, most = min(least, value), max(most, value)
            low[column], high[column] = least, most


@kernel
def column_divisor(matrix: I64, column: int, order: I64, low: int) -> int:
    """Return the greatest number that divides all distances from the lowest value of a column.

    Parameters
    ----------
    column : int
        The index of the column, which has more than one value.
    low : int
        The lowest value.
    """
    base, divisor = np.uint64(low), _NONE
    for row in order:
        distance = np.uint64(matrix[row, column]) - base
        if divisor == _NONE:
            divisor = distance
        elif distance % divisor != _NONE:
            rest = distance % divisor
            while rest != _NONE:
                divisor, rest = rest, divisor % rest
            if divisor == _ONE:
                break
    # A single distance of more than 63 bits cannot be a unit: units are signed.
    return int(np.int64(divisor)) if np.int64(divisor) > 0 else 1


@kernel
def column_digits(matrix: I64, column: int, order: I64, bounds: I64) -> int:
    """Return the largest number of decimals of the doubles in a column; -1: some have more than
    `MOST_DIGITS`, are too large, or are not decimal.

    Parameters
    ----------
    bounds : (2,) int64
        The lowest and the highest number, without the decimal point; written.
    """
    digits, power = 0, 1.0
    low, high = _LARGEST, -_LARGEST
    for row in order:
        cell = matrix[row, column]
        value = np.int64(cell).view(np.float64)
        while True:
            number = np.rint(value * power)
            # Negative zero and NaN are not equal to any decimal number.
            if abs(number) < _LARGEST and _cell(number, power) == cell:
                break
            digits += 1
            if digits > MOST_DIGITS:
                return -1
            power = _POWERS[digits]
            if low <= high:
                low, high = 10 * low, 10 * high
                if low <= -_LARGEST or high >= _LARGEST:
                    return -1
        whole = int(number)
        low, high = min(low, whole), max(high, whole)
    bounds[0], bounds[1] = low, high
    return digits


@inlined
def _distances(matrix: I64, column: int, rows: I64, low: int, unit: int, distances: U64) -> None:
    """Write the distances of a column for some rows."""
    base = np.uint64(low)
    if unit == 1:
        for index in range(rows.shape[0]):
            distances[index] = np.uint64(matrix[rows[index], column]) - base
    elif unit > 1:
        divisor = np.uint64(unit)
        for index in range(rows.shape[0]):
            distances[index] = (np.uint64(matrix[rows[index], column]) - base) // divisor
    else:
        power = _POWERS[-unit]
        for index in range(rows.shape[0]):
            value = np.int64(matrix[rows[index], column]).view(np.float64)
            distances[index] = np.uint64(np.int64(np.rint(value * power)) - low)


@kernel
def pack_rows(
    matrix: I64, first: int, order: I64, low: I64, units: I64, widths: I64, distances: U64, planes: U8
) -> None:
    """Write the columns from `first` on, over the rows in `order`, to `planes`.

    Parameters
    ----------
    units : (columns,) int64
        The unit whose multiples the distances are; below 1: minus the number of decimals of doubles.
    planes : (n * sum of widths,) uint8
        Column by column and plane by plane; written.
    """
    n = order.shape[0]
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        at = start
        for column in range(low.shape[0]):
            if widths[column] > 0:
                _distances(matrix, first + column, order[start:end], low[column], units[column], distances)
            for plane in range(widths[column]):
                shift = np.uint64(plane) * _BYTE
                for index in range(end - start):
                    planes[at + index] = np.uint8(distances[index] >> shift & _LOWEST_BYTE)
                at += n


@kernel
def unpack_rows(
    planes: U8, low: I64, units: I64, widths: I64, distances: U64, matrix: I64, first: int, n: int
) -> None:
    """Write the columns from `first` on of the first `n` rows.

    Parameters
    ----------
    planes : (n * sum of widths,) uint8
        The bytes that `pack_rows` wrote.
    low, units : (columns,) int64
        The lowest value of each column, and its unit.
    matrix : (rows, first + columns) int64
        Zeros; written.
    n : int
        The number of rows.
    """
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        at = 0
        for column in range(low.shape[0]):
            if widths[column] == 0 and low[column] == 0:
                continue
            of, unit = first + column, units[column]
            distances[:] = 0
            for plane in range(widths[column]):
                shift = np.uint64(plane) * _BYTE
                for row in range(start, end):
                    distances[row - start] |= np.uint64(planes[at + row]) << shift
                at += n
            base = np.uint64(low[column])
            if unit == 1:
                for row in range(start, end):
                    matrix[row, of] = np.int64(base + distances[row - start])
            elif unit > 1:
                for row in range(start, end):
                    matrix[row, of] = np.int64(base + np.uint64(unit) * distances[row - start])
            else:
                for row in range(start, end):
                    number = low[column] + np.int64(distances[row - start])
                    matrix[row, of] = _cell(np.float64(number), _POWERS[-unit])
