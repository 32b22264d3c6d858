"""Offsets of a source of messages: as JSON, and in the file that records where a stream started.

For each partition, an offset contains where reading started and where it continues:
``{"orders": {"0": [0, 981]}}``. Where it started may become more exact with the first messages. Other
partitions are read from their start when they appear. An empty name identifies the log:
``{"orders": {"": ["THHhIprKSoW", 0], "0": [0, 981]}}``. The number counts how often reading has restarted
because the log was deleted and recreated. Checkpoints contain offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_runtime.connectors.message_logs.log import Place
from spark_runtime.storage.checkpoint_files import damaged
from spark_runtime.storage.sealed import read_sealed_path, sealed

Position = tuple[int, int]
"""Where reading a partition started, and where it continues."""


Identity = tuple[str, int]
"""The identity of a log (`Incarnation.text`), and how often reading it has restarted."""

NOBODY: Identity = ("", 0)
"""The identity of a log whose server has no identities."""

_IDENTITY = ""


def of_json(offset: Mapping[str, Any]) -> dict[Place, Position]:
    """Return the positions of an offset. Numbered partitions are returned as numbers."""
    return {
        (log, int(name) if name.isdecimal() else name): (first, at)
        for log, partitions in offset.items()
        for name, (first, at) in partitions.items()
        if name != _IDENTITY
    }


def identities(offset: Mapping[str, Any]) -> dict[str, Identity]:
    """Return the identities of logs in an offset; earlier versions did not store them."""
    found = {}
    for log, partitions in offset.items():
        text, n_begun = partitions.get(_IDENTITY, NOBODY)
        found[log] = text, n_begun
    return found


def between(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[Place, Position]:
    """Return, for each partition, the start and end of the range between two offsets."""
    before, logs, later = of_json(start), identities(start), identities(end)
    found = {}
    for place, (first, stop) in of_json(end).items():
        is_continued = (
            place in before and before[place][0] == first and logs[place[0]][1] == later[place[0]][1]
        )
        found[place] = (before[place][1] if is_continued else first, stop)
    return found


def to_json(
    positions: Mapping[Place, Position], logs: Mapping[str, Identity] | None = None
) -> dict[str, Any]:
    """Return positions as an offset; `logs` contains the known identities of the logs."""
    found: dict[str, Any] = {
        log: {_IDENTITY: list(identity)}
        for log, identity in sorted((logs or {}).items())
        if identity != NOBODY
    }
    for (log, partition), position in sorted(positions.items()):
        found.setdefault(log, {})[str(partition)] = list(position)
    return found


def read_start(file: Path) -> dict[str, Any]:
    """Return the offset with which a stream started. Raises StateError: the file is damaged (E0702)."""

    def parsed(text: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(text)
        of_json(found)
        identities(found)
        return found

    return read_sealed_path(file, parsed, damaged(file))


def write_start(file: Path, start: Mapping[str, Any]) -> None:
    """Record where a stream starts."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(sealed(json.dumps(start)))
    unfinished.replace(file)
