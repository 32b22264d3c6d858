"""Strings as codes, small pools and large ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cep.engine.keys.key_slots import make_index
from cep.engine.state.strings import StringPool


@pytest.mark.parametrize("n_distinct", [50, 20_000])
def test_codes_mean_the_same_string_in_every_batch(n_distinct: int) -> None:
    drawn = np.random.default_rng(5)
    pool = StringPool(None, make_index)
    cells = np.zeros(0, np.int64)
    expected: list[str] = []
    for batch in range(40):
        numbers = drawn.integers(0, n_distinct, 1_000)
        # Of different lengths: an index stores short strings otherwise than long ones.
        texts = [
            None if number % 7 == 0 else f"é{number}" + "x" * (number % 40) for number in numbers.tolist()
        ]
        codes = pool.encode(pa.array(texts, pa.string()))
        known = np.array([text is not None for text in texts])
        assert pool.decode(codes, known).to_pylist() == texts
        cells = np.concatenate([cells, codes[known]])
        expected += [text for text in texts if text is not None]
        assert pool.values.take(pa.array(cells)).to_pylist() == expected
        if batch % 10 == 9:
            holds = drawn.random(len(cells)) < 0.5
            pool.keep([(cells, holds)])
            cells = cells[holds]
            expected = [text for text, is_held in zip(expected, holds, strict=True) if is_held]
            assert len(pool) == len(set(expected))
    assert pool.values.take(pa.array(cells)).to_pylist() == expected


def test_a_pool_whose_strings_are_all_used_is_not_looked_through_in_each_batch() -> None:
    pool = StringPool()
    codes = pool.encode(pa.array([str(number) for number in range(5_000)]))
    assert pool.is_large
    pool.keep([(codes, np.ones(5_000, np.bool_))])
    assert len(pool) == 5_000
    assert not pool.is_large
