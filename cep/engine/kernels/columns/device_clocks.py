"""True event times of devices whose clocks are wrong, from times of sending and receipt.

The send time that a device gives a record and the time at which a server receives it differ by the error of
the device's clock and the delay of the network: ``gap = received - sent = offset + delay``. The delay is
never below 0, so the offset is the lower edge of the gaps over time. It is found as the lower convex hull of
the gaps; the line is the edge of the hull under the middle of the observed time. Of all lines that have no
gap below them, it is the nearest to the gaps (Moon, Skelly, Towsley, Estimation and Removal of Clock Skew
from Network Delay Measurements, INFOCOM 1999, section IV; with a convex hull: Zhang, Liu, Xia, Clock
Synchronization Algorithms for Network Measurements, INFOCOM 2002, section III). The gap of a record that had
to be sent repeatedly is far above the edge and changes nothing.

All times are microseconds since 1970; offsets and gaps are microseconds.
"""

from __future__ import annotations

import math

from cep.arrays import I32, I64
from cep.engine.kernels.compiled import inlined, kernel

MOST_POINTS = 12
"""Points of a hull that are kept. Of n random delays it has about log n."""

MEMORY_US = 86_400_000_000
"""How long a gap counts: 24 hours. A clock's drift changes with its temperature."""

SPAN_US = 3_600_000_000
"""From which length on the hull tells a drift: 1 hour. Delays that differ by 50 ms look like 14 ppm then."""

MOST_DRIFT = 200e-6
"""The largest drift of a clock, 200 ppm. Quartz has 20 to 100."""

TOLERANCE_US = 1_000_000
"""A gap further from the line than this is not a matter of usual delays: 1 second."""

JUMP_RECORDS, JUMP_US = 5, 10_000_000
"""A clock was set back if this many records, over this time, lie above the line by about the same gap."""

MOST_MISSED = 3
"""So many records that are held up even longer may come between those with one gap."""

# Columns of the clocks. The hull: its number of points, and of records that it contains. Records above the
# line by one gap: their number, the lowest gap, when the first arrived, and how many others arrived since the
# last of them. The clock before it was set: the times after and before which that happened (BEFORE is 0: it
# never was), and its line. Then the time and the gap of each point of the hull.
POINTS, LEARNED, ABOVE, LOWEST, SINCE, MISSED, AFTER, BEFORE, OLD_AT, OLD_OFFSET, OLD_DRIFT, FIRST = range(12)
WIDTH = FIRST + 2 * MOST_POINTS

_DRIFT_UNIT = 1e-12


@inlined
def _line(clock: I64) -> tuple[int, float, float]:
    """Return the line under the gaps of a clock: a time, the offset at it in microseconds, and the drift."""
    n = clock[POINTS]
    begin, end = clock[FIRST], clock[FIRST + 2 * (n - 1)]
    if end - begin < SPAN_US:
        lowest = clock[FIRST + 1]
        for point in range(1, n):
            lowest = min(lowest, clock[FIRST + 2 * point + 1])
        return end, float(lowest), 0.0
    middle = begin + (end - begin) // 2
    place = FIRST
    while clock[place + 2] < middle:
        place += 2
    drift = (clock[place + 3] - clock[place + 1]) / (clock[place + 2] - clock[place])
    at, offset = clock[place], float(clock[place + 1])
    if abs(drift) > MOST_DRIFT:
        drift = MOST_DRIFT if drift > 0 else -MOST_DRIFT
        for point in range(n):  # no point may lie below it
            here = FIRST + 2 * point
            offset = min(offset, clock[here + 1] - drift * (clock[here] - at))
    return at, offset, drift


@inlined
def _offset_at(found: tuple[int, float, float], time_us: int) -> int:
    """Return the offset of a line at a time."""
    at, offset, drift = found
    return math.floor(offset + drift * (time_us - at))


@inlined
def _line_before(clock: I64) -> tuple[int, float, float]:
    """Return the line of a clock before it was set."""
    return clock[OLD_AT], float(clock[OLD_OFFSET]), clock[OLD_DRIFT] * _DRIFT_UNIT


@inlined
def _start(clock: I64, received_us: int, gap_us: int) -> None:
    """Start the clock with one gap."""
    clock[POINTS], clock[LEARNED], clock[ABOVE] = 1, 1, 0
    clock[FIRST], clock[FIRST + 1] = received_us, gap_us


@inlined
def _restart(clock: I64, before_us: int, received_us: int, gap_us: int) -> None:
    """Restart the clock: it was set before `before_us`, or all records so far had been delayed."""
    if clock[LEARNED] >= JUMP_RECORDS:
        at, offset, drift = _line(clock)
        clock[AFTER], clock[BEFORE] = clock[FIRST + 2 * (clock[POINTS] - 1)], before_us
        clock[OLD_AT], clock[OLD_OFFSET] = at, math.floor(offset)
        clock[OLD_DRIFT] = math.floor(drift / _DRIFT_UNIT)
    _start(clock, received_us, gap_us)


@inlined
def _forget(clock: I64, received_us: int) -> None:
    """Drop the points that are too old."""
    n = clock[POINTS]
    n_old = 0
    while n_old < n and clock[FIRST + 2 * n_old] < received_us - MEMORY_US:
        n_old += 1
    if n_old:
        for place in range(FIRST, FIRST + 2 * (n - n_old)):
            clock[place] = clock[place + 2 * n_old]
        clock[POINTS] = n - n_old


