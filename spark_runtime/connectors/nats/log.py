"""NATS JetStream streams as a log of messages: a position is a sequence number of the stream.

Each range is read by its own consumer, which acknowledges nothing and ends with the range. So the range can
be read again, and the server stores nothing for the pipeline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from cep.errors import InputError
from cep.packages import is_installed, not_installed
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
from spark_runtime.event_time.partitions import place_text

T = TypeVar("T")

METADATA = ("subject", "headers", "sequence", "timestamp")
"""What may be a column in addition to the value; also `HEADER` and the name of a header."""

ALL = ">"
"""The filter that all subjects match."""

MOST_MESSAGES = 50_000
"""Most messages that are decoded together."""

MOST_BYTES = 8 << 20
"""Bytes of messages that are requested together, unless one is larger."""

_CONNECT_SECONDS = 5.0
_CALL_SECONDS = 5.0
_SILENT_SECONDS = 60.0
_KEPT_SECONDS = 60.0  # the server removes a consumer that is unused for this long
_NOT_FOUND = 404
_NO_MESSAGES = "404"


@dataclass(frozen=True, slots=True)
class NatsLog:
    """Streams of a server or a cluster; see `MessageLog`.

    `servers`: ``host:port``, or addresses with a scheme. `subjects`: filters of subjects. Each is a
    partition; without filters, a stream is one partition. `options`: user, password, token, files with
    credentials and for TLS.
    """

    servers: tuple[str, ...]
    streams: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    reads_ahead = False  # false: the server reports the end of a stream

    @property
    def connected_to(self) -> Hashable:
        """The server. A connection can read all of its streams."""
        return self.servers, self.options

    @property
    def words(self) -> LogWords:
        """The words for streams in errors."""
        return LogWords("stream", self.where, unknown="E0881", lost="E0884")

    @property
    def where(self) -> str:
        """The servers as text, without users in addresses."""
        return ",".join(server.rpartition("@")[2] for server in self.servers)

    def open(self) -> NatsClient:
        """Return a client; it connects when it is used."""
        return NatsClient(self)

    def origin(self, place: Place) -> str:
        """Return stream and subject: ``ORDERS[orders.eu.*]``; without subjects ``ORDERS``."""
        return place[0] if place[1] == ALL else place_text(*place)


class _Message(NamedTuple):
    """A message. `number`: its index among its consumer's messages. `at_ns`: when it was stored, since 1970.

    `n_left`: the number of matching messages after it.
    """

    sequence: int
    number: int
    subject: str
    value: bytes
    headers: Mapping[str, str] | None
    at_ns: int
    n_left: int


class NatsClient:
    """A connection to JetStream; see `LogClient`."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log
        keep_quiet("nats")  # important errors are raised
        self._loop = EventLoop()
        self._connection: Any = None
        self._refusal: Exception | None = None  # the server's asynchronous error

    # ------------------------------------------------------------ the log

    def require_right(self) -> None:
        """Create a consumer of each stream, as reading does."""
        for stream, subject in self.places():
            stored = self._info(stream).config.subjects or []  # a mirror has none
            words = str(subject).split(".")
            if stored and not any(overlap(words, one.split(".")) for one in stored):
                raise InputError(
                    "E0881",
                    f"stream `{stream}` at `{self._log.where}` stores no subject `{subject}`",
                    f"write one that it stores, {' or '.join(stored)}, or leave `subject` out to read all",
                )
            consumer = self._call(self._consumer(stream, str(subject), opt_start_seq=1), stream)
            self._call(self._forget(stream, consumer.name), stream)

    def places(self) -> list[Place]:
        """Return each stream with each subject."""
        for stream in self._log.streams:
            self._state(stream)
        return [(stream, subject) for stream in self._log.streams for subject in self._log.subjects or (ALL,)]

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the first sequence number that each stream still has."""
        states = {stream: self._state(stream) for stream in {place[0] for place in places}}
        return {place: max(states[place[0]].first_seq, 1) for place in places}

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the sequence number after the end of each stream."""
        states = {stream: self._state(stream) for stream in {place[0] for place in places}}
        return {place: states[place[0]].last_seq + 1 for place in places}

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return when each stream was created."""
        created = {stream: self._info(stream).created for stream in known}
        texts = {stream: "" if at is None else f"created {at.isoformat()}" for stream, at in created.items()}
        return {stream: Incarnation.of(texts[stream], text) for stream, text in known.items()}

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return the first sequence number at a time or later."""
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
        found = {}
        for stream, subject in places:
            info = self._call(self._consumer(stream, str(subject), opt_start_time=at), stream)
            found[stream, subject] = info.delivered.stream_seq + 1
        return found

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield the messages of a range of sequence numbers."""
        stream, subject = part.log, str(part.partition)
        consumer = self._call(self._consumer(stream, subject, opt_start_seq=part.start), stream)
        n_left, at = consumer.num_pending, part.start
        while n_left and at < part.end:
            most = min(MOST_MESSAGES, part.end - at)
            found, is_end = self._call(
                self._next(stream, consumer.name, most, part.end), stream, _SILENT_SECONDS
            )
            first = self.begins([part.place])[part.place]
            if first > at:  # retention continues while we read: messages before the gap count
                kept = _unbroken(found, at, first)
                if kept is not None:
                    found = kept
                    yield from _portions(found, columns, part.end)
                    raise RemovedError(found[-1].sequence + 1 if found else at)
            if not found:
                if is_end:
                    break
                raise self._error(OSError("a consumer gives no messages"), f"stream `{stream}`")
            yield from _portions(found, columns, part.end)
            at, n_left = found[-1].sequence + 1, found[-1].n_left
        self._call(self._forget(stream, consumer.name), stream)

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two sequence numbers of each partition."""
        peeked: dict[Place, Portion | None] = {}
        for (stream, subject), (start, end) in ranges.items():
            consumer = self._call(self._consumer(stream, str(subject), opt_start_seq=start), stream)
            found: list[_Message] = []
            if consumer.num_pending:
                found, _ = self._call(self._next(stream, consumer.name, PEEK_MESSAGES, end), stream)
            self._call(self._forget(stream, consumer.name), stream)
            peeked[stream, subject] = _portion([m for m in found if m.sequence < end], columns)
        return peeked

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(InputError):
                self._call(self._connection.close(), "")
            self._connection = None
        self._loop.close()

    # ------------------------------------------------------------ the server

    def _state(self, stream: str) -> Any:
        """Return the state of a stream: its first and its last sequence number."""
        return self._info(stream).state

    def _info(self, stream: str) -> Any:
        async def asked() -> Any:
            return await (await self._connected()).jetstream().stream_info(stream)

        return self._call(asked(), stream)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connected(self._log, self._noted)
        return self._connection

    async def _noted(self, error: Exception) -> None:
        self._refusal = error

    async def _consumer(self, stream: str, subject: str, **start: Any) -> Any:
        """Create a consumer that soon expires; return the server's description of it."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        by_time = "opt_start_time" in start
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_TIME if by_time else DeliverPolicy.BY_START_SEQUENCE,
            ack_policy=AckPolicy.NONE,
            filter_subject=None if subject == ALL else subject,
            inactive_threshold=_KEPT_SECONDS,
            mem_storage=True,
            num_replicas=1,
            **start,
        )
        return await (await self._connected()).jetstream().add_consumer(stream, config)

    async def _forget(self, stream: str, consumer: str) -> None:
        await (await self._connected()).jetstream().delete_consumer(stream, consumer)

    async def _next(self, stream: str, consumer: str, most: int, end: int) -> tuple[list[_Message], bool]:
        """Return the next messages of a consumer, `most` or fewer, and whether there are no more.

        Messages from `end` on may be among them. After the first of those, no more are requested.
        """
        connection = await self._connected()
        found: list[_Message] = []
        is_done = asyncio.Event()
        status = ""

        async def take(message: Any) -> None:
            nonlocal status
            if not message.reply:  # there are no more, or no more fit
                status = (message.headers or {}).get("Status", "")
                is_done.set()
                return
            found.append(_message(message))
            if len(found) == most or not found[-1].n_left or found[-1].sequence >= end - 1:
                is_done.set()

        inbox = connection.new_inbox()
        subscribed = await connection.subscribe(inbox, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        try:
            n_bytes = MOST_BYTES
            while True:
                asked = {"batch": most, "no_wait": True, "max_bytes": n_bytes}
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
                await connection.publish(subject, json.dumps(asked).encode(), reply=inbox)
                await is_done.wait()
                if found and found[-1].number - found[0].number + 1 != len(found):
                    raise OSError("messages were lost on the way")
                if found or status == _NO_MESSAGES or n_bytes > MOST_BYTES:
                    return found, status == _NO_MESSAGES
                n_bytes = 1 << 30  # one message is larger
                is_done.clear()
        finally:
            await subscribed.unsubscribe()

    def _call(self, work: Coroutine[Any, Any, T], stream: str, seconds: float = 2 * _CALL_SECONDS) -> T:
        """Return the result of `work`; raises InputError."""
        from nats.errors import Error

        try:
            return self._loop.run(work, seconds)
        except (Error, OSError, TimeoutError) as error:
            raise self._error(error, f"stream `{stream}`") from error

    def _error(self, cause: Exception, doing: str) -> InputError:
        """Return the error that a user sees for an error of nats-py."""
        from nats.errors import NoServersError
        from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

        where, options = f"`{self._log.where}`", self._log.options
        said = [str(error).lower() for error in (cause, self._refusal) if error is not None]
        refusal = self._refusal if self._refusal is not None else cause
        self._refusal = None
        if any("authorization" in text or "permissions" in text or "authentication" in text for text in said):
            return InputError(
                "E0882",
                f"{where} refuses access to {doing}: {options.shown(refusal)}",
                "check `user`, `password`, `token` and `credentials`, and the rights of this user",
            )
        if isinstance(cause, ServiceUnavailableError | NoStreamResponseError):
            return InputError(
                "E0886",
                f"{where} has no JetStream, so it stores no messages",
                "start it with JetStream (`nats-server -js`), or name an account that has it",
            )
        if isinstance(cause, APIError) and cause.code == _NOT_FOUND:
            return InputError("E0881", f"there is no {doing} at {where}", "create it, or correct its name")
        if isinstance(cause, NoServersError | OSError) and not isinstance(cause, TimeoutError):
            return InputError(
                "E0880",
                f"no server of NATS answers at {where}: {options.shown(cause)}",
                "start it, or name its host and port in `servers`",
            )
        return InputError("E0885", f"NATS at {where} failed at {doing}: {options.shown(cause)}")


def overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether some subject matches two filters, which are given as words."""
    if not one or not other:
        return not one and not other
    if one[0] == ALL or other[0] == ALL:
        return True
    if "*" not in (one[0], other[0]) and one[0] != other[0]:
        return False
    return overlap(one[1:], other[1:])


