"""Points in time and durations as people write them, in rules and in YAML files."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit of time, as it is printed."""

    word: str
    length_us: int


UNITS: tuple[Unit, ...] = (
    Unit("WEEKS", 604_800_000_000),
    Unit("DAYS", 86_400_000_000),
    Unit("HOURS", 3_600_000_000),
    Unit("MINUTES", 60_000_000),
    Unit("SECONDS", 1_000_000),
    Unit("MILLISECONDS", 1_000),
    Unit("MICROSECONDS", 1),
)
"""Units of time, the longest first."""

UNIT_WORDS: dict[str, int] = {
    spelling: unit.length_us for unit in UNITS for spelling in (unit.word, unit.word.removesuffix("S"))
}
"""Unit of time as written, in upper case -> microseconds."""

MAX_DURATION_US = 36_500 * 86_400_000_000
"""Longest duration: 36,500 days. Event time plus a duration must stay inside 64 bits."""

_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_DURATION = re.compile(r"\s*(\d{1,18})\s*([A-Za-z]+)\s*", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def parse_timestamp(text: str) -> int | None:
    """Return the microseconds since 1970-01-01T00:00Z of an ISO 8601 date or time, UTC unless it says."""
    if not _TIMESTAMP.fullmatch(text):
        return None
    try:
        value = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - _EPOCH) // _MICROSECOND


def print_timestamp(time_us: int) -> str:
    """Return a point in time in UTC, without a zone."""
    return (_EPOCH + datetime.timedelta(microseconds=time_us)).replace(tzinfo=None).isoformat(" ")


def parse_duration(text: str) -> int | None:
    """Return the microseconds of a text such as ``10 seconds``."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2].upper() not in UNIT_WORDS:
        return None
    return int(found[1]) * UNIT_WORDS[found[2].upper()]


def print_duration(length_us: int) -> str:
    """Return a duration in its largest whole unit."""
    if length_us == 0:
        return "0 SECONDS"
    unit = next(unit for unit in UNITS if length_us % unit.length_us == 0)
    amount = length_us // unit.length_us
    return f"{amount} {unit.word.removesuffix('S') if amount == 1 else unit.word}"
