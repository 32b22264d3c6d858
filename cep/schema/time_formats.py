r"""Formats of dates and times, written as for `strptime`. Only directives for a point in time are supported.

======  ==========================================================================================
%Y %y   year: four digits; two digits, from 1969 to 2068
%m      month: 1 to 12;  %b: Jan to Dec;  %B: January to December
%d      day of the month: 1 to 31
%H      hour: 0 to 23;  %I with %p: 1 to 12 with AM or PM
%M %S   minute, second: 0 to 59
%f      one to nine digits of a fraction of a second; digits after the microsecond are cut off
%z      Z, +02, +0200 or +02:00
%a %A   day of the week: Mon to Sun, Monday to Sunday; not compared with the date
%%      the sign %
======  ==========================================================================================

The leading zero of a number is optional. Names are English, in upper or lower case. All other characters
stand for themselves. A format becomes one regular expression, in the syntax that Python and RE2 (Arrow)
share. `cep.schema.time_values` reads columns of strings. This module does not load Arrow, so a check of
formats starts fast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import available_timezones

_MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

MONTHS = [name[:3].lower() for name in _MONTH_NAMES]
"""First three letters of the month names. They differ for each two months."""


def _any_case(words: tuple[str, ...]) -> str:
    """Return a pattern for any of `words` in upper and lower case.

    The pattern has no flag for upper and lower case, because the flag would match letters beyond ASCII too.
    """
    return "|".join("".join(f"[{letter.upper()}{letter.lower()}]" for letter in word) for word in words)


_DIRECTIVES: dict[str, str] = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "b": _any_case(tuple(name[:3] for name in _MONTH_NAMES)),
    "B": _any_case(_MONTH_NAMES),
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]",
    "H": "2[0-3]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]",
    "p": _any_case(("AM", "PM")),
    "M": "[0-5][0-9]|[0-9]",
    "S": "[0-5][0-9]|[0-9]",
    "f": "[0-9]{1,9}",
    "z": "Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?",
    "a": _any_case(tuple(name[:3] for name in _DAY_NAMES)),
    "A": _any_case(_DAY_NAMES),
}
"""Directive -> the pattern of the texts that it stands for."""

_INSTEAD: dict[str, str] = {
    "e": "%d",
    "k": "%H",
    "l": "%I",
    "h": "%b",
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "F": "%Y-%m-%d",
    "D": "%m/%d/%y",
    "r": "%I:%M:%S %p",
    "L": "%f",
    "N": "%f",
    "P": "%p",
    "Z": "%z, or leave it out and declare `zone`",
}
"""Directive of another tool -> the directive to write here."""

_OF_ONE_KIND: tuple[tuple[str, str], ...] = (
    ("Y", "y"),
    ("m", "b"),
    ("m", "B"),
    ("b", "B"),
    ("H", "I"),
    ("a", "A"),
)

_OF_TIME = frozenset("HIpMSfz")

_SIGN = re.compile(r"%(-?)(.?)|[^%]+", re.DOTALL)

_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)


ZONE_ADVICE = "a name such as Europe/Berlin, America/New_York or UTC"


@cache
def zones() -> frozenset[str]:
    """Return the names of all time zones. `localtime`, the zone of this machine, is not one of them."""
    return frozenset(available_timezones() - {"localtime"})


class FormatError(ValueError):
    """A string is not a format of times. The error says why, and `help` says what to write instead."""

    def __init__(self, problem: str, help_text: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.help = help_text


@dataclass(frozen=True)
class TimeFormat:
    """A format of times. `pattern` has one group for each directive in `names`."""

    pattern: str
    names: tuple[str, ...]

    @property
    def has_zone(self) -> bool:
        """Whether the strings contain their time zone."""
        return "z" in self.names

    @property
    def has_time(self) -> bool:
        """Whether the strings contain a time of day or a zone, not only a day."""
        return not _OF_TIME.isdisjoint(self.names)

    def value(self, text: str) -> tuple[int, bool] | None:
        """Return the microseconds since 1970, and whether `text` contains its zone.

        Return None if `text` does not fit the format.
        """
        found = re.fullmatch(self.pattern, text)
        if found is None:
            return None
        parts = found.groupdict()
        year = int(parts["Y"]) if "Y" in parts else century(int(parts["y"]))
        month = int(parts["m"]) if "m" in parts else _month(parts.get("b") or parts["B"])
        try:
            days = (date(year, month, int(parts["d"])) - _EPOCH).days
        except ValueError:
            return None
        hour = int(parts.get("H") or parts.get("I") or 0)
        if "I" in parts:
            hour = hour % 12 + 12 * (parts["p"].upper() == "PM")
        time = timedelta(hours=hour, minutes=int(parts.get("M", 0)), seconds=int(parts.get("S", 0)))
        us = days * _DAY_US + time // timedelta(microseconds=1)
        us += int(parts.get("f", "0")[:6].ljust(6, "0"))
        if "z" in parts:
            digits = parts["z"].replace("Z", "+").replace(":", "").ljust(5, "0")
            minutes = int(digits[1:3]) * 60 + int(digits[3:])
            us -= (-minutes if digits[0] == "-" else minutes) * 60_000_000
        return us, "z" in parts


def time_text(text: str, time: datetime) -> str:
    """Return `time` written in the format `text`. If the format has a zone, `time` must be in UTC."""
    found = {
        "Y": f"{time.year:04}",
        "y": f"{time.year % 100:02}",
        "m": f"{time.month:02}",
        "b": _MONTH_NAMES[time.month - 1][:3],
        "B": _MONTH_NAMES[time.month - 1],
        "d": f"{time.day:02}",
        "H": f"{time.hour:02}",
        "I": f"{time.hour % 12 or 12:02}",
        "p": "AM" if time.hour < 12 else "PM",
        "M": f"{time.minute:02}",
        "S": f"{time.second:02}",
        "f": f"{time.microsecond:06}",
        "z": "Z",
        "a": _DAY_NAMES[time.weekday()][:3],
        "A": _DAY_NAMES[time.weekday()],
        "%": "%",
    }
    return _SIGN.sub(lambda sign: found[sign[2]] if sign[2] else sign[0], text)


@lru_cache(maxsize=256)
def read_format(text: str) -> TimeFormat:
    """Return the format that `text` describes. Raises FormatError if `text` is not a format."""
    pattern = ""
    names: list[str] = []
    for found in _SIGN.finditer(text):
        if not found[0].startswith("%"):
            pattern += re.escape(found[0])
            continue
        name = found[2]
        if name == "%" and not found[1]:
            pattern += "%"
            continue
        if found[1] or name not in _DIRECTIVES:
            raise FormatError(f"there is no `{found[0]}` in a format", _instead(found[1], name))
        if name in names:
            raise FormatError(f"`%{name}` occurs twice", "write it once")
        names.append(name)
        pattern += f"(?P<{name}>{_DIRECTIVES[name]})"
    if not names:
        raise FormatError(
            "the format says nothing about a time",
            f'write it as strptime does, for example "{_translated(text) or "%d/%m/%Y %H:%M:%S"}"',
        )
    for one, other in _OF_ONE_KIND:
        if one in names and other in names:
            raise FormatError(f"`%{one}` and `%{other}` together", "keep one of them")
    for part, choices in (("a year", "Yy"), ("a month", "mbB"), ("a day", "d")):
        if not any(name in names for name in choices):
            raise FormatError(
                f"the format does not say {part}", f"add {' or '.join('%' + name for name in choices)}"
            )
    if ("I" in names) != ("p" in names):
        raise FormatError(
            "`%I` and `%p` go together", "write %H for hours of 0 to 23, %I with %p for AM and PM"
        )
    return TimeFormat(pattern, tuple(names))


def _instead(dash: str, name: str) -> str:
    if dash and name in _DIRECTIVES:
        return f"write %{name}: a number may have a leading zero or not"
    if name == "s":
        return "for seconds since 1970 declare `unit: seconds` instead"
    if name in _INSTEAD:
        return f"write {_INSTEAD[name]}"
    return f"there are {' '.join('%' + known for known in _DIRECTIVES)} and %%"


_OF_JAVA: dict[str, str] = {
    **{"yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "M": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d"},
    **{"d": "%d", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S"},
    **{"SSS": "%f", "SSSSSS": "%f", "a": "%p", "X": "%z", "XXX": "%z", "Z": "%z", "EEE": "%a", "EEEE": "%A"},
    **{"YYYY": "%Y", "DD": "%d", "T": "T"},
}


def _translated(text: str) -> str | None:
    """Return a format in Java's pattern language as strptime writes it, or None if `text` is not one."""
    parts = re.findall(r"([A-Za-z])(\1*)|([^A-Za-z'])", text)
    words = [(letter + more, sign) for letter, more, sign in parts]
    if not words or any(word and word not in _OF_JAVA for word, _ in words):
        return None
    return "".join(_OF_JAVA[word] if word else sign for word, sign in words)


def century(year: int) -> int:
    """Return the year that two digits stand for."""
    return year + (1900 if year >= 69 else 2000)


def _month(name: str) -> int:
    return MONTHS.index(name[:3].lower()) + 1
