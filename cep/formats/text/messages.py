"""Messages of a topic -> events: each value is a separate record, independent of the values around it.

Values are decoded by the readers of lines (`RecordFormat`). This module handles what a line of a file may do
but a message may not: continue in the next record, or be empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.formats import dead_letter
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, Piece, checked, without
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.protocol import CheckedFormat, Decoded, Problem, RecordFormat, RecordReader
from cep.schema.arrow_values import valid_texts
from cep.schema.stream import Field, Stream
from cep.schema.text_values import column_from_text, event_table_schema

EMPTY = "an empty message"
TOMBSTONE = "a message without a value (tombstone)"
DELETION = "d"
"""What the column `op` of a table has where a message without a value deletes a row."""
UPSERT = "upsert"
"""What it has there for a message with a value that does not say it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one origin, in their order.

    `origin`: what dead letters name as their source: ``orders[3]``. `positions`: int64[n], ascending: the
    offset of each message. `columns`: other values of the messages, by the name of the stream's column:
    strings, or values in the types of `event_table_schema`.
    """

    origin: str
    values: Sequence[bytes]
    positions: I64
    columns: Mapping[str, pa.Array]


class MessageReader:
    """Reads the messages of one stream.

    `keys`: keys of the rules: an event with a NULL in each of them is a dead letter. `columns`: the columns
    of the stream that are not in the values. `upserts`: the column with the operation on a row of a table, in
    which a NULL is `UPSERT`.
    """

    def __init__(
        self,
        stream: Stream,
        value_format: RecordFormat,
        keys: tuple[tuple[str, ...], ...] = (),
        columns: Sequence[str] = (),
        upserts: str | None = None,
    ) -> None:
        # A message has no header above it.
        self.stream = replace(stream, csv=replace(stream.csv, has_header=False))
        self.keys, self._upserts = keys, upserts
        named = set(columns)
        if stream.device_clock is not None:
            named.add(stream.event_time)  # estimated later
        self._inside = without(self.stream, named)
        self._encoding = value_format.encoding(self.stream)
        self._quote = value_format.quote(self.stream).encode()
        self._format = value_format

    def check(self) -> None:
        """Raise InputError if no value can be an event of the stream. On the driver, before anything runs."""
        if isinstance(self._format, CheckedFormat):
            self._format.check(self._inside)

    def chunk(self, messages: Messages, ahead: AheadGuard) -> Chunk:
        """Return the events of some messages, and a dead letter for each other message."""
        reader = self._format.reader(messages.origin, self._inside)
        values = self._as_utf8(messages.values)
        return self._chunk(_complete(self._decoded(reader, values), len(values)), messages, ahead)

    def deletions(self, messages: Messages, op: str, ahead: AheadGuard) -> Chunk:
        """Return messages without a value as deletions of rows of a table.

        Their columns give the key and the time; the column `op` gives the operation.
        """
        n = len(messages.positions)
        nothing = event_table_schema(self._inside)
        columns = [
            pa.repeat(pa.scalar(DELETION), n) if field.name == op else pa.nulls(n, field.type)
            for field in nothing
        ]
        events = pa.Table.from_arrays(columns, schema=nothing)
        return self._chunk(Decoded(events, np.arange(n), [], messages.values, n), messages, ahead)

    def _chunk(self, decoded: Decoded, messages: Messages, ahead: AheadGuard) -> Chunk:
        events, bad = self._with_columns(decoded, messages.columns)
        problems = sorted([*decoded.problems, *bad])
        if bad:
            refused = {index for index, _ in bad}
            kept = np.array([index not in refused for index in decoded.indices.tolist()], bool)
            events = events.filter(pa.array(kept))
            decoded = replace(decoded, indices=decoded.indices[kept])
        absent = {name: what for name, what in decoded.absent.items() if name != self._upserts}
        piece = Piece(messages.origin, events, decoded.indices, decoded.records, 0, problems, absent=absent)
        chunk = checked(piece, self.stream, self.keys, ahead)
        return replace(
            chunk,
            dead_letters=_at_positions(chunk.dead_letters, messages.positions),
            latest=int(messages.positions[chunk.latest]) if chunk.events.num_rows else 0,
        )

    def _as_utf8(self, values: Sequence[bytes]) -> Sequence[bytes]:
        if self._encoding == "utf-8":
            return values
        # Invalid bytes are kept in a form for which the reader of the format refuses the message.
        return [
            value.decode(self._encoding, "surrogateescape").encode(errors="surrogatepass") for value in values
        ]

    def _decoded(self, reader: RecordReader, values: Sequence[bytes]) -> Decoded:
        open_quotes = self._not_whole(values)
        if not open_quotes:
            return reader.decode(values, is_last=True)
        others = [b"" if index in open_quotes else value for index, value in enumerate(values)]
        decoded = reader.decode(others, is_last=True)
        problems = [*decoded.problems, *open_quotes.items()]
        return replace(decoded, problems=problems, records=values)

    def _not_whole(self, values: Sequence[bytes]) -> dict[int, str]:
        """Return the values with an open quote, which in a file would continue in the next line."""
        quote = self._quote
        if not quote or quote not in b"\n".join(values):
            return {}
        return {i: dead_letter.MISPLACED_QUOTE for i, value in enumerate(values) if value.count(quote) % 2}

    def _with_columns(
        self, decoded: Decoded, columns: Mapping[str, pa.Array]
    ) -> tuple[pa.Table, list[Problem]]:
        """Return the events with all columns of the stream, and the messages with a wrong column."""
        n_events = decoded.events.num_rows
        problems: list[Problem] = []
        found = []
        for field in self.stream.fields:
            if field.name in columns:
                given = columns[field.name].take(pa.array(decoded.indices))
                if pa.types.is_string(given.type):
                    given, not_text = valid_texts(given)
                    rows = decoded.indices[not_text].tolist()
                    problems += zip(rows, itertools.repeat(dead_letter.NOT_UTF8))
                values, bad = _typed(given, field)
                for row in np.flatnonzero(bad).tolist():
                    reason = dead_letter.wrong_type(field, str(given[row].as_py()))
                    problems.append((int(decoded.indices[row]), reason))
                found.append(values)
            elif field.name in decoded.events.column_names:
                found.append(decoded.events.column(field.name))
            else:
                found.append(pa.nulls(n_events, pa.int64()))
            if field.name == self._upserts:
                found[-1] = pc.fill_null(pc.cast(found[-1], pa.string()), UPSERT)
        events = pa.Table.from_arrays(found, schema=event_table_schema(self.stream))
        return events, list(dict(reversed(problems)).items())


def _typed(given: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    if pa.types.is_string(given.type):
        return column_from_text(given, field)
    return given, np.zeros(len(given), bool)


def _complete(decoded: Decoded, n: int) -> Decoded:
    """Return what was decoded, with a problem for each message that the format ignores."""
    if len(decoded.indices) + len(decoded.problems) == n:
        return decoded
    known = {*decoded.indices.tolist(), *(index for index, _ in decoded.problems)}
    nothing = [(index, EMPTY) for index in range(n) if index not in known]
    return replace(decoded, problems=[*decoded.problems, *nothing])


def _at_positions(dead_letters: pa.Table, positions: I64) -> pa.Table:
    """Return dead letters with the positions of messages in place of their numbers."""
    if dead_letters.num_rows == 0:
        return dead_letters
    at = DEAD_LETTER_SCHEMA.get_field_index("position")
    places = positions[dead_letters.column("position").to_numpy()]
    return dead_letters.set_column(at, DEAD_LETTER_SCHEMA.field(at), pa.array(places, pa.int64()))


def tombstones(origin: str, positions: Sequence[int]) -> pa.Table:
    """Return the dead letters of messages without a value."""
    n = len(positions)
    return pa.table([[TOMBSTONE] * n, [origin] * n, list(positions), [None] * n], schema=DEAD_LETTER_SCHEMA)
