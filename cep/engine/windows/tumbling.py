"""When tumbling windows start: by the clocks of a zone, where some days have 23 or 25 hours."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cep.arrays import I64
from cep.engine.windows.kernels.layout import NEVER
from cep.engine.windows.kernels.storage import begin_windows
from cep.program.windows import Window
from cep.schema.time_values import offset_at_us

_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_894
"""Days of the years 1 to 9999, less two at each end, counted from 1970-01-01."""

_STEP_DAYS = 64
"""Days that are looked at together: a batch rarely leaves them."""


def window_begins(window: Window, time_us: I64) -> I64:
    """Return when the tumbling window of each time starts, both in microseconds since 1970.

    A window starts when the clock of its zone (by default UTC) shows the offset plus a multiple of the
    length, counted from 1970-01-01T00:00 on that clock. If the clock is set forward past such a time, the
    window starts then. If the clock is set back to such a time or before it, it shows the time twice. A
    window of whole days then starts only the first time. A shorter window starts each time, so two hours with
    the same name are two windows of an hour.

    Parameters
    ----------
    time_us : (n,) int64
        The times, preferably in ascending order.
    """
    begins = np.empty_like(time_us)
    if not len(time_us):
        return begins
    is_days = window.length % _DAY_US == 0
    if window.zone:
        days = (int(time_us.min()) - window.length) // _DAY_US - 2, int(time_us.max()) // _DAY_US + 2
        first = min(max(days[0] // _STEP_DAYS * _STEP_DAYS, _FIRST_DAY), _LAST_DAY)
        last = min((days[1] // _STEP_DAYS + 1) * _STEP_DAYS, _LAST_DAY)
        segments = _segments(window.zone, window.length, window.offset_us, is_days, first, last)
    else:
        segments = _UTC
    begin_windows(time_us, segments, window.length, window.offset_us, is_days, begins)
    return begins


def window_ends(window: Window, begins_us: I64) -> I64:
    """Return when the tumbling windows that start at these times end: when the next one starts.

    Parameters
    ----------
    begins_us : (n,) int64
        Starts of windows, as `window_begins` returns them.
    """
    if not window.zone:
        return begins_us + window.length
    low, places = np.unique(begins_us, return_inverse=True)
    begins, high = low, low + window.length + _MOST_LONGER_US
    while len(low) and int((high - low).max()) > 1:
        middle = low + (high - low) // 2
        is_later = window_begins(window, middle) > begins
        low, high = np.where(is_later, low, middle), np.where(is_later, middle, high)
    ends: I64 = high[places]
    return ends


_MOST_LONGER_US = 3 * _DAY_US
"""By how much a window can be longer than its length says, and more."""

_UTC = np.array([[NEVER, 0, NEVER, NEVER]], np.int64)


def _changes(zone: str, first_day: int, last_day: int) -> list[tuple[int, int]]:
    """Return how far the clocks of a zone are ahead of UTC, and since when. Two changes a day cancel out."""
    found = [(NEVER, offset_at_us(zone, first_day * _DAY_US))]
    for day in range(first_day, last_day):
        before, after = found[-1][1], offset_at_us(zone, (day + 1) * _DAY_US)
        if before != after:
            low, high = day * _DAY_US // _SECOND_US, (day + 1) * _DAY_US // _SECOND_US
            while high - low > 1:  # clocks are set at a whole second
                middle = (low + high) // 2
                if offset_at_us(zone, middle * _SECOND_US) == before:
                    low = middle
                else:
                    high = middle
            found.append((high * _SECOND_US, after))
    return found


@lru_cache(maxsize=256)
def _segments(name: str, length_us: int, offset_us: int, is_days: bool, first_day: int, last_day: int) -> I64:
    """Return the segments of `begin_windows`."""
    rows: list[tuple[int, int, int, int]] = []
    greatest = NEVER
    for since_us, ahead_us in _changes(name, first_day, last_day):
        if not rows:
            rows.append((since_us, ahead_us, NEVER, NEVER))
            continue
        last_us, before_us, open_us, greatest_before = rows[-1]
        number_before = (since_us - 1 + before_us - offset_us) // length_us
        number = (since_us + ahead_us - offset_us) // length_us
        greatest = max(greatest, number_before)
        begin_us = number_before * length_us + offset_us - before_us  # the start of the window being left
        if begin_us < last_us or (is_days and number_before <= greatest_before):
            begin_us = open_us
        if number > (greatest if is_days else number_before):
            begin_us = since_us
        rows.append((since_us, ahead_us, begin_us, greatest))
    return np.array(rows, np.int64)
