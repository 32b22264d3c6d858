"""Takes messages by HTTP: a request is answered with 202 when its messages are on disk."""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import numpy as np

from cep.errors import InputError
from cep.spool.intake import Intake, Outcome
from cep.spool.receivers.http_messages import (
    MAX_HEAD_BYTES,
    Head,
    RequestError,
    body_length,
    messages_of,
    read_body,
    read_head,
)
from cep.spool.segments import Batch

HEALTH_PATH = "health"

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
_STOP_SECONDS = 10.0
_REST_SECONDS, _REST_BYTES = 1.0, 8 << 20
_ACCEPTED, _TOO_MANY, _UNAVAILABLE = 202, 429, 503


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How messages are taken by HTTP.

    Parameters
    ----------
    token
        Every request that brings messages must have it: ``Authorization: Bearer TOKEN``; "": none.
    max_body_bytes
        Of one request.
    max_reading_bytes
        Of all bodies that are being read.
    headers
        Headers that are kept, in small letters; each becomes a column ``header.NAME``.
    retry_seconds
        What a sender is told to wait when there is no room.
    head_seconds
        From the first byte of a request, or from the last answer on, until the head must be there.
    body_seconds
        From then on until the body must be there.
    certificate, private_key
        Files for TLS; "": no TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str = field(default="", repr=False)
    max_body_bytes: int = 16 << 20
    max_connections: int = 1000
    max_reading_bytes: int = 256 << 20
    headers: tuple[str, ...] = ()
    retry_seconds: int = 1
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    certificate: str = ""
    private_key: str = ""


class HttpReceiver:
    """See `Receiver`.

    Parameters
    ----------
    now_us
        The wall clock: microseconds since 1970.
    ready
        Gets the port once requests can come.
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
        self._open: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._reading_bytes = 0

    def check(self) -> None:
        """Read the certificate; raises InputError."""
        self._tls()

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Answer requests until `stopped` is set."""
        asyncio.run(self._serve(intake, stopped))

    def _tls(self) -> ssl.SSLContext | None:
        if not self.settings.certificate:
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
        settings = self.settings

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            try:
                await self._connection(reader, writer, intake)
            except (ConnectionError, ssl.SSLError, TimeoutError):
                pass  # the client is gone; what it sent is written or was never taken
            finally:
                self._open.discard(task)
                self._busy.discard(task)
                writer.close()
                with suppress(ConnectionError, ssl.SSLError, TimeoutError):
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        await writer.wait_closed()

        try:
            server = await asyncio.start_server(
                connected, settings.host, settings.port, limit=MAX_HEAD_BYTES, ssl=self._tls(), backlog=1024
            )
        except OSError as error:
            raise InputError(
                "E0954",
                f"nothing can listen at {settings.host}:{settings.port}: {error.strerror or error}",
                "name another address: --host, --port",
            ) from error
        self.ready(server.sockets[0].getsockname()[1])
        while not stopped.is_set():
            await asyncio.sleep(_POLL_SECONDS)
        self._is_stopping = True
        server.close()
        for task in self._open - self._busy:  # they wait for a request that nobody will answer
            task.cancel()
        if self._open:
            await asyncio.wait(set(self._open), timeout=_STOP_SECONDS)
        for task in set(self._open):
            task.cancel()

    async def _connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, intake: Intake
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) > self.settings.max_connections:
            await self._answer(writer, 503, {"error": "too many connections"}, keeps_alive=False)
            return
        keeps_alive = True
        while keeps_alive and not self._is_stopping:
            more: dict[str, str] = {}
            try:
                async with asyncio.timeout(self.settings.head_seconds):
                    head = await read_head(reader)
                if head is None:
                    return
                self._busy.add(task)
                keeps_alive = head.keeps_alive
                status, told = await self._request(head, reader, writer, intake)
            except RequestError as error:
                status, told = error.status, {"error": error.reason}
                keeps_alive = keeps_alive and not error.closes
            except TimeoutError:
                if task not in self._busy:
                    return  # an idle connection, or a head that drips
                status, told, keeps_alive = 408, {"error": "the request takes too long"}, False
            if status in (_TOO_MANY, _UNAVAILABLE):
                more["Retry-After"] = str(self.settings.retry_seconds)
            if status == HTTPStatus.UNAUTHORIZED:
                more["WWW-Authenticate"] = "Bearer"
            keeps_alive = keeps_alive and not self._is_stopping
            await self._answer(writer, status, told, keeps_alive=keeps_alive, more=more)
            if status == _ACCEPTED:
                intake.acknowledged(int(str(told["taken"])))
            self._busy.discard(task)
        await self._read_the_rest(reader, writer)

    async def _read_the_rest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what the client still sends: if it came to a closed door, the client would lose the answer."""
        if writer.can_write_eof():
            writer.write_eof()
        n_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                while n_bytes < _REST_BYTES and (data := await reader.read(1 << 16)):
                    n_bytes += len(data)

    async def _request(
        self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, intake: Intake
    ) -> tuple[int, dict[str, object]]:
        """Return status and body of the answer to a request."""
        if head.method in ("GET", "HEAD") and head.path == HEALTH_PATH:
            full = intake.is_full()
            if intake.error is not None or full:
                return 503, {"status": "no room" if full else "failed"}
            return 200, {"status": "ok"}
        if head.method != "POST":
            raise RequestError(405, "send messages by POST")
        body = await self._body(head, reader, writer)
        values = messages_of(body, head.headers.get("content-type", ""))
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

    async def _body(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Return the body of a request that may bring messages; raises RequestError."""
        settings = self.settings
        length = body_length(head, settings.max_body_bytes)
        if settings.token and not self._is_allowed(head):
            raise RequestError(401, "the token is missing, or another one")
        if head.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestError(415, "the body must not be compressed")
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        n_bytes = settings.max_body_bytes if length is None else length
        if self._reading_bytes and self._reading_bytes + n_bytes > settings.max_reading_bytes:
            raise RequestError(429, "there is no room; send it again later")
        self._reading_bytes += n_bytes
        try:
            async with asyncio.timeout(settings.body_seconds):
                return await read_body(reader, length, settings.max_body_bytes)
        finally:
            self._reading_bytes -= n_bytes

    def _is_allowed(self, head: Head) -> bool:
        kind, _, token = head.headers.get("authorization", "").partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return hmac.compare_digest(given, self.settings.token.encode()) and kind.lower() == "bearer"

    def _batch(self, values: list[bytes], head: Head) -> Batch:
        n = len(values)
        columns: dict[str, list[str | None]] = {"topic": [head.path] * n}
        key = head.headers.get("idempotency-key")
        if key is not None:
            columns["id"] = [key] if n == 1 else [f"{key}/{number}" for number in range(n)]
        for name in self.settings.headers:
            columns[f"header.{name}"] = [head.headers.get(name)] * n
        return Batch(values, np.full(n, self.now_us(), np.int64), columns)

    async def _offered(self, batch: Batch, intake: Intake) -> Outcome:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def resolve(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        def told(outcome: Outcome) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
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
    ) -> None:
        body = json.dumps(told).encode() + b"\n"
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
            *(f"{name}: {value}" for name, value in (more or {}).items()),
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(_ANSWER_SECONDS):
            await writer.drain()
