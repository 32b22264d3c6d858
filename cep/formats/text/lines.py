"""Lines that stay where they are: in one block of bytes, until somebody asks for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa

from cep.arrays import I64, U8

_PART = 1024
"""Lines that are made into objects together."""


class Lines(Sequence[bytes]):
    """Lines of a block, or messages that lie one behind the other.

    Parameters
    ----------
    data
        uint8[n]: bytes, and a line feed as the last one.
    starts, ends
        int64[n_lines]: the place of each line in `data`, without what ends it.
    """

    __slots__ = ("data", "ends", "starts")

    def __init__(self, data: U8, starts: I64, ends: I64) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Lines: ...
    def __getitem__(self, at: int | slice) -> bytes | Lines:
        if isinstance(at, slice):
            return Lines(self.data, self.starts[at], self.ends[at])
        return self.data[self.starts[at] : self.ends[at]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), _PART):
            part = slice(first, first + _PART)
            starts, ends = self.starts[part].tolist(), self.ends[part].tolist()
            block = self.data[starts[0] : max(ends[-1], starts[0])].tobytes()
            for start, end in zip(starts, ends, strict=True):
                yield block[start - starts[0] : end - starts[0]]


def lines_of_block(block: bytes) -> Lines:
    """Return the lines of a block. A line ends in a line feed, or a carriage return and a line feed.

    What is behind the last line feed is a line if there is anything.
    """
    if not block.endswith(b"\n"):
        block += b"\n" if block else b""
    data = np.frombuffer(block, np.uint8)
    feeds = np.flatnonzero(data == ord("\n"))
    starts = np.zeros(len(feeds), np.int64)
    starts[1:] = feeds[:-1] + 1
    if b"\r" in block:
        feeds = feeds - ((feeds > starts) & (data[feeds - 1] == ord("\r")))
    return Lines(data, starts, feeds)


def lines_of_objects(lines: Sequence[bytes]) -> Lines:
    """Return lines, or messages, as one block."""
    data = np.frombuffer(b"\n".join([*lines, b""]) or b"\n", np.uint8)
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    starts = np.zeros(len(lines), np.int64)
    starts[1:] = ends[:-1] + 1
    return Lines(data, starts, ends)


def lines_of_column(values: pa.Array) -> Lines:
    """Return the messages in a column of binary values or texts; NULL is an empty message."""
    if values.type != pa.large_binary():
        values = values.cast(pa.large_binary())
    if len(values) == 0:
        return lines_of_objects([])
    _, offsets, content = values.buffers()
    places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1].copy()
    data = np.empty(places[-1] - places[0] + 1, np.uint8)
    if len(data) > 1:
        data[:-1] = np.frombuffer(content, np.uint8)[places[0] : places[-1]]
    data[-1] = ord("\n")
    places -= places[0]
    starts, ends = places[:-1], places[1:]
    if values.null_count:  # such a value may have bytes that nobody sees
        ends = np.where(np.asarray(values.is_null()), starts, ends)
    return Lines(data, starts, ends)
