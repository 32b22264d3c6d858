"""The events that wait for slow source partitions, and the partitions that were given up because of them.

The checkpoint stores them, so a restarted run knows immediately if too many events are waiting. Otherwise
each start would add another micro-batch of the fast sources to the waiting events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any

from cep.counts import Counts, Split
from cep.errors import InputError
from spark_runtime.event_time.watermarks import Held, WaitingLimit


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waiting events after a micro-batch.

    - `by_group`: by key group, the number of prepared events in its state that wait for the watermark.
    - `bytes_of_group`: by key group, the bytes of these events in memory.
    - `given_up`: source partitions that hold nothing back until they have caught up, because too many events
      waited.
    - `n_next`: how many partitions are given up if too many events still wait after the next micro-batch.
    """

    by_group: Split = field(default_factory=dict)
    bytes_of_group: Split = field(default_factory=dict)
    given_up: tuple[str, ...] = ()
    n_next: int = 1

    @property
    def total(self) -> int:
        """Number of waiting events."""
        return sum(self.by_group.values())

    def after(self, counts: Counts) -> Waiting:
        """Return what waits after a micro-batch, which need not have called all key groups."""
        by_group = self.by_group | counts.waiting
        return replace(self, by_group=by_group, bytes_of_group=self.bytes_of_group | counts.waiting_bytes)

    def is_too_much(self, limit: WaitingLimit, n_tasks: int) -> bool:
        """Return whether too many events wait for `limit`; `n_tasks` key groups are in memory at a time."""
        if self.total > limit.events:
            return True
        in_memory = sum(nlargest(n_tasks, self.bytes_of_group.values()))
        return limit.n_bytes is not None and in_memory > limit.n_bytes

    def without(self, caught_up: Collection[str]) -> Waiting:
        """Return what waits after partitions that were given up have caught up and count again."""
        return replace(self, given_up=tuple(name for name in self.given_up if name not in caught_up))

    def giving_up(self, held: Callable[[Collection[str]], Held]) -> Waiting:
        """Return what waits after the slowest partitions are given up, because too many events wait.

        The effect of giving up a partition is known only after the next micro-batch. So one is given up, then
        two, then four. So no partition that lags a little is given up because of one that lags far, and 14
        micro-batches are enough for 10,000 partitions.

        `held`: the watermark without some partitions, and what holds it.
        """
        given_up = list(self.given_up)
        for _ in range(self.n_next):
            holder = held(given_up).holder
            if not holder:
                break
            given_up.append(holder)
        return replace(self, given_up=tuple(given_up), n_next=2 * self.n_next)

    def to_json(self) -> list[Any]:
        """Return the object as JSON values."""
        return [dict(self.by_group), dict(self.bytes_of_group), list(self.given_up), self.n_next]

    @classmethod
    def of_json(cls, found: list[Any]) -> Waiting:
        """Return the object that `to_json` wrote."""
        by_group, bytes_of_group, given_up, n_next = found
        return cls(by_group, bytes_of_group, tuple(given_up), n_next)


def cannot_end(holder: str, waiting: int) -> InputError:
    """Return the error for a run over the available input that has read nothing because of a pause."""
    return InputError(
        "E0847",
        f"too many events wait for {holder}, {waiting:,}: the other sources are paused, and {holder} has "
        "nothing to read. This run has read no event, and left events unread",
        "give it newer events; or set `idle_after` for it, `at_max_waiting: go_on` to go on without it, "
        "a larger `max_waiting_events`, or `at_end: finish` if nothing more comes",
    )


def cannot_pause(holder: str, waiting: int) -> InputError:
    """Return the error for a pipeline in which too many events wait and a pause would not help."""
    return InputError(
        "E0847",
        f"too many events wait for {holder}, {waiting:,}, and no source can be paused: the events of its "
        "partitions come together",
        "set `idle_after` if it may be silent, `at_max_waiting: go_on` to go on without it, "
        "or more memory and a larger `max_waiting_events`",
    )
