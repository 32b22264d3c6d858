"""Turns Spark's rows into parcels, in the workers, with the same readers as without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import Counts
from cep.errors import InputError
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.ahead import ANY_TIME_US, AheadGuard
from cep.formats.chunks import Chunk, Piece, checked, with_columns, without
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.files import BadFile, Reading, refused_chunk, text_reader, values_in_path
from cep.formats.lines import Lines, lines_of_column, without_returns
from cep.formats.text.text_files import lines_as_utf8
from cep.schema.arrow_values import json_rows, json_value, opaque_column, valid_texts
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.dataflow.message_frames import NOWHERE
from spark_runtime.event_time.reached import Reached
from spark_runtime.sources.protocol import Packs
from spark_runtime.wire.loaded import freeze_loaded
from spark_runtime.wire.plan import Plan

Reads = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that turns batches of rows into parcels, in the workers."""


@dataclass(frozen=True)
class Renamed:
    """Gives a reader batches whose columns have other names in Spark."""

    reader: Reads
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the reader yields."""
        named = (pa.RecordBatch.from_arrays(batch.columns, list(self.names)) for batch in batches)
        return self.reader(named)


PATH, POSITION, MISFIT = "_path", "_position", "_misfit"
"""Columns of typed events: the origin of each, and the values that lack their declared form, as JSON."""


@dataclass(frozen=True)
class LineReader:
    """Turns lines of text files that only Spark can read into parcels.

    A partition contains whole files, one after another, each from its first line.
    """

    packer: Packs
    stream: Stream
    file_format: str
    reading: Reading

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of batches of lines; each line has the path of its file."""
        freeze_loaded()
        plan = Plan.of_task()
        yield from self.packer.held_back(self._parcels(batches, plan.reached), plan.told_us)

    def _parcels(self, batches: Iterable[pa.RecordBatch], reached: Reached) -> Iterator[pa.RecordBatch]:
        ahead, counts = reached.guard(self.stream), Counts()
        for path, portions in groupby(_portions(batches), key=itemgetter(0)):
            for chunk in self._chunks(path, (lines for _, lines in portions), ahead):
                yield from self.packer.chunk(chunk, self.stream, reached.watermark_us, counts)
        yield from self.packer.counted(counts)

    def _chunks(self, path: str, portions: Iterable[Lines], ahead: AheadGuard) -> Iterator[Chunk]:
        name, position = local_name(path), 1
        try:
            for piece in self._pieces(name, portions):
                position = piece.next_position
                yield checked(piece, self.stream, self.reading.keys, ahead)
        except InputError as error:
            if self.reading.on_bad_file is BadFile.FAIL:
                raise
            yield refused_chunk(name, position, self.stream, error)

    def _pieces(self, name: str, portions: Iterable[Lines]) -> Iterator[Piece]:
        named = values_in_path(name, self.stream, self.reading.pattern)
        reader = text_reader(name, self.stream, self.file_format, named)
        for lines in portions:
            yield from reader.read(lines_as_utf8(lines, reader.encoding))
        yield from reader.read([], is_last=True)


