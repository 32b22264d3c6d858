"""Memory as the processor reads it: in cache lines, fetched ahead, and in words of 8 bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cep.arrays import I32, I64, U8
from cep.jit.compiled import instruction


def _no_prefetch(table: I32 | I64, row: int) -> None:
    """Do nothing: kernels that are not compiled wait anyway."""


prefetch: Callable[[I32 | I64, int], None] = instruction(_no_prefetch, "cep.jit.instructions:prefetch")
"""``prefetch(table, row)`` lets the processor fetch the beginning of a row of `table`, and does not wait."""


def _word_at(data: U8, at: int) -> np.uint64:
    return np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little"))


read_word: Callable[[U8, int], np.uint64] = instruction(_word_at, "cep.jit.instructions:read_word")
"""``read_word(data, at)`` returns 8 bytes as one number, the first one lowest. All of them must be there."""

_LINE = 64
"""Bytes of a line of the processor's cache."""


def in_lines(n_rows: int, width: int) -> I64:
    """Return uninitialized (n_rows, width) int64, aligned to cache lines: a row of 8 or 4 is within one."""
    n = n_rows * width
    room = np.empty(n + _LINE // 8, np.int64)
    first = -room.ctypes.data % _LINE // 8
    return room[first : first + n].reshape(n_rows, width)
