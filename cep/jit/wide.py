"""Whole numbers of up to 384 bits in kernels, for exact sums of squares. They are passed as words of 64 bits.

A number x has two halves, ``x = upper * 2**low_bits + lower``, or chunks, the lowest first. Each chunk is
worth 2**32 times the one before. Chunks may be negative and have more than 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cep.jit.compiled import instruction

_MASK = (1 << 64) - 1


def _signed(number: int, n: int) -> tuple[int, ...]:
    words = [number >> 64 * word & _MASK for word in range(n)]
    return tuple(word - (word >> 63 << 64) for word in words)


def _joined(*words: int) -> int:
    return sum((int(word) & _MASK) << 64 * number for number, word in enumerate(words))


def _plain_add_square(upper: int, lower: int, low_bits: int, *sums: int) -> tuple[int, ...]:
    return _signed(((int(upper) << int(low_bits)) + int(lower)) ** 2 + _joined(*sums), 3)


def _plain_less(*words: int) -> tuple[int, ...]:
    return _signed(_joined(*words[:3]) - _joined(*words[3:]), 3)


def _plain_spread(n: int, upper: int, lower: int, low_bits: int, *squares: int) -> tuple[int, ...]:
    number = (int(upper) << int(low_bits)) + int(lower)
    return _signed(int(n) * _joined(*squares) - number**2, 4)


def _plain_spread_of_chunks(n: int, sums: Sequence[int], squares: Sequence[int]) -> tuple[int, ...]:
    total, square = (
        sum(int(chunk) << 32 * number for number, chunk in enumerate(part)) for part in (sums, squares)
    )
    return _signed(int(n) * square - total**2, 6)


def _plain_leading_zeros(word: int) -> int:
    return 64 - (int(word) & _MASK).bit_length()


add_square: Any = instruction(_plain_add_square, "cep.jit.instructions:add_square")
"""``add_square(upper, lower, low_bits, s0, s1, s2)``: the three words of s and the square of x."""

less: Any = instruction(_plain_less, "cep.jit.instructions:less")
"""``less(a0, a1, a2, b0, b1, b2)``: the three words of a - b."""

spread: Any = instruction(_plain_spread, "cep.jit.instructions:spread")
"""``spread(n, upper, lower, low_bits, s0, s1, s2)``: the four words of n times s less the square of x."""

spread_of_chunks: Any = instruction(_plain_spread_of_chunks, "cep.jit.instructions:spread_of_chunks")
"""``spread_of_chunks(n, x, s)``: the six words of n times s less the square of x. Four chunks, and eight.

The sum s of squares is not negative.
"""

leading_zeros: Any = instruction(_plain_leading_zeros, "cep.jit.instructions:leading_zeros")
"""``leading_zeros(word)``: how many of the uppermost bits of a word are 0."""
