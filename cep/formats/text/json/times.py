"""Parts of the kernel for JSON lines: ISO 8601 times; `scan` describes what all parts have in common."""

from __future__ import annotations

from cep.arrays import U8
from cep.formats.text.json.scan import COLON, MINUS, PLUS, POINT, QUOTE, REFUSED, digit
from cep.jit.compiled import inlined

LARGE_T, LARGE_Z = 0x54, 0x5A

NO_DAY = -(1 << 40)


@inlined
def two_digits(data: U8, at: int) -> int:
    """Return the value of two digits."""
    tens = digit(data, at)
    if not 0 <= tens <= 9:
        return REFUSED
    ones = digit(data, at + 1)
    if not 0 <= ones <= 9:
        return REFUSED
    return tens * 10 + ones


@inlined
def days_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a day from the year 1 on; NO_DAY if there is no such day."""
    if month < 1 or month > 12 or day < 1 or year < 1:
        return NO_DAY
    length = 31
    if month == 2:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        length = 29 if is_leap else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        length = 30
    if day > length:
        return NO_DAY
    # Years start in March here, which puts leap days at their end.
    years = year - (1 if month <= 2 else 0)
    months = month + (9 if month <= 2 else -3)
    return years * 365 + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719469


@inlined
def iso_day(data: U8, at: int) -> int:
    """Return the days from 1970 to ``2024-05-01``; NO_DAY if there is no such day."""
    century = two_digits(data, at)
    if century < 0:
        return NO_DAY
    year = two_digits(data, at + 2)
    if year < 0 or data[at + 4] != MINUS:
        return NO_DAY
    month = two_digits(data, at + 5)
    if month < 0 or data[at + 7] != MINUS:
        return NO_DAY
    day = two_digits(data, at + 8)
    return NO_DAY if day < 0 else days_of(century * 100 + year, month, day)


@inlined
def iso_clock(data: U8, at: int) -> tuple[int, int]:
    """Return the place after ``10:00``, ``10:00:00`` or ``10:00:00.123456``, and its microseconds."""
    hour = two_digits(data, at)
    if hour < 0 or hour > 23 or data[at + 2] != COLON:
        return REFUSED, 0
    minute = two_digits(data, at + 3)
    if minute < 0 or minute > 59:
        return REFUSED, 0
    us = (hour * 60 + minute) * 60_000_000
    at += 5
    if data[at] != COLON:
        return at, us
    second = two_digits(data, at + 1)
    if second < 0 or second > 59:
        return REFUSED, 0
    us += second * 1_000_000
    at += 3
    if data[at] != POINT:
        return at, us
    at += 1
    first, scale = at, 100_000
    following = digit(data, at)
    while 0 <= following <= 9:
        us += following * scale
        scale //= 10
        at += 1
        following = digit(data, at)
    return (REFUSED if at == first or at - first > 9 else at), us


@inlined
def iso_zone(data: U8, at: int) -> tuple[int, int]:
    """Return the place after ``Z``, ``+02``, ``+0200``, ``+02:00`` or nothing, and its microseconds."""
    sign = data[at]
    if sign == LARGE_Z:
        return at + 1, 0
    if sign != PLUS and sign != MINUS:
        return at, 0
    hours, minutes = two_digits(data, at + 1), 0
    if hours < 0 or hours > 23:
        return REFUSED, 0
    at += 3
    if data[at] != QUOTE:
        if data[at] == COLON:
            at += 1
        minutes = two_digits(data, at)
        if minutes < 0 or minutes > 59:
            return REFUSED, 0
        at += 2
    offset_us = (hours * 60 + minutes) * 60_000_000
    return at, -offset_us if sign == MINUS else offset_us


@inlined
def iso_time(data: U8, at: int, is_date: bool) -> tuple[int, int]:
    """Return the place of the quote that ends a time, and the time in microseconds.

    `at` is after the first quote. A time without a zone is in UTC. `is_date`: the time is only a day.
    """
    days = iso_day(data, at)
    if days == NO_DAY:
        return REFUSED, 0
    at += 10
    us = days * 86_400_000_000
    if data[at] == QUOTE:
        return at, us
    if is_date or (data[at] != LARGE_T and data[at] != 0x20):
        return REFUSED, 0
    at, clock_us = iso_clock(data, at + 1)
    if at < 0:
        return REFUSED, 0
    at, offset_us = iso_zone(data, at)
    if at < 0 or data[at] != QUOTE:
        return REFUSED, 0
    return at, us + clock_us - offset_us
