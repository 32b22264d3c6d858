"""What a source is.

There are two kinds. We read a `Source` ourselves: the driver plans which ranges of it a micro-batch reads,
the workers read them, and a range can be read at any time again. Only Spark can read a `SparkSource`.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cep.counts import Counts, Highest
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.schema.stream import Stream
from spark_runtime.event_time.partitions import TimeSpan, Unread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Offset = Any
"""How far a source is; a value of JSON. It stands in checkpoints, so a new version must still know it."""

Range = Sequence[Any]
"""Some input that one task reads; values of JSON, of which only its source knows the meaning."""


class Planner(Protocol):
    """Plans what a source gives to each micro-batch of a stream. It has the state of a source, on the driver.

    The order of calls: `stop_at_now` or not; `commit` with the offset of the checkpoint, if there is one;
    then for each micro-batch `latest`, `ranges` and `commit`; `close`. A micro-batch that is repeated after
    a crash has its plan from the checkpoint: it is not asked for, but it is committed.

    Each method may raise InputError, for what is wrong with the input, and StateError, for an offset that
    this source cannot have given or cannot read any more.
    """

    def start(self) -> Offset:
        """Return the offset before all input."""
        ...

    def latest(self, start: Offset) -> Offset:
        """Return where the micro-batch that starts at `start` ends; `start` if there is nothing for it.

        It does not wait. It is called again and again until there is something. What lies before the offset
        that it returns must be there to read until it is committed.
        """
        ...

    def stop_at_now(self) -> None:
        """Offer nothing that comes later."""
        ...

    def ranges(self, start: Offset, end: Offset) -> Sequence[tuple[int, Range]]:
        """Return what lies between two offsets, each with its size in bytes, which may be an estimate.

        A range lies in one partition. The ranges of a partition come in its order.
        """
        ...

    def commit(self, end: Offset) -> None:
        """Forget what lies before `end`: its output is written, the checkpoint says so.

        After a crash it may come twice for one offset, or not before the next run begins. Spark has not
        written its own log yet: if it dies now, it repeats the micro-batch. What is forgotten for ever must
        wait for the next call of `latest`.
        """
        ...

    def close(self, counts: Counts) -> None:
        """End the run: let go of connections; add to `counts` what a user should know of the input now."""
        ...


@runtime_checkable
class TimedPlanner(Protocol):
    """A planner that can tell event times of its input before it is read. It need not be exact.

    With it a backlog is caught up without late events: what is known and not read holds the watermark back.
    """

    def spans(self, start: Offset, end: Offset, ahead: AheadGuard) -> Mapping[str, TimeSpan]:
        """Return by partition (`partition_name`) the event times between two offsets.

        The latest event time of a partition is not before the end of its span.
        """
        ...

    def unread_after(self, end: Offset, ahead: AheadGuard) -> Mapping[str, Unread]:
        """Return by partition (`partition_name`) what is known behind an offset and not read."""
        ...


@runtime_checkable
class SelectivePlanner(Protocol):
    """A planner that can plan the input of one partition alone, while the others are paused."""

    def latest_of(self, start: Offset, partition: str) -> Offset:
        """Return where the micro-batch that starts at `start` ends if it reads one partition only.

        `partition` is a name (`partition_name`). What was planned before, and not read, may be read as well.
        """
        ...


@runtime_checkable
class EndingPlanner(Protocol):
    """A planner of a source whose partitions can end: they hold nothing back then."""

    def ended(self, end: Offset) -> Collection[str]:
        """Return the partitions (`partition_name`) that get nothing more and are read to their end.

        What takes their place is known to the planner.
        """
        ...


@runtime_checkable
class TellingPlanner(Protocol):
    """A planner that has something to tell a user while the pipeline runs, and at its end."""

    def status(self) -> str:
        """Return it in a few words, such as how far the run is behind; an empty text: nothing.

        It is called from another thread and asks nobody: it tells what was seen last.
        """
        ...


@runtime_checkable
class SplitByEvents(Protocol):
    """A source whose events tell their partition, by one of their columns."""

    @property
    def splits_by_events(self) -> bool:
        """Whether they do."""
        ...

    def latest(self, chunk: Chunk) -> Highest:
        """Return by partition (`partition_name`) the latest event time of a chunk. In a worker."""
        ...


@runtime_checkable
class Source(Protocol):
    """A source of the events of one stream, which we read.

    It is made on the driver and travels to the workers: it holds no connection. Each of its methods may raise
    InputError.
    """

    @property
    def stream(self) -> Stream:
        """The stream whose events these are."""
        ...

    def check(self) -> None:
        """Raise InputError if nothing can come from here. On the driver, before anything runs."""
        ...

    def planner(self) -> Planner:
        """Return what plans micro-batches of a stream. On the driver."""
        ...

    def everything(self) -> Sequence[tuple[int, Range]]:
        """Return what a batch reads, with sizes in bytes. On the driver."""
        ...

    def partition(self, part: Range) -> str:
        """Return the name of the partition that a range lies in; an empty text if there is only one.

        A partition is what the source has in an order of its own, such as a partition of a topic. The latest
        event time is noted for each, and events too far ahead are told by the others in their partition.
        """
        ...

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range and its dead letters, in bounded chunks. In a worker.

        A range that is read again gives the same. What cannot be read as planned any more, such as a file
        that is gone, is added to `counts`. `ahead` refuses events too far ahead
        (`cep.formats.chunks.checked`).
        """
        ...

    def position_text(self, source: str, position: int) -> str:
        """Return the position of a record as text, for messages: ``orders.json:12``, ``orders[3]@981``.

        `source` and `position` are those of a chunk, and of a dead letter.
        """
        ...


class Packs(Protocol):
    """What makes parcels of what was read, in the workers (`spark_runtime.wire.packer.Packer`)."""

    def keys_of(self, stream: Stream) -> tuple[tuple[str, ...], ...]:
        """Return the keys of the rules that read `stream`."""
        ...

    def chunk(
        self,
        chunk: Chunk,
        stream: Stream,
        watermark_us: int | None,
        counts: Counts,
        *,
        may_be_late: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield what was read of `stream` as parcels, and add to `counts` what happened."""
        ...

    def counted(self, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield counts as a parcel."""
        ...

    def held_back(self, found: Iterable[pa.RecordBatch], cap_us: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the parcels `found`, none of which lets Spark's watermark pass `cap_us`; None: all may."""
        ...


class ReadsRows(Protocol):
    """What makes parcels of rows that only Spark reads (`spark_runtime.dataflow.dataflow.Dataflow`)."""

    @property
    def packer(self) -> Packs:
        """What makes parcels, in the workers."""
        ...

    def read(
        self, rows: DataFrame, reader: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> DataFrame:
        """Return as parcels what `reader` makes of `rows` in the workers."""
        ...


@runtime_checkable
class SparkSource(Protocol):
    """A source that only Spark can read. What a stream has read of it stands in Spark's own log."""

    def parcels(self, spark: SparkSession, flow: ReadsRows, *, is_stream: bool) -> DataFrame:
        """Return its events as parcels (`ReadsRows.read`). On the driver.

        Raises
        ------
        InputError
            Its columns are not those of the stream.
        """
        ...


@runtime_checkable
class DemandingSource(Protocol):
    """A source that only Spark can read, and that needs more of the session than PySpark has."""

    def check_settings(self, spark: Mapping[str, str]) -> None:
        """Raise InputError if the settings of the session do not bring what it needs. Without Spark."""
        ...
