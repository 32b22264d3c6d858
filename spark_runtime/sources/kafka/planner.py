"""Plans what a stream reads of topics. On the driver.

An offset of the source says for each partition where reading it began and where it goes on:
``{"orders": {"0": [0, 981]}}``. A partition that is not in it is read from its beginning, once there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import InputError, StateError
from cep.formats.ahead import AheadGuard
from cep.formats.intake import partition_name
from spark_runtime.kafka_connection import Client
from spark_runtime.sources.kafka.catch_up import Backlog, shares_by_time
from spark_runtime.sources.kafka.fetch import (
    OffsetRange,
    Place,
    begins,
    ends,
    first_messages,
    first_offsets,
    place_text,
)
from spark_runtime.sources.kafka.reading import EARLIEST, LATEST, KafkaReading
from spark_runtime.sources.partitions import NO_SPAN, TimeSpan, Unread

NEW_PARTITIONS_SECONDS = 3.0
"""Topics are asked for new partitions so often."""

RANGE_MESSAGES = 200_000
"""Messages of one range, at most: a partition with more is read by several tasks side by side."""

PEEK_MESSAGES = 64
"""Messages that tell where event times begin, or end."""

_PEEK_SECONDS = 5.0
_PEEK_BYTES = 64 << 10
_MESSAGE_BYTES = 256  # a guess: only the sizes of ranges among each other count

Position = tuple[int, int]
"""Where reading a partition began, and where it goes on."""


class KafkaPlanner:
    """Plans micro-batches; see `Planner` and `TimedPlanner`.

    Parameters
    ----------
    reading
        How topics are read.
    clock
        Seconds, from anywhere on.
    """

    def __init__(self, reading: KafkaReading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self.clock = clock
        self._reader = reading.message_reader()
        self._clients: dict[str, Client] = {}
        self._places: list[Place] = []
        self._places_until = float("-inf")
        self._ends: dict[Place, int] = {}  # at the last look
        self._begins: dict[Place, int] = {}  # of the partitions that something is read of
        self._has_looked = self._is_fixed = False
        self._start: dict[str, Any] | None = None
        self._first_us: dict[tuple[Place, int], int | None] = {}  # of the messages from an offset on
        self._last: dict[tuple[Place, int], TimeSpan] = {}  # of the last messages before an offset
        self._empty: set[tuple[Place, int]] = set()  # no messages are behind this offset, only marks

    # ------------------------------------------------------------ offsets

    def start(self) -> dict[str, Any]:
        """Return where the stream begins; after its first start the file in the checkpoint says it."""
        if self._start is None:
            log = Path(self.reading.log) if self.reading.log else None
            if log is not None and log.exists():
                self._start = _read(log)
            else:
                self._start = _to_json(self._first_positions())
                if log is not None:
                    _write(log, self._start)
        return self._start

    def _first_positions(self) -> dict[Place, Position]:
        begin = self.reading.begin
        if begin == EARLIEST:
            return {}
        client, places = self._client(), self._known_places()
        if isinstance(begin, Mapping):
            names = {place_text(*place): place for place in places}
            unknown = [name for name in begin if name not in names]
            if unknown:
                raise InputError(
                    "E0851",
                    f"there is no partition `{unknown[0]}` at `{self.reading.connection.brokers}`",
                    f"partitions are {', '.join(names)}",
                )
            return {names[name]: (offset, offset) for name, offset in begin.items()}
        found = ends(client, places)
        if begin != LATEST:
            assert isinstance(begin, int)
            at_ms = -(-begin // 1000)
            of_time = first_offsets(client, dict.fromkeys(places, at_ms))
            found = {place: found[place] if at < 0 else at for place, at in of_time.items()}
        return {place: (offset, offset) for place, offset in found.items()}

    def latest(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the micro-batch that starts at `start` ends."""
        if not self._is_fixed:
            self._look()
        return self._after(start, self.reading.max_events)

    def stop_at_now(self) -> None:
        """Look at the ends of partitions for the last time."""
        self._look()
        self._is_fixed = True

    def everything(self) -> list[tuple[int, OffsetRange]]:
        """Return all that is there now."""
        self._look()
        return self.ranges(self.start(), self._after(self.start(), None))

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[int, OffsetRange]]:
        """Return what lies between two offsets of the source, with sizes in bytes."""
        before = _of_json(start)
        found = []
        for place, (first, stop) in sorted(_of_json(end).items()):
            begin = before[place][1] if place in before else first
            for at in range(begin, stop, RANGE_MESSAGES):
                part = OffsetRange(*place, at, min(at + RANGE_MESSAGES, stop))
                found.append((_MESSAGE_BYTES * (part.end - part.start), part))
        return found

    def commit(self, end: Mapping[str, Any]) -> None:
        """Forget what was looked at before `end`; the offsets stand in the checkpoint."""
        positions = _of_json(end)
        self._first_us = {key: us for key, us in self._first_us.items() if _is_from(key, positions)}
        self._last = {key: span for key, span in self._last.items() if _is_from(key, positions)}
        self._empty = {key for key in self._empty if _is_from(key, positions)}

    def close(self, counts: Counts) -> None:
        """Let go of connections."""
        for client in self._clients.values():
            client.client.close()
        self._clients.clear()

    # ------------------------------------------------------------ what is there

    def _client(self) -> Client:
        if "offsets" not in self._clients:
            self._clients["offsets"] = self.reading.client()
        return self._clients["offsets"]

    def _peeking(self) -> Client:
        """Return a consumer that fetches a little of each partition."""
        if "peeks" not in self._clients:
            few = {"fetch.message.max.bytes": _PEEK_BYTES, "queued.min.messages": PEEK_MESSAGES}
            self._clients["peeks"] = self.reading.client(**few)
        return self._clients["peeks"]

    def _known_places(self) -> list[Place]:
        if self.clock() >= self._places_until:
            client = self._client()
            topics = self.reading.found_topics(client)
            self._places = [(topic, number) for topic in topics for number in client.partitions(topic)]
            self._places_until = self.clock() + NEW_PARTITIONS_SECONDS
        return self._places

    def _look(self) -> None:
        self._ends = ends(self._client(), self._known_places())
        self._has_looked = True

    def _positions(self, offset: Mapping[str, Any]) -> dict[Place, Position]:
        """Return an offset with the partitions that are not in it, at their beginnings."""
        found = _of_json(offset)
        new = [place for place in self._ends if place not in found]
        unknown = [place for place in new if place not in self._begins]
        self._begins |= begins(self._client(), unknown)
        return found | {place: (self._begins[place], self._begins[place]) for place in new}

    def _after(self, start: Mapping[str, Any], most: int | None) -> dict[str, Any]:
        """Return the offset behind `most` messages more; `start` itself if there are none."""
        positions = self._positions(start)
        has_more = [place for place, end in self._ends.items() if positions[place][1] != end]
        if not has_more:
            return dict(start)
        self._begins |= begins(self._client(), has_more)
        left: dict[Place, tuple[int, int]] = {}
        for place in has_more:
            at, end = positions[place][1], self._ends[place]
            if at > end:
                raise StateError(
                    "E0854",
                    f"`{place_text(*place)}` ends at offset {end:,}, and was read up to {at:,}: "
                    "it is not the topic that it was",
                    "start with an empty checkpoint directory",
                )
            if at < self._begins[place] and not self.reading.goes_on_without:
                raise lost(place_text(*place), at, self._begins[place])
            left[place] = (min(max(at, self._begins[place]), end), end)
        found = positions.copy()
        for place, n in self._shares(left, most).items():
            found[place] = (positions[place][0], left[place][0] + n)
        return _to_json(
            {place: at for place, at in found.items() if place in _of_json(start) or at[1] > at[0]}
        )

    def _shares(self, left: Mapping[Place, tuple[int, int]], most: int | None) -> dict[Place, int]:
        """Return how many messages to read of each partition."""
        sizes = {place: end - at for place, (at, end) in left.items()}
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

    # ------------------------------------------------------------ event times

    def spans(
        self, start: Mapping[str, Any], end: Mapping[str, Any], ahead: AheadGuard
    ) -> dict[str, TimeSpan]:
        """Return by partition where the event times between two offsets end."""
        if self.reading.stream.device_clock is not None:
            return {}  # the messages before tell the time of a message
        before = _of_json(start)
        read = {
            place: (before[place][1] if place in before else first, stop)
            for place, (first, stop) in _of_json(end).items()
        }
        read = {place: bounds for place, bounds in read.items() if bounds[1] > bounds[0]}
        self._peek_lasts(read, ahead)
        return {
            self._partition(place): TimeSpan(None, self._last[place, stop].first_us)
            for place, (_, stop) in read.items()
        }

    def unread_after(self, end: Mapping[str, Any], ahead: AheadGuard) -> dict[str, Unread]:
        """Return by partition what is known behind an offset and not read."""
        if not self._has_looked:
            self._look()
        positions = self._positions(end)
        unread = {
            place: positions[place][1] for place, stop in self._ends.items() if positions[place][1] < stop
        }
        self._peek_firsts(unread, ahead)
        return {
            self._partition(place): Unread(self._first_us[place, at])
            for place, at in unread.items()
            if (place, at) not in self._empty
        }

    def _partition(self, place: Place) -> str:
        return partition_name(self.reading.stream, place_text(*place))

    def _peek_firsts(self, at: Mapping[Place, int], ahead: AheadGuard) -> None:
        """Look at the first messages from offsets on, once."""
        wanted = {
            place: (start, self._ends[place])
            for place, start in at.items()
            if (place, start) not in self._first_us
        }
        for place, messages in self._peek(wanted).items():
            start = wanted[place][0]
            if messages == []:
                self._empty.add((place, start))
            self._first_us[place, start] = self._times(place, messages or [], ahead).first_us

    def _peek_lasts(self, bounds: Mapping[Place, tuple[int, int]], ahead: AheadGuard) -> None:
        """Look at the last messages between offsets, once for each end."""
        wanted = {
            place: (max(start, stop - PEEK_MESSAGES), stop)
            for place, (start, stop) in bounds.items()
            if (place, stop) not in self._last
        }
        for place, messages in self._peek(wanted).items():
            self._last[place, wanted[place][1]] = self._times(place, messages or [], ahead)

    def _peek(self, ranges: Mapping[Place, tuple[int, int]]) -> dict[Place, list[Any] | None]:
        if not ranges:
            return {}
        return first_messages(self._peeking(), ranges, PEEK_MESSAGES, _PEEK_SECONDS)

    def _times(self, place: Place, messages: Iterable[Any], ahead: AheadGuard) -> TimeSpan:
        """Return the earliest and the latest event time of some messages."""
        full = [message for message in messages if message.value() is not None]
        if not full:
            return NO_SPAN
        chunk = self._reader.chunk(self.reading.as_messages(place_text(*place), full), ahead.copy())
        times = chunk.events.column(self.reading.stream.event_time).to_numpy()
        return TimeSpan(int(times.min()), int(times.max())) if len(times) else NO_SPAN


