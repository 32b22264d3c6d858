"""Plans what a stream reads from a spool, and reports the progress to the spool. On the driver.

An offset of the source is a `Place`: ``[segment, bytes, number]``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import StateError
from cep.formats.ahead import AheadGuard
from cep.formats.intake import partition_name
from cep.spool.folder import (
    Place,
    durable,
    identity,
    note_reader,
    readers_locked,
    segment_path,
    segments,
    write_whole,
)
from cep.spool.segments import HEADER_BYTES, blocks
from spark_runtime.connectors.spool.reading import LATEST, SpoolRange, SpoolReading, first_blocks, removed
from spark_runtime.event_time.partitions import NO_SPAN, PER_SOURCE, TimeSpan, Unread
from spark_runtime.storage.checkpoint_files import damaged, is_there
from spark_runtime.storage.sealed import read_sealed_path, sealed

RANGE_BYTES = 16 << 20
"""Approximate bytes of a range: more than that is read by several tasks in parallel."""

PEEK_MESSAGES = 64
"""How many messages determine where event times start or end."""

Offset = Sequence[int]


class SpoolPlanner:
    """Plans micro-batches; see `Planner` and `TimedPlanner`."""

    def __init__(self, reading: SpoolReading) -> None:
        self.reading = reading
        self._identity = identity(reading.path)
        self._reader = reading.message_reader()
        self._start: Place | None = None
        self._fixed: Place | None = None
        self._committed: Place | None = None
        self._first_us: dict[Place, int | None] = {}  # of the messages from a place on
        if reading.log and is_there(reading.log):
            self._start = self._read_log()

    # ------------------------------------------------------------ offsets

    @property
    def name(self) -> str:
        """The name under which this stream registers."""
        return self.reading.reader or "pipeline-" + hashlib.sha256(self.reading.log.encode()).hexdigest()[:16]

    def start(self) -> list[int]:
        """Return the offset at which the stream starts, which is stored in the checkpoint."""
        if self._start is None:
            if not self.reading.log:
                return list(self._first_place())
            with readers_locked(self.reading.path):  # the spool removes nothing meanwhile
                self._start = self._end() if self.reading.begin == LATEST else self._first_place()
                self._note(self._start)
            log = Path(self.reading.log)
            log.parent.mkdir(parents=True, exist_ok=True)
            about = {"spool": self._identity, "start": list(self._start)}
            write_whole(log, sealed(json.dumps(about)))
        return list(self._start)

    def latest(self, start: Offset) -> list[int]:
        """Return the end of the micro-batch that starts at `start`."""
        begin, end = Place(*start), self._fixed or self._end()
        if end.number <= begin.number:
            return list(start)
        if not self.reading.goes_on_without:
            self._require(begin)
        return list(self._cut(begin, end))

    def stop_at_now(self) -> None:
        """Ignore everything after the current end of the spool."""
        self._fixed = self._end()

    def everything(self) -> list[tuple[int, SpoolRange]]:
        """Return the end of all current input."""
        return self.ranges(self._first_place(), self._end())

    def ranges(self, start: Offset, end: Offset) -> list[tuple[int, SpoolRange]]:
        """Return the ranges between two offsets, with sizes in bytes."""
        parts = [each for part in self._parts(Place(*start), Place(*end)) for each in self._split(part)]
        return [(max(part.end - part.start, 1), part) for part in parts]

    def commit(self, end: Offset) -> None:
        """Allow the spool to remove messages before the offset that was committed before `end`.

        Spark itself has not committed the micro-batch that ends at `end`: after a crash it may be repeated.
        The micro-batch before it is never repeated.
        """
        place, before = Place(*end), self._committed
        self._committed = place
        self._first_us = {at: us for at, us in self._first_us.items() if at.number >= place.number}
        if self.reading.log and before is not None:
            self._note(before)

    def close(self, counts: Counts) -> None:
        """Do nothing: no connection is kept."""

    # ------------------------------------------------------------ the present input

    def _end(self) -> Place:
        found = durable(self.reading.path)
        return Place(0, HEADER_BYTES, 0) if found is None else found

    def _first_place(self) -> Place:
        found = segments(self.reading.path)
        return Place(found[0], HEADER_BYTES, found[0]) if found else self._end()

    def _note(self, place: Place) -> None:
        note_reader(self.reading.path, self.name, place, {"checkpoint": self.reading.log})

    def _read_log(self) -> Place:
        log = Path(self.reading.log)

        def parsed(text: str) -> tuple[Place, object]:
            about = json.loads(text)
            return Place(*map(int, about["start"])), about["spool"]

        place, spool = read_sealed_path(log, parsed, damaged(log))
        if spool != self._identity:
            raise StateError(
                "E0953",
                f"`{self.reading.folder}` is not the spool that this stream has read",
                "start with an empty checkpoint directory",
            )
        return place

    def _require(self, begin: Place) -> None:
        """Raise InputError if messages from `begin` on were removed."""
        found = segments(self.reading.path)
        if begin.segment not in found:
            following = next((segment for segment in found if segment >= begin.number), begin.number)
            if following > begin.number:
                raise removed(self.reading, begin.number, following)

    def _parts(self, begin: Place, end: Place) -> list[SpoolRange]:
        """Return the ranges between two places, by segment, removed segments included."""
        there = [segment for segment in segments(self.reading.path) if segment <= end.segment]
        parts = []
        at = begin
        while at.number < end.number:
            following = next((segment for segment in there if segment > at.segment), end.segment)
            if at.segment in there and at.segment < end.segment:
                size = segment_path(self.reading.path, at.segment).stat().st_size
                if size > at.n_bytes:
                    parts.append(SpoolRange(at.segment, at.n_bytes, size, at.number, following))
            elif at.segment == end.segment:
                parts.append(SpoolRange(at.segment, at.n_bytes, end.n_bytes, at.number, end.number))
                break
            elif following > at.number:
                parts.append(SpoolRange(at.segment, 0, 0, at.number, following))
            at = Place(following, HEADER_BYTES, following)
        return parts

    def _split(self, part: SpoolRange) -> list[SpoolRange]:
        """Split a range that is too large into several."""
        if part.end - part.start <= RANGE_BYTES:
            return [part]
        found, start, first = [], part.start, part.first
        with self.reading.segment(part.segment) as data:
            for block in blocks(data, part.start, part.end):
                if block.end - start >= RANGE_BYTES:
                    stop = block.first + block.n
                    found.append(SpoolRange(part.segment, start, block.end, first, stop))
                    start, first = block.end, stop
        if start < part.end:
            found.append(SpoolRange(part.segment, start, part.end, first, part.stop))
        return found

    def _cut(self, begin: Place, end: Place) -> Place:
        """Return the place after `max_events` messages, at most `end`; a block is not split."""
        most = self.reading.max_events
        if most is None or end.number - begin.number <= most:
            return end
        for part in self._parts(begin, end):
            if part.stop - begin.number < most or part.end == 0:
                continue
            with self.reading.segment(part.segment) as data:
                for block in blocks(data, part.start, part.end):
                    if block.first + block.n - begin.number >= most:
                        return Place(part.segment, block.end, block.first + block.n)
        return end

    # ------------------------------------------------------------ event times

    def spans(self, start: Offset, end: Offset, ahead: AheadGuard) -> dict[str, TimeSpan]:
        """Return the end of the event times between two offsets."""
        stream = self.reading.stream
        if stream.device_clock is not None or self.reading.watermark_per != PER_SOURCE:
            return {}
        parts = [part for part in self._parts(Place(*start), Place(*end)) if part.end]
        if not parts:
            return {}
        # If possible, the scan of block headers starts at most this many bytes before the end.
        last = self._split(parts[-1])[-1]
        return {partition_name(stream, ""): TimeSpan(None, self._last_times(last, ahead).first_us)}

    def unread_after(self, end: Offset, ahead: AheadGuard) -> Mapping[str, Unread]:
        """Return the known but unread input after an offset."""
        place, last = Place(*end), self._fixed or self._end()
        if last.number <= place.number:
            return {}
        if place not in self._first_us:
            self._first_us[place] = self._first_times(place, last, ahead).first_us
        return {partition_name(self.reading.stream, ""): Unread(self._first_us[place])}

    def _first_times(self, place: Place, last: Place, ahead: AheadGuard) -> TimeSpan:
        for part in self._parts(place, last):
            if part.end:
                with self.reading.segment(part.segment) as data:
                    found = first_blocks(data, part.start, part.end, PEEK_MESSAGES)
                end = found[-1].end if found else part.start
                return self._times(part._replace(end=end), ahead)
        return NO_SPAN

    def _last_times(self, part: SpoolRange, ahead: AheadGuard) -> TimeSpan:
        with self.reading.segment(part.segment) as data:
            start, first = part.start, part.first
            for block in blocks(data, part.start, part.end):
                if part.stop - first - block.n < PEEK_MESSAGES:
                    break
                start, first = block.end, first + block.n
        return self._times(part._replace(start=start, first=first), ahead)

    def _times(self, part: SpoolRange, ahead: AheadGuard) -> TimeSpan:
        """Return the earliest and the latest event time of a range."""
        earliest: list[int] = []
        latest: list[int] = []
        for messages in self.reading.portions(part) if part.end > part.start else ():
            chunk = self._reader.chunk(messages, ahead.copy())
            times: Any = chunk.events.column(self.reading.stream.event_time).to_numpy()
            if len(times):
                earliest.append(int(times.min()))
                latest.append(int(times.max()))
        return TimeSpan(min(earliest), max(latest)) if earliest else NO_SPAN
