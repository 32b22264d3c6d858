"""RabbitMQ streams as a log of messages: each stream is a partition, and its offsets are positions.

The server returns only the chunks of a stream. So its first and its last chunk show its bounds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from cep.errors import InputError
from cep.schema.arrow_values import texts_of
from spark_runtime.connectors.message_logs.event_loop import EventLoop, keep_quiet
from spark_runtime.connectors.message_logs.log import (
    HEADER,
    PEEK_MESSAGES,
    Incarnation,
    LogWords,
    MessageRange,
    Place,
    Portion,
    RemovedError,
)
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.rabbitmq import amqp

T = TypeVar("T")

METADATA = ("headers", "message_id", "stream", "offset", "timestamp")
"""What may be a column in addition to the value; also `HEADER` and the name of a header."""

MOST_MESSAGES = 50_000
"""Most messages that are decoded together, plus those of one chunk."""

MOST_BYTES = 8 << 20
"""Approximate bytes of messages that are decoded together."""

PORT = 5552
"""The default port of the stream protocol."""

_CONNECT_SECONDS = 4.0
_CALL_SECONDS = 9.0
_SILENT_SECONDS = 60.0
_GRACE_SECONDS = 0.2
_CREDIT = 10  # chunks in flight
_FRAME_BYTES = 1 << 20
_HEARTBEAT_SECONDS = 60
_MOST_IDS = 250
_FIRST, _LAST, _OFFSET, _TIMESTAMP = 1, 2, 4, 5  # of rstream's OffsetType


@dataclass(frozen=True, slots=True)
class RabbitLog:
    """Streams of a server or a cluster; see `MessageLog`.

    `servers`: ``host:port``, or hosts. `options`: user, password, TLS files.
    """

    servers: tuple[str, ...]
    streams: tuple[str, ...]
    virtual_host: str = "/"
    options: Options = field(default_factory=Options)

    reads_ahead = False  # false: offsets count messages

    @property
    def connected_to(self) -> Hashable:
        """The server. A connection can read all of its streams."""
        return self.servers, self.virtual_host, self.options

    @property
    def words(self) -> LogWords:
        """The words for streams in errors."""
        return LogWords("stream", self.where, unknown="E0881", lost="E0884")

    @property
    def where(self) -> str:
        """The servers as text."""
        return ",".join(self.servers)

    def open(self) -> RabbitClient:
        """Return a client; it connects when it is used."""
        return RabbitClient(self)

    def origin(self, place: Place) -> str:
        """Return the stream."""
        return place[0]


class _Chunk(NamedTuple):
    """Messages that the server stores together; `at_ms`: when, since 1970."""

    first: int
    end: int
    at_ms: int
    n_bytes: int
    messages: Any  # a function, so that unneeded messages are not decoded

    @property
    def text(self) -> str:
        """The chunk as a string, which ends with its offset."""
        return f"stored {datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat()} at offset {self.first}"


class RabbitClient:
    """Connections to RabbitMQ; see `LogClient`."""

    def __init__(self, log: RabbitLog) -> None:
        self._log = log
        keep_quiet("rstream")  # important errors are raised
        self._loop = EventLoop()
        self._clients: dict[tuple[str, int], Any] = {}
        self._of_stream: dict[str, Any] = {}  # the connection to a node with the stream
        self._n_subscriptions = 0
        self._last: dict[str, _Chunk | None] = {}  # the last chunk of each stream that was seen

    # ------------------------------------------------------------ the log

    def require_right(self) -> None:
        """Read the first chunk of each stream."""
        for stream in self._log.streams:
            self._first_chunk(stream, _FIRST)

    def places(self) -> list[Place]:
        """Return the streams."""
        return [(stream, 0) for stream in self._log.streams]

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the first offset of each stream; 0 if nothing was ever stored."""
        chunks = {place: self._first_chunk(place[0], _FIRST) for place in places}
        return {place: 0 if chunk is None else chunk.first for place, chunk in chunks.items()}

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the offset after the end of each stream."""
        self._last |= {place[0]: self._first_chunk(place[0], _LAST) for place in places}
        chunks = {place: self._last[place[0]] for place in places}
        return {place: 0 if chunk is None else chunk.end for place, chunk in chunks.items()}

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return the offset and the time of the last chunk of each stream.

        The protocol has no identifier of a stream. But a chunk is stored once, at a certain time: the same
        stream either still has a chunk or has removed it.
        """
        # The chunk that is stored next is older than the one compared now.
        unseen = [stream for stream in known if stream not in self._last]
        self._last |= {stream: self._first_chunk(stream, _LAST) for stream in unseen}
        now = {stream: self._last[stream] for stream in known}
        texts = {stream: "" if chunk is None else chunk.text for stream, chunk in now.items()}
        return {
            stream: Incarnation(texts[stream] or text, self._has(stream, texts[stream], text))
            for stream, text in known.items()
        }

    def _has(self, stream: str, last: str, known: str) -> bool:
        """Return whether a stream has a chunk, or may have removed it; `last` is its last one."""
        if not known or known == last:
            return True
        first = int(known.split()[-1])

        async def look() -> _Chunk | None:
            async with self._subscribed(stream, _OFFSET, first) as chunks:
                return await anext(chunks)

        chunk = self._call(look(), stream)
        return chunk is not None and (chunk.first > first or chunk.text == known)

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return the first offset of the first chunk at a time or later."""
        at_ms = -(-time_us // 1000)

        async def look(stream: str, end: int) -> int:
            async with self._subscribed(stream, _TIMESTAMP, at_ms) as chunks:
                async for chunk in chunks:
                    if chunk is None:
                        return end
                    if chunk.at_ms >= at_ms or chunk.end >= end:
                        return chunk.first if chunk.at_ms >= at_ms else chunk.end
            return end

        ends = self.ends(places)
        return {place: self._call(look(place[0], end), place[0]) for place, end in ends.items()}

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield the messages of a range of offsets."""
        at = part.start
        while at < part.end:
            asked = self._next(part.log, at, part.end)
            first, chunks = self._call(asked, part.log, _SILENT_SECONDS + _CALL_SECONDS)
            if first > at:
                raise RemovedError(at)
            end = min(chunks[-1].end, part.end)
            yield _portion(part.log, chunks, at, end, columns)
            at = end

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two offsets of each stream."""
        found: dict[Place, Portion | None] = {}
        for place, (start, end) in ranges.items():
            stop = min(end, start + PEEK_MESSAGES)
            first, chunks = self._call(self._next(place[0], start, stop), place[0])
            is_gone = first > start
            found[place] = None if is_gone else _portion(place[0], chunks, start, stop, columns)
        return found

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            with suppress(InputError):
                self._call(_closed(client), "")
        self._clients.clear()
        self._of_stream.clear()
        self._loop.close()

    # ------------------------------------------------------------ the server

    def _first_chunk(self, stream: str, offset_type: int) -> _Chunk | None:
        """Return the first or the last chunk of a stream, or None."""

        async def look() -> _Chunk | None:
            async with self._subscribed(stream, offset_type) as chunks:
                return await anext(chunks)

        return self._call(look(), stream)

    async def _next(self, stream: str, start: int, end: int) -> tuple[int, list[_Chunk]]:
        """Return the first existing offset from `start` on, and some chunks from there up to `end`."""
        found: list[_Chunk] = []
        n_messages = n_bytes = 0
        async with self._subscribed(stream, _OFFSET, start) as chunks:
            async for chunk in chunks:
                if chunk is None:
                    raise OSError(f"it ends before offset {end:,}, and had messages up to there")
                if chunk.end <= start:
                    continue
                found.append(chunk)
                n_messages += chunk.end - chunk.first
                n_bytes += chunk.n_bytes
                if chunk.end >= end or n_messages >= MOST_MESSAGES or n_bytes >= MOST_BYTES:
                    break
        return max(found[0].first, start), found

    @asynccontextmanager
    async def _subscribed(
        self, stream: str, offset_type: int, offset: int | None = None
    ) -> AsyncIterator[AsyncIterator[_Chunk | None]]:
        """Yield the chunks of a stream from a place on; None means that there is none yet."""
        from rstream import OffsetType, schema

        client = await self._connected(stream)
        self._n_subscriptions = number = self._n_subscriptions % _MOST_IDS + 1
        arrived: asyncio.Queue[Any] = asyncio.Queue()

        def take(frame: Any) -> None:
            if frame.subscription_id == number:
                arrived.put_nowait(frame)

        await client.run_queue_listener_task(number, take)
        client.add_handler(schema.Deliver, take, name=str(number))
        begin = schema.OffsetSpec.from_params(OffsetType(offset_type), offset)
        try:
            await client.subscribe(stream, number, begin, initial_credit=_CREDIT)
            # Existing chunks are sent before the response to the next request.
            await client.stream_exists(stream)
            yield self._chunks(client, number, arrived)
            await client.unsubscribe(number)
        finally:
            client.remove_handler(schema.Deliver, str(number))
            await client.stop_queue_listener_task(number)

    async def _chunks(self, client: Any, number: int, arrived: Any) -> AsyncIterator[_Chunk | None]:
        is_first = True
        while True:
            try:
                frame = await asyncio.wait_for(arrived.get(), _GRACE_SECONDS if is_first else _SILENT_SECONDS)
            except TimeoutError:
                yield None
                return
            is_first = False
            await client.credit(number, 1)
            first, end = frame.chunk_first_offset, frame.chunk_first_offset + frame.num_records
            yield _Chunk(first, end, frame.timestamp, frame.data_length, frame.get_messages)

    async def _connected(self, stream: str) -> Any:
        """Return a connection to a node that has the stream."""
        client = self._of_stream.get(stream)
        if client is None or not client.is_connection_alive():
            locator = await self._located()
            leader, replicas = await locator.query_leader_and_replicas(stream)
            node = replicas[0] if replicas else leader
            client = await self._at(node.host, node.port)
            self._of_stream[stream] = client
        return client

    async def _located(self) -> Any:
        """Return a connection to the first server that answers."""
        for index, server in enumerate(self._log.servers):
            host, _, port = server.rpartition(":") if ":" in server else (server, "", str(PORT))
            try:
                return await self._at(host, int(port))
            except (OSError, TimeoutError):
                if index == len(self._log.servers) - 1:
                    raise
        raise OSError("no server is named")

    async def _at(self, host: str, port: int) -> Any:
        """Return a connection to a node, the existing one if it is alive."""
        known = self._clients.pop((host, port), None)
        if known is not None and not known.is_connection_alive():
            await _closed(known)
            known = None
        if known is None:
            try:
                known = await asyncio.wait_for(_connected(self._log, host, port), _CONNECT_SECONDS)
            except TimeoutError as error:
                raise ConnectionError(f"no answer within {_CONNECT_SECONDS:.0f} seconds") from error
        self._clients[host, port] = known
        return known

    def _call(self, work: Coroutine[Any, Any, T], stream: str, seconds: float = _CALL_SECONDS) -> T:
        """Return the result of `work`; raises InputError."""
        from rstream.connection import ConnectionClosed
        from rstream.exceptions import ClientError, ServerError

        try:
            return self._loop.run(work, seconds)
        except (OSError, TimeoutError, ConnectionClosed, ServerError, ClientError, ValueError) as error:
            self._of_stream.clear()
            raise self._error(error, f"stream `{stream}`") from error

    def _error(self, cause: Exception, doing: str) -> InputError:
        """Return the error that a user sees for an error of rstream."""
        from rstream import exceptions

        where = f"`{self._log.where}`"
        shown = self._log.options.shown(cause)
        refusals = (
            exceptions.AuthenticationFailure,
            exceptions.SASLAuthenticationFailureLoopback,
            exceptions.VirtualHostAccessFailure,
            exceptions.AccessRefused,
        )
        if isinstance(cause, refusals):
            return InputError(
                "E0882",
                f"{where} refuses access to {doing}: {type(cause).__name__}",
                "check `username` and `password` in `options`, `virtual_host`, and the rights of "
                "this user to read the stream",
            )
        if isinstance(cause, exceptions.StreamDoesNotExist):
            return InputError(
                "E0881",
                f"there is no {doing} at {where}",
                "create it, or correct its name; a queue that is no stream cannot be read again",
            )
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError) and cause.errno is not None:
            return InputError(
                "E0880",
                f"nothing answers at {where}: {shown}",
                "start RabbitMQ with the plugin rabbitmq_stream, or name its host and port in `servers`",
            )
        if isinstance(cause, ConnectionError):
            return InputError(
                "E0880",
                f"no stream protocol of RabbitMQ at {where}: {shown}",
                "name the port of the plugin rabbitmq_stream (5552) in `servers`, not that of AMQP (5672)",
            )
        return InputError("E0885", f"RabbitMQ at {where} failed at {doing}: {shown}")


async def _connected(log: RabbitLog, host: str, port: int) -> Any:
    """Return a new connection of rstream."""
    from rstream.client import Client

    client = Client(
        host,
        port,
        ssl_context=log.options.tls(),
        frame_max=_FRAME_BYTES,
        heartbeat=_HEARTBEAT_SECONDS,
        connection_name="spark-cep",
    )
    user, password = (log.options.value(name) or "guest" for name in ("username", "password"))
    try:
        await client.start()
        await client.authenticate(log.virtual_host, user, password)
    except BaseException:
        await _closed(client)
        raise
    return client


async def _closed(client: Any) -> None:
    """Close a connection, even one that the server has closed."""
    connection = client._conn  # rstream keeps the socket of a broken connection
    await client.close()
    if connection is not None:
        with suppress(OSError):
            await connection.close()


def _portion(stream: str, chunks: Sequence[_Chunk], start: int, end: int, columns: Sequence[str]) -> Portion:
    """Return the messages of chunks from offset `start` up to `end`."""
    messages: list[bytes] = []
    times_us: list[int] = []
    for chunk in chunks:
        low, high = max(start - chunk.first, 0), min(end, chunk.end) - chunk.first
        if high > low:
            messages += chunk.messages()[low:high]
            times_us += [chunk.at_ms * 1000] * (high - low)
    first = max(start, chunks[0].first)
    offsets = np.arange(first, first + len(messages), dtype=np.int64)
    return Portion(
        [amqp.value(message) for message in messages],
        offsets,
        {what: _column(what, stream, messages, offsets, times_us) for what in columns},
    )


def _column(
    what: str, stream: str, messages: Sequence[bytes], offsets: np.ndarray[Any, Any], times_us: Sequence[int]
) -> pa.Array:
    """Return metadata of messages: texts, or times in microseconds since 1970."""
    match what:
        case "stream":
            return pa.array([stream] * len(messages), pa.string())
        case "offset":
            return pa.array(offsets).cast(pa.string())
        case "timestamp":
            return pa.array(times_us, pa.int64())
        case "message_id":
            return texts_of(map(amqp.message_id, messages))
        case "headers":
            found = map(amqp.headers, messages)
            texts = (json.dumps(one, ensure_ascii=False) if one else None for one in found)
            return texts_of(texts)
        case _:
            name = what.removeprefix(HEADER)
            return texts_of(amqp.headers(message).get(name) for message in messages)
