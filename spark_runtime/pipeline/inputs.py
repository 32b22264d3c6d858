"""The sources that a run reads itself, through their planners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from cep.counts import Counts, Highest
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Unread
from spark_runtime.event_time.pauses import Pauses
from spark_runtime.event_time.remaining import Remaining, StreamKinds
from spark_runtime.sources.protocol import (
    EndingPlanner,
    LosingPlanner,
    Offset,
    Planner,
    Range,
    SelectivePlanner,
    Source,
    SplitByEvents,
    TellingPlanner,
    TimedPlanner,
)
from spark_runtime.wire.plan import Share, shares

Offsets = Mapping[str, Offset]
"""Offsets by stream."""


class Inputs:
    """The sources that we read.

    - `by_spark`: the streams whose sources only Spark can read.
    - `at_once`: whether the run has only one micro-batch, which reads everything.
    - `completes`: whether the input is complete at the end of the run.
    - `looks_ahead`: whether unread input holds the watermark back.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        by_spark: tuple[str, ...] = (),
        *,
        at_once: bool,
        completes: bool,
        looks_ahead: bool,
    ) -> None:
        self._sources = sources
        self._by_spark = by_spark
        self._at_once = at_once
        self._completes = completes
        self._looks_ahead = looks_ahead
        self._planners: dict[str, Planner] = {name: source.planner() for name, source in sources.items()}
        self._n_lost: dict[str, int] = {}  # by stream, of `lost` so far
        self._exhausted: set[str] = set()  # streams without further input, in a run that ends

    @cached_property
    def kinds(self) -> StreamKinds:
        """How the sources are read."""
        mixed = {n for n, s in self._sources.items() if isinstance(s, SplitByEvents) and s.splits_by_events}
        selective = {n for n, p in self._planners.items() if isinstance(p, SelectivePlanner)} - mixed
        timed = {n for n, p in self._planners.items() if isinstance(p, TimedPlanner)}
        return StreamKinds(
            tuple(self._sources), self._by_spark, frozenset(mixed), frozenset(selective), frozenset(timed)
        )

    def begin(self, done: Offsets, *, stops_at_now: bool) -> None:
        """Start after the offsets `done`; `stops_at_now`: ignore input that arrives later."""
        for name, planner in self._planners.items():
            if stops_at_now:
                planner.stop_at_now()
            if name in done:  # a run that crashed may not have committed them
                planner.commit(done[name])

    def new(self, done: Offsets, pauses: Pauses) -> dict[str, Offset]:
        """Return the new offsets of the sources that have new input after `done`."""
        offsets = {}
        for name, planner in self._planners.items():
            if pauses.is_paused(name):
                continue
            start = self._offset(name, done)
            if pauses.only and isinstance(planner, SelectivePlanner) and name in self.kinds.selective:
                end = planner.latest_of(start, pauses.only)
            else:
                end = planner.latest(start)
            while self._at_once and (further := planner.latest(end)) != end:
                end = further
            if end != start:
                offsets[name] = end
            elif pauses.only in ("", name):
                self._exhausted.add(name)
        return offsets

    def is_exhausted(self, name: str) -> bool:
        """Return whether a stream has no further input, in a run that ends."""
        return name in self._exhausted

    def ranges(self, done: Offsets, offsets: Offsets) -> list[tuple[str, int, Range]]:
        """Return the ranges between `done` and `offsets`, each with its stream and its size in bytes."""
        return [
            (name, n_bytes, part)
            for name, end in offsets.items()
            for n_bytes, part in self._planners[name].ranges(self._offset(name, done), end)
        ]

    def shares(
        self, ranges: Sequence[tuple[str, int, Range]], n_tasks: int
    ) -> tuple[list[Share], list[list[int]]]:
        """Return ranges as at most `n_tasks` shares, and `Plan.order`."""
        return shares(ranges, n_tasks, self._sources)

    def is_partitioned(self, ranges: Sequence[tuple[str, int, Range]]) -> bool:
        """Return whether some range belongs to one of several partitions of its source."""
        return any(self._sources[name].partition(part) for name, _, part in ranges)

    def remaining(self, done: Done, read: Offsets | None = None) -> Remaining:
        """Return the input that remains after `done`, and, with `read`, after these are read next."""
        ended = (
            planner.ended(self._offset(name, done.offsets))
            for name, planner in self._planners.items()
            if isinstance(planner, EndingPlanner)
        )
        return Remaining(
            self._unread(done, {**done.offsets, **(read or {})}),
            frozenset().union(*ended),
            frozenset(self._exhausted) if self._completes else None,
        )

    def _unread(self, done: Done, offsets: Offsets) -> dict[str, Unread]:
        found: dict[str, Unread] = {}
        if self._looks_ahead:
            for name, planner in self._planners.items():
                if isinstance(planner, TimedPlanner):
                    ahead = done.reached.guard(self._sources[name].stream)
                    found |= planner.unread_after(self._offset(name, offsets), ahead)
        return found

    def spans(self, done: Done, offsets: Offsets) -> Highest:
        """Return, by partition, a lower bound of the latest event time up to `offsets`."""
        found: Highest = {}
        for name, end in offsets.items():
            planner = self._planners[name]
            if isinstance(planner, TimedPlanner):
                ahead = done.reached.guard(self._sources[name].stream)
                spans = planner.spans(self._offset(name, done.offsets), end, ahead)
                found |= {
                    part: (span.last_us, "") for part, span in spans.items() if span.last_us is not None
                }
        return found

    def latest_of(self, counts: Counts) -> Highest:
        """Return the latest event time by partition."""
        whole = {name: latest for name, latest in counts.latest.items() if name not in self.kinds.mixed}
        return {**whole, **counts.partitions}

    def is_more(self, done: Done, pauses: Pauses) -> bool:
        """Return whether a paused source has more input."""
        return any(self._is_left(name, done) for name in self._planners if pauses.is_paused(name))

    def _is_left(self, name: str, done: Done) -> bool:
        planner, at = self._planners[name], self._offset(name, done.offsets)
        if isinstance(planner, TimedPlanner):
            return bool(planner.unread_after(at, done.reached.guard(self._sources[name].stream)))
        return bool(planner.latest(at) != at)

    def lost(self) -> dict[str, int]:
        """Return, by stream, the records that planners have found removed since the last call."""
        found = {n: p.lost() for n, p in self._planners.items() if isinstance(p, LosingPlanner)}
        new = {name: n - self._n_lost.get(name, 0) for name, n in found.items()}
        self._n_lost = found
        return {name: n for name, n in new.items() if n}

    def commit(self, offsets: Offsets) -> None:
        """Inform the sources that everything up to `offsets` is written."""
        for name, end in offsets.items():
            self._planners[name].commit(end)

    def status(self) -> tuple[str, ...]:
        """Return the messages of the sources for a user."""
        planners = self._planners.items()
        told = [(name, p.status()) for name, p in planners if isinstance(p, TellingPlanner)]
        return tuple(f"{name}: {text}" for name, text in told if text)

    def close(self, counts: Counts) -> None:
        """End the run; add the final counts of the sources to `counts`."""
        for planner in self._planners.values():
            planner.close(counts)

    def _offset(self, name: str, offsets: Offsets) -> Offset:
        return offsets.get(name, self._planners[name].start())
