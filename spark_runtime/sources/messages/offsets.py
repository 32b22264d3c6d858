"""Offsets of a source of messages: as JSON, and in the file that says where a stream began.

An offset says for each partition where reading it began and where it goes on:
``{"orders": {"0": [0, 981]}}``. A partition that is not in it is read from its beginning, once there is one.
It stands in checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cep.errors import StateError
from spark_runtime.sources.messages.log import Place

Position = tuple[int, int]
"""Where reading a partition began, and where it goes on."""


def of_json(offset: Mapping[str, Any]) -> dict[Place, Position]:
    """Return the positions of an offset. Partitions that are numbers in their log are numbers."""
    return {
        (log, int(name) if name.isdecimal() else name): (first, at)
        for log, partitions in offset.items()
        for name, (first, at) in partitions.items()
    }


def to_json(positions: Mapping[Place, Position]) -> dict[str, Any]:
    """Return positions as an offset."""
    found: dict[str, Any] = {}
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
    except (ValueError, TypeError, AttributeError) as error:
        raise StateError(
            "E0702",
            f"`{file}`, where the stream began, is damaged",
            "restore the checkpoint directory, or start with an empty one",
        ) from error
    return found


def write_start(file: Path, start: Mapping[str, Any]) -> None:
    """Write down where a stream begins."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(json.dumps(start))
    unfinished.replace(file)
