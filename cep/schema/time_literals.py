"""Points in time and durations as people write them, in rules and in YAML files."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit of time: the word that is printed, and its length."""

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

SHORT_UNITS: dict[str, int] = {
    "W": 604_800_000_000,
    "D": 86_400_000_000,
    "H": 3_600_000_000,
    "MIN": 60_000_000,
    "M": 60_000_000,
    "SEC": 1_000_000,
    "S": 1_000_000,
    "MS": 1_000,
    "US": 1,
}
"""Short word for a unit, in upper case -> microseconds."""

UNIT_WORDS: dict[str, int] = {
    spelling: unit.length_us for unit in UNITS for spelling in (unit.word, unit.word.removesuffix("S"))
} | SHORT_UNITS
"""Unit of time as written, in upper case -> microseconds."""

MAX_DURATION_US = 36_500 * 86_400_000_000
"""Longest duration: 36,500 days. It is limited because event time plus a duration must fit into 64 bits."""

_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_AMOUNT = r"\d{1,18}(?:\.\d{1,18})?|\.\d{1,18}"
_PART = re.compile(rf"\s*({_AMOUNT})\s*([A-Za-z]+)\s*", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def parse_timestamp(text: str) -> int | None:
    """Return the microseconds since 1970-01-01T00:00Z of an ISO 8601 date or time.

    A text without a zone is in UTC. Return None if `text` is not a date or a time.
    """
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


def time_for_people(us: int) -> str | None:
    """Return a time as ISO 8601, in its shortest exact form; None: it is outside the years 1 to 9999."""
    try:
        time = _EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:
        return None
    return time.isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> int | None:
    """Return the microseconds of a string such as ``10 seconds``, ``10s`` or ``1 hour 30 minutes``.

    Return None if `text` is not a duration, or not a whole number of microseconds.
    """
    total_us = 0
    at = 0
    while at < len(text) or at == 0:
        part = _PART.match(text, at)
        if part is None:
            return None
        unit_us = UNIT_WORDS.get(part[2].upper())
        length_us = None if unit_us is None else times_unit(part[1], unit_us)
        if length_us is None:
            return None
        total_us += length_us
        at = part.end()
    return total_us


def is_amount(text: str) -> bool:
    """Return whether `text` can be before a unit: digits with or without a fraction."""
    return re.fullmatch(_AMOUNT, text, re.ASCII) is not None


def times_unit(amount: str, unit_us: int) -> int | None:
    """Return `amount` times a unit in microseconds, or None if the result is not a whole number."""
    whole, _, fraction = amount.partition(".")
    total, rest = divmod(int(whole + fraction) * unit_us, 10 ** len(fraction))
    return None if rest else total


def print_duration(length_us: int) -> str:
    """Return a duration in its largest whole unit."""
    if length_us == 0:
        return "0 SECONDS"
    unit = next(unit for unit in UNITS if length_us % unit.length_us == 0)
    amount = length_us // unit.length_us
    return f"{amount} {unit.word.removesuffix('S') if amount == 1 else unit.word}"
