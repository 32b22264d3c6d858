"""The operator's output: rows of several kinds, which the column `_kind` names; matches are packed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO

import pyarrow as pa

from cep.formats.late_events import json_lines
from cep.schema.stream import Stream

KIND = "_kind"
"""Column of the operator's output: one of the four below, `LATE` with the name of the stream."""

MATCH = "match"  # `_matches`: some matches
SHADOW = "shadow"  # only in the results of `detect_all`: matches of shadow rules
LATE = "late"  # `_text`: the late event as JSON (`cep.formats.late_events.json_lines`)
DEAD = "dead"  # `_text`: the dead letter as JSON (`cep.formats.dead_letter.DEAD_LETTER_SCHEMA`)
COUNTS = "counts"  # `_text`: `cep.counts.Counts` of one call, as JSON

TEXT = "_text"
"""Column of the operator's output, and of parcels: a text; NULL where the other columns suffice."""

MATCHES_COLUMN = "_matches"
"""Column of the operator's output: matches (`carried_schema`) as an Arrow record batch without its schema."""

OUTPUT_SCHEMA = pa.schema([(KIND, pa.string()), (TEXT, pa.string()), (MATCHES_COLUMN, pa.binary())])
"""Columns that the operator writes."""

MAX_MATCHES = 50_000
"""Maximum number of matches in a row of output."""

MAX_WAITING = 1_000_000
"""Matches of one call that are kept in memory; further ones are in a temporary file."""


class Matches:
    """Tables of matches that one call found (`carried_schema`); a hot key can have any number of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.n_waiting = 0
        self._tables: list[pa.Table] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Add a table."""
        self._tables.append(table)
        self.n_waiting += table.num_rows
        if self.n_waiting > MAX_WAITING:
            self._spill()

    def __bool__(self) -> bool:
        return self.n_waiting > 0 or self._file is not None

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield tables of at most `MAX_MATCHES` rows. May be repeated; no table may be added afterwards."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._file is not None:
            self._file.seek(0)
            for batch in pa.ipc.open_stream(self._file):
                yield pa.Table.from_batches([batch])
        for table in self._tables:
            for start in range(0, table.num_rows, MAX_MATCHES):
                yield table.slice(start, MAX_MATCHES)

    def close(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._file is not None:
            self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
            self._writer = pa.ipc.new_stream(self._file, self.schema)
        assert self._writer is not None
        for table in self._tables:
            self._writer.write_table(table.combine_chunks(), MAX_MATCHES)
        self._tables, self.n_waiting = [], 0


@dataclass(slots=True)
class CallResults:
    """The results of a call of the operator: matches, late events by stream, dead letters as JSON."""

    matches: Matches
    late: dict[str, list[pa.Table]] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)

    def texts(self, streams: Mapping[str, Stream]) -> list[tuple[str, str]]:
        """Return late events and dead letters as rows: kind and text."""
        late = [
            (late_kind(name), line)
            for name, tables in self.late.items()
            for table in tables
            for line in json_lines(table, streams[name])
        ]
        return [*late, *((DEAD, text) for text in self.dead)]


def late_kind(stream: str) -> str:
    """Return the kind of the rows that are late events of a stream."""
    return f"{LATE}: {stream}"


def carried_schema(match_schema: pa.Schema) -> pa.Schema:
    """Return the columns of matches that leave the operator, each in its `carried_type`."""
    return pa.schema([field.with_type(carried_type(field.type)) for field in match_schema])


def carried_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of `kind` enter the JVM: int64 for times, days for dates.

    Inside lists and events, more types enter as text (`is_carried_as_text`).
    """
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_carried_inside(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _carried_inside(field.type)) for field in kind])
    return kind


def is_carried_as_text(kind: pa.DataType) -> bool:
    """Return whether values of `kind` inside lists and events enter the JVM as text.

    Otherwise Spark would have to convert each time, and the code that it generates for this reads numbers of
    an Arrow list without checking for NULL.
    """
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _carried_inside(kind: pa.DataType) -> pa.DataType:
    return pa.string() if is_carried_as_text(kind) else carried_type(kind)


def carried(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of matches in its `carried_type`."""
    kind = carried_type(column.type)
    if not pa.types.is_struct(kind):
        return column.cast(kind)
    chunks = [
        pa.StructArray.from_arrays(
            [values.cast(field.type) for values, field in zip(chunk.flatten(), kind, strict=True)],
            fields=list(kind),
            mask=chunk.is_null(),
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, kind)
