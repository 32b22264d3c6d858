"""Event times too far ahead of those around them."""

from __future__ import annotations

import numpy as np
import pytest

from cep.formats.ahead import ENOUGH, AheadGuard

DAY = 86_400_000_000
FAR = 10_000 * DAY


def refused(guard: AheadGuard, *times_us: int) -> list[int]:
    times = np.array(times_us, np.int64)
    found: list[int] = times[guard.refused(times)].tolist()
    return found


def test_one_wrong_clock_is_refused_wherever_it_stands_among_the_first_events() -> None:
    for times in ((FAR, 1, 2), (1, FAR, 2), (1, 2, FAR), (1, FAR)):
        guard = AheadGuard(DAY)
        assert refused(guard, *times) == [FAR]
        assert guard.latest_us == max(time for time in times if time != FAR)


def test_what_was_reached_before_counts_for_a_few_events() -> None:
    guard = AheadGuard(DAY, latest_us=5)
    assert refused(guard, FAR, FAR + 1) == [FAR, FAR + 1]
    assert guard.latest_us == 5


def test_many_events_behind_a_hole_are_believed() -> None:
    guard = AheadGuard(DAY, latest_us=5)
    assert refused(guard, *range(FAR, FAR + ENOUGH)) == []
    assert guard.latest_us == FAR + ENOUGH - 1


def test_the_bound_itself_is_not_too_far() -> None:
    assert refused(AheadGuard(DAY, latest_us=5), 5 + DAY) == []
    assert refused(AheadGuard(DAY, latest_us=5), 6 + DAY) == [6 + DAY]
    assert refused(AheadGuard(DAY), 5, 5 + DAY) == []


def test_a_live_stream_is_judged_by_the_wall_clock() -> None:
    guard = AheadGuard(DAY, latest_us=5, now_us=FAR)
    assert refused(guard, FAR, FAR + DAY, FAR + DAY + 1) == [FAR + DAY + 1]
    assert guard.latest_us == FAR + DAY


@pytest.mark.parametrize("latest_us", [None, 7])
def test_no_events_change_nothing(latest_us: int | None) -> None:
    guard = AheadGuard(DAY, latest_us)
    assert refused(guard) == []
    assert guard.latest_us == latest_us


@pytest.mark.parametrize("is_one_portion", [True, False])
def test_events_that_follow_each_other_may_cover_any_time(is_one_portion: bool) -> None:
    guard, hours = AheadGuard(DAY), [at * DAY // 24 for at in range(24 * 30)]
    if is_one_portion:
        assert refused(guard, *reversed(hours), 40 * DAY) == [40 * DAY]
        assert guard.latest_us == hours[-1]
    else:
        assert [time for time in (*hours, 40 * DAY) if refused(guard, time)] == [40 * DAY]


def test_what_lies_after_a_gap_is_refused_with_all_that_follows_it() -> None:
    guard = AheadGuard(DAY)
    assert refused(guard, *range(50), FAR, FAR + 1, FAR + DAY) == [FAR, FAR + 1, FAR + DAY]
    assert guard.latest_us == 49
