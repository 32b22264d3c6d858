"""One watermark for each partition of a source; that of the pipeline is the smallest.

A *source partition* is input whose events arrive in about the order of their times: a whole source, each of
its files, or the events with the same value in a column. A partition that falls behind holds the watermark
back, so none of its events is late because another partition is ahead (Akidau et al., The Dataflow Model,
VLDB 2015, section 2.3; per partition as in Flink's and Kafka's consumers). Input that is known but not yet
read holds it back, too: a backlog of many files is read without loss, in any order.

The driver decides all of this, between two micro-batches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark_runtime.event_time.partitions import Partition, Partitions, Unread

_MS = 1000
"""Microseconds in a millisecond."""


class Follows(StrEnum):
    """The partition that the watermark of a pipeline follows."""

    SLOWEST = "slowest"
    FASTEST = "fastest"


@dataclass(frozen=True, slots=True)
class Held:
    """A watermark, and the partition that holds it back; "" if it follows the fastest."""

    watermark_us: int | None
    holder: str = ""


@dataclass(frozen=True, slots=True)
class WaitingLimit:
    """How many events may wait for a slow partition, and what happens if more do.

    - `events`: number of prepared events in the state of all key groups after a micro-batch.
    - `goes_on`: false: only the partition that holds the watermark back is read until fewer events wait.
      True: the watermark advances without the slow partition, whose events are then late.
    - `n_bytes`: bytes of the events that are in memory at a time; None: only events are counted. A key
      group's state is one value, and each task holds one.
    """

    events: int = 1_000_000
    goes_on: bool = False
    n_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """How the watermark of a pipeline follows from its partitions.

    - `lateness_us`: how far the watermark of a partition lags behind its latest event, in microseconds.
    - `follows`: whether the slowest or the fastest partition decides.
    - `idle_after_s`: by stream: a partition without events for this many seconds of the wall clock, and
      without unread input, holds nothing back until its next event. Partitions of other streams are never
      idle.
    - `end_waits_after_us`: if no partition has had an event for this many microseconds of the wall clock,
      event time advances by the wall clock, in steps of that size; None: it waits for events.
    """

    lateness_us: int
    follows: Follows = Follows.SLOWEST
    idle_after_s: Mapping[str, float] = field(default_factory=dict)
    end_waits_after_us: int | None = None

    def watermark(
        self,
        partitions: Partitions,
        unread: Mapping[str, Unread],
        now_s: float,
        given_up: Collection[str] = (),
    ) -> Held:
        """Return the watermark of the pipeline; None: not known yet.

        Partitions in `given_up` hold nothing back, whatever input they have; nor do those that have been read
        to their end.

        The caller must prevent the watermark from moving back, as it would when a silent partition has events
        again.
        """
        read = {name: p.latest_us for name, p in partitions.items() if p.latest_us is not None}
        if self.follows is Follows.FASTEST:
            return Held(max(read.values()) - self.lateness_us) if read else Held(None)
        awake = {name for name, p in partitions.items() if name in unread or not self.is_idle(p, now_s)}
        bounds = self.bounds({*awake, *unread}.difference(given_up), partitions, unread)
        if not bounds:  # all are silent: no earlier event is expected
            return Held(max(read.values()) - self.lateness_us) if read else Held(None)
        unknown = [name for name, us in bounds.items() if us is None]
        if unknown:
            return Held(None, unknown[0])
        known = {name: us for name, us in bounds.items() if us is not None}
        holder = min(known, key=lambda name: known[name])
        is_behind = bool(read) and known[holder] < max(read.values()) - self.lateness_us
        return Held(known[holder], holder if is_behind else "")

    def bounds(
        self, names: Collection[str], partitions: Partitions, unread: Mapping[str, Unread]
    ) -> dict[str, int | None]:
        """Return the watermark of each of these partitions; None: not known yet."""
        bounds: dict[str, int | None] = {}
        for name in (name for name in (*partitions, *unread) if name in names):
            partition = partitions.get(name)
            latest_us = None if partition is None else partition.latest_us
            reached_us = None if latest_us is None else latest_us - self.lateness_us
            bounds[name] = self._before_unread(reached_us, unread[name]) if name in unread else reached_us
        return bounds

    def by_clock(self, partitions: Partitions, now_s: float, since_s: float) -> int | None:
        """Return the watermark by the wall clock; None: some partition had an event recently.

        It lags behind the clock by the lateness, but is not before the latest event. It is a whole
        millisecond, as Spark counts: otherwise, anything that waits for the time of the latest event would
        wait longer.

        `partitions`: the partitions; the caller knows that no input remains to be read. `now_s` and
        `since_s`: the wall clock now and at the start of this run: time before the run does not count.
        """
        read = [(p.latest_us, p.seen_s) for p in partitions.values() if p.latest_us is not None]
        step_us = self.end_waits_after_us
        if step_us is None or not read:
            return None
        silent_us = int((now_s - max(since_s, *(seen_s for _, seen_s in read))) * 1e6)
        n_steps = silent_us // step_us
        if n_steps < 1:
            return None
        us = max(latest_us for latest_us, _ in read) + max(n_steps * step_us - self.lateness_us, 0)
        # The lateness that Spark subtracts is rounded up.
        return -(-us // _MS) * _MS + (_MS if self.lateness_us % _MS else 0)

    def is_idle(self, partition: Partition, now_s: float) -> bool:
        """Return whether a partition without unread input has been silent for long enough."""
        after_s = self.idle_after_s.get(partition.stream)
        return after_s is not None and now_s - partition.seen_s >= after_s

    def _before_unread(self, reached_us: int | None, part: Unread) -> int | None:
        """Return the latest watermark at which no event of a partition's unread input is late.

        The first event of the input may be followed by events that are nearly `lateness_us` earlier, and an
        event at the watermark is late.
        """
        if part.first_us is None:
            return None
        first_us = part.first_us - max(self.lateness_us, 1)
        return first_us if reached_us is None else min(reached_us, first_us)
