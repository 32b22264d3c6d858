"""Writes the rows of tables as JSON objects, column by column for speed.

The format is that of the sink `json`: NULLs are omitted; times are ISO 8601 in UTC, with microseconds.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from cep.schema.text_values import word_of

_ROWS = 10_000
"""Rows that are written at a time, so that a large table is not in memory twice."""

_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""Characters that are escaped in JSON; DEL need not be, but may."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def json_rows(table: pa.Table) -> Iterator[str]:
    """Yield each row of a table as an object."""
    for start in range(0, table.num_rows, _ROWS):
        part = table.slice(start, _ROWS).combine_chunks()
        members = [_members(name, part.column(name)) for name in part.column_names]
        joined = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
        for members_of_row in joined.to_pylist():
            yield f"{{{members_of_row[:-1]}}}"


def value_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column without members as strings, as in `json_rows` but without quotes."""
    return cast("list[str | None]", texts_of(column).to_pylist())


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as strings, as in `json_rows` but without quotes; lists and events as JSON."""
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_nested(column.type):
        return _values(column)
    return pc.utf8_trim(_values(column), characters='"')


def _members(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ``"name":value,`` for each row, or NULL where the value is NULL."""
    label = f"{json.dumps(name, ensure_ascii=False)}:"
    return pc.binary_join_element_wise(label, _values(column), ",", "")


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values as JSON; NULLs remain NULL."""
    kind = column.type
    if pa.types.is_string(kind):
        if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
            return _one_by_one(column, _text)
        return pc.binary_join_element_wise('"', column, '"', "")
    if pa.types.is_timestamp(kind):
        texts = pc.strftime(column.cast(pa.timestamp("us", tz="UTC")), _TIME)
        return pc.binary_join_element_wise('"', texts, '"', "")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _one_by_one(column, _number)
    return pa.chunked_array([pa.array(nested_texts(column), pa.string())])


def nested_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return values of any type as JSON; NULLs remain NULL. Objects omit NULL members."""
    kind = column.type
    return [None if value is None else _nested(value, kind) for value in column.to_pylist()]


def _one_by_one(column: pa.ChunkedArray, text: Callable[[Any], str]) -> pa.ChunkedArray:
    values = column.to_pylist()
    return pa.chunked_array([pa.array([None if v is None else text(v) for v in values], pa.string())])


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{word_of(value)}"'


def _nested(value: Any, kind: pa.DataType) -> str:
    """Return a list, an event or a value in it as JSON. Objects omit NULLs; lists keep them."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if pa.types.is_struct(kind):
        members = ((part.name, value[part.name], part.type) for part in kind)
        return _object(members)
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return _object((str(key), item, kind.item_type) for key, item in pairs)
    if pa.types.is_nested(kind):
        return f"[{','.join(_nested(item, kind.value_type) for item in value)}]"
    match value:
        case float():
            return _number(value)
        case int() | Decimal():
            return str(value)
        case datetime():
            text = value.astimezone(UTC).isoformat(timespec="microseconds")
            return _text(text.replace("+00:00", "Z"))
        case bytes():
            return _text(base64.b64encode(value).decode())
        case _:  # a text, a date
            return _text(str(value))


def _object(members: Iterable[tuple[str, Any, pa.DataType]]) -> str:
    parts = (f"{_text(name)}:{_nested(value, kind)}" for name, value, kind in members if value is not None)
    return f"{{{','.join(parts)}}}"