async def connected(log: NatsLog, noted: Any) -> Any:
    """Return a connection of nats-py; `noted` is called with asynchronous errors.

    Raises InputError: an environment variable is missing (E0853), or a TLS file is wrong (E0883). Raises
    SetupError: the package that reads `credentials` is missing (E0683).
    """
    from nats.aio.client import Client

    given: dict[str, Any] = {name: log.options.value(name) for name in ("user", "password", "token")}
    given["user_credentials"] = _credentials(log.options)
    given["tls"] = log.options.tls()
    client = Client()
    try:
        await asyncio.wait_for(
            client.connect(
                [server if "://" in server else f"nats://{server}" for server in log.servers],
                error_cb=noted,
                allow_reconnect=False,  # the next request reconnects
                connect_timeout=int(_CONNECT_SECONDS),
                max_reconnect_attempts=1,
                name="spark-cep",
                **{name: value for name, value in given.items() if value is not None},
            ),
            _CONNECT_SECONDS,
        )
    except TimeoutError as error:
        await client.close()
        raise ConnectionError(f"no answer within {_CONNECT_SECONDS:.0f} seconds") from error
    except BaseException:
        await client.close()
        raise
    return client


def _credentials(options: Options) -> str | None:
    """Return the file of credentials; raise InputError or SetupError if it or its reader is missing."""
    file = options.value("credentials")
    if file is not None and not Path(file).is_file():
        raise InputError("E0883", f"there is no file `{options.shown(file)}`", "correct `credentials`")
    if file is not None and not is_installed("nkeys"):
        raise not_installed("`credentials`", "nkeys", "nkeys")
    return file


