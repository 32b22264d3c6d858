"""Messages as bytes of a segment, and back.

A segment is a file: a header, then blocks. A block contains what was written together: messages, the time of
receipt of each, and columns of text.

    segment   "CEPSPOOL" | version u32 | 0 u32 | number of its first message u64 | block ...
    block     "BLCK" | crc u32 | bytes of the body u32 | messages u32 | number of its first message u64 | body
    body      time of receipt i64[n] | bytes of each value u32[n] | values
              | columns u32 | for each: bytes of its name u32 | name | bytes of each text i32[n] | texts

A text of -1 bytes is NULL. All numbers are little-endian. The checksum (CRC-32) starts with the number of the
segment and covers the rest of the block, so a block from another file is not valid in this one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cep.errors import StateError

VERSION = 1

MAX_BLOCK_MESSAGES = 20_000
MAX_BLOCK_BYTES = 8 << 20
"""Values of one block, about; a single message may be larger."""

MAX_MESSAGE_BYTES = 256 << 20
"""Bytes of one message, with its columns: lengths are numbers of 32 bits."""

_HEADER = struct.Struct("<8sIIQ")
_BLOCK = struct.Struct("<4sIIIQ")
_MAGIC, _BLOCK_MAGIC = b"CEPSPOOL", b"BLCK"
_CHECKED_FROM = 8
_COUNT = struct.Struct("<I")
_ONE = struct.Struct("<qI")

HEADER_BYTES = _HEADER.size
BLOCK_HEADER_BYTES = _BLOCK.size

Texts = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """Messages that were taken together, in order.

    `received_us`: int64[n]: when each was received, microseconds since 1970. `columns`: what is known about
    each message apart from its value, such as ``topic``: a string or None.
    """

    values: Sequence[bytes]
    received_us: npt.NDArray[np.int64]
    columns: Mapping[str, Texts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_bytes(self) -> int:
        """About how many bytes it needs on disk."""
        texts = sum(len(text) for texts in self.columns.values() for text in texts if text)
        return sum(map(len, self.values)) + texts + (12 + 4 * len(self.columns)) * len(self) + 64


class Block(NamedTuple):
    """The position of a block in its segment, and the messages that it contains."""

    start: int
    end: int
    first: int
    n: int


def joined(batches: Sequence[ReceivedBatch]) -> ReceivedBatch:
    """Return several batches as one."""
    if len(batches) == 1:
        return batches[0]
    names = dict.fromkeys(name for batch in batches for name in batch.columns)
    columns: dict[str, Texts] = {}
    for name in names:
        texts: list[str | None] = []
        for batch in batches:
            texts += batch.columns.get(name) or [None] * len(batch)
        columns[name] = texts
    values = [value for batch in batches for value in batch.values]
    return ReceivedBatch(values, np.concatenate([batch.received_us for batch in batches]), columns)


def cut(batch: ReceivedBatch) -> Iterator[ReceivedBatch]:
    """Yield a batch in parts that each fit a block."""
    start, n_bytes = 0, 0
    for at, value in enumerate(batch.values):
        if at > start and (at - start >= MAX_BLOCK_MESSAGES or n_bytes + len(value) > MAX_BLOCK_BYTES):
            yield part_of(batch, start, at)
            start, n_bytes = at, 0
        n_bytes += len(value)
    yield batch if start == 0 else part_of(batch, start, len(batch))


def part_of(batch: ReceivedBatch, start: int, stop: int) -> ReceivedBatch:
    """Return the messages from `start` up to `stop`."""
    columns = {name: texts[start:stop] for name, texts in batch.columns.items()}
    return ReceivedBatch(batch.values[start:stop], batch.received_us[start:stop], columns)


# ------------------------------------------------------------ writing


def segment_header(first: int) -> bytes:
    """Return the first bytes of the segment whose first message has the number `first`."""
    return _HEADER.pack(_MAGIC, VERSION, 0, first)


def block_of(batch: ReceivedBatch, segment: int, first: int) -> bytes:
    """Return the block of some messages, the first of which has the number `first`."""
    n = len(batch)
    parts: list[Any] = [
        np.ascontiguousarray(batch.received_us, "<i8").tobytes(),
        np.fromiter(map(len, batch.values), "<u4", n).tobytes(),
        *batch.values,
        _COUNT.pack(len(batch.columns)),
    ]
    for name, texts in batch.columns.items():
        encoded = [None if text is None else _encoded(text) for text in texts]
        lengths = (-1 if text is None else len(text) for text in encoded)
        name_bytes = _encoded(name)
        parts += [_COUNT.pack(len(name_bytes)), name_bytes, np.fromiter(lengths, "<i4", n).tobytes()]
        parts += [text for text in encoded if text]
    body = b"".join(parts)
    head = _BLOCK.pack(_BLOCK_MAGIC, 0, len(body), n, first)[_CHECKED_FROM:]
    crc = zlib.crc32(body, zlib.crc32(head, _seed(segment)))
    return _BLOCK_MAGIC + _COUNT.pack(crc) + head + body


def _encoded(text: str) -> bytes:
    """Return a text as bytes. Bytes that are not UTF-8, which a receiver has escaped, stay as they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a character
        return text.encode(errors="replace")


