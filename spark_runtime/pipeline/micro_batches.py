"""When a micro-batch of a stream begins, and what it reads: decided here, not by Spark.

Spark starts a micro-batch whenever the last one is done, and asks for it; the answer is a plan, which comes
once there is something to do. So Spark has already planned and logged its micro-batch when the events
arrive. One process knows everything that decides about the next one: what the sources have, how far event
time has got, and whether something is still to be reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest

from cep.counts import Counts, Highest
from cep.engine.event_time.watermark import END_OF_TIME_US
from spark_runtime.event_time.partitions import (
    Partition,
    Partitions,
    Unread,
    after,
    require_few,
    stream_of,
)
from spark_runtime.event_time.time_status import (
    MOST_SHOWN,
    ByClock,
    PartitionStatus,
    TimeStatus,
    furthest_behind_first,
)
from spark_runtime.event_time.waiting import cannot_end, cannot_pause
from spark_runtime.event_time.watermarks import Follows, Held, WaitingLimit, WatermarkRule
from spark_runtime.pipeline.checkpoint import (
    KEPT_BATCHES,
    Checkpoint,
    Done,
    Waits,
    planned,
    write_done,
    write_plan,
)
from spark_runtime.sources.protocol import (
    EndingPlanner,
    Offset,
    Planner,
    Range,
    SelectivePlanner,
    Source,
    SplitByEvents,
    TellingPlanner,
    TimedPlanner,
)
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.plan import Plan, shares

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
    ends_waits
        Whether the pipeline has `end_waits_after`: what waits is noted. Only a stream that goes on has the
        time in its `rule`.
    tables
        The static tables.
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
    ends_waits: bool = False
    tables: StaticTables = field(default_factory=lambda: StaticTables({}))
    stopped: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)
    """How long each complete micro-batch took, with the work of Spark around it."""

    def __post_init__(self) -> None:
        self._planners: dict[str, Planner] = {name: s.planner() for name, s in self.sources.items()}
        self._begun_s = self._moved_s = self._looked_s = self.clock()
        self._paused_s: dict[str, float] = {}  # by partition, until when nothing of it was read on purpose
        self._only = ""  # the partition that alone is read, because too many events wait for it
        self._exhausted: set[str] = set()  # streams that have nothing more in a run that ends
        self._is_stuck = False  # whether a pause has kept the run from reading anything
        self._gave_up: dict[str, None] = dict.fromkeys(self.done.waiting.given_up)  # in this run, in order
        self._begun: float | None = None  # when the micro-batch that is running began
        self._last_begun = float("-inf")
        self._plan = planned(self.checkpoint, self.done.batch) or Plan(())  # of the last micro-batch
        self._told_us: int | None = None  # the watermark that Spark has after the last micro-batch
        self._has_moved = False  # whether Spark's watermark has gone on since the operator was called last
        self.held = Held(self.done.reached.watermark_us)
        self.shown: tuple[str, ...] = ()  # the partitions that are furthest behind, for the line of progress
        self._n_by_clock = 0  # micro-batches in which the wall clock has moved the watermark
        if not self.ends_waits:
            self.done = replace(self.done, waits=None)
        elif self.done.waits is None:  # nobody has asked the key groups what waits
            known: dict[str, int] | None = {} if self.done.batch < 0 else None
            self.done = replace(self.done, waits=Waits(self.done.reached.watermark_us, known))
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
            plan = replace(plan, tables=self.tables.look()).following(self._plan.identity)
            write_plan(self.checkpoint, batch, plan)
            self.tables.keep(batch, plan.tables, KEPT_BATCHES)
        self._begun = self._last_begun = time.monotonic()
        self._plan = plan
        return plan

    def complete(self, batch: int, counts: Counts) -> None:
        """Write down that micro-batch `batch` is computed and its output written."""
        plan = self._plan
        partitions = after(self._partitions, self._latest_of(counts), self.clock())
        require_few(partitions)
        offsets = {**self.done.offsets, **plan.offsets}
        ended = self.done.ended or plan.ends
        before = self.done
        waiting = before.waiting.after(counts)
        if plan.cap_us is None:  # no partition is behind; nobody has counted
            waiting = replace(waiting, by_group={}, bytes_of_group={})
        self.done = Done(batch, before.reached, offsets, ended, partitions, waiting)
        unread = self._unread_after(offsets)
        self._give_up(unread)
        self.held = self._held(unread)
        events_us, clock_us = self.held.watermark_us, plan.clock_us
        reached = plan.reached.after(counts.latest, _latest(events_us, clock_us), counts.clocks)
        self.done = replace(self.done, reached=reached, waits=self._waits_after(before.waits, counts))
        told_us = reached.watermark_us if plan.told_us is None else plan.told_us
        if reached.watermark_us != plan.reached.watermark_us:
            self._moved_s = self.clock()
        self._has_moved = told_us != self._told_us
        if clock_us is not None:
            self._n_by_clock += _is_after(clock_us, before.reached.watermark_us)
            # A step of the wall clock that nothing waits for needs no second micro-batch.
            self._has_moved = self._has_moved and self._is_due(clock_us)
        self._told_us = told_us
        self.shown = tuple(self._furthest_behind(unread)) if self.held.holder else ()
        write_done(self.checkpoint, self.done)
        for name, end in plan.offsets.items():
            self._planners[name].commit(end)

    def stop(self) -> None:
        """Let no further micro-batch begin."""
        self.stopped.set()

    def close(self, counts: Counts) -> None:
        """End the run; add to its `counts` what the sources have to say at the end."""
        is_over = self.interval_s is None and not self.stopped.is_set()
        if is_over and self._only and not counts.events:
            self._is_stuck = any(map(self._is_left, self._planners))
        for planner in self._planners.values():
            planner.close(counts)
        counts.add(self.tables.counts())

    def require_progress(self) -> None:
        """Refuse to call a run over the present input a success if a pause kept it from reading any.

        Raises
        ------
        InputError
            Too many events wait for a partition that has nothing to read.
        """
        if self._is_stuck:
            raise cannot_end(self._only, self.done.waiting.total)

    def _is_left(self, name: str) -> bool:
        """Return whether a source is paused and has more."""
        if not self._is_paused(name):
            return False
        planner, at = self._planners[name], self._offset(name)
        if isinstance(planner, TimedPlanner):
            ahead = self.done.reached.guard(self.sources[name].stream)
            return bool(planner.unread_after(at, ahead))
        return bool(planner.latest(at) != at)

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
            if offsets or self._must_tell() or self.by_spark or self._by_clock(offsets) is not None:
                return self._new(offsets)
            self._sleep(max(MIN_POLL_SECONDS, _LOOKS_SHARE * (time.monotonic() - looked)))
        return None

    def _now(self) -> Plan | None:
        """Return the next plan of a run that ends, None at its end."""
        offsets = self._offsets()
        ends = self.finishes and not self.done.ended
        while ends and self._only in self._exhausted and not offsets:  # it holds nothing back any more
            offsets = self._offsets()
        if self.by_spark:
            return self._new(offsets, ends=ends)
        if offsets:
            return self._new(offsets)
        # Called without events, the operator reports results whose deadline the watermark has reached.
        return self._new({}, ends=ends) if ends or self._must_tell() else None

    def _offsets(self) -> dict[str, Offset]:
        """Return where the sources are that have something new."""
        offsets = {}
        self._pause()
        for name, planner in self._planners.items():
            if self._is_paused(name):
                continue
            start = self._offset(name)
            if self._only and isinstance(planner, SelectivePlanner) and not self._is_mixed(name):
                end = planner.latest_of(start, self._only)
            else:
                end = planner.latest(start)
            if self.by_spark and self.interval_s is None:  # Spark gives us one micro-batch only
                while (further := planner.latest(end)) != end:
                    end = further
            if end != start:
                offsets[name] = end
            elif self._only in ("", name):
                self._exhausted.add(name)
        return offsets

    def _new(self, offsets: Mapping[str, Offset], *, ends: bool = False) -> Plan:
        ranges = [
            (name, n_bytes, part)
            for name, end in offsets.items()
            for n_bytes, part in self._planners[name].ranges(self._offset(name), end)
        ]
        parts = shares(ranges, self.n_tasks, self.sources)
        unread = self._unread_after({**self.done.offsets, **offsets})
        waits = self.done.waits
        asks = waits is not None and waits.deadlines is None
        clock_us = None if waits is None else self._clock_us(waits, offsets)
        is_several = self._has_several or unread or any(map(self._is_partitioned, ranges))
        # Spark was told less by a micro-batch that had a bound; after a restart nobody knows what.
        lags = waits is not None and _is_after(self.done.reached.watermark_us, self._told_us)
        if not (is_several or clock_us is not None or lags):
            return Plan(parts, dict(offsets), self.done.reached, ends, asks=asks)
        # Nothing that is read now is late because its partition was taken for silent until now.
        now_us = self._held(self._unread_after(self.done.offsets)).watermark_us
        before = self._forward(now_us)
        self.held = self._held(unread, self._spans(offsets))
        shown_us = before if waits is None else _latest(waits.events_us, now_us)
        cap_us = _latest(shown_us, self.held.watermark_us)
        if cap_us is None:
            cap_us = self._start_us
        if not _is_after(clock_us, cap_us):
            clock_us = None
        reached = replace(self.done.reached, watermark_us=before)
        return Plan(parts, dict(offsets), reached, ends, cap_us, clock_us, asks)

    # ------------------------------------------------------------ the watermark

    @property
    def _has_several(self) -> bool:
        """Whether several partitions decide about the watermark, or may once there are events."""
        if self.rule.follows is Follows.FASTEST:
            return False
        whole = (*self.sources, *self.by_spark)
        if len(whole) > 1 or any(name not in whole for name in self.done.partitions):
            return True
        return any(map(self._is_mixed, self.sources))

    def _is_partitioned(self, item: tuple[str, int, Range]) -> bool:
        """Return whether a range is in one of several partitions of its source."""
        name, _, part = item
        return self.rule.follows is Follows.SLOWEST and bool(self.sources[name].partition(part))

    @property
    def _start_us(self) -> int:
        return self.start_us - self.rule.lateness_us - 1

    @property
    def _partitions(self) -> Partitions:
        """The partitions that are known; a source of which nothing is known is one.

        A partition that is paused is not silent, so its silence begins when the pause ends.
        """
        known = dict(self.done.partitions)
        for name, paused_s in self._paused_s.items():
            if name in known and paused_s > known[name].seen_s:
                known[name] = replace(known[name], seen_s=paused_s)
        named = {partition.stream for partition in known.values()}
        for stream in (*self.sources, *self.by_spark):
            if stream not in named:
                known[stream] = Partition(stream, seen_s=self._begun_s)
        return known

    def _latest_of(self, counts: Counts) -> Highest:
        """Return the latest event time by partition."""
        split = set(filter(self._is_mixed, self.sources))
        whole = {name: latest for name, latest in counts.latest.items() if name not in split}
        return {**whole, **counts.partitions}

    def _held(self, unread: Mapping[str, Unread], spans: Highest | None = None) -> Held:
        """Return the watermark as it is now; `spans`: after events of these times."""
        partitions = after(self._partitions, spans or {}, self.clock())
        without = {*self.done.waiting.given_up, *self._complete(partitions, unread)}
        # Whoever has given nothing since the last look may have something now.
        return self.rule.watermark(partitions, unread, self._looked_s, without)

    def _complete(self, partitions: Partitions, unread: Mapping[str, Unread]) -> Iterator[str]:
        """Yield the partitions that have been read to their end: they, or all of the input, are complete."""
        for name, planner in self._planners.items():
            if isinstance(planner, EndingPlanner):
                yield from planner.ended(self._offset(name))
        if self.interval_s is None and self.finishes and not self.by_spark:
            for name, part in partitions.items():
                is_timed = isinstance(self._planners[part.stream], TimedPlanner)
                is_read = is_timed and name not in unread and part.stream not in unread
                if is_read or part.stream in self._exhausted:
                    yield name

    # ------------------------------------------------------------ what waits

    def _give_up(self, unread: Mapping[str, Unread]) -> None:
        """Let the watermark go on without the slowest partitions, if too many events wait and it may."""
        waiting, partitions = self.done.waiting, self._partitions
        reached_us = self.done.reached.watermark_us
        if reached_us is not None and waiting.given_up:
            bounds = self.rule.bounds(waiting.given_up, partitions, unread)
            waiting = waiting.without({n for n, us in bounds.items() if us is not None and us >= reached_us})
        complete = set(self._complete(partitions, unread))

        def held(given_up: Collection[str]) -> Held:
            return self.rule.watermark(partitions, unread, self._looked_s, {*given_up, *complete})

        if self.limit.goes_on and waiting.is_too_much(self.limit, self.n_tasks):
            waiting = waiting.giving_up(held)
        else:
            waiting = replace(waiting, n_next=1)
        self._gave_up |= dict.fromkeys(waiting.given_up)
        self.done = replace(self.done, waiting=waiting)

    def _pause(self) -> None:
        """Decide whether one partition alone is read, because too many events wait for it.

        Raises
        ------
        InputError
            Its events come together with others, so that even more would wait.
        """
        waiting, limit = self.done.waiting, self.limit
        self._only = ""
        is_last = bool(self.by_spark) and self.finishes  # one micro-batch that ends the input has to read all
        if not is_last and not limit.goes_on and waiting.is_too_much(limit, self.n_tasks):
            self._only = self._held(self._unread_after(self.done.offsets)).holder
        self._looked_s = self.clock()
        if not self._only:
            return
        stream = stream_of(self._only)
        if self._only != stream and self._is_mixed(stream):
            is_alone = len(self.sources) + len(self.by_spark) == 1
            # Another source that is paused may be enough: so twice as much may wait.
            twice = replace(limit, events=2 * limit.events, n_bytes=limit.n_bytes and 2 * limit.n_bytes)
            if is_alone or waiting.is_too_much(twice, self.n_tasks):
                raise cannot_pause(self._only, waiting.total)
        for name in self._partitions:
            if self._is_paused(stream_of(name), name):
                self._paused_s[name] = self._looked_s

    def _is_paused(self, stream: str, partition: str | None = None) -> bool:
        """Return whether nothing is read of a stream, or of one of its partitions."""
        if not self._only or stream not in self._planners:
            return False
        if stream != stream_of(self._only):
            return True
        is_apart = isinstance(self._planners[stream], SelectivePlanner) and not self._is_mixed(stream)
        return partition is not None and is_apart and self._only not in (stream, partition)

    def _is_mixed(self, stream: str) -> bool:
        """Return whether the partitions of a source come together, and only its events tell them apart."""
        source = self.sources.get(stream)
        return isinstance(source, SplitByEvents) and source.splits_by_events

    def held_line(self) -> str:
        """Return who holds the watermark back, for the line of progress; it looks at no source."""
        return self._status((), self.done.waiting.given_up).line()

    def of_sources(self) -> tuple[str, ...]:
        """Return what the sources have to tell, for the line of progress and the summary."""
        planners = self._planners.items()
        told = [(name, p.status()) for name, p in planners if isinstance(p, TellingPlanner)]
        return (*(f"{name}: {text}" for name, text in told if text), *self.tables.status())

    def status(self) -> TimeStatus:
        """Return how far event time is."""
        known = self._partitions
        unread = self._unread_after(self.done.offsets) if self._has_several else {}
        latest = {name: part.latest_us for name, part in known.items()}
        parts = self._statuses(known, known, unread)
        return self._status(furthest_behind_first(latest, parts), tuple(self._gave_up))

    def _furthest_behind(self, unread: Mapping[str, Unread]) -> Iterator[str]:
        """Yield how far the first partitions of `status` are; of ten thousand only these are looked at."""
        known = self._partitions
        if len(known) < 2:
            return
        lowest = min((p.latest_us for p in known.values() if p.latest_us is not None), default=0) - 1
        latest = {name: lowest if p.latest_us is None else p.latest_us for name, p in known.items()}
        names = nsmallest(MOST_SHOWN, known, key=lambda name: (latest[name], name))
        yield from (part.line() for part in self._statuses(names, known, unread).values())
        if len(known) > MOST_SHOWN:
            yield f"{len(known) - MOST_SHOWN:,} other partitions are further on"

    def _statuses(
        self, names: Iterable[str], known: Partitions, unread: Mapping[str, Unread]
    ) -> dict[str, PartitionStatus]:
        now_s = self.clock()
        fastest_us = max((p.latest_us for p in known.values() if p.latest_us is not None), default=0)
        given_up = self.done.waiting.given_up
        found = {}
        for name in names:
            part = known[name]
            found[name] = PartitionStatus(
                name=name,
                latest_us=part.latest_us,
                behind_us=0 if part.latest_us is None else fastest_us - part.latest_us,
                silent_s=now_s - part.seen_s,
                is_idle=name not in unread and self.rule.is_idle(part, self._looked_s),
                has_unread=name in unread,
                is_paused=self._is_paused(part.stream, name),
                is_given_up=name in given_up,
            )
        return found

    def _status(self, parts: tuple[PartitionStatus, ...], given_up: tuple[str, ...]) -> TimeStatus:
        reached_us, waits = self.done.reached.watermark_us, self.done.waits
        by_clock = waits is not None and _is_after(reached_us, waits.events_us)
        return TimeStatus(
            watermark_us=reached_us,
            holder="" if by_clock else self.held.holder,
            held_s=self.clock() - self._moved_s,
            waiting=self.done.waiting.total,
            partitions=parts,
            given_up=given_up,
            is_paused=bool(self._only),
            by_clock=None if waits is None else ByClock(by_clock, self._n_by_clock),
        )

    def _forward(self, watermark_us: int | None) -> int | None:
        """Return the watermark, which never goes back."""
        return _latest(self.done.reached.watermark_us, watermark_us)

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
        waits = self.done.waits
        if waits is not None and waits.deadlines is None:
            return True  # the key groups have to be asked
        if not self._has_several and waits is None:
            return False
        now_us = self._forward(self._held(self._unread_after(self.done.offsets)).watermark_us)
        return now_us is not None and (self._told_us is None or now_us > self._told_us)

    # ------------------------------------------------------------ waits that the wall clock ends

    def _clock_us(self, waits: Waits, offsets: Mapping[str, Offset]) -> int | None:
        """Return the watermark that the wall clock has shown, now or before; None: events show as much."""
        reached_us = self.done.reached.watermark_us
        before = reached_us if _is_after(reached_us, waits.events_us) else None
        return _latest(before, self._by_clock(offsets))

    def _by_clock(self, offsets: Mapping[str, Offset]) -> int | None:
        """Return where the wall clock moves the watermark to; None: it moves it nowhere.

        It does if something waits, and nothing is there to be read. `offsets` are those to be read now.
        """
        waits = self.done.waits
        if waits is None or not waits.deadlines or offsets or self.interval_s is None:
            return None
        us = self.rule.by_clock(self._partitions, self._looked_s, self._begun_s)
        if us is None or not _is_after(us, self.done.reached.watermark_us):
            return None
        return None if self._only or self._unread_after(self.done.offsets) else us

    def _waits_after(self, before: Waits | None, counts: Counts) -> Waits | None:
        """Return what waits after a micro-batch."""
        if before is None:
            return None
        events_us = _latest(before.events_us, self._plan.cap_us, self.held.watermark_us)
        if self.done.ended:
            events_us = END_OF_TIME_US
        known = before.deadlines
        if known is not None or self._plan.asks:
            now = {**(known or {}), **counts.deadlines}
            known = {group: us for group, us in now.items() if us is not None}
        return Waits(events_us, known)

    def _is_due(self, watermark_us: int) -> bool:
        """Return whether something waits for `watermark_us` or a time before it."""
        waits = self.done.waits
        known = None if waits is None else waits.deadlines
        return known is None or any(us <= watermark_us for us in known.values())

    def _offset(self, name: str) -> Offset:
        return self.done.offsets.get(name, self._planners[name].start())

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.stopped.wait(seconds)


def _latest(*times_us: int | None) -> int | None:
    """Return the latest of some times; None: none is known."""
    return max((us for us in times_us if us is not None), default=None)


def _is_after(us: int | None, other_us: int | None) -> bool:
    """Return whether a time is known and after another one, if that is known."""
    return us is not None and (other_us is None or us > other_us)
