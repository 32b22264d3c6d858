"""Strings that name the folder of a source, in a form that does not depend on its place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_runtime.sources.protocol import Range
from spark_runtime.wire.plan import Plan


def without_paths(value: Any, places: Mapping[str, str]) -> Any:
    """Return a JSON value in which no string names the folder of a source.

    `places` contains the place of each source, by stream.
    """
    folders = sorted(_folders(places).items(), key=lambda item: -len(item[1]))  # the innermost first

    def changed(text: str) -> str:
        for name, folder in folders:
            text = f"<{name}>".join(re.split(rf"{re.escape(folder)}(?=[/:\]]|$)", text))
        return text

    return _mapped(value, changed)


def with_paths(value: Any, places: Mapping[str, str]) -> Any:
    """Reverse `without_paths`, for sources in these places."""

    def changed(text: str) -> str:
        for name, folder in _folders(places).items():
            text = text.replace(f"<{name}>", folder)
        return text

    return _mapped(value, changed)


def moved(plan: Plan, before: Mapping[str, str], now: Mapping[str, str]) -> Plan:
    """Return a plan that reads files where they are now, if their source was moved after it was written.

    A file that still exists at its old place is read there.

    `before` and `now`: the places of sources.
    """
    folders = {
        name: (old, new)
        for name, place in now.items()
        if (old := folder_of(before.get(name, ""))) and (new := folder_of(place)) and old != new
    }

    def at(name: str, part: Range) -> Range:
        old, new = folders.get(name, ("", ""))
        path = part[0]
        if not old or not isinstance(path, str) or not f"{path}/".startswith(f"{old}/"):
            return part
        there = new + path.removeprefix(old)
        return (there, *part[1:]) if not os.path.exists(path) and os.path.exists(there) else part

    return replace(plan, shares=[[(name, at(name, part)) for name, part in share] for share in plan.shares])


def portable(place: str) -> str:
    """Return the place of a source; empty if it is a path."""
    return "" if folder_of(place) else place


def _folders(places: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of each source that has one."""
    return {name: folder for name, place in places.items() if (folder := folder_of(place))}


def folder_of(place: str) -> str:
    """Return the path in the place of a source up to the first part that is a pattern; empty: no path."""
    if not place.startswith("/"):
        return ""
    parts = place.split("/")
    n = next((number for number, part in enumerate(parts) if set(part) & set("{}*?[")), len(parts))
    return "/".join(parts[:n])


def _mapped(value: Any, changed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, Mapping):
        return {changed(name): _mapped(item, changed) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_mapped(item, changed) for item in value]
    return value
