"""Windows that move in steps: what counts at the edges of panes, what is kept, exact sums, damaged state."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from cep.arrays import F64, I64
from cep.engine.state.packing import packed
from cep.engine.windows.kernels.panes import MOST_OF_GROUP
from cep.engine.windows.rings import StoredRing
from cep.engine.windows.running import PaneRing
from cep.engine.windows.windows import Windows
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.unit.engine.windows.test_exact import SUMS, columns
from tests.unit.engine.windows.test_windows import compare, drawn_columns, drawn_events, order_of

HOUR_US = 3_600_000_000
MONTH_BY_HOUR = Window(Frame.TIME, 720 * HOUR_US, step_us=HOUR_US)


def push(windows: Windows, times_us: list[int], values: I64 | F64 | list[float]) -> dict[str, I64]:
    """Return the columns of events of one key, by bits; NULL is -1."""
    cells = np.asarray(values)
    cells = cells.view(np.int64) if cells.dtype == np.float64 else cells
    n = len(times_us)
    order, _ = order_of([0] * n, times_us, range(n))
    found = windows.compute(
        order, np.zeros(1, np.int32), 1, n, lambda name: (cells, None), lambda place: np.ones(n, np.bool_)
    )
    return {name: of if known is None else np.where(known, of, -1) for name, (of, known) in found.items()}


@pytest.mark.parametrize("seed", range(40))
def test_windows_in_steps_are_as_computed_anew_for_each_event(seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.DOUBLE, Type.BIGINT, Type.STRING))

    def window(draw: random.Random, frame: Frame) -> Window:
        step = draw.choice((1, 5, 7, 30))
        length = step * draw.choice((1, 1, 2, 3, 10))
        return Window(Frame.TIME, length, draw.random() < 0.5, step_us=step)

    drawn = drawn_columns(draw, kind, window)
    compare(drawn, drawn_events(draw, kind, draw.choice((20, 60, 120))), draw)


def test_a_window_has_its_length_at_least_and_is_less_than_a_step_longer() -> None:
    last = Windows(columns(Window(Frame.TIME, 20, step_us=10), Type.BIGINT, Function.COUNT, Function.MIN))
    found = push(last, [-1, 0, 9, 10, 20, 29, 30, 31], np.arange(8))
    assert found["COUNT"].tolist() == [1, 2, 3, 4, 4, 5, 4, 5]
    assert found["MIN"].tolist() == [0, 0, 0, 0, 1, 1, 3, 3]


def test_a_key_keeps_a_sum_for_each_pane_and_that_of_the_window() -> None:
    hours = 2000
    times = [hour * HOUR_US + minute * 60_000_000 for hour in range(hours) for minute in range(0, 60, 5)]
    amounts = np.round(np.random.default_rng(1).lognormal(3, 1, len(times)), 2)
    for functions, entries_of_pane, entries_of_window in (
        ((Function.COUNT,), 1, 2),
        ((Function.SUM, Function.AVG, Function.COUNT), 2, 3),
        ((Function.STDDEV, Function.SUM), 4, 5),
    ):
        windows = Windows(columns(MONTH_BY_HOUR, Type.DOUBLE, *functions))
        push(windows, times, amounts)
        assert 720 < windows.n_entries <= 721 * entries_of_pane + entries_of_window


@pytest.mark.parametrize(
    ("functions", "at_most"),
    [((Function.MIN, Function.MAX), 40), ((Function.FIRST_VALUE,), 722), ((Function.LAST_VALUE,), 1)],
)
def test_of_other_functions_few_values_of_panes_are_kept(
    functions: tuple[Function, ...], at_most: int
) -> None:
    times = [minute * 60_000_000 for minute in range(60_000)]
    windows = Windows(columns(MONTH_BY_HOUR, Type.DOUBLE, *functions))
    push(windows, times, np.random.default_rng(1).normal(size=len(times)))
    assert 0 < windows.n_entries <= at_most


def test_panes_of_one_event_take_what_the_event_would() -> None:
    windows = Windows(columns(MONTH_BY_HOUR, Type.DOUBLE, *SUMS))
    push(windows, [HOUR_US * hour for hour in range(0, 7000, 7)], np.random.default_rng(1).normal(size=1000))
    assert windows.n_entries <= 720 // 7 + 1 + 6  # and the sums of the window


def test_a_value_that_stays_the_same_is_kept_once() -> None:
    windows = Windows(columns(MONTH_BY_HOUR, Type.DOUBLE, Function.MIN, Function.MAX))
    push(windows, [HOUR_US * hour for hour in range(700)], np.full(700, 2.5))
    assert windows.n_entries == 1


@pytest.mark.parametrize("kind", [Type.DOUBLE, Type.BIGINT])
def test_what_is_kept_does_not_depend_on_how_events_are_cut(kind: Type) -> None:
    """Not even its bytes do, so nothing of what has left the window is in them."""
    draw = random.Random(3)
    n = 3000
    times = sorted(draw.randrange(1_000_000) for _ in range(n))
    numbers: I64 | list[float] = np.array([draw.getrandbits(60) - 2**59 for _ in range(n)])
    if kind is Type.DOUBLE:
        numbers = [math.ldexp(draw.uniform(-1, 1), draw.randint(-40, 40)) for _ in range(n)]
    window = Window(Frame.TIME, 100_000, step_us=1_000)
    whole, cut = (Windows(columns(window, kind, *SUMS, Function.MIN, Function.MAX)) for _ in range(2))
    expected = push(whole, times, numbers)
    found: list[dict[str, I64]] = []
    first = 0
    while first < n:
        behind = first + draw.choice((1, 2, 30, 500))
        found.append(push(cut, times[first:behind], numbers[first:behind]))
        first = behind
    for name, values in expected.items():
        assert np.concatenate([part[name] for part in found]).tolist() == values.tolist()
    for one, other in zip(whole.stored(), cut.stored(), strict=True):
        assert one.entries.matrix().tolist() == other.entries.matrix().tolist()


def test_what_has_left_the_window_leaves_no_trace() -> None:
    window = Window(Frame.TIME, 10, step_us=5)
    mixed, clean = (Windows(columns(window, Type.DOUBLE, *SUMS)) for _ in range(2))
    draw = random.Random(1)
    noise = [
        math.ldexp(draw.uniform(-1, 1), draw.randint(-1000, 1000)) for _ in range(20_000)
    ] + [1e308, 1e308, math.inf, -math.inf, math.nan]  # fmt: skip
    push(mixed, list(range(len(noise))), noise)
    values, times = [0.1, 0.1, 0.3, 1e-300, 7.0], [30_000, 30_002, 30_009, 30_011, 30_017]
    expected, found = push(clean, times, values), push(mixed, times, values)
    assert {name: of.tolist() for name, of in found.items()} == {
        name: of.tolist() for name, of in expected.items()
    }
    assert [ring.entries.matrix().tolist() for ring in mixed.stored()] == [
        ring.entries.matrix().tolist() for ring in clean.stored()
    ]


def test_sums_are_exact_behind_billions_of_events() -> None:
    """A pane is written as so many events would leave it."""
    windows = Windows(columns(MONTH_BY_HOUR, Type.BIGINT, *SUMS))
    n, value = 5_000_000_000, 7 << 30
    words = [n * value & (1 << 64) - 1, n * value >> 64, n * value**2 & (1 << 64) - 1, n * value**2 >> 64]
    of_group = [[0, n << 24 | 2 << 11 | 2 << 4], words[:2], words[2:]]
    table = np.array([*of_group, *of_group, [3, 3]], np.uint64).view(np.int64)
    [ring] = windows.stored()
    windows.restore([StoredRing(ring.columns, packed(np.array([[7, 0]])), packed(table))], 1)
    found = push(windows, [5, HOUR_US, 721 * HOUR_US], np.array([value, value + 1000, value]))
    assert found["COUNT"].tolist() == [n + 1, n + 2, 2]
    assert found["AVG"].view(np.float64).tolist()[1] == float((n + 2) * value + 1000) / (n + 2)
    assert found["SUM"].tolist() == [-1, -1, 2 * value + 1000]
    spread = (n + 2) * ((n + 1) * value**2 + (value + 1000) ** 2) - ((n + 2) * value + 1000) ** 2
    assert found["VARIANCE"].view(np.float64)[1:].tolist() == [
        float(spread) / (float(n + 2) * float(n + 1)), 500_000.0,
    ]  # fmt: skip


def test_a_key_that_falls_silent_is_let_go() -> None:
    windows = Windows(columns(Window(Frame.TIME, 20, step_us=10), Type.DOUBLE, Function.SUM, Function.MAX))
    push(windows, [5, 15], [1.0, 2.0])
    for watermark_us, is_live in ((38, True), (39, False)):  # the next event is at 40 at the earliest
        windows.expire(watermark_us)
        assert windows.live(1, watermark_us).tolist() == [is_live]


def test_entries_that_are_no_panes_are_refused_and_never_read_beyond_their_end() -> None:
    draw = random.Random(5)
    values = [draw.choice((1.5, math.inf, 1e300, -1e-300)) for _ in range(60)]
    windows = Windows(columns(Window(Frame.TIME, 20, step_us=4), Type.DOUBLE, *SUMS))
    push(windows, [number // 2 for number in range(60)], values)
    [stored] = windows.stored()
    sound = stored.entries.matrix()
    n_refused = 0
    for number in range(400):
        damaged = sound.copy()
        row = draw.choice((0, len(sound) - 1)) if number % 4 == 0 else draw.randrange(len(sound))
        column = draw.randrange(2)
        damaged[row, column] = draw.choice((0, -1, draw.getrandbits(62), damaged[row, column] ^ 1 << 11))
        other = Windows(columns(Window(Frame.TIME, 20, step_us=4), Type.DOUBLE, *SUMS))
        try:
            other.restore([StoredRing(stored.columns, stored.keys, packed(damaged))], 1)
        except ValueError:
            n_refused += 1
            continue
        push(other, [31, 40, 90], [1.0, 2.0, 3.0])
    assert n_refused > 50, n_refused
    for length in (1, len(sound) - 1, len(sound) + 1):
        keys = packed(np.array([[length, 0]]))
        with pytest.raises(ValueError, match="window"):
            windows.restore([StoredRing(stored.columns, keys, stored.entries)], 1)


def test_counts_and_sums_of_steps_have_a_ring_of_panes() -> None:
    assert MOST_OF_GROUP == 57

    def is_of_panes(function: Function, window: Window) -> bool:
        [ring] = Windows(columns(window, Type.DOUBLE, function))._rings
        return isinstance(ring, PaneRing)

    assert [is_of_panes(function, MONTH_BY_HOUR) for function in Function] == [
        function in SUMS for function in Function
    ]
    assert not is_of_panes(Function.SUM, Window(Frame.TIME, HOUR_US))
    assert isinstance(columns(MONTH_BY_HOUR, Type.DOUBLE, Function.SUM)[0], WindowColumn)