def lost(origin: str, start: int, first: int) -> InputError:
    """Return the error for messages that retention has removed before they were read."""
    return InputError(
        "E0854",
        f"`{origin}` begins at offset {first:,} now: {first - start:,} messages were removed unread",
        "let the topic keep its messages for longer; to count what is gone and go on: `on_lost: go_on`",
    )


def _is_from(key: tuple[Place, int], positions: Mapping[Place, Position]) -> bool:
    place, at = key
    return place not in positions or at >= positions[place][1]


def _of_json(offset: Mapping[str, Any]) -> dict[Place, Position]:
    return {
        (topic, int(number)): (first, at)
        for topic, numbers in offset.items()
        for number, (first, at) in numbers.items()
    }


def _to_json(positions: Mapping[Place, Position]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, number), position in sorted(positions.items()):
        found.setdefault(topic, {})[str(number)] = list(position)
    return found


def _read(log: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(log.read_text())
        _of_json(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise StateError(
            "E0702",
            f"`{log}`, where the stream began, is damaged",
            "restore the checkpoint directory, or start with an empty one",
        ) from error
    return found


def _write(log: Path, start: Mapping[str, Any]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    unfinished = log.with_name(f".{log.name}.tmp")
    unfinished.write_text(json.dumps(start))
    unfinished.replace(log)
