"""Expressions of one event at a time (docs/language/semantics/conditions.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_never
from zoneinfo import ZoneInfo

from cep.expression import (
    IN_TAKEN,
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Windowed,
)
from tests.oracle.tables import column_of_table
from tests.oracle.windows import column_of

Event = Mapping[str, Any]
"""Column name to value. Timestamps are int microseconds, None is NULL."""

Taken = Mapping[str, Sequence[Event]]
"""Variable to the events taken as it, oldest first."""

_INT64 = range(-(2**63), 2**63)
_DAY_US = 86_400_000_000
_DAY_1970 = date(1970, 1, 1).toordinal()
_YEARS_1_TO_9999 = range((1 - _DAY_1970) * _DAY_US, (date.max.toordinal() + 1 - _DAY_1970) * _DAY_US)
_INTEGERS = (Type.BIGINT, Type.TIMESTAMP, Type.INTERVAL)


def evaluate(expression: Expression, event: Event | None, taken: Taken) -> Any:
    """Return the value of `expression` for the event under test and the events taken so far.

    None stands for NULL.
    """
    match expression:
        case Literal(value=value):
            return value
        case Column(name=name):
            assert event is not None, "a measure has no event under test"
            return event.get(name)  # a column of another stream is NULL
        case Windowed():
            assert event is not None, "a measure has no event under test"
            return event[column_of(expression)]
        case Joined():
            assert event is not None, "a measure has no event under test"
            return event[column_of_table(expression)]
        case Aggregate():
            return _aggregate(expression, taken.get(expression.variable, ()))
        case Call():
            return _call(expression, event, taken)
        case RegisterRef() | RoleTest():
            raise AssertionError("of compiled rules only")
        case _:
            assert_never(expression)


def _aggregate(aggregate: Aggregate, events: Sequence[Event]) -> Any:  # noqa: C901, PLR0912 - a case for each aggregate
    """Carry out "Aggregates". NULLs are ignored, except by FIRST and LAST, which choose an event first."""
    argument = aggregate.argument
    if argument is None:
        return len(events)
    values = [evaluate(argument, event, {}) for event in events]
    if aggregate.kind == "ARRAY_AGG":
        return values
    if aggregate.kind == "FIRST":
        return values[aggregate.offset] if aggregate.offset < len(values) else None
    if aggregate.kind == "LAST":
        return values[-1 - aggregate.offset] if aggregate.offset < len(values) else None
    known = [value for value in values if value is not None]
    if aggregate.kind == "COUNT":
        return len(known)
    if aggregate.kind == "DISTINCT":
        return len({_rank(value) for value in known})
    if not known:
        return None
    match aggregate.kind:
        case "SUM":
            return _total(known, aggregate.type)
        case "AVG":
            return _total([float(value) for value in known], Type.DOUBLE) / len(known)
        case "MIN":
            return min(known, key=_rank)
        case "MAX":
            return max(known, key=_rank)
        case "STDDEV":
            if len(known) < 2:
                return None
            mean = sum(known) / len(known)
            return math.sqrt(sum((value - mean) * (value - mean) for value in known) / (len(known) - 1))
        case _:
            raise AssertionError(aggregate.kind)


def _total(values: list[Any], kind: Type) -> Any:
    """Add the values in the order of taking. An integer total that once leaves 64 bits is NULL."""
    total = values[0]
    for value in values[1:]:
        total += value
        if kind in _INTEGERS and total not in _INT64:
            return None
    return total


def _rank(value: Any) -> tuple[bool, Any]:
    """Return a sort key in which NaN is greater than every number and equal to itself."""
    return (True, 0) if value != value else (False, value)


def _in_taken(call: Call, event: Event | None, taken: Taken) -> Any:
    """Carry out ``x IN (v.y)`` as SQL's IN over the rows of a subquery ("Values that were taken")."""
    operand, values = call.args
    assert isinstance(values, Aggregate)
    assert values.argument is not None
    x = evaluate(operand, event, taken)
    equal = [
        None if None in (x, y) else _rank(x) == _rank(y)
        for y in (evaluate(values.argument, one, {}) for one in taken.get(values.variable, ()))
    ]
    return True if True in equal else None if None in equal else False


