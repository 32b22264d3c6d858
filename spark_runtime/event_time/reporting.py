"""Decides whether key groups are called without new events, because they have something to report."""

from __future__ import annotations

from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import is_after


class Reporting:
    """Spark's view of the watermark, which a run does not know before its first micro-batch."""

    def __init__(self) -> None:
        self.told_us: int | None = None
        """The watermark that Spark has after the last micro-batch."""
        self.n_by_clock = 0
        """Micro-batches in which the wall clock has moved the watermark."""
        self._has_moved = False  # since the last call of the key groups

    def note(self, before: Done, done: Done, told_us: int | None, clock_us: int | None) -> None:
        """Record a micro-batch.

        `told_us`: the watermark that Spark was given. `clock_us`: the watermark to which the wall clock moved
        it, if it did.
        """
        self._has_moved = told_us != self.told_us and not done.ended  # at the end all is reported
        if clock_us is not None:
            self.n_by_clock += is_after(clock_us, before.watermark_us)
            # A step of the wall clock for which nothing waits needs no second micro-batch.
            self._has_moved = self._has_moved and (done.waits is None or done.waits.is_due(clock_us))
        self.told_us = told_us

    def is_due(self, done: Done) -> bool:
        """Return whether key groups have something to report, whatever the current watermark is."""
        return self._has_moved or (done.waits is not None and done.waits.must_ask)

    def is_behind(self, watermark_us: int | None) -> bool:
        """Return whether Spark has an earlier watermark than this one, or none."""
        return is_after(watermark_us, self.told_us)
