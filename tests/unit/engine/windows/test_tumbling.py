"""When tumbling windows begin, where clocks are set forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from cep.engine.windows.tumbling import window_begins
from cep.program.windows import Frame, Window
from tests.unit.engine.windows.plain import begin_of

HOUR_US = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def begin(text: str, hours: int, zone: str, offset_hours: int = 0) -> datetime:
    window = Window(Frame.TUMBLING, hours * HOUR_US, offset_us=offset_hours * HOUR_US, zone=zone)
    [found] = window_begins(window, np.array([us(text)])).tolist()
    return EPOCH + timedelta(microseconds=found)


@pytest.mark.parametrize(
    ("time", "hours", "offset", "expected"),
    [
        ("2025-03-30T00:30+01:00", 24, 0, "2025-03-30T00:00+01:00"),
        ("2025-03-30T23:59+02:00", 24, 0, "2025-03-30T00:00+01:00"),  # a day of 23 hours
        ("2025-03-31T00:00+02:00", 24, 0, "2025-03-31T00:00+02:00"),
        ("2025-10-26T23:59+01:00", 24, 0, "2025-10-26T00:00+02:00"),  # a day of 25 hours
        ("2025-10-26T05:59+01:00", 24, 6, "2025-10-25T06:00+02:00"),
        ("2025-10-26T06:00+01:00", 24, 6, "2025-10-26T06:00+01:00"),
        ("2025-10-26T02:30+02:00", 1, 0, "2025-10-26T02:00+02:00"),  # the hour comes twice
        ("2025-10-26T02:30+01:00", 1, 0, "2025-10-26T02:00+01:00"),
        ("2025-10-26T05:30+01:00", 6, 0, "2025-10-26T00:00+02:00"),
        ("2025-03-30T03:30+02:00", 2, 0, "2025-03-30T03:00+02:00"),  # no clock shows 02:00
        ("1970-01-03T12:00+01:00", 48, 0, "1970-01-03T00:00+01:00"),
        ("1970-01-02T12:00+01:00", 48, 0, "1970-01-01T00:00+01:00"),
    ],
)
def test_windows_begin_by_the_clocks_of_berlin(time: str, hours: int, offset: int, expected: str) -> None:
    assert begin(time, hours, "Europe/Berlin", offset) == datetime.fromisoformat(expected)


def test_a_day_whose_midnight_comes_twice_begins_once() -> None:
    # In Havana clocks are set back from 01:00 to 00:00.
    first = datetime.fromisoformat("2024-11-03T00:00-04:00")
    for time in ("2024-11-03T00:30-04:00", "2024-11-03T00:30-05:00", "2024-11-03T23:00-05:00"):
        assert begin(time, 24, "America/Havana") == first


def test_a_day_without_a_midnight_begins_when_clocks_are_set_forward() -> None:
    assert begin("2024-03-10T05:00-04:00", 24, "America/Havana") == datetime.fromisoformat(
        "2024-03-10T01:00-04:00"
    )


@pytest.mark.parametrize("zone", ["", "UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"])
@pytest.mark.parametrize("minutes", [30, 60, 120, 360, 1440, 2880])
@pytest.mark.parametrize("offset_minutes", [0, 90])
def test_windows_begin_as_a_search_minute_by_minute_says(
    zone: str, minutes: int, offset_minutes: int
) -> None:
    window = Window(Frame.TUMBLING, minutes * 60_000_000, offset_us=offset_minutes * 60_000_000, zone=zone)
    draw = np.random.default_rng(minutes)
    changes = ["2024-03-10T05:00+00:00", "2024-11-03T05:00+00:00", "2024-03-31T01:00+00:00",
               "2024-10-27T01:00+00:00", "2024-04-06T15:00+00:00", "2024-10-05T15:30+00:00"]  # fmt: skip
    near = [us(change) + draw.integers(-40 * HOUR_US, 40 * HOUR_US, 6) for change in changes]
    times = np.sort(np.concatenate([*near, draw.integers(-(10**15), 10**15, 5)]))
    found = window_begins(window, times)
    assert [begin_of(window, time) for time in times.tolist()] == found.tolist()
    shuffled = draw.permutation(len(times))
    assert window_begins(window, times[shuffled]).tolist() == found[shuffled].tolist()
