"""Windows, computed from the beginning for each event, as plainly as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from cep.program.windows import Frame, Function, Window, WindowColumn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000


@dataclass(frozen=True)
class Event:
    """An event of a key. `value` is None for NULL."""

    time_us: int
    value: Any
    within: bool = True
    counts: bool = True


def value_at(column: WindowColumn, events: Sequence[Event], at: int) -> Any:
    """Return the value of a column for event `at` of a key whose events are in order."""
    framed = _framed(column.window, events, at)
    counting = [number for number in framed if events[number].counts]
    if column.function is Function.LAG:
        before = [number for number in counting if number < at]
        back = int(column.parameter)
        return events[before[-back]].value if back <= len(before) else None
    if column.argument is None:
        return len(counting)
    values = [events[number].value for number in counting]
    if column.function is Function.FIRST_VALUE:
        return values[0] if values else None
    if column.function is Function.LAST_VALUE:
        return values[-1] if values else None
    known = [value for value in values if value is not None]
    if column.function is Function.SEEN:
        own = events[at].value
        return None if own is None else _same(own) in {_same(value) for value in known}
    return _aggregate(column, known)


def _framed(window: Window, events: Sequence[Event], at: int) -> list[int]:
    now = events[at].time_us
    end = at if window.previous else at + 1
    seen = [number for number in range(end) if events[number].within]
    if window.frame is Frame.TIME and window.step_us:
        begin = now - window.length
        while begin % window.step_us:
            begin -= 1
        return [number for number in seen if events[number].time_us >= begin]
    if window.frame is Frame.TIME:
        return [number for number in seen if now - events[number].time_us <= window.length]
    if window.frame is Frame.EVENTS:
        return seen[-window.length :]
    if window.frame is Frame.TUMBLING:
        begin = begin_of(window, now)
        return [number for number in seen if events[number].time_us >= begin]
    if window.frame is Frame.SESSION:
        found: list[int] = []
        following = now
        for number in reversed(seen):
            if following - events[number].time_us > window.length:
                break
            found.insert(0, number)
            following = events[number].time_us
        return found
    return seen


def begin_of(window: Window, time_us: int) -> int:
    """Return when the tumbling window of a time began: minutes are tried one by one, backwards."""
    if not window.zone:
        return time_us - (time_us - window.offset_us) % window.length

    def number(minute: int) -> int:
        return local(minute) // window.length

    def local(minute: int) -> int:
        return _local_us(window.zone, minute) - window.offset_us

    minute = time_us // _MINUTE_US
    if window.length % _DAY_US == 0:
        # All that is between the first and the last minute of a window is in it.
        own = max(number(earlier) for earlier in range(minute - 300, minute + 1))
        begin = minute
        for earlier in range(minute, minute - window.length // _MINUTE_US - 300, -1):
            if number(earlier) == own:
                begin = earlier
        return begin * _MINUTE_US
    while not (local(minute) % window.length == 0 or number(minute) > number(minute - 1)):
        minute -= 1
    return minute * _MINUTE_US


@cache  # windows that follow each other ask for the same minutes
def _local_us(zone: str, minute: int) -> int:
    """Return the local time of a minute since 1970, in microseconds since the local beginning of 1970."""
    time = (_EPOCH + timedelta(minutes=minute)).astimezone(ZoneInfo(zone))
    return (time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _same(value: Any) -> Any:
    return "NaN" if value != value else value


def _rank(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value != value else (False, value)


def _rounded(exact: Fraction | int) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum(values: Sequence[float]) -> float:
    if all(map(math.isfinite, values)):
        return _rounded(sum(map(Fraction, values), Fraction(0)))
    special = {value for value in values if math.isinf(value)}
    return math.nan if any(map(math.isnan, values)) or len(special) > 1 else special.pop()


def _variance(values: Sequence[Any]) -> tuple[float, int] | None:
    """Return the variance as a number times a power of four."""
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan, 0
    n, exact = len(values), [Fraction(value) for value in values]
    total = n * sum((value * value for value in exact), Fraction(0)) - sum(exact, Fraction(0)) ** 2
    power = 0
    while total and total < Fraction(1, 2**200):
        total, power = total * 2**200, power - 200
    while total > 2**200:
        total, power = total / 2**200, power + 200
    return float(total) / (n * (n - 1)), power


def _scaled(value: float, power: int) -> float:
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.inf


def _aggregate(column: WindowColumn, known: list[Any]) -> Any:  # noqa: C901 - a case for each function
    match column.function:
        case Function.COUNT:
            return len(known)
        case Function.DISTINCT:
            return len({_same(value) for value in known})
    if not known:
        return None
    is_double = isinstance(known[0], float)
    match column.function:
        case Function.SUM if is_double:
            return _sum(known)
        case Function.SUM:
            return sum(known) if -(2**63) <= sum(known) < 2**63 else None
        case Function.AVG:
            return (_sum(known) if is_double else float(sum(known))) / len(known)
        case Function.MIN:
            return min(known, key=_rank)
        case Function.MAX:
            return max(known, key=_rank)
        case Function.VARIANCE:
            found = _variance(known)
            return None if found is None else _scaled(*found)
        case Function.STDDEV:
            found = _variance(known)
            return None if found is None else _scaled(math.sqrt(found[0]), found[1] // 2)
        case Function.PERCENTILE:
            ordered = sorted(known, key=_rank)
            place = column.parameter * (len(ordered) - 1)
            low = math.floor(place)
            below, above = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
            if place == low or _rank(below) == _rank(above):
                return float(below)
            return (low + 1 - place) * float(below) + (place - low) * float(above)
    raise AssertionError(column.function)
