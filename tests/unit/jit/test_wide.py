"""Numbers of several words, compiled, beside Python's whole numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import numba
import pytest

from cep.jit import compiled, wide

compiled.compiler()  # with it numba knows what an instruction is

_COMPILED: dict[Any, Any] = {
    wide._plain_add_square: numba.njit(lambda a, b, c, d, e, f: wide.add_square(a, b, c, d, e, f)),
    wide._plain_less: numba.njit(lambda a, b, c, d, e, f: wide.less(a, b, c, d, e, f)),
    wide._plain_spread: numba.njit(lambda a, b, c, d, e, f, g: wide.spread(a, b, c, d, e, f, g)),
    wide._plain_spread_of_chunks: numba.njit(lambda n, a, b: wide.spread_of_chunks(n, a, b)),
    wide._plain_leading_zeros: numba.njit(lambda a: wide.leading_zeros(a)),
}


def word(draw: Random) -> int:
    """Return a word of 64 bits: often one at an end."""
    return draw.choice((0, 1, -1, 2**63 - 1, -(2**63), draw.randint(-(2**63), 2**63 - 1)))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_compiled_gives_the_words_of_whole_numbers(seed: int) -> None:
    draw = Random(seed)
    for _ in range(20):
        low_bits = draw.randint(30, 52)
        halves = (draw.randint(-(2**52), 2**52), draw.randint(-(2**52), 2**52), low_bits)
        three = tuple(word(draw) for _ in range(3))
        cases: dict[Any, tuple[Any, ...]] = {
            wide._plain_add_square: (*halves, *three),
            wide._plain_less: (*three, *(word(draw) for _ in range(3))),
            wide._plain_spread: (draw.randint(1, 2**24), *halves, *three),
            wide._plain_spread_of_chunks: (
                draw.randint(1, 2**32),
                tuple(word(draw) for _ in range(4)),
                (*(word(draw) for _ in range(7)), draw.randint(2**33, 2**63 - 1)),  # squares are not negative
            ),
            wide._plain_leading_zeros: (word(draw),),
        }
        for plain, given in cases.items():
            assert _COMPILED[plain](*given) == plain(*given), (plain, given)
