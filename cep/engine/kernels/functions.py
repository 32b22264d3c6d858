"""Functions of numbers and of time: one definition for columns (`prepare.predicates`) and for bytecode.

Days become dates by the arithmetic of the proleptic Gregorian calendar in eras of 400 years (Richards in
"Explanatory Supplement to the Astronomical Almanac", 3rd ed., 15.11), so no time is out of range.
"""

from __future__ import annotations

import math

import numpy as np

from cep.arrays import I64, U8
from cep.engine.kernels.compiled import inlined, kernel, outlined
from cep.program.opcodes import Code

_DAY_US = 86_400_000_000
_INT64_MAX = np.iinfo(np.int64).max
_INT64_MIN = np.iinfo(np.int64).min
_LAST_DAY = _INT64_MAX // _DAY_US
_FIRST_TIME_US, _LAST_TIME_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, as `cep.schema.time_values` has them."""
_LN_2 = np.log(2.0)
_RADIANS = 0.017453292519943295  # of a degree
_EARTH_RADIUS_KM = 6371.0088
_WHOLE = 2.0**52
"""Numbers from here on have no fraction."""

# Places in `cep.program.opcodes.DATE_PARTS` and `TRUNC_UNITS`.
_YEAR, _QUARTER, _MONTH, _DAY, _DAYOFWEEK, _WEEKDAY, _DAYOFYEAR, _HOUR, _MINUTE, _SECOND = range(10)
_TO_YEAR, _TO_QUARTER, _TO_MONTH, _TO_WEEK = range(4)


@inlined
def as_f(value: int) -> float:
    """Return the double with the bits of `value`."""
    return np.int64(value).view(np.float64)


@inlined
def as_i(value: float) -> int:
    """Return the bits of a double."""
    return np.float64(value).view(np.int64)  # type: ignore[return-value]


@outlined
def _days_before(year: int, month: int) -> int:
    """Return the days from 1970-01-01 to the first of a month; internally, years start in March."""
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - era * 400
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + (153 * (month - 3) + 2) // 5 - 719_468


@outlined
def _date(days: int) -> tuple[int, int]:
    """Return the year and month of a day since 1970-01-01."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153 + 3
    if month > 12:
        return era * 400 + year + 1, month - 12
    return era * 400 + year, month


@outlined
def _date_part(time_us: int, inlined: int) -> int:
    days = time_us // _DAY_US
    if inlined >= _HOUR:
        seconds = (time_us - days * _DAY_US) // 1_000_000
        if inlined == _HOUR:
            return seconds // 3600
        return seconds // 60 % 60 if inlined == _MINUTE else seconds % 60
    if inlined == _WEEKDAY:  # Monday is 0; 1970-01-01 was a Thursday
        return (days + 3) % 7
    if inlined == _DAYOFWEEK:  # Sunday is 1
        return (days + 4) % 7 + 1
    year, month = _date(days)
    if inlined == _YEAR:
        return year
    if inlined == _QUARTER:
        return (month + 2) // 3
    if inlined == _MONTH:
        return month
    return days - _days_before(year, month if inlined == _DAY else 1) + 1


@outlined
def _date_trunc(time_us: int, unit: int) -> tuple[int, int]:
    """Return the start of the unit that contains `time_us`, and 1 if it is out of range."""
    if unit <= _TO_WEEK:
        days = time_us // _DAY_US
        if unit == _TO_WEEK:
            days -= (days + 3) % 7
        else:
            year, month = _date(days)
            if unit == _TO_QUARTER:
                month -= (month - 1) % 3
            days = _days_before(year, 1 if unit == _TO_YEAR else month)
        return (days * _DAY_US, 0) if -_LAST_DAY <= days <= _LAST_DAY else (0, 1)
    lengths = (_DAY_US, 3_600_000_000, 60_000_000, 1_000_000, 1000, 1)
    beyond = time_us % lengths[unit - _TO_WEEK - 1]
    return (time_us - beyond, 0) if time_us >= _INT64_MIN + beyond else (0, 1)


@outlined
def _round(x: float, places: int) -> float:
    """Round half away from zero, in steps of DOUBLE arithmetic."""
    power = 10.0**places
    scaled = abs(x) * power
    if not scaled < _WHOLE:
        return x
    whole = np.floor(scaled)
    if scaled - whole >= 0.5:
        whole += 1.0
    return float(-whole / power if x < 0 else whole / power)


