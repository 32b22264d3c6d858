"""Packs chunks into parcels, in the workers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

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
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.wire.output import DEAD, LATE
from spark_runtime.wire.parcels import LATEST, Contents, parcels, record_bytes

_MOST_BEGINS = 256
"""How many candidates for the first event time an extent contains."""


@dataclass(frozen=True)
class Packer:
    """Packs chunks into parcels.

    `rules`: the rules; the number of a program in a parcel is its index in `rules.programs`. `kinds`: kinds
    of output, except matches, that a sink accepts. Output of other kinds is only counted. `gathers`: whether
    rules over rules by a different key run in one call of the operator (`Chains.gathered`).
    """

    rules: RuleSet
    labels: tuple[int, ...]
    kinds: frozenset[str] = frozenset()
    gathers: bool = True

    def keys_of(self, stream: Stream) -> tuple[tuple[str, ...], ...]:
        """Return the keys of the rules that read `stream`."""
        return self.rules.keys_of(stream)

    def chunk(
        self,
        chunk: Chunk,
        stream: Stream,
        watermark_us: int | None,
        counts: Counts,
        *,
        may_be_late: bool = False,
        arrived: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a chunk of `stream` as parcels; events at or before `watermark_us` are late.

        The counts of the chunk are added to `counts` (`counted`). `may_be_late`: only the operator knows the
        watermark, so it also gets the complete events. `arrived`: see `parcels.arrival`.
        """
        rules = self.rules
        counts.add(count_chunk(chunk, stream))
        events = chunk.events
        if watermark_us is not None and events.num_rows:
            late_us = late_by_us(events.column(stream.event_time).to_numpy(), watermark_us)
            events, late = split_late(events, late_us, stream, rules.counted_us)
            counts.corrected += int(is_late(late_us).sum()) - late.num_rows
            if late.num_rows:
                counts.add(count_late(late, stream, rules.keys_of(stream), chunk.source))
                if LATE in self.kinds:
                    yield self._parcel(Contents.LATE_EVENTS, stream.name, record_bytes(late))
        is_new = np.ones(events.num_rows, np.bool_)
        for number, program in enumerate(rules.programs):
            if stream in program.streams:
                prepared, rows = prepare_rows(program, events, stream)
                yield from self.of_events(number, prepared, arrived)
                if may_be_late:
                    yield from self._of_first(number, prepared, rows, events, is_new, stream)
        if stream.table is not None and events.num_rows:
            yield from self._of_versions(stream, events, arrived, may_be_late=may_be_late)
        if rules.has_silent_windows and events.num_rows:
            yield self._extent(stream, events, may_be_late=watermark_us is None)
        if DEAD in self.kinds:
            texts = [dead_letter.json_text(letter) for letter in chunk.dead_letters.to_pylist()]
            if texts:
                yield parcels([*map(self._label, texts)], Contents.DEAD_LETTER, texts=texts)

    def counted(self, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield counts as a parcel, unless all are zero. Called once, at the end of a task."""
        text = counts.to_json()
        if text != "{}":
            latest_us = max((us for us, _ in counts.latest.values()), default=None)
            yield self._parcel(Contents.COUNTS, text, latest_us=latest_us)

    def time(self, watermark_us: int) -> pa.RecordBatch:
        """Return a parcel that moves Spark's watermark to `watermark_us`."""
        return self._parcel(Contents.NOTHING, "", latest_us=watermark_us + self.rules.lateness_us)

    def held_back(self, found: Iterable[pa.RecordBatch], cap_us: int | None) -> Iterator[pa.RecordBatch]:
        """Yield `found` so that no parcel moves Spark's watermark past `cap_us`; None: no limit."""
        if cap_us is None:
            yield from found
            return
        most = pa.scalar(cap_us + self.rules.lateness_us, pa.int64())
        for batch in found:
            latest = pc.min_element_wise(batch.column(LATEST), most, skip_nulls=False)
            yield batch.set_column(batch.schema.get_field_index(LATEST), LATEST, latest)

    def ask(self) -> pa.RecordBatch:
        """Return empty parcels that make Spark call the operator for each key group."""
        return parcels(self.labels, Contents.NOTHING)

    def end(self) -> pa.RecordBatch:
        """Return a parcel for each key group that says that the input is complete."""
        return parcels(self.labels, Contents.END_OF_INPUT)

    def _label(self, text: str) -> int:
        """Return a key group for a text; equal texts get the same one."""
        return self.labels[zlib.crc32(text.encode()) % len(self.labels)]

    def _parcel(
        self, contents: Contents, text: str, data: bytes | None = None, latest_us: int | None = None
    ) -> pa.RecordBatch:
        """Return one parcel, in some key group."""
        label = [self._label(text)]
        return parcels(label, contents, texts=[text], data=[data], latest_us=latest_us)

    def of_events(
        self, number: int, events: pa.Table, arrived: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield prepared events of program `number` as parcels of their key groups."""
        groups = self._groups(number, events)
        order = np.argsort(groups, kind="stable")  # numbers of 16 bits are sorted by counting
        ends = np.cumsum(np.bincount(groups, minlength=len(self.labels)))
        events = events.take(pa.array(order)).combine_chunks() if len(self.labels) > 1 else events
        start = 0
        for label, end in zip(self.labels, ends.tolist(), strict=True):
            if end > start:
                data = record_bytes(events.slice(start, end - start))
                yield parcels([label], Contents.EVENTS, program=number, texts=[arrived], data=[data])
            start = end

    def _of_versions(
        self, table: Stream, versions: pa.Table, arrived: str | None, *, may_be_late: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield versions of a table for the rules that join it, for the key group of their key or for all."""
        for number, program in enumerate(self.rules.programs):
            for at, joined in enumerate(program.joins.tables):
                if joined.table != table:
                    continue
                prepared = prepare_versions(program, at, versions)
                if joined.is_co_partitioned:
                    yield from self.of_events(number, prepared, arrived)
                elif prepared.num_rows:
                    n = len(self.labels)
                    of_each = [record_bytes(plain_table(prepared))] * n
                    yield parcels(
                        self.labels, Contents.EVENTS, program=number, texts=[arrived] * n, data=of_each
                    )
        if may_be_late:
            data = record_bytes(plain_table(versions).cast(event_table_schema(table)))
            yield self._parcel(Contents.MAY_BE_LATE, table.name, data)

    def _extent(self, stream: Stream, events: pa.Table, *, may_be_late: bool) -> pa.RecordBatch:
        """Return parcels that give each key group candidates for the first time of some events, and the last.

        `may_be_late`: the first events may be late, so that a later one is the first.
        """
        first_us, latest_us = extent(stream, events)
        begins_us = [first_us]
        if may_be_late and stream.table is None:
            # Imported here: it loads kernels that other rules do not need.
            from cep.engine.window_rules.silent_windows import last_between_ends

            windows = self.rules.silent_windows
            times_us = plain(events.column(stream.event_time)).cast(pa.int64()).to_numpy()
            found = last_between_ends(windows, times_us)
            if len(found) > _MOST_BEGINS:
                found = found[np.linspace(0, len(found) - 1, _MOST_BEGINS).astype(np.int64)]
            begins_us = found.tolist()
        text = json.dumps([stream.name, begins_us, latest_us])
        return parcels(self.labels, Contents.EXTENT, texts=[text] * len(self.labels))

    def _of_first(
        self,
        number: int,
        prepared: pa.Table,
        rows: I64,
        events: pa.Table,
        is_new: npt.NDArray[np.bool_],
        stream: Stream,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the whole events of `is_new` that are prepared, each for the key group of its first row.

        They are then removed from `is_new`.
        """
        of_events, first = np.unique(rows, return_index=True)
        chosen = is_new[of_events]
        of_events, first = of_events[chosen], first[chosen]
        is_new[of_events] = False
        groups = self._groups(number, prepared)[first]
        for group in np.unique(groups).tolist():
            whole = plain_table(events.take(pa.array(of_events[groups == group])))
            data = record_bytes(whole.cast(event_table_schema(stream)))
            label = [self.labels[group]]
            yield parcels(label, Contents.MAY_BE_LATE, texts=[stream.name], data=[data])

    def _groups(self, number: int, events: pa.Table) -> npt.NDArray[np.uint16]:
        """Return the key group of each prepared event of program `number`."""
        if self.gathers and number in self.rules.chains.gathered:
            return first_group(events)
        return key_groups(self.rules.programs[number], events, len(self.labels))


def groups_of(rules: RuleSet, n_groups: int) -> list[Callable[[pa.Table], npt.NDArray[np.uint16]]]:
    """Return, for each program, what determines the key group of each of its prepared events in a stream."""
    return [
        first_group if number in rules.chains.gathered else partial(key_groups, program, n_groups=n_groups)
        for number, program in enumerate(rules.programs)
    ]


def first_group(events: pa.Table) -> npt.NDArray[np.uint16]:
    """Return the key group of the events of a program whose key groups are not separate."""
    return np.zeros(events.num_rows, np.uint16)


def key_groups(program: Program, events: pa.Table, n_groups: int) -> npt.NDArray[np.uint16]:
    """Return the key group of each prepared event. Checkpoints depend on it: it must not change."""
    hashes = np.zeros(events.num_rows, np.uint64)
    for name in program.key_columns:
        hash_column(events.column(name).combine_chunks(), hashes)
    # The lowest bit of a value's hash distinguishes it from NULL.
    return ((hashes >> np.uint64(32)) % np.uint64(n_groups)).astype(np.uint16)
