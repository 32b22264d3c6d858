"""Strategies of cases: rules, a stream of events, and ways to deliver them.

A stream has at most 12 events, so that engine and oracle have few runs even under MATCH ALL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from cep.compiler import ir
from cep.expression import Frame, Window
from cep.schema.stream import Stream
from tests.property.strategies.events import FIELDS, MAX_EVENTS, SECOND_US, copies_agree, event_lists, streams
from tests.property.strategies.rules import rules, rules_of_values, windows
from tests.property.strategies.window_rules import window_rules

MAX_SIZE = 6
"""Steps of a pattern, before its loops are unrolled."""


@dataclass(frozen=True, slots=True)
class Step:
    """One delivery of `n_events` events. After it the watermark may advance and the matcher be restored.

    The watermark advances as far as the events so far allow. With `ahead` it advances to just before the
    smallest time of all later events.
    """

    n_events: int
    advances: bool
    restores: bool
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Rules, a stream, its events in order of arrival, and how they are delivered."""

    rules: tuple[ir.Rule, ...]
    stream: Stream
    events: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]


@st.composite
def crowds(draw: st.DrawFn, n_keys: int) -> Case:
    """Draw a case with many different strings and many keys that come and go. Most keys have few events."""
    random = Random(draw(st.integers(0, 2**32)))
    rule = replace(draw(rules("rule_0", 3)), key=("k",), window=draw(windows()))
    events = []
    for number in range(3 * n_keys):
        key = number // 3 + random.randrange(n_keys // 10)  # young keys replace old ones
        event = {"k": key, "g": "x", "ts": number // 4 * SECOND_US, "t": number, "w": number * number}
        event |= {"i": random.randrange(4), "d": random.random(), "b": None}
        events.append(event | {"s": str(random.randrange(20) + number // 40)})
    stream = Stream("events", FIELDS, "ts", ("t",), SECOND_US)
    size = len(events) // 12
    steps = [Step(size, advances=True, restores=number % 3 == 0) for number in range(12)]
    return Case((rule,), stream, tuple(events), tuple(steps))


@st.composite
def cases(
    draw: st.DrawFn,
    max_rules: int = 2,
    max_events: int = MAX_EVENTS,
    max_size: int = MAX_SIZE,
    *,
    has_window_rules: bool = True,
) -> Case:
    """Draw a case. Each event is delayed by less than the lateness, so no event is late."""
    stream = draw(streams())
    drawn = tuple(
        draw(
            window_rules(name) if has_window_rules and draw(st.integers(0, 5)) == 0 else rules(name, max_size)
        )
        for name in (f"rule_{number}" for number in range(draw(st.integers(1, max_rules))))
    )
    return draw(deliveries_of(drawn, stream, draw(event_lists(max_events))))


@st.composite
def cases_of_windows(draw: st.DrawFn, max_events: int = 2 * MAX_EVENTS) -> Case:
    """Draw a case of window rules alone."""
    stream = draw(streams())
    drawn = tuple(draw(window_rules(f"rule_{number}")) for number in range(draw(st.integers(1, 3))))
    return draw(deliveries_of(drawn, stream, draw(event_lists(max_events))))


@st.composite
def cases_of_values(
    draw: st.DrawFn, max_events: int = 2 * MAX_EVENTS, *, have_conditions: bool = True
) -> Case:
    """Draw a case of rules that report windowed values.

    `have_conditions`: not of every event in all rules. Then windows are computed only for some keys.
    """
    stream = draw(streams())
    drawn = tuple(
        draw(rules_of_values(f"rule_{number}", has_condition=have_conditions and draw(st.booleans())))
        for number in range(draw(st.integers(1, 2)))
    )
    return draw(deliveries_of(drawn, stream, draw(event_lists(max_events))))


_ZONES = {
    "Europe/Berlin": 1_711_746_000,
    "America/New_York": 1_730_592_000,
    "Australia/Lord_Howe": 1_712_340_000,
}
"""Zones, and a time in seconds, a day or less before their clocks are set."""


@st.composite
def cases_of_zones(draw: st.DrawFn) -> Case:
    """Draw a case of tumbling windows in zones, over hours in which clocks are set."""
    zone, base = draw(st.sampled_from(list(_ZONES.items())))
    hours = draw(st.sampled_from([1, 2, 5, 24, 24, 48]))
    offset_us = draw(st.sampled_from([0, 0, 90 * 60])) * SECOND_US
    length_us = hours * 3600 * SECOND_US
    window = Window(Frame.TUMBLING, length_us, offset_us=offset_us % length_us, zone=zone, is_whole=True)
    events = draw(event_lists(2 * MAX_EVENTS))
    scale = draw(st.sampled_from([600, 1800, 3600]))
    for event in events:
        event["ts"] = base * SECOND_US + event["ts"] * scale
    stream = replace(draw(streams()), lateness_us=scale * SECOND_US)
    return draw(deliveries_of((draw(window_rules("rule_0", st.just(window))),), stream, events))


@st.composite
def deliveries_of(
    draw: st.DrawFn, drawn: tuple[ir.Rule, ...], stream: Stream, events: list[dict[str, Any]]
) -> Case:
    """Draw how events are delivered. Each is delayed by less than the lateness, so no event is late."""
    if stream.deduplicate:
        events = copies_agree(events, stream)
        events += [dict(event) for event in draw(st.lists(st.sampled_from(events), max_size=3))]
    if stream.lateness_us:
        held_us = [draw(st.integers(0, stream.lateness_us - 1)) for _ in events]
        arrival = [event["ts"] + delay for event, delay in zip(events, held_us, strict=True)]
    else:
        arrival = [event["ts"] for event in events]
    order = sorted(range(len(events)), key=lambda number: arrival[number])
    return Case(drawn, stream, tuple(events[number] for number in order), draw(_deliveries(len(events))))


@st.composite
def _deliveries(draw: st.DrawFn, n_events: int) -> tuple[Step, ...]:
    steps = []
    while n_events:
        size = draw(st.integers(1, n_events))
        steps.append(Step(size, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())))
        n_events -= size
    return tuple(steps)
