"""Clocks that run ahead: event times that are too far after those around them.

The watermark follows the latest event time. One event dated 2099 would advance it to 2099, and every later
event would be late. So an event that is more than the stream's `max_ahead` after the others becomes a dead
letter: in the order of their times, all events after the first gap of more than `max_ahead` are refused.
Events that follow each other may cover any time, so an archive of years can be read in one portion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask

ANY_TIME_US = 1 << 62
"""As `max_ahead`: rows of a program and of a DataFrame may be ahead of the others by any time."""

ENOUGH = 8
"""Events that outweigh what a stream had reached before: the half of them that lies ahead is believed."""


class TrueTimes(Protocol):
    """Estimates the times of events whose devices have wrong clocks; it learns from each event."""

    def true_times(self, events: pa.Table) -> pa.Array:
        """Return the time of each event, int64 microseconds since 1970; NULL: unknown."""

    def copy(self) -> TrueTimes:
        """Return an independent copy."""


@dataclass(slots=True)
class AheadGuard:
    """Judges the event times of one source partition: refuses those that are too far ahead.

    Parameters
    ----------
    max_ahead_us
        How far an event may be ahead of the reference.
    latest_us
        The latest event time so far, in microseconds since 1970; None: unknown. It advances with the events
        that are not refused.
    now_us
        The wall clock of a live stream, which then is the reference.
    clocks
        For a stream with a `device_clock`: the estimator of the times.

    Without a wall clock the reference is `latest_us`, or the median of the given times if it is later and
    represents at least `ENOUGH` events. After that, each event that is not refused is the reference for the
    next one in time. So a gap in the times of a stream is accepted once enough events follow it, and a single
    wrong first event cannot spoil a stream.
    """

    max_ahead_us: int
    latest_us: int | None = None
    now_us: int | None = None
    clocks: TrueTimes | None = None

    def copy(self) -> AheadGuard:
        """Return an independent guard that continues from here."""
        return replace(self, clocks=None if self.clocks is None else self.clocks.copy())

    def refused(self, times_us: I64) -> Mask:
        """Return which of some event times that arrived together are too far ahead.

        Parameters
        ----------
        times_us
            int64[n], microseconds since 1970.

        Returns
        -------
        bool[n]
        """
        if len(times_us) == 0:
            return np.zeros(0, np.bool_)
        last_us = int(times_us.max())
        known_us = self.latest_us if self.now_us is None else self.now_us
        lowest_us = int(times_us.min()) if known_us is None else known_us
        if last_us - lowest_us <= self.max_ahead_us:  # the usual case: no median is needed
            is_refused = np.zeros(len(times_us), np.bool_)
        else:
            is_refused = times_us > self._last_us(times_us)
            accepted = times_us[~is_refused]
            if len(accepted) == 0:
                return is_refused
            last_us = int(accepted.max())
        self.latest_us = last_us if self.latest_us is None else max(self.latest_us, last_us)
        return is_refused

    def _last_us(self, times_us: I64) -> int:
        """Return the time after which events are too far ahead."""
        if self.now_us is not None:
            return self.now_us + self.max_ahead_us
        reference_us = self._reference_us(times_us)
        # Not `reference_us + max_ahead_us`: of events that cover more than that, the last ones would be lost.
        later = np.append(reference_us, np.sort(times_us[times_us > reference_us]))
        gaps = np.flatnonzero(np.diff(later) > self.max_ahead_us)
        return int(later[gaps[0] if len(gaps) else -1])

    def _reference_us(self, times_us: I64) -> int:
        if self.latest_us is not None and len(times_us) < ENOUGH:
            return self.latest_us
        # The lower median: of two events the earlier one is believed.
        middle = (len(times_us) - 1) // 2
        median_us = int(np.partition(times_us, middle)[middle])
        return median_us if self.latest_us is None else max(self.latest_us, median_us)
