"""Lines that remain in one block of bytes until one of them is requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa

from cep.arrays import I64, U8

_PART = 1024
"""Lines that are made into objects together."""


class Lines(Sequence[bytes]):
    """Lines of a block, or messages one after another.

    Attributes
    ----------
    data
        uint8[n]: bytes, and a line feed as the last one.
    starts, ends
        int64[n_lines]: the place of each line in `data`, without its line end.
    """

    def __init__(self, data: U8, starts: I64, ends: I64) -> None:
        self.data = data
        self._places: tuple[I64, I64] | None = (starts, ends)
        self._block: bytes | None = None
        self._length: int | None = len(starts)

    @classmethod
    def of_block(cls, block: bytes) -> Lines:
        """Return the lines of a block. A line ends in a line feed, or a carriage return and a line feed.

        Bytes after the last line feed are a line.
        """
        if not block.endswith(b"\n"):
            block += b"\n" if block else b""
        lines = cls.__new__(cls)
        lines.data = np.frombuffer(block, np.uint8)
        # Callers that want objects need not find places first.
        lines._places, lines._block, lines._length = None, block, None
        return lines

    @property
    def starts(self) -> I64:
        """Where lines start."""
        return self._found()[0]

    @property
    def ends(self) -> I64:
        """Where lines end."""
        return self._found()[1]

    def _found(self) -> tuple[I64, I64]:
        if self._places is None:
            feeds = np.flatnonzero(self.data == ord("\n"))
            starts = np.zeros(len(feeds), np.int64)
            starts[1:] = feeds[:-1] + 1
            has_returns = self._block is not None and b"\r" in self._block
            self._places = starts, (_before_returns(self.data, starts, feeds) if has_returns else feeds)
        return self._places

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(np.count_nonzero(self.data == ord("\n")))
        return self._length

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

    def objects(self) -> list[bytes]:
        """Return all lines as objects."""
        if self._block is None:
            return list(self)
        lines = self._block.split(b"\n")[:-1]
        return [line.removesuffix(b"\r") for line in lines] if b"\r" in self._block else lines


def _before_returns(data: U8, starts: I64, ends: I64) -> I64:
    """Return where lines end, without the carriage return that is the last byte of some."""
    before: I64 = ends - ((ends > starts) & (data[np.maximum(ends - 1, 0)] == ord("\r")))
    return before


def without_returns(lines: Lines) -> Lines:
    """Return lines without the carriage return that is the last byte of some."""
    return Lines(lines.data, lines.starts, _before_returns(lines.data, lines.starts, lines.ends))


def lines_of_objects(lines: Sequence[bytes]) -> Lines:
    """Return lines, or messages, as one block."""
    data = np.frombuffer(b"\n".join([*lines, b""]) or b"\n", np.uint8)
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    starts = np.zeros(len(lines), np.int64)
    starts[1:] = ends[:-1] + 1
    return Lines(data, starts, ends)


def lines_of_column(values: pa.Array) -> Lines:
    """Return the messages in a column of binary values or strings; NULL is an empty message."""
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
    if values.null_count:  # a NULL may have hidden bytes
        ends = np.where(np.asarray(values.is_null()), starts, ends)
    return Lines(data, starts, ends)
