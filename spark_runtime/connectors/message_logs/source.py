"""A log of messages as a source of events: ranges of positions, read in the workers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, no_events
from cep.formats.text.messages import MessageReader, tombstones
from cep.schema.stream import Stream
from spark_runtime.connectors.message_logs.log import (
    LogClient,
    MessageLog,
    MessageRange,
    Portion,
    RemovedError,
    lost,
)
from spark_runtime.connectors.message_logs.planner import MessagePlanner
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.sources.protocol import Range

KEPT_CLIENTS = 4
"""Most connections that a worker keeps."""


@dataclass(frozen=True, slots=True)
class MessageSource:
    """The messages of a log as events; see `Source`."""

    reading: MessageReading

    @property
    def stream(self) -> Stream:
        """The stream of its events."""
        return self.reading.stream

    def check(self) -> None:
        """Check that the log exists and can be read, and its schema; raise InputError if not."""
        self.reading.message_reader().check()
        client = self.reading.log.open()
        try:
            client.require_right()
        finally:
            client.close()

    def planner(self) -> MessagePlanner:
        """Return the planner of micro-batches."""
        return MessagePlanner(self.reading)

    def everything(self) -> list[tuple[int, MessageRange]]:
        """Return ranges of all messages that exist now."""
        planner = self.planner()
        try:
            return planner.everything()
        finally:
            planner.close(Counts())

    def partition(self, part: Range) -> str:
        """Return the partition as text: ``orders[3]``."""
        return self.reading.log.origin((part[0], part[1]))

    def position_text(self, source: str, position: int) -> str:
        """Return partition and position: ``orders[3]@981``."""
        return f"{source}@{position}"

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range of positions."""
        left = MessageRange(*part)
        reader = self.reading.message_reader()
        client = KEPT.client_for(self.reading.log)
        while left.start < left.end:
            first = client.begins([left.place])[left.place]
            if first > left.start:
                left = self._behind_lost(left, first, min(first, left.end) - left.start, counts)
            try:
                if left.start < left.end:
                    for portion in client.read(left, self.reading.wanted):
                        yield from self._chunks(reader, left, portion, ahead, counts)
                return
            except RemovedError as removed:  # messages were removed while they were read
                left = left._replace(start=removed.position)
                if removed.first is not None:
                    left = self._behind_lost(left, removed.first, None, counts)

    def _chunks(
        self, reader: MessageReader, part: MessageRange, portion: Portion, ahead: AheadGuard, counts: Counts
    ) -> Iterator[Chunk]:
        messages, empty = self.reading.as_messages(part.place, portion)
        if empty is not None:
            table = self.stream.table
            n_empty = len(empty.values)
            if self.reading.deletes and table is not None and table.op is not None:
                yield reader.deletions(empty, table.op, ahead)
            elif self.reading.has_dead_tombstones:
                letters = tombstones(messages.origin, empty.positions.tolist())
                yield no_events(self.stream, messages.origin, letters)
            else:
                counts.tombstones[messages.origin] = counts.tombstones.get(messages.origin, 0) + n_empty
        if messages.values:
            yield reader.chunk(messages, ahead)

    def _behind_lost(self, part: MessageRange, first: int, n: int | None, counts: Counts) -> MessageRange:
        """Return the rest of a range after `n` lost messages, which are counted or refused."""
        if not self.reading.goes_on_without:
            raise lost(self.reading.log, part.place, first, n)
        origin = self.reading.log.origin(part.place)
        counts.lost[origin] = counts.lost.get(origin, 0) + (1 if n is None else n)
        return part._replace(start=min(first, part.end))


class _KeptClients:
    """The connections of a process: connecting takes longer than reading some thousands of messages."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, LogClient] = {}

    def client_for(self, log: MessageLog) -> LogClient:
        """Return a connection, if possible an existing one."""
        what = (type(log), log.connected_to)
        if what not in self._clients:
            while len(self._clients) >= KEPT_CLIENTS:
                self._clients.pop(next(iter(self._clients))).close()
            self._clients[what] = log.open()
        return self._clients[what]

    def close(self) -> None:
        """Close all connections."""
        while self._clients:
            self._clients.popitem()[1].close()


KEPT = _KeptClients()
"""The connections of a worker, which serves many tasks. They outlive a task; data that was read does not."""
