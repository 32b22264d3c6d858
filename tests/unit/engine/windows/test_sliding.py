"""Sums that go on from event to event: numbers whose size changes, and the room of keys."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.sliding import BASE, rooms_of
from cep.engine.windows.rings import BLOCK, WindowRing
from cep.engine.windows.running import SlidingRing
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.unit.engine.windows.plain import Event, value_at
from tests.unit.engine.windows.test_windows import Keyed, Run, column_of, compare, drawn_events
from tests.unit.engine.windows.test_windows import drawn_columns as any_columns

SUMS = (Function.COUNT, Function.SUM, Function.AVG)


def values_that_grow_and_shrink(draw: random.Random) -> Callable[[], float]:
    """Return what draws doubles: many in a row of a size, then others."""
    place, left = draw.choice((0, -1060, 900)), 0
    others = draw.choice(((), (0.0, -0.0), (0.0, math.inf), (math.nan,)))

    def value() -> float:
        nonlocal place, left
        if left == 0:
            place, left = max(min(place + draw.randint(-40, 40), 950), -1060), draw.randint(1, 25)
        left -= 1
        if others and draw.random() < 0.1:
            return draw.choice(others)
        return math.ldexp(draw.uniform(-1, 1), place + draw.randint(-10, 10))

    return value


def drawn_columns(draw: random.Random, kind: Type) -> list[WindowColumn]:
    frame = draw.choice((Frame.TIME, Frame.EVENTS))
    window = Window(frame, draw.choice((1, 3, 10, 40, 200)), draw.random() < 0.5)
    return [
        column_of(draw.choice(SUMS), kind, window, draw, f"c{number}") for number in range(draw.randint(1, 4))
    ]


@pytest.mark.parametrize("seed", range(25))
def test_sums_of_numbers_whose_size_changes_are_exact(seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.DOUBLE, Type.BIGINT))
    value = values_that_grow_and_shrink(draw)
    if kind is Type.BIGINT:
        value = draw.choice((lambda: draw.getrandbits(64) - 2**63, lambda: draw.randint(-9, 9)))
    n_keys, time_us = draw.choice((1, 3, 8)), 0
    events: list[Keyed] = []
    for _ in range(draw.choice((50, 200))):
        time_us += draw.choice((0, 1, 1, 4))
        given = None if draw.random() < 0.1 else value()
        events.append(
            (draw.randrange(n_keys), Event(time_us, given, draw.random() < 0.8, draw.random() < 0.8))
        )
    compare(drawn_columns(draw, kind), events, draw)


def drawn_batches(draw: random.Random, n: int, n_keys: int = 4) -> Iterator[list[Keyed]]:
    """Yield batches in which keys have few events or many."""
    time_us = 0
    for _ in range(n):
        batch: list[Keyed] = []
        for key in draw.sample(range(n_keys), draw.randint(1, n_keys)):
            at_us = time_us
            for _ in range(draw.choice((1, 5, 60, 70, 200))):
                at_us += draw.choice((0, 1, 1, 4))
                event = Event(at_us, draw.randint(-9, 9), draw.random() < 0.8, draw.random() < 0.8)
                batch.append((key, event))
        time_us = max(event.time_us for _, event in batch) + 1
        yield batch


def check_batches(
    columns: list[WindowColumn],
    batches: Iterable[list[Keyed]],
    draw: random.Random,
    between: Callable[[SlidingRing], None] = lambda ring: None,
) -> None:
    """Compare some values of each batch, and look at the rooms of the keys. `between`: is done in between."""
    run, events = Run(columns), defaultdict(list)  # type: tuple[Run, dict[int, list[Event]]]
    for batch in batches:
        for (key, event), found in zip(batch, run.push(batch, draw), strict=True):
            events[key].append(event)
            for column in columns if draw.random() < 0.03 else ():
                past = [
                    Event(e.time_us, e.value, e.within or not column.within, e.counts or not column.counts)
                    for e in events[key][-700:]
                ]
                assert found[column.name] == value_at(column, past, len(past) - 1)
        for ring in run.windows._rings:
            assert isinstance(ring, SlidingRing)
            between(ring)
            check_rooms(ring)


def check_rooms(ring: SlidingRing) -> None:
    """No two keys share room, and each has room for its entries."""
    used = ring._keys[ring._keys[:, at.CAPACITY] > 0]
    ends = used[:, at.START] + used[:, at.CAPACITY]
    assert (used[:, at.START] + used[:, at.LENGTH] <= ends).all()
    assert (np.sort(ends)[:-1] <= np.sort(used[:, BASE])[1:]).all()
    assert ends.max(initial=0) <= ring._meta[0] <= len(ring._entries)


@pytest.mark.parametrize("seed", range(20))
def test_keys_with_many_events_at_once_keep_to_their_room(seed: int) -> None:
    draw = random.Random(seed)
    check_batches(drawn_columns(draw, Type.BIGINT), drawn_batches(draw, 25), draw)


def with_memory(ring: WindowRing, n: int) -> None:
    """Give a ring memory for so many entries."""
    entries = np.full((n, 2), -1, np.int64)
    entries[: ring._meta[0]] = ring._entries[: ring._meta[0]]
    ring._entries = entries


@pytest.mark.parametrize("seed", range(20))
def test_entries_that_move_within_their_memory_remain_those_of_their_keys(seed: int) -> None:
    draw, n_moved = random.Random(seed), 0

    def move(ring: SlidingRing) -> None:
        """Move the entries, most of them within their memory, which the first ones have often left."""
        nonlocal n_moved
        needed = draw.choice((1, 100, 1000))
        wanted = rooms_of(ring._keys) + needed
        n = max(draw.choice((2, 5, 8)) * wanted, int(ring._meta[0]))
        with_memory(ring, n)
        before = ring._entries
        ring._move(needed)
        is_same = ring._entries is before
        assert is_same == (n <= 8 * wanted)
        assert ring._meta[0] + needed <= len(ring._entries)
        n_moved += is_same

    check_batches(drawn_columns(draw, Type.BIGINT), drawn_batches(draw, 25, 8), draw, move)
    assert n_moved > 10


def sums_over(length: int, function: Function = Function.SUM) -> Run:
    column = WindowColumn(
        name="x",
        type=Type.DOUBLE,
        function=function,
        argument="x",
        argument_type=Type.DOUBLE,
        window=Window(Frame.TIME, length),
    )
    return Run([column])


def test_sums_go_on_in_long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute_anew(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(SlidingRing, "_compute_next", compute_anew)
    n, draw = 70_000, random.Random(1)
    run = sums_over(n - 10)
    values = [draw.uniform(-1000, 1000) for _ in range(n + 60)]
    events: list[Keyed] = [(0, Event(time_us, value, True, True)) for time_us, value in enumerate(values)]
    run.push(events[:n], draw)
    for first in range(n, n + 60, 20):
        found = run.push(events[first : first + 20], draw)
        for number, columns in enumerate(found, first):
            assert columns["x"] == math.fsum(values[number - (n - 10) : number + 1])


def test_a_key_that_goes_on_takes_no_more_room() -> None:
    run, draw = sums_over(50), random.Random(1)
    sizes = []
    for step in range(400):
        run.push([(key, Event(step, 1.0, True, True)) for key in range(20)], draw)
        run.windows.expire(step)
        (ring,) = run.windows._rings
        assert isinstance(ring, SlidingRing)
        sizes.append(len(ring._entries))
    assert ring.n_entries <= 20 * (51 + 50 // 4)
    assert max(sizes[100:]) == sizes[100]


@pytest.mark.parametrize("function", [Function.SUM, Function.MAX])
def test_entries_that_are_moved_together_take_no_more_room_each_time(function: Function) -> None:
    run, draw = sums_over(2, function), random.Random(1)
    sizes = []
    for step in range(20):
        run.push([(number % 7, Event(10 * step, 1.0, True, True)) for number in range(100)], draw)
        (ring,) = run.windows._rings
        room = 5 * (ring.n_entries + (1 << 15))  # as if many had come and gone
        entries = np.empty((max(room, len(ring._entries)), 2), np.int64)
        entries[: len(ring._entries)] = ring._entries
        ring._entries, ring._meta[0] = entries, room
        run.windows.expire(10 * step + 5)
        sizes.append(len(ring._entries))
    assert max(sizes) == sizes[1] < 200_000


def test_memory_is_kept_while_half_of_it_is_free_and_released_when_nearly_all_is() -> None:
    run, draw = sums_over(50), random.Random(1)
    run.push([(key, Event(0, 1.0, True, True)) for key in range(30) for _ in range(40)], draw)
    (ring,) = run.windows._rings
    assert isinstance(ring, SlidingRing)
    wanted = rooms_of(ring._keys) + 1
    for times, is_kept in ((2, True), (5, True), (8, True), (9, False)):
        with_memory(ring, times * wanted)
        before = ring._entries
        ring._move(1)
        assert (ring._entries is before) == is_kept, times
    assert len(ring._entries) == 3 * wanted
    with_memory(ring, 2 * wanted - 1)
    ring._move(1)
    assert len(ring._entries) == 3 * wanted, "so little was free that the entries would soon move again"
    run.windows.keep_slots(np.arange(30) < 1)
    with_memory(ring, 20 * BLOCK)
    ring._meta[0] = 20 * BLOCK  # as if many had come and gone
    run.windows.expire(1_000)  # keys that had events since the last time do so themselves
    run.windows.expire(2_000)
    assert len(ring._entries) < 4 * BLOCK


MOVED = (Function.SUM, Function.MAX)
"""Functions whose windows are kept in different ways."""


@pytest.mark.parametrize("function", MOVED)
@pytest.mark.parametrize("settles", [True, False])
def test_after_settling_the_next_batch_moves_no_entries(
    function: Function, settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_moved = 0

    def counted(move: Callable[[WindowRing, int], None]) -> Callable[[WindowRing, int], None]:
        def counting(self: WindowRing, needed: int) -> None:
            nonlocal n_moved
            n_moved += 1
            move(self, needed)

        return counting

    for kind in (SlidingRing, WindowRing):
        monkeypatch.setattr(kind, "_move", counted(kind._move))
    run, draw = sums_over(1_000, function), random.Random(1)
    of_batches = 0
    for step in range(40):
        n_moved = 0
        keys = range(200 * step, 200 * (step + 1))
        run.push([(key, Event(step, 1.0, True, True)) for key in keys for _ in range(5)], draw)
        of_batches += n_moved if step else 0  # the first one has none before it
        run.windows.expire(step)
        if settles:
            run.windows.settle()
    assert (of_batches == 0) == settles


def test_the_room_of_a_batch_is_known_if_entries_moved_in_it() -> None:
    used = []
    for n_garbage in (0, 50_000):
        run, draw = sums_over(1_000), random.Random(1)
        for step in range(2):
            keys = range(200 * step, 200 * (step + 1))
            run.push([(key, Event(step, 1.0, True, True)) for key in keys for _ in range(5)], draw)
            (ring,) = run.windows._rings
            if n_garbage and not step:
                with_memory(ring, n_garbage)
                ring._meta[0] = n_garbage
        assert not n_garbage or ring._meta[0] < n_garbage
        used.append(ring._used)
    assert used[0] == used[1] >= 1_000


@pytest.mark.parametrize("seed", range(20))
def test_settling_changes_no_result(seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.BIGINT))
    columns = any_columns(draw, kind)
    once, twice = Run(columns), Run(columns)
    events = drawn_events(draw, kind, 150)
    first = 0
    while first < len(events):
        behind = first + draw.choice((1, 3, 40))
        settled = draw.randrange(3)
        found = [run.push(events[first:behind], random.Random(first)) for run in (once, twice)]
        assert repr(found[0]) == repr(found[1])
        for run in (once, twice):
            if behind < len(events) and events[behind][1].time_us > events[behind - 1][1].time_us:
                run.advance(events[behind - 1][1].time_us, random.Random(first))
        for _ in range(settled):
            twice.windows.settle()
        assert once.windows.n_entries == twice.windows.n_entries
        first = behind
    assert stored(once) == stored(twice)


def stored(run: Run) -> list[object]:
    """Return what a snapshot has of windows."""
    rings = run.windows.stored()
    return [(ring.columns, ring.keys.matrix().tolist(), ring.entries.matrix().tolist()) for ring in rings]


def far_apart(n_keys: int, n_each: int, first_us: int) -> list[Keyed]:
    """Return events of some keys in order of time, each key's a microsecond apart."""
    return [
        (key, Event(first_us + number, float(key + number), True, True))
        for number in range(n_each)
        for key in range(n_keys)
    ]


