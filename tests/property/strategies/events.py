"""Strategies of streams: their columns, how events of equal time are ordered, and the events.

There are only a few different values, so that predicates hold often and ties, repeats and NULLs are common.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cep.expression import Column
from cep.schema.stream import Field, Stream

SECOND_US = 1_000_000
MAX_EVENTS = 12

HUGE = 2**62
"""The sum of two of these does not fit into 64 bits."""

FIELDS = (
    Field("k", "bigint"),
    Field("g", "string"),
    Field("ts", "timestamp"),
    Field("t", "int"),
    Field("w", "bigint"),  # a power of two for each event, so SUM(v.w) tells which events were taken
    Field("i", "bigint"),
    Field("d", "double"),
    Field("s", "string"),
    Field("b", "boolean"),
)
COLUMNS = {field.name: Column(field.name, field.type) for field in FIELDS}


_USUAL = [0.0, 0.5, 1.5, -2.0]
DOUBLES = [
    [*_USUAL, float("nan"), float("inf")],
    [*_USUAL, 0.1, -0.0],
    [*_USUAL, 0.1, 1e12, -3e-9],  # sums of a key are computed in another way then (`kernels/sliding.py`)
]
"""Values of a stream's doubles. With NaN among them few sums of a window are numbers."""


def _or_null(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[strategy] * 8, st.none())


@st.composite
def event_lists(draw: st.DrawFn, max_events: int = MAX_EVENTS) -> list[dict[str, Any]]:
    """Draw events in order of time, with ties, NULLs and a few keys."""
    events: list[dict[str, Any]] = []
    now_us = draw(st.sampled_from([0, 86_396 * SECOND_US]))
    letter = draw(st.integers(0, 3))
    doubles = draw(st.sampled_from(DOUBLES))
    few_keys: list[int | None] = draw(st.sampled_from([[1], [1], [1], [1, 1, 1, 2], [1, 1, 2, None]]))
    for number in range(draw(st.integers(min(6, max_events), max_events))):
        now_us += draw(st.sampled_from([0, 1, 1, 1, 1, 2, 4])) * SECOND_US
        letter = (
            letter + draw(st.sampled_from([0, 1, 1, 1, 2, 3]))
        ) % 4  # patterns mostly have the letters in this order
        event = {
            "k": draw(st.sampled_from(few_keys)),
            "g": draw(st.sampled_from(["x"] * 6 + ["y"])),
            "ts": now_us,
            "t": draw(_or_null(st.integers(0, 3))),
            "w": 1 << number,
            "i": letter if draw(st.integers(0, 15)) else draw(st.sampled_from([None, -1, HUGE])),
            "d": draw(_or_null(st.sampled_from(doubles))),
            "s": draw(_or_null(st.sampled_from(["p", "q", "r", "", "STRASSE", "Straße"]))),
            "b": draw(_or_null(st.booleans())),
        }
        events.append(event)
    return events


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw a stream: the order of events of equal time, and its lateness."""
    tie_break = draw(st.sampled_from([(), (), ("t",), ("s", "t")]))
    return Stream(
        name="events",
        fields=FIELDS,
        event_time="ts",
        tie_break=tie_break,
        lateness_us=draw(st.sampled_from([0, 1, 3])) * SECOND_US,
        deduplicate=bool(tie_break) and draw(st.booleans()),
    )


def copies_agree(events: list[dict[str, Any]], stream: Stream) -> list[dict[str, Any]]:
    """Give equal values to the copies of an event, because the stream promises that copies are equal."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        first.setdefault(tuple(event[name] for name in (stream.event_time, *stream.tie_break)), event)
    return [
        {**first[tuple(event[name] for name in (stream.event_time, *stream.tie_break))], **_keys_of(event)}
        for event in events
    ]


def _keys_of(event: dict[str, Any]) -> dict[str, Any]:
    return {"k": event["k"], "g": event["g"]}