@dataclass(frozen=True)
class RowReader:
    """Turns rows of a source that only Spark can read into parcels."""

    packer: Packs
    stream: Stream
    reading: Reading

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of batches of typed events with `PATH`, `POSITION` and `MISFIT`."""
        freeze_loaded()
        plan = Plan.of_task()
        yield from self.packer.held_back(self._parcels(batches, plan.reached), plan.told_us)

    def _parcels(self, batches: Iterable[pa.RecordBatch], reached: Reached) -> Iterator[pa.RecordBatch]:
        ahead, counts = reached.guard(self.stream), Counts()
        for batch in batches:
            for path in pc.unique(batch.column(PATH)).to_pylist():
                rows = pa.Table.from_batches([batch])
                rows = rows.filter(pc.equal(rows.column(PATH), path)).combine_chunks()
                chunk = self._chunk(local_name(path), rows, ahead)
                yield from self.packer.chunk(chunk, self.stream, reached.watermark_us, counts)
        yield from self.packer.counted(counts)

    def _chunk(self, name: str, rows: pa.Table, ahead: AheadGuard) -> Chunk:
        named = values_in_path(name, self.stream, self.reading.pattern)
        schema = event_table_schema(without(self.stream, named))
        rows, broken = _with_texts(rows, self.stream, name)
        bad = rows.filter(pc.is_valid(rows.column(MISFIT)))
        rows = rows.filter(pc.is_null(rows.column(MISFIT)))
        positions = rows.column(POSITION).to_numpy()
        piece = Piece(name, rows.select(schema.names).cast(schema), positions, (), 1, ())
        chunk = checked(with_columns(piece, self.stream, named), self.stream, self.reading.keys, ahead)
        chunk = _with_more(chunk, broken)
        if bad.num_rows == 0:
            return chunk
        texts = bad.column(MISFIT).to_pylist()
        columns = [
            [_misfit_reason(text, self.stream) for text in texts],
            [dead_letter.printable(name)] * len(texts),
            bad.column(POSITION),
            texts,
        ]
        return _with_more(chunk, pa.table(columns, schema=DEAD_LETTER_SCHEMA))


def _with_more(chunk: Chunk, dead_letters: pa.Table) -> Chunk:
    return replace(chunk, dead_letters=pa.concat_tables([chunk.dead_letters, dead_letters]))


def with_texts(rows: pa.Table, stream: Stream) -> tuple[pa.Table, dict[int, str]]:
    """Return typed events with opaque columns as the strings of rules, and why some rows are not events.

    The text of an opaque value is the same as without Spark, whose own JSON has other numbers. Spark does not
    check strings.
    """
    reasons: dict[int, str] = {}
    for at, (name, column) in enumerate(zip(rows.column_names, rows.combine_chunks().columns, strict=True)):
        field = stream.field(name)
        values = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if field is not None and field.type is Type.OPAQUE:
            texts, bad = opaque_column(values, field.column_type)
            rows = rows.set_column(at, name, texts)
            for row in np.flatnonzero(bad).tolist():
                reasons.setdefault(row, dead_letter.wrong_type(field, json_value(values[row])))
        elif pa.types.is_string(column.type):
            for row in np.flatnonzero(valid_texts(values)[1]).tolist():
                reasons.setdefault(row, dead_letter.NOT_UTF8)
    return rows, reasons


def _with_texts(given: pa.Table, stream: Stream, source: str) -> tuple[pa.Table, pa.Table]:
    """Return the rows with the strings of rules, see `with_texts`, and those without as dead letters."""
    rows, reasons = with_texts(given, stream)
    if not reasons:
        return rows, DEAD_LETTER_SCHEMA.empty_table()
    bad = np.zeros(rows.num_rows, np.bool_)
    bad[list(reasons)] = True
    broken = given.filter(pa.array(bad)).combine_chunks()
    n = broken.num_rows
    positions = broken.column(POSITION) if POSITION in broken.column_names else [NOWHERE] * n
    own = [name for name in broken.column_names if name not in (PATH, POSITION, MISFIT)]
    raws = [text for batch in broken.select(own).to_batches() for text in json_rows(batch)]
    columns = [
        [reasons[row] for row in sorted(reasons)],
        [dead_letter.printable(source)] * n,
        positions,
        raws,
    ]
    return rows.filter(pa.array(~bad)), pa.table(columns, schema=DEAD_LETTER_SCHEMA)


def _misfit_reason(text: str, stream: Stream) -> str:
    """Return why a row is not an event; `text` contains its misfits, as JSON."""
    name, value = next(iter(json.loads(text).items()))
    field = stream.field(name)
    assert field is not None, name
    return dead_letter.wrong_type(field, dead_letter.json_text(value))


@dataclass(frozen=True)
class TypedReader:
    """Turns typed events of a DataFrame (`spark_runtime.dataflow.schema.typed_events`) into parcels.

    `is_checked`: whether events that no rule can use become dead letters. `may_be_late`: whether the operator
    also gets the complete events, and returns those that came too late.
    """

    packer: Packs
    stream: Stream
    is_checked: bool = False
    may_be_late: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of batches of events."""
        freeze_loaded()
        keys, counts = self.packer.keys_of(self.stream), Counts()
        for batch in batches:
            events, broken = _with_texts(pa.Table.from_batches([batch]), self.stream, self.stream.name)
            chunk = Chunk(events, DEAD_LETTER_SCHEMA.empty_table())
            if self.is_checked or self.stream.table is not None:
                nowhere = np.full(len(events), NOWHERE, np.int64)  # a row of a DataFrame has no number
                piece = Piece(self.stream.name, events, nowhere, (), 0, ())
                # A DataFrame contains its event times: none is estimated.
                timed = replace(self.stream, device_clock=None)
                chunk = checked(piece, timed, keys, AheadGuard(ANY_TIME_US))
            if self.is_checked:
                chunk = _with_more(chunk, broken)
            yield from self.packer.chunk(chunk, self.stream, None, counts, may_be_late=self.may_be_late)
        yield from self.packer.counted(counts)


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Lines]]:
    """Yield pairs of a file's path and some of its lines."""
    for batch in batches:
        lines, paths = batch.columns
        start = 0
        while start < batch.num_rows:
            path = paths[start].as_py()
            stop = batch.num_rows
            if paths[stop - 1].as_py() != path:
                stop = start + int(np.argmin(np.asarray(pc.equal(paths.slice(start), path))))
            part = lines.slice(start, stop - start)
            yield path, without_returns(lines_of_column(part))
            start = stop


def local_name(path: str) -> str:
    """Return a file's path as a user writes it: without ``file:`` and percent signs."""
    for scheme in ("file://", "file:"):
        if path.startswith(scheme):
            return unquote(path.removeprefix(scheme))
    return path
