"""Complete late events: the declared columns of the stream, and how late each event was.

A file of late events can be the input of another run: a column that a stream does not declare, such as
`LATE_COLUMN`, is not examined.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.expression import Type
from cep.schema.arrow_types import DDL_ARROW_TYPES
from cep.schema.column_types import ColumnType
from cep.schema.decimals import decimal_of
from cep.schema.opaque_values import value_of_text
from cep.schema.stream import UNITS, Field, Stream
from cep.schema.text_values import event_table_schema, json_text
from cep.schema.time_values import text_of_time

LATE_COLUMN = "_late_seconds"
"""By how many seconds the watermark had passed the event; a stream cannot declare a column of this name."""

_SECOND_US = 1e6

_ENDED_US = 1 << 61
"""Only the end of the input (`cep.engine.event_time.watermark.END_OF_TIME_US`) passes an event by this much.
"""


def late_schema(stream: Stream) -> pa.Schema:
    """Return the columns of late events that are sent to a sink: typed events, and `LATE_COLUMN`."""
    return event_table_schema(stream).append(pa.field(LATE_COLUMN, pa.float64()))


def declared_schema(stream: Stream, *, is_flat: bool = False) -> pa.Schema:
    """Return the columns of a table of late events: those that the stream is read from, and `LATE_COLUMN`.

    `is_flat`: a field inside a struct has a separate column, as in CSV.
    """
    columns = [
        pa.field(name, _type_of(node)) for name, node in _data_columns(stream, is_flat=is_flat).items()
    ]
    return pa.schema([*columns, pa.field(LATE_COLUMN, pa.float64())])


Node = Field | dict[Any, Any]
"""A column of the data that a field is read from, or the fields of a struct by name, of an array by index."""


def _data_columns(stream: Stream, *, is_flat: bool, has_arrays: bool = False) -> dict[str, Node]:
    """Return the columns that the fields of a stream are read from, each once.

    Values inside arrays become separate columns, unless the format `has_arrays`: those of a JSON array may
    have different types.
    """
    columns: dict[str, Node] = {}
    if is_flat:
        for field in stream.fields:
            columns.setdefault(field.column, field)
        return columns
    places = {field: _place_of(field, has_arrays=has_arrays) for field in stream.fields}
    for field in sorted(stream.fields, key=lambda field: len(places[field])):
        inside: Node = columns
        *way, last = places[field]
        for part in way:
            inside = inside.setdefault(part, {}) if isinstance(inside, dict) else inside
        if isinstance(inside, dict):  # otherwise a field has the whole struct
            inside.setdefault(last, field)
    return {str(place[0]): columns[str(place[0])] for place in places.values()}


def _place_of(field: Field, *, has_arrays: bool) -> tuple[str | int, ...]:
    if not field.element:
        return field.place
    return (*field.place, *field.element) if has_arrays else (field.column,)


def _type_of(node: Node) -> pa.DataType:
    if isinstance(node, dict):
        return pa.struct([pa.field(name, _type_of(part)) for name, part in node.items()])
    if node.unit:
        return pa.float64() if UNITS[node.unit][0] > 1 else pa.int64()
    return pa.string() if node.format else arrow_type(node.column_type)


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type for values of a column that is declared with type `kind`."""
    match kind.name:
        case "decimal":
            return pa.decimal128(*kind.digits)
        case "binary":
            return pa.binary()
        case "array":
            return pa.list_(arrow_type(kind.parts[0]))
        case "map":
            return pa.map_(*map(arrow_type, kind.parts))
        case "struct":
            fields = zip(kind.names, kind.parts, strict=True)
            return pa.struct([pa.field(name, arrow_type(part)) for name, part in fields])
        case name:
            return DDL_ARROW_TYPES[name]


def late_events(events: pa.Table, late_us: I64, stream: Stream) -> pa.Table:
    """Return events (`event_table_schema`) that are late as `late_schema`.

    `late_us` is int64[n]: how many microseconds the watermark had passed each event by. `LATE_COLUMN` is NULL
    if the input had ended: then no watermark of events says how late an event is.
    """
    columns = [
        column.cast(item.type)
        for column, item in zip(events.columns, event_table_schema(stream), strict=True)
    ]
    seconds = pa.array(late_us / _SECOND_US, mask=late_us >= _ENDED_US)
    return pa.Table.from_arrays([*columns, seconds], schema=late_schema(stream))


