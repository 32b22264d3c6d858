"""Reads the past of a stream again, without Spark, for rules that begin with it.

    past = Past(rules, sources, tables, position)
    past.read(course, until, put)      # up to exactly what the checkpoint has committed
    data = past.snapshot()

All keys are in one `Chain`; `state.warming` divides its state among the key groups. Where the course of the
stream is known, events are late if, and only if, they were late at that time. With corrections the rules stay
behind by their bound, so an event that was counted late comes in time (`Past.catch_up`). Otherwise, no event
is late: the input is read twice, and the first time shows how far the watermark may move.

To fill gaps (`filling`), no event is late: the watermark waits for those that were late.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US, late_by_us, split_late
from cep.engine.matching.changed_rules import begun, begun_apart
from cep.engine.matching.matcher import Emit, Matcher
from cep.engine.prepare.device_clocks import DeviceClocks
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.formats.intake import count_chunk, partition_name
from cep.rule_set import RuleSet
from spark_runtime.event_time.reached import Reached, latest_time
from spark_runtime.pipeline.course import Mark
from spark_runtime.sources.protocol import GoneError, Planner, Range, RereadingPlanner, Source
from spark_runtime.state.snapshots import Tables, decode_state, encode_state

NOWHERE = -(1 << 53)
"""The micro-batch of a position before all input. In a restored checkpoint, -1 is that of the savepoint."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the past was read.

    Parameters
    ----------
    batch
        The micro-batch after which the stream had read this far; `NOWHERE` before all input.
    offsets
        By stream the offset of its source.
    reached
        The event time of each source partition, and the watermark.
    """

    batch: int = NOWHERE
    offsets: Mapping[str, Any] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)

    def to_json(self) -> list[Any]:
        """Return this object in a form for JSON."""
        return [self.batch, dict(self.offsets), json.loads(self.reached.to_json())]

    @classmethod
    def of_json(cls, found: Sequence[Any]) -> Position:
        """Return what `to_json` returned; raise ValueError, KeyError or TypeError for other values."""
        batch, offsets, reached = found
        return cls(int(batch), offsets, Reached.of_json(json.dumps(reached)))

    @classmethod
    def before(cls, course: Sequence[Mark], from_us: int | None, until: Mark, *, is_live: bool) -> Position:
        """Return the last known position before which no event is at or after `from_us`, or still waits."""
        found = cls(reached=Reached(is_live=is_live))
        for mark in course:
            is_first = mark.batch < 0 and not mark.offsets
            is_before = (
                from_us is not None
                and mark.read_until_us is not None
                and mark.read_until_us < from_us
                and until.watermark_us is not None
                and mark.read_until_us <= until.watermark_us
            )
            if is_first or is_before:
                found = cls(mark.batch, mark.offsets, Reached(mark.watermark_us, is_live=is_live))
        return found


def first_matchers(
    rules: RuleSet, from_us: int | None, tables: Tables, begins_us: Mapping[str, int] = MappingProxyType({})
) -> bytes:
    """Return the state of rules that see the events at or after a time; None: all events.

    `begins_us`: rules that see only the events after a time; then `from_us` is None.
    """
    matchers = [
        Matcher.restore(program, begun_apart(program, begins_us), tables)
        if any(rule.name in begins_us for rule in program.rules)
        else Matcher(program, tables)
        for program in rules.programs
    ]
    if from_us is not None:
        matchers = [
            Matcher.restore(program, begun(program, from_us - 1), tables) for program in rules.programs
        ]
    return encode_state(matchers, 1)


class Throttle:
    """Lets at most `rate` events pass per second; None: any number."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._begun_s = time.monotonic()
        self._n = 0

    def passed(self, n_events: int) -> None:
        """Wait until `n_events` more events may have passed."""
        self._n += n_events
        if self._rate is not None:
            time.sleep(max(self._begun_s + self._n / self._rate - time.monotonic(), 0))


Tell = Callable[[int, int, int | None], None]
"""Is called with how many bytes of the past were read, all of them, and the event time that was reached."""


class Hold(NamedTuple):
    """Until micro-batch `batch` is read, the watermark stays before `before_us`."""

    batch: int
    before_us: int


class _Part(NamedTuple):
    """A range of a stream. Neither its events nor later ones of its partition are before `first_us`."""

    stream: str
    size: int
    range: Range
    first_us: int


