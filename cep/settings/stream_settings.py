"""Settings of a stream that name its columns, and lengths of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cep.diagnostics.diagnostic import did_you_mean
from cep.expression import Type
from cep.schema.stream import MAX_BEHIND_US, DeviceClock, Field
from cep.schema.time_literals import MAX_DURATION_US
from cep.settings import declared
from cep.settings.declared import Wrong, declared_settings, read
from cep.settings.settings import Settings
from cep.settings.yaml_document import Document

Placed = tuple[str, yaml.Node]
"""The name of a column, and where it is given."""


def placed_names(settings: Settings, name: str) -> tuple[Placed, ...]:
    """Return a string or a list of strings, each with its place."""
    return tuple(settings.document.texts(settings.found[name], f"`{name}`") or ())


def length_us(name: str, default: int, example: str) -> Any:
    """Declare a duration of a stream."""
    return declared.duration(
        default, "us", example=example, name=name, valid=lambda us: us <= MAX_DURATION_US, wrong=_TOO_LONG
    )


_TOO_LONG = Wrong("a duration of more than 36,500 days", "too long", "use 36,500 days or less", "E0907")


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


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The setting `device_clock`: columns."""

    device: str = declared.text()
    event: str = declared.text()
    sent: str = declared.text()
    received: str = declared.text()
    max_behind_us: int = length_us("max_behind", MAX_BEHIND_US, "30 days")


def device_clock(settings: Settings, event_time: str, fields: Sequence[Field] | None) -> DeviceClock | None:
    """Return the columns from which the event time of a stream is estimated, or None after a report."""
    known = declared_settings(ClockSettings)
    clock = [name for name, setting in known.items() if setting.is_required]
    inner = settings.inside("device_clock", known, clock)
    if inner is None:
        return None
    n_problems = inner.n_problems
    given = read(ClockSettings, inner, is_complete=True)
    for setting in clock:
        if setting not in inner:
            continue
        name, place = getattr(given, setting), inner.found[setting]
        if name == event_time:
            inner.problem(
                "E0416",
                f"`{setting}` names `{event_time}`, the event time",
                setting,
                "the event time is estimated from other columns",
                "give the event time a name of its own, which no column of the data has",
            )
            continue
        column = check_column(inner.document, f"device_clock: {setting}", name, place, fields)
        if column is None:
            continue
        names = f"`{setting}` names `{column.name}`, which is {column.ddl}"
        if setting == "device" and column.type is Type.OPAQUE:
            advice = "name a column of single values, such as a serial number"
            inner.problem("E0402", names, setting, "no single value", advice)
        if setting != "device" and column.ddl != "timestamp":
            advice = f"declare {column.name}: timestamp, or name another column"
            inner.problem("E0408", f"{names}, not timestamp", setting, "not a point in time", advice)
    if inner.n_problems > n_problems or any(name not in inner for name in clock):
        return None
    return DeviceClock(given.device, given.event, given.sent, given.received, given.max_behind_us)
