"""The watermark of a run: its value, what holds it back, and its value for the next micro-batch.

It follows from the progress (`Done`), from the remaining input (`Remaining`) and from the wall clock. The
state here contains what a run knows in addition to these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from cep.counts import Highest
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Partition, Partitions, Unread, after, stream_of
from spark_runtime.event_time.pauses import Pauses
from spark_runtime.event_time.reached import is_after, latest_time
from spark_runtime.event_time.remaining import Remaining
from spark_runtime.event_time.waiting import Waiting
from spark_runtime.event_time.watermarks import Follows, Held, WatermarkRule


@dataclass(frozen=True, slots=True)
class Bounds:
    """The watermark before a micro-batch, and the bounds of the one after it (`Plan`)."""

    before_us: int | None
    cap_us: int
    clock_us: int | None


class RunWatermark:
    """The watermark of a run.

    `rule`: how the watermark follows from the source partitions. `start_us`: a time before all event times,
    microseconds since 1970. `clock`: the wall clock, in seconds since 1970.
    """

    def __init__(
        self, rule: WatermarkRule, pauses: Pauses, done: Done, start_us: int, clock: Callable[[], float]
    ) -> None:
        self.rule = rule
        self.pauses = pauses
        self.kinds = pauses.kinds
        self.clock = clock
        self.held = Held(done.watermark_us)
        """As it was last asked for."""
        self.gave_up: dict[str, None] = dict.fromkeys(done.waiting.given_up)
        """The partitions that were given up in this run, in order."""
        self.looked_s = self.moved_s = self._begun_s = clock()
        self._start_us = start_us - rule.lateness_us - 1

    def has_several(self, done: Done) -> bool:
        """Return whether several partitions determine the watermark, or may do so once events arrive."""
        if self.rule.follows is Follows.FASTEST:
            return False
        whole = self.kinds.all
        return len(whole) > 1 or any(name not in whole for name in done.partitions) or bool(self.kinds.mixed)

    def partitions(self, done: Done) -> Partitions:
        """Return the known partitions; a source about which nothing is known counts as one.

        A paused partition is not silent, so its silence starts when the pause ends.
        """
        known = self.pauses.not_silent(done.partitions)
        named = {partition.stream for partition in known.values()}
        for stream in self.kinds.all:
            if stream not in named:
                known[stream] = Partition(stream, seen_s=self._begun_s)
        return known

    def now(self, done: Done, remaining: Remaining, spans: Highest | None = None) -> Held:
        """Return the current watermark; with `spans`, that after events of these times."""
        partitions = after(self.partitions(done), spans or {}, self.clock())
        without = {*done.waiting.given_up, *remaining.complete(partitions, self.kinds.timed)}
        # A partition without input at the last check may have some now.
        return self.rule.watermark(partitions, remaining.unread, self.looked_s, without)

    def of_read(self, done: Done) -> int | None:
        """Return the watermark that follows the latest of the events that were read."""
        latest_us = latest_time(*(partition.latest_us for partition in done.partitions.values()))
        return None if latest_us is None else latest_us - self.rule.lateness_us

    def look(self, done: Done, remaining: Callable[[], Remaining], *, may_pause: bool) -> None:
        """Decide, right before the sources are checked for new input, whether only one partition is read.

        Raises InputError: too many events wait, and a pause would not help.
        """
        only = ""
        if may_pause and self.pauses.is_needed(done.waiting):
            only = self.now(done, remaining()).holder
        self.looked_s = self.clock()
        self.pauses.begin(only, done.waiting, self.partitions(done), self.looked_s)

    def bounds(
        self,
        done: Done,
        before: Remaining,
        after_it: Remaining,
        read: Collection[str],
        spans: Highest,
        clock_us: int | None,
    ) -> Bounds:
        """Return the bounds of the next micro-batch.

        `before` and `after_it`: the remaining input before the micro-batch, and after it. `read`: the streams
        that it reads. `spans`: by partition, the event times that it reads. `clock_us`: the watermark by the
        wall clock (`Waits.clock_us`).
        """
        # No event is late merely because its partition was considered silent until now.
        now_us = self.now(done, before).watermark_us
        before_us = latest_time(done.watermark_us, now_us)
        unknown = self._unknown(done, before, read, spans)
        self.held = self.now(done, replace(after_it, unread={**after_it.unread, **unknown}), spans)
        shown_us = before_us if done.waits is None else latest_time(done.waits.events_us, now_us)
        cap_us = latest_time(shown_us, self.held.watermark_us)
        if cap_us is None:
            cap_us = self._start_us
        return Bounds(before_us, cap_us, clock_us if is_after(clock_us, cap_us) else None)

    def _unknown(
        self, done: Done, before: Remaining, read: Collection[str], spans: Highest
    ) -> dict[str, Unread]:
        """Return the input of a micro-batch that may have events of an earlier partition than the known ones.

        Only the events show whether their partition is new, or was silent. If the operator advanced further
        than they allow, it would drop the next events of that partition.
        """
        found = {name: Unread(None) for name in self.kinds.mixed.intersection(read)}
        for name in set(read).difference(self.kinds.mixed):
            if name in self.kinds.timed:
                found |= {n: p for n, p in before.unread.items() if stream_of(n) == name and n not in spans}
            else:
                silent = (n for n, p in done.partitions.items() if p.stream == name and self._is_idle(p))
                found |= dict.fromkeys(silent, Unread(None))
        return found

    def _is_idle(self, partition: Partition) -> bool:
        return self.rule.is_idle(partition, self.looked_s)

    def passed_with(self, cap_us: int | None) -> int | None:
        """Return what the operator has passed in a micro-batch with this bound; None: nothing."""
        return cap_us if is_after(cap_us, self._start_us) else None

    def by_clock(self, done: Done, remaining: Callable[[], Remaining]) -> int | None:
        """Return the watermark to which the wall clock moves it; None if it does not.

        It moves it if something is waiting and there is no input to read.
        """
        if done.waits is None or not done.waits.deadlines:
            return None
        us = self.rule.by_clock(self.partitions(done), self.looked_s, self._begun_s)
        if not is_after(us, done.watermark_us):
            return None
        return None if self.pauses.only or remaining().unread else us

    def given_up(self, done: Done, remaining: Remaining, told_us: int | None) -> Waiting:
        """Return what waits; if too many events wait, give up the slowest partitions, if that is allowed.

        `told_us`: the watermark with which all key groups were called. If the current one is later, the
        events between them still count, so nothing is given up.
        """
        waiting, partitions = done.waiting, self.partitions(done)
        # A source may have been given up when none of its partitions was known. It is not one of the
        # partitions known now.
        bounds = self.rule.bounds(waiting.given_up, partitions, remaining.unread)
        reached_us = done.watermark_us
        behind = {n for n, us in bounds.items() if us is None or reached_us is None or us < reached_us}
        waiting = waiting.without(set(waiting.given_up) - behind)
        complete = set(remaining.complete(partitions, self.kinds.timed))

        def held(given_up: Collection[str]) -> Held:
            return self.rule.watermark(partitions, remaining.unread, self.looked_s, {*given_up, *complete})

        is_beyond = self.pauses.is_beyond(waiting)
        if is_beyond and is_after(self.now(done, remaining).watermark_us, told_us):
            return waiting
        if is_beyond and self.pauses.limit.goes_on:
            waiting = waiting.giving_up(held)
        else:
            waiting = replace(waiting, n_next=1)
        self.gave_up |= dict.fromkeys(waiting.given_up)
        return waiting

    def reach(self, done: Done, remaining: Remaining) -> Held:
        """Return and record the watermark after a micro-batch; `done` is its other progress."""
        self.held = self.now(done, remaining)
        return self.held