def _call(call: Call, event: Event | None, taken: Taken) -> Any:
    if call.function == IN_TAKEN:
        return _in_taken(call, event, taken)
    args = [evaluate(arg, event, taken) for arg in call.args]
    match call.function:
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "is_null":
            return args[0] is None
        case "is_not_null":
            return args[0] is not None
        case "in":
            equal = [None if arg is None else _rank(arg) == _rank(args[0]) for arg in args[1:]]
            return None if args[0] is None else True if True in equal else None if None in equal else False
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "case":
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            return next((value for condition, value in pairs if condition is True), args[-1])
        case "least":
            return min((arg for arg in args if arg is not None), key=_rank, default=None)
        case "greatest":
            return max((arg for arg in args if arg is not None), key=_rank, default=None)
        case function:
            if any(arg is None for arg in args):
                return None
            value = _FUNCTIONS[function](*args)
            limits = _YEARS_1_TO_9999 if call.type is Type.TIMESTAMP else _INT64
            return None if call.type in _INTEGERS and value is not None and value not in limits else value


def _divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, float):
        return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _whole(round_: Callable[[float], int]) -> Callable[[float], int | None]:
    return lambda x: round_(x) if math.isfinite(x) else None


def _like(text: str, pattern: str) -> bool:
    parts, quoted = [], False
    for letter in pattern:
        if quoted or letter not in "%_\\":
            parts.append(re.escape(letter))
            quoted = False
        elif letter == "\\":
            quoted = True
        else:
            parts.append(".*" if letter == "%" else ".")
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _rlike(text: str, pattern: str) -> bool:
    """Search with Python's regular expressions. ``(?i)`` is correct only for ASCII letters."""
    python, in_brackets = "", False
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        in_brackets = part == "[" or (in_brackets and part != "]")
        if in_brackets:
            python += {r"\s": r" \t\n\r\f", r"\S": r"\S\v"}.get(part, part)
        else:
            outside = {r"\s": r"[ \t\n\r\f]", r"\S": r"[^ \t\n\r\f]", "$": r"\Z", r"\z": r"\Z"}
            python += outside.get(part, part)
    return re.search(python, text, re.ASCII) is not None