def _seed(segment: int) -> int:
    return zlib.crc32(segment.to_bytes(8, "little"))


# ------------------------------------------------------------ reading


def check_header(data: Any, segment: int, name: str) -> None:
    """Raise StateError unless `data` starts like the segment whose first message is `segment`."""
    if len(data) >= HEADER_BYTES:
        magic, version, _, first = _HEADER.unpack_from(data)
        if magic == _MAGIC and version != VERSION:
            raise StateError(
                "E0952",
                f"`{name}` is a segment of version {version}; this spark-cep knows version {VERSION}",
                "read it with the spark-cep that wrote it",
            )
        if magic == _MAGIC and first == segment:
            return
    raise StateError("E0952", f"`{name}` is not a segment of a spool", "remove it, or restore it from a copy")


def blocks(data: Any, start: int, end: int) -> Iterator[Block]:
    """Yield the blocks between two positions of a segment, as their headers say; stops where no block starts.

    Checksums are not checked.
    """
    while start + BLOCK_HEADER_BYTES <= end:
        magic, _, n_bytes, n, first = _BLOCK.unpack_from(data, start)
        stop = start + BLOCK_HEADER_BYTES + n_bytes
        if magic != _BLOCK_MAGIC or stop > end:
            return
        yield Block(start, stop, first, n)
        start = stop


def is_sound(data: Any, block: Block, segment: int) -> bool:
    """Return whether the checksum of a block is correct."""
    (crc,) = _COUNT.unpack_from(data, block.start + 4)
    view = memoryview(data)[block.start + _CHECKED_FROM : block.end]
    found = zlib.crc32(view, _seed(segment))
    view.release()
    return bool(crc == found)


def sound_end(data: Any, segment: int, n_bytes: int) -> tuple[int, int]:
    """Return where the sound blocks at the start of a segment end, and the number of the next message."""
    end, following = HEADER_BYTES, segment
    for block in blocks(data, HEADER_BYTES, n_bytes):
        if block.first != following or not is_sound(data, block, segment):
            break
        end, following = block.end, block.first + block.n
    return end, following


def batch_of(data: Any, block: Block, names: Sequence[str] | None = None) -> ReceivedBatch:
    """Return the messages of a block, with its columns that are in `names`; None: with all columns."""
    n, at = block.n, block.start + BLOCK_HEADER_BYTES
    if n == 1:  # a sender that waits for each answer writes many such blocks
        at_us, length = _ONE.unpack_from(data, at)
        end = at + _ONE.size + length
        columns = {} if names == [] else _columns(data, n, end, names)
        return ReceivedBatch([data[end - length : end]], np.array((at_us,), np.int64), columns)
    received_us = np.frombuffer(data, "<i8", n, at).astype(np.int64)
    at += 8 * n
    lengths = np.frombuffer(data, "<u4", n, at)
    at += 4 * n
    ends = [at, *(at + np.cumsum(lengths, dtype=np.int64)).tolist()]
    values = [data[begin:stop] for begin, stop in pairwise(ends)]
    return ReceivedBatch(values, received_us, {} if names == [] else _columns(data, n, ends[-1], names))


def _columns(data: Any, n: int, at: int, names: Sequence[str] | None) -> dict[str, Texts]:
    found: dict[str, Texts] = {}
    (n_columns,) = _COUNT.unpack_from(data, at)
    at += 4
    for _ in range(n_columns):
        (n_name,) = _COUNT.unpack_from(data, at)
        name = bytes(data[at + 4 : at + 4 + n_name]).decode(errors="surrogateescape")
        at += 4 + n_name
        lengths = np.frombuffer(data, "<i4", n, at)
        at += 4 * n
        ends = [at, *(at + np.cumsum(np.maximum(lengths, 0), dtype=np.int64)).tolist()]
        if names is None or name in names:
            is_null = (lengths < 0).tolist()
            texts = (
                bytes(data[begin:stop]).decode(errors="surrogateescape") for begin, stop in pairwise(ends)
            )
            found[name] = [None if null else text for null, text in zip(is_null, texts, strict=True)]
        at = ends[-1]
    return found
