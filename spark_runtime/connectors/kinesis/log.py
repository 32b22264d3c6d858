"""Streams of Amazon Kinesis as a log of messages: their shards are the partitions.

Sequence numbers have gaps, and Kinesis does not report where a shard ends. So the driver reads ahead and
remembers the sequence numbers that it has seen; a worker reads from one known number to another.

A position is the sequence number of the last message that was read. Below 0 it is a time, or the start. Below
the start, it is the start minus the sequence number of the next message. An offset has that of the first one
that was read of a shard, so who reads the shard again finds out if that was removed.
"""

from __future__ import annotations

import email.utils
from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from cep.errors import InputError
from spark_runtime.connectors.kinesis.connection import Calls, ExpiredIteratorError, KinesisConnection
from spark_runtime.connectors.message_logs.log import (
    PEEK_MESSAGES,
    Incarnation,
    LogWords,
    MessageRange,
    Place,
    Portion,
    RemovedError,
)
from spark_runtime.event_time.partitions import place_text
from spark_runtime.sources.protocol import GoneError

METADATA = ("key", "shard", "sequence", "timestamp")
"""What may be a column in addition to the value."""

BEGINNING = -(10**18)
"""The position before all messages of a shard. Between it and 0 a position is a time: minus microseconds."""

AHEAD_MESSAGES, AHEAD_BYTES = 50_000, 16 << 20
"""Most messages that are read ahead in a shard, and thus by a micro-batch."""

PAGE = 10_000
"""Most messages of a call that Kinesis allows."""

_AGGREGATED = b"\xf3\x89\x9a\xc2"
_CALLS_AT_ONCE = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KinesisLog:
    """Streams; see `MessageLog`."""

    connection: KinesisConnection
    streams: tuple[str, ...]
    goes_on_without: bool = False

    reads_ahead = True  # true: sequence numbers do not count messages

    @property
    def connected_to(self) -> Hashable:
        """The service. A client can read all of its streams."""
        return self.connection

    @property
    def words(self) -> LogWords:
        """The words for streams in errors."""
        return LogWords("stream", self.connection.where, unknown="E0881", lost="E0884")

    def open(self) -> KinesisClient:
        """Return a client."""
        return KinesisClient(self)

    def origin(self, place: Place) -> str:
        """Return stream and shard: ``orders[shardId-000000000003]``."""
        return place_text(*place)


@dataclass(slots=True)
class _Shard:
    """A shard, and the messages that were read ahead after position `start`."""

    parents: tuple[str, ...]
    is_closed: bool
    start: int | None = None
    sequences: list[int] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    n_bytes: int = 0
    iterator: str | None = None
    is_at_end: bool = False  # it is closed, and has no further messages

    @property
    def last(self) -> int:
        """The position after all messages that were read ahead."""
        assert self.start is not None
        return self.sequences[-1] if self.sequences else self.start

    def index(self, position: int) -> int:
        """Return the number of messages up to a position."""
        return bisect_right(self.sequences, position)

    def forget(self, position: int) -> None:
        """Forget the messages up to a position."""
        n = self.index(position)
        if n:
            self.n_bytes -= sum(len(record["Data"]) for record in self.records[:n])
            del self.sequences[:n], self.records[:n]
            self.start = position


