"""Packed matrices: nothing is lost, and what says nothing takes no bytes."""

from __future__ import annotations

import numpy as np
import pytest

from cep.engine.state.packing import packed, packed_in

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
def test_every_width_comes_back(n: int) -> None:
    rng = np.random.default_rng(n)
    columns = [rng.integers(-(1 << bits), 1 << bits, n) - 7 for bits in range(0, 63, 3)]
    matrix = np.stack([*columns, rng.integers(LOWEST, HIGHEST, n)], axis=1)
    stored = packed(matrix)
    assert (stored.matrix() == matrix).all()
    assert (packed_in(memoryview(b"".join(stored.parts()))).matrix() == matrix).all()


def test_the_largest_distance_comes_back() -> None:
    matrix = np.array([[LOWEST, 5], [HIGHEST, 5], [0, 5]])
    stored = packed(matrix)
    assert (stored.matrix() == matrix).all()
    assert stored.widths.tolist() == [8, 0]


def test_a_column_takes_as_many_bytes_as_its_distances_need() -> None:
    matrix = np.array([[1_000_000, 10**15, 7], [1_000_255, 10**15 + 256, 7]])
    assert packed(matrix).widths.tolist() == [1, 2, 0]
    assert packed(matrix).planes.tolist() == [0, 255, 0, 0, 0, 1]


def test_rows_are_packed_in_the_order_asked_for_from_a_column_on() -> None:
    matrix = np.arange(12).reshape(4, 3)
    stored = packed(matrix, np.array([3, 0]), first=1)
    assert stored.matrix().tolist() == [[10, 11], [1, 2]]
    room = np.zeros((3, 4), np.int64)
    stored.fill(room, 2)
    assert room.tolist() == [[0, 0, 10, 11], [0, 0, 1, 2], [0, 0, 0, 0]]
