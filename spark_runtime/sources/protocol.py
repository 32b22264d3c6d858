"""The protocols of sources.

There are two kinds. We read a `Source` ourselves: the driver plans which ranges of it a micro-batch reads,
the workers read them, and a range can be read again at any time. Only Spark can read a `SparkSource`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cep.counts import Counts, Highest
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.schema.stream import Stream
from spark_runtime.event_time.partitions import TimeSpan, Unread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Offset = Any
"""A position in a source; a JSON value. Checkpoints contain it, so new versions must still accept it."""

Range = Sequence[Any]
"""Some input that one task reads; JSON values that only its source interprets."""


class GoneError(InputError):
    """Input was removed. `fact`: the part of the message that is true even if the input was read before."""

    def __init__(self, code: str, fact: str, more: str = "", help_text: str = "") -> None:
        super().__init__(code, f"{fact}{more}", help_text)
        self.fact = fact


class Planner(Protocol):
    """Plans the input of each micro-batch of a stream. It holds the state of a source, on the driver.

    The order of calls: `stop_at_now` or not; `commit` with the offset of the checkpoint, if there is one;
    then for each micro-batch `latest`, `ranges` and `commit`; `close`. A micro-batch that is repeated after
    a crash has its plan from the checkpoint: it is not planned again, but it is committed.

    Each method may raise InputError if the input is wrong, and StateError for an offset that this source
    cannot have returned or can no longer read.
    """

    def start(self) -> Offset:
        """Return the offset before all input."""

    def latest(self, start: Offset) -> Offset:
        """Return the end of the micro-batch that starts at `start`; `start` if there is no new input.

        It does not wait; it is called repeatedly until there is input. The input before the returned offset
        must remain readable until it is committed.
        """

    def stop_at_now(self) -> None:
        """Ignore all input that arrives later."""

    def ranges(self, start: Offset, end: Offset) -> Sequence[tuple[int, Range]]:
        """Return the ranges between two offsets, each with its size in bytes, which may be an estimate.

        A range belongs to one partition. The ranges of a partition are in its order.
        """

    def commit(self, end: Offset) -> None:
        """Forget the input before `end`: the checkpoint records that its output is written.

        After a crash, it may be called twice for one offset, or only when the next run starts. Spark has not
        yet written its own log: if it dies now, it repeats the micro-batch. So permanent deletions must wait
        for the next call of `latest`.
        """

    def close(self, counts: Counts) -> None:
        """End the run: close connections; add the final counts of the input to `counts`."""


@runtime_checkable
class TimedPlanner(Protocol):
    """A planner that knows event times of its input before it is read, at least approximately.

    With it, a backlog is read without late events: known but unread input holds the watermark back.
    """

    def spans(self, start: Offset, end: Offset, ahead: AheadGuard) -> Mapping[str, TimeSpan]:
        """Return, by partition (`partition_name`), the event times between two offsets.

        The latest event time of a partition is not before the end of its span.
        """

    def unread_after(self, end: Offset, ahead: AheadGuard) -> Mapping[str, Unread]:
        """Return, by partition (`partition_name`), the known but unread input after an offset."""


@runtime_checkable
class SelectivePlanner(Protocol):
    """A planner that can plan the input of one partition alone, while the others are paused."""

    def latest_of(self, start: Offset, partition: str) -> Offset:
        """Return the end of the micro-batch that starts at `start` if it reads only one partition.

        `partition` is a name (`partition_name`). Unread input of earlier plans may be read as well.
        """


@runtime_checkable
class EndingPlanner(Protocol):
    """A planner of a source whose partitions can end, after which they hold nothing back."""

    def ended(self, end: Offset) -> Collection[str]:
        """Return the partitions (`partition_name`) that get no further input and are read to their end.

        The planner already knows the partitions that replace them.
        """


@runtime_checkable
class TellingPlanner(Protocol):
    """A planner with a status for users, while the pipeline runs and at its end."""

    def status(self) -> str:
        """Return the status in a few words, such as how far the run lags; an empty string if there is none.

        It is called from another thread and must not wait: it reports the last known status.
        """


@runtime_checkable
class LosingPlanner(Protocol):
    """A planner that notices by itself that input was removed before it was read."""

    def lost(self) -> int:
        """Return how many records it has found to be removed since the run began."""


@runtime_checkable
class RereadingPlanner(Protocol):
    """A planner of a source that may have lost what was read, or have other input in its place."""

    def ranges_again(
        self, start: Offset, end: Offset
    ) -> tuple[Sequence[tuple[int, Range]], Mapping[str, int]]:
        """Return `ranges` between two offsets of a run, and how many records are gone, by their origin.

        Raises GoneError: some are gone, and the source is to refuse that.
        """


@runtime_checkable
class SplitByEvents(Protocol):
    """A source whose events name their partition, in one of their columns."""

    @property
    def splits_by_events(self) -> bool:
        """Whether its events name their partition."""

    def latest(self, chunk: Chunk) -> Highest:
        """Return, by partition (`partition_name`), the latest event time of a chunk. Called in a worker."""


@runtime_checkable
class Source(Protocol):
    """A source of the events of one stream, which we read ourselves.

    It is created on the driver and sent to the workers, so it holds no connection. Each method may raise
    InputError.
    """

    @property
    def stream(self) -> Stream:
        """The stream of its events."""

    def check(self) -> None:
        """Raise InputError if the source cannot be read. Called on the driver, before anything runs."""

    def planner(self) -> Planner:
        """Return the planner of micro-batches of a stream. Called on the driver."""

    def everything(self) -> Sequence[tuple[int, Range]]:
        """Return the ranges that a batch reads, with sizes in bytes. Called on the driver."""

    def partition(self, part: Range) -> str:
        """Return the name of the partition of a range; an empty string if there is only one.

        A partition is input with its own order, such as a partition of a topic. The latest event time is
        recorded for each, and an event is too far ahead if it is ahead of the others in its partition.
        """

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range and its dead letters, in bounded chunks. Called in a worker.

        Reading a range again yields the same events and dead letters. Input that can no longer be read as
        planned, such as a missing file, is added to `counts`. `ahead` refuses events too far ahead
        (`cep.formats.chunks.checked`).
        """

    def position_text(self, source: str, position: int) -> str:
        """Return the position of a record as a string, for messages: ``orders.json:12``, ``orders[3]@981``.

        `source` and `position` are those of a chunk or a dead letter.
        """


