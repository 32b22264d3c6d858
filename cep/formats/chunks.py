"""Events in bounded portions: pieces from the reader of a format, and chunks for everything else."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.formats import dead_letter
from cep.formats.ahead import AheadGuard
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.protocol import Indices, Problem
from cep.schema.arrow_values import json_rows
from cep.schema.stream import Stream
from cep.schema.table_rows import known_operations
from cep.schema.text_values import event_table_schema


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events in order of arrival, and the dead letters (`DEAD_LETTER_SCHEMA`) among them.

    `events` has the columns of `event_table_schema`; strings may be dictionaries of them. `source` is the
    file or other origin of the events, `latest` the position of the event with the latest time, and `place`
    that position as text. A file that `is_refused` has no events: its only dead letter gives the position
    from which it could not be read. A file that `is_empty` has no bytes; one that `is_partial` is not read,
    because the end of its name says that it is not complete. `partition` is the partition of a source that
    has several. `n_records` is the number of records of the stream before any was refused, and `absent` the
    columns that they lacked (`Decoded.absent`).
    """

    events: pa.Table
    dead_letters: pa.Table
    source: str = ""
    latest: int = 0
    is_refused: bool = False
    is_empty: bool = False
    is_partial: bool = False
    partition: str = ""
    place: str = ""
    n_records: int = 0
    absent: Mapping[str, str] = field(default_factory=dict)


def place_in_file(file: str, position: int) -> str:
    """Return the position of a record in a file as text: ``orders.json:12``."""
    return f"{file}:{position}"


def no_events(
    stream: Stream,
    source: str,
    dead_letters: pa.Table | None = None,
    *,
    is_refused: bool = False,
    is_empty: bool = False,
    is_partial: bool = False,
) -> Chunk:
    """Return a chunk without events."""
    dead = DEAD_LETTER_SCHEMA.empty_table() if dead_letters is None else dead_letters
    events = event_table_schema(stream).empty_table()
    return Chunk(events, dead, source, is_refused=is_refused, is_empty=is_empty, is_partial=is_partial)


@dataclass(frozen=True, slots=True)
class Piece:
    """Events with the place of each: `positions[i]` is the line or row of event i.

    Without `lines` and `cells`, only the events are known, not the input.
    """

    source: str
    events: pa.Table
    positions: Indices
    lines: Sequence[bytes]  # of a text file; empty for Parquet
    first_line: int
    problems: Sequence[Problem]  # line or row, reason
    cells: pa.RecordBatch | None = None  # of Parquet: the rows from `first_line` on
    absent: Mapping[str, str] = field(default_factory=dict)  # see `Decoded`

    @property
    def next_position(self) -> int:
        """The line or row after the last one of the piece."""
        return self.first_line + (len(self.lines) if self.cells is None else self.cells.num_rows)

    def raws_of_events(self, rows: Indices) -> list[str]:
        """Return the raw input of events."""
        if self.lines or self.cells is not None:
            return self.raws(self.positions[rows].tolist())
        return [text for batch in self.events.take(pa.array(rows)).to_batches() for text in json_rows(batch)]

    def raws(self, positions: Sequence[int]) -> list[str]:
        """Return lines as text, even with invalid bytes, or rows of Parquet as JSON."""
        if self.cells is None:
            return [self.lines[line - self.first_line].decode(errors="replace") for line in positions]
        rows = np.array(positions, np.int64) - self.first_line
        return json_rows(self.cells.take(pa.array(rows)))


def without(stream: Stream, named: Container[str]) -> Stream:
    """Return the stream with only the columns that are in a file itself, not in its name."""
    return replace(stream, fields=tuple(field for field in stream.fields if field.name not in named))


def with_columns(piece: Piece, stream: Stream, named: Mapping[str, pa.Scalar]) -> Piece:
    """Return the piece with the columns from the name of its file added."""
    if not named:
        return piece
    events = piece.events
    columns = [
        pa.repeat(named[field.name], len(events)) if field.name in named else events.column(field.name)
        for field in stream.fields
    ]
    return replace(piece, events=pa.table(columns, names=[field.name for field in stream.fields]))


