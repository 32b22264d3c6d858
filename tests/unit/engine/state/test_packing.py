"""Packed matrices: nothing is lost, and what says nothing takes no bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cep.arrays import I64
from cep.engine.state.packing import Packed, packed, packed_in

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
    matrix = np.array([[1_000_000, 10**15, 7], [1_000_255, 10**15 + 256, 7], [1_000_001, 10**15 + 1, 7]])
    assert packed(matrix).widths.tolist() == [1, 2, 0]
    assert packed(matrix).planes.tolist() == [0, 255, 1, 0, 0, 1, 0, 1, 0]


def test_rows_are_packed_in_the_order_asked_for_from_a_column_on() -> None:
    matrix = np.arange(12).reshape(4, 3)
    stored = packed(matrix, np.array([3, 0]), first=1)
    assert stored.matrix().tolist() == [[10, 11], [1, 2]]
    room = np.zeros((3, 4), np.int64)
    stored.fill(room, 2)
    assert room.tolist() == [[0, 0, 10, 11], [0, 0, 1, 2], [0, 0, 0, 0]]


def through_bytes(matrix: I64) -> Packed:
    """Return what is read of the bytes of a matrix, after a look whether it is the same."""
    found = packed_in(memoryview(b"".join(packed(matrix).parts())))
    assert (found.matrix() == matrix).all()
    return found


@pytest.mark.parametrize(
    ("step", "unit", "width"),
    [(1, 1, 4), (2, 1, 4), (1000, 1000, 3), (3_600_000_000, 3_600_000_000, 1)],  # a unit takes 8 bytes, too
)
def test_distances_are_in_units_of_what_they_have_in_common(step: int, unit: int, width: int) -> None:
    times = 1_714_521_600_000_000 + step * np.array([5, 3, 0, (3_599_999_999 // step) or 200])
    found = through_bytes(times[:, np.newaxis])
    assert found.units.tolist() == [unit]
    assert found.widths.tolist() == [width]


@pytest.mark.parametrize(
    ("values", "digits", "width"),
    [
        ([12.5, 1999.99, 0.01, 0.0], 2, 3),
        ([-12.25, 3.0, 0.1], 2, 2),
        ([52.520008, 13.404954, -33.868820], 6, 4),
        ([1e-9, 2.0, 0.5], 9, 4),
        ([0.1, 0.12, 0.123, 0.1234], 4, 1),
    ],
)
def test_decimal_fractions_become_whole_numbers(values: list[float], digits: int, width: int) -> None:
    found = through_bytes(np.array(values).view(np.int64)[:, np.newaxis])
    assert found.units.tolist() == [-digits]
    assert found.widths.tolist() == [width]


@pytest.mark.parametrize(
    "other",
    [-0.0, np.nan, np.inf, -np.inf, 0.1 + 0.2, 1e-10, 2.0**50 / 100, 1e300, 5e-324, np.nextafter(0.01, 1)],
)
def test_doubles_that_are_no_decimal_fractions_come_back_bit_by_bit(other: float) -> None:
    for values in ([0.01, 19.99, other], [other, 0.01, 19.99], [other, 3.0, other, 0.07]):
        cells = np.array(values).view(np.int64)[:, np.newaxis]
        assert (through_bytes(cells).units > 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_random_fractions_come_back_bit_by_bit(seed: int) -> None:
    draw = np.random.default_rng(seed)
    digits, n = int(draw.integers(0, 12)), int(draw.integers(1, 600))
    most = 10 ** int(draw.integers(1, 17))
    values = draw.integers(-most, most, n) / 10.0**digits
    odd = draw.random(n) < draw.choice([0, 0, 0.01])
    values[odd] = draw.choice([-0.0, np.nan, 1 / 3, 1e22], int(odd.sum()))
    times = draw.integers(0, 10**6, n) * draw.choice([1, 7, 1000, 10**9])
    through_bytes(np.stack([times, values.view(np.int64)], axis=1))


def test_what_has_no_units_is_written_as_before_and_read() -> None:
    matrix = np.array([[1, 10], [2, 300], [4, 77]])
    data = b"".join(bytes(part) for part in packed(matrix).parts())
    assert int.from_bytes(data[8:12], "little") == 2  # the number of columns alone
    assert (packed_in(memoryview(data)).matrix() == matrix).all()


def test_a_unit_of_too_many_digits_is_refused() -> None:
    stored = packed(np.array([[0.25], [19.99]]).view(np.int64))
    data = b"".join(replace(stored, units=np.array([-10])).parts())
    with pytest.raises(ValueError, match="digits"):
        packed_in(memoryview(data))
