"""When a micro-batch of a stream begins, and what it reads: decided here, not by Spark.

Spark starts a micro-batch whenever the last one is done, and asks for it; the answer is a plan, which comes
once there is something to do. So Spark has already planned and logged its micro-batch when the events
arrive. One process knows everything that decides about the next one: what the sources have, how far event
time has got, and whether something is still to be reported.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cep.counts import Counts, Highest, Split
from cep.errors import InputError
from spark_runtime.pipeline.checkpoint import Checkpoint, Done, planned, write_done, write_plan
from spark_runtime.pipeline.time_status import PartitionStatus, TimeStatus, furthest_behind_first
from spark_runtime.sources.partitions import (
    MAX_PARTITIONS,
    Partition,
    Partitions,
    Unread,
    after,
    stream_of,
)
from spark_runtime.sources.plan import Plan, shares
from spark_runtime.sources.protocol import Offset, Planner, Range, Source, SplitByEvents, TimedPlanner
from spark_runtime.sources.watermarks import Follows, Held, WaitingLimit, WatermarkRule

MIN_POLL_SECONDS = 0.01

_LOOKS_SHARE = 5
"""The pause between two looks at the sources is this many times as long as a look."""


@dataclass
class MicroBatches:
    """The micro-batches of one run.

    Parameters
    ----------
    checkpoint
        Where plans stand.
    sources
        By stream, those that we read.
    n_tasks
        Tasks that read side by side.
    rule
        How the watermark follows from the source partitions.
    done
        The last micro-batch that is not repeated.
    interval_s
        Seconds from the beginning of a micro-batch to the beginning of the next one. With None the run reads
        the present input as fast as it can, and then ends.
    finishes
        Whether the input is complete then.
    by_spark
        The streams of other sources, which only Spark can read. Nobody knows here whether they have
        something; so no micro-batch waits, and Spark says when the run ends.
    start_us
        A time before all event times, microseconds since 1970.
    clock
        The wall clock, in seconds since 1970.
    limit
        What becomes of fast sources when many events wait for a slow one.
    """

    checkpoint: Checkpoint
    sources: Mapping[str, Source]
    n_tasks: int
    rule: WatermarkRule
    done: Done
    interval_s: float | None
    finishes: bool
    by_spark: tuple[str, ...] = ()
    start_us: int = 0
    clock: Callable[[], float] = time.time
    limit: WaitingLimit = field(default_factory=WaitingLimit)
    stopped: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)
    """How long each complete micro-batch took, with the work of Spark around it."""

    def __post_init__(self) -> None:
        self._planners: dict[str, Planner] = {name: s.planner() for name, s in self.sources.items()}
        self._begun_s = self._moved_s = self.clock()
        self._waiting: Split = {}  # events that wait for the watermark, by key group
        self._given_up: set[str] = set()  # partitions that hold nothing back any more, because too many wait
        self._begun: float | None = None  # when the micro-batch that is running began
        self._last_begun = float("-inf")
        self._plan = Plan(())
        self._told_us: int | None = None  # the watermark that Spark has after the last micro-batch
        self._has_moved = False  # whether Spark's watermark has gone on since the operator was called last
        self.held = Held(self.done.reached.watermark_us)
        for name, planner in self._planners.items():
            if self.interval_s is None:
                planner.stop_at_now()
            if name in self.done.offsets:  # a run that died may not have said so
                planner.commit(self.done.offsets[name])

    def next(self, batch: int) -> Plan | None:
        """Return the plan of micro-batch `batch`, once there is one; None: the run ends."""
        self.add_seconds()
        plan = planned(self.checkpoint, batch)
        if plan is None:
            plan = self._wait()
            if plan is None:
                return None
            write_plan(self.checkpoint, batch, plan)
        self._begun = self._last_begun = time.monotonic()
        self._plan = plan
        return plan

    def complete(self, batch: int, counts: Counts) -> None:
        """Write down that micro-batch `batch` is computed and its output written."""
        plan = self._plan
        partitions = after(self._partitions, self._latest_of(counts), self.clock())
        _require_few(partitions)
        offsets = {**self.done.offsets, **plan.offsets}
        ended = self.done.ended or plan.ends
        self.done = Done(batch, self.done.reached, offsets, ended=ended, partitions=partitions)
        self._waiting |= counts.waiting
        self.held = self._held(self._unread_after(offsets))
        reached = plan.reached.after(counts.latest, self.held.watermark_us, counts.clocks)
        self.done = replace(self.done, reached=reached)
        told_us = reached.watermark_us if plan.cap_us is None else plan.cap_us
        if reached.watermark_us != plan.reached.watermark_us:
            self._moved_s = self.clock()
        self._has_moved = told_us != self._told_us
        self._told_us = told_us
        write_done(self.checkpoint, self.done)
        for name, end in plan.offsets.items():
            self._planners[name].commit(end)

    def stop(self) -> None:
        """Let no further micro-batch begin."""
        self.stopped.set()

    def close(self, counts: Counts) -> None:
        """End the run; add to `counts` what the sources have to say at the end."""
        for planner in self._planners.values():
            planner.close(counts)

    def add_seconds(self) -> None:
        """Add the time that the complete micro-batch took to `seconds`."""
        if self._begun is not None:
            self.seconds.append(time.monotonic() - self._begun)
            self._begun = None

    def _wait(self) -> Plan | None:
        """Return a new plan, once there is something to do."""
        if self.interval_s is None:
            return None if self.stopped.is_set() else self._now()
        self._sleep(self._last_begun + self.interval_s - time.monotonic())
        while not self.stopped.is_set():
            looked = time.monotonic()
            offsets = self._offsets()
            if offsets or self._must_tell() or self.by_spark:
                return self._new(offsets)
            self._sleep(max(MIN_POLL_SECONDS, _LOOKS_SHARE * (time.monotonic() - looked)))
        return None

    def _now(self) -> Plan | None:
        """Return the next plan of a run that ends, None at its end."""
        offsets = self._offsets()
        ends = self.finishes and not self.done.ended
        if self.by_spark:
            return self._new(offsets, ends=ends)
        if offsets:
            return self._new(offsets)
        # Called without events, the operator reports results whose deadline the watermark has reached.
        return self._new({}, ends=ends) if ends or self._must_tell() else None

    def _offsets(self) -> dict[str, Offset]:
        """Return where the sources are that have something new."""
        offsets = {}
        paused = self._paused()
        for name, planner in self._planners.items():
            if name in paused:
                continue
            start = self._offset(name)
            end = planner.latest(start)
            if self.by_spark and self.interval_s is None:  # Spark gives us one micro-batch only
                while (further := planner.latest(end)) != end:
                    end = further
            if end != start:
                offsets[name] = end
        return offsets

    def _new(self, offsets: Mapping[str, Offset], *, ends: bool = False) -> Plan:
        ranges = [
            (name, n_bytes, part)
            for name, end in offsets.items()
            for n_bytes, part in self._planners[name].ranges(self._offset(name), end)
        ]
        parts = shares(ranges, self.n_tasks, self.sources)
        unread = self._unread_after({**self.done.offsets, **offsets})
        if not (self._has_several or unread or any(map(self._is_partitioned, ranges))):
            return Plan(parts, dict(offsets), self.done.reached, ends)
        # Nothing that is read now is late because its partition was taken for silent until now.
        before = self._forward(self._held(self._unread_after(self.done.offsets)).watermark_us)
        self.held = self._held(unread, self._spans(offsets))
        cap_us = max(
            (us for us in (before, self.held.watermark_us) if us is not None), default=self._start_us
        )
        return Plan(parts, dict(offsets), replace(self.done.reached, watermark_us=before), ends, cap_us)

    # ------------------------------------------------------------ the watermark

    @property
    def _has_several(self) -> bool:
        """Whether several partitions decide about the watermark, or may once there are events."""
        if self.rule.follows is Follows.FASTEST:
            return False
        whole = (*self.sources, *self.by_spark)
        if len(whole) > 1 or any(name not in whole for name in self.done.partitions):
            return True
        return any(map(_splits_by_events, self.sources.values()))

    def _is_partitioned(self, item: tuple[str, int, Range]) -> bool:
        """Return whether a range is in one of several partitions of its source."""
        name, _, part = item
        return self.rule.follows is Follows.SLOWEST and bool(self.sources[name].partition(part))

    @property
    def _start_us(self) -> int:
        return self.start_us - self.rule.lateness_us - 1

    @property
    def _partitions(self) -> Partitions:
        """The partitions that are known; a source of which nothing is known is one."""
        known = dict(self.done.partitions)
        named = {partition.stream for partition in known.values()}
        for stream in (*self.sources, *self.by_spark):
            if stream not in named:
                known[stream] = Partition(stream, seen_s=self._begun_s)
        return known

    def _latest_of(self, counts: Counts) -> Highest:
        """Return the latest event time by partition."""
        split = {name for name, source in self.sources.items() if _splits_by_events(source)}
        whole = {name: latest for name, latest in counts.latest.items() if name not in split}
        return {**whole, **counts.partitions}

    def _held(self, unread: Mapping[str, Unread], spans: Highest | None = None) -> Held:
        """Return the watermark as it is now; `spans`: after events of these times."""
        partitions = after(self._partitions, spans or {}, self.clock())
        held = self.rule.watermark(partitions, unread, self.clock(), self._given_up)
        if held.holder and self._is_full and self.limit.goes_on:
            self._given_up.add(held.holder)
            return self._held(unread, spans)
        return held

    @property
    def _is_full(self) -> bool:
        return sum(self._waiting.values()) > self.limit.events

    def _paused(self) -> set[str]:
        """Return the streams that nothing is read of, because too many events wait for another one."""
        if not self._is_full or self.limit.goes_on or not self.held.holder:
            return set()
        return set(self._planners) - {stream_of(self.held.holder)}

    def held_line(self) -> str:
        """Return who holds the watermark back, for the line of progress; it looks at no source."""
        waiting, held_s = sum(self._waiting.values()), self.clock() - self._moved_s
        return TimeStatus(self.done.reached.watermark_us, self.held.holder, held_s, waiting).line()

    def status(self) -> TimeStatus:
        """Return how far event time is."""
        now_s = self.clock()
        known = self._partitions
        unread = self._unread_after(self.done.offsets) if self._has_several else {}
        latest = {name: part.latest_us for name, part in known.items()}
        fastest_us = max((us for us in latest.values() if us is not None), default=0)
        paused = self._paused()
        parts = {
            name: PartitionStatus(
                name,
                part.latest_us,
                0 if part.latest_us is None else fastest_us - part.latest_us,
                now_s - part.seen_s,
                name in self._given_up or (name not in unread and self.rule.is_idle(part, now_s)),
                name in unread,
                part.stream in paused,
            )
            for name, part in known.items()
        }
        return TimeStatus(
            self.done.reached.watermark_us,
            self.held.holder,
            now_s - self._moved_s,
            sum(self._waiting.values()),
            furthest_behind_first(latest, parts),
        )

    def _forward(self, watermark_us: int | None) -> int | None:
        """Return the watermark, which never goes back."""
        reached_us = self.done.reached.watermark_us
        return max((us for us in (reached_us, watermark_us) if us is not None), default=None)

    def _unread_after(self, offsets: Mapping[str, Offset]) -> dict[str, Unread]:
        """Return what is known and not read behind `offsets`, by partition."""
        found: dict[str, Unread] = {}
        if self.rule.follows is not Follows.FASTEST:
            for name, planner in self._planners.items():
                if isinstance(planner, TimedPlanner):
                    ahead = self.done.reached.guard(self.sources[name].stream)
                    found |= planner.unread_after(offsets.get(name, planner.start()), ahead)
        return found

    def _spans(self, offsets: Mapping[str, Offset]) -> Highest:
        """Return by partition a time that the latest event up to `offsets` is not before."""
        found: Highest = {}
        for name, end in offsets.items():
            planner = self._planners[name]
            if isinstance(planner, TimedPlanner):
                ahead = self.done.reached.guard(self.sources[name].stream)
                spans = planner.spans(self._offset(name), end, ahead)
                found |= {
                    part: (span.last_us, "") for part, span in spans.items() if span.last_us is not None
                }
        return found

    def _must_tell(self) -> bool:
        """Return whether an operator that is called without events has something to report."""
        if self._has_moved:
            return True
        if not self._has_several:
            return False
        now_us = self._forward(self._held(self._unread_after(self.done.offsets)).watermark_us)
        return now_us is not None and (self._told_us is None or now_us > self._told_us)

    def _offset(self, name: str) -> Offset:
        return self.done.offsets.get(name, self._planners[name].start())

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.stopped.wait(seconds)


def _splits_by_events(source: Source) -> bool:
    return isinstance(source, SplitByEvents) and source.splits_by_events


def _require_few(partitions: Partitions) -> None:
    if len(partitions) > MAX_PARTITIONS:
        streams = Counter(partition.stream for partition in partitions.values())
        name, n = streams.most_common(1)[0]
        raise InputError(
            "E0845",
            f"the source of stream `{name}` has {n:,} partitions, a pipeline has at most {MAX_PARTITIONS:,}",
            "choose a column with fewer values for `watermark_per`, such as a gateway instead of a device",
        )
