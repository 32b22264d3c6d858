"""Waits that the wall clock ends (`end_waits_after`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cep.counts import Counts
from spark_runtime.event_time.reached import is_after, latest_time


@dataclass(frozen=True, slots=True)
class Waits:
    """The state from which the wall clock ends waits.

    `events_us`: the watermark by events alone; that of `Reached` is later if the wall clock has moved it.
    None: not known yet. `deadlines`: for each key group in which something waits, the first event time at
    which it must act. None: the key groups have not reported it yet.
    """

    events_us: int | None = None
    deadlines: Mapping[str, int] | None = None

    @property
    def must_ask(self) -> bool:
        """Whether the key groups must report their deadlines."""
        return self.deadlines is None

    def clock_us(self, reached_us: int | None, by_clock_us: int | None) -> int | None:
        """Return the watermark that the wall clock has set, earlier or now; None if events set it.

        `by_clock_us`: the watermark to which the wall clock moves it now; None if it does not.
        """
        return latest_time(reached_us if is_after(reached_us, self.events_us) else None, by_clock_us)

    def after(self, counts: Counts, events_us: int | None, *, asked: bool) -> Waits:
        """Return the waits after a micro-batch; `asked`: each key group has reported its deadline."""
        known = self.deadlines
        if known is not None or asked:
            now = {**(known or {}), **counts.deadlines}
            known = {group: us for group, us in now.items() if us is not None}
        return Waits(events_us, known)

    def is_due(self, watermark_us: int) -> bool:
        """Return whether something is known to be waiting for `watermark_us` or an earlier time."""
        return self.deadlines is None or any(us <= watermark_us for us in self.deadlines.values())
