r"""Points in time as they are written in data: ISO 8601, other forms of text, counts since 1970, local times.

Each becomes an int64 number of microseconds since 1970 in UTC. For each form there is a function for one
value and a function for a column. Both give the same result.

ISO 8601 is a date, ``2024-05-01``, or a date and a time, ``2024-05-01T10:00``,
``2024-05-01 10:00:00.123456``, also with ``Z``, ``+02``, ``+0200`` or ``+02:00``. A second has up to nine
digits after the point; those after the microsecond are cut off.

A whole number of a unit is read exactly; nanoseconds are cut to microseconds. Any other number is read as the
nearest DOUBLE and rounded to microseconds.

A time is in the years 1 to 9999 in UTC, because ISO 8601 and Python have no other years.

A local time is a time without a zone. When clocks go back, a local time occurs twice, and the earlier one
counts. When clocks go forward, a local time that does not occur is moved forward by the length of the gap,
usually an hour. Java and Spark do the same, and so does Python with ``fold=0``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.schema.masks import null_where, where_false, where_true
from cep.schema.stream import UNITS, Field
from cep.schema.time_formats import MONTHS, TimeFormat, century, read_format, time_text

DATE_LENGTH = 10
"""Characters of a date."""

_DAY = (
    r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))"
)
"""A day from the year 1 on. The pattern accepts the 29th of February in every year."""

_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
_ISO_PATTERN = f"^{_DAY}(?:[T ]{_TIME}{_ZONE}?)?$"
_ISO = re.compile(_ISO_PATTERN.removeprefix("^").removesuffix("$"))
_ZONE_PATTERN = f"{_ZONE}$"

_LIKE_ISO = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)
"""Faster than `_ISO_PATTERN`. Arrow refuses numbers that are too large, but it accepts a year 0."""

_PARTS = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:(Z)|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US
_DAY_US = 24 * _HOUR_US
FIRST_US = -62_135_596_800_000_000
"""Begin of the year 1."""
END_US = 253_402_300_800_000_000
"""End of the year 9999 (exclusive)."""
_TWO_63 = 1 << 63


# ---------------------------------------------------------------- texts


def timestamp_us(text: str, zone: str = "") -> int | None:
    """Return the microseconds since 1970 of one ISO 8601 time, or None if `text` is not one."""
    if _ISO.fullmatch(text) is None:
        return None
    found = _PARTS.fullmatch(text)
    assert found is not None, text
    year, month, day, hour, minute, second, fraction, z, sign, zone_hours, zone_minutes = found.groups()
    offset = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    try:
        time = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=timezone(-offset if sign == "-" else offset),
        )
    except ValueError:
        return None
    us = (time - _EPOCH) // _MICROSECOND
    return _in_years(us if z or sign or not zone else us - offset_us(zone, us))


def _in_years(us: int) -> int | None:
    return us if FIRST_US <= us < END_US else None


def time_of_text(text: str, field: Field) -> int | None:
    """Return the time that `text` stands for in the column `field`, or None if it is not a time."""
    if field.format:
        found = read_format(field.format).value(text)
        if found is None:
            return None
        us, has_zone = found
        return _in_years(us if has_zone or not field.zone else us - offset_us(field.zone, us))
    if field.ddl == "date" and len(text) != DATE_LENGTH:
        return None
    return timestamp_us(text, field.zone)


def text_of_time(us: int, field: Field) -> str:
    """Return the text that means the time `us` in the column `field`, which has a format."""
    time = _EPOCH + us * _MICROSECOND
    if field.zone and not read_format(field.format).has_zone:
        time = time.astimezone(ZoneInfo(field.zone))
    return time_text(field.format, time)


def times_of_texts(texts: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return the times that `texts` denote in the column `field`, and a mask of the strings that do not.

    NULL stays NULL.
    """
    if field.format:
        form = read_format(field.format)
        values, bad = _times_of_format(texts, form)
        if field.zone and not form.has_zone:
            values = _from_zone(values, where_true(pc.is_valid(values)), field.zone)
        return _all_in_years(values, bad)
    return _iso_times(texts, field)


