"""Waits that the wall clock ends (`end_waits_after`): what must be known for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cep.counts import Counts
from spark_runtime.event_time.reached import is_after, latest_time


@dataclass(frozen=True, slots=True)
class Waits:
    """What must be known to end waits by the wall clock.

    Parameters
    ----------
    events_us
        The watermark that events show; that of `Reached` is beyond it where the wall clock has moved it.
        None: it is not known yet.
    deadlines
        By key group in which something waits, the first event time at which it has something to do. None:
        the key groups have not been asked yet.
    """

    events_us: int | None = None
    deadlines: Mapping[str, int] | None = None

    @property
    def must_ask(self) -> bool:
        """Whether the key groups have to be asked for their deadlines."""
        return self.deadlines is None

    def clock_us(self, reached_us: int | None, by_clock_us: int | None) -> int | None:
        """Return the watermark that the wall clock has shown, before or now; None: events show as much.

        Parameters
        ----------
        reached_us
            The watermark that was reached.
        by_clock_us
            Where the wall clock moves it to now; None: it moves it nowhere.
        """
        return latest_time(reached_us if is_after(reached_us, self.events_us) else None, by_clock_us)

    def after(self, counts: Counts, events_us: int | None, *, asked: bool) -> Waits:
        """Return it after a micro-batch; `asked`: each key group was called, and has said its deadline."""
        known = self.deadlines
        if known is not None or asked:
            now = {**(known or {}), **counts.deadlines}
            known = {group: us for group, us in now.items() if us is not None}
        return Waits(events_us, known)

    def is_due(self, watermark_us: int) -> bool:
        """Return whether something waits for `watermark_us` or a time before it, as far as is known."""
        return self.deadlines is None or any(us <= watermark_us for us in self.deadlines.values())
