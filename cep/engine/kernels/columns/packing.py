"""Rows of 64-bit numbers to bytes and back: each column as distances from its lowest value.

The bytes of a column are stored plane by plane, all lowest bytes first (BYTE_STREAM_SPLIT of Parquet). So any
width is one simple loop, and a compressor finds the planes that hardly change. Rows are read in blocks that
stay in the cache, so the order in which the matrix keeps its cells does not matter.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.kernels.compiled import kernel

BLOCK = 256
_BYTE = np.uint64(8)


@kernel
def column_bounds(matrix: I64, first: int, order: I64, low: I64, high: I64) -> None:
    """Lower `low` and raise `high` to the bounds of each column over the rows in `order`.

    Parameters
    ----------
    matrix : (rows, first + columns) int64
        The cells.
    first : int
        The first column.
    order : (n,) int64
        Rows of `matrix`.
    low, high : (columns,) int64
        The bounds; written.
    """
    for row in order:
        for column in range(low.shape[0]):
            value = matrix[row, first + column]
            low[column] = min(low[column], value)
            high[column] = max(high[column], value)


@kernel
def pack_rows(matrix: I64, first: int, order: I64, low: I64, widths: I64, planes: U8) -> None:
    """Write the columns from `first` on, over the rows in `order`, to `planes`.

    Parameters
    ----------
    matrix : (rows, first + columns) int64
        The cells.
    first : int
        The first column.
    order : (n,) int64
        Rows of `matrix`.
    low : (columns,) int64
        The lowest value of each column.
    widths : (columns,) int64
        Bytes of each distance.
    planes : (n * sum of widths,) uint8
        Column by column and plane by plane; written.
    """
    n = order.shape[0]
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        at = 0
        for column in range(low.shape[0]):
            base = np.uint64(low[column])
            for plane in range(widths[column]):
                shift = np.uint64(plane) * _BYTE
                for index in range(start, end):
                    distance = np.uint64(matrix[order[index], first + column]) - base
                    planes[at + index] = np.uint8(distance >> shift)
                at += n


@kernel
def unpack_rows(planes: U8, low: I64, widths: I64, matrix: I64, first: int, n: int) -> None:
    """Write the columns from `first` on of the first `n` rows.

    Parameters
    ----------
    planes : (n * sum of widths,) uint8
        What `pack_rows` wrote.
    low : (columns,) int64
        The lowest value of each column.
    widths : (columns,) int64
        Bytes of each distance.
    matrix : (rows, first + columns) int64
        Zeros; written.
    first : int
        The first column.
    n : int
        The number of rows.
    """
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        at = 0
        for column in range(low.shape[0]):
            if widths[column] == 0 and low[column] == 0:
                continue
            for row in range(start, end):
                matrix[row, first + column] = low[column]
            for plane in range(widths[column]):
                shift = np.uint64(plane) * _BYTE
                for row in range(start, end):
                    value = np.uint64(matrix[row, first + column]) + (np.uint64(planes[at + row]) << shift)
                    matrix[row, first + column] = np.int64(value)
                at += n
