"""The profile of a stream as data, and its file: ``STREAM.profile.json`` next to the streams file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cep.errors import InputError
from cep.spool.folder import write_whole

ENDING = ".profile.json"

MAX_VALUES = 10_000
"""Different values of a column that are counted; of a column with more, no value is."""

_FORMAT = 1
"""The form of the file. A reader refuses another one."""


_TIMES = ("timestamp", "date")
_OPAQUE = ("array<", "map<", "struct<", "binary")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
"""Beginnings of declared types."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What a column contains.

    - `type`: its type, as the streams file declares it.
    - `n_null`: in how many events it is NULL.
    - `counts`: how often each value occurs, most frequent first, by its text; None: there are more than
      `MAX_VALUES`, or values of this type are not counted.
    - `least`, `greatest`: the range of numbers other than NaN, and of times as microseconds; None: there is
      none.
    - `n_nan`: in how many events it is NaN, which rules take as greater than every number.
    """

    type: str
    n_null: int
    counts: Mapping[str, int] | None = None
    least: float | None = None
    greatest: float | None = None
    n_nan: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether values of its type are counted, if there are not too many."""
        return not self.type.startswith((*_TIMES, *_OPAQUE))

    @property
    def is_time(self) -> bool:
        """Whether its range is one of times."""
        return self.type.startswith(_TIMES)


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


def number_text(value: float) -> str:
    """Return a number for people, with the words for infinities that rules and events have."""
    return f"{value:,}".replace("inf", "Infinity")


def profile_file(streams_file: Path, stream: str) -> Path:
    """Return the file of a stream's profile: beside the streams file, whatever the name of the stream."""
    name = stream.replace("/", "%2F").replace("\0", "%00")
    return streams_file.with_name(f"{name}{ENDING}")


def write_profile(streams_file: Path, profile: Profile) -> Path:
    """Write a profile next to the streams file, and return its file."""
    from cep.schema.text_values import json_text  # loads Arrow, which `cep check` does without

    path = profile_file(streams_file, profile.stream)
    text = json_text({"format": _FORMAT, **asdict(profile)}, indent=1)
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
        columns = {name: _column(column) for name, column in found.pop("columns").items()}
        profile = Profile(columns=columns, **found)
        _require(isinstance(profile.stream, str))
        for name in _WHOLE:
            _require(_is_whole(getattr(profile, name)))
        for name in _TIMES_OF_EVENTS:
            us = getattr(profile, name)
            _require(us is None or type(us) is int)
        return profile
    except (OSError, ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        raise InputError(
            "E0651", f"`{path}` is no profile of this version", "write it again: cep profile, or remove it"
        ) from None


_WHOLE = ("n_events", "n_malformed", "n_disordered", "most_late_us", "gap_us")
_TIMES_OF_EVENTS = ("first_us", "last_us", "gap_from_us")


def _column(found: dict[str, Any]) -> ColumnProfile:
    """Return the profile of a column. Raises ValueError, TypeError or OverflowError: it is damaged."""
    column = ColumnProfile(**found)
    _require(isinstance(column.type, str) and _is_whole(column.n_null) and _is_whole(column.n_nan))
    counts = column.counts
    if counts is not None:
        _require(isinstance(counts, dict) and all(map(_is_whole, counts.values())))
        if column.type.startswith(_NUMBERS):
            for text in counts:
                float(text)
    n_nan = column.n_nan
    if "n_nan" not in found and column.type.startswith(("float", "double")):  # of an earlier version
        n_nan = (counts or {}).get("nan", 0)
    return replace(column, n_nan=n_nan, least=_end(column.least), greatest=_end(column.greatest))


def _end(found: object) -> float | None:
    """Return the end of a range; an infinite one is a string, as all outputs of JSON have it.

    Earlier versions wrote it as a number, and NaN where all values were NaN. Raises ValueError: it is no
    number. Raises OverflowError: it is beyond every DOUBLE.
    """
    if found is None:
        return None
    _require(type(found) in (int, float) or found in ("Infinity", "-Infinity"))
    value = float(found)  # type: ignore[arg-type]
    if value != value:
        return None
    return found if type(found) is int else value


def _is_whole(found: object) -> bool:
    return type(found) is int and found >= 0


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
