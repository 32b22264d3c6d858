"""Versions of rows of tables: the operation on the row, in the words of databases and their tools."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.schema.stream import Stream

UPSERTS = ("c", "r", "u", "create", "insert", "read", "update", "upsert", "match")
"""Words in the column `op` of a row that is valid from its time on, in lower case."""

DELETES = ("d", "delete", "retract")
"""Words in the column `op` of a row that is gone from its time on."""


def deleted(rows: pa.Table, table: Stream) -> Mask:
    """Return which versions delete their row."""
    assert table.table is not None
    if table.table.op is None:
        return np.zeros(rows.num_rows, np.bool_)
    return _is_in(rows.column(table.table.op), DELETES)


def known_operations(words: pa.ChunkedArray) -> Mask:
    """Return which words are valid as the operation on a row."""
    return _is_in(words, (*UPSERTS, *DELETES))


def _texts(words: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(words, pa.string()) if pa.types.is_dictionary(words.type) else words


def _is_in(words: pa.ChunkedArray, known: tuple[str, ...]) -> Mask:
    """Return which words are among `known`, in upper or lower case; NULL is not."""
    found: Mask = np.asarray(pc.is_in(pc.ascii_lower(_texts(words)), value_set=pa.array(known, pa.string())))
    return found
