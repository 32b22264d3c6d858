"""Decides, in place of Spark, when a micro-batch of a stream starts and what it reads.

Spark starts a micro-batch as soon as the last one is done, and requests its plan, which it gets once there is
something to do. So Spark has already planned and logged its micro-batch when the events arrive. One process
has everything that determines the next one: the input of the sources, the event time reached, and whether
something remains to be reported.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cep.counts import Counts
from spark_runtime.event_time.clock_waits import Waits
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Unread
from spark_runtime.event_time.pauses import Pauses
from spark_runtime.event_time.reporting import Reporting
from spark_runtime.event_time.run_watermark import RunWatermark
from spark_runtime.event_time.telling import furthest_behind, held_line, status_of
from spark_runtime.event_time.time_status import TimeStatus
from spark_runtime.event_time.waiting import cannot_end
from spark_runtime.event_time.watermarks import Follows, WaitingLimit, WatermarkRule
from spark_runtime.operator.daily import Days
from spark_runtime.pipeline.checkpoint import Checkpoint, write_done
from spark_runtime.pipeline.completion import done_after
from spark_runtime.pipeline.course import CourseLog
from spark_runtime.pipeline.gaps import Ledger, losses_of
from spark_runtime.pipeline.inputs import Inputs
from spark_runtime.pipeline.next_plan import NextPlan, Turn
from spark_runtime.pipeline.plans import Plans
from spark_runtime.pipeline.prepared import forget
from spark_runtime.pipeline.progress import Times
from spark_runtime.sources.protocol import Source
from spark_runtime.state.restored import FOLDER as RESTORED
from spark_runtime.storage.checkpoint_files import is_remote
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.plan import Plan

_MOST_WAITS = 1000
"""Spark remembers the progress of as many micro-batches."""


@dataclass
class MicroBatches:
    """The micro-batches of one run.

    - `sources`: by stream, the sources that we read.
    - `rule`: how the watermark follows from the source partitions.
    - `done`: the last micro-batch that will not be repeated.
    - `interval_s`: seconds from the start of a micro-batch to the start of the next one. With None, the run
      reads the available input as fast as it can, and then ends.
    - `finishes`: whether the input is complete at the end of the run.
    - `by_spark`: the streams of other sources, which only Spark can read. Only Spark knows whether they have
      input, so no micro-batch waits, and Spark determines the end of the run.
    - `start_us`: a time before all event times, microseconds since 1970.
    - `clock`: the wall clock, in seconds since 1970.
    - `limit`: what happens to fast sources when many events wait for a slow one.
    - `ends_waits`: whether the pipeline has `end_waits_after`, so that waits are recorded. Only a continuous
      stream has the time in its `rule`.
    - `turn`: which of the micro-batches the rules of the run compute.
    - `ledger`: where what rules did not see is recorded.
    - `generation`: the number of the rules in the checkpoint.
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
    turn: Turn = field(default_factory=Turn)
    ledger: Ledger | None = None
    generation: int = 0
    tables: StaticTables = field(default_factory=lambda: StaticTables({}))
    stopped: threading.Event = field(default_factory=threading.Event)
    seconds: Times = field(default_factory=Times)
    """Seconds that each complete micro-batch took, including Spark's overhead."""
    waits: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_MOST_WAITS))
    """The last micro-batches, each with the seconds for which Spark waited until it started."""

    def __post_init__(self) -> None:
        ends = self.interval_s is None
        self._inputs = Inputs(
            self.sources,
            self.by_spark,
            at_once=ends and bool(self.by_spark),
            completes=ends and self.finishes and not self.by_spark,
            looks_ahead=self.rule.follows is not Follows.FASTEST,
        )
        self._pauses = Pauses(self._inputs.kinds, self.limit, self.n_tasks)
        self.done = self._of_inputs(self.done)
        self._watermark = RunWatermark(self.rule, self._pauses, self.done, self.start_us, self.clock)
        self._reporting = Reporting()
        self._plans = Plans(self.checkpoint, self.tables, self.done.batch)
        self._next_plan = NextPlan(
            self._inputs,
            self._watermark,
            self._reporting,
            n_tasks=self.n_tasks,
            interval_s=self.interval_s,
            finishes=self.finishes,
            is_restored=self.checkpoint.origin is not None,
            turn=self.turn,
        )
        path = self.checkpoint.path
        # Offsets of sources that only Spark reads are in its own log.
        self._course = CourseLog("" if is_remote(path) or self.by_spark else path)
        self._begun: float | None = None  # when the running micro-batch started
        self._unread: Mapping[str, Unread] = {}  # after the last complete micro-batch
        self.completed: float | None = None  # when the last micro-batch was complete
        self._last_begun = float("-inf")
        self._is_stuck = False  # whether a pause has kept the run from reading anything
        self.shown: tuple[str, ...] = ()  # the partitions that lag most, for the line of progress
        if not self.ends_waits:
            self.done = replace(self.done, waits=None)
        elif self.done.waits is None:  # the key groups have not yet reported what waits
            is_new = self.done.batch < 0 and self.checkpoint.origin is None
            known: dict[str, int] | None = {} if is_new else None
            self.done = replace(self.done, waits=Waits(self.done.watermark_us, known))
        self._inputs.begin(self.done.offsets, stops_at_now=ends)

    def _of_inputs(self, done: Done) -> Done:
        """Return the progress without partitions of streams that the rules no longer read."""
        known = {*self.sources, *self.by_spark}
        parts = {name: part for name, part in done.partitions.items() if part.stream in known}
        gone = done.partitions.keys() - parts.keys()
        return replace(done, partitions=parts, waiting=done.waiting.without(gone)) if gone else done

    def next(self, batch: int) -> Plan | None:
        """Wait for the plan of micro-batch `batch` and return it; None: the run ends."""
        self.add_seconds()
        asked = time.monotonic()
        if batch == 1 and self.checkpoint.origin is not None:  # Spark has the state of all key groups
            self.checkpoint.files.remove(RESTORED)
        if self.turn.takes_over is not None and batch == self.turn.takes_over + 1:
            forget(self.checkpoint.files, self.turn.takes_over)
        plan = self._plans.repeated(batch)
        if plan is None:
            plan = self._next_plan.wait(self.done, self._last_begun, self.stopped)
            if plan is None:
                return None
            plan = self._plans.written(batch, plan)
        self._begun = self._last_begun = time.monotonic()
        self.waits.append((batch, self._begun - asked))
        return plan

    def complete(self, batch: int, counts: Counts, reported: Days | None = None) -> None:
        """Record that micro-batch `batch` is computed and its output written.

        `reported`: how many matches were reported by rule and day; None: they are not counted.
        """
        plan, before, watermark = self._plans.last, self.done, self._watermark
        done, remaining = done_after(
            before, batch, plan, counts, self._inputs, watermark, self._reporting.told_us
        )
        done = replace(done, reported=before.reported if reported is None else reported)
        told_us = done.watermark_us if plan.told_us is None else plan.told_us
        self._reporting.note(before, done, told_us, plan.clock_us)
        self.done = done
        is_held = bool(watermark.held.holder)
        self.shown = tuple(furthest_behind(watermark, done, remaining.unread)) if is_held else ()
        self._unread = remaining.unread
        if self.ledger is not None:
            self.ledger.record(batch, losses_of(counts, plan, before.reached, done, self.generation))
        self._course.note(before, plan, done, counts)
        write_done(self.checkpoint, done)
        self._inputs.commit(plan.offsets)
        self.completed = time.monotonic()

    def stop(self) -> None:
        """Start no further micro-batch."""
        self.stopped.set()

    def close(self, counts: Counts) -> None:
        """End the run; add the final counts of the sources to `counts`."""
        is_over = self.interval_s is None and not self.stopped.is_set()
        if is_over and self._pauses.only and not counts.read:
            self._is_stuck = self._inputs.is_more(self.done, self._pauses)
        self._inputs.close(counts)
        counts.add(self.tables.counts())

    def require_progress(self) -> None:
        """Raise an error if a pause kept a run over the available input from reading any of it.

        Raises InputError: too many events wait for a partition that has nothing to read.
        """
        if self._is_stuck:
            raise cannot_end(self._pauses.only, self.done.waiting.total)

    def add_seconds(self) -> None:
        """Add the time that the complete micro-batch took to `seconds`."""
        if self._begun is not None:
            self.seconds.append(time.monotonic() - self._begun)
            self._begun = None

    # ------------------------------------------------------------ status

    def held_line(self) -> str:
        """Return what holds the watermark back, for the line of progress, without querying a source."""
        return held_line(self._watermark, self.done, self._reporting)

    @property
    def running_s(self) -> float | None:
        """For how long the micro-batch has been running; None between two micro-batches."""
        begun = self._begun
        return None if begun is None else time.monotonic() - begun

    @property
    def unlooked_s(self) -> float:
        """How long ago the run last checked its sources for new input."""
        return self.clock() - self._watermark.looked_s

    def known_status(self) -> TimeStatus:
        """Return the status of event time after the last micro-batch, without querying a source.

        Other threads may call it.
        """
        return status_of(self._watermark, self.done, self._reporting, self._unread)

    def of_sources(self) -> tuple[str, ...]:
        """Return the messages of the sources, for the line of progress and the summary."""
        return (*self._inputs.status(), *self.tables.status())

    def status(self) -> TimeStatus:
        """Return the status of event time."""
        is_several = self._watermark.has_several(self.done)
        unread = self._inputs.remaining(self.done).unread if is_several else {}
        return status_of(self._watermark, self.done, self._reporting, unread)
