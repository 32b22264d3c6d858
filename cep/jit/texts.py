"""Texts in words of 8 bytes."""

from __future__ import annotations

import numpy as np

from cep.arrays import U8
from cep.jit.compiled import inlined
from cep.jit.memory import read_word


@inlined
def text_word(data: U8, start: int, at: int, end: int) -> np.uint64:
    """Return the 8 bytes of a text that start at `at`, the first one lowest; 0 after its end.

    Nothing outside `data` is read, and the word contains nothing from other texts.

    Parameters
    ----------
    data : (bytes,) uint8
        Texts.
    start, end : int
        Where the text starts, and where it ends.
    at : int
        The place of one of its bytes, less than `end`.
    """
    n = end - at
    if n >= 8:
        return read_word(data, at)
    n_bits = np.uint64(8 * n)
    if end - start >= 8:  # the last bytes of the text's last 8 bytes
        return read_word(data, end - 8) >> (np.uint64(64) - n_bits)
    if start + 8 <= data.shape[0]:
        return read_word(data, at) & ((np.uint64(1) << n_bits) - np.uint64(1))
    word = np.uint64(0)
    for byte in range(n):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return word
