"""Lines of text protocols as JSON events. A line in another form is kept unchanged.

A pipeline turns such a line into a dead letter, so nothing disappears.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

Form = Callable[[bytes], list[bytes]]
"""One line -> its events."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_TIME = re.compile(r"T[0-9]{1,18}")
_NEW = re.compile(
    r"<(\d{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) (-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: (.*))?", re.DOTALL
)
_OLD = re.compile(
    r"<(\d{1,3})>(?:([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) )?"
    r"(?:([^\s:\[\]]{1,48})(?:\[([^\]]*)\])?: ?)?(.*)",
    re.DOTALL,
)
_MAX_PRIORITY = 191


def as_is(line: bytes) -> list[bytes]:
    """Return the line."""
    return [line]


def as_text(line: bytes) -> list[bytes]:
    """Return an event with the line as its ``text``."""
    return [_event({"text": line.decode(errors="replace")})]


def as_statsd(line: bytes) -> list[bytes]:
    """Return an event for each value of a line ``name:value|type|@rate|#tags``."""
    try:
        head, *rest = line.decode().split("|")
        name, *values = head.split(":")
        kind, *more = rest
    except ValueError:
        return [line]
    event: dict[str, Any] = {"name": name, "type": kind}
    for part in more:
        if part.startswith("@") and _is_number(part[1:]):
            event["rate"] = float(part[1:])
        elif part.startswith("#"):
            event["tags"] = {
                key: value for key, _, value in (tag.partition(":") for tag in part[1:].split(","))
            }
        elif _TIME.fullmatch(part):
            event["time"] = int(part[1:])
        elif not part.startswith("c:"):  # the container that a metric comes from
            return [line]
    if not name or not kind or not values:
        return [line]
    if kind == "s":
        return [_event({**event, "member": ":".join(values)})]
    if not all(map(_is_number, values)):
        return [line]
    is_change = kind == "g" and values[0][0] in "+-"
    changes = {"is_change": True} if is_change else {}
    return [_event({**event, "value": float(value), **changes}) for value in values]


def as_syslog(line: bytes) -> list[bytes]:
    """Return the event of a syslog line (RFC 5424 or RFC 3164)."""
    text = line.decode(errors="replace").removeprefix("\ufeff")
    event: dict[str, Any]
    if found := _NEW.fullmatch(text):
        priority, time, host, app, process, kind, data, rest = found.groups()
        event = {"time": time, "host": host, "app": app, "process": process, "kind": kind, "data": data}
        event = {name: value for name, value in event.items() if value != "-"}
        event["text"] = (rest or "").removeprefix("\ufeff")
    elif found := _OLD.fullmatch(text):
        priority, time, host, app, process, rest = found.groups()
        event = {"local_time": time, "host": host, "app": app, "process": process}
        event = {name: value for name, value in event.items() if value is not None}
        event["text"] = rest
    else:
        return [line]
    if int(priority) > _MAX_PRIORITY:
        return [line]
    return [_event({"facility": int(priority) // 8, "severity": int(priority) % 8, **event})]


FORMS: dict[str, Form] = {"message": as_is, "text": as_text, "syslog": as_syslog, "statsd": as_statsd}
"""By the name that an option gives."""


def _is_number(text: str) -> bool:
    """Return whether a text is a number that JSON can write."""
    return bool(_NUMBER.fullmatch(text)) and math.isfinite(float(text))


def _event(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode(errors="replace")