def _message(message: Any) -> _Message:
    """Return a message; its metadata is in the subject for its acknowledgement."""
    # $JS.ACK.(stream).(consumer).(n).(sequence).(n).(time).(left). Newer servers add two words before
    # the stream, and one at the end.
    words = message.reply.split(".")
    at = 5 if len(words) == 9 else 7
    sequence, number, at_ns, n_left = (int(word) for word in words[at : at + 4])
    return _Message(sequence, number, message.subject, message.data, message.headers, at_ns, n_left)


def _unbroken(found: Sequence[_Message], at: int, first: int) -> list[_Message] | None:
    """Return the messages before the first one that is missing below `first`; None if none is missing."""
    for index, message in enumerate(found):
        if message.sequence >= first:
            return list(found[:index]) if at < first else None
        if message.sequence > at:
            return list(found[:index])
        at = message.sequence + 1
    return list(found) if at < first else None


def _portions(found: Sequence[_Message], columns: Sequence[str], end: int) -> Iterator[Portion]:
    kept = [message for message in found if message.sequence < end]
    if kept:
        yield _portion(kept, columns)


def _portion(messages: Sequence[_Message], columns: Sequence[str]) -> Portion:
    sequences = np.array([message.sequence for message in messages], np.int64)
    return Portion(
        [message.value for message in messages],
        sequences,
        {what: _column(what, messages, sequences) for what in columns},
    )


def _column(what: str, messages: Sequence[_Message], sequences: np.ndarray[Any, Any]) -> pa.Array:
    """Return metadata of messages: texts, or times in microseconds since 1970."""
    match what:
        case "subject":
            return pa.array([message.subject for message in messages], pa.string())
        case "sequence":
            return pa.array(sequences).cast(pa.string())
        case "timestamp":
            return pa.array([message.at_ns // 1000 for message in messages], pa.int64())
        case "headers":
            texts = (json.dumps(m.headers, ensure_ascii=False) if m.headers else None for m in messages)
            return pa.array(texts, pa.string())
        case _:
            name = what.removeprefix(HEADER)
            return pa.array([(message.headers or {}).get(name) for message in messages], pa.string())
