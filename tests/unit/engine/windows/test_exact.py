"""Sums stay exact, however long a stream is and whatever was in the window before."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cep.arrays import F64, I64, Mask
from cep.engine.state.packing import packed
from cep.engine.windows.kernels.sums import NUMBER, OF_SQUARES, OF_TOTALS
from cep.engine.windows.rings import StoredRing
from cep.engine.windows.windows import Windows
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.unit.engine.windows.test_windows import order_of

SUMS = (Function.COUNT, Function.SUM, Function.AVG, Function.VARIANCE, Function.STDDEV)


def columns(window: Window, kind: Type, *functions: Function) -> list[WindowColumn]:
    return [
        WindowColumn(
            name=function.name,
            type=kind if function is Function.SUM else Type.DOUBLE,
            function=function,
            argument="x",
            argument_type=kind,
            window=window,
            parameter=1,
        )
        for function in functions
    ]


def push(
    windows: Windows, values: Sequence[float] | Sequence[int] | I64 | F64, first_us: int = 0
) -> dict[str, I64]:
    """Return the columns of events of one key, a microsecond apart, by bits; NULL is -1."""
    cells = np.asarray(values)
    cells = cells.view(np.int64) if cells.dtype == np.float64 else cells.astype(np.int64)
    n = len(cells)
    order, _ = order_of([0] * n, range(first_us, first_us + n), range(n))
    found = windows.compute(
        order, np.zeros(1, np.int32), 1, n, lambda name: (cells, None), lambda place: np.ones(n, np.bool_)
    )
    return {
        name: values if known is None else np.where(known, values, -1)
        for name, (values, known) in found.items()
    }


def test_what_has_left_the_window_leaves_no_trace() -> None:
    window = Window(Frame.EVENTS, 3)
    mixed = Windows(columns(window, Type.DOUBLE, *SUMS))
    draw = random.Random(1)
    noise = [
        math.ldexp(draw.uniform(-1, 1), draw.randint(-1000, 1000)) for _ in range(100_000)
    ] + [1e308, 1e308, math.inf, -math.inf, math.nan]  # fmt: skip
    push(mixed, noise)
    clean = Windows(columns(window, Type.DOUBLE, *SUMS))
    values = [0.1, 0.1, 0.1, 0.3, 1e-300, 7.0, 7.0, 7.0]
    expected, found = push(clean, values), push(mixed, values, len(noise))
    for name, of_column in expected.items():
        assert found[name][2:].tolist() == of_column[2:].tolist(), name
    assert found["STDDEV"].view(np.float64)[[2, 7]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("frame", [Frame.ALL, Frame.TUMBLING])
def test_a_sum_of_the_greatest_doubles_is_not_infinite(frame: Frame) -> None:
    window = Window(frame, 0 if frame is Frame.ALL else 1000, previous=True)
    for value in (sys.float_info.max, -sys.float_info.max):
        windows = Windows(columns(window, Type.DOUBLE, Function.SUM))
        assert push(windows, [value])["SUM"].tolist() == [-1]
        for number in (1, 2):
            assert push(windows, [0.0], number)["SUM"].view(np.float64).tolist() == [value]


@pytest.mark.parametrize("kind", [Type.DOUBLE, Type.BIGINT])
@pytest.mark.parametrize("spread", [0, 9, 45, 900])
@pytest.mark.parametrize("is_marked", [False, True])
def test_totals_of_windows_are_the_values_at_their_last_events(
    kind: Type, spread: int, is_marked: bool
) -> None:
    draw = np.random.default_rng(spread)
    n, n_windows = 1000, 90
    values = draw.uniform(-1, 1, n) * 2.0 ** draw.integers(0, spread + 1, n)
    cells = np.round(values * 1e17).astype(np.int64) if kind is Type.BIGINT and spread < 9 else values
    cells = cells.view(np.int64) if cells.dtype == np.float64 else cells
    bounds = np.sort(draw.choice(np.arange(1, n), n_windows - 1, replace=False))
    bounds = np.concatenate(([0], bounds, [n]))
    begins_us = np.repeat(bounds[:-1], np.diff(bounds))
    mask, known = draw.random(n) < 0.5, draw.random(n) < 0.8 if is_marked else None
    of = [
        replace(column, within=(0, 0), counts=(0, 1) if is_marked else None)
        for column in columns(Window(Frame.TUMBLING, n, is_whole=True), kind, *SUMS)
    ]
    order, _ = order_of([0] * n, range(n), range(n))

    def bits(place: tuple[int, int]) -> Mask:
        return mask if place == (0, 1) else np.ones(n, np.bool_)

    one = np.zeros(1, np.int32)
    expected = Windows(of).compute(order, one, 1, n, lambda name: (cells, known), bits, begins_us)
    found = Windows(of).totals(bounds, n, lambda name: (cells, known), bits)
    assert found is not None
    for name, (values_at, known_at) in expected.items():
        own, own_known = found[name]
        is_known = np.ones(n, np.bool_) if known_at is None else known_at
        is_own = np.ones(n_windows, np.bool_) if own_known is None else own_known
        assert is_own.tolist() == is_known[bounds[1:] - 1].tolist(), name
        assert own[is_own].tolist() == values_at[bounds[1:] - 1][is_own].tolist(), name


def test_other_functions_have_no_totals() -> None:
    of = columns(Window(Frame.TUMBLING, 9), Type.DOUBLE, Function.SUM, Function.MAX)
    ones = np.ones(1, np.int64)
    assert Windows(of).totals(np.array([0, 1]), 1, lambda name: (ones, None), lambda at: ones > 0) is None


@pytest.mark.parametrize("kind", [Type.DOUBLE, Type.BIGINT])
def test_sums_over_all_events_are_exact_behind_billions_of_them(kind: Type) -> None:
    """A state is written as so many events would leave it. To feed them would take a quarter of an hour."""
    n, value = 5_000_000_000, 7 << 30
    scale = 1074 if kind is Type.DOUBLE else 0
    entries = {NUMBER: n, 1: (scale >> 5) << 8 | (scale >> 5) + 3}
    for first, total, shift in ((OF_TOTALS, n * value, scale), (OF_SQUARES, n * value**2, 2 * scale)):
        bits, chunk = total << (shift & 31), first + (2 if first == OF_SQUARES else 1) * (scale >> 5)
        if first == OF_SQUARES:
            bits = total << (shift - 64 * (scale >> 5))
        while bits:
            entries[chunk] = bits & 0xFFFF_FFFF
            bits, chunk = bits >> 32, chunk + 1
    windows = Windows(columns(Window(Frame.ALL), kind, *SUMS))
    [ring] = windows.stored()
    table = np.array(sorted(entries.items()), np.int64)
    stored = StoredRing(ring.columns, packed(np.array([[len(table), 0]])), packed(table))
    windows.restore([stored], 1)
    more = [value, value, value + 1000]
    found = push(windows, np.array(more, np.float64) if kind is Type.DOUBLE else np.array(more, np.int64))
    assert found["COUNT"].tolist() == [n + 1, n + 2, n + 3]
    total = (n + 2) * value + value + 1000
    if kind is Type.DOUBLE:
        assert found["SUM"].view(np.float64)[2] == float(total)
    else:
        assert found["SUM"].tolist() == [-1 if sum_ >= 2**63 else sum_ for sum_ in
                                         (total - 2 * value - 1000, total - value - 1000, total)]  # fmt: skip
    assert found["AVG"].view(np.float64)[2] == float(total) / (n + 3)
    spread = (n + 3) * ((n + 2) * value**2 + (value + 1000) ** 2) - total**2
    assert found["VARIANCE"].view(np.float64).tolist() == [0.0, 0.0, float(spread) / float((n + 3) * (n + 2))]


def test_an_integer_sum_comes_back_when_it_fits_again() -> None:
    windows = Windows(columns(Window(Frame.EVENTS, 2), Type.BIGINT, Function.SUM))
    most, least = 2**63 - 1, -(2**63)
    found = push(windows, np.array([most, 1, -1, least, least, 0, most, most]))
    assert found["SUM"].tolist() == [most, -1, 0, -1, -1, least, most, -1]


def test_the_variance_of_numbers_far_from_zero_has_all_its_digits() -> None:
    values = [1e15 + offset for offset in (4.0, 7.0, 13.0, 16.0)]
    for frame in (Window(Frame.EVENTS, 4), Window(Frame.ALL)):
        windows = Windows(columns(frame, Type.DOUBLE, Function.VARIANCE))
        assert push(windows, values)["VARIANCE"].view(np.float64)[-1] == 30.0


def test_what_is_kept_is_16_bytes_for_each_event_of_a_window() -> None:
    windows = Windows(columns(Window(Frame.TIME, 99), Type.DOUBLE, *SUMS, Function.MIN, Function.FIRST_VALUE))
    push(windows, np.arange(10_000.0))
    assert windows.n_entries == 100
    windows.expire(10_000 + 30)
    [stored] = windows.stored()
    assert stored.entries.n_rows == len(range(10_031 - 99, 10_000))
    assert stored.entries.planes.nbytes <= 16 * 68


@pytest.mark.parametrize(
    ("function", "n_entries"),
    [(Function.MAX, 2), (Function.LAST_VALUE, 1), (Function.FIRST_VALUE, 2), (Function.COUNT, 1)],
)
def test_windows_over_all_events_keep_few_of_them(function: Function, n_entries: int) -> None:
    windows = Windows(columns(Window(Frame.ALL), Type.DOUBLE, function))
    push(windows, np.arange(10_000.0))
    assert windows.n_entries == n_entries
    assert windows.live(1, 10**12).tolist() == [True]


def test_a_set_keeps_each_value_once() -> None:
    windows = Windows(columns(Window(Frame.TIME, 10**9), Type.BIGINT, Function.DISTINCT, Function.SEEN))
    found = push(windows, np.arange(100_000) % 10)
    assert windows.n_entries == 10
    assert found["DISTINCT"].tolist()[-1] == 10


def test_what_other_windows_stored_is_refused() -> None:
    one = Windows(columns(Window(Frame.ALL), Type.DOUBLE, Function.MAX))
    other = Windows(columns(Window(Frame.ALL), Type.DOUBLE, Function.SUM))
    push(one, [1.0])
    [stored] = one.stored()
    for columns_, n_slots in ((("MAX",), 1), (("SUM",), 2)):
        with pytest.raises(ValueError, match=r"windows|keys"):
            other.restore([StoredRing(columns_, stored.keys, stored.entries)], n_slots)
    no_sums = packed(np.array([[1000, 5]]))
    with pytest.raises(ValueError, match="no sums"):
        other.restore([StoredRing(("SUM",), stored.keys, no_sums)], 1)


def test_codes_of_texts_are_found_and_changed_in_place() -> None:
    window = Window(Frame.EVENTS, 2)
    windows = Windows(columns(window, Type.STRING, Function.LAST_VALUE, Function.DISTINCT, Function.COUNT))
    push(windows, np.array([5, 6, 7]))
    cells = windows.string_cells()
    assert [values[holds].tolist() for values, holds in cells] == [[6, 7], [6, 7]]
    for values, holds in cells:
        values[holds] -= 6
    found = push(windows, np.array([1]), 3)
    assert (found["LAST_VALUE"].tolist(), found["DISTINCT"].tolist()) == ([1], [1])
