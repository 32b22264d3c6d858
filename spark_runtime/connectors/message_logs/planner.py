"""Plans what a stream reads from a log of messages. On the driver. For its offsets see `offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import InputError, StateError
from cep.formats.ahead import AheadGuard
from cep.formats.intake import partition_name
from spark_runtime.connectors.message_logs.catch_up import Backlog, shares_by_time
from spark_runtime.connectors.message_logs.log import (
    PEEK_MESSAGES,
    AheadReader,
    Incarnation,
    LogClient,
    MessageRange,
    Place,
    Portion,
    another,
    lost,
)
from spark_runtime.connectors.message_logs.offsets import (
    NOBODY,
    Identity,
    Position,
    between,
    identities,
    of_json,
    read_start,
    to_json,
    write_start,
)
from spark_runtime.connectors.message_logs.reading import EARLIEST, LATEST, MessageReading
from spark_runtime.event_time.partitions import NO_SPAN, TimeSpan, Unread
from spark_runtime.sources.protocol import GoneError
from spark_runtime.storage.checkpoint_files import is_there

NEW_PARTITIONS_SECONDS = 3.0
"""Seconds between checks for new partitions and for recreated logs."""

RANGE_MESSAGES = 200_000
"""Most messages of a range: a partition with more is read by several tasks in parallel."""

_MESSAGE_BYTES = 256  # a guess: only the relative sizes of ranges matter


class MessagePlanner:
    """Plans micro-batches; see `Planner`, `TimedPlanner` and `EndingPlanner`.

    `clock`: returns seconds since a fixed moment.
    """

    def __init__(self, reading: MessageReading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self.clock = clock
        self._reader = reading.message_reader()
        self._open: LogClient | None = None
        self._places: list[Place] = []
        self._places_until = float("-inf")
        self._ends: dict[Place, int] = {}  # at the last check
        self._begins: dict[Place, int] = {}  # of the partitions that are read
        self._has_looked = self._is_fixed = False
        self._start: dict[str, Any] | None = None
        self._first_us: dict[tuple[Place, int], int | None] = {}  # of the messages from a position on
        self._last: dict[tuple[Place, int], TimeSpan] = {}  # of the last messages before a position
        self._empty: set[tuple[Place, int]] = set()  # after this position are only markers, no messages
        self._new: dict[str, Identity] = {}  # logs that are in no offset yet
        self._same_until = float("-inf")  # until then the logs count as those of the checkpoint
        self._same_ends: dict[Place, int] = {}  # their ends at that check
        self._lost: dict[str, int] = {}  # by origin, messages lost with a deleted log
        self._incarnations: dict[tuple[str, str], Incarnation] = {}  # by log and known text, of the past
        self._told_until = float("-inf")

    # ------------------------------------------------------------ offsets

    def start(self) -> dict[str, Any]:
        """Return the offset at which the stream starts, which is stored in the checkpoint."""
        if self._start is None:
            file = Path(self.reading.start_file) if self.reading.start_file else None
            if file is not None and is_there(file):
                self._start = read_start(file)
            else:
                self._start = self._first()
                if file is not None:
                    write_start(file, self._start)
        return self._start

    def _first(self) -> dict[str, Any]:
        """Return where a new stream starts."""
        if self.reading.begin == EARLIEST:
            return {}
        known = dict.fromkeys((place[0] for place in self._known_places()), "")
        logs = {log: (told.text, 0) for log, told in self._client().incarnations(known).items()}
        return to_json(self._first_positions(), logs)

    def _first_positions(self) -> dict[Place, Position]:
        begin = self.reading.begin
        client, places = self._client(), self._known_places()
        if isinstance(begin, Mapping):
            names = {self.reading.log.origin(place): place for place in places}
            unknown = [name for name in begin if name not in names]
            if unknown:
                words = self.reading.log.words
                raise InputError(
                    words.unknown,
                    f"there is no partition `{unknown[0]}` at `{words.where}`",
                    f"partitions are {', '.join(names)}",
                )
            named = {names[name]: position for name, position in begin.items()}
            self._require_ends(named)
            return {place: (position, position) for place, position in named.items()}
        if begin == LATEST:
            found = client.ends(places)
        else:
            assert isinstance(begin, int)
            found = client.at_time(places, begin)
        return {place: (position, position) for place, position in found.items()}

    def _require_ends(self, begins: Mapping[Place, int]) -> None:
        """Raise InputError if a partition ends before the position where it is to be read from."""
        log = self.reading.log
        if log.reads_ahead:
            return  # its ends are not known yet
        for place, end in self._client().ends(begins).items():
            if begins[place] > end:
                origin = log.origin(place)
                raise InputError(
                    log.words.lost,
                    f"`from` is beyond the end: `{origin}` ends at offset {end:,}, and `from` names "
                    f"{begins[place]:,}",
                    f"write at most {end}, or from: latest",
                )

    def latest(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return the end of the micro-batch that starts at `start`.

        Raises StateError: a log was deleted and recreated.
        """
        is_due = self.clock() >= self._same_until
        if self.reading.log.reads_ahead and is_due:  # the input that it reads depends on its start
            start = self._same(start)
        if not self._is_fixed:
            try:
                self._look(start)
            except InputError as error:
                if error.code != self.reading.log.words.unknown:
                    raise
                self._places_until = float("-inf")
                if (same := self._same(start)) == start:
                    raise
                start = same  # a recreated log may have fewer partitions
        # After reading the ends of partitions, so that they belong to the checked logs.
        if not self.reading.log.reads_ahead and (is_due or self._has_more(start)):
            start = self._same(start)
        return self._after(start, self.reading.max_events)

    def _has_more(self, start: Mapping[str, Any]) -> bool:
        positions = of_json(start)
        return any(place not in positions or positions[place][1] != end for place, end in self._ends.items())

    # ------------------------------------------------------------ identities of logs

    def _same(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return an offset with the identities of its logs.

        A log that was deleted and recreated is read from its start, or refused.
        """
        positions, known = of_json(start), identities(start)
        there = {place[0] for place in self._known_places()}
        told = self._client().incarnations({log: known[log][0] if log in known else "" for log in there})
        logs = dict(known)
        for log, (text, is_same) in told.items():
            if log not in known:
                self._new[log] = (text, 0)
                continue
            n_begun = known[log][1]
            if not is_same:
                if not self.reading.goes_on_without:
                    raise another(self.reading.log, log, text, known[log][0])
                positions = self._anew(log, positions)
                n_begun += 1
            logs[log] = (text, n_begun)
        self._same_until = self.clock() + NEW_PARTITIONS_SECONDS
        found = to_json(positions, logs)
        if not self.reading.log.reads_ahead:
            if not all(is_same for _, is_same in told.values()):
                self._places_until = float("-inf")
                self._look(found)  # their earlier ends are invalid
            self._same_ends = self._ends
        return found

    def _anew(self, log: str, positions: Mapping[Place, Position]) -> dict[Place, Position]:
        """Return positions without those of a log that is read again; count its unread messages."""
        for place, (_, at) in positions.items():
            if place[0] == log:
                # Messages after the last check, or between two runs, are unknown: they count as one.
                origin, n = self.reading.log.origin(place), self._same_ends.get(place, at) - at
                self._lost[origin] = self._lost.get(origin, 0) + max(n, 1)
        self._first_us = {key: us for key, us in self._first_us.items() if key[0][0] != log}
        self._last = {key: span for key, span in self._last.items() if key[0][0] != log}
        self._empty = {key for key in self._empty if key[0][0] != log}
        self._begins = {place: at for place, at in self._begins.items() if place[0] != log}
        return {place: position for place, position in positions.items() if place[0] != log}

    # ------------------------------------------------------------ ranges

    def stop_at_now(self) -> None:
        """Ignore everything after the current ends of the partitions."""
        ahead = self._ahead()
        if ahead is not None:
            ahead.stop_at_now()
        else:
            self._look({})
            self._is_fixed = True

    def everything(self) -> list[tuple[int, MessageRange]]:
        """Return the end of all current input."""
        if not self.reading.log.reads_ahead:
            self._look(self.start())
            return self.ranges(self.start(), self._after(self.start(), None))
        self.stop_at_now()
        found, at = [], self.start()
        while (end := self.latest(at)) != at:
            found += self.ranges(at, end)
            self.commit(end)
            at = end
        return found

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[int, MessageRange]]:
        """Return the ranges between two offsets of the source, with sizes in bytes."""
        return self._ranges(between(start, end))

    def ranges_again(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> tuple[list[tuple[int, MessageRange]], dict[str, int]]:
        """Return the same of messages that a run has read, and by partition how many are gone.

        Gone are the messages of a log that was deleted and recreated, and of a shard that no longer exists.
        What retention has removed of a partition is found when it is read.
        """
        bounds, gone = between(start, end), dict[str, int]()
        before, then, there = identities(start), identities(end), self._known_places()
        now = self._told({log: text for log, (text, _) in then.items()})
        for place, (begin, stop) in list(bounds.items()):
            log, words = place[0], self.reading.log.words
            is_other = log in now and not now[log].is_same
            has_restarted = then[log][1] > before.get(log, NOBODY)[1]
            if begin == stop or (place in there and not is_other and not has_restarted):
                continue
            origin = self.reading.log.origin(place)
            if not self.reading.goes_on_without:
                other = f"{words.noun} `{log}` is not the {words.noun} that it was"
                raise GoneError(
                    words.lost, other if is_other or has_restarted else f"`{origin}` no longer exists"
                )
            gone[origin] = 1 if self.reading.log.reads_ahead else stop - begin
            if is_other or place not in there:
                del bounds[place]
            else:
                gone[origin] = 1  # nobody knows how many the log before it had
        return self._ranges(bounds), gone

    def _told(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return the identities of logs, asked some seconds ago or now."""
        if self.clock() >= self._told_until:
            self._incarnations = {}
            self._told_until = self.clock() + NEW_PARTITIONS_SECONDS
        missing = {log: text for log, text in known.items() if (log, text) not in self._incarnations}
        found = self._client().incarnations(missing) if missing else {}
        self._incarnations |= {(log, missing[log]): told for log, told in found.items()}
        return {
            log: self._incarnations[log, text]
            for log, text in known.items()
            if (log, text) in self._incarnations
        }

    def _ranges(self, bounds: Mapping[Place, Position]) -> list[tuple[int, MessageRange]]:
        ahead, found = self._ahead(), []
        for place, (begin, stop) in sorted(bounds.items()):
            if ahead is not None:
                if begin != stop:
                    part = MessageRange(*place, *ahead.bounds(place, begin, stop))
                    found.append((_MESSAGE_BYTES, part))
                continue
            for at in range(begin, stop, RANGE_MESSAGES):
                part = MessageRange(*place, at, min(at + RANGE_MESSAGES, stop))
                found.append((_MESSAGE_BYTES * (part.end - part.start), part))
        return found

    def commit(self, end: Mapping[str, Any]) -> None:
        """Forget what was examined before `end`, whose offsets are in the checkpoint.

        Raises StateError: a run continues from `end`, and a log was deleted and recreated.
        """
        if self._same_until == float("-inf") and not self.reading.goes_on_without:
            self._same(end)  # the last plan is repeated without planning
            self._same_until = float("-inf")
        positions = of_json(end)
        self._first_us = {key: us for key, us in self._first_us.items() if _is_from(key, positions)}
        self._last = {key: span for key, span in self._last.items() if _is_from(key, positions)}
        self._empty = {key for key in self._empty if _is_from(key, positions)}
        ahead = self._ahead()
        if ahead is not None:
            ahead.forget({place: at for place, (_, at) in positions.items()})

    def close(self, counts: Counts) -> None:
        """Close the connections; count missing messages."""
        if self._open is not None:
            for gaps in self._all_lost():
                counts.add(Counts(lost=dict(gaps)))
            self._open.close()
            self._open = None

    def lost(self) -> int:
        """Return how many messages were removed unread, as far as planning has discovered."""
        return sum(sum(gaps.values()) for gaps in self._all_lost())

    def _all_lost(self) -> tuple[Mapping[str, int], ...]:
        """Return by partition the messages that are missing: those of deleted logs, and gaps."""
        ahead = self._ahead() if self._open is not None else None
        return (self._lost,) if ahead is None else (self._lost, ahead.gaps)

    # ------------------------------------------------------------ the present input

    def _client(self) -> LogClient:
        if self._open is None:
            self._open = self.reading.log.open()
        return self._open

    def _ahead(self) -> AheadReader | None:
        """Return the client of a log that must be read to find its end."""
        if not self.reading.log.reads_ahead:
            return None
        client = self._client()
        assert isinstance(client, AheadReader)
        return client

    def _known_places(self) -> list[Place]:
        if self.clock() >= self._places_until:
            self._places = list(self._client().places())
            self._places_until = self.clock() + NEW_PARTITIONS_SECONDS
        return self._places

    def _look(self, start: Mapping[str, Any]) -> None:
        ahead, places = self._ahead(), self._known_places()
        if ahead is not None:
            positions = self._positions(start, places)
            self._ends = dict(ahead.ends_behind({place: positions[place][1] for place in places}))
        else:
            self._ends = dict(self._client().ends(places))
        self._has_looked = True

    def _positions(self, offset: Mapping[str, Any], places: Collection[Place]) -> dict[Place, Position]:
        """Return an offset completed by the missing partitions, at their starts."""
        found = of_json(offset)
        new = [place for place in places if place not in found]
        unknown = [place for place in new if place not in self._begins]
        if unknown:
            self._begins |= self._client().begins(unknown)
        return found | {place: (self._begins[place], self._begins[place]) for place in new}

    def _after(self, start: Mapping[str, Any], most: int | None) -> dict[str, Any]:
        """Return the offset after `most` more messages; `start` itself if there are none."""
        positions = self._positions(start, self._ends)
        has_more = [place for place, end in self._ends.items() if positions[place][1] != end]
        if not has_more:
            return dict(start)
        self._begins |= self._client().begins(has_more)
        left: dict[Place, tuple[int, int]] = {}
        for place in has_more:
            at, end = positions[place][1], self._ends[place]
            log = self.reading.log
            if at > end:
                raise StateError(
                    log.words.lost,
                    f"`{log.origin(place)}` ends at offset {end:,}, and was read up to {at:,}: "
                    f"it is not the {log.words.noun} that it was",
                    "start with an empty checkpoint directory",
                )
            first = self._begins[place]
            if at < first and not self.reading.goes_on_without:
                raise lost(log, place, first, first - at)
            left[place] = (min(max(at, first), end), end)
        found, ahead = positions.copy(), self._ahead()
        for place, n in self._shares(left, most).items():
            first, at = positions[place]
            if ahead is not None and first == at and n:
                first = ahead.before_next(place, at)
            found[place] = (first, self._behind(place, left[place], n))
        known = of_json(start)
        read = {place: at for place, at in found.items() if place in known or at[1] > at[0]}
        known_logs = identities(start)
        logs = {log: known_logs.get(log) or self._new.get(log, NOBODY) for log, _ in read}
        return to_json(read, {**known_logs, **logs})

    def _shares(self, left: Mapping[Place, tuple[int, int]], most: int | None) -> dict[Place, int]:
        """Return how many messages to read of each partition."""
        sizes = {place: self._count(place, bounds) for place, bounds in left.items()}
        if most is None or sum(sizes.values()) <= most:
            return sizes
        if len(sizes) == 1:
            return dict.fromkeys(sizes, most)
        ahead = AheadGuard(self.reading.stream.max_ahead_us)
        is_estimated = self.reading.stream.device_clock is not None
        if not is_estimated:
            self._peek_firsts({place: at for place, (at, _) in left.items()}, ahead)
            self._peek_lasts(left, ahead)
        backlogs = {
            place: Backlog(
                n,
                self._first_us.get((place, left[place][0])),
                self._last.get((place, left[place][1]), NO_SPAN).last_us,
            )
            for place, n in sizes.items()
        }
        return shares_by_time(backlogs, most)

    def _count(self, place: Place, bounds: tuple[int, int]) -> int:
        ahead = self._ahead()
        return bounds[1] - bounds[0] if ahead is None else ahead.count(place, *bounds)

    def _behind(self, place: Place, bounds: tuple[int, int], n: int) -> int:
        ahead = self._ahead()
        return bounds[0] + n if ahead is None else ahead.behind(place, bounds[0], n)

    # ------------------------------------------------------------ event times

    def spans(
        self, start: Mapping[str, Any], end: Mapping[str, Any], ahead: AheadGuard
    ) -> dict[str, TimeSpan]:
        """Return, by partition, the end of the event times between two offsets."""
        if self.reading.stream.device_clock is not None:
            return {}  # earlier messages determine the time of a message
        read = {place: (at, stop) for place, (at, stop) in between(start, end).items() if stop > at}
        self._peek_lasts(read, ahead)
        return {
            self._partition(place): TimeSpan(None, self._last[place, stop].first_us)
            for place, (_, stop) in read.items()
        }

    def unread_after(self, end: Mapping[str, Any], ahead: AheadGuard) -> dict[str, Unread]:
        """Return, by partition, the known but unread input after an offset."""
        if not self._has_looked:
            self._look(end)
        positions = self._positions(end, self._ends)
        unread = {
            place: positions[place][1] for place, stop in self._ends.items() if positions[place][1] < stop
        }
        self._peek_firsts(unread, ahead)
        return {
            self._partition(place): Unread(self._first_us[place, at])
            for place, at in unread.items()
            if (place, at) not in self._empty
        }

    def ended(self, end: Mapping[str, Any]) -> Collection[str]:
        """Return the partitions that get no more messages, and are read to their end."""
        ahead = self._ahead()
        if ahead is None:
            return ()
        positions = {place: at for place, (_, at) in of_json(end).items()}
        return {self._partition(place) for place in ahead.ended(positions)}

    def _partition(self, place: Place) -> str:
        return partition_name(self.reading.stream, self.reading.log.origin(place))

    def _peek_firsts(self, at: Mapping[Place, int], ahead: AheadGuard) -> None:
        """Read the first messages from positions on, once for each position."""
        wanted = {
            place: (start, self._ends[place])
            for place, start in at.items()
            if (place, start) not in self._first_us
        }
        for place, portion in self._peek(wanted).items():
            start = wanted[place][0]
            if portion is not None and not portion.values:
                self._empty.add((place, start))
            self._first_us[place, start] = self._times(place, portion, ahead).first_us

    def _peek_lasts(self, bounds: Mapping[Place, tuple[int, int]], ahead: AheadGuard) -> None:
        """Read the last messages between positions, once for each end."""
        reader = self._ahead()
        wanted = {}
        for place, (start, stop) in bounds.items():
            if (place, stop) in self._last:
                continue
            if reader is None:
                wanted[place] = (max(start, stop - PEEK_MESSAGES), stop)
            else:
                n = reader.count(place, start, stop)
                wanted[place] = (reader.behind(place, start, max(n - PEEK_MESSAGES, 0)), stop)
        for place, portion in self._peek(wanted).items():
            self._last[place, wanted[place][1]] = self._times(place, portion, ahead)

    def _peek(self, ranges: Mapping[Place, tuple[int, int]]) -> Mapping[Place, Portion | None]:
        return self._client().peek(ranges, self.reading.wanted) if ranges else {}

    def _times(self, place: Place, portion: Portion | None, ahead: AheadGuard) -> TimeSpan:
        """Return the earliest and the latest event time of some messages."""
        if portion is None or not portion.values:
            return NO_SPAN
        messages, _ = self.reading.as_messages(place, portion)
        if not messages.values:
            return NO_SPAN
        chunk = self._reader.chunk(messages, ahead.copy())
        times = chunk.events.column(self.reading.stream.event_time).to_numpy()
        return TimeSpan(int(times.min()), int(times.max())) if len(times) else NO_SPAN


def _is_from(key: tuple[Place, int], positions: Mapping[Place, Position]) -> bool:
    place, at = key
    return place not in positions or at >= positions[place][1]
