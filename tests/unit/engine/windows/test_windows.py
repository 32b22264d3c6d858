"""The columns of windows against a plain computation for each event, on random streams."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from cep.arrays import I64, Mask
from cep.engine.order.ordering import OrderedEvents
from cep.engine.windows.windows import Windows
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.unit.engine.windows.plain import Event, value_at

WITHIN, COUNTS = (0, 1), (0, 2)
DAY_US = 86_400_000_000
Keyed = tuple[int, Event]


def order_of(codes: Sequence[int], times_us: Sequence[int], rows: Sequence[int]) -> tuple[OrderedEvents, I64]:
    """Return ordered events whose keys are numbers, and these numbers."""
    keys, numbers = np.unique(np.array(codes, np.int64), return_inverse=True)
    order = OrderedEvents(
        rows=np.array(rows, np.int64),
        codes=numbers.astype(np.int32),
        time_us=np.array(times_us, np.int64),
        identity=np.zeros(len(rows), np.uint64),
        keys=pa.array(keys),
        first_rows=np.zeros(len(keys), np.int64),
        n_duplicates=(0,),
    )
    return order, keys


def cell(value: Any) -> int:
    if value is None:
        return 0
    return struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else int(value)


def value_of(number: int, kind: Type) -> Any:
    if kind is Type.DOUBLE:
        return struct.unpack("<d", struct.pack("<q", number))[0]
    return bool(number) if kind is Type.BOOLEAN else number


class Run:
    """Windows over some keys, fed with batches of events of these keys."""

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        self.columns = columns
        self.windows = Windows(columns)
        self.slots: dict[int, int] = {}

    def push(
        self,
        batch: Sequence[Keyed],
        draw: random.Random,
        *,
        is_alone: bool = False,
        wanted: Sequence[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the columns of each event of a batch; `is_alone`: the batch is all that there is.

        `wanted`: only the columns of these events are read; those of others may be anything.
        """
        n_rows = len(batch) + draw.choice((0, 0, 3))
        rows = draw.sample(range(n_rows), len(batch))
        numbers = sorted(range(len(batch)), key=lambda number: batch[number][0])
        order, keys = order_of(
            [batch[number][0] for number in numbers],
            [batch[number][1].time_us for number in numbers],
            [rows[number] for number in numbers],
        )
        for key in keys.tolist():
            self.slots.setdefault(key, len(self.slots))
        values, known = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.bool_)
        within, counts = np.zeros(n_rows, np.bool_), np.zeros(n_rows, np.bool_)
        for row, (_, event) in zip(rows, batch, strict=True):
            values[row], known[row] = cell(event.value), event.value is not None
            within[row], counts[row] = event.within, event.counts
        all_known = all(event.value is not None for _, event in batch)

        def cells(name: str) -> tuple[I64, Mask | None]:
            assert name == "x"
            return values, None if all_known else known

        found = self.windows.compute(
            order,
            None if is_alone else np.array([self.slots[key] for key in keys.tolist()], np.int32),
            0 if is_alone else len(self.slots),
            n_rows,
            cells,
            lambda place: {WITHIN: within, COUNTS: counts}[place],
            wanted=None if wanted is None else np.array([rows[number] for number in wanted], np.int64),
        )
        result = []
        for row in rows:
            of_row = {}
            for column in self.columns:
                of_column, is_known = found[column.name]
                of_row[column.name] = (
                    value_of(int(of_column[row]), column.type) if is_known is None or is_known[row] else None
                )
            result.append(of_row)
        return result

    def advance(self, watermark_us: int, draw: random.Random) -> None:
        """Do what a matcher does between two batches."""
        self.windows.expire(watermark_us)
        if draw.random() < 0.3:
            self.windows.settle()
        live = self.windows.live(len(self.slots), watermark_us)
        if draw.random() < 0.3:
            self.windows.keep_slots(live)
            kept = [key for key, slot in sorted(self.slots.items(), key=lambda item: item[1]) if live[slot]]
            self.slots = {key: number for number, key in enumerate(kept)}
        if draw.random() < 0.3:
            stored = list(self.windows.stored())
            draw.shuffle(stored)
            self.windows = Windows(self.columns)
            self.windows.restore(stored, len(self.slots))


