"""HTTP/1.1 requests, read from a byte stream within limits, and the messages in their bodies."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_HEAD_BYTES = 32 << 10

MAX_MESSAGES = 500_000
"""Messages in one body: each takes some hundred bytes of memory, however short it is."""

_PIECE_BYTES = 64 << 10

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The method of a request, or the name of a header."""

_TARGET = re.compile(r"[\x21-\x7e]+")
_SERVER = re.compile(r"^https?://[^/?]*", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;.*)?")
_SPACE = re.compile(r"[ \t\n\r]*")

_LINES = frozenset(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
)
_JSON = frozenset(("", "application/json", "application/x-www-form-urlencoded"))
"""curl sends the last one when nobody says what it sends."""


class RequestError(Exception):
    """A request that is refused.

    `closes`: whether the connection must be closed, because the start of the next request is unknown.
    """

    def __init__(self, status: int, reason: str, *, closes: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.closes = closes


@dataclass(frozen=True, slots=True)
class Head:
    """The start of a request. Names of headers are in lower case; several of one name are joined."""

    method: str
    target: str
    keeps_alive: bool
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path without its first slash, and without a query; the target may be a whole URL."""
        return _SERVER.sub("", self.target).partition("?")[0].removeprefix("/")


def head_of(data: bytes) -> Head:
    """Return the head of a request; raises RequestError."""
    text = data.decode("latin-1")
    line, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise RequestError(400, "not a request of HTTP")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise RequestError(505, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for each in lines:
        name, colon, value = each.partition(":")
        if not colon or not TOKEN.fullmatch(name) or "\r" in value or "\n" in value or "\0" in value:
            raise RequestError(400, "a header cannot be read")
        name, value = name.lower(), value.strip(" \t")
        if name in ("content-length", "transfer-encoding") and name in headers:
            raise RequestError(400, f"{name} occurs twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    options = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    keeps_alive = "close" not in options and (version == "HTTP/1.1" or "keep-alive" in options)
    return Head(method, target, keeps_alive, headers)


async def read_head(reader: asyncio.StreamReader, begun: Callable[[], None]) -> Head | None:
    """Return the head of the next request, or None at the end of the connection; raises RequestError.

    `begun` is called when its first byte has arrived.
    """
    try:
        while (first := await reader.read(1)) in (b"\r", b"\n"):  # some clients send an extra empty line
            pass
        if not first:
            return None
        begun()
        data = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise RequestError(400, "the request ends in its head") from error
    except asyncio.LimitOverrunError as error:
        raise RequestError(431, f"the head of a request has {MAX_HEAD_BYTES:,} bytes at most") from error
    return head_of(data)


def body_length(head: Head, most: int) -> int | None:
    """Return the length of the body of a request, or None if it comes in chunks; raises RequestError."""
    length, transfer = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if transfer is not None:
        if length is not None:
            raise RequestError(400, "content-length and transfer-encoding together")
        if transfer.lower() != "chunked":
            raise RequestError(501, f"transfer-encoding {transfer} is not known")
        return None
    if length is None:
        raise RequestError(411, "content-length is missing")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise RequestError(400, "content-length is not a number")
    if int(length) > most:
        raise RequestError(413, f"a body has {most:,} bytes at most")
    return int(length)


class _BodyReader:
    """Reads a body in pieces; see `read_body`."""

    def __init__(self, reader: asyncio.StreamReader, most: int, came: Callable[[int], None]) -> None:
        self.body = bytearray()
        self._reader = reader
        self._most = most
        self._came = came

    async def read(self, n_bytes: int) -> None:
        while n_bytes:
            part = await self._reader.read(min(n_bytes, _PIECE_BYTES))
            if not part:
                raise RequestError(400, "the body is shorter than it says")
            self._came(len(part))
            self.body += part
            n_bytes -= len(part)

    async def read_chunks(self) -> None:
        reader = self._reader
        while True:
            found = _CHUNK_SIZE.fullmatch((await reader.readuntil(b"\r\n"))[:-2])
            if not found:
                raise RequestError(400, "the size of a chunk cannot be read")
            size = int(found[1], 16)
            if len(self.body) + size > self._most:
                raise RequestError(413, f"a body has {self._most:,} bytes at most")
            if size == 0:
                break
            await self.read(size)
            if await reader.readexactly(2) != b"\r\n":
                raise RequestError(400, "a chunk does not end where it says")
        n_trailers = 0
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            n_trailers += len(line)
            if n_trailers > MAX_HEAD_BYTES:
                raise RequestError(431, "too many trailers")


async def read_body(
    reader: asyncio.StreamReader, length: int | None, most: int, came: Callable[[int], None]
) -> bytes:
    """Return the body of a request; `length` is None if it comes in chunks. Raises RequestError.

    `most`: the maximum number of bytes of a body. `came`: is called with the size in bytes of each piece that
    arrives. It may raise RequestError.
    """
    found = _BodyReader(reader, most, came)
    try:
        await (found.read_chunks() if length is None else found.read(length))
    except asyncio.IncompleteReadError as error:
        raise RequestError(400, "the body is shorter than it says") from error
    except asyncio.LimitOverrunError as error:
        raise RequestError(400, "a chunk cannot be read") from error
    return bytes(found.body)


def messages_of(body: bytes, content_type: str) -> list[bytes]:
    """Return the messages in a body; raises RequestError for too many messages or an unreadable array.

    It is not checked here whether a message is an event: if it is not, a pipeline turns it into a dead
    letter.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _LINES or kind.startswith("text/"):
        if body.count(b"\n") > MAX_MESSAGES:
            raise _too_many()
        return [line.removesuffix(b"\r") for line in body.split(b"\n") if line.strip()]
    if kind in _JSON or kind.endswith("+json"):
        text = body.removeprefix(codecs.BOM_UTF8)
        if text.lstrip(b" \t\r\n")[:1] == b"[":
            return _elements(text)
    return [body] if body.strip() else []


def _elements(body: bytes) -> list[bytes]:
    """Return the elements of a JSON array, as they are written."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, "the body is not UTF-8", closes=False) from error
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)  # a number may have any number of digits
    found: list[bytes] = []
    at = _after_space(text, text.index("[") + 1)
    if text[at : at + 1] == "]":
        at += 1
    else:
        while True:
            try:
                _, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                raise RequestError(
                    400, f"the body is not a JSON array: {_reason(error)}", closes=False
                ) from error
            found.append(text[at:end].encode())
            if len(found) > MAX_MESSAGES:
                raise _too_many()
            at = _after_space(text, end) + 1
            sign = text[at - 1 : at]
            if sign == "]":
                break
            if sign != ",":
                raise RequestError(400, f"the body is not a JSON array: no comma at {at - 1}", closes=False)
            at = _after_space(text, at)
    if _after_space(text, at) != len(text):
        raise RequestError(400, f"the body is not a JSON array: it continues at {at}", closes=False)
    return found


def _too_many() -> RequestError:
    return RequestError(413, f"a body has {MAX_MESSAGES:,} messages at most", closes=False)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
