"""Writes Arrow tables as text for `COPY ... (FORMAT csv)`: NULL is empty; an empty text is quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from spark_runtime.sinks.json_rows import nested_texts

NOT_STORED, INSTEAD = "\x00", "�"
"""The only character that PostgreSQL does not store, and its replacement."""

_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_WITHOUT_HEADER = pyarrow.csv.WriteOptions(include_header=False)
_ROWS = 50_000


def csv_parts(table: pa.Table) -> Iterator[memoryview]:
    """Yield the rows of a table as CSV, some at a time."""
    for start in range(0, table.num_rows, _ROWS):
        part = table.slice(start, _ROWS)
        texts = pa.table([_plain(column) for column in part.columns], names=part.column_names)
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(texts, sink, _WITHOUT_HEADER)
        yield memoryview(sink.getvalue())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type whose CSV PostgreSQL reads."""
    kind = column.type
    if pa.types.is_string(kind):
        if pc.any(pc.match_substring(column, NOT_STORED)).as_py():
            return pc.replace_substring(column, NOT_STORED, INSTEAD)
        return column
    if pa.types.is_nested(kind):
        texts = (None if text is None else _storable(text) for text in nested_texts(column))
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_binary(kind):
        values = column.to_pylist()
        return pa.chunked_array([pa.array([None if v is None else f"\\x{v.hex()}" for v in values])])
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz="UTC"))
    return column


def _storable(text: str) -> str:
    """Return JSON without the character that is not stored; a backslash may precede its escape."""
    return _ESCAPED.sub(rf"\1{INSTEAD}", text) if "\\u0000" in text else text
