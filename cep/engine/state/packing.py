"""Matrices of 64-bit numbers in as few bytes as their columns need, and back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cep.arrays import I64, U8
from cep.engine.kernels.columns.packing import (
    BLOCK,
    MOST_DIGITS,
    column_bounds,
    column_digits,
    column_divisor,
    pack_rows,
    unpack_rows,
)

_SIZE = struct.Struct("<QI")  # rows, columns
_MOST_BYTES, _MOST_COLUMNS = 8, 1 << 16
"""Bytes of a number, and columns: there are never more."""

_LEAST_OF_DECIMALS = 2
"""A column whose distances take this many bytes is not tried as doubles: it would not become much shorter."""

_WITH_UNITS = 1 << 31
"""Added to the number of columns where their units follow. Versions before had none."""

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Packed:
    """A compact matrix: each column as distances from its lowest value, in planes of bytes.

    A column of one value takes no bytes. Distances are in units of their common divisor: times in
    milliseconds take 10 bits less than in microseconds. Doubles that are decimal fractions, such as amounts
    of money, become whole numbers (ALP, Afroozeh and others 2023, section 3) of 2 to 4 bytes instead of 8. No
    information is lost, and nothing must be known about the columns: a field that no rule uses costs nothing.
    """

    n_rows: int
    low: I64  # (columns,)
    units: I64  # (columns,) of distances; 0 or -k: the column has doubles with k decimals
    widths: I64  # (columns,) bytes of a distance
    planes: U8  # the bytes of column 0, then of column 1, ...

    def fill(self, matrix: I64, first: int = 0) -> None:
        """Write the columns to `matrix`, starting at `first`; its first `n_rows` rows are still 0."""
        if self.n_rows == 0:
            return
        planes = self.planes.view()
        planes.flags.writeable = False  # like stored bytes, so the kernel is compiled only once
        room = np.empty(BLOCK, np.uint64)
        unpack_rows(planes, self.low, self.units, self.widths, room, matrix, first, self.n_rows)

    def matrix(self) -> I64:
        """Return the matrix."""
        matrix = np.zeros((self.n_rows, len(self.low)), np.int64)
        self.fill(matrix)
        return matrix

    def parts(self) -> Sequence[bytes | pa.Buffer]:
        """Return the bytes that `packed_in` reads, in parts.

        Compressed: LZ4 takes 0.2 ns for a byte and leaves two thirds of typical runs, mostly their hashes.
        Each byte costs about 35 ns on its way through Spark and back.
        """
        has_units = bool((self.units != 1).any())
        size = _SIZE.pack(self.n_rows, len(self.low) | (_WITH_UNITS if has_units else 0))
        if self.n_rows == 0:
            return [size]
        low, widths = self.low.astype("<i8").tobytes(), self.widths.astype("u1").tobytes()
        units = self.units.astype("<i8").tobytes() if has_units else b""
        return [size, low, widths, units, pa.compress(self.planes, "lz4")]


def nothing(n_columns: int) -> Packed:
    """Return a matrix without rows."""
    none = np.zeros(n_columns, np.int64)
    return Packed(0, none, none + 1, none, np.zeros(0, np.uint8))


def packed(matrix: I64, order: I64 | None = None, first: int = 0) -> Packed:
    """Return the columns of `matrix` from `first` on, for the rows in `order`, or else for all rows."""
    if order is None:
        order = np.arange(len(matrix))
    n_columns = matrix.shape[1] - first
    if not len(order):
        return nothing(n_columns)
    low, high = np.full(n_columns, _HIGHEST), np.full(n_columns, _LOWEST)
    column_bounds(matrix, first, order, low, high)
    units, widths = np.ones(n_columns, np.int64), np.zeros(n_columns, np.int64)
    for column in range(n_columns):
        low[column], units[column], widths[column] = _form(
            matrix, first + column, order, low[column], high[column]
        )
    planes = np.empty(int(widths.sum()) * len(order), np.uint8)
    pack_rows(matrix, first, order, low, units, widths, np.empty(BLOCK, np.uint64), planes)
    return Packed(len(order), low, units, widths, planes)


def _form(matrix: I64, column: int, order: I64, low: int, high: int) -> tuple[int, int, int]:
    """Return the lowest number of a column, its unit, and the bytes of a distance."""
    distance, unit = int(high) - int(low), 1
    width = _n_bytes(distance)
    if width > 1:
        divisor = int(column_divisor(matrix, column, order, low))
        if _n_bytes(distance // divisor) < width:  # units also need bytes
            unit, width = divisor, _n_bytes(distance // divisor)
    if width > _LEAST_OF_DECIMALS:
        bounds = np.zeros(2, np.int64)
        digits = column_digits(matrix, column, order, bounds)
        lowest, highest = bounds.tolist()
        if digits >= 0 and _n_bytes(highest - lowest) < width:
            return lowest, -int(digits), _n_bytes(highest - lowest)
    return low, unit, width


def _n_bytes(number: int) -> int:
    return -(-number.bit_length() // 8)


def packed_in(data: memoryview) -> Packed:
    """Return the matrix that `Packed.parts` wrote; raises ValueError or OSError for other bytes."""
    if len(data) < _SIZE.size:
        raise ValueError("cut off")
    n_rows, n_columns = _SIZE.unpack_from(data)
    has_units, n_columns = n_columns & _WITH_UNITS != 0, n_columns & ~_WITH_UNITS
    if n_columns > _MOST_COLUMNS:
        raise ValueError("too many columns")
    if n_rows == 0:
        return nothing(n_columns)
    low = np.frombuffer(data, "<i8", n_columns, _SIZE.size).astype(np.int64)
    widths = np.frombuffer(data, "u1", n_columns, _SIZE.size + low.nbytes).astype(np.int64)
    if widths.max(initial=0) > _MOST_BYTES:
        raise ValueError("a number of too many bytes")
    at, units = _SIZE.size + 9 * n_columns, np.ones(n_columns, np.int64)
    if has_units:
        units = np.frombuffer(data, "<i8", n_columns, at).astype(np.int64)
        at += units.nbytes
    if units.min(initial=1) < -MOST_DIGITS:
        raise ValueError("a number of too many digits")
    n_bytes = n_rows * int(widths.sum())
    planes = np.frombuffer(pa.decompress(data[at:], n_bytes, "lz4"), np.uint8)
    if len(planes) != n_bytes:
        raise ValueError("cut off")
    return Packed(n_rows, low, units, widths, planes)