def as_declared(late: pa.Table, stream: Stream, *, is_flat: bool = False) -> pa.Table:
    """Return late events (`late_schema`) as the columns of `declared_schema`."""
    columns = [_as_declared(late, node) for node in _data_columns(stream, is_flat=is_flat).values()]
    schema = declared_schema(stream, is_flat=is_flat)
    return pa.Table.from_arrays([*columns, late.column(LATE_COLUMN)], schema=schema)


def _as_declared(late: pa.Table, node: Node) -> pa.ChunkedArray:
    kind = _type_of(node)
    if isinstance(node, dict):
        parts = [_as_declared(late, part).combine_chunks() for part in node.values()]
        return pa.chunked_array([pa.StructArray.from_arrays(parts, fields=list(kind))], kind)
    column = late.column(node.name)
    if node.unit or node.format:
        return pa.chunked_array([pa.array(_in_data(column, node), kind)], kind)
    if node.type is Type.OPAQUE:
        texts = column.to_pylist()
        values = [None if text is None else value_of_text(text, node.column_type) for text in texts]
        return pa.chunked_array([pa.array(values, kind)])
    if node.is_decimal:
        # From the digits of the DOUBLE that was read: a cast would add digits that the input did not have.
        digits, numbers = node.digits, column.to_pylist()
        decimals = [None if number is None else decimal_of(number, digits) for number in numbers]
        return pa.chunked_array([pa.array(decimals, kind)])
    if node.type is Type.TIMESTAMP:
        column = column.cast(pa.timestamp("us", tz="UTC"))
        # A date is its midnight.
        return column.cast(pa.timestamp("us")).cast(kind) if node.ddl == "date" else column
    return column.cast(kind)


def _in_data(column: pa.ChunkedArray, field: Field) -> list[Any]:
    """Return times as in the data: in the declared unit or format."""
    if field.format:
        return [None if us is None else text_of_time(us, field) for us in column.to_pylist()]
    factor, divisor = UNITS[field.unit]
    return [
        None if us is None else us * divisor // factor if us % factor == 0 else us / factor
        for us in column.to_pylist()
    ]


def json_lines(late: pa.Table, stream: Stream) -> Iterator[str]:
    """Yield late events (`late_schema`) as JSON lines in the form in which the stream reads them."""
    nodes = _data_columns(stream, is_flat=False, has_arrays=True)
    columns = {name: _in_json(late, node) for name, node in nodes.items()}
    columns[LATE_COLUMN] = late.column(LATE_COLUMN).to_pylist()
    for row in _objects(columns):
        yield json_text(row)


def _objects(columns: dict[Any, list[Any]]) -> Iterator[dict[Any, Any]]:
    for row in zip(*columns.values(), strict=True):
        values = zip(columns, row, strict=True)
        yield {name: value for name, value in values if value is not None}


def _as_array(found: dict[int, Any] | None) -> list[Any] | None:
    """Return elements by their index as an array, with NULL for those that are not known."""
    return None if found is None else [found.get(at) for at in range(max(found) + 1)]


def _in_json(late: pa.Table, node: Node) -> list[Any]:
    if isinstance(node, dict):
        parts = {name: _in_json(late, part) for name, part in node.items()}
        objects = (found or None for found in _objects(parts))
        return list(map(_as_array, objects) if isinstance(next(iter(node)), int) else objects)
    column = late.column(node.name)
    if node.unit or node.format:
        return _in_data(column, node)
    if node.type is Type.TIMESTAMP:
        times: npt.NDArray[np.datetime64] = np.asarray(pc.fill_null(column, 0)).astype("M8[us]")
        if node.ddl == "date":
            texts = np.datetime_as_string(times.astype("M8[D]")).tolist()
        else:
            texts = np.datetime_as_string(times, timezone="UTC").tolist()
        is_null = np.asarray(column.is_null())
        return [None if absent else text for text, absent in zip(texts, is_null, strict=True)]
    values: list[Any] = column.to_pylist()
    if node.type is Type.OPAQUE and node.ddl != "binary":
        return [None if text is None else json.loads(text) for text in values]
    return values
