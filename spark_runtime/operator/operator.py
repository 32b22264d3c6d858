"""The stateful operator: the engine's `Matcher` inside Spark, one call for all keys of a key group.

In a stream it is `applyInPandasWithState` with event-time timeouts, in a batch `mapInArrow` over partitions.
Parcels go in (`spark_runtime.wire.parcels`), output comes out (`spark_runtime.wire.output`).

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import copy
import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from cep.counts import Counts
from cep.engine.chains.chain import Chain, units_of
from cep.engine.corrections.corrector import Corrector, is_corrected, restored
from cep.engine.event_time.watermark import is_late, late_by_us, split_late
from cep.engine.matching.counters import Counters
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.versions import extent_rows
from cep.engine.state.codec import decode, header, other_format
from cep.engine.state.sections import other_rules
from cep.errors import StateError
from cep.formats.intake import count_late
from cep.formats.late_events import late_schema
from cep.program.program import COUNTED_COLUMN, STREAM_COLUMN, TIME_COLUMN, missing_column, widened
from cep.program.tables import VERSION_COLUMN
from cep.rule_set import BY_CLOCK, BY_EVENT, ENDED_BY
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.operator.stages import as_output, as_parcels, later_parcels
from spark_runtime.sinks.delivery import ALL_AS_ROWS, Delivery
from spark_runtime.tables.content import Content, tables_of, told_to_task
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
from spark_runtime.wire.loaded import freeze_loaded
from spark_runtime.wire.output import (
    COUNTS,
    LATE,
    MATCH,
    OUTPUT_SCHEMA,
    Found,
    Matches,
    carried,
    carried_schema,
)
from spark_runtime.wire.parcels import EVENTS, Packer, record_bytes, table_of_bytes
from spark_runtime.wire.plan import cap_of_task, clock_of_task

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

    from cep.engine.tables.tables import GivenTable

Tables = Mapping[str, "GivenTable"]
"""Static tables, by name."""

_HEADER = struct.Struct("<4sHHI")
_LENGTH = struct.Struct("<Q")
_MAGIC = b"SCKG"
_FORMAT = 3


@dataclass(frozen=True)
class KeyGroups:
    """The operator as a function that Spark calls; it travels to the executors.

    Parameters
    ----------
    layout
        The rules, and how their events lie in parcels.
    n_groups
        Number of key groups, written into the state: another number would send keys to other states.
    delivery
        What becomes of the output.
    by_own_events
        Whether the latest event of a group shows how far its event time is.
    tables
        What static tables hold, unless the tasks are told.
    first_group
        The label of the key group that counts what all key groups get.
    """

    layout: Layout
    n_groups: int
    delivery: Delivery = ALL_AS_ROWS
    by_own_events: bool = True
    tables: Mapping[str, Content] = field(default_factory=dict)
    first_group: int = 0

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Take in the parcels of one key group and one micro-batch, or its timeout; yield what comes out."""
        freeze_loaded()
        tables = tables_of(self.layout.programs, self.tables, told_to_task())
        matchers = decode_state(state.get[0], self.layout, self.n_groups, tables) if state.exists else None
        call = _Call(
            self, Chain(self.layout.rules, matchers, tables=tables), is_first=key[0] == self.first_group
        )
        matchers = call.chain.matchers
        if not state.hasTimedOut:
            for frame in frames:
                for parcel in zip(frame[PROGRAM], frame[TEXT], frame[EVENTS], strict=True):
                    call.push(*parcel)
        spark_watermark_us = state.getCurrentWatermarkMs() * 1000
        # Spark's watermark starts at 1970: before any event it says nothing.
        cap_us = cap_of_task()
        clock_us = clock_of_task() if self.layout.rules.tells_end else None
        call.advance(spark_watermark_us if spark_watermark_us > 0 else None, cap_us, clock_us)
        if cap_us is not None:
            call.counts.waiting[str(key[0])] = sum(matcher.n_waiting for matcher in matchers)
            call.counts.waiting_bytes[str(key[0])] = sum(matcher.waiting_bytes for matcher in matchers)
        state.update((encode_state(matchers, self.n_groups),))
        deadline_us = call.chain.next_deadline_us()
        if self.layout.rules.tells_end:
            call.counts.deadlines[str(key[0])] = deadline_us
        if deadline_us is not None:
            # Spark calls once its watermark has passed the timeout; we want it reached.
            timeout_ms = -(-deadline_us // 1000) - 1
            state.setTimeoutTimestamp(max(timeout_ms, state.getCurrentWatermarkMs(), 1))
        file = f"{key[0]}-timeout" if state.hasTimedOut else str(key[0])
        return (batch.to_pandas() for batch in call.output(file))

    def batch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in all parcels of one partition of a batch; yield what comes out."""
        freeze_loaded()
        call = _Call(self, Chain(self.layout.rules, tables=tables_of(self.layout.programs, self.tables, {})))
        for batch in batches:
            call.push_all(batch)
            del batch  # or the last one stays until the end
        call.finish()
        context = TaskContext.get()
        assert context is not None
        yield from call.output(str(context.partitionId()))

    def batch_stage(
        self, batches: Iterable[pa.RecordBatch], packer: Packer, stage: int, *, is_last: bool
    ) -> Iterator[pa.RecordBatch]:
        """Take in all parcels of one partition of a batch; yield what one stage of the rules makes of them.

        These are parcels for the next stage, or what comes out, if this stage `is_last`.
        """
        freeze_loaded()
        fed: list[pa.RecordBatch] = []

        def forward(number: int, events: pa.Table) -> None:
            fed.extend(packer.of_events(number, events))

        tables = tables_of(self.layout.programs, self.tables, {})
        call = _Call(self, Chain(self.layout.rules, tables=tables, stage=stage, forward=forward))
        for batch in batches:
            now, later = later_parcels(batch, self.layout.rules.chains.stages, stage)
            call.push_all(now)
            if later.num_rows:
                yield as_output(later) if is_last else later
        call.finish()
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        found = call.output(f"{stage}-{number}")
        yield from fed
        yield from found if is_last else as_parcels(found, packer.labels[number % len(packer.labels)])

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows of output that have matches; yield these (`carried_schema`)."""
        schema = carried_schema(self.layout.rules.match_schema)
        for batch in batches:
            for data in batch.column(0).to_pylist():
                yield from table_of_bytes(data, schema).to_batches()


class _Call:
    """One call of the operator: what went in, what comes out."""

    def __init__(self, operator: KeyGroups, chain: Chain, *, is_first: bool = True) -> None:
        self.operator = operator
        self.chain = chain
        self.is_first = is_first
        self.layout = operator.layout
        self.schema = carried_schema(operator.layout.rules.match_schema)
        self.matchers = chain.matchers
        self.before = [copy.deepcopy(matcher.counters) for matcher in chain.matchers]
        self.duplicates = chain.duplicates_of()
        self.latest_us: int | None = None
        self.is_end = False
        self.gets_whole = any(kind.startswith(LATE) for kind in operator.delivery.kinds)
        self.counts = Counts()
        self.found = Found(Matches(self.schema))
        self.late = [np.zeros(len(program.streams), np.int64) for program in self.layout.programs]
        self.late_versions: Counter[str] = Counter()  # by table
        # Of the events that all key groups got, by stream: when they may begin, and the last time.
        self.extents: dict[str, tuple[list[int], int]] = {}

    def push(self, number: int, text: str | None, data: bytes | pa.Buffer | None) -> None:
        """Take in one parcel."""
        if number >= 0:
            assert data is not None
            self._push_events(number, table_of_bytes(data, self.layout.programs[number].event_schema))
        elif number == END_OF_INPUT:
            self.is_end = True
        elif text is None:
            return
        elif number == EXTENT:
            name, begins_us, latest_us = json.loads(text)
            known = self.extents.get(name, ([], latest_us))
            self.extents[name] = known[0] + begins_us, max(known[1], latest_us)
        elif number == COUNTED:
            self.counts.add(Counts.of_json(text))
        elif number == DEAD_LETTER:
            self.found.dead.append(text)
        elif number == LATE_EVENTS and data is not None:
            stream = self.layout.rules.inputs[text]
            self.found.late.setdefault(text, []).append(table_of_bytes(data, late_schema(stream)))
        elif number == MAY_BE_LATE and data is not None:
            stream = self.layout.rules.inputs[text]
            self._push_whole(stream, table_of_bytes(data, event_table_schema(stream)))

    def _push_extents(self) -> None:
        """Tell rules with windows without events from when to when the input is, without late events."""
        final_us = self.chain.watermark_us - self.layout.rules.counted_us
        for number, program in enumerate(self.layout.programs):
            if program.has_silent_windows:
                for name, (begins_us, latest_us) in self.extents.items():
                    first_us = min((begin_us for begin_us in begins_us if begin_us > final_us), default=None)
                    stream = self.layout.rules.inputs[name]
                    self.chain.push(number, extent_rows(program, stream, first_us, latest_us))

    def push_all(self, parcels: pa.RecordBatch) -> None:
        """Take in all parcels of a batch; their bytes are not copied."""
        numbers, texts, events = (parcels.column(name) for name in (PROGRAM, TEXT, EVENTS))
        for number, text, data in zip(numbers.to_pylist(), texts.to_pylist(), events, strict=True):
            self.push(number, text, data.as_buffer() if data.is_valid else None)

    def _push_events(self, number: int, events: pa.Table) -> None:
        latest_us = pc.max(events.column(TIME_COLUMN)).as_py()
        self.latest_us = latest_us if self.latest_us is None else max(self.latest_us, latest_us)
        # Only a DataFrame's events can be late here: those of a pipeline were judged when they were read.
        late = self.chain.push(number, events)
        if late.num_rows and VERSION_COLUMN in late.column_names:
            late = self._note_late_versions(number, late)
        if late.num_rows and COUNTED_COLUMN in late.column_names:  # in several partitions: once
            late = late.filter(late.column(COUNTED_COLUMN))
        if late.num_rows and self.gets_whole:  # all but those that could have been corrected are counted
            final_us = self.chain.watermark_us - self.layout.rules.counted_us
            late = late.filter(pc.greater(late.column(TIME_COLUMN), final_us))
        if late.num_rows:
            self._note_late(number, late)

    def _note_late_versions(self, number: int, late: pa.Table) -> pa.Table:
        """Count the versions of tables that are late; return the events that are."""
        version = np.asarray(late.column(VERSION_COLUMN))
        tables = self.layout.programs[number].joins.tables
        counts = np.bincount(np.abs(version), minlength=len(tables) + 1)
        found: Counter[str] = Counter()
        for joined, n in zip(tables, counts[1:].tolist(), strict=True):
            # A version that all key groups get is late once, whatever the number of key groups and rules.
            if n and not self.gets_whole and (joined.is_co_partitioned or self.is_first):
                found[joined.table.name] = max(found[joined.table.name], n)
        self.late_versions |= found
        return late.filter(pa.array(version == 0))

    def _push_whole(self, stream: Stream, events: pa.Table) -> None:
        """Keep and count what of `events` comes too late; the matchers get and drop it by itself."""
        time_us = np.asarray(events.column(stream.event_time))
        late_us = late_by_us(time_us, self.chain.watermark_us)
        _, late = split_late(events, late_us, stream, self.layout.rules.counted_us)
        self.counts.corrected += int(is_late(late_us).sum()) - late.num_rows
        if late.num_rows:
            self.found.late.setdefault(stream.name, []).append(late)
            self.counts.add(count_late(late, stream, self.layout.rules.keys_of(stream)))

    def _note_late(self, number: int, late: pa.Table) -> None:
        """Count late events by stream."""
        n_streams = len(self.layout.programs[number].streams)
        stream = np.zeros(late.num_rows, np.int64)
        if n_streams > 1:
            stream = np.asarray(late.column(STREAM_COLUMN))
        self.late[number] += np.bincount(stream, minlength=n_streams)

    def advance(
        self, spark_watermark_us: int | None, cap_us: int | None, clock_us: int | None = None
    ) -> None:
        """Let the group's event time go on.

        It goes as far as Spark's watermark or as the group's own events show, or to `cap_us` if that is
        given: then some source partition is behind, and the latest event says nothing. With `clock_us` events
        show `cap_us`, and the wall clock moves event time from there to `clock_us`. Spark's watermark says
        nothing then: the clock may have moved it before.
        """
        self._push_extents()
        if self.is_end:
            self.chain.finish(self._put_matches)
            return
        if clock_us is not None:
            assert cap_us is not None
            self._advance_by_clock(cap_us, clock_us)
            return
        reached = [] if spark_watermark_us is None else [spark_watermark_us]
        if cap_us is not None:
            reached.append(cap_us)
        elif self.latest_us is not None and self.operator.by_own_events:
            reached.append(self.latest_us - self.layout.rules.lateness_us)
        if reached:
            self.chain.advance(max(reached), self._put_matches)

    def _advance_by_clock(self, events_us: int, clock_us: int) -> None:
        put_of_clock = partial(self._put_matches, ended_by=BY_CLOCK)
        self.chain.advance(events_us, self._put_matches, put_beyond=put_of_clock)
        self.chain.advance(clock_us, put_of_clock)

    def finish(self) -> None:
        """The input is complete."""
        self._push_extents()
        self.chain.finish(self._put_matches)

    def _put_matches(self, matches: pa.Table, ended_by: str = BY_EVENT) -> None:
        n = matches.num_rows
        if n == 0:
            return
        columns = {field.name: carried(matches.column(field.name)) for field in matches.schema}
        if self.layout.rules.tells_end:
            columns[ENDED_BY] = pa.chunked_array([pa.repeat(pa.scalar(ended_by), n)])
        arrays = [
            widened(columns[field.name], field.type) if field.name in columns else missing_column(field, n)
            for field in self.schema
        ]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        self.counts.rows += n
        self.found.matches.append(table)

    def output(self, file: str) -> Iterator[pa.RecordBatch]:
        """Deliver what was found, in files named after `file`; yield the rest, with the counts."""
        rules = self.layout.rules
        after = [matcher.counters for matcher in self.matchers]
        # A late event is one for the rules of every key: count it once.
        for stream, n in rules.events_met([late.tolist() for late in self.late]).items():
            if n:
                self.counts.add(Counts(late_of={stream: n}))
        if self.late_versions:
            self.counts.add(Counts(late_of=dict(self.late_versions)))
        duplicates = rules.met_by_program(_new_duplicates(self.duplicates, self.chain.duplicates_of()))
        self.counts.add(Counts(duplicates_of=duplicates))
        for old, new in zip(self.before, after, strict=True):
            self.counts.add(_added(old, new))
        uncorrected = [new.uncorrected - old.uncorrected for old, new in zip(self.before, after, strict=True)]
        self.counts.uncorrected += max(uncorrected)
        self.counts.corrected -= max(uncorrected)  # the reader did not know that it was too late for them
        delivery = self.operator.delivery
        delivery.deliver(self.found, file)
        text = self.counts.to_json()
        texts = [] if text == "{}" else [(COUNTS, text)]
        texts += [row for row in self.found.texts(rules.inputs) if row[0] in delivery.kinds]
        if texts:  # in one batch: Spark takes a quarter of a millisecond for each
            yield _output([kind for kind, _ in texts], [text for _, text in texts], [None] * len(texts))
        if MATCH in delivery.kinds:
            for table in self.found.matches:
                yield _output([MATCH], [None], [record_bytes(table)])
        self.found.matches.close()


def _output(*columns: Sequence[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, OUTPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA)


def _new_duplicates(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each program how many second deliveries of each stream a call met."""
    return [
        [n - n_before for n, n_before in zip(new, old, strict=True)]
        for old, new in zip(before, after, strict=True)
    ]


def _added(old: Counters, new: Counters) -> Counts:
    """Return what a call added to the counters of a matcher."""

    def by_rule(name: str) -> dict[str, int]:
        before: dict[str, int] = getattr(old, name)
        after: dict[str, int] = getattr(new, name)
        return {rule: n - before[rule] for rule, n in after.items() if n != before[rule]}

    return Counts(
        matches=by_rule("matches"),
        timeouts=by_rule("timeouts"),
        suppressed=by_rule("suppressed"),
        dropped_runs=by_rule("dropped_runs"),
        retracted=by_rule("retracted"),
    )


def encode_state(matchers: Sequence[Matcher | Corrector], n_groups: int) -> bytes:
    """Return the snapshots of a key group's matchers as one value of Spark's state store."""
    parts = [_HEADER.pack(_MAGIC, _FORMAT, len(matchers), n_groups)]
    for matcher in matchers:
        data = matcher.snapshot()
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def decode_state(
    data: bytes | bytearray, layout: Layout, n_groups: int, tables: Tables | None = None
) -> list[Matcher | Corrector]:
    """Return the matchers whose snapshots `data` holds; `tables` are the static ones.

    Raises
    ------
    StateError
        The state is of another number of key groups (E0704), of other rules (E0701), of another version
        (E0703), or damaged (E0702).
    """
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise _damaged("it is not of spark-cep")
    _, version, n_programs, n_groups_then = _HEADER.unpack_from(data)
    if version != _FORMAT:
        raise other_format(version, _FORMAT)
    if n_groups_then != n_groups:
        raise StateError(
            "E0704",
            f"the checkpoint has {n_groups_then} key groups, this run has {n_groups}",
            f"set spark.sql.shuffle.partitions (or key_groups) to {n_groups_then}, "
            "or start with an empty checkpoint",
        )
    snapshots = _snapshots(data, n_programs)
    corrections, units = layout.rules.corrections, units_of(layout.rules, tables)
    if corrections is not None or any(map(is_corrected, snapshots)):
        # Of another number some differ, and the first that differs is refused.
        found = [restored(*pair, corrections, tables) for pair in zip(units, snapshots, strict=False)]
        if len(units) == len(snapshots):
            return found
        raise _damaged("it is of another number of programs")
    of_program = {header(snapshot).fingerprint: snapshot for snapshot in snapshots}
    if of_program.keys() != {program.fingerprint for program in layout.programs}:
        then = [decode(snapshot).identity() for snapshot in snapshots]
        raise other_rules(then, [program.identity for program in layout.programs])
    return [Matcher.restore(program, of_program[program.fingerprint], tables) for program in layout.programs]


def _snapshots(data: bytes | bytearray, n: int) -> list[bytes]:
    """Return the `n` snapshots behind the header of a key group's state."""
    snapshots = []
    at = _HEADER.size
    for _ in range(n):
        end = at + _LENGTH.size
        length = _LENGTH.unpack_from(data, at)[0] if end <= len(data) else len(data)
        if end + length > len(data):
            raise _damaged("it is cut off")
        snapshots.append(bytes(memoryview(data)[end : end + length]))
        at = end + length
    return snapshots


def _damaged(fact: str) -> StateError:
    return StateError(
        "E0702",
        f"the state in the checkpoint is damaged: {fact}",
        "restore the checkpoint as a whole, or start with an empty one",
    )
