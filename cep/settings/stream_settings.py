"""Settings of a stream that name its columns, and lengths of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from cep.diagnostics.diagnostic import did_you_mean
from cep.expression import Type
from cep.schema.stream import MAX_BEHIND_US, DeviceClock, Field
from cep.schema.time_literals import MAX_DURATION_US, parse_duration
from cep.settings.yaml_document import Document

_CLOCK = ("device", "event", "sent", "received")


def check_column(
    document: Document, setting: str, name: str, node: yaml.Node, fields: Sequence[Field] | None
) -> Field | None:
    """Return the column that a setting names, or None after a report if there is none."""
    if fields is None:
        return None
    column = next((field for field in fields if field.name == name), None)
    if column is None:
        document.problem(
            "E0407",
            f"`{setting}` names `{name}`, which is not in the schema",
            node,
            "not a column of this stream",
            did_you_mean(name, [field.name for field in fields], "columns"),
        )
    return column


def duration(
    document: Document, settings: Mapping[str, yaml.Node], name: str, example: str, default: int
) -> int:
    """Return the microseconds of the setting `name`, or `default` if it is missing or wrong."""
    if name not in settings:
        return default
    node = settings[name]
    text = document.text(node, f"`{name}`")
    if text is None:
        return default
    length = parse_duration(text)
    if length is None:
        document.problem(
            "E0409",
            f"`{text}` is not a duration",
            node,
            "expected a number and a unit",
            f"write for example: {name}: {example}",
        )
        return default
    if length > MAX_DURATION_US:
        document.problem(
            "E0907", "a duration of more than 36,500 days", node, "too long", "use 36,500 days or less"
        )
    return length


def device_clock(
    document: Document, node: yaml.Node, event_time: str, fields: Sequence[Field] | None
) -> DeviceClock | None:
    """Return from which columns the event time of a stream is estimated; None after a report."""
    found = document.settings(node, "`device_clock`", (*_CLOCK, "max_behind"), _CLOCK)
    if found is None:
        return None
    n_problems = len(document.diagnostics)
    names: dict[str, str] = {}
    for setting in _CLOCK:
        if setting not in found:
            continue
        place = found[setting]
        names[setting] = document.text(place, f"`{setting}`") or ""
        if names[setting] == event_time:
            document.problem(
                "E0416",
                f"`{setting}` names `{event_time}`, the event time",
                place,
                "the event time is estimated from other columns",
                "give the event time a name of its own, which no column of the data has",
            )
            continue
        column = check_column(document, f"device_clock: {setting}", names[setting], place, fields)
        if column is None:
            continue
        if setting == "device" and column.type is Type.OPAQUE:
            document.problem(
                "E0402",
                f"`device` names `{column.name}`, which is {column.ddl}",
                place,
                "no single value",
                "name a column of single values, such as a serial number",
            )
        if setting != "device" and column.ddl != "timestamp":
            document.problem(
                "E0408",
                f"`{setting}` names `{column.name}`, which is {column.ddl}, not timestamp",
                place,
                "not a point in time",
                f"declare {column.name}: timestamp, or name another column",
            )
    max_behind_us = duration(document, found, "max_behind", "30 days", MAX_BEHIND_US)
    if len(document.diagnostics) > n_problems or len(names) < len(_CLOCK):
        return None
    return DeviceClock(**names, max_behind_us=max_behind_us)