class Packs(Protocol):
    """Packs chunks into parcels, in the workers (`spark_runtime.wire.packer.Packer`)."""

    def keys_of(self, stream: Stream) -> tuple[tuple[str, ...], ...]:
        """Return the keys of the rules that read `stream`."""

    def chunk(
        self,
        chunk: Chunk,
        stream: Stream,
        watermark_us: int | None,
        counts: Counts,
        *,
        may_be_late: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a chunk of `stream` as parcels, and add its counts to `counts`."""

    def counted(self, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield counts as a parcel."""

    def held_back(self, found: Iterable[pa.RecordBatch], cap_us: int | None) -> Iterator[pa.RecordBatch]:
        """Yield `found` so that no parcel moves Spark's watermark past `cap_us`; None: no limit."""


class ReadsRows(Protocol):
    """Turns rows that only Spark reads into parcels (`spark_runtime.dataflow.dataflow.Dataflow`)."""

    @property
    def packer(self) -> Packs:
        """The packer, which is sent to the workers."""

    def read(
        self, rows: DataFrame, reader: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> DataFrame:
        """Return the parcels that `reader` makes from `rows` in the workers."""


@runtime_checkable
class SparkSource(Protocol):
    """A source that only Spark can read. Spark's own log records what a stream has read."""

    def parcels(self, spark: SparkSession, flow: ReadsRows, *, is_stream: bool) -> DataFrame:
        """Return its events as parcels (`ReadsRows.read`). Called on the driver.

        Raises InputError: its columns are not those of the stream.
        """


@runtime_checkable
class DemandingSource(Protocol):
    """A source that only Spark can read, and that needs libraries in addition to PySpark."""

    def check_settings(self, spark: Mapping[str, str]) -> None:
        """Raise InputError if the settings of the session do not load what it needs. Runs without Spark."""