NUMBERS = [Function.COUNT, Function.SUM, Function.AVG, Function.VARIANCE, Function.STDDEV]
ORDERED = [Function.MIN, Function.MAX]
PLACES = [Function.FIRST_VALUE, Function.LAST_VALUE, Function.LAG]
SETS = [Function.DISTINCT, Function.SEEN]
COUNTED = {Function.COUNT, Function.DISTINCT}
DOUBLES = {Function.AVG, Function.VARIANCE, Function.STDDEV, Function.PERCENTILE}


def column_of(function: Function, kind: Type, window: Window, draw: random.Random, name: str) -> WindowColumn:
    argument: str | None = "x"
    if function is Function.COUNT and draw.random() < 0.5:
        argument = None
    parameter: float = 0
    if function is Function.LAG:
        parameter = draw.choice((1, 2, 5))
    elif function is Function.PERCENTILE:
        parameter = draw.choice((0.0, 0.25, 0.5, 0.9, 1.0, draw.random()))
    result = kind
    if function in COUNTED:
        result = Type.BIGINT
    elif function in DOUBLES:
        result = Type.DOUBLE
    elif function is Function.SEEN:
        result = Type.BOOLEAN
    return WindowColumn(
        name=name,
        type=result,
        function=function,
        argument=argument,
        argument_type=None if argument is None else kind,
        window=window,
        parameter=parameter,
        within=draw.choice((None, WITHIN)),
        counts=draw.choice((None, COUNTS)),
    )


def drawn_window(draw: random.Random, frame: Frame) -> Window:
    previous = draw.random() < 0.5
    if frame is Frame.EVENTS:
        return Window(frame, draw.choice((1, 2, 3, 7, 40)), previous)
    if frame is Frame.ALL:
        return Window(frame, previous=previous)
    if frame is Frame.TUMBLING:
        length = draw.choice((1, 10, 60))
        return Window(frame, length, previous, offset_us=draw.choice((0, 3, -7)))
    step = draw.choice((0, 1, 5, 30)) if frame is Frame.TIME else 0
    return Window(frame, draw.choice((0, 1, 5, 30, 100)) * max(step, 1), previous, step_us=step)


def drawn_columns(
    draw: random.Random, kind: Type, drawn: Callable[[random.Random, Frame], Window] = drawn_window
) -> list[WindowColumn]:
    columns = []
    of_events = [frame for frame in Frame if frame is not Frame.HOPPING]  # which window rules alone have
    windows = [drawn(draw, draw.choice(of_events)) for _ in range(2)]
    functions = [*PLACES, *SETS, Function.COUNT]
    if kind is not Type.STRING:
        functions += ORDERED
    if kind in (Type.DOUBLE, Type.BIGINT):
        functions += [*NUMBERS, *NUMBERS, Function.PERCENTILE]
    for number in range(draw.randint(1, 8)):
        window, function = draw.choice(windows), draw.choice(functions)
        if function is Function.PERCENTILE and window.frame is Frame.ALL:
            continue
        columns.append(column_of(function, kind, window, draw, f"c{number}"))
    return columns


