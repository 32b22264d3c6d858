"""Writes a micro-batch to its sinks, one after another, and remembers which of them contain it.

Some sinks do not know whether they already contain a micro-batch (at least once). The checkpoint records that
such a sink contains it before the next sink is written. So if a run ends between two sinks, because a server
is down, the earlier sinks get nothing twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, repeat

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cep.counts import Counts
from cep.errors import StateError
from cep.settings.file_mode import FileMode
from spark_runtime.compat.driver import to_arrow
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.dataflow.schema import spark_schema
from spark_runtime.operator.daily import FirstOfDays
from spark_runtime.pipeline.checkpoint import NOTES
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.sinks.protocol import (
    AnySink,
    BatchRows,
    Collected,
    DriverSink,
    Guarantee,
    MicroBatch,
    Output,
    Rows,
    TableSink,
    WorkerSink,
)
from spark_runtime.storage.checkpoint_files import CheckpointFiles, damaged
from spark_runtime.storage.sealed import read_sealed, write_sealed
from spark_runtime.wire.output import (
    COUNTS,
    DEAD,
    KIND,
    MATCH,
    MATCHES_COLUMN,
    MAX_MATCHES,
    OUTPUT_SCHEMA,
    TEXT,
    carried_schema,
)
from spark_runtime.wire.parcels import record_bytes, table_of_bytes
from spark_runtime.wire.shared import SharedFolders


@dataclass(frozen=True, slots=True)
class NamedSink:
    """A sink, and its name, which is unique in the pipeline and the same after a restart.

    `shown` names it for people: its format, and a number if several have it; ``late``, ``dead_letter``,
    ``shadow``.
    """

    name: str
    sink: AnySink
    shown: str = ""


def named(sinks: Iterable[tuple[object, AnySink]], shown: Iterable[str] = ()) -> tuple[NamedSink, ...]:
    """Return sinks with names; each is given with its settings. `shown`: their names for people."""
    seen: Counter[str] = Counter()
    found = []
    for (settings, sink), text in zip(sinks, chain(shown, repeat("")), strict=False):
        kind = "shadow" if sink.output.is_shadow else sink.output.kind
        name = sha256(f"{kind} {settings!r}".encode()).hexdigest()[:16]
        seen[name] += 1
        found.append(NamedSink(f"{name}-{seen[name]}", sink, text))
    return tuple(found)


@dataclass(slots=True)
class Written:
    """What sinks got in a run, by their `shown`."""

    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, item: NamedSink, n_rows: int, seconds: float) -> None:
        """Add rows of a micro-batch, and the time that the driver needed to write them."""
        self.rows[item.shown] = self.rows.get(item.shown, 0) + n_rows
        self.seconds[item.shown] = self.seconds.get(item.shown, 0.0) + seconds


def delivery_of(
    sinks: Iterable[NamedSink],
    run: str | None,
    file_mode: FileMode,
    shared: SharedFolders,
    *,
    is_watched: bool = False,
    by_driver: bool = False,
) -> Delivery:
    """Return the operator's part of writing to sinks; `run` is None in a batch.

    `by_driver`: whether all matches go through the driver.
    """

    def is_of_workers(sink: AnySink) -> bool:
        return isinstance(sink, WorkerSink) and not (by_driver and sink.output.kind == MATCH)

    of_workers = tuple(
        item.sink for item in sinks if isinstance(item.sink, WorkerSink) and is_of_workers(item.sink)
    )
    kinds = {item.sink.output.kind for item in sinks if not is_of_workers(item.sink)}
    return Delivery(of_workers, frozenset(kinds), run, file_mode, shared, is_watched)


@dataclass(slots=True)
class Notes:
    """Records which sinks contain the micro-batch that is being written.

    `files`: the checkpoint; None in a batch, which never continues.
    """

    files: CheckpointFiles | None
    _batch: int = -1
    _names: tuple[str, ...] = ()

    def names(self, batch: int) -> tuple[str, ...]:
        """Return the names of the sinks that contain micro-batch `batch`."""
        if self._batch < 0 and self.files is not None:
            self._batch = 0
            with suppress(StateError):  # a sink may then get a micro-batch again
                found = read_sealed(self.files, NOTES, _noted, damaged(NOTES))
                self._batch, self._names = found or (0, ())
        return self._names if self._batch == batch else ()

    def begin(self, batch: int) -> None:
        """Record that sinks may contain the first micro-batch of a run, which is then that of its rules."""
        if batch == 0 and self.files is not None and self.files.read(NOTES) is None:
            self._write(batch, ())

    def add(self, batch: int, name: str) -> None:
        """Record that a sink contains the micro-batch."""
        self._batch, self._names = batch, (*self.names(batch), name)
        if self.files is not None:
            self._write(batch, self._names)

    def _write(self, batch: int, names: Sequence[str]) -> None:
        assert self.files is not None
        write_sealed(self.files, NOTES, json.dumps({"batch": batch, "sinks": names}))


def _noted(text: str) -> tuple[int, tuple[str, ...]]:
    found = json.loads(text)
    return int(found["batch"]), tuple(map(str, found["sinks"]))


@dataclass(frozen=True)
class Delivering:
    """Writes micro-batches to sinks.

    `notes`: records which sinks contain the micro-batch. `written`: counts the rows of each sink. `first`:
    which matches may be reported; None: all of them. With it, no worker writes matches: only the driver knows
    those of all key groups.
    """

    sinks: Sequence[NamedSink]
    flow: Dataflow
    notes: Notes
    written: Written = field(default_factory=Written)
    first: FirstOfDays | None = None

    def write(
        self, output: DataFrame, number: int, plan: str, count: Callable[[Iterable[Counts]], Counts]
    ) -> Counts:
        """Compute a micro-batch, write its rows to the sinks that lack them, and return its counts.

        `output`: the operator's output (`OUTPUT_SCHEMA`); each action computes it again. `number` and `plan`:
        the number and the plan's identity of the micro-batch. `count`: sums the counts of the operator's
        calls. If it raises an error, nothing is committed.
        """
        batch = MicroBatch(self.flow.delivery.run, number, plan)
        has_it = self.notes.names(number)
        sinks = [item for item in self.sinks if item.name not in has_it]
        framed = [item.sink for item in sinks if isinstance(item.sink, DriverSink)]
        is_kept = self.first is None and any(sink.wants_rows for sink in framed)
        if is_kept:
            output = output.persist()
        try:
            for item in sinks:
                item.sink.begin(batch)
            found = self._collected(output, sinks, is_kept=is_kept)
            counted = map(Counts.of_json, found.texts(COUNTS))
            if self.first is None:
                counts = count(counted)
            else:
                found = found.within(self.first)
                counts = count([*counted, self.first.counts()])
                output = found.frame()
            self.notes.begin(number)
            for item in sinks:
                if isinstance(item.sink, WorkerSink):
                    before = time.monotonic()
                    n_rows = _n_rows(item.sink.output, counts)
                    if n_rows and self.first is not None and item.sink.output.kind == MATCH:
                        item.sink.write_part(batch, "all", found.rows(item.sink.output, n_rows).rows)
                    item.sink.commit(batch)
                    self.written.add(item, n_rows, time.monotonic() - before)
            for item in sinks:
                if not isinstance(item.sink, WorkerSink):
                    n_rows, before = _n_rows(item.sink.output, counts), time.monotonic()
                    self._write_one(item.sink, batch, n_rows, found, output)
                    self.written.add(item, n_rows, time.monotonic() - before)
                    is_sure = item.sink.guarantee is Guarantee.EXACTLY_ONCE
                    if n_rows and not is_sure and item is not sinks[-1]:
                        self.notes.add(number, item.name)
        finally:
            if is_kept:
                output.unpersist()
        return counts

    def _collected(self, output: DataFrame, sinks: Sequence[NamedSink], *, is_kept: bool) -> _Found:
        """Compute the output; return the part that the driver needs, at least the counts."""
        kinds = {item.sink.output.kind for item in sinks if isinstance(item.sink, TableSink)}
        if kinds or self.first is not None:
            if is_kept:
                output = output.where(F.col(KIND).isin(COUNTS, *kinds))
            return _Found(self.flow, output.sparkSession, to_arrow(output))
        # Each omitted column or filter saves Spark about ten milliseconds of planning per micro-batch.
        rows = (output.where(F.col(KIND) == COUNTS) if self.flow.delivery.kinds else output).collect()
        counts = {KIND: [COUNTS] * len(rows), TEXT: [row[TEXT] for row in rows]}
        schema = pa.schema([(KIND, pa.string()), (TEXT, pa.string())])
        return _Found(self.flow, output.sparkSession, pa.table(counts, schema))

    def _write_one(
        self, sink: TableSink | DriverSink, batch: MicroBatch, n_rows: int, found: _Found, output: DataFrame
    ) -> None:
        wanted = sink.output
        if isinstance(sink, TableSink):
            sink.write_rows(batch, found.rows(wanted, n_rows))
        elif wanted.kind == MATCH:
            sink.write_batch(batch, BatchRows(n_rows, self.flow.matches(output, wanted.rules, wanted.schema)))
        else:
            frame = self.flow.objects(output, wanted.kind, wanted.schema)
            sink.write_batch(batch, BatchRows(n_rows, frame))
        sink.commit(batch)


def _n_rows(output: Output, counts: Counts) -> int:
    """Return the number of rows of an output."""
    if output.kind == MATCH:
        return counts.shadow_rows if output.is_shadow else counts.rows
    if output.stream is not None:
        return counts.late_of.get(output.stream.name, 0)
    assert output.kind == DEAD
    return counts.malformed + len(counts.refused)


@dataclass(frozen=True)
class _Found:
    """The operator's output on the driver: some or all of its columns."""

    flow: Dataflow
    spark: SparkSession
    table: pa.Table

    def texts(self, kind: str) -> list[str]:
        """Return the strings of the rows of a kind."""
        found: list[str] = self.table.filter(pc.equal(self.table.column(KIND), kind)).column(TEXT).to_pylist()
        return found

    def within(self, first: FirstOfDays) -> _Found:
        """Return the same output with only the matches that `first` allows.

        Raises StateError (E0722): there are too many, and the pipeline should fail.
        """
        for table in self._matches:
            first.add(table)
        packed = [
            record_bytes(table.slice(start, MAX_MATCHES))
            for table in first.tables()
            for start in range(0, table.num_rows, MAX_MATCHES)
        ]
        rest = self.table.filter(pc.not_equal(self.table.column(KIND), MATCH))
        n = len(packed)
        columns = [
            pa.array([MATCH] * n, pa.string()),
            pa.nulls(n, pa.string()),
            pa.array(packed, pa.binary()),
        ]
        return replace(self, table=pa.concat_tables([rest, pa.table(columns, schema=rest.schema)]))

    def frame(self) -> DataFrame:
        """Return the output as a DataFrame, whose rows are on the driver."""
        rows = [tuple(row.values()) for row in self.table.to_pylist()]
        return self.spark.createDataFrame(rows, spark_schema(OUTPUT_SCHEMA))

    @cached_property
    def _matches(self) -> list[pa.Table]:
        packed = self.table.column(MATCHES_COLUMN).drop_null()
        schema = carried_schema(self.flow.rules.match_schema)
        return [table_of_bytes(data.as_buffer(), schema) for data in packed]

    def rows(self, output: Output, n_rows: int) -> Collected:
        """Return the rows of an output."""
        found = self._matches if output.kind == MATCH else self.texts(output.kind)
        return Collected(n_rows, Rows(output, found), lambda texts: self._typed(output, texts))

    def _typed(self, output: Output, texts: Sequence[str]) -> pa.Table:
        """Return late events from their texts. Spark parses them, because they are few."""
        frame = self.spark.createDataFrame(
            [(output.kind, text) for text in texts], f"{KIND} string, {TEXT} string"
        )
        return to_arrow(self.flow.objects(frame, output.kind, output.schema))
