"""Windowed values, computed anew for each event (docs/language/semantics/windows.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from cep.compiler import ir
from cep.expression import Expression, Frame, Type, Window, Windowed, walk

Event = Any
Evaluate = Callable[[Expression, Event], Any]

_INT64 = range(-(2**63), 2**63)
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def windows_of(rule: ir.Rule) -> Iterator[Windowed]:
    """Yield the windowed aggregates of a rule."""
    expressions = [variable.predicate for variable in rule.variables if variable.predicate is not None]
    expressions += [measure.expression for measure in rule.measures]
    for expression in expressions:
        yield from (node for node in walk(expression) if isinstance(node, Windowed))


def column_of(windowed: Windowed) -> str:
    """Return the column of an event of a partition that has the value of a windowed aggregate."""
    return f"#{windowed!r}"


def value_at(
    windowed: Windowed, events: Sequence[Event], at: int, times: Sequence[int], evaluate: Evaluate
) -> Any:
    """Return the value of `windowed` for event `at` of a key whose events are `events`, in order."""
    is_of_stream = [not windowed.stream or event["#stream"] == windowed.stream for event in events]
    seen = [number for number in range(at + 1) if is_of_stream[number]]
    inside = [
        number
        for number in _framed(windowed.window, seen, at, times)
        if _counts(windowed, events[number], evaluate)
    ]
    if windowed.function == "LAG":
        before = [number for number in inside if number < at]
        back = int(windowed.parameter)
        return _argument(windowed, events[before[-back]], evaluate) if back <= len(before) else None
    if windowed.function == "SEEN":
        own = _argument(windowed, events[at], evaluate)
        values = [_argument(windowed, events[number], evaluate) for number in inside]
        known = [value for value in values if value is not None]
        return None if own is None else any(_same(own) == _same(value) for value in known)
    return value_over(windowed, [events[number] for number in inside], evaluate)


def value_over(windowed: Windowed, events: Sequence[Event], evaluate: Evaluate) -> Any:
    """Return an aggregate over `events`, in order, without those that its FILTER leaves out."""
    counting = [event for event in events if _counts(windowed, event, evaluate)]
    if windowed.function == "COUNT" and windowed.argument is None:
        return len(counting)
    values = [_argument(windowed, event, evaluate) for event in counting]
    if windowed.function in _OF_EVENTS:
        return _OF_EVENTS[windowed.function](values)
    known = [value for value in values if value is not None]
    if windowed.function in _COUNTS:
        return _COUNTS[windowed.function](known)
    return _OF_VALUES[windowed.function](known, windowed) if known else None


def _framed(window: Window, seen: Sequence[int], at: int, times: Sequence[int]) -> list[int]:
    """Return which of the events `seen`, up to event `at`, are in its window."""
    before = [number for number in seen if number < at] if window.previous else list(seen)
    match window.frame:
        case Frame.ALL:
            return before
        case Frame.EVENTS:
            return before[-window.length :]
        case Frame.TIME:
            begin_us = times[at] - window.length
            if window.step_us:
                begin_us -= begin_us % window.step_us
            return [number for number in before if times[number] >= begin_us]
        case Frame.TUMBLING:
            return [number for number in before if times[number] >= start_of(window, times[at])]
        case Frame.HOPPING:
            raise AssertionError("a window of window rules")
        case Frame.SESSION:
            chain: list[int] = []
            last_us = times[at]
            for number in reversed(before):
                if last_us - times[number] > window.length:
                    break
                chain.insert(0, number)
                last_us = times[number]
            return chain


_QUARTER_US = 15 * 60 * 1_000_000


def start_of(window: Window, time_us: int) -> int:
    """Return when the tumbling window of a time began."""
    shifted = time_us - window.offset_us
    if not window.zone:
        return time_us - shifted % window.length
    zone = ZoneInfo(window.zone)
    if window.length % _DAY_US == 0:
        # The last midnight of the right day whose shifted instant is not after the time.
        days = window.length // _DAY_US
        day = (_EPOCH + timedelta(microseconds=shifted)).astimezone(zone).date()
        first = day - timedelta(days=(day - date(1970, 1, 1)).days % days)
        return _midnight_us(first, zone) + window.offset_us
    # When the clock, not set in between, showed the multiple.
    begin_us = time_us - (_clock_us(zone, time_us) - window.offset_us) % window.length
    set_us = _last_set_us(zone, begin_us, time_us)
    if set_us is None:
        return begin_us
    before_us, after_us = (_clock_us(zone, at) - window.offset_us for at in (set_us - 1, set_us))
    if after_us % window.length == 0 or after_us // window.length > before_us // window.length:
        return set_us  # set to a multiple, or forward over one
    return start_of(window, set_us - 1)


def _clock_us(zone: ZoneInfo, time_us: int) -> int:
    """Return what the clock of a zone shows, as if it showed UTC."""
    local = (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone)
    return (local.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _last_set_us(zone: ZoneInfo, from_us: int, to_us: int) -> int | None:
    """Return when the clock of a zone was set last, after `from_us` and until `to_us`; None: it was not."""
    ahead_us = _clock_us(zone, to_us) - to_us
    low, high = to_us, to_us
    while _clock_us(zone, low) - low == ahead_us:
        if low == from_us:
            return None
        low, high = max(low - _QUARTER_US, from_us), low
    while high - low > 1:
        middle = (low + high) // 2
        is_set = _clock_us(zone, middle) - middle == ahead_us
        low, high = (low, middle) if is_set else (middle, high)
    return high


def _midnight_us(day: date, zone: ZoneInfo) -> int:
    local = datetime(day.year, day.month, day.day, tzinfo=zone)
    return (local.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _counts(windowed: Windowed, event: Event, evaluate: Evaluate) -> bool:
    return windowed.condition is None or evaluate(windowed.condition, event) is True


def _argument(windowed: Windowed, event: Event, evaluate: Evaluate) -> Any:
    assert windowed.argument is not None
    return evaluate(windowed.argument, event)


def _same(value: Any) -> Any:
    """Return something that is equal for values that are: NaN equals NaN, -0.0 equals 0.0."""
    return ("NaN",) if value != value else value


def _rank(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value != value else (False, value)


def _sum(known: list[Any], windowed: Windowed) -> Any:
    if windowed.type is Type.DOUBLE:
        return exact_sum(known)
    total = sum(known)
    return total if total in _INT64 else None


def _average(known: list[Any], windowed: Windowed) -> float:
    total = _number(sum(known)) if isinstance(known[0], int) else exact_sum(known)
    return total / len(known)


def _deviation(known: list[Any], windowed: Windowed) -> float | None:
    variance = _variance(known)
    return None if variance is None else math.sqrt(variance)


_OF_EVENTS: dict[str, Callable[[list[Any]], Any]] = {
    "FIRST_VALUE": lambda values: values[0] if values else None,
    "LAST_VALUE": lambda values: values[-1] if values else None,
}
"""Function -> its value over the values of some events, in order, NULL among them."""

_COUNTS: dict[str, Callable[[list[Any]], int]] = {
    "COUNT": len,
    "DISTINCT": lambda known: len({_same(value) for value in known}),
}
"""Function -> its value over known values. There may be none."""

_OF_VALUES: dict[str, Callable[[list[Any], Windowed], Any]] = {
    "SUM": _sum,
    "AVG": _average,
    "MIN": lambda known, windowed: min(known, key=_rank),
    "MAX": lambda known, windowed: max(known, key=_rank),
    "VARIANCE": lambda known, windowed: _variance(known),
    "STDDEV": _deviation,
    "PERCENTILE": lambda known, windowed: _percentile(
        sorted((float(value) for value in known), key=_rank), windowed.parameter
    ),
}
"""Function -> its value over known values. Over none it is NULL."""


def exact_sum(values: Sequence[float]) -> float:
    """Return the sum of doubles as if it were rounded once."""
    if any(value != value for value in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    if any(map(math.isinf, values)):
        return next(value for value in values if math.isinf(value))
    return _number(sum(map(Fraction, values), Fraction(0)))


def _number(exact: int | Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _variance(values: Sequence[Any]) -> float | None:
    """Return (n * sum of squares - square of the sum) / (n * (n - 1)); the dividend is rounded once."""
    n = len(values)
    if n < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    return _number(n * sum(value * value for value in exact) - sum(exact) ** 2) / (n * (n - 1))


def _percentile(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    first, second = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    if low == place or first == second:
        return first
    return (low + 1 - place) * first + (place - low) * second