def checked(piece: Piece, stream: Stream, keys: Sequence[Sequence[str]], ahead: AheadGuard) -> Chunk:
    """Return the piece as a chunk, with events that no rule can use among the dead letters."""
    texts = piece.raws([position for position, _ in piece.problems])
    dead = [(*problem, text) for problem, text in zip(piece.problems, texts, strict=True)]
    events = piece.events
    if stream.device_clock is not None:
        assert ahead.clocks is not None, "a stream with a device clock is read in order"
        at = events.schema.get_field_index(stream.event_time)
        events = events.set_column(at, stream.event_time, ahead.clocks.true_times(events))
    usable = np.ones(len(events), dtype=bool)
    for bad, reason in unusable(events, stream, keys, ahead):
        if not bad.any():
            continue
        rows = np.flatnonzero(bad & usable)
        if len(rows):
            positions = piece.positions[rows].tolist()
            dead += zip(positions, itertools.repeat(reason), piece.raws_of_events(rows))
        usable &= ~bad
    if not usable.all():
        events = events.filter(pa.array(usable))
    latest = 0
    if len(events) and not stream.is_static:
        row = int(np.argmax(events.column(stream.event_time).to_numpy()))
        at = row if usable.all() else int(np.flatnonzero(usable)[row])
        latest = int(piece.positions[at])
    dead.sort()
    columns = [
        [reason for _, reason, _ in dead],
        [dead_letter.printable(piece.source)] * len(dead),
        [position for position, _, _ in dead],
        [raw for _, _, raw in dead],
    ]
    dead_letters = pa.table(columns, schema=DEAD_LETTER_SCHEMA)
    return Chunk(
        events,
        dead_letters,
        piece.source,
        latest,
        place=place_in_file(piece.source, latest),
        n_records=len(piece.events),
        absent=piece.absent,
    )


def unusable(
    events: pa.Table, stream: Stream, keys: Sequence[Sequence[str]], ahead: AheadGuard
) -> Iterator[tuple[Mask, str]]:
    """Yield which events cannot be used for a reason, and the reason; an event may have several."""
    if stream.table is not None:
        yield from _unusable_versions(events, stream)
    if stream.is_static:
        return
    times = events.column(stream.event_time)
    ends = pc.min_max(times).as_py()
    if (
        times.null_count == 0
        and len(times)
        and stream.min_valid_us <= ends["min"] <= ends["max"] < stream.max_valid_us
    ):
        # The usual case: two numbers replace the four masks below.
        yield ahead.refused(times.to_numpy()), dead_letter.beyond_max_ahead(stream)
    else:
        yield pc.is_null(times).to_numpy(), dead_letter.null_event_time(stream)
        outside = pc.or_(pc.less(times, stream.min_valid_us), pc.greater_equal(times, stream.max_valid_us))
        is_outside = pc.fill_null(outside, fill_value=True).to_numpy()
        yield is_outside, dead_letter.invalid_event_time(stream)
        is_ahead = np.zeros(len(events), dtype=bool)
        is_ahead[~is_outside] = ahead.refused(pc.fill_null(times, 0).to_numpy()[~is_outside])
        yield is_ahead, dead_letter.beyond_max_ahead(stream)
    if stream.device_clock is not None:
        behind = pc.subtract(events.column(stream.device_clock.received), times)
        is_behind = pc.greater(behind, stream.device_clock.max_behind_us)
        yield pc.fill_null(is_behind, fill_value=False).to_numpy(), dead_letter.beyond_max_behind(stream)
    if keys:
        without_key = np.ones(len(events), dtype=bool)
        for key in keys:
            nullable = [column for column in map(events.column, key) if column.null_count]
            if not nullable:
                return  # every event has this key
            without_key &= np.logical_or.reduce([pc.is_null(column).to_numpy() for column in nullable])
        yield without_key, dead_letter.null_key(keys)


def _unusable_versions(rows: pa.Table, table: Stream) -> Iterator[tuple[Mask, str]]:
    """Yield which versions cannot be used for a reason, and the reason; a version may have several."""
    settings = table.table
    assert settings is not None
    keys = [rows.column(name) for name in settings.key]
    if any(column.null_count for column in keys):
        no_key = np.logical_or.reduce([np.asarray(pc.is_null(column)) for column in keys])
        yield no_key, dead_letter.null_key([settings.key])
    if settings.op is None:
        return
    words = rows.column(settings.op)
    if pa.types.is_dictionary(words.type):
        words = pc.cast(words, pa.string())
    is_known = known_operations(words)
    if is_known.all():
        return
    is_null = np.asarray(pc.is_null(words))
    yield is_null, f"`{settings.op}` is NULL"
    for word in pc.unique(words.filter(pa.array(~is_known & ~is_null))).to_pylist():
        is_it = np.asarray(pc.is_in(words, value_set=pa.array([word], words.type)))
        shown = dead_letter.json_text(word)
        yield is_it, f"no such `{settings.op}`: {shown}, known are insert, update and delete"