@pytest.mark.parametrize("window", [Window(Frame.TIME, 50), Window(Frame.EVENTS, 4, previous=True)])
def test_events_of_keys_whose_values_nobody_reads_are_only_kept(window: Window) -> None:
    draw = random.Random(3)
    drawn = [column_of(function, Type.DOUBLE, window, draw, function.name) for function in SUMS]
    columns = [replace(column, within=None, counts=None) for column in drawn]
    run, other = Run(columns), Run(columns)
    n_unread = n_computed = 0
    for first_us in range(0, 200, 5):
        events = far_apart(40, 5, first_us)
        n_read = 3 if first_us % 35 == 0 else 1  # keys
        read = [number for number, (key, _) in enumerate(events) if key < n_read]
        found, expected = run.push(events, draw, wanted=read), other.push(events, draw)
        assert [found[number] for number in read] == [expected[number] for number in read]
        unread = [number for number, (key, _) in enumerate(events) if key >= n_read]
        n_unread += len(unread)
        n_computed += sum(found[number] == expected[number] for number in unread)
        if first_us % 20 == 0:
            for one, two in zip(run.windows.stored(), other.windows.stored(), strict=True):
                if window.frame is Frame.EVENTS:  # what the next event sees, and no more
                    assert (one.keys.matrix() == two.keys.matrix()).all()
                    assert (one.entries.matrix() == two.entries.matrix()).all()
    assert n_computed < n_unread / 4  # where there was no room
    assert run.windows.n_entries <= 3 * other.windows.n_entries
