"""Parcels: prepared events of one key group and program in one binary value, on their way to the operator.

What Spark moves, sorts and hands to Python is then a row for many thousands of events. Events as rows of
their own cost a conversion to Arrow, a shuffle, a sort and a pandas frame each.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep import dead_letter
from cep.engine.ordering import hash_column
from cep.engine.predicates import prepare
from cep.files import Chunk
from cep.program import Program
from cep.schema import Stream
from spark_runtime.layout import DEAD_LETTER, INPUT_COUNT, PROGRAM, TEXT, Layout
from spark_runtime.workers import settle

GROUP = "_group"
"""Column: the key group, as a label that Spark sends to the partition meant (see `key_groups`)."""

LATEST = "_latest"
"""Column: the latest event time among what was read, for the watermark; NULL if another parcel tells it."""

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
    """Makes parcels; `labels` are those of the key groups."""

    layout: Layout
    labels: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows of the layout; yield parcels."""
        settle()
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            program = np.asarray(batch.column(PROGRAM))
            for number in range(len(self.layout.programs)):
                part = rows.filter(pa.array(program == number))
                if part.num_rows:
                    yield from self._of_events(number, self.layout.events_of(number, part))
            letters = rows.column(TEXT).filter(pa.array(program == DEAD_LETTER)).to_pylist()
            yield from self._of_texts(DEAD_LETTER, letters)

    def chunk(self, chunk: Chunk, stream: Stream) -> Iterator[pa.RecordBatch]:
        """Yield what was read from a file of events of `stream` as parcels."""
        for number, program in enumerate(self.layout.programs):
            if stream in program.streams:
                yield from self._of_events(number, prepare(program, chunk.events, stream))
        latest_us = None
        if chunk.events.num_rows:
            latest_us = pc.max(chunk.events.column(stream.event_time)).as_py()
        n_read = chunk.events.num_rows + chunk.dead_letters.num_rows
        if n_read:
            yield from self._of_texts(INPUT_COUNT, [str(n_read)], latest_us)
        letters = [dead_letter.json_text(letter) for letter in chunk.dead_letters.to_pylist()]
        yield from self._of_texts(DEAD_LETTER, letters)

    def _of_events(self, number: int, events: pa.Table) -> Iterator[pa.RecordBatch]:
        program = self.layout.programs[number]
        groups = key_groups(program, events, len(self.labels))
        order = np.argsort(groups, kind="stable")  # of 16 bits: sorted by counting
        ends = np.cumsum(np.bincount(groups, minlength=len(self.labels)))
        events = events.take(pa.array(order)).combine_chunks() if len(self.labels) > 1 else events
        start = 0
        for label, end in zip(self.labels, ends.tolist(), strict=True):
            if end > start:
                data = record_bytes(events.slice(start, end - start))
                yield _parcels([label], None, number, [None], [data])
            start = end

    def _of_texts(
        self, code: int, texts: list[str], latest_us: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        if texts:
            labels = [self.labels[zlib.crc32(text.encode()) % len(self.labels)] for text in texts]
            yield _parcels(labels, latest_us, code, texts, [None] * len(texts))


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
