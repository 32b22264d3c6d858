"""The stateful operator: the engine's `Matcher` inside Spark, one call for all keys of a key group.

In a stream it is `applyInPandasWithState` with event-time timeouts, in a batch `mapInArrow` over partitions.
Parcels go in (`spark_runtime.parcels`), output comes out (`spark_runtime.output`).

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import copy
import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from cep.dead_letter import json_text
from cep.engine.matcher import Counters, Matcher
from cep.errors import StateError
from cep.local import count_once
from cep.program import COUNTED_COLUMN, STREAM_COLUMN, TIME_COLUMN, missing_column
from spark_runtime.delivery import ALL_AS_ROWS, Delivery
from spark_runtime.layout import DEAD_LETTER, END_OF_INPUT, INPUT_COUNT, PROGRAM, TEXT, Layout
from spark_runtime.output import (
    COUNTS,
    DEAD,
    DROPPED_RUNS,
    LATE,
    MALFORMED,
    MATCH,
    MATCHES,
    MAX_MATCHES,
    OUTPUT_SCHEMA,
    READ,
    ROWS,
    SUPPRESSED,
    TIMEOUTS,
    carried,
    carried_schema,
    late_schema,
)
from spark_runtime.parcels import EVENTS, record_bytes, table_of_bytes
from spark_runtime.workers import settle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

_HEADER = struct.Struct("<4sHHI")
_LENGTH = struct.Struct("<Q")
_MAGIC = b"SCKG"
_FORMAT = 2


@dataclass(frozen=True)
class KeyGroups:
    """The operator as a function that Spark calls; it travels to the executors.

    Parameters
    ----------
    layout
        The programs.
    match_schema
        Columns of the matches of all programs.
    lateness_us
        How far the watermark stays behind the latest event.
    n_groups
        Number of key groups, written into the state: another number would send keys to other states.
    delivery
        What becomes of the output.
    """

    layout: Layout
    match_schema: pa.Schema
    lateness_us: int
    n_groups: int
    delivery: Delivery = ALL_AS_ROWS

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Take in the parcels of one key group and one micro-batch, or its timeout; yield what comes out."""
        settle()
        matchers = decode_state(state.get[0], self.layout, self.n_groups) if state.exists else self._fresh()
        call = _Call(self, matchers)
        if not state.hasTimedOut:
            for frame in frames:
                for parcel in zip(frame[PROGRAM], frame[TEXT], frame[EVENTS], strict=True):
                    call.push(*parcel)
        spark_watermark_us = state.getCurrentWatermarkMs() * 1000
        # Spark's watermark starts at 1970: before any event it says nothing.
        call.advance(spark_watermark_us if spark_watermark_us > 0 else None)
        state.update((encode_state(matchers, self.n_groups),))
        deadline_us = min((d for m in matchers if (d := m.next_deadline_us()) is not None), default=None)
        if deadline_us is not None:
            # Spark calls once its watermark has passed the timeout; we want it reached.
            timeout_ms = -(-deadline_us // 1000) - 1
            state.setTimeoutTimestamp(max(timeout_ms, state.getCurrentWatermarkMs(), 1))
        file = f"{key[0]}-timeout" if state.hasTimedOut else str(key[0])
        return (batch.to_pandas() for batch in call.output(file))

    def batch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in all parcels of one partition of a batch; yield what comes out."""
        settle()
        call = _Call(self, self._fresh())
        for batch in batches:
            call.push_all(batch)
            del batch  # or the last one stays until the end
        call.finish()
        context = TaskContext.get()
        assert context is not None
        yield from call.output(str(context.partitionId()))

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows of output that have matches; yield these (`carried_schema`)."""
        schema = carried_schema(self.match_schema)
        for batch in batches:
            for data in batch.column(0).to_pylist():
                yield from table_of_bytes(data, schema).to_batches()

    def _fresh(self) -> list[Matcher]:
        return [Matcher(program) for program in self.layout.programs]


class _Call:
    """One call of the operator: what went in, what comes out."""

    def __init__(self, operator: KeyGroups, matchers: list[Matcher]) -> None:
        self.operator = operator
        self.layout = operator.layout
        self.schema = carried_schema(operator.match_schema)
        self.matchers = matchers
        self.before = [copy.deepcopy(matcher.counters) for matcher in matchers]
        self.latest_us: int | None = None
        self.is_end = False
        self.counts: Counter[str] = Counter()
        self.found: dict[str, list[Any]] = {LATE: [], DEAD: [], MATCH: []}  # kind -> texts, tables of matches
        self.late = [np.zeros(len(program.streams), np.int64) for program in self.layout.programs]

    def push(self, number: int, text: str | None, data: bytes | pa.Buffer | None) -> None:
        """Take in one parcel."""
        if data is not None:
            events = table_of_bytes(data, self.layout.programs[number].event_schema)
            self._push_events(number, events)
        elif number == DEAD_LETTER and text is not None:
            self._push_dead_letter(text)
        elif number == INPUT_COUNT and text is not None:
            self.counts[READ] += int(text)
        elif number == END_OF_INPUT:
            self.is_end = True

    def push_all(self, parcels: pa.RecordBatch) -> None:
        """Take in all parcels of a batch; their bytes are not copied."""
        numbers, texts, events = (parcels.column(name) for name in (PROGRAM, TEXT, EVENTS))
        for number, text, data in zip(numbers.to_pylist(), texts.to_pylist(), events, strict=True):
            self.push(number, text, data.as_buffer() if data.is_valid else None)

    def _push_events(self, number: int, events: pa.Table) -> None:
        latest_us = pc.max(events.column(TIME_COLUMN)).as_py()
        self.latest_us = latest_us if self.latest_us is None else max(self.latest_us, latest_us)
        late = self.matchers[number].push(events)
        if late.num_rows and COUNTED_COLUMN in late.column_names:  # in several partitions: once
            late = late.filter(late.column(COUNTED_COLUMN))
        if late.num_rows:
            self._note_late(number, late)
            self.found[LATE] += [self._late_text(number, row) for row in late.to_pylist()]

    def _note_late(self, number: int, late: pa.Table) -> None:
        """Count late events by stream."""
        n_streams = len(self.layout.programs[number].streams)
        stream = np.zeros(late.num_rows, np.int64)
        if n_streams > 1:
            stream = np.asarray(late.column(STREAM_COLUMN))
        self.late[number] += np.bincount(stream, minlength=n_streams)

    def _push_dead_letter(self, letter: str) -> None:
        self.found[DEAD].append(letter)
        # Without the offending value, which may differ from line to line.
        reason = json.loads(letter)["reason"].partition(": ")[0]
        self.counts[MALFORMED + reason] += 1

    def _late_text(self, number: int, row: dict[str, Any]) -> str:
        """Return a late event as JSON (`late_schema`), with the columns of its stream that the rules read."""
        program = self.layout.programs[number]
        stream = program.streams[row.get(STREAM_COLUMN, 0)]
        names = {field.name: program.column_of(stream, field.name) for field in stream.fields}
        event = {name: row[column] for name, column in names.items() if column in row}
        late = {
            "stream": stream.name,
            "event_time": f"{np.datetime64(row[TIME_COLUMN], 'us')}Z",
            "key": ", ".join(program.key),
            "event": json_text(event),
        }
        return json_text({name: late[name] for name in late_schema(self.layout.n_streams).names})

    def advance(self, spark_watermark_us: int | None) -> None:
        """Let the group's event time go on: as far as Spark's, or as the group's own events show."""
        if self.is_end:
            self.finish()
            return
        reached = [] if spark_watermark_us is None else [spark_watermark_us]
        if self.latest_us is not None:
            reached.append(self.latest_us - self.operator.lateness_us)
        if reached:
            for matcher in self.matchers:
                self._put_matches(matcher.advance(max(reached)))

    def finish(self) -> None:
        """The input is complete."""
        for matcher in self.matchers:
            self._put_matches(matcher.finish())

    def _put_matches(self, matches: pa.Table) -> None:
        n = matches.num_rows
        if n == 0:
            return
        columns = {field.name: carried(matches.column(field.name)) for field in matches.schema}
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else missing_column(field, n)
            for field in self.schema
        ]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        self.counts[ROWS] += n
        for start in range(0, n, MAX_MATCHES):
            self.found[MATCH].append(table.slice(start, MAX_MATCHES))

    def output(self, file: str) -> Iterator[pa.RecordBatch]:
        """Deliver what was found, in files named after `file`; yield the rest, with the counts."""
        programs = self.layout.programs
        after = [matcher.counters for matcher in self.matchers]
        # A late or a redelivered event is one for the rules of every key: count it once.
        self.counts["late"] += count_once(programs, [late.tolist() for late in self.late])
        self.counts["duplicates"] += count_once(programs, _new_duplicates(self.before, after))
        self.counts += _added(self.before, after)
        if self.counts:
            self.found[COUNTS] = [json.dumps(self.counts)]
        rows = self.operator.delivery.deliver(self.found, file)
        matches = rows.pop(MATCH, [])
        texts = [(kind, text) for kind, found in rows.items() for text in found]
        if texts:  # in one batch: Spark takes a quarter of a millisecond for each
            yield _output([kind for kind, _ in texts], [text for _, text in texts], [None] * len(texts))
        for table in matches:
            yield _output([MATCH], [None], [record_bytes(table)])


