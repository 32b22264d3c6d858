"""Columns of Arrow tables as one array."""

from __future__ import annotations

import pyarrow as pa


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A single chunk is not copied, as `combine_chunks` would do."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
