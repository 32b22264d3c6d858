"""How much of each partition a micro-batch reads if it cannot read everything: partitions advance together.

The same span of event time contains different numbers of messages in partitions of different density. Shares
by number would read one partition months ahead of another, and its events would wait in the state. So the
shares end at about the same event time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

_HALVINGS = 60


class Backlog(NamedTuple):
    """The unread part of a partition: `n` messages, from one event time to another.

    The times are microseconds since 1970; None if unknown.
    """

    n: int
    first_us: int | None
    last_us: int | None


P = TypeVar("P", bound=Hashable)


def shares_by_time(backlogs: Mapping[P, Backlog], most: int) -> dict[P, int]:
    """Return how many messages to read from each partition, at most `most` in total.

    Between the first and the last message of a partition, times are assumed to rise evenly. A partition
    without a known first time comes first, because it may lag by any amount.

    `most`: at least 1.
    """
    total = sum(backlog.n for backlog in backlogs.values())
    if total <= most:
        return {name: backlog.n for name, backlog in backlogs.items()}
    found: dict[P, int] = {}
    left = most
    for name, backlog in backlogs.items():
        if backlog.first_us is None:
            found[name] = min(backlog.n, left)
            left -= found[name]
    known = [(name, backlog) for name, backlog in backlogs.items() if backlog.first_us is not None]
    if not known:
        return found
    sizes = np.array([backlog.n for _, backlog in known], np.float64)
    first = np.array([backlog.first_us for _, backlog in known], np.float64)
    last = np.array(
        [backlog.first_us if backlog.last_us is None else backlog.last_us for _, backlog in known], np.float64
    )
    length = np.maximum(last - first, 1.0)
    low, high = first.min() - 1, (first + length).max()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _n_before(middle, sizes, first, length).sum() > left:
            high = middle
        else:
            low = middle
    numbers = np.floor(_n_before(low, sizes, first, length)).astype(np.int64)
    rest = left - int(numbers.sum())
    for at in np.argsort(first, kind="stable").tolist():  # the remainder of rounding, to those that lag most
        more = min(rest, int(sizes[at]) - int(numbers[at]))
        numbers[at] += more
        rest -= more
    return found | {name: int(n) for (name, _), n in zip(known, numbers, strict=True)}


def _n_before(
    time_us: float,
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
    first_us: np.ndarray[tuple[int], np.dtype[np.float64]],
    length_us: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return how many messages of each partition are before a time, float64[n]."""
    return sizes * np.clip((time_us - first_us) / length_us, 0.0, 1.0)
