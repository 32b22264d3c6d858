"""Turns rows of tables, given as strings with metadata of their changes, into events and dead letters."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, Piece, checked
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.schema.masks import where_true
from cep.schema.opaque_values import opaque_text
from cep.schema.stream import Field
from cep.schema.text_values import DOUBLE_PATTERN, column_from_text, event_table_schema
from spark_runtime.connectors.postgres.pgoutput import DELETE, INSERT, TRUNCATE, UPDATE, Changes, Relation
from spark_runtime.connectors.postgres.reading import (
    COMMIT_TIME,
    LSN,
    NUMBER,
    OP,
    TABLE,
    TRANSACTION,
    PostgresReading,
    lsn_text,
)

READ = "r"
"""The operation of a row of the first copy."""

_OPS = {INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}

EMPTIED = "TRUNCATE has removed all rows, and the log does not name them"

_IDENTITY = "say ALTER TABLE ... REPLICA IDENTITY FULL"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of tables, and their metadata.

    - `sources`: the source of each row, as dead letters name it.
    - `positions`: int64[n]: the position that they name.
    - `texts`: the values by column of the stream, those of the row before a change included.
    - `known`: the metadata (`METADATA`), by name: texts, numbers, or microseconds since 1970.
    """

    sources: pa.Array
    positions: I64
    texts: Mapping[str, pa.Array]
    known: Mapping[str, pa.Array]
    problems: Sequence[tuple[Mask, str]] = ()


def chunk_of(reading: PostgresReading, rows: Rows, origin: str, ahead: AheadGuard) -> Chunk:
    """Return rows as events, with dead letters for those that are not events."""
    stream, n = reading.stream, len(rows.positions)
    problems: dict[int, str] = {}
    for bad, reason in rows.problems:
        for row in np.flatnonzero(bad).tolist():
            problems.setdefault(row, reason)
    columns = []
    for field in stream.fields:
        values, wrong = _column(reading, rows, field, n)
        for row, text in wrong.items():
            problems.setdefault(row, dead_letter.wrong_type(field, text))
        columns.append(values)
    events = pa.Table.from_arrays(columns, schema=event_table_schema(stream))
    indices = np.arange(n)
    if problems:
        is_event = np.ones(n, bool)
        is_event[list(problems)] = False
        events, indices = events.filter(pa.array(is_event)), indices[is_event]
    piece = Piece(origin, events, indices, (), 0, sorted(problems.items()), _cells(rows))
    chunk = checked(piece, stream, reading.keys, ahead)
    latest = int(rows.positions[chunk.latest]) if chunk.events.num_rows else 0
    return replace(chunk, dead_letters=_placed(chunk.dead_letters, rows), latest=latest)


def _column(reading: PostgresReading, rows: Rows, field: Field, n: int) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of the events, and the values that do not fit its type, by row."""
    what = reading.columns.get(field.name, "")
    if field.name in rows.texts:
        given = rows.texts[field.name]
    elif what in rows.known:
        given = rows.known[what]
        if what == LSN and field.type is Type.STRING:
            given = pa.array([lsn_text(lsn) for lsn in given.to_pylist()], pa.string())
        elif what != COMMIT_TIME:
            given = given.cast(pa.string())
    else:
        return pa.nulls(n, pa.int64()), {}  # estimated later
    if not pa.types.is_string(given.type):
        return given, {}
    values, bad = typed(given, field)
    return values, {row: str(given[row].as_py()) for row in np.flatnonzero(bad).tolist()}


def typed(texts: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return PostgreSQL's texts as values of a column's type, and which texts do not fit it."""
    match field.type:
        case Type.BOOLEAN:
            words = pc.if_else(pc.equal(texts, "f"), "false", texts)
            return column_from_text(pc.if_else(pc.equal(texts, "t"), "true", words), field)
        case Type.TIMESTAMP if field.unit:
            # A count, or a time stored as a count.
            is_count = where_true(pc.match_substring_regex(texts, DOUBLE_PATTERN))
            nothing = pa.scalar(None, pa.string())
            counts, no_count = column_from_text(pc.if_else(pa.array(is_count), texts, nothing), field)
            iso = replace(field, unit="", format="")
            times, no_time = column_from_text(pc.if_else(pa.array(is_count), nothing, texts), iso)
            return pc.coalesce(counts, times), no_count | no_time
        case Type.OPAQUE:
            found = [None if text is None else _opaque(text, field) for text in texts.to_pylist()]
            bad = np.array([text is False for text in found], bool)
            return pa.array([None if text is False else text for text in found], pa.string()), bad
        case _:
            return column_from_text(texts, field)


def _opaque(text: str, field: Field) -> str | bool:
    """Return a value of json, jsonb or bytea in the form of other formats; False if it is invalid."""
    try:
        if field.column_type.name == "binary":
            return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
        return opaque_text(json.loads(text), field.column_type, is_json=True)
    except (ValueError, RecursionError):
        return False