def _output(*columns: Sequence[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, OUTPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA)


def _new_duplicates(before: Sequence[Counters], after: Sequence[Counters]) -> list[list[int]]:
    """Return for each program how many second deliveries of each stream a call met."""
    return [
        [n - n_before for n, n_before in zip(new.duplicates_of, old.duplicates_of, strict=True)]
        for old, new in zip(before, after, strict=True)
    ]


def _added(earlier: Sequence[Counters], after: Sequence[Counters]) -> Counter[str]:
    """Return what a call added to the matchers' counters."""
    added: Counter[str] = Counter()
    for old, new in zip(earlier, after, strict=True):
        for prefix, counts, before in (
            (MATCHES, new.matches, old.matches),
            (TIMEOUTS, new.timeouts, old.timeouts),
            (SUPPRESSED, new.suppressed, old.suppressed),
            (DROPPED_RUNS, new.dropped_runs, old.dropped_runs),
        ):
            for name, count in counts.items():
                added[prefix + name] += count - before[name]
    return added


def encode_state(matchers: Sequence[Matcher], n_groups: int) -> bytes:
    """Return the snapshots of a key group's matchers as one value of Spark's state store."""
    parts = [_HEADER.pack(_MAGIC, _FORMAT, len(matchers), n_groups)]
    for matcher in matchers:
        data = matcher.snapshot()
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def decode_state(data: bytes | bytearray, layout: Layout, n_groups: int) -> list[Matcher]:
    """Return the matchers whose snapshots `data` holds.

    Raises
    ------
    StateError
        The state is of another number of key groups or programs, of other rules, or damaged.
    """
    try:
        magic, version, n_programs, n_groups_then = _HEADER.unpack_from(data)
    except struct.error as error:
        raise StateError("E0702", "the state in the checkpoint is damaged") from error
    if magic != _MAGIC or version != _FORMAT:
        raise StateError("E0702", "the state in the checkpoint was not written by this version")
    if n_groups_then != n_groups:
        raise StateError(
            "E0704",
            f"the checkpoint has {n_groups_then} key groups, this run has {n_groups}",
            f"set spark.sql.shuffle.partitions (or key_groups) to {n_groups_then}, "
            "or start with an empty checkpoint",
        )
    if n_programs != len(layout.programs):
        raise StateError(
            "E0705", "the checkpoint was written by other rules", "start with an empty checkpoint"
        )
    matchers = []
    at = _HEADER.size
    for program in layout.programs:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        matchers.append(Matcher.restore(program, bytes(data[at : at + length])))
        at += length
    return matchers