def _all_in_years(values: pa.Array, bad: Mask) -> tuple[pa.Array, Mask]:
    """Return `values` with NULL for times outside the years 1 to 9999, and `bad` with these rows marked."""
    if _are_within(values, FIRST_US, END_US):
        return values, bad
    outside = where_true(pc.or_(pc.less(values, FIRST_US), pc.greater_equal(values, END_US)))
    return null_where(outside, values), bad | outside


def _are_within(values: pa.Array, low: int, high: int) -> bool:
    limits = pc.min_max(values).as_py()
    return limits["min"] is None or (limits["min"] >= low and limits["max"] < high)


def _times_of_format(texts: pa.Array, form: TimeFormat) -> tuple[pa.Array, Mask]:
    """Return the times that `texts` denote in a format, and a mask of the strings that do not.

    A text without a zone is read as if it were in UTC.
    """
    found = pc.extract_regex(texts, f"^(?:{form.pattern})$")
    parts = {name: found.field(at) for at, name in enumerate(form.names)}
    is_form = where_true(pc.is_valid(found))
    year = _numbers(parts["Y"]) if "Y" in parts else _YEARS[_numbers(parts["y"])]
    month = _numbers(parts["m"]) if "m" in parts else _months(parts.get("b", parts.get("B")))
    # Months are counted from 1970, then days from the first of the month. A day that the month does not have
    # falls into the next month, so it is not a time.
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = first.astype("datetime64[D]") + (_numbers(parts["d"]) - 1)
    is_time = is_form & (days.astype("datetime64[M]") == first) & (year > 0)
    hour = _numbers(parts["H"]) if "H" in parts else np.zeros(len(texts), np.int64)
    if "I" in parts:
        is_afternoon = where_true(pc.equal(pc.utf8_lower(parts["p"]), "pm"))
        hour = _numbers(parts["I"]) % 12 + 12 * is_afternoon
    us = days.astype(np.int64) * _DAY_US + hour * _HOUR_US
    us += _numbers(parts["M"]) * _MINUTE_US if "M" in parts else 0
    us += _numbers(parts["S"]) * 1_000_000 if "S" in parts else 0
    if "f" in parts:
        us += _numbers(pc.utf8_slice_codeunits(pc.utf8_rpad(parts["f"], 6, "0"), 0, 6))
    if "z" in parts:
        plain = pc.replace_substring(pc.replace_substring(parts["z"], "Z", "+"), ":", "")
        digits = _numbers(pc.utf8_slice_codeunits(pc.utf8_rpad(plain, 5, "0"), 1, 5))
        minutes = digits // 100 * 60 + digits % 100
        us -= np.where(where_true(pc.starts_with(plain, "-")), -minutes, minutes) * _MINUTE_US
    return pa.array(us, mask=~is_time), where_true(pc.is_valid(texts)) & ~is_time


_YEARS = np.array([century(year) for year in range(100)])
"""The years that two digits mean."""


def _months(names: pa.Array) -> I64:
    found = pc.index_in(pc.utf8_lower(pc.utf8_slice_codeunits(names, 0, 3)), pa.array(MONTHS))
    return np.asarray(pc.fill_null(found, 0)).astype(np.int64) + 1


def _numbers(digits: pa.Array) -> I64:
    """Return strings of digits as numbers. An empty string and NULL are 0."""
    digits = null_where(where_true(pc.equal(digits, "")), digits)
    return np.asarray(pc.fill_null(pc.cast(digits, pa.int64()), 0))