class KinesisClient:
    """A client of Kinesis; see `LogClient` and `AheadReader`."""

    def __init__(self, log: KinesisLog, calls: Calls | None = None) -> None:
        self._log = log
        self._calls = calls or Calls(log.connection)
        self._shards: dict[Place, _Shard] = {}
        self._stop_us: int | None = None  # later messages are ignored
        self._ended: set[Place] = set()
        self.gaps: dict[str, int] = {}

    # ------------------------------------------------------------ the present input

    def require_right(self) -> None:
        """Read a message of each stream."""
        for stream in self._log.streams:
            shards, _ = self._listed(stream)
            iterator = self._iterator((stream, shards[0]["ShardId"]), BEGINNING)
            self._page((stream, shards[0]["ShardId"]), iterator, 1)

    def places(self) -> list[Place]:
        """Return the shards, including closed ones as long as they are kept."""
        found: dict[Place, _Shard] = {}
        for stream in self._log.streams:
            for shard in self._listed(stream)[0]:
                place = (stream, shard["ShardId"])
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                known = self._shards.get(place)
                if known is None:
                    known = _Shard(tuple(parent for parent in parents if parent), is_closed=False)
                known.is_closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
                found[place] = known
        self._shards = found
        return list(found)

    def _listed(self, stream: str) -> tuple[list[Any], int]:
        """Return the shards of a stream, and the second after that of the service's clock in microseconds."""
        found: list[Any] = []
        more: dict[str, str] = {"StreamName": stream}
        while True:
            answer = self._calls("list_shards", f"stream `{stream}`", **more)
            found += answer["Shards"]
            if not answer.get("NextToken"):
                date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
                now = datetime.now(UTC) if date is None else email.utils.parsedate_to_datetime(date)
                return found, _us(now) + 1_000_000
            more = {"NextToken": answer["NextToken"]}

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the position before all messages. Kinesis does not report the first remaining one."""
        return dict.fromkeys(places, BEGINNING)

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the current second as a position."""
        now_us = min(self._listed(stream)[1] for stream in self._log.streams) - 1_000_000
        return dict.fromkeys(places, -now_us)

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return when each stream was created; nothing without the permission to read it."""
        return {stream: Incarnation.of(self._created(stream), text) for stream, text in known.items()}

    def _created(self, stream: str) -> str:
        try:
            answer = self._calls("describe_stream_summary", f"stream `{stream}`", StreamName=stream)
        except InputError as error:
            if error.code != "E0882":
                raise
            return ""
        return f"created {answer['StreamDescriptionSummary']['StreamCreationTimestamp'].isoformat()}"

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return a time as a position."""
        return dict.fromkeys(places, -time_us)

    # ------------------------------------------------------------ reading ahead, on the driver

    def stop_at_now(self) -> None:
        """Ignore messages that are stored after the current second."""
        self._stop_us = max(self._listed(stream)[1] for stream in self._log.streams)

    def ends_behind(self, positions: Mapping[Place, int]) -> Mapping[Place, int]:
        """Return how far each shard can be read. A shard made by a split or merge follows its parents."""
        mine = [place for place in positions if place in self._shards]
        first = [place for place in mine if not self._has_parents(place)]
        later = [place for place in mine if self._has_parents(place)]
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            list(pool.map(lambda place: self._ahead(place, positions[place]), first))
            # A shard may be the parent of another one: the oldest come first.
            while later:
                ready = [place for place in later if self._is_free(place, positions)]
                if not ready:
                    break
                list(pool.map(lambda place: self._ahead(place, positions[place]), ready))
                later = [place for place in later if place not in ready]
        self._ended = {place for place in mine if place not in later and self._is_read(place, positions)}
        return {place: positions[place] if place in later else self._shards[place].last for place in mine}

    def _parents(self, place: Place) -> list[Place]:
        found = [(place[0], parent) for parent in self._shards[place].parents]
        return [parent for parent in found if parent in self._shards]

    def _has_parents(self, place: Place) -> bool:
        return bool(self._parents(place))

    def _is_free(self, place: Place, positions: Mapping[Place, int]) -> bool:
        """Return whether the parents of a shard are read completely."""
        return all(self._is_read(parent, positions) for parent in self._parents(place))

    def _is_read(self, place: Place, positions: Mapping[Place, int]) -> bool:
        """Return whether a shard is closed and read to its end."""
        shard = self._shards[place]
        if shard.start is None or place not in positions:
            return False
        return shard.is_at_end and shard.last <= max(positions[place], shard.start)

    def _ahead(self, place: Place, position: int) -> None:
        """Read a shard ahead, from a position on."""
        shard = self._shards[place]
        if shard.start is None or not shard.start <= position <= shard.last:
            shard.start, shard.iterator, shard.is_at_end = position, None, False
            shard.sequences, shard.records, shard.n_bytes = [], [], 0
        while not shard.is_at_end:
            n_ahead = len(shard.sequences) - shard.index(position)
            if n_ahead and (n_ahead >= AHEAD_MESSAGES or shard.n_bytes >= AHEAD_BYTES):
                return
            records, is_last = self._next(place, shard)
            kept = [record for record in records if not self._is_later(record)]
            self._require_plain(place, kept)
            shard.records += kept
            shard.sequences += [int(record["SequenceNumber"]) for record in kept]
            shard.n_bytes += sum(len(record["Data"]) for record in kept)
            if len(kept) < len(records):  # the others are requested again
                shard.iterator, shard.is_at_end = None, False
                return
            if is_last:
                return

    def _next(self, place: Place, shard: _Shard) -> tuple[list[Any], bool]:
        """Return the next records, and whether they are the last ones for now."""
        if shard.iterator is None:
            shard.iterator, skipped = self._behind_known(place, shard.last)
            if skipped is not None:
                return self._noted(shard, skipped)
        try:
            answer = self._page(place, shard.iterator, PAGE)
        except ExpiredIteratorError:
            shard.iterator = self._iterator(place, shard.last)
            answer = self._page(place, shard.iterator, PAGE)
        return self._noted(shard, answer)

    def _noted(self, shard: _Shard, answer: Any) -> tuple[list[Any], bool]:
        shard.iterator = answer.get("NextShardIterator")
        records = answer["Records"]
        is_last = len(records) < PAGE and not answer.get("MillisBehindLatest")
        if shard.iterator is None or (shard.is_closed and is_last and not records):
            shard.is_at_end = True
        return records, is_last and not (shard.is_closed and records)

    def _behind_known(self, place: Place, position: int) -> tuple[str, Any | None]:
        """Return an iterator after a position, or the first response after a message that was read.

        Raises InputError: the last message that was read is gone, so later ones may be gone, too.
        """
        if position < 0:
            return self._iterator(place, position), None
        iterator = self._iterator(place, position, "AT_SEQUENCE_NUMBER")
        answer = self._page(place, iterator, PAGE)
        records = answer["Records"]
        while not records and answer.get("NextShardIterator") and answer.get("MillisBehindLatest"):
            answer = self._page(place, answer["NextShardIterator"], PAGE)
            records = answer["Records"]
        if records and int(records[0]["SequenceNumber"]) == position:
            return iterator, {**answer, "Records": records[1:]}
        if not self._log.goes_on_without:
            raise GoneError(
                "E0884",
                f"`{self._log.origin(place)}` has removed the last message that was read",
                ", and perhaps others behind it that were not",
                "let the stream keep its messages for longer; to continue: `on_lost: go_on`",
            )
        origin = self._log.origin(place)
        self.gaps[origin] = self.gaps.get(origin, 0) + 1
        return iterator, answer

    def _is_later(self, record: Any) -> bool:
        return self._stop_us is not None and _us(record["ApproximateArrivalTimestamp"]) > self._stop_us

    def _require_plain(self, place: Place, records: Sequence[Any]) -> None:
        """Raise InputError if a record contains several messages: they would be one dead letter."""
        for record in records:
            if record["Data"].startswith(_AGGREGATED):
                raise InputError(
                    "E0886",
                    f"record {record['SequenceNumber']} of `{self._log.origin(place)}` holds several "
                    "messages that the Kinesis Producer Library has aggregated; these are not read",
                    "let the producer send without aggregation (`AggregationEnabled=false`)",
                )

    def count(self, place: Place, start: int, end: int) -> int:
        """Return the number of messages between two positions."""
        shard = self._shards[place]
        return shard.index(end) - shard.index(start)

    def behind(self, place: Place, start: int, n: int) -> int:
        """Return the position after `n` more messages."""
        shard = self._shards[place]
        return shard.sequences[shard.index(start) + n - 1] if n else start

    def bounds(self, place: Place, start: int, end: int) -> tuple[int, int]:
        """Return the first message after `start`, and the position after the last one up to `end`."""
        if start < BEGINNING:
            return BEGINNING - start, end + 1
        shard = self._shards.get(place)
        if shard is not None and shard.start is not None and shard.start <= start:
            at = shard.index(start)
            if at < len(shard.sequences):
                return shard.sequences[at], end + 1
        first = self._first_behind(place, start)
        # What is gone is reported by who reads it.
        return first if first is not None and first <= end else end, end + 1

    def _first_behind(self, place: Place, position: int) -> int | None:
        """Return the first message after a position; the position itself if its message is gone, or None."""
        iterator: str | None = self._iterator(place, position, "AT_SEQUENCE_NUMBER")
        is_there = position < 0
        while iterator is not None:
            answer = self._page(place, iterator, 2)
            found = [int(record["SequenceNumber"]) for record in answer["Records"]]
            if found and not is_there and found.pop(0) != position:
                return position
            is_there = is_there or bool(answer["Records"])
            if found:
                return found[0]
            iterator = answer.get("NextShardIterator") if answer.get("MillisBehindLatest") else None
        return None

    def before_next(self, place: Place, position: int) -> int:
        """Return the next message after a position as a position."""
        shard = self._shards[place]
        return BEGINNING - shard.sequences[shard.index(position)]

    def forget(self, positions: Mapping[Place, int]) -> None:
        """Forget messages up to these positions."""
        for place, position in positions.items():
            if place in self._shards and self._shards[place].start is not None:
                self._shards[place].forget(position)

    def ended(self, positions: Mapping[Place, int]) -> Collection[Place]:
        """Return the closed shards that are read to their end and whose child shards are known."""
        return [place for place in positions if place in self._ended or place not in self._shards]

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two positions of each shard, from those read ahead."""
        found: dict[Place, Portion | None] = {}
        for place, (start, end) in ranges.items():
            shard = self._shards.get(place)
            if shard is None or shard.start is None or BEGINNING <= start < shard.start:
                found[place] = None
                continue
            at = shard.index(start)
            records = shard.records[at : min(at + PEEK_MESSAGES, shard.index(end))]
            found[place] = _portion(place, records, columns)
        return found

    # ------------------------------------------------------------ in a worker

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield the messages from one sequence number, which exists, to another."""
        place = part.place
        iterator: str | None = self._iterator(place, part.start, "AT_SEQUENCE_NUMBER")
        at = part.start  # first the next known number, then the last one read
        is_first = True
        while iterator is not None:
            try:
                answer = self._page(place, iterator, PAGE)
            except ExpiredIteratorError:
                iterator = self._iterator(place, at, "AFTER_SEQUENCE_NUMBER")
                continue
            records = answer["Records"]
            if is_first and records:
                first = int(records[0]["SequenceNumber"])
                if first != part.start:
                    raise RemovedError(part.start, first)
                is_first = False
            kept = [record for record in records if int(record["SequenceNumber"]) < part.end]
            if kept:
                yield _portion(place, kept, columns)
                at = int(kept[-1]["SequenceNumber"])
            if at == part.end - 1 and not is_first:
                return
            if len(kept) < len(records) or (not records and not answer.get("MillisBehindLatest")):
                break
            iterator = answer.get("NextShardIterator")
        raise RemovedError(part.start if is_first else at + 1, part.end)

    # ------------------------------------------------------------ the service

    def _iterator(self, place: Place, position: int, how: str = "AFTER_SEQUENCE_NUMBER") -> str:
        stream, shard = place
        if position == BEGINNING:
            start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        elif position < 0:
            at = _EPOCH + timedelta(microseconds=-position)
            start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": at}
        else:
            start = {"ShardIteratorType": how, "StartingSequenceNumber": str(position)}
        answer = self._calls(
            "get_shard_iterator", f"shard `{place_text(*place)}`", StreamName=stream, ShardId=shard, **start
        )
        found: str = answer["ShardIterator"]
        return found

    def _page(self, place: Place, iterator: str, most: int) -> Any:
        return self._calls("get_records", f"shard `{place_text(*place)}`", ShardIterator=iterator, Limit=most)

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _portion(place: Place, records: Sequence[Any], columns: Sequence[str]) -> Portion:
    """Return a portion of records. Positions are their times of arrival, milliseconds since 1970."""
    times_us = [_us(record["ApproximateArrivalTimestamp"]) for record in records]
    return Portion(
        [record["Data"] for record in records],
        np.array(times_us, np.int64) // 1000,
        {what: _column(what, place, records, times_us) for what in columns},
    )


def _column(what: str, place: Place, records: Sequence[Any], times_us: Sequence[int]) -> pa.Array:
    """Return metadata of records: texts, or times in microseconds since 1970."""
    match what:
        case "key":
            return pa.array([record["PartitionKey"] for record in records], pa.string())
        case "shard":
            return pa.array([place[1]] * len(records), pa.string())
        case "sequence":
            return pa.array([record["SequenceNumber"] for record in records], pa.string())
        case _:
            return pa.array(times_us, pa.int64())
