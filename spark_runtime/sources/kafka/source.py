"""Topics of Kafka as a source of events: ranges of offsets, read in the workers.

Executors read this: it imports nothing of the compiler, and librdkafka only when it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, no_events
from cep.formats.text.messages import MessageReader, tombstones
from cep.schema.stream import Stream
from spark_runtime.kafka_connection import Client, Connection
from spark_runtime.sources.kafka.fetch import (
    OffsetRange,
    RemovedError,
    begins,
    place_text,
    portions,
    require_right,
)
from spark_runtime.sources.kafka.planner import KafkaPlanner, lost
from spark_runtime.sources.kafka.reading import KafkaReading
from spark_runtime.sources.protocol import Range


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The messages of topics as events; see `Source`."""

    reading: KafkaReading

    @property
    def stream(self) -> Stream:
        """The stream whose events these are."""
        return self.reading.stream

    def check(self) -> None:
        """Ask for the schema of values, and a broker for the topics and the right to read them."""
        self.reading.message_reader().check()
        client = self.reading.client()
        try:
            for topic in self.reading.found_topics(client):
                require_right(client, topic, client.partitions(topic)[0])
        finally:
            client.client.close()

    def planner(self) -> KafkaPlanner:
        """Return what plans micro-batches."""
        return KafkaPlanner(self.reading)

    def everything(self) -> list[tuple[int, OffsetRange]]:
        """Return all messages, as they are now."""
        planner = self.planner()
        try:
            return planner.everything()
        finally:
            planner.close(Counts())

    def partition(self, part: Range) -> str:
        """Return topic and partition: ``orders[3]``."""
        return place_text(part[0], part[1])

    def position_text(self, source: str, position: int) -> str:
        """Return partition and offset: ``orders[3]@981``."""
        return f"{source}@{position}"

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range of offsets."""
        left = OffsetRange(*part)
        reader = self.reading.message_reader()
        client = _of_worker.client_for(self.reading)
        while left.start < left.end:
            left = self._without_lost(client, left, counts)
            try:
                if left.start < left.end:
                    for messages in portions(client, left):
                        yield from self._chunks(reader, self.partition(left), messages, ahead, counts)
                return
            except RemovedError as removed:  # while it was read
                left = left._replace(start=removed.offset)

    def _chunks(
        self, reader: MessageReader, origin: str, messages: list[Any], ahead: AheadGuard, counts: Counts
    ) -> Iterator[Chunk]:
        full = [message for message in messages if message.value() is not None]
        if len(full) < len(messages):
            empty = [message.offset() for message in messages if message.value() is None]
            if self.reading.has_dead_tombstones:
                yield no_events(self.stream, origin, tombstones(origin, empty))
            else:
                counts.tombstones[origin] = counts.tombstones.get(origin, 0) + len(empty)
        if full:
            yield reader.chunk(self.reading.as_messages(origin, full), ahead)

    def _without_lost(self, client: Client, part: OffsetRange, counts: Counts) -> OffsetRange:
        """Return what is still there of a range; what is not is counted or refused."""
        place = (part.topic, part.partition)
        first = begins(client, [place])[place]
        if first <= part.start:
            return part
        origin = place_text(*place)
        if not self.reading.goes_on_without:
            raise lost(origin, part.start, first)
        n_lost = min(first, part.end) - part.start
        counts.lost[origin] = counts.lost.get(origin, 0) + n_lost
        return part._replace(start=part.start + n_lost)


class _KeptClient:
    """The consumer of a process: connecting takes longer than reading some thousands of messages."""

    def __init__(self) -> None:
        self._what: tuple[Connection, str] | None = None
        self._client: Client | None = None

    def client_for(self, reading: KafkaReading) -> Client:
        """Return a consumer; the one before if it is of the same cluster and isolation."""
        what = (reading.connection, reading.isolation)
        if self._client is None or self._what != what:
            if self._client is not None:
                self._client.client.close()
            self._client, self._what = reading.client(), what
        return self._client


_of_worker = _KeptClient()
"""Of a worker, which serves many tasks. Only its consumer outlives a task, nothing that was read."""