def _iso_times(texts: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    bad = where_false(pc.match_substring_regex(texts, _LIKE_ISO))
    lengths = pc.binary_length(texts)
    if field.ddl == "date":
        bad |= where_true(pc.not_equal(lengths, DATE_LENGTH))
    texts = null_where(bad, texts)
    if where_true(pc.greater(lengths, _MICROSECOND_LENGTH)).any():
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    try:
        values, is_local = _typed_times(texts)
        is_sound = _are_within(values, FIRST_US + 2 * _DAY_US, END_US)
    except pa.ArrowInvalid:  # the error does not say which value is wrong
        is_sound = False
    if not is_sound:
        bad |= where_false(pc.match_substring_regex(texts, _ISO_PATTERN))
        leap_days = where_true(pc.equal(pc.utf8_slice_codeunits(texts, 5, 10), "02-29")) & ~bad
        for row in np.flatnonzero(leap_days).tolist():
            bad[row] = timestamp_us(texts[row].as_py()) is None
        values, is_local = _typed_times(null_where(bad, texts))
    return _all_in_years(_from_zone(values, is_local, field.zone) if field.zone else values, bad)


_MICROSECOND_LENGTH = 26
"""Characters of a time with six digits after the second and without a zone. More digits make it longer."""


def _typed_times(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Return strings as times, and a mask of those without a zone. They are read as if they were in UTC."""
    is_known = where_true(pc.is_valid(texts))
    zoned = where_true(pc.ends_with(texts, "Z"))
    if not (zoned | ~is_known).all():
        # The end of a date, such as `-01`, looks like an offset but is none.
        zoned = where_true(
            pc.and_(
                pc.greater(pc.utf8_length(texts), DATE_LENGTH),
                pc.match_substring_regex(texts, _ZONE_PATTERN),
            )
        )
    return _times_with_and_without_zone(texts, zoned, is_known), is_known & ~zoned


def _times_with_and_without_zone(texts: pa.Array, zoned: Mask, is_known: Mask) -> pa.Array:
    local = pa.timestamp("us")
    universal = pa.timestamp("us", tz="UTC")
    if not zoned.any():
        return pc.cast(pc.cast(texts, local), pa.int64())
    if (zoned | ~is_known).all():
        return pc.cast(pc.cast(texts, universal), pa.int64())
    with_zone = pc.cast(pc.cast(null_where(~zoned, texts), universal), pa.int64())
    without = pc.cast(pc.cast(null_where(zoned, texts), local), pa.int64())
    return pc.coalesce(with_zone, without)


# ---------------------------------------------------------------- numbers


def time_of_number(number: int | float, unit: str) -> int | None:
    """Return the time `number` units after 1970, or None if it is outside the years 1 to 9999."""
    factor, divisor, low, high = _limits(unit)
    if not low <= number < high:
        return None
    if number == math.floor(number):
        return int(number) * factor // divisor
    scaled = number * factor / divisor
    return _in_years(math.floor(scaled) if divisor > 1 else round(scaled))


def times_of_numbers(numbers: pa.Array, unit: str) -> tuple[pa.Array, Mask]:
    """Return the times `numbers` units after 1970, and a mask of the numbers that are not times.

    The numbers are int64 or float64. NULL stays NULL.
    """
    factor, divisor, low, high = _limits(unit)
    if factor == divisor and pa.types.is_integer(numbers.type):
        return _all_in_years(numbers, np.zeros(len(numbers), dtype=bool))
    known = where_true(pc.is_valid(numbers))
    plain = np.asarray(pc.fill_null(numbers, pa.scalar(0, numbers.type)))
    bad = np.zeros(len(plain), dtype=bool)
    if divisor == 1 or plain.dtype == np.float64:
        bad = ~((plain >= low) & (plain < high))
    plain = np.where(bad, 0, plain)
    times = np.floor(plain).astype(np.int64) * factor // divisor
    if plain.dtype == np.float64:
        scaled = plain * float(factor) / float(divisor)
        scaled = np.floor(scaled) if divisor > 1 else np.rint(scaled)
        times = np.where(plain == np.floor(plain), times, scaled.astype(np.int64))
        bad |= times >= END_US
    return pa.array(times, mask=~known | bad), bad & known


def _limits(unit: str) -> tuple[int, int, int, int]:
    """Return the factor and the divisor of a unit, and the range of numbers that are times."""
    factor, divisor = UNITS[unit]
    if divisor > 1:  # 64 bits of nanoseconds cover fewer years
        return factor, divisor, -_TWO_63, _TWO_63
    return factor, divisor, FIRST_US // factor, END_US // factor


_UNIT_OF = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""Unit of an Arrow column -> its name in `UNITS`."""


def times_of_timestamps(values: pa.Array, zone: str) -> tuple[pa.Array, Mask]:
    """Return a column of Arrow timestamps as times, and a mask of the timestamps that are not valid times.

    A timestamp without a zone is a local time of `zone`.
    """
    times, bad = times_of_numbers(values.view(pa.int64()), _UNIT_OF[values.type.unit])
    if zone and values.type.tz is None:
        times, outside = times_of_local(times, zone)
        bad = bad | outside
    return times, bad


# ---------------------------------------------------------------- local times


def local_times(times: pa.Array, zone: str) -> pa.Array:
    """Return what the clocks of `zone` show at `times`; NULL outside the years 1 to 9999.

    Parameters
    ----------
    times : int64
        Microseconds since 1970 in UTC, in the years 1 to 9999. The result counts on the zone's clocks.
    """
    shown = np.asarray(pc.fill_null(times, 0))
    shown = shown + _offsets(shown, zone, is_local=False)
    return _all_in_years(pa.array(shown, mask=where_true(pc.is_null(times))), np.zeros(len(times), bool))[0]


def times_of_local(times: pa.Array, zone: str) -> tuple[pa.Array, Mask]:
    """Return local times of `zone` as times in UTC, and a mask of those outside the years 1 to 9999."""
    times, bad = _all_in_years(times, np.zeros(len(times), dtype=bool))
    return _all_in_years(_from_zone(times, where_true(pc.is_valid(times)), zone), bad)


def _from_zone(times: pa.Array, is_local: Mask, zone: str) -> pa.Array:
    """Return `times` in UTC. Rows that `is_local` marks are local times of `zone` in the years 1 to 9999."""
    result = np.asarray(pc.fill_null(times, 0)).copy()
    result[is_local] -= _offsets(result[is_local], zone, is_local=True)
    return pa.array(result, mask=where_true(pc.is_null(times)))


def _offsets(times_us: I64, zone: str, *, is_local: bool) -> I64:
    """Return how far the clocks of `zone` are ahead of UTC at times, which are local or UTC."""
    offset_at = offset_us if is_local else offset_at_us
    hours, hour_of = np.unique(times_us // _HOUR_US, return_inverse=True)
    offsets = [_offset_of_hour(offset_at, zone, hour) for hour in hours.tolist()]
    known = np.array([0 if offset is None else offset for offset in offsets], np.int64)
    found: I64 = known[hour_of]
    for at, offset in enumerate(offsets):
        if offset is None:
            rows = np.flatnonzero(hour_of == at)
            found[rows] = [offset_at(zone, us) for us in times_us[rows].tolist()]
    return found


@lru_cache(maxsize=100_000)
def _offset_of_hour(offset_at: Callable[[str, int], int], zone: str, hour: int) -> int | None:
    """Return how far the clocks of `zone` are ahead of UTC in an hour; None: this changes within the hour."""
    first = offset_at(zone, hour * _HOUR_US)
    return first if first == offset_at(zone, (hour + 1) * _HOUR_US - 1) else None


def offset_at_us(zone: str, time_us: int) -> int:
    """Return how far the clocks of `zone` are ahead of UTC at a time of the years 1 to 9999."""
    time_us = min(
        max(time_us, FIRST_US + _DAY_US), END_US - _DAY_US - 1
    )  # Python has no local year 0 or 10000
    offset = (_EPOCH + timedelta(microseconds=time_us)).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset // _MICROSECOND


def offset_us(zone: str, local_us: int) -> int:
    """Return how far the clocks of `zone` are ahead of UTC when they show `local_us`."""
    local = _EPOCH.replace(tzinfo=None) + timedelta(microseconds=local_us)
    offset = ZoneInfo(zone).utcoffset(local)
    assert offset is not None
    return offset // _MICROSECOND
