"""The profile of a stream as data, and its file: ``STREAM.profile.json`` next to the streams file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cep.errors import InputError
from cep.spool.folder import write_whole

ENDING = ".profile.json"

MAX_VALUES = 10_000
"""Different values of a column that are counted; of a column with more, no value is."""

_FORMAT = 1
"""The form of the file. A reader refuses another one."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What a column contains.

    - `type`: its type, as the streams file declares it.
    - `n_null`: in how many events it is NULL.
    - `counts`: how often each value occurs, most frequent first, by its text; None: there are more than
      `MAX_VALUES`, or values of this type are not counted.
    - `least`, `greatest`: the range of numbers, and of times as microseconds; None: there is none.
    """

    type: str
    n_null: int
    counts: Mapping[str, int] | None = None
    least: float | None = None
    greatest: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """What the events of a stream look like.

    - `n_malformed`: lines that are not events.
    - `first_us`, `last_us`: the earliest and the latest event time; None: there is none.
    - `n_disordered`: events that come after one with a later time. - `most_late_us`: by how much at most.
    - `gap_us`, `gap_from_us`: the longest time without an event, and its beginning.
    """

    stream: str
    n_events: int
    n_malformed: int
    first_us: int | None
    last_us: int | None
    n_disordered: int
    most_late_us: int
    gap_us: int
    gap_from_us: int | None
    columns: Mapping[str, ColumnProfile]


def value_text(value: object) -> str:
    """Return the text by which a value is counted."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def profile_file(streams_file: Path, stream: str) -> Path:
    """Return the file of a stream's profile: beside the streams file, whatever the name of the stream."""
    name = stream.replace("/", "%2F").replace("\0", "%00")
    return streams_file.with_name(f"{name}{ENDING}")


def write_profile(streams_file: Path, profile: Profile) -> Path:
    """Write a profile next to the streams file, and return its file."""
    path = profile_file(streams_file, profile.stream)
    text = json.dumps({"format": _FORMAT, **asdict(profile)}, ensure_ascii=False, indent=1)
    write_whole(path, text + "\n")
    return path


def read_profile(streams_file: Path, stream: str) -> Profile | None:
    """Return the profile of a stream; None: there is no file.

    Raises InputError (E0651): the file is not a profile of this version.
    """
    path = profile_file(streams_file, stream)
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != _FORMAT:
            raise ValueError
        columns = {name: ColumnProfile(**column) for name, column in found.pop("columns").items()}
        return Profile(columns=columns, **found)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise InputError(
            "E0651", f"`{path}` is no profile of this version", "write it again: cep profile, or remove it"
        ) from None