def _logarithm(compute: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if x <= 0 else x if not math.isfinite(x) else compute(x)


def _power(x: float, y: float) -> float:
    if y != y or (abs(x) == 1 and math.isinf(y)):
        return math.nan
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    except ValueError:  # zero to a negative power, a negative number to a fraction
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def _trigonometric(compute: Callable[[float], float]) -> Callable[[float], float]:
    def of(x: float) -> float:
        try:
            return compute(x)
        except ValueError:  # infinity, or beyond -1 and 1
            return math.nan

    return of


def _distance_km(*degrees: float) -> float | None:
    """Carry out the haversine formula. A latitude beyond a pole or a number that is not finite gives NULL."""
    latitude, longitude, to_latitude, to_longitude = degrees
    if not all(map(math.isfinite, degrees)) or max(abs(latitude), abs(to_latitude)) > 90:
        return None
    between = to_longitude - longitude
    if math.isinf(between):
        return None
    sin_north = math.sin(math.radians(to_latitude - latitude) / 2)
    sin_east = math.sin(math.radians(between) / 2)
    cosines = math.cos(math.radians(latitude)) * math.cos(math.radians(to_latitude))
    haversine = min(1.0, sin_north * sin_north + cosines * sin_east * sin_east)
    return 2 * 6371.0088 * math.asin(math.sqrt(haversine))


def _round(x: float, places: int) -> float:
    power = 10.0**places
    scaled = abs(x) * power
    if not scaled < 2.0**52:
        return x
    whole = math.floor(scaled) + (1 if scaled - math.floor(scaled) >= 0.5 else 0)
    return math.copysign(whole / power, x)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _day(time_us: int) -> tuple[date, int]:
    """Return the date of the same day in the first 400 years of the calendar, and the years to add."""
    cycles, ordinal = divmod(time_us // _DAY_US + date(1970, 1, 1).toordinal() - 1, 146_097)
    return date.fromordinal(ordinal + 1), 400 * cycles


def _time_part(part: str) -> Callable[[int], int]:
    def of(time_us: int) -> int:
        day, years = _day(time_us)
        seconds = time_us % _DAY_US // 1_000_000
        return {
            "year": day.year + years,
            "quarter": (day.month + 2) // 3,
            "month": day.month,
            "day": day.day,
            "dayofweek": day.isoweekday() % 7 + 1,
            "weekday": day.weekday(),
            "dayofyear": day.timetuple().tm_yday,
            "hour": seconds // 3600,
            "minute": seconds % 3600 // 60,
            "second": seconds % 60,
        }[part]

    return of


_TIME_PARTS = (
    *("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear"),
    *("hour", "minute", "second"),
)


def _date_trunc(unit: str, time_us: int) -> int:
    lengths = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000}
    if unit in lengths:
        return time_us - time_us % lengths[unit]
    if unit == "microsecond":
        return time_us
    day, _ = _day(time_us)
    first = {
        "year": day.replace(month=1, day=1),
        "quarter": day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "month": day.replace(day=1),
        "week": None,
        "day": day,
    }[unit]
    back = day.weekday() if first is None else (day - first).days
    return (time_us // _DAY_US - back) * _DAY_US


_TWO_DAYS = timedelta(days=2)


def _from_utc(time_us: int, zone: str) -> int:
    """Return what the clocks of a zone show; on the first and last days of all as after and before them."""
    time = _near(time_us).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    offset = time.utcoffset()
    assert offset is not None
    return time_us + offset // timedelta(microseconds=1)


def _to_utc(time_us: int, zone: str) -> int:
    """Return when the clocks of a zone show a time; when they skip it, they are as before the gap."""
    offset = ZoneInfo(zone).utcoffset(_near(time_us))
    assert offset is not None
    return time_us - offset // timedelta(microseconds=1)


def _near(time_us: int) -> datetime:
    low, high = datetime.min + _TWO_DAYS, datetime.max - _TWO_DAYS
    since_1970 = timedelta(microseconds=time_us)
    epoch = datetime(1970, 1, 1)
    return min(max(since_1970, low - epoch), high - epoch) + epoch


def _substring(text: str, position: int, length: int) -> str:
    """Return the `length` letters from `position` on. Letters are counted from 1.

    A negative position counts from the end. Both numbers are limited to 32 bits.
    """
    position, length = (max(1 - 2**31, min(number, 2**31 - 1)) for number in (position, length))
    first = position if position > 0 else len(text) + position + 1 if position < 0 else 1
    return "".join(letter for i, letter in enumerate(text, 1) if first <= i < first + length)


def _split_part(text: str, delimiter: str, number: int) -> str:
    parts = text.split(delimiter) if delimiter else [text]
    if number < 0:
        parts, number = parts[::-1], -number
    return parts[number - 1] if number <= len(parts) else ""


def _number(form: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(text) if re.fullmatch(form, text, re.ASCII) else None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{part: _time_part(part) for part in _TIME_PARTS},
    "date_trunc": _date_trunc,
    "unix_seconds": lambda time_us: time_us // 1_000_000,
    "unix_millis": lambda time_us: time_us // 1_000,
    "unix_micros": lambda time_us: time_us,
    "from_utc_timestamp": _from_utc,
    "to_utc_timestamp": _to_utc,
    "timestamp_seconds": lambda number: number * 1_000_000,
    "timestamp_millis": lambda number: number * 1_000,
    "timestamp_micros": lambda number: number,
    "round": _round,
    "sign": lambda x: x if x != x else float((x > 0) - (x < 0)),
    "exp": _exp,
    "ln": _logarithm(math.log),
    "log2": _logarithm(lambda x: math.log(x) / math.log(2)),
    "log10": _logarithm(math.log10),
    "power": _power,
    "sin": _trigonometric(math.sin),
    "cos": _trigonometric(math.cos),
    "tan": _trigonometric(math.tan),
    "asin": _trigonometric(math.asin),
    "acos": _trigonometric(math.acos),
    "atan": math.atan,
    "atan2": lambda y, x: math.atan2(y + 0.0, x + 0.0),
    "distance_km": _distance_km,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "reverse": lambda text: text[::-1],
    "concat": lambda *texts: "".join(texts),
    "substring": _substring,
    "right": lambda text, length: text[max(len(text) - length, 0) :] if length > 0 else "",
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "instr": lambda text, other: text.find(other) + 1,
    "split_part": _split_part,
    "parse_bigint": _number("-?[0-9]+", int),
    "parse_double": _number(
        r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity", lambda text: float(text)
    ),
    "text": str,
    "=": lambda a, b: _rank(a) == _rank(b),
    "<>": lambda a, b: _rank(a) != _rank(b),
    "<": lambda a, b: _rank(a) < _rank(b),
    "<=": lambda a, b: _rank(a) <= _rank(b),
    ">": lambda a, b: _rank(a) > _rank(b),
    ">=": lambda a, b: _rank(a) >= _rank(b),
    "not": lambda a: not a,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": _remainder,
    "negate": lambda a: -a,
    "abs": abs,
    "double": float,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "sqrt": lambda a: math.nan if a < 0 or a != a else math.sqrt(a),
    "like": _like,
    "rlike": _rlike,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "contains": lambda text, other: other in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
