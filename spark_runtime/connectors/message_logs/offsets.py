"""Offsets of a source of messages: as JSON, and in the file that says where a stream began.

An offset says for each partition where reading it began and where it goes on:
``{"orders": {"0": [0, 981]}}``. A partition that is not in it is read from its beginning, once there is one.
With an empty name it says which log this is: ``{"orders": {"": ["THHhIprKSoW", 0], "0": [0, 981]}}``. The
number counts how often reading has begun anew, because the log was deleted and made again. It stands in
checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_runtime.connectors.message_logs.log import Place
from spark_runtime.storage.checkpoint_files import damaged

Position = tuple[int, int]
"""Where reading a partition began, and where it goes on."""


Identity = tuple[str, int]
"""What tells a log from others of its name (`Incarnation.text`), and how often reading it has begun anew."""

NOBODY: Identity = ("", 0)
"""Of a log whose server does not tell it from others."""

_IDENTITY = ""


def of_json(offset: Mapping[str, Any]) -> dict[Place, Position]:
    """Return the positions of an offset. Partitions that are numbers in their log are numbers."""
    return {
        (log, int(name) if name.isdecimal() else name): (first, at)
        for log, partitions in offset.items()
        for name, (first, at) in partitions.items()
        if name != _IDENTITY
    }


def identities(offset: Mapping[str, Any]) -> dict[str, Identity]:
    """Return which logs an offset speaks of; an earlier version did not say it."""
    found = {}
    for log, partitions in offset.items():
        text, n_begun = partitions.get(_IDENTITY, NOBODY)
        found[log] = text, n_begun
    return found


def between(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[Place, Position]:
    """Return for each partition what lies between two offsets: from where, up to where."""
    before, logs, later = of_json(start), identities(start), identities(end)
    found = {}
    for place, (first, stop) in of_json(end).items():
        is_continued = place in before and logs[place[0]][1] == later[place[0]][1]
        found[place] = (before[place][1] if is_continued else first, stop)
    return found


def to_json(
    positions: Mapping[Place, Position], logs: Mapping[str, Identity] | None = None
) -> dict[str, Any]:
    """Return positions as an offset; `logs` says which logs these are, as far as that is known."""
    found: dict[str, Any] = {
        log: {_IDENTITY: list(identity)}
        for log, identity in sorted((logs or {}).items())
        if identity != NOBODY
    }
    for (log, partition), position in sorted(positions.items()):
        found.setdefault(log, {})[str(partition)] = list(position)
    return found


def read_start(file: Path) -> dict[str, Any]:
    """Return the offset that a stream began with.

    Raises
    ------
    StateError
        The file is damaged (E0702).
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text())
        of_json(found)
        identities(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(file) from error
    return found


def write_start(file: Path, start: Mapping[str, Any]) -> None:
    """Write down where a stream begins."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(json.dumps(start))
    unfinished.replace(file)
