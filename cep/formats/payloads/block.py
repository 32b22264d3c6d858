"""Values at any place of a block of bytes, for many messages at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.arrays import I64, U8, U64, Mask

_PADDING = 16
"""Bytes behind the last message that may be read along with its last ones."""

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_FOLDS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
"""How eight groups of seven bits become one number: masks of the lower and the upper groups, and how far the
upper ones move."""

_EXPONENT_BIAS = 1023


class Block:
    """The bytes of many messages, one after another.

    Places (`at`) are int64[n], from 0 up to the number of bytes.
    """

    def __init__(self, data: U8) -> None:
        self.data: U8 = np.zeros(len(data) + _PADDING, np.uint8)
        self.data[: len(data)] = data
        self._words = _view(self.data, "<u8")

    def numbers(self, at: I64, kind: str) -> npt.NDArray[Any]:
        """Return the number that starts at each place, of a numpy type of at most 8 bytes."""
        values: npt.NDArray[Any] = _view(self.data, kind)[at]
        return values

    def varints(self, at: I64) -> tuple[U64, I64 | int, Mask | None]:
        """Return integers of variable length: seven bits a byte, the lowest first.

        Returns
        -------
        uint64[n]
            The integers.
        int64[n] or int
            The number of bytes of each.
        bool[n] or None
            Which have more than 64 bits and are invalid; None: all are valid.
        """
        first = self.data[at]
        if first.max(initial=0) < 0x80:
            return first.astype(np.uint64), 1, None
        words: U64 = self._words[at]
        last = ~words & _HIGH_BITS  # the bytes that no other byte continues
        lowest = last & (~last + _ONE)
        # The bits of the number are those below the lowest bit of `last`; its exponent says where it is.
        exponents = (lowest.astype(np.float64).view(np.int64) >> 52) - _EXPONENT_BIAS
        n_bytes: I64 = (exponents + 1) >> 3
        values: U64 = words & (lowest - _ONE) & _LOW_BITS
        for lower, upper, by in _FOLDS:
            values = (values & lower) | ((values & upper) >> by)
        is_long = last == 0
        if not is_long.any():
            return values, n_bytes, None
        return values, n_bytes, self._long_ones(np.flatnonzero(is_long), at, values, n_bytes)

    def _long_ones(self, chosen: I64, at: I64, values: U64, n_bytes: I64) -> Mask:
        """Complete integers of nine and ten bytes, eight of which are in `values`; return longer ones."""
        ninth = self.data[at[chosen] + 8].astype(np.uint64)
        tenth = self.data[at[chosen] + 9].astype(np.uint64)
        goes_on = ninth >= 0x80
        high = (ninth & np.uint64(0x7F)) << np.uint64(56)
        high |= np.where(goes_on, (tenth & _ONE) << np.uint64(63), np.uint64(0))
        values[chosen] |= high
        n_bytes[chosen] = np.where(goes_on, 10, 9)
        too_long = np.zeros(len(at), bool)
        too_long[chosen] = goes_on & (tenth > 1)
        return too_long

    def bytes_column(self, starts: I64, lengths: I64, valid: Mask) -> pa.Array:
        """Return bytes of the block as a column of binary values.

        `starts` and `lengths`: int64[n]: where each value is; none starts before the end of the previous one.
        `valid`: bool[n]: the others are NULL.
        """
        n = len(starts)
        # The values and the gaps between them, as one column over the block, of which every second one is
        # taken.
        places = np.empty(2 * n + 1, np.int64)
        places[0:-1:2], places[1::2], places[-1] = starts, starts + lengths, len(self.data)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(self.data)]
        all_of_it = pa.Array.from_buffers(pa.large_binary(), 2 * n, buffers)
        chosen = pa.array(2 * np.arange(n, dtype=np.int64), mask=None if valid.all() else ~valid)
        return all_of_it.take(chosen).cast(pa.binary())


def signed(values: U64) -> I64:
    """Return numbers whose sign is the lowest bit ("zigzag")."""
    found: I64 = (values >> _ONE).view(np.int64) ^ -(values & _ONE).view(np.int64)
    return found


def _view(data: U8, kind: str) -> npt.NDArray[Any]:
    """Return the numbers that start at each byte of `data`, except the last bytes."""
    size = np.dtype(kind).itemsize
    return np.ndarray((len(data) - size + 1,), kind, data, strides=(1,))
