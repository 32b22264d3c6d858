"""Decides when the next micro-batch starts, and what it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import is_after, latest_time
from spark_runtime.event_time.reporting import Reporting
from spark_runtime.event_time.run_watermark import RunWatermark
from spark_runtime.event_time.watermarks import Follows
from spark_runtime.pipeline.inputs import Inputs
from spark_runtime.sources.protocol import Offset
from spark_runtime.wire.plan import Plan

MIN_POLL_SECONDS = 0.01

LEAVING_SECONDS = 0.25
"""How soon a run that waits notices that other rules are to follow."""

_LOOKS_SHARE = 5
"""The pause between two checks of the sources is this many times as long as a check."""


@dataclass(frozen=True)
class Turn:
    """Which micro-batches of a stream the rules of a run compute; by default all of them.

    `takes_over`: the micro-batch in which they take over the state of other rules; None: they need not.
    `leaves`: is set when other rules will follow.
    """

    takes_over: int | None = None
    leaves: threading.Event = field(default_factory=threading.Event)


class NextPlan:
    """Creates the plan of the next micro-batch.

    - `reporting`: whether key groups have something to report.
    - `n_tasks`, `interval_s`, `finishes`: see `MicroBatches`.
    - `is_restored`: whether the checkpoint was restored from a savepoint.
    - `turn`: which micro-batches the rules of the run compute.
    """

    def __init__(
        self,
        inputs: Inputs,
        watermark: RunWatermark,
        reporting: Reporting,
        *,
        n_tasks: int,
        interval_s: float | None,
        finishes: bool,
        is_restored: bool = False,
        turn: Turn,
    ) -> None:
        self._inputs = inputs
        self._watermark = watermark
        self._reporting = reporting
        self._n_tasks = n_tasks
        self._interval_s = interval_s
        self._finishes = finishes
        self._is_restored = is_restored
        self._turn = turn
        self._has_asked = False
        self._releases = False  # the last micro-batch was for `_must_release`
        self._by_spark = bool(inputs.kinds.by_spark)

    def wait(self, done: Done, last_begun: float, stopped: threading.Event) -> Plan | None:
        """Wait until there is something to do after `done`; return the plan, or None if the run ends.

        `last_begun`: when the last micro-batch started (`time.monotonic`). `stopped`: is set when no further
        micro-batch should start.
        """
        if (self._is_restored and done.batch < 0) or done.batch + 1 == self._turn.takes_over:
            return None if stopped.is_set() else _asking(done)
        if self._interval_s is None and not self._turn.leaves.is_set():
            return None if stopped.is_set() else self._now(done)
        if self._interval_s is not None:
            self._sleep(stopped, last_begun + self._interval_s - time.monotonic())
        while not stopped.is_set():
            if self._turn.leaves.is_set():
                return self._last(done)
            looked = time.monotonic()
            offsets = {} if self._must_release(done) else self._offsets(done)
            is_something = offsets or self._must_tell(done) or self._by_spark
            if is_something or self._by_clock(done, offsets) is not None:
                return self._new(done, offsets)
            self._sleep(stopped, max(MIN_POLL_SECONDS, _LOOKS_SHARE * (time.monotonic() - looked)))
        return None

    def _last(self, done: Done) -> Plan | None:
        """Return the last plan of rules that will be replaced by others, or None after that plan.

        Each key group reports what is due up to the watermark: other rules may not know of it.
        """
        if self._has_asked or done.batch < 0:
            return None
        self._has_asked = True
        return _asking(done)

    def _sleep(self, stopped: threading.Event, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._turn.leaves.is_set() and not stopped.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return
            stopped.wait(min(left, LEAVING_SECONDS))

    def _now(self, done: Done) -> Plan | None:
        """Return the next plan of a run over the present input; None at its end."""
        if self._must_release(done):
            return self._new(done, {})
        offsets = self._offsets(done)
        ends = self._finishes and not done.ended
        # A partition that is read alone holds nothing back once it has no more input.
        while ends and not offsets and self._inputs.is_exhausted(self._watermark.pauses.only):
            offsets = self._offsets(done)
        if self._by_spark:
            return self._new(done, offsets, ends=ends)
        if offsets:
            return self._new(done, offsets)
        # A call without events makes the operator report results whose deadline the watermark has reached.
        return self._new(done, {}, ends=ends) if ends or self._must_tell(done) else None

    def _must_release(self, done: Done) -> bool:
        """Return whether too many events wait, but perhaps only for the next micro-batches.

        These read nothing, and have the watermark that was reached: after them, the number is known.
        """
        watermark, reporting = self._watermark, self._reporting
        if self._by_spark or not watermark.pauses.is_beyond(done.waiting) or watermark.pauses.is_useful:
            return False
        # After the first of them Spark has the watermark. In the second it calls the other key groups.
        is_behind = reporting.is_behind(done.watermark_us)
        self._releases = is_behind or (self._releases and reporting.is_due(done))
        return self._releases

    def _offsets(self, done: Done) -> dict[str, Offset]:
        """Check the sources; return the offsets of those that have new input."""
        # A single micro-batch that ends the input must read all of it.
        may_pause = not (self._by_spark and self._finishes)
        self._watermark.look(done, lambda: self._inputs.remaining(done), may_pause=may_pause)
        return self._inputs.new(done.offsets, self._watermark.pauses)

    def _new(self, done: Done, offsets: Mapping[str, Offset], *, ends: bool = False) -> Plan:
        inputs, watermark = self._inputs, self._watermark
        ranges = inputs.ranges(done.offsets, offsets)
        shares, order = inputs.shares(ranges, self._n_tasks)
        remaining = inputs.remaining(done, offsets)
        waits = done.waits
        clock_us = None if waits is None else waits.clock_us(done.watermark_us, self._by_clock(done, offsets))
        plan = Plan(
            shares,
            dict(offsets),
            done.reached,
            ends,
            asks=waits is not None and waits.must_ask,
            lost=inputs.lost(),
            order=order,
        )
        is_split = watermark.rule.follows is Follows.SLOWEST and inputs.is_partitioned(ranges)
        is_several = watermark.has_several(done) or remaining.unread or is_split
        lags = not ends and self._lags(done)  # at the end all is reported, whatever the watermark
        if not (is_several or clock_us is not None or lags):
            return plan
        spans = inputs.spans(done, offsets)
        bounds = watermark.bounds(done, inputs.remaining(done), remaining, offsets, spans, clock_us)
        reached = replace(done.reached, watermark_us=bounds.before_us)
        return replace(plan, reached=reached, cap_us=bounds.cap_us, clock_us=bounds.clock_us)

    def _must_tell(self, done: Done) -> bool:
        """Return whether the operator would report something if called without events."""
        if self._reporting.is_due(done):
            return True
        if not (self._watermark.has_several(done) or done.waits is not None or self._lags(done)):
            return False
        now_us = self._watermark.now(done, self._inputs.remaining(done)).watermark_us
        return self._reporting.is_behind(latest_time(done.watermark_us, now_us))

    def _lags(self, done: Done) -> bool:
        """Return whether Spark has an earlier watermark than the events that were read allow.

        A bounded micro-batch gave it one. Later events need not move it further: they may be earlier than
        those that were read. After a restart Spark's watermark is unknown.
        """
        read_us = self._watermark.of_read(done)
        was_bounded = (
            self._reporting.told_us is not None  # then it is known
            or done.waits is not None
            or bool(done.waiting.by_group)
            or is_after(read_us, done.watermark_us)
        )
        return (
            was_bounded
            and not done.ended
            and self._reporting.is_behind(latest_time(done.watermark_us, read_us))
        )

    def _by_clock(self, done: Done, offsets: Mapping[str, Offset]) -> int | None:
        """Return the watermark to which the wall clock moves it; `offsets` are those to be read now."""
        if offsets or self._interval_s is None:
            return None
        return self._watermark.by_clock(done, lambda: self._inputs.remaining(done))


def _asking(done: Done) -> Plan:
    """Return the plan of a micro-batch that calls each key group, such as with its restored state.

    It reads nothing, and Spark gets the watermark that was reached.
    """
    waits, reached_us = done.waits, None if done.ended else done.watermark_us
    if waits is not None and waits.events_us is not None and done.is_ahead_by_clock and not done.ended:
        return Plan((), {}, done.reached, cap_us=waits.events_us, clock_us=reached_us, asks=True)
    return Plan((), {}, done.reached, cap_us=reached_us, asks=True)