@inlined
def _flattest(clock: I64, n: int) -> int:
    """Return the index of the inner point that the hull can best do without."""
    found, least = FIRST + 2, math.inf
    for place in range(FIRST + 2, FIRST + 2 * (n - 1), 2):
        begin, end = place - 2, place + 2
        slope = (clock[end + 1] - clock[begin + 1]) / (clock[end] - clock[begin])
        height = clock[begin + 1] + slope * (clock[place] - clock[begin]) - clock[place + 1]
        if height < least:
            found, least = place, height
    return found


@inlined
def _extend(clock: I64, received_us: int, gap_us: int) -> None:
    """Add a point to the hull; a point before the last one is ignored."""
    n = clock[POINTS]
    last = FIRST + 2 * (n - 1)
    if received_us < clock[last] or (received_us == clock[last] and gap_us >= clock[last + 1]):
        return
    if received_us == clock[last]:
        n -= 1
    while n >= 2:
        one, two = FIRST + 2 * (n - 2), FIRST + 2 * (n - 1)
        to_two, to_new = clock[two] - clock[one], received_us - clock[one]
        rise = float(clock[two + 1] - clock[one + 1]) * to_new
        if rise < float(gap_us - clock[one + 1]) * to_two:
            break
        n -= 1  # the last point lies on or above the line from the one before it to the new one
    if n == MOST_POINTS:
        for place in range(_flattest(clock, n), FIRST + 2 * (n - 1)):
            clock[place] = clock[place + 2]
        n -= 1
    clock[FIRST + 2 * n], clock[FIRST + 2 * n + 1] = received_us, gap_us
    clock[POINTS] = n + 1


@inlined
def _learn(clock: I64, received_us: int, gap_us: int) -> None:
    """Add the gap of one record to a clock."""
    since_us = max(received_us - clock[FIRST + 2 * (clock[POINTS] - 1)], 0)
    allowed_us = TOLERANCE_US + int(MOST_DRIFT * since_us)
    above_us = gap_us - _offset_at(_line(clock), received_us)
    if above_us < -allowed_us:
        _restart(clock, received_us, received_us, gap_us)
    elif above_us <= allowed_us:
        clock[LEARNED] += 1
        clock[ABOVE] = 0
        _extend(clock, received_us, gap_us)
    elif clock[ABOVE] > 0 and gap_us > clock[LOWEST] + TOLERANCE_US and clock[MISSED] < MOST_MISSED:
        clock[MISSED] += 1
    elif clock[ABOVE] == 0 or abs(gap_us - clock[LOWEST]) > TOLERANCE_US:
        clock[ABOVE], clock[LOWEST], clock[SINCE], clock[MISSED] = 1, gap_us, received_us, 0
    else:
        clock[ABOVE] += 1
        clock[MISSED] = 0
        clock[LOWEST] = min(clock[LOWEST], gap_us)
        if clock[ABOVE] >= JUMP_RECORDS and received_us - clock[SINCE] >= JUMP_US:
            _restart(clock, clock[SINCE], received_us, clock[LOWEST])


@inlined
def _is_of_clock_before(clock: I64, sent_us: int, received_us: int) -> bool:
    """Return whether a record was sent before the clock was set, so it says nothing about the clock now."""
    if clock[BEFORE] == 0 or received_us - clock[BEFORE] > MEMORY_US:
        return False
    now_us = _offset_at(_line(clock), received_us)
    old_us = _offset_at(_line_before(clock), received_us)
    gap_us = received_us - sent_us
    if gap_us >= now_us - TOLERANCE_US and sent_us + now_us >= clock[AFTER] - TOLERANCE_US:
        return False
    return gap_us >= old_us - TOLERANCE_US and sent_us + old_us <= clock[BEFORE] + TOLERANCE_US


@kernel
def estimate_times(
    codes: I32, event_us: I64, sent_us: I64, received_us: I64, clocks: I64, true_us: I64
) -> None:
    """Write the true time of each event, after its record has updated the clock.

    Parameters
    ----------
    codes : (n,) int32
        The number of each event's device.
    event_us, sent_us : (n,) int64
        When the event happened and was sent, by the clock of the device; microseconds since 1970.
    received_us : (n,) int64
        When the server received it, microseconds since 1970; approximately in this order.
    clocks : (devices, WIDTH) int64
        What is known about each device's clock; all 0: nothing. Changed.
    true_us : (n,) int64
        Written: microseconds since 1970, not after `received_us`.
    """
    for row in range(codes.shape[0]):
        clock = clocks[codes[row]]
        event, sent, received = event_us[row], sent_us[row], received_us[row]
        if clock[POINTS]:
            _forget(clock, received)
        if clock[POINTS] == 0:
            _start(clock, received, received - sent)
        was_set = _is_of_clock_before(clock, sent, received)
        if not was_set:
            _learn(clock, received, received - sent)
        found = _line(clock)
        if not was_set and clock[BEFORE] and received - clock[BEFORE] <= MEMORY_US:
            # The event may have happened before the clock was set, and its record was sent after it.
            old = event + _offset_at(_line_before(clock), received)
            is_new = event + _offset_at(found, received) >= clock[AFTER] - TOLERANCE_US
            was_set = not is_new and old <= clock[BEFORE] + TOLERANCE_US
        if was_set:
            found = _line_before(clock)
        rough = event + _offset_at(found, received)
        true_us[row] = min(event + _offset_at(found, rough), received)
