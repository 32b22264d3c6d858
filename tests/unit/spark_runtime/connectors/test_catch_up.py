"""Shares of partitions that advance together in event time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_runtime.connectors.message_logs.catch_up import Backlog, shares_by_time


def test_what_fits_is_read_whole() -> None:
    assert shares_by_time({"a": Backlog(3, 0, 9), "b": Backlog(4, None, None)}, 7) == {"a": 3, "b": 4}


def test_partitions_of_unlike_density_end_at_about_the_same_time() -> None:
    dense, sparse = Backlog(9_000, 0, 1_000), Backlog(1_000, 0, 1_000)
    assert shares_by_time({"dense": dense, "sparse": sparse}, 1_000) == pytest.approx(
        {"dense": 900, "sparse": 100}, abs=1
    )


def test_the_partition_that_is_furthest_behind_is_read_first() -> None:
    behind, ahead = Backlog(500, 0, 500), Backlog(500, 10_000, 20_000)
    assert shares_by_time({"ahead": ahead, "behind": behind}, 400) == {"ahead": 0, "behind": 400}
    assert shares_by_time({"ahead": ahead, "behind": behind}, 600) == {"ahead": 100, "behind": 500}


def test_what_has_no_known_time_is_read_first() -> None:
    unknown, known = Backlog(5, None, None), Backlog(5, 0, 5)
    assert shares_by_time({"known": known, "unknown": unknown}, 6) == {"known": 1, "unknown": 5}
    assert shares_by_time({"x": unknown, "y": unknown}, 6) == {"x": 5, "y": 1}


@pytest.mark.parametrize("most", [1, 2, 7, 1_000])
def test_a_micro_batch_is_as_large_as_it_may_be(most: int) -> None:
    backlogs = {
        "one time": Backlog(10_000, 5, 5),
        "no end": Backlog(10_000, 5, None),
        "backwards": Backlog(10_000, 9, 3),
        "as usual": Backlog(10_000, 0, 1_700_000_000_000_000),
    }
    found = shares_by_time(backlogs, most)
    assert sum(found.values()) == most
    assert all(0 <= n <= 10_000 for n in found.values())


def test_a_backlog_is_read_in_the_order_of_time() -> None:
    left = {"a": (0, 100, 1), "b": (50, 5_000, 10), "c": (3_000, 100, 30)}  # first time, messages, step
    ends = []
    read = dict.fromkeys(left, 0)
    while any(read[name] < n for name, (_, n, _) in left.items()):
        backlogs = {
            name: Backlog(n - read[name], first + step * read[name], first + step * n)
            for name, (first, n, step) in left.items()
            if read[name] < n
        }
        for name, n in shares_by_time(backlogs, 500).items():
            read[name] += n
        ends.append(
            min(
                (first + step * read[name] for name, (first, n, step) in left.items() if read[name] < n),
                default=10**9,
            )
        )
    assert all(one < other for one, other in pairwise(ends))
    assert len(ends) == 11
