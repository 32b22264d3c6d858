"""Points in time in all declared forms: one value and a column of them mean the same."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cep.schema.stream import UNITS, Field
from cep.schema.text_values import column_from_text
from cep.schema.time_formats import FormatError, read_format
from cep.schema.time_values import (
    time_of_number,
    time_of_text,
    times_of_local,
    times_of_numbers,
    times_of_texts,
    times_of_timestamps,
    timestamp_us,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAY_US = 1_714_557_600_000_000
"""2024-05-01T10:00:00Z."""
MAY = "2024-05-01T10:00:00"


def us(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def both(text: str, field: Field) -> int | None:
    """Return the time of a text, after checking that it is the same alone, in a column, and beside others."""
    alone = time_of_text(text, field)
    for others in ([], [None], [None, text, "nonsense", text]):
        values, bad = times_of_texts(pa.array([text, *others], pa.string()), field)
        assert (values[0].as_py(), bool(bad[0])) == (alone, alone is None)
        assert bad.tolist()[1:] == [
            value is not None and (alone is None or value != text) for value in others
        ]
    return alone


def timestamp(**form: Any) -> Field:
    return Field("ts", "timestamp", **form)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%d/%m/%Y %H:%M:%S", "01/05/2024 10:00:00", MAY),
        ("%d/%m/%Y %H:%M:%S", "1/5/2024 10:0:0", MAY),
        ("%d/%m/%Y %H:%M:%S", "01/05/2024 10:00:60", None),
        ("%d/%m/%Y %H:%M:%S", "01/05/2024 24:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "31/04/2024 10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "29/02/2024 00:00:00", "2024-02-29T00:00:00"),
        ("%d/%m/%Y %H:%M:%S", "29/02/1900 00:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "00/05/2024 10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "01/05/0000 10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "01/05/0001 00:00:00", "0001-05-01T00:00:00"),
        ("%d/%m/%Y %H:%M:%S", "31/12/9999 23:59:59", "9999-12-31T23:59:59"),
        ("%d/%m/%Y %H:%M:%S", " 01/05/2024 10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "01/05/2024 10:00:00\n", None),
        ("%d/%m/%Y %H:%M:%S", "01/05/2024  10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "\u0661/05/2024 10:00:00", None),
        ("%d/%m/%Y %H:%M:%S", "", None),
        ("%Y%m%d%H%M%S", "20240501100000", MAY),
        ("%Y%m%d%H%M%S", "2024051100000", "2024-05-11T00:00:00"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-05-01 10:00:00.5", "2024-05-01T10:00:00.500000"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-05-01 10:00:00.123456789", "2024-05-01T10:00:00.123456"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-05-01 10:00:00.1234567890", None),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-05-01 10:00:00.", None),
        ("%y%m%d", "690101", "1969-01-01T00:00:00"),
        ("%y%m%d", "681231", "2068-12-31T00:00:00"),
        ("%I:%M %p, %d %B %Y", "12:00 AM, 1 May 2024", "2024-05-01T00:00:00"),
        ("%I:%M %p, %d %B %Y", "12:00 pm, 1 MAY 2024", "2024-05-01T12:00:00"),
        ("%I:%M %p, %d %B %Y", "13:00 pm, 1 May 2024", None),
        ("%I:%M %p, %d %B %Y", "0:00 pm, 1 May 2024", None),
        ("%a %b %d %Y", "sun Sep 01 2024", "2024-09-01T00:00:00"),
        ("%a %b %d %Y", "Tue Sep 01 2024", "2024-09-01T00:00:00"),  # it was a Sunday
        ("%a %b %d %Y", "Sun Sept 01 2024", None),
        ("%A %b %d %Y", "Sunday Aug 01 2024", "2024-08-01T00:00:00"),
        ("%a %b %d %Y", "\u017fun Sep 01 2024", None),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T12:00+02:00", MAY),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T12:00+0200", MAY),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T12:00+02", MAY),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T07:30-02:30", MAY),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T10:00Z", MAY),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T10:00+24:00", None),
        ("%Y-%m-%dT%H:%M%z", "2024-05-01T10:00+02:60", None),
        ("100%% (%Y.%m.%d)", "100% (2024.05.01)", "2024-05-01T00:00:00"),
        ("100%% (%Y.%m.%d)", "100% (2024x05x01)", None),
        ("[%Y|%m|%d]+$^", "[2024|5|1]+$^", "2024-05-01T00:00:00"),
    ],
)
def test_a_text_of_a_format_is_a_time(form: str, text: str, expected: str | None) -> None:
    found = both(text, timestamp(format=form))
    assert found == (None if expected is None else us(expected))


@pytest.mark.parametrize(
    ("form", "problem", "advice"),
    [
        (
            "",
            "the format says nothing about a time",
            'write it as strptime does, for example "%d/%m/%Y %H:%M:%S"',
        ),
        (
            "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
            "the format says nothing about a time",
            'write it as strptime does, for example "%Y-%m-%dT%H:%M:%S.%f%z"',
        ),
        ("%Y-%m-%d %T", "there is no `%T` in a format", "write %H:%M:%S"),
        ("%Y-%m-%e", "there is no `%e` in a format", "write %d"),
        ("%Y-%m-%-d", "there is no `%-d` in a format", "write %d: a number may have a leading zero or not"),
        ("%s", "there is no `%s` in a format", "for seconds since 1970 declare `unit: seconds` instead"),
        (
            "%Y-%m-%d %",
            "there is no `%` in a format",
            "there are %Y %y %m %b %B %d %H %I %p %M %S %f %z %a %A and %%",
        ),
        ("%d/%m %H", "the format does not say a year", "add %Y or %y"),
        ("%Y", "the format does not say a month", "add %m or %b or %B"),
        ("%Y-%m", "the format does not say a day", "add %d"),
        ("%Y-%m-%d-%d", "`%d` occurs twice", "write it once"),
        ("%Y-%y-%m-%d", "`%Y` and `%y` together", "keep one of them"),
        (
            "%Y-%m-%d %I",
            "`%I` and `%p` go together",
            "write %H for hours of 0 to 23, %I with %p for AM and PM",
        ),
        (
            "%Y-%m-%d %H %p",
            "`%I` and `%p` go together",
            "write %H for hours of 0 to 23, %I with %p for AM and PM",
        ),
    ],
)
def test_what_is_no_format_is_refused_with_what_to_write(form: str, problem: str, advice: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_format(form)
    assert (caught.value.problem, caught.value.help) == (problem, advice)


FORMS = ("%d/%m/%Y %H:%M:%S", "%Y%m%d%H%M", "%b %d, %y %I:%M:%S %p", "%Y-%m-%dT%H:%M:%S.%f%z", "%A %d. %B %Y")


@given(st.sampled_from(FORMS), st.datetimes(datetime(1969, 1, 1), datetime(2068, 12, 31)))
def test_what_strftime_writes_is_read_again(form: str, time: datetime) -> None:
    text = time.replace(tzinfo=UTC).strftime(form)
    expected = datetime.strptime(text.replace("Z", "+00:00"), form)
    assert both(text, timestamp(format=form)) == us(expected.replace(tzinfo=None).isoformat())


@given(st.sampled_from(FORMS), st.text(alphabet="0123456789/ :-+.ZTMayJunAMPpm", max_size=28))
@example("%Y%m%d%H%M", "2024113111")
def test_any_text_means_the_same_alone_and_in_a_column(form: str, text: str) -> None:
    both(text, timestamp(format=form))


# ---------------------------------------------------------------- ISO 8601

ISO_PARTS = st.tuples(
    st.sampled_from(["0000", "0001", "1900", "2000", "2023", "2024", "9999", "024"]),
    st.sampled_from(["-00", "-01", "-02", "-04", "-12", "-13", "-2"]),
    st.sampled_from(["-00", "-01", "-28", "-29", "-30", "-31", "-32"]),
    st.sampled_from(["", "T", " ", "t"]),
    st.sampled_from(
        ["", "00:00", "23:59", "24:00", "10:60", "10:00:59", "10:00:60", "10:00:00.1", "10:00:00.123456789"]
    ),
    st.sampled_from(["", "Z", "z", "+00", "+23:59", "-2359", "+24:00", "+02:60", "-0060", "+2"]),
)


@given(ISO_PARTS, st.sampled_from(["", "Europe/Berlin"]), st.sampled_from(["timestamp", "date"]))
@example(("0000", "-12", "-31", "T", "23:59", "-2359"), "", "timestamp")
def test_a_time_in_iso_8601_means_the_same_alone_and_in_a_column(
    parts: tuple[str, ...], zone: str, ddl: str
) -> None:
    text = "".join(parts)
    found = both(text, Field("ts", ddl, zone=zone if ddl == "timestamp" else ""))
    if not zone and ddl == "timestamp":
        assert found == timestamp_us(text)


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        (1_714_557_600, "seconds", MAY_US),
        (1_714_557_600_123, "milliseconds", MAY_US + 123_000),
        (1_714_557_600_123_456, "microseconds", MAY_US + 123_456),
        (1_714_557_600_123_456_789, "nanoseconds", MAY_US + 123_456),
        (-1, "nanoseconds", -1),
        (-1, "seconds", -1_000_000),
        (0, "seconds", 0),
        (253_402_300_799, "seconds", 253_402_300_799_000_000),
        (253_402_300_800, "seconds", None),  # the year 10000
        (-62_135_596_800, "seconds", -62_135_596_800_000_000),
        (-62_135_596_801, "seconds", None),
        (253_402_300_799_999_999, "microseconds", 253_402_300_799_999_999),
        (253_402_300_800_000_000, "microseconds", None),
        (-62_135_596_800_000_001, "microseconds", None),
        (2**63 - 1, "milliseconds", None),
        (-(2**63), "seconds", None),
        (2**63 - 1, "nanoseconds", (2**63 - 1) // 1000),
        (-(2**63), "nanoseconds", -(2**63) // 1000),
        (1_714_557_600.123456, "seconds", MAY_US + 123_456),
        (1_714_557_600.25, "seconds", MAY_US + 250_000),
        (0.0000005, "seconds", 0),  # half a microsecond, to the even one
        (0.0000015, "seconds", 2),
        (1.7145576e9, "seconds", MAY_US),
        (171_455_760_013.0, "seconds", 171_455_760_013_000_000),  # a whole number: exact
        (171_455_760_013.5, "seconds", 171_455_760_013_500_000),
        (253_402_300_799.9999, "seconds", 253_402_300_799_999_904),  # the nearest DOUBLE
        (253_402_300_799_999.9999, "milliseconds", None),
        (-62_135_596_800.5, "seconds", None),
        (1.5, "nanoseconds", 0),
        (-1.5, "nanoseconds", -1),
        (float("nan"), "seconds", None),
        (float("inf"), "milliseconds", None),
        (1e300, "seconds", None),
        (9.3e12, "seconds", None),
        (-9.3e18, "microseconds", None),
    ],
)
def test_a_number_of_units_is_a_time(number: float, unit: str, expected: int | None) -> None:
    assert time_of_number(number, unit) == expected
    values, bad = times_of_numbers(pa.array([number, None]), unit)
    assert values.to_pylist() == [expected, None]
    assert bad.tolist() == [expected is None, False]
    texts = pa.array(["1.5", repr(number).replace("nan", "NaN").replace("inf", "Infinity"), None])
    values, bad = column_from_text(texts, timestamp(unit=unit))
    assert values.to_pylist()[1:] == [expected, None]
    assert bad.tolist()[1:] == [expected is None, False]


@given(st.integers(-(2**63), 2**63 - 1) | st.floats(), st.sampled_from(tuple(UNITS)))
def test_any_number_means_the_same_alone_and_in_a_column(number: float, unit: str) -> None:
    values, bad = times_of_numbers(pa.array([number]), unit)
    expected = time_of_number(number, unit)
    assert (values[0].as_py(), bool(bad[0])) == (expected, expected is None)
    if expected is not None and isinstance(number, float) and unit == "seconds":
        assert abs(expected - number * 1e6) <= max(0.5, math.ulp(number * 1e6))
        assert not number.is_integer() or expected == int(number) * 1_000_000


# ---------------------------------------------------------------- local times


@pytest.mark.parametrize(
    ("zone", "local", "expected"),
    [
        ("Europe/Berlin", "2024-01-15 12:00", "2024-01-15T11:00:00"),
        ("Europe/Berlin", "2024-07-15 12:00", "2024-07-15T10:00:00"),
        ("Europe/Berlin", "2024-03-31 01:59:59.999999", "2024-03-31T00:59:59.999999"),
        ("Europe/Berlin", "2024-03-31 02:00", "2024-03-31T01:00:00"),  # left out: 3:00
        ("Europe/Berlin", "2024-03-31 02:59:59.999999", "2024-03-31T01:59:59.999999"),
        ("Europe/Berlin", "2024-03-31 03:00", "2024-03-31T01:00:00"),
        ("Europe/Berlin", "2024-10-27 01:59", "2024-10-26T23:59:00"),
        ("Europe/Berlin", "2024-10-27 02:00", "2024-10-27T00:00:00"),  # twice: the first
        ("Europe/Berlin", "2024-10-27 02:59:59.999999", "2024-10-27T00:59:59.999999"),
        ("Europe/Berlin", "2024-10-27 03:00", "2024-10-27T02:00:00"),
        ("America/New_York", "2024-03-10 02:30", "2024-03-10T07:30:00"),
        ("Asia/Kolkata", "2024-05-01 15:30", "2024-05-01T10:00:00"),
        ("Australia/Lord_Howe", "2024-04-07 01:45", "2024-04-06T14:45:00"),  # half an hour twice
        ("Australia/Lord_Howe", "2024-10-06 02:15", "2024-10-05T15:45:00"),
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30T22:00:00"),  # a day left out
        ("UTC", "2024-05-01 10:00", MAY),
    ],
)
def test_a_local_time_is_read_as_java_and_spark_read_it(zone: str, local: str, expected: str) -> None:
    assert both(local, timestamp(zone=zone)) == us(expected)
    naive = pa.array([us(local), None], pa.int64()).view(pa.timestamp("us"))
    values, bad = times_of_timestamps(naive, zone)
    assert (values.to_pylist(), bool(bad.any())) == ([us(expected), None], False)


def test_a_time_with_a_zone_of_its_own_is_no_local_time() -> None:
    field = timestamp(zone="Europe/Berlin")
    assert both(MAY + "Z", field) == both("2024-05-01 12:00", field) == MAY_US
    with_zone = pa.array([MAY_US], pa.timestamp("us", tz="UTC"))
    assert times_of_timestamps(with_zone, "Europe/Berlin")[0].to_pylist() == [MAY_US]


ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "UTC",
)


@given(st.sampled_from(ZONES), st.lists(st.datetimes(), max_size=8))
def test_columns_of_local_times_follow_the_time_zone_database(zone: str, times: list[datetime]) -> None:
    local = [us(time.isoformat()) for time in times]
    values, bad = times_of_local(pa.array(local, pa.int64()), zone)
    offsets = [ZoneInfo(zone).utcoffset(time) or timedelta() for time in times]
    shifted = [
        time - offset // timedelta(microseconds=1) for time, offset in zip(local, offsets, strict=True)
    ]
    is_time = [-62_135_596_800_000_000 <= time < 253_402_300_800_000_000 for time in shifted]
    assert bad.tolist() == [not sound for sound in is_time]
    assert values.to_pylist() == [
        time if sound else None for time, sound in zip(shifted, is_time, strict=True)
    ]


def test_a_local_time_of_no_year_that_calendars_have_is_none() -> None:
    values, bad = times_of_local(pa.array([2**62, -(2**62), None, 0]), "Europe/Berlin")
    assert values.to_pylist() == [None, None, None, -3_600_000_000]
    assert bad.tolist() == [True, True, False, False]
