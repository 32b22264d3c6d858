"""Columns of Arrow tables as one array, and strings encoded as dictionaries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Scalar = TypeVar("_Scalar", bound=np.generic)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A single chunk is not copied, as `combine_chunks` would do."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_coded(kind: pa.DataType) -> bool:
    """Return whether a column of strings is a dictionary: each string once, and its place for each row."""
    return bool(pa.types.is_dictionary(kind))


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, its strings written out."""
    column = whole(column)
    return column.dictionary_decode() if is_coded(column.type) else column


def plain_table(table: pa.Table) -> pa.Table:
    """Return a table with all strings written out."""
    if not any(is_coded(field.type) for field in table.schema):
        return table
    return pa.table([plain(column) for column in table.columns], names=table.column_names)


@lru_cache(maxsize=8)
def nulls(n: int, kind: pa.DataType) -> pa.Array:
    """Return n times NULL. Batches of one length have the same array, in memory that was used before."""
    return pa.nulls(n, kind)


@lru_cache(maxsize=2)
def zeros(n: int) -> pa.Array:
    """Return n times 0, int64, likewise."""
    return pa.array(np.zeros(n, np.int64))


class _Lent:
    """The memory of an array, declared writable; it keeps the array alive."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def lent(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return `array`, whose memory is often Arrow's, as a writable array for a kernel that only reads it.

    Kernels are compiled for writable arrays only. A second form for read-only arrays would double the time to
    compile; a copy would cost time in each batch.
    """
    return array if array.flags.writeable else np.asarray(_Lent(array))
