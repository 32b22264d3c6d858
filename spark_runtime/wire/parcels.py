"""Parcels: prepared events of one key group and program in one binary value, on their way to the operator.

What Spark moves, sorts and hands to Python is then a row for many thousands of events. Events as rows of
their own cost a conversion to Arrow, a shuffle, a sort and a pandas frame each.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.counts import Counts
from cep.engine.event_time.watermark import is_late, late_by_us, split_late
from cep.engine.order.ordering import hash_column
from cep.engine.prepare.columns import plain, plain_table
from cep.engine.prepare.predicates import prepare_rows
from cep.engine.prepare.versions import extent, prepare_versions
from cep.formats import dead_letter
from cep.formats.chunks import Chunk
from cep.formats.intake import count_chunk, count_late
from cep.program.program import Program
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.wire.layout import (
    COUNTED,
    DEAD_LETTER,
    END_OF_INPUT,
    EXTENT,
    LATE_EVENTS,
    MAY_BE_LATE,
    PROGRAM,
    TEXT,
    Layout,
)
from spark_runtime.wire.output import DEAD, LATE

GROUP = "_group"
"""Column: the key group, as a label that Spark sends to the partition meant (see `key_groups`)."""

_MOST_BEGINS = 256
"""Of some events so many times are told with which they may begin."""

LATEST = "_latest"
"""Column: the latest event time that was read, for the watermark; NULL if another parcel has it."""

EVENTS = "_events"
"""Column: events of `PROGRAM` as an Arrow record batch without its schema; NULL in all other parcels."""

PARCEL_SCHEMA = pa.schema(
    [
        pa.field(GROUP, pa.int32()),
        pa.field(LATEST, pa.int64()),
        pa.field(PROGRAM, pa.int32()),
        pa.field(TEXT, pa.string()),
        pa.field(EVENTS, pa.binary()),
    ]
)


@dataclass(frozen=True)
class Packer:
    """Makes parcels.

    Parameters
    ----------
    labels
        Those of the key groups.
    kinds
        Kinds of output, besides matches, that a sink takes. Output of other kinds is only counted.
    gathers
        Whether rules over rules by another key run in one call of the operator (`Chains.gathered`).
    """

    layout: Layout
    labels: tuple[int, ...]
    kinds: frozenset[str] = frozenset()
    gathers: bool = True

    def chunk(
        self, chunk: Chunk, stream: Stream, watermark_us: int | None, *, may_be_late: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield what was read of `stream` as parcels; events at or before `watermark_us` are late.

        `may_be_late`: only the operator knows the watermark, so it gets the events whole, too.
        """
        rules = self.layout.rules
        counts = count_chunk(chunk, stream)
        events = chunk.events
        if watermark_us is not None and events.num_rows:
            late_us = late_by_us(events.column(stream.event_time).to_numpy(), watermark_us)
            events, late = split_late(events, late_us, stream, rules.counted_us)
            counts.corrected = int(is_late(late_us).sum()) - late.num_rows
            if late.num_rows:
                counts.add(count_late(late, stream, rules.keys_of(stream), chunk.source))
                if LATE in self.kinds:
                    yield self._parcel(stream.name, LATE_EVENTS, stream.name, record_bytes(late))
        is_new = np.ones(events.num_rows, np.bool_)
        for number, program in enumerate(rules.programs):
            if stream in program.streams:
                prepared, rows = prepare_rows(program, events, stream)
                yield from self.of_events(number, prepared)
                if may_be_late:
                    yield from self._of_first(number, prepared, rows, events, is_new, stream)
        if stream.table is not None and events.num_rows:
            yield from self._of_versions(stream, events, may_be_late=may_be_late)
        if rules.has_silent_windows and events.num_rows:
            yield self._extent(stream, events, may_be_late=watermark_us is None)
        yield from self.counted(counts)
        if DEAD in self.kinds:
            texts = [dead_letter.json_text(letter) for letter in chunk.dead_letters.to_pylist()]
            yield from self._of_texts(DEAD_LETTER, texts)

    def counted(self, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield counts as a parcel, if there is something in them."""
        text = counts.to_json()
        if text != "{}":
            latest_us = max((us for us, _ in counts.latest.values()), default=None)
            yield self._parcel(text, COUNTED, text, None, latest_us)

    def time(self, watermark_us: int) -> pa.RecordBatch:
        """Return a parcel that lets Spark's watermark reach `watermark_us`."""
        return self._parcel("", COUNTED, "{}", None, watermark_us + self.layout.rules.lateness_us)

    def held_back(self, parcels: Iterable[pa.RecordBatch], cap_us: int | None) -> Iterator[pa.RecordBatch]:
        """Yield `parcels`, none of which lets Spark's watermark pass `cap_us`; None: all may."""
        if cap_us is None:
            yield from parcels
            return
        most = pa.scalar(cap_us + self.layout.rules.lateness_us, pa.int64())
        for batch in parcels:
            latest = pc.min_element_wise(batch.column(LATEST), most, skip_nulls=False)
            yield batch.set_column(batch.schema.get_field_index(LATEST), LATEST, latest)

    def ask(self) -> pa.RecordBatch:
        """Return parcels with nothing in them that make Spark call the operator for each key group."""
        n = len(self.labels)
        return _parcels(self.labels, None, COUNTED, [None] * n, [None] * n)

    def end(self) -> pa.RecordBatch:
        """Return the parcels that tell each key group that the input is complete."""
        n = len(self.labels)
        return _parcels(self.labels, None, END_OF_INPUT, [None] * n, [None] * n)

    def _parcel(
        self, place: str, code: int, text: str, data: bytes | None, latest_us: int | None = None
    ) -> pa.RecordBatch:
        """Return one parcel, in some key group."""
        label = self.labels[zlib.crc32(place.encode()) % len(self.labels)]
        return _parcels([label], latest_us, code, [text], [data])

    def of_events(self, number: int, events: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield prepared events of program `number` as parcels of their key groups."""
        groups = self._groups(number, events)
        order = np.argsort(groups, kind="stable")  # of 16 bits: sorted by counting
        ends = np.cumsum(np.bincount(groups, minlength=len(self.labels)))
        events = events.take(pa.array(order)).combine_chunks() if len(self.labels) > 1 else events
        start = 0
        for label, end in zip(self.labels, ends.tolist(), strict=True):
            if end > start:
                data = record_bytes(events.slice(start, end - start))
                yield _parcels([label], None, number, [None], [data])
            start = end

    def _of_versions(
        self, table: Stream, versions: pa.Table, *, may_be_late: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield versions of a table for the rules that join it: to the key group of their key, or to all."""
        for number, program in enumerate(self.layout.programs):
            for at, joined in enumerate(program.joins.tables):
                if joined.table != table:
                    continue
                prepared = prepare_versions(program, at, versions)
                if joined.is_co_partitioned:
                    yield from self.of_events(number, prepared)
                elif prepared.num_rows:
                    n = len(self.labels)
                    data = record_bytes(plain_table(prepared))
                    yield _parcels(self.labels, None, number, [None] * n, [data] * n)
        if may_be_late:
            data = record_bytes(plain_table(versions).cast(event_table_schema(table)))
            yield self._parcel(table.name, MAY_BE_LATE, table.name, data)

    def _extent(self, stream: Stream, events: pa.Table, *, may_be_late: bool) -> pa.RecordBatch:
        """Return parcels that tell each key group with which times some events may begin, and the last one.

        `may_be_late`: the first of them may be late, so that they begin with a later one.
        """
        first_us, latest_us = extent(stream, events)
        begins_us = [first_us]
        if may_be_late and stream.table is None:
            # It loads kernels that other rules have no use for.
            from cep.engine.window_rules.silent_windows import last_between_ends

            windows = self.layout.rules.silent_windows
            times_us = plain(events.column(stream.event_time)).cast(pa.int64()).to_numpy()
            found = last_between_ends(windows, times_us)
            if len(found) > _MOST_BEGINS:
                found = found[np.linspace(0, len(found) - 1, _MOST_BEGINS).astype(np.int64)]
            begins_us = found.tolist()
        n = len(self.labels)
        text = json.dumps([stream.name, begins_us, latest_us])
        return _parcels(self.labels, None, EXTENT, [text] * n, [None] * n)

    def _of_first(
        self,
        number: int,
        prepared: pa.Table,
        rows: I64,
        events: pa.Table,
        is_new: npt.NDArray[np.bool_],
        stream: Stream,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events `is_new` that are prepared, whole, each for the key group of its first row.

        They are new no more.
        """
        of_events, first = np.unique(rows, return_index=True)
        chosen = is_new[of_events]
        of_events, first = of_events[chosen], first[chosen]
        is_new[of_events] = False
        groups = self._groups(number, prepared)[first]
        for group in np.unique(groups).tolist():
            whole = plain_table(events.take(pa.array(of_events[groups == group])))
            data = record_bytes(whole.cast(event_table_schema(stream)))
            yield _parcels([self.labels[group]], None, MAY_BE_LATE, [stream.name], [data])

    def _groups(self, number: int, events: pa.Table) -> npt.NDArray[np.uint16]:
        """Return the key group of each prepared event of program `number`."""
        if self.gathers and number in self.layout.rules.chains.gathered:
            return np.zeros(events.num_rows, np.uint16)
        return key_groups(self.layout.programs[number], events, len(self.labels))

    def _of_texts(self, code: int, texts: list[str]) -> Iterator[pa.RecordBatch]:
        if texts:
            labels = [self.labels[zlib.crc32(text.encode()) % len(self.labels)] for text in texts]
            yield _parcels(labels, None, code, texts, [None] * len(texts))


def _parcels(
    labels: Sequence[int],
    latest_us: int | None,
    code: int,
    texts: Sequence[str | None],
    data: Sequence[bytes | None],
) -> pa.RecordBatch:
    n = len(labels)
    columns = [labels, [latest_us] * n, [code] * n, texts, data]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, PARCEL_SCHEMA, strict=True)],
        schema=PARCEL_SCHEMA,
    )


def key_groups(program: Program, events: pa.Table, n_groups: int) -> npt.NDArray[np.uint16]:
    """Return the key group of each prepared event. A checkpoint relies on it: it must not change."""
    hashes = np.zeros(events.num_rows, np.uint64)
    for name in program.key_columns:
        hash_column(events.column(name).combine_chunks(), hashes)
    # The lowest bit of a value's hash tells it from NULL.
    return ((hashes >> np.uint64(32)) % np.uint64(n_groups)).astype(np.uint16)


def record_bytes(table: pa.Table) -> bytes:
    """Return the rows of a table that is not empty as bytes, without its schema."""
    (batch,) = table.combine_chunks().to_batches()
    return bytes(batch.serialize())


def table_of_bytes(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Return the table that `record_bytes` made."""
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), schema)])
