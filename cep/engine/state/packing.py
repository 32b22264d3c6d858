"""Matrices of 64-bit numbers in as few bytes as their columns need, and back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cep.arrays import I64, U8
from cep.engine.kernels.columns.packing import column_bounds, pack_rows, unpack_rows

_SIZE = struct.Struct("<QI")  # rows, columns
_MOST_BYTES, _MOST_COLUMNS = 8, 1 << 16
"""Bytes of a number, and columns: there are never more."""

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix without its zeros: each column as distances from its lowest value, by planes of bytes.

    A column of one value takes no bytes. Nothing is lost, and nothing has to be known about the columns: a
    field that a rule does not use costs nothing.
    """

    n_rows: int
    low: I64  # (columns,)
    widths: I64  # (columns,) bytes per row
    planes: U8  # the bytes of column 0, then of column 1, ...

    def fill(self, matrix: I64, first: int = 0) -> None:
        """Write the columns into `matrix` from column `first` on; its first `n_rows` rows are 0 so far."""
        if self.n_rows == 0:
            return
        planes = self.planes.view()
        planes.flags.writeable = False  # as stored bytes are: the kernel is compiled once
        unpack_rows(planes, self.low, self.widths, matrix, first, self.n_rows)

    def matrix(self) -> I64:
        """Return the matrix."""
        matrix = np.zeros((self.n_rows, len(self.low)), np.int64)
        self.fill(matrix)
        return matrix

    def parts(self) -> Sequence[bytes | pa.Buffer]:
        """Return what `packed_in` reads, in parts.

        Compressed: LZ4 takes 0.2 ns a byte and leaves two thirds of typical runs, mostly their hashes. On its
        way through Spark and back each byte costs some 35 ns.
        """
        size = _SIZE.pack(self.n_rows, len(self.low))
        if self.n_rows == 0:
            return [size]
        low, widths = self.low.astype("<i8").tobytes(), self.widths.astype("u1").tobytes()
        return [size, low, widths, pa.compress(self.planes, "lz4")]


def nothing(n_columns: int) -> Packed:
    """Return a matrix without rows."""
    none = np.zeros(n_columns, np.int64)
    return Packed(0, none, none, np.zeros(0, np.uint8))


def packed(matrix: I64, order: I64 | None = None, first: int = 0) -> Packed:
    """Return the columns of `matrix` from `first` on; of the rows in `order`, else of all."""
    if order is None:
        order = np.arange(len(matrix))
    n_columns = matrix.shape[1] - first
    if not len(order):
        return nothing(n_columns)
    low, high = np.full(n_columns, _HIGHEST), np.full(n_columns, _LOWEST)
    column_bounds(matrix, first, order, low, high)
    bits = [(above - below).bit_length() for below, above in zip(low.tolist(), high.tolist(), strict=True)]
    widths = np.array([-(-n // 8) for n in bits], np.int64)
    planes = np.empty(int(widths.sum()) * len(order), np.uint8)
    pack_rows(matrix, first, order, low, widths, planes)
    return Packed(len(order), low, widths, planes)


def packed_in(data: memoryview) -> Packed:
    """Return what `Packed.parts` wrote; raises ValueError or OSError where it did not."""
    if len(data) < _SIZE.size:
        raise ValueError("cut off")
    n_rows, n_columns = _SIZE.unpack_from(data)
    if n_columns > _MOST_COLUMNS:
        raise ValueError("too many columns")
    if n_rows == 0:
        return nothing(n_columns)
    low = np.frombuffer(data, "<i8", n_columns, _SIZE.size).astype(np.int64)
    widths = np.frombuffer(data, "u1", n_columns, _SIZE.size + low.nbytes).astype(np.int64)
    if widths.max(initial=0) > _MOST_BYTES:
        raise ValueError("a number of too many bytes")
    n_bytes = n_rows * int(widths.sum())
    planes = np.frombuffer(pa.decompress(data[_SIZE.size + 9 * n_columns :], n_bytes, "lz4"), np.uint8)
    if len(planes) != n_bytes:
        raise ValueError("cut off")
    return Packed(n_rows, low, widths, planes)