@outlined
def _power(x: float, y: float) -> float:
    """Return x to the y as Java does: NaN where C has 1."""
    if np.isnan(y) or (abs(x) == 1.0 and np.isinf(y)):
        return np.nan
    return float(x**y)


@outlined
def _trigonometric(op: int, x: float) -> float:
    """Compute with the C library, compiled or not: numpy has its own implementations for each processor."""
    if op == Code.ATAN_F:
        return math.atan(x)
    if op == Code.ASIN_F or op == Code.ACOS_F:
        if not abs(x) <= 1.0:
            return np.nan
        return math.asin(x) if op == Code.ASIN_F else math.acos(x)
    if not abs(x) < np.inf:
        return np.nan
    if op == Code.SIN_F:
        return math.sin(x)
    return math.cos(x) if op == Code.COS_F else math.tan(x)


@outlined
def _distance_km(latitude: float, longitude: float, to_latitude: float, to_longitude: float) -> float:
    """Return the distance on a sphere of the Earth's mean radius (IUGG), by haversine; NaN: no distance.

    R. W. Sinnott, "Virtues of the Haversine", Sky and Telescope 68 (1984).
    """
    eastward = float(to_longitude) - float(longitude)
    if not (abs(latitude) <= 90.0 and abs(to_latitude) <= 90.0 and abs(eastward) < np.inf):
        return np.nan
    north = math.sin((to_latitude - latitude) * _RADIANS / 2.0)
    east = math.sin(eastward * _RADIANS / 2.0)
    across = math.cos(latitude * _RADIANS) * math.cos(to_latitude * _RADIANS) * east * east
    haversine = north * north + across
    if haversine > 1.0:  # due to rounding
        haversine = 1.0
    return 2.0 * _EARTH_RADIUS_KM * math.asin(math.sqrt(haversine))


@outlined
def compute(op: int, arg: int, i: I64, at: int) -> int:  # noqa: C901, PLR0912 - a case for each function
    """Compute ``i[at] = op(i[at])``, or of ``i[at], i[at + 1]`` and so on; return 1 if there is no result,
    else 0.

    Parameters
    ----------
    op : int
        The function (`Code`).
    arg : int
        Its constant: a part of a date, a unit, a factor, digits.
    i : (at + operands or more,) int64
        Operands, doubles by their bits; the result is written.
    at : int
        The place of the first operand.
    """
    a, x = i[at], as_f(i[at])
    if op == Code.DATE_PART:
        i[at] = _date_part(a, arg)
    elif op == Code.DATE_TRUNC:
        i[at], null = _date_trunc(a, arg)
        return null
    elif op == Code.FLOOR_DIV:
        i[at] = a // arg
    elif op == Code.SCALE:
        if not _FIRST_TIME_US // arg <= a <= _LAST_TIME_US // arg:
            return 1
        i[at] = a * arg
    elif op == Code.ROUND_F:
        i[at] = as_i(_round(x, arg))
    elif op == Code.SIGN_F:
        i[at] = as_i(1.0 if x > 0 else -1.0 if x < 0 else x)
    elif op == Code.EXP_F:
        i[at] = as_i(np.exp(x))
    elif op == Code.POWER_F:
        i[at] = as_i(_power(x, as_f(i[at + 1])))
    elif op >= Code.SIN_F and op <= Code.ATAN_F:
        i[at] = as_i(_trigonometric(op, x))
    elif op == Code.ATAN2_F:
        i[at] = as_i(math.atan2(x + 0.0, as_f(i[at + 1]) + 0.0))
    elif op == Code.DISTANCE_KM:
        distance = _distance_km(x, as_f(i[at + 1]), as_f(i[at + 2]), as_f(i[at + 3]))
        if np.isnan(distance):
            return 1
        i[at] = as_i(distance)
    elif x <= 0:
        return 1
    elif op == Code.LN_F:
        i[at] = as_i(np.log(x))
    elif op == Code.LOG2_F:
        i[at] = as_i(np.log(x) / _LN_2)
    else:
        i[at] = as_i(np.log10(x))
    return 0


@kernel
def compute_rows(op: int, arg: int, i: I64, null: U8) -> None:
    """Compute a function for every row.

    Parameters
    ----------
    op, arg : int
        As for `compute`.
    i : (n * operands,) int64
        The operands of each row next to each other, doubles by their bits. The result replaces the first one.
    null : (n,) uint8
        1: an operand is NULL, or, written, there is no result.
    """
    n_operands = len(i) // max(len(null), 1)
    for row in range(len(null)):
        if null[row] == 0:
            null[row] = compute(op, arg, i, row * n_operands)