class Past:
    """Rules over the past of a stream.

    Parameters
    ----------
    data
        Their state (`encode_state`) in one key group.
    tables
        The static tables.
    holds
        None: events are late as they were originally. Otherwise no event is late: until a micro-batch is
        read, the watermark stays before a time.
    counts
        What was read.
    n_unknown
        How many of the events come before all marks of the course, so none of them is late.
    """

    def __init__(
        self,
        rules: RuleSet,
        sources: Mapping[str, Source],
        tables: Tables,
        data: bytes,
        position: Position,
        throttle: Throttle | None = None,
        tell: Tell = lambda n_read, n_all, reached_us: None,
        holds: Sequence[Hold] | None = None,
    ) -> None:
        self.position = position
        self.counts = Counts()
        self.n_unknown = 0
        self._sources = sources
        self._counted_us, rules = rules.counted_us, rules.with_corrections(None)
        self._chain = Chain(rules, decode_state(data, rules, 1, tables), tables=tables)
        self._planners: dict[str, Planner] = {name: of.planner() for name, of in sources.items()}
        self._throttle = Throttle(None) if throttle is None else throttle
        self._holds = holds
        self._tell = tell
        self._n_read = self._n_all = 0

    def snapshot(self) -> bytes:
        """Return the state in one key group."""
        return encode_state(self._chain.matchers, 1)

    def catch_up(self, put: Emit) -> None:
        """Let the rules reach the event time of the position, even with corrections."""
        watermark_us = self.position.reached.watermark_us
        if watermark_us is not None:
            self._chain.advance(watermark_us, put)

    def close(self) -> None:
        """Close the connections; count what has changed since it was read."""
        at_end = Counts()
        for planner in self._planners.values():
            planner.close(at_end)
        at_end.gone.clear()  # links that lead nowhere: nothing was read from them
        self.counts.add(at_end)

    def read(self, course: Sequence[Mark], until: Mark, put: Emit) -> None:
        """Read the past up to a mark; `put` receives the matches, in the order in which they are known.

        Raises InputError: input that was read earlier can no longer be read.
        """
        try:
            self._read(course, until, put)
        except GoneError as gone:
            raise InputError(
                gone.code,
                f"{gone.fact}, so the past can no longer be read from there",
                "let new rules begin later: `cep backfill --from`; to let them begin with what is left, and "
                "count the rest: `on_lost: go_on`",
            ) from gone

    def _read(self, course: Sequence[Mark], until: Mark, put: Emit) -> None:
        is_known = bool(course) and self.position.batch >= course[0].batch
        self._n_all = sum(size for _, size, _ in self._ranges(until.offsets, Counts()))
        for mark in [*(mark for mark in course if self.position.batch < mark.batch <= until.batch), until]:
            if is_known:
                self._read_as_then(mark)
            else:
                self._read_anew(mark, put)
            is_known = True
            watermark_us = latest_time(self.position.reached.watermark_us, mark.watermark_us)
            reached = replace(self.position.reached, watermark_us=watermark_us)
            self.position = Position(mark.batch, mark.offsets, reached)
            self._advance(watermark_us, put)

    # ------------------------------------------------------------ ranges

    def _ranges(self, end: Mapping[str, Any], counts: Counts) -> list[tuple[str, int, Range]]:
        """Return the ranges from the position to an offset, each with its stream and its size in bytes.

        `counts`: what is gone is added.
        """
        found: list[tuple[str, int, Range]] = []
        for name, planner in self._planners.items():
            if name not in end:
                continue
            start = self.position.offsets.get(name, planner.start())
            if isinstance(planner, RereadingPlanner):
                parts, gone = planner.ranges_again(start, end[name])
                counts.add(Counts(lost=dict(gone)))
            else:
                parts = planner.ranges(start, end[name])
            found += [(name, size, part) for size, part in parts]
        return found

    def _read_as_then(self, mark: Mark) -> None:
        """Read up to a mark; events are late by the watermark of then."""
        guards: dict[tuple[str, str], AheadGuard] = {}
        for name, size, part in self._ranges(mark.offsets, self.counts):
            self._read_range(name, size, part, guards, mark.late_us)
        self._note(guards)

    def _read_anew(self, mark: Mark, put: Emit) -> None:
        """Read up to a mark before which nothing is known of the course; no event is late."""
        late_us, n_before = self.position.reached.watermark_us, self.counts.events
        queues: dict[tuple[str, str], list[_Part]] = {}
        for part in self._parts(mark):
            queues.setdefault((part.stream, self._sources[part.stream].partition(part.range)), []).append(
                part
            )
        guards: dict[tuple[str, str], AheadGuard] = {}
        while queues:
            place = min(queues, key=lambda place: queues[place][0].first_us)
            part = queues[place].pop(0)
            self._read_range(part.stream, part.size, part.range, guards, late_us)
            if not queues[place]:
                del queues[place]
            first_us = min((parts[0].first_us for parts in queues.values()), default=None)
            if first_us is not None and mark.watermark_us is not None and self._holds is None:
                # No further than the stream had come at the mark: what comes after it is not late.
                watermark_us = min(first_us - 1, mark.watermark_us)
                reached = self.position.reached
                reached = replace(reached, watermark_us=latest_time(reached.watermark_us, watermark_us))
                self.position = replace(self.position, reached=reached)
                self._advance(reached.watermark_us, put)
        self._note(guards)
        self.n_unknown += self.counts.events - n_before

    def _parts(self, mark: Mark) -> list[_Part]:
        """Return the ranges up to a mark; their events are read for the earliest event times.

        Files need not be in the order of their events, nor the events of a file.
        """
        ranges = self._ranges(mark.offsets, self.counts)
        if self._holds is not None:  # the watermark does not move before all is read
            return [_Part(name, size, part, START_OF_TIME_US) for name, size, part in ranges]
        self._n_all += sum(size for _, size, _ in ranges)
        guards: dict[tuple[str, str], AheadGuard] = {}
        found: list[_Part] = []
        for name, size, part in ranges:
            first_us = END_OF_TIME_US
            for chunk in self._chunks(name, part, guards, Counts()):
                self._throttle.passed(chunk.events.num_rows)
                if chunk.events.num_rows:
                    times_us = chunk.events.column(self._sources[name].stream.event_time).to_numpy()
                    first_us = min(first_us, int(times_us.min()))
            found.append(_Part(name, size, part, first_us))
            self._has_read(size)
        of_rest: dict[tuple[str, str], int] = {}
        for at in reversed(range(len(found))):
            place = found[at].stream, self._sources[found[at].stream].partition(found[at].range)
            of_rest[place] = min(of_rest.get(place, END_OF_TIME_US), found[at].first_us)
            found[at] = found[at]._replace(first_us=of_rest[place])
        return found

    def _note(self, guards: Mapping[tuple[str, str], AheadGuard]) -> None:
        """Note the event times of partitions."""
        names = {place: partition_name(self._sources[place[0]].stream, place[1]) for place in guards}
        latest = {
            names[place]: (guard.latest_us, "")
            for place, guard in guards.items()
            if guard.latest_us is not None
        }
        clocks = {
            names[place]: guard.clocks.to_text()
            for place, guard in guards.items()
            if isinstance(guard.clocks, DeviceClocks)
        }
        reached = self.position.reached.after(latest, None, clocks)
        self.position = replace(self.position, reached=reached)

    def _advance(self, watermark_us: int | None, put: Emit) -> None:
        if watermark_us is None:
            return
        held = [hold.before_us - 1 for hold in self._holds or () if self.position.batch < hold.batch]
        until_us = min((watermark_us - self._counted_us, *held))
        if until_us >= self._chain.watermark_us:
            self._chain.advance(until_us, put)

    # ------------------------------------------------------------ events

    def _read_range(
        self,
        name: str,
        size: int,
        part: Range,
        guards: dict[tuple[str, str], AheadGuard],
        late_us: int | None,
    ) -> None:
        for chunk in self._chunks(name, part, guards, self.counts):
            self._push(self._sources[name], chunk, late_us)
        self._has_read(size)

    def _chunks(
        self, name: str, part: Range, guards: dict[tuple[str, str], AheadGuard], counts: Counts
    ) -> Iterator[Chunk]:
        """Yield the chunks of a range, whose source partition has a guard in `guards`."""
        source = self._sources[name]
        place = (name, source.partition(part))
        if place not in guards:
            guards[place] = self.position.reached.guard(source.stream, place[1])
        yield from source.read(part, guards[place], counts)

    def _has_read(self, size: int) -> None:
        self._n_read += size
        self._tell(self._n_read, self._n_all, self.position.reached.watermark_us)

    def _push(self, source: Source, chunk: Chunk, late_us: int | None) -> None:
        """Push the events of a chunk that were not late."""
        stream, events = source.stream, chunk.events
        self.counts.add(count_chunk(chunk, stream))
        self._throttle.passed(events.num_rows)
        if not events.num_rows:
            return
        times_us = events.column(stream.event_time).to_numpy()
        # What the rules have passed cannot be counted any more, even if it was not late then.
        late_us = None if late_us is None or self._holds is not None else late_us - self._counted_us
        bound_us = latest_time(late_us, self._chain.watermark_us)
        if bound_us is not None and bound_us > START_OF_TIME_US:
            events, late = split_late(events, late_by_us(times_us, bound_us), stream, 0)
            self.counts.late_of[stream.name] = self.counts.late_of.get(stream.name, 0) + late.num_rows
        if events.num_rows:
            self._chain.push_events(stream, events)


def needed_programs(rules: RuleSet, names: Collection[str]) -> RuleSet:
    """Return the programs with some rules, and those whose matches they read."""
    wanted = {
        number
        for number, program in enumerate(rules.programs)
        if any(rule.name in names for rule in program.rules)
    }
    for feed in reversed(rules.chains.feeds):
        if feed.target in wanted:
            wanted.add(feed.source)
    return replace(rules, programs=tuple(rules.programs[number] for number in sorted(wanted)))
