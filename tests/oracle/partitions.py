"""The events that a rule sees together, in their order ("Events and their order", "Streams and keys")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cep.compiler import ir
from cep.schema.stream import Role, Stream, qualified
from tests.oracle.expressions import Event

STREAM = "#stream"
"""Column of an event in a rule over several streams: the name of the event's stream."""

TIME = "#time"
"""Column of an event in a partition: its event time."""

ROLES = "#roles"
"""Column of an event in a partition: the numbers of the roles by which it takes part."""

Partitions = dict[tuple[Any, ...], list[Event]]


def event_of(stream: Stream, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of `stream` with the column names of a rule over several streams."""
    return {STREAM: stream.name, **{qualified(stream.name, name): value for name, value in event.items()}}


def columns_of(event: Event) -> dict[str, Any]:
    """Return an event of a partition without the columns that only partitions have."""
    return {name: value for name, value in event.items() if not name.startswith("#")}


def partition(rule: ir.Rule, streams: Sequence[Stream], events: Sequence[Event]) -> Partitions:
    """Return the events of each key in order.

    An event is once in each partition for which one of its roles gives the key.
    """
    roles = rule.roles or (Role(streams[0].name, rule.key),)
    partitions: Partitions = {}
    for event in events:
        stream = _stream_of(event, streams)
        column = _namer(stream, streams)
        roles_in: dict[tuple[Any, ...], set[int]] = {}
        for number, role in enumerate(roles):
            if role.stream == stream.name:
                key = tuple(event[column(name)] for name in role.key)
                if None not in key:
                    roles_in.setdefault(key, set()).add(number)
        for key, numbers in roles_in.items():
            placed = {**event, TIME: event[column(stream.event_time)], ROLES: numbers}
            partitions.setdefault(key, []).append(placed)
    return {key: _in_order(group, streams) for key, group in partitions.items()}


def times_of(streams: Sequence[Stream], events: Sequence[Event]) -> list[int]:
    """Return the time of each event, whether or not it is in a partition."""
    read = [(_stream_of(event, streams), event) for event in events]
    return [event[_namer(stream, streams)(stream.event_time)] for stream, event in read]


def _stream_of(event: Event, streams: Sequence[Stream]) -> Stream:
    return next(stream for stream in streams if event.get(STREAM, stream.name) == stream.name)


def _namer(stream: Stream, streams: Sequence[Stream]) -> Any:
    return lambda name: name if len(streams) == 1 else qualified(stream.name, name)


def _in_order(events: Sequence[Event], streams: Sequence[Stream]) -> list[Event]:
    def place(event: Event) -> tuple[Any, ...]:
        # NULL comes before every value. sorted() is stable, so remaining ties keep the order of arrival.
        stream = _stream_of(event, streams)
        column = _namer(stream, streams)
        ties = (event[column(name)] for name in stream.tie_break)
        return (
            event[TIME],
            streams.index(stream),
            *((True, value) if value is not None else (False,) for value in ties),
        )

    kept: list[Event] = []
    for event in sorted(events, key=place):
        is_copy = _stream_of(event, streams).deduplicate and kept and place(kept[-1]) == place(event)
        if not is_copy:
            kept.append(event)
    return kept
