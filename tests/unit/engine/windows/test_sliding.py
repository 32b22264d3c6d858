"""Sums that go on from event to event: numbers whose size changes, and the room of keys."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.sliding import BASE
from cep.engine.windows.running import SlidingRing
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.unit.engine.windows.plain import Event, value_at
from tests.unit.engine.windows.test_windows import Keyed, Run, column_of, compare

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


@pytest.mark.parametrize("seed", range(20))
def test_keys_with_many_events_at_once_keep_to_their_room(seed: int) -> None:
    draw, time_us = random.Random(seed), 0
    columns = drawn_columns(draw, Type.BIGINT)
    run, events = Run(columns), [[] for _ in range(4)]  # type: tuple[Run, list[list[Event]]]
    for _ in range(25):
        batch: list[Keyed] = []
        for key in draw.sample(range(4), draw.randint(1, 4)):
            at_us = time_us
            for _ in range(draw.choice((1, 5, 60, 70, 200))):
                at_us += draw.choice((0, 1, 1, 4))
                event = Event(at_us, draw.randint(-9, 9), draw.random() < 0.8, draw.random() < 0.8)
                batch.append((key, event))
        time_us = max(event.time_us for _, event in batch) + 1
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
            used = ring._keys[ring._keys[:, at.CAPACITY] > 0]
            ends = used[:, at.START] + used[:, at.CAPACITY]
            assert (used[:, at.START] + used[:, at.LENGTH] <= ends).all()
            assert (np.sort(ends)[:-1] <= np.sort(used[:, BASE])[1:]).all()
            assert ends.max(initial=0) <= ring._meta[0] <= len(ring._entries)


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
