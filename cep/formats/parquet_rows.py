"""Files of Parquet -> typed events, and for each row that is not one the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cep.arrays import Mask
from cep.errors import InputError
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.chunks import Piece
from cep.formats.file_columns import require_columns
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.arrow_values import json_value, opaque_column, valid_texts
from cep.schema.column_types import INTEGER_BITS, ColumnType
from cep.schema.stream import Field, Stream
from cep.schema.text_values import column_from_text, fit_column
from cep.schema.time_values import times_of_numbers, times_of_timestamps

BLOCK_ROWS = 100_000
"""Rows that are looked at together."""

_REPEATING_BYTES = 8

_CODED = pa.dictionary(pa.int32(), pa.string())
"""What Arrow reads as a dictionary, unless the file says otherwise."""

_DAY_SECONDS = 86_400


def read(name: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
    """Yield the rows of a file.

    `in_worker`: texts that the file repeats come as Arrow dictionaries, and Arrow starts no threads.
    Raises InputError for what is wrong with the file as a whole.
    """
    try:
        metadata = pq.read_metadata(name) if in_worker else None
        coded = [] if metadata is None else _repeating_texts(metadata, stream)
        # Without `pre_buffer` Arrow asks for a few kilobytes at a time: a third slower. With it, it holds
        # what is asked for: a row group, not the whole file.
        with pq.ParquetFile(
            name,
            metadata=metadata,
            read_dictionary=coded,
            pre_buffer=True,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        ) as file:
            _check_columns(name, file.schema_arrow, stream)
            columns = list(dict.fromkeys(field.column for field in stream.fields))
            position = 1
            for group in range(file.num_row_groups):
                batches = file.iter_batches(
                    batch_size=BLOCK_ROWS, row_groups=[group], columns=columns, use_threads=not in_worker
                )
                for batch in batches:
                    yield _piece(name, batch, stream, position, coded)
                    position += batch.num_rows
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError("E0606", f"`{name}` cannot be read as Parquet: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _repeating_texts(metadata: Any, stream: Stream) -> list[str]:
    """Return the columns of texts whose values a file repeats: few bytes for each."""
    if metadata.num_row_groups == 0:
        return []
    group = metadata.row_group(0)
    sizes = {}
    for number in range(group.num_columns):
        column = group.column(number)
        sizes[column.path_in_schema] = column.total_uncompressed_size / max(column.num_values, 1)
    texts = [field.place[0] for field in stream.fields if field.type is Type.STRING and len(field.place) == 1]
    return [name for name in texts if sizes.get(name, _REPEATING_BYTES) < _REPEATING_BYTES]


# ---------------------------------------------------------------- columns of a file


def _check_columns(name: str, schema: pa.Schema, stream: Stream) -> None:
    kinds = {field: _kind_at(schema, field.place) for field in stream.fields}
    nested = {field.column: kind for field, kind in kinds.items() if len(field.place) > 1}
    columns = [column for column in schema.names if column not in nested]
    columns += [column for column, kind in nested.items() if kind is not None]
    require_columns(name, columns, stream)
    for field, kind in kinds.items():
        if kind is None or not _fits(kind, field):
            raise InputError(
                "E0605",
                f"column `{field.column}` of `{name}` is {kind}, the stream declares {field.declared}",
                f"the column must be {_word_of(field)} that fits; change the file or the declaration",
            )


def _kind_at(schema: pa.Schema, place: Sequence[str]) -> pa.DataType | None:
    """Return the type of a column, or of a field inside structs; None: there is none, or there are two."""
    inside: Sequence[pa.Field] = list(schema)
    kind = None
    for part in place:
        found = [item.type for item in inside if item.name == part]
        if len(found) != 1:
            return None
        kind = found[0]
        inside = list(kind) if pa.types.is_struct(kind) else []
    return kind


def _fits(kind: pa.DataType, field: Field) -> bool:
    """Say whether a column of an Arrow type can be read as a field."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return True
    match field.type:
        case Type.OPAQUE:
            return _has_type(kind, field.column_type)
        case Type.BOOLEAN:
            return bool(pa.types.is_boolean(kind))
        case Type.BIGINT:
            return bool(pa.types.is_integer(kind) and _integer_width(kind) <= INTEGER_BITS[field.ddl])
        case Type.DOUBLE if field.is_decimal:
            return bool(pa.types.is_decimal(kind))
        case Type.DOUBLE:
            # An integer of 32 bits is a double without loss; Spark widens it, too.
            return bool(
                pa.types.is_floating(kind)
                or pa.types.is_decimal(kind)
                or (pa.types.is_integer(kind) and _integer_width(kind) <= 32)
            )
        case Type.STRING:
            return _is_text(kind)
        case _ if field.ddl == "date":
            return bool(pa.types.is_date(kind) or (field.format and _is_text(kind)))
        case _:
            if field.unit and (pa.types.is_float64(kind) or pa.types.is_integer(kind)):
                return not pa.types.is_integer(kind) or _integer_width(kind) <= 64
            return bool(pa.types.is_timestamp(kind) or (field.format and _is_text(kind)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _has_type(kind: pa.DataType, declared: ColumnType) -> bool:
    """Say whether values of an Arrow type are of an opaque type, or of a part of one."""
    inside: list[pa.DataType] = []
    match declared.name:
        case "binary":
            return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        case "array":
            inside = [kind.value_type] if pa.types.is_list(kind) else []
        case "map":
            inside = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
        case "struct":
            known = [item.name for item in kind] if pa.types.is_struct(kind) else []
            inside = [kind.field(name).type for name in declared.names if known.count(name) == 1]
        case _:
            return _fits(kind, Field("", str(declared)))
    return len(inside) == len(declared.parts) and all(map(_has_type, inside, declared.parts))


_WORDS: Mapping[Type, str] = {
    Type.BOOLEAN: "a boolean",
    Type.BIGINT: "an integer",
    Type.DOUBLE: "a floating-point number",
    Type.STRING: "a string",
    Type.TIMESTAMP: "a timestamp",
}


def _word_of(field: Field) -> str:
    if field.type is Type.OPAQUE:
        return field.ddl
    if field.is_decimal:
        return "a decimal"
    word = "a date" if field.ddl == "date" else _WORDS[field.type]
    if field.unit:
        return f"an integer, a double or {word}"
    return f"a string or {word}" if field.format else word


def _integer_width(kind: pa.DataType) -> int:
    """Return how many bits a signed integer needs to hold every value of `kind`."""
    return int(kind.bit_width) + int(pa.types.is_unsigned_integer(kind))


# ---------------------------------------------------------------- rows


def _piece(name: str, batch: pa.RecordBatch, stream: Stream, first_row: int, coded: Sequence[str]) -> Piece:
    columns, cells = [], []
    is_bad = np.zeros(batch.num_rows, dtype=bool)
    problems: list[tuple[int, str]] = []
    for field in stream.fields:
        values = batch.column(field.place[0])
        if len(field.place) > 1:
            values = pc.struct_field(values, list(field.place[1:]))
        typed, bad = _typed(values, field, field.column in coded)
        problems += [
            (first_row + row, dead_letter.wrong_type(field, json_value(values[row])))
            for row in np.flatnonzero(bad & ~is_bad).tolist()
        ]
        is_bad |= bad
        columns.append(typed)
        cells.append(values)
    names = [field.name for field in stream.fields]
    events = pa.table(columns, names=names)
    positions = np.arange(first_row, first_row + batch.num_rows, dtype=np.int64)
    if problems:
        events, positions = events.filter(pa.array(~is_bad)), positions[~is_bad]
    return Piece(
        name, events, positions, (), first_row, problems, pa.RecordBatch.from_arrays(cells, names=names)
    )


def _typed(values: pa.Array, field: Field, is_coded: bool) -> tuple[pa.Array, Mask]:
    """Return a column of the file as events have it, and which of its values they cannot have."""
    nothing = np.zeros(len(values), dtype=bool)
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), ARROW_TYPES[field.type]), nothing
    if field.type is Type.OPAQUE:
        return opaque_column(values, field.column_type)
    if pa.types.is_dictionary(kind):
        if is_coded and kind == _CODED and not valid_texts(values.dictionary)[1].any():
            return values, nothing
        values, kind = values.dictionary_decode(), kind.value_type
    if _is_text(kind):
        texts, bad = valid_texts(values.cast(pa.string()))
        if field.type is Type.STRING:
            return texts, bad
        typed, no_time = column_from_text(texts, field)
        return typed, bad | no_time
    if field.type is Type.TIMESTAMP:
        return _times(values, field)
    if pa.types.is_decimal(kind):  # by its digits: the nearest DOUBLE, as Spark has it
        values = pc.cast(values, pa.string())
    return fit_column(pc.cast(values, ARROW_TYPES[field.type]), field)


def _times(values: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    kind = values.type
    if pa.types.is_date32(kind):
        return times_of_numbers(
            pc.multiply(values.view(pa.int32()).cast(pa.int64()), _DAY_SECONDS), "seconds"
        )
    if pa.types.is_date64(kind):
        return times_of_numbers(values.view(pa.int64()), "milliseconds")
    if not pa.types.is_timestamp(kind):
        wide = pa.float64() if pa.types.is_floating(kind) else pa.int64()
        return times_of_numbers(values.cast(wide), field.unit)
    return times_of_timestamps(values, field.zone)