def values_of(draw: random.Random, kind: Type) -> Any:
    """Return what draws a value."""
    if kind is Type.BOOLEAN:
        return lambda: draw.choice((0, 1))
    if kind is Type.STRING:
        return lambda: draw.randrange(6)
    if kind is Type.BIGINT:
        return draw.choice(
            (
                lambda: draw.randint(-5, 5),
                lambda: draw.choice((2**63 - 1, -(2**63), 2**62, -1, 0, 1, 2**32, -(2**32))),
                lambda: draw.getrandbits(64) - 2**63,
            )
        )
    few = [0.0, -0.0, 1.5, 0.1, -0.1, 3.0]
    return draw.choice((
        lambda: draw.choice(few),
        lambda: draw.choice([*few, math.nan, math.inf, -math.inf]),
        lambda: draw.choice([*few, math.nan]),
        lambda: round(draw.uniform(-100, 100), 2),
        lambda: 1e9 + draw.random(),
        lambda: draw.choice((1e16, 1.0, -1e16, 1e-16, 1e300, -1e300)),
        lambda: draw.choice((1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 2.2e-308, 1e308)),
        lambda: struct.unpack("<d", struct.pack("<Q", draw.getrandbits(64)))[0],
        lambda: math.ldexp(draw.uniform(-1, 1), draw.randint(-60, 60)),
    ))  # fmt: skip


def drawn_events(draw: random.Random, kind: Type, n: int) -> list[Keyed]:
    """Return events of some keys in order of time."""
    value = values_of(draw, kind)
    n_keys = draw.choice((1, 2, 5))
    steps = draw.choice(((0, 1, 2), (0, 0, 1), (1, 7, 40), (0, 1, 150)))
    has_null = draw.random() < 0.5
    time_us = draw.randint(-50, 50)
    events = []
    for _ in range(n):
        time_us += draw.choice(steps)
        event = Event(
            time_us,
            None if has_null and draw.random() < 0.2 else value(),
            draw.random() < 0.8,
            draw.random() < 0.7,
        )
        events.append((draw.randrange(n_keys), event))
    return events


def is_same(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(found) or math.isnan(expected):
            return math.isnan(found) == math.isnan(expected)
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return bool(found == expected)


def compare(columns: Sequence[WindowColumn], events: Sequence[Keyed], draw: random.Random) -> None:
    """Feed events in batches, and compare every value."""
    run = Run(columns)
    alone = Run(columns)
    of_all = alone.push(events, draw, is_alone=True)
    assert not alone.windows.n_entries
    seen: dict[int, list[Event]] = {}
    first = 0
    while first < len(events):
        behind = first + draw.choice((1, 3, 10, 100))
        if draw.random() < 0.5:  # a watermark never parts an instant; a batch may
            while behind < len(events) and events[behind][1].time_us == events[behind - 1][1].time_us:
                behind += 1
        batch = events[first:behind]
        found_alone = of_all[first:behind]
        wanted = None
        if draw.random() < 0.6:  # all, some or none
            part = draw.choice((0.02, 0.3, 1))
            wanted = [number for number in range(len(batch)) if draw.random() < part]
        with patch("cep.engine.windows.windows._FEW_KEYS", draw.choice((0, 1, 2))):
            found_here = run.push(batch, draw, wanted=wanted)
        for number, ((key, event), found, other) in enumerate(
            zip(batch, found_here, found_alone, strict=True)
        ):
            of_key = seen.setdefault(key, [])
            of_key.append(event)
            if wanted is not None and number not in wanted:
                continue
            for column in columns:
                condition = column.within is not None, column.counts is not None
                past = [
                    Event(e.time_us, e.value, e.within or not condition[0], e.counts or not condition[1])
                    for e in of_key
                ]
                expected = value_at(column, past, len(past) - 1)
                assert is_same(found[column.name], expected), (
                    column, found[column.name], expected, of_key[-12:],
                )  # fmt: skip
                assert is_same(other[column.name], expected), (column, other[column.name], expected)
        first = behind
        if first < len(events) and events[first][1].time_us > events[first - 1][1].time_us:
            watermark_us = draw.randint(events[first - 1][1].time_us, events[first][1].time_us - 1)
            run.advance(watermark_us, draw)


@pytest.mark.parametrize("seed", range(150))
def test_windows_are_as_computed_anew_for_each_event(seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.DOUBLE, Type.BIGINT, Type.STRING, Type.BOOLEAN))
    columns = drawn_columns(draw, kind)
    compare(columns, drawn_events(draw, kind, draw.choice((20, 60, 120))), draw)
