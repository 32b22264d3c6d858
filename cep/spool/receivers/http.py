"""Takes messages over HTTP: a request is answered with 202 when its messages are on disk."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import numpy as np

from cep.errors import InputError
from cep.spool.intake import Intake, Outcome
from cep.spool.receivers.http_clients import Body, ClientLimits, Clients, origin_of
from cep.spool.receivers.http_messages import (
    MAX_HEAD_BYTES,
    Head,
    RequestError,
    body_length,
    messages_of,
    read_body,
    read_head,
)
from cep.spool.segments import ReceivedBatch

HEALTH_PATH = "health"

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
_STOP_SECONDS = 10.0
_REST_SECONDS, _REST_BYTES = 1.0, 8 << 20
_HANDSHAKE_SECONDS = 10.0
_MOST_REFUSING = 100
"""Connections for which there is no room and that are told so, at one time; others are closed at once."""

_BACKLOG = 1024
_OTHER_FILES = 100
_MUCH_BYTES = 64 << 10
"""The messages of a larger body are found in a thread, so that other clients need not wait for it."""

_ACCEPTED, _TOO_MANY, _UNAVAILABLE = 202, 429, 503


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How messages are received over HTTP.

    - `token`: every request with messages must have it: ``Authorization: Bearer TOKEN``; "": none.
    - `max_body_bytes`: the maximum size of one request.
    - `max_connections`, `max_connections_of_one`: the maximum number at one time, of all addresses and of
      one.
    - `max_reading_bytes`: the maximum of all bodies that are being read. An address gets the same share of
      these as of connections.
    - `min_rate`: bytes of a body that a client must send per second, averaged over `slow_seconds`.
    - `headers`: headers that are kept, in lower case; each becomes a column ``header.NAME``.
    - `retry_seconds`: how long a sender should wait when there is no room.
    - `head_seconds`: the time from the connection, or the last answer, in which the next request must start.
    - `body_seconds`: the time after the head in which the body must arrive.
    - `slow_seconds`: the time after the first byte of a head in which the rest of it must arrive. See also
      `min_rate`.
    - `certificate`, `private_key`: files for TLS; "": no TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str = field(default="", repr=False)
    max_body_bytes: int = 16 << 20
    max_connections: int = 1000
    max_connections_of_one: int = 250
    max_reading_bytes: int = 256 << 20
    headers: tuple[str, ...] = ()
    min_rate: int = 1 << 10
    retry_seconds: int = 1
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    slow_seconds: float = 5.0
    certificate: str = ""
    private_key: str = ""


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection; `deadline`: when its reader raises TimeoutError, by the clock of the loop."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    origin: str
    deadline: float = math.inf


class HttpReceiver:
    """See `Receiver`.

    `now_us`: the wall clock: microseconds since 1970. `ready`: receives the port once requests can arrive.
    """

    def __init__(
        self,
        settings: HttpSettings,
        now_us: Callable[[], int],
        ready: Callable[[int], None] = lambda port: None,
    ) -> None:
        self.settings = settings
        self.now_us = now_us
        self.ready = ready
        self._clients = Clients(
            ClientLimits(
                settings.max_connections,
                settings.max_connections_of_one,
                settings.max_reading_bytes,
                settings.max_body_bytes,
            )
        )
        self._open: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._reading: set[_Connection] = set()
        self._n_refusing = 0
        self._is_stopping = False

    def check(self) -> None:
        """Read the certificate; raises InputError."""
        self._tls()

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Answer requests until `stopped` is set."""
        asyncio.run(self._serve(intake, stopped))

    def _tls(self) -> ssl.SSLContext | None:
        if not self.settings.certificate:
            if self.settings.private_key:
                raise InputError(
                    "E0957",
                    "a private key without a certificate: messages would arrive unencrypted",
                    "name the certificate, too: --certificate FILE --private-key FILE",
                )
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.settings.certificate, self.settings.private_key or None)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                "E0957",
                f"`{self.settings.certificate}` and its private key cannot be used: {error}",
                "name PEM files: --certificate FILE --private-key FILE",
            ) from error
        return context

    async def _serve(self, intake: Intake, stopped: threading.Event) -> None:
        tls = self._tls()
        listening = await self._listen()
        _allow_files(self.settings.max_connections + _MOST_REFUSING + _OTHER_FILES)
        accepting = [asyncio.create_task(self._accept(each, intake, tls)) for each in listening]
        self.ready(listening[0].getsockname()[1])
        while not stopped.is_set():
            await asyncio.sleep(_POLL_SECONDS)
            self._end_the_late()
        self._is_stopping = True
        for task in accepting:
            task.cancel()
        for each in listening:
            each.close()
        for task in self._open - self._busy:  # they wait for a request that will not be answered
            task.cancel()
        end = asyncio.get_running_loop().time() + _STOP_SECONDS
        while self._open and asyncio.get_running_loop().time() < end:
            await asyncio.wait(set(self._open), timeout=_POLL_SECONDS)
            self._end_the_late()
        for task in set(self._open):
            task.cancel()

    def _end_the_late(self) -> None:
        """End reads that exceed their time. Timers would take a fifth of the processor time of a request."""
        now = asyncio.get_running_loop().time()
        for connection in self._reading:
            if connection.deadline < now:
                connection.deadline = math.inf
                connection.reader.set_exception(TimeoutError())

    async def _listen(self) -> list[socket.socket]:
        """Return the sockets that accept connections: a name may have several addresses."""
        host, port = self.settings.host, self.settings.port
        loop = asyncio.get_running_loop()
        opened: list[socket.socket] = []
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, *_, (address, *_) in dict.fromkeys(found):
                each = socket.create_server((str(address), port), family=family, backlog=_BACKLOG)
                each.setblocking(False)
                opened.append(each)
                port = each.getsockname()[1]  # the first one chooses if the port is not given
        except OSError as error:
            for each in opened:
                each.close()
            raise InputError(
                "E0954",
                f"nothing can listen at {host}:{port}: {error.strerror or error}",
                "name another address: --host, --port",
            ) from error
        return opened

    async def _accept(self, listening: socket.socket, intake: Intake, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:  # it broke before it was taken, or no file can be opened now
                await asyncio.sleep(_POLL_SECONDS)
                continue
            origin = origin_of(str(address[0]))
            reason = self._clients.admit(origin)
            if reason:
                intake.lost(refused=1)
                if tls is not None or self._n_refusing >= _MOST_REFUSING:
                    connection.close()
                    continue
            task = asyncio.create_task(self._served(connection, origin, intake, tls, reason))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _served(
        self, connection: socket.socket, origin: str, intake: Intake, tls: ssl.SSLContext | None, refused: str
    ) -> None:
        """Serve a connection to its end; with `refused`, only answer why there is no room for it."""
        self._n_refusing += bool(refused)
        found: _Connection | None = None
        try:
            found = await _opened(connection, origin, tls)
            if refused:
                await self._answer(found.writer, _UNAVAILABLE, {"error": refused}, keeps_alive=False)
                await self._read_the_rest(found)
            else:
                self._reading.add(found)
                await self._connection(found, intake)
        except OSError:  # the client is gone; what it sent is written or was never taken
            if not refused:
                intake.lost(broken=1)
        finally:
            self._n_refusing -= bool(refused)
            if not refused:
                self._clients.leave(origin)
            task = asyncio.current_task()
            assert task is not None
            self._busy.discard(task)
            if found is None:
                connection.close()
            else:
                self._reading.discard(found)
                await _close(found.writer)

    async def _connection(self, client: _Connection, intake: Intake) -> None:
        task = asyncio.current_task()
        assert task is not None
        keeps_alive = True
        while keeps_alive and not self._is_stopping:
            more: dict[str, str] = {}
            head = None
            try:
                head = await self._head(client, intake)
                if head is None:
                    return
                self._busy.add(task)
                keeps_alive = head.keeps_alive
                status, told = await self._request(head, client, intake)
            except RequestError as error:
                status, told = error.status, {"error": error.reason}
                keeps_alive = keeps_alive and not error.closes
            if status in (_TOO_MANY, _UNAVAILABLE):
                more["Retry-After"] = str(self.settings.retry_seconds)
            if status == HTTPStatus.UNAUTHORIZED:
                more["WWW-Authenticate"] = "Bearer"
            keeps_alive = keeps_alive and not self._is_stopping
            is_head = head is not None and head.method == "HEAD"
            writer = client.writer
            await self._answer(writer, status, told, keeps_alive=keeps_alive, more=more, has_body=not is_head)
            if status == _ACCEPTED:
                intake.acknowledged(int(str(told["taken"])))
            self._busy.discard(task)
        await self._read_the_rest(client)

    async def _head(self, client: _Connection, intake: Intake) -> Head | None:
        """Return the head of the next request; None: the connection has ended, or nothing arrives."""
        loop = asyncio.get_running_loop()
        has_begun = False

        def begun() -> None:
            nonlocal has_begun
            has_begun = True
            client.deadline = loop.time() + self.settings.slow_seconds

        client.deadline = loop.time() + self.settings.head_seconds
        try:
            return await read_head(client.reader, begun)
        except TimeoutError:
            if has_begun:
                intake.lost(slow=1)
            return None
        finally:
            client.deadline = math.inf

    async def _read_the_rest(self, client: _Connection) -> None:
        """Read what the client still sends: if the socket closed before, the answer would be lost."""
        if client.writer.can_write_eof():
            client.writer.write_eof()
        n_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                while n_bytes < _REST_BYTES and (data := await client.reader.read(1 << 16)):
                    n_bytes += len(data)

    async def _request(
        self, head: Head, client: _Connection, intake: Intake
    ) -> tuple[int, dict[str, object]]:
        """Return status and body of the answer to a request."""
        if head.method in ("GET", "HEAD") and head.path == HEALTH_PATH:
            full = intake.is_full()
            if intake.error is not None or full:
                return 503, {"status": "no room" if full else "failed"}
            return 200, {"status": "ok"}
        if head.method != "POST":
            raise RequestError(405, "send messages by POST")
        length = self._announced(head)
        if head.headers.get("expect", "").lower() == "100-continue":
            client.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        held = self._clients.begin(client.origin)
        try:
            body = await self._body(client, length, held, intake)
            values = await _messages(body, head.headers.get("content-type", ""))
        finally:
            self._clients.end(held)
        if not values:
            raise RequestError(400, "no message in the body", closes=False)
        outcome = await self._offered(self._batch(values, head), intake)
        match outcome:
            case Outcome.WRITTEN:
                return _ACCEPTED, {"taken": len(values)}
            case Outcome.DROPPED:
                return _ACCEPTED, {"taken": 0, "dropped": len(values)}
            case Outcome.REFUSED:
                return _TOO_MANY, {"error": "there is no room; send it again later"}
            case Outcome.FAILED:
                return _UNAVAILABLE, {"error": "the spool ends; send it again later"}

    def _announced(self, head: Head) -> int | None:
        """Return the length of the body of a request that may bring messages; raises RequestError."""
        settings = self.settings
        length = body_length(head, settings.max_body_bytes)
        if settings.token and not self._is_allowed(head):
            raise RequestError(401, "the token is missing, or another one")
        if head.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestError(415, "the body must not be compressed")
        return length

    async def _body(self, client: _Connection, length: int | None, held: Body, intake: Intake) -> bytes:
        """Return the body of a request; raises RequestError. Arrived bytes count, not announced ones."""
        settings, clients = self.settings, self._clients
        if not clients.has_room(held, length or 0):
            raise RequestError(_TOO_MANY, "there is no room; send it again later")
        loop = asyncio.get_running_loop()
        enough = settings.min_rate * settings.slow_seconds
        end = loop.time() + settings.body_seconds
        n_bytes = 0

        def came(n: int) -> None:
            nonlocal n_bytes
            if not clients.has_room(held, n):
                raise RequestError(_TOO_MANY, "there is no room; send it again later")
            clients.hold(held, n)
            n_bytes += n
            if n_bytes >= enough:
                n_bytes = 0
                client.deadline = min(loop.time() + settings.slow_seconds, end)

        client.deadline = min(loop.time() + settings.slow_seconds, end)
        try:
            return await read_body(client.reader, length, settings.max_body_bytes, came)
        except TimeoutError:
            intake.lost(slow=1)
            raise RequestError(408, "the body comes too slowly") from None
        finally:
            client.deadline = math.inf

    def _is_allowed(self, head: Head) -> bool:
        kind, _, token = head.headers.get("authorization", "").partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return hmac.compare_digest(given, self.settings.token.encode()) and kind.lower() == "bearer"

    def _batch(self, values: list[bytes], head: Head) -> ReceivedBatch:
        n = len(values)
        columns: dict[str, list[str | None]] = {"topic": [head.path] * n}
        key = head.headers.get("idempotency-key")
        if key is not None:
            columns["id"] = [key] if n == 1 else [f"{key}/{number}" for number in range(n)]
        for name in self.settings.headers:
            columns[f"header.{name}"] = [head.headers.get(name)] * n
        return ReceivedBatch(values, np.full(n, self.now_us(), np.int64), columns)

    async def _offered(self, batch: ReceivedBatch, intake: Intake) -> Outcome:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def resolve(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        def told(outcome: Outcome) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any longer
                loop.call_soon_threadsafe(resolve, outcome)

        at_once = intake.offer(batch, told)
        return await answer if at_once is None else at_once

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        told: Mapping[str, object],
        *,
        keeps_alive: bool,
        more: Mapping[str, str] | None = None,
        has_body: bool = True,
    ) -> None:
        body = json.dumps(told).encode() + b"\n"
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
            *(f"{name}: {value}" for name, value in (more or {}).items()),
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (body if has_body else b""))
        async with asyncio.timeout(_ANSWER_SECONDS):
            await writer.drain()


def _allow_files(n: int) -> None:
    """Allow this process to open that many files, if the system permits: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _opened(connection: socket.socket, origin: str, tls: ssl.SSLContext | None) -> _Connection:
    """Return a connection that can be read and written; raises OSError if TLS cannot be established."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    seconds = None if tls is None else _HANDSHAKE_SECONDS
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=seconds
    )
    return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), origin)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # a TimeoutError is one
        async with asyncio.timeout(_ANSWER_SECONDS):
            await writer.wait_closed()


async def _messages(body: bytes, content_type: str) -> list[bytes]:
    """Return the messages of a body; raises RequestError."""
    if len(body) <= _MUCH_BYTES:
        return messages_of(body, content_type)
    return await asyncio.to_thread(messages_of, body, content_type)
