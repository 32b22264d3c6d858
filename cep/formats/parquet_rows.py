"""Parquet files -> typed events, and the reason for each row that is not an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cep.errors import InputError
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.chunks import Piece
from cep.formats.file_columns import require_columns
from cep.schema.arrow_columns import (
    element_kind,
    element_of,
    fits,
    kind_at,
    typed_column,
    without_views,
    word_of,
)
from cep.schema.arrow_values import json_value
from cep.schema.stream import Stream

BLOCK_ROWS = 100_000
"""Rows that are looked at together."""

_REPEATING_BYTES = 8


def read(name: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
    """Yield the rows of a file.

    `in_worker`: repeated strings become Arrow dictionaries, and Arrow starts no threads. Raises InputError
    for a problem of the whole file.
    """
    try:
        metadata = pq.read_metadata(name) if in_worker else None
        coded = [] if metadata is None else _repeating_texts(metadata, stream)
        # Without `pre_buffer` Arrow reads a few kilobytes at a time, which is a third slower. With it, Arrow
        # holds what was requested: a row group, not the whole file.
        with pq.ParquetFile(
            name,
            metadata=metadata,
            read_dictionary=coded,
            pre_buffer=True,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        ) as file:
            _check_columns(name, file.schema_arrow, stream)
            stream = _as_in_file(file.schema_arrow, stream)
            columns = list(dict.fromkeys(".".join(field.place) for field in stream.fields))
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
    """Return the columns of strings whose values a file repeats: few bytes for each."""
    if metadata.num_row_groups == 0:
        return []
    group = metadata.row_group(0)
    sizes = {}
    for number in range(group.num_columns):
        column = group.column(number)
        sizes[column.path_in_schema] = column.total_uncompressed_size / max(column.num_values, 1)
    fields = (field for field in stream.fields if len(field.place) == 1 and not field.element)
    texts = [field.place[0] for field in fields if field.type is Type.STRING]
    return [name for name in texts if sizes.get(name, _REPEATING_BYTES) < _REPEATING_BYTES]


# ---------------------------------------------------------------- columns of a file


def _check_columns(name: str, schema: pa.Schema, stream: Stream) -> None:
    kinds = {
        field: element_kind(kind_at(schema, field.place), field.element)
        for field in _as_in_file(schema, stream).fields
    }
    nested = {field.column: kind for field, kind in kinds.items() if len(field.place) > 1 or field.element}
    columns = [column for column in schema.names if column not in nested]
    columns += [column for column, kind in nested.items() if kind is not None]
    require_columns(name, columns, stream)
    for field, kind in kinds.items():
        if kind is None or not fits(kind, field):
            raise InputError(
                "E0605",
                f"column `{field.column}` of `{name}` is {kind}, the stream declares {field.declared}",
                f"the column must be {word_of(field)} that fits; change the file or the declaration",
            )


def _as_in_file(schema: pa.Schema, stream: Stream) -> Stream:
    """Return the stream with elements of arrays as columns, where a file has columns of their names."""
    fields = (
        replace(field, path=(field.column,), element=())
        if field.element and field.column in schema.names
        else field
        for field in stream.fields
    )
    return replace(stream, fields=tuple(fields))


# ---------------------------------------------------------------- rows


def _piece(name: str, batch: pa.RecordBatch, stream: Stream, first_row: int, coded: Sequence[str]) -> Piece:
    columns, cells = [], []
    is_bad = np.zeros(batch.num_rows, dtype=bool)
    problems: list[tuple[int, str]] = []
    for field in stream.fields:
        values = batch.column(field.place[0])
        plain = without_views(values.type)
        if plain != values.type:
            values = values.cast(plain)
        if len(field.place) > 1:
            values = pc.struct_field(values, list(field.place[1:]))
        if field.element:
            values = element_of(values, field.element)
        typed, bad = typed_column(values, field, is_coded=field.column in coded)
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
