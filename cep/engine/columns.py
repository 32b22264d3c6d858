"""Columns of Arrow tables as one array, and texts that come as dictionaries."""

from __future__ import annotations

import pyarrow as pa


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A single chunk is not copied, as `combine_chunks` would do."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_coded(kind: pa.DataType) -> bool:
    """Say whether a column of texts holds each once, and for each row its place among them."""
    return bool(pa.types.is_dictionary(kind))


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, its texts written out."""
    column = whole(column)
    return column.dictionary_decode() if is_coded(column.type) else column


def plain_table(table: pa.Table) -> pa.Table:
    """Return a table with all texts written out."""
    if not any(is_coded(field.type) for field in table.schema):
        return table
    return pa.table([plain(column) for column in table.columns], names=table.column_names)