def _cells(rows: Rows) -> pa.RecordBatch:
    """Return the part of rows that dead letters show: their texts, and their change."""
    columns = {**rows.texts}
    if OP not in columns:
        columns[OP] = rows.known[OP]
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _placed(dead_letters: pa.Table, rows: Rows) -> pa.Table:
    """Return dead letters with the places of rows in place of their numbers."""
    if dead_letters.num_rows == 0:
        return dead_letters
    numbers = dead_letters.column("position").to_numpy()
    found = {
        "source": rows.sources.take(pa.array(numbers)).cast(pa.string()),
        "position": pa.array(rows.positions[numbers], pa.int64()),
    }
    for name, values in found.items():
        at = DEAD_LETTER_SCHEMA.get_field_index(name)
        dead_letters = dead_letters.set_column(at, DEAD_LETTER_SCHEMA.field(at), values)
    return dead_letters


# ---------------------------------------------------------------- from the log


def of_changes(reading: PostgresReading, changes: Changes) -> Rows:
    """Return changes from the log as rows. Raises MissingColumnError: a table no longer has a column."""
    for number in np.unique(changes.relation[changes.kind != TRUNCATE]).tolist():
        _require_columns(reading, changes.relations[number])
    names = pa.array([relation.table for relation in changes.relations], pa.string())
    tables = names.take(pa.array(changes.relation))
    texts = {name: changes.after[column].texts(changes.data) for name, column in reading.of_row.items()}
    old = {name: changes.before[column].texts(changes.data) for name, column in reading.of_old_row.items()}
    ops = np.array([_OPS.get(kind, "") for kind in range(256)], object)[changes.kind]
    known = {
        OP: pa.array(ops, pa.string()),
        COMMIT_TIME: pa.array(changes.commit_us, pa.int64()),
        LSN: pa.array(changes.lsn, pa.int64()),
        TABLE: tables,
        TRANSACTION: pa.array(changes.transaction, pa.int64()),
        NUMBER: pa.array(changes.number, pa.int64()),
    }
    return Rows(tables, changes.lsn, texts | old, known, list(_problems(reading, changes)))


def _problems(reading: PostgresReading, changes: Changes) -> Iterator[tuple[Mask, str]]:
    is_row = changes.kind != TRUNCATE
    if not is_row.all():
        yield ~is_row, EMPTIED
    if not reading.nulls_unchanged:
        for column in reading.of_row.values():
            bad = changes.after[column].is_unchanged
            if bad.any():
                yield bad, f"column `{column}` is large and unchanged, so not in the log: {_IDENTITY}"
    for column in reading.of_old_row.values():
        bad = changes.before[column].is_absent & is_row
        if bad.any():
            yield bad, f"the old value of column `{column}` is not in the log: {_IDENTITY}"


class MissingColumnError(Exception):
    """A table no longer has a column."""

    def __init__(self, table: str, column: str) -> None:
        super().__init__(table, column)
        self.table, self.column = table, column


def _require_columns(reading: PostgresReading, relation: Relation) -> None:
    for column in (*reading.of_row.values(), *reading.of_old_row.values()):
        if column not in relation.columns:
            raise MissingColumnError(relation.table, column)


# ---------------------------------------------------------------- from a copy


def of_copy(
    reading: PostgresReading, copied: pa.RecordBatch, first_row: int, lsn: int, moment_us: int
) -> Rows:
    """Return the rows of a copy.

    `copied`: the number of the table, then its columns, as texts. `first_row`: the number of the first row in
    the copy, from 1. `lsn` and `moment_us`: the end of the log when the copy was created, and the time,
    microseconds since 1970.
    """
    n = copied.num_rows
    names = pa.array(reading.tables, pa.string())
    tables = names.take(copied.column(0).cast(pa.int64()))
    of_row = reading.of_row
    texts = {name: copied.column(1 + number) for number, name in enumerate(of_row)}
    nothing = pa.nulls(n, pa.string())
    known = {
        OP: pa.array([READ] * n, pa.string()),
        COMMIT_TIME: pa.array(np.full(n, moment_us), pa.int64()),
        LSN: pa.array(np.full(n, lsn), pa.int64()),
        TABLE: tables,
        TRANSACTION: nothing,
        NUMBER: pa.array(np.arange(first_row, first_row + n), pa.int64()),
    }
    sources = pc.binary_join_element_wise(tables, COPIED, "")
    positions = np.arange(first_row, first_row + n)
    return Rows(sources, positions, texts | dict.fromkeys(reading.of_old_row, nothing), known)


COPIED = " (copy)"
"""Follows the name of a table in the source of a row of a copy."""
