"""Event files as a source: a folder of files, or one file.

A micro-batch reads new files, and lines that were added to text files. The age of a file does not matter: a
copy that preserves a time of ten days ago is as new as any other file. If not all files are read together,
the files with the earliest events come first, then those that were changed first.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cep.counts import Counts, Highest
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, place_in_file
from cep.formats.files import (
    BadFile,
    Reading,
    find_files,
    first_received_us,
    is_plain_text,
    links_to_nothing,
    partial_files,
    read_file,
    require_utf8,
)
from cep.formats.intake import partition_name
from cep.formats.path_names import is_skipped
from cep.formats.protocol import MAX_RECORD_LINES, FileFormat
from cep.formats.registry import FORMATS
from cep.formats.text.text_files import is_read_once
from cep.schema.stream import Stream
from spark_runtime.connectors.files.file_log import Entry, FileLog
from spark_runtime.connectors.files.time_span import time_span
from spark_runtime.event_time.partitions import (
    PER_SOURCE,
    TimeSpan,
    Unread,
    latest_by_value,
    partition_of_file,
)
from spark_runtime.sources.protocol import Range
from spark_runtime.storage.checkpoint_files import damaged

MARKED_BYTES = 1024
"""Bytes at both ends of the input that was read, by which a file is recognized."""

_TAIL_BYTES = 1 << 16

_READ_BYTES = 1 << 20


class FileRange(NamedTuple):
    """Bytes of a file, and its time of change when they were planned."""

    path: str
    start: int
    end: int
    mtime_ns: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class FolderSource:
    """The files of a folder, or one file, as events of `stream`.

    - `path`: absolute path of the folder or the file.
    - `log`: the file in which a stream lists the input that it has read.
    - `max_files`: maximum number of files, or parts of files, in a micro-batch.
    - `holds_open_lines`: whether an incomplete last line waits until it is complete, because it may still be
      written. Otherwise it is read as it is.
    - `watermark_per`: what has its own watermark: `PER_SOURCE`, `PER_FILE`, or the events with the same value
      in a column.
    - `by_time`: whether files with earlier events are read first. Otherwise files are read in the order in
      which they changed.
    - `has_begun`: whether the stream has completed micro-batches: files that were read may be gone.
    """

    stream: Stream
    path: str
    file_format: str
    reading: Reading
    log: str = ""
    max_files: int | None = None
    holds_open_lines: bool = False
    watermark_per: str = PER_SOURCE
    by_time: bool = True
    has_begun: bool = False

    def check(self) -> None:
        """Refuse a place without files, unless files may arrive later, or were read and may be gone.

        A pipe is refused, too: what workers have read of it, they cannot read again.
        """
        if is_read_once(self.path):
            fact = f"`{self.path}` is a pipe or a device, and a pipeline may read its input again"
            raise InputError("E0603", fact, "name a file, a folder or a pattern")
        grows = not isinstance(FORMATS.get(self.file_format), FileFormat)
        pattern = self.reading.pattern
        may_be_empty = pattern is not None or Path(self.path).is_dir()
        try:
            # A stream names the links that lead nowhere at its end: they may have been read.
            names, _ = find_files(self.path, self.file_format, follows_all=not self.log)
        except InputError as error:
            # A pattern whose folder is missing may be on a disk that is not mounted.
            has_none = error.code == "E0603" or (pattern is not None and pattern.folder.is_dir())
            may_come = self.holds_open_lines and grows and may_be_empty
            if not (may_come or (self.has_begun and has_none)):
                raise
            return
        if self.reading.on_bad_file is BadFile.FAIL:
            for name in names:
                require_utf8(name)

    def planner(self) -> FolderPlanner:
        """Return the planner of micro-batches."""
        return FolderPlanner(self)

    def everything(self) -> list[tuple[int, FileRange]]:
        """Return ranges of all present files; raise InputError if there are none."""
        names, _ = find_files(self.path, self.file_format)
        parts = []
        for name in names:
            found = os.stat(name)
            part = FileRange(name, 0, found.st_size, found.st_mtime_ns, is_whole=True)
            parts.append((found.st_size, part))
        if self.stream.device_clock is not None:
            parts.sort(key=lambda item: self.first_received_us(item[1]))
        return parts

    def first_received_us(self, part: FileRange) -> int:
        """Return when the first records of some bytes of a file were received, microseconds since 1970."""
        bounds = None if part.is_whole else (part.start, part.end)
        try:
            return first_received_us(part.path, self.stream, self.file_format, self.reading, bounds)
        except InputError:  # its reader reports the problem
            return 0

    def partition(self, part: Range) -> str:
        """Return the file, or the part of its name, that has its own watermark; "": all files together."""
        path = FileRange(*part).path
        return partition_of_file(path, self.watermark_per, self.reading.pattern) or ""

    @property
    def splits_by_events(self) -> bool:
        """Whether a column of the events names their partition, rather than the file's name."""
        return partition_of_file("", self.watermark_per, None) is None and not self._is_in_path

    @property
    def _is_in_path(self) -> bool:
        pattern = self.reading.pattern
        return pattern is not None and self.watermark_per in pattern.names

    def latest(self, chunk: Chunk) -> Highest:
        """Return the latest event time of a chunk by value of the column."""
        return latest_by_value(chunk, self.stream, self.watermark_per)

    def position_text(self, source: str, position: int) -> str:
        """Return the file and the line or row."""
        return place_in_file(source, position)

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of some bytes of a file."""
        path, start, end, mtime_ns, is_whole = FileRange(*part)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            counts.gone[path] = 1
            return
        is_as_planned = (found.st_size, found.st_mtime_ns) == (end, mtime_ns)
        if found.st_size < end or (is_whole and not is_as_planned):
            counts.changed[path] = 1
        bounds = None if is_whole else (start, end)
        yield from read_file(path, self.stream, self.file_format, self.reading, ahead, bounds)


@dataclass(slots=True)
class FolderChanges:
    """The result of a scan of the folder."""

    new: list[Entry] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # changed since they were read
    open_lines: list[str] = field(default_factory=list)  # files whose last line waits
    empty: list[str] = field(default_factory=list)  # without a byte so far


class FolderPlanner:
    """Plans what a stream reads from a folder."""

    def __init__(self, source: FolderSource) -> None:
        self.source = source
        self.log = FileLog.load(Path(source.log))
        self.folder = Path(source.path)
        self.only = ""
        if source.reading.pattern is not None:
            self.folder = source.reading.pattern.folder
        elif self.folder.is_file():
            self.folder, self.only = self.folder.parent, self.folder.name
        self.waiting: list[Entry] | None = None  # None: the folder is scanned each time
        self.unread: list[Entry] | None = None  # seen and not yet read; None: no scan yet
        self._spans: dict[tuple[str, int], TimeSpan] = {}  # of entries that are not committed
        self._received: dict[tuple[str, int], int] = {}  # their first times of receipt

    def start(self) -> int:
        """Return the offset before all files."""
        return 0

    def latest(self, start: int) -> int:
        """Return the end of the micro-batch that starts at entry `start`."""
        return self._latest(start)

    def latest_of(self, start: int, partition: str) -> int:
        """Return the end of a micro-batch that reads only the files of one partition."""
        whole = partition_name(self.source.stream, "")
        return self._latest(start, None if partition == whole else partition)

    def _latest(self, start: int, partition: str | None = None) -> int:
        n_known = self.log.end
        if start > n_known:
            fact = f"the list of files that were read, has {n_known:,} entries; the query has read {start:,}"
            raise damaged(self.source.log, fact)
        most = self.source.max_files
        n_wanted = None if most is None else max(most - (n_known - start), 0)
        if n_wanted != 0:
            found = self.look().new if self.waiting is None else self.waiting
            waiting, others = found, list[Entry]()
            if partition is not None:
                waiting = [entry for entry in found if self._partition(entry) == partition]
                others = [entry for entry in found if self._partition(entry) != partition]
            if self.source.stream.device_clock is not None:
                waiting.sort(key=self._received_us)
            elif self.source.by_time and n_wanted is not None and len(waiting) > n_wanted:
                # The earliest comes first, so that the watermark advances as soon as possible.
                waiting.sort(key=self._first_us)
            taken = waiting[:n_wanted]
            self.log.append(taken)
            self.unread = [*waiting[len(taken) :], *others]
            if self.waiting is not None:
                self.waiting = self.unread
        end = self.log.end
        return end if most is None else min(end, start + most)

    def stop_at_now(self) -> None:
        """Scan the folder for the last time."""
        self.waiting = self.look().new

    def _first_us(self, entry: Entry) -> float:
        first_us = self._span(entry, AheadGuard(self.source.stream.max_ahead_us)).first_us
        return float("-inf") if first_us is None else first_us  # entries of unknown time come first

    def _received_us(self, entry: Entry) -> int:
        """Return when the first records of an entry were received; read it only once."""
        key = entry.name, entry.start
        if key not in self._received:
            self._received[key] = self.source.first_received_us(self._range(entry))
        return self._received[key]

    def _span(self, entry: Entry, ahead: AheadGuard) -> TimeSpan:
        """Return the event times of an entry; examine it only once."""
        key = entry.name, entry.start
        found = self._spans.get(key)
        if found is None:
            path, bounds = str(self.folder / entry.name), (entry.start, entry.end)
            source = self.source
            is_plain = self._is_plain_text(entry.name)
            found = self._spans[key] = time_span(
                path, bounds, source.stream, source.file_format, source.reading, ahead, is_plain=is_plain
            )
        return found

    def _partition(self, entry: Entry) -> str:
        """Return the partition of an entry; if only its events name it, the stream represents all of them."""
        source = self.source
        path = str(self.folder / entry.name)
        found = partition_of_file(path, source.watermark_per, source.reading.pattern)
        return partition_name(source.stream, found or "")

    def spans(self, start: int, end: int, ahead: AheadGuard) -> dict[str, TimeSpan]:
        """Return, by partition, the event times between two offsets that are known before reading."""
        found: dict[str, TimeSpan] = {}
        for entry in self.log.between(start, end):
            if not self.source.splits_by_events:
                partition, span = self._partition(entry), self._span(entry, ahead)
                found[partition] = _joined(found.get(partition, span), span)
        return found

    def unread_after(self, end: int, ahead: AheadGuard) -> dict[str, Unread]:
        """Return, by partition, the known but unread input after an offset."""
        if self.unread is None:  # no plan since the start of the run: it is paused
            self.unread = self.look().new if self.waiting is None else self.waiting
        found: dict[str, Unread] = {}
        for entry in (*self.log.between(end), *self.unread):
            partition = self._partition(entry)
            first_us = self._span(entry, ahead).first_us
            known = found.get(partition, Unread(first_us)).first_us
            found[partition] = Unread(None if first_us is None or known is None else min(first_us, known))
        return found

    def ranges(self, start: int, end: int) -> list[tuple[int, FileRange]]:
        """Return the ranges of the entries from `start` to `end`, with sizes in bytes."""
        return [(entry.end - entry.start, self._range(entry)) for entry in self.log.between(start, end)]

    def commit(self, end: int) -> None:
        """Forget what was read before `end`. The list of files in the checkpoint records it."""
        for entry in self.log.forget(end):
            self._spans.pop((entry.name, entry.start), None)
            self._received.pop((entry.name, entry.start), None)

    def close(self, counts: Counts) -> None:
        """Count files that have changed since they were read, are empty or partial, and links to nothing.

        Until now an empty file might still have got its first line.
        """
        found = self.look()
        for name in found.changed:
            counts.changed[str(self.folder / name)] = 1
        for name in found.empty:
            counts.empty[str(self.folder / name)] = 1
        source = self.source
        given = source.path, source.file_format, source.reading.pattern
        counts.partial.update(dict.fromkeys(partial_files(*given), 1))
        for path in links_to_nothing(*given):
            link = path.relative_to(self.folder)
            if not any(link in (read, *read.parents) for read in map(Path, self.log.last)):
                counts.gone[str(path)] = 1

    def _range(self, entry: Entry) -> FileRange:
        is_whole = not self._is_plain_text(entry.name)
        return FileRange(str(self.folder / entry.name), entry.start, entry.end, entry.mtime_ns, is_whole)

    def look(self) -> FolderChanges:
        """Scan the folder for new and changed files."""
        found = FolderChanges()
        for name, status in sorted(self._files(), key=lambda item: (item[1].st_mtime_ns, item[0])):
            known = self.log.last.get(name)
            if known is None:
                if status.st_size:
                    self._offer(name, 0, status, found)
                else:
                    found.empty.append(name)
            elif not self._begins_as(known, status):
                found.changed.append(name)
            elif status.st_size > known.end:
                if self._is_plain_text(name):
                    self._offer(name, known.end, status, found)
                else:
                    found.changed.append(name)
        return found

    def _begins_as(self, known: Entry, status: os.stat_result) -> bool:
        """Return whether a file still contains what was read from it, judging by its size, time and mark."""
        if (status.st_size, status.st_mtime_ns) == (known.end, known.mtime_ns):
            return True
        # A file that was only touched, or copied elsewhere, is the same file.
        return status.st_size >= known.end and mark_of(self.folder / known.name, known.end) == known.mark

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the names and states of the files that belong to the source."""
        pattern = self.source.reading.pattern
        for path in _visible(self.folder, self.only) if pattern is None else pattern.files():
            try:
                status = path.stat()
            except FileNotFoundError:  # removed since the folder was listed
                continue
            if stat.S_ISREG(status.st_mode):
                yield str(path.relative_to(self.folder)), status

    def _is_plain_text(self, name: str) -> bool:
        return is_plain_text(name, self.source.file_format, self.source.stream)

    def _end_of_last_record(self, path: Path, start: int, end: int) -> int:
        found = FORMATS.get(self.source.file_format)
        quote = "" if isinstance(found, FileFormat) else found.quote(self.source.stream)
        end = end_of_last_line(path, start, end)
        return end_of_last_record(path, start, end, quote.encode()) if quote else end

    def _offer(self, name: str, start: int, status: os.stat_result, found: FolderChanges) -> None:
        end = status.st_size
        if self.source.holds_open_lines and self._is_plain_text(name):
            whole = self._end_of_last_record(self.folder / name, start, end)
            if whole < end:
                found.open_lines.append(name)
            end = whole
        if end > start:
            mark = mark_of(self.folder / name, end)
            found.new.append(Entry(name, start, end, status.st_mtime_ns, mark))


def _joined(one: TimeSpan, other: TimeSpan) -> TimeSpan:
    firsts, lasts = (one.first_us, other.first_us), (one.last_us, other.last_us)
    return TimeSpan(
        None if None in firsts else min(us for us in firsts if us is not None),
        max((us for us in lasts if us is not None), default=None),
    )


def mark_of(path: Path, end: int) -> int:
    """Return the CRC-32 of the first and the last `MARKED_BYTES` bytes of a file before `end`."""
    n = min(end, MARKED_BYTES)
    try:
        with path.open("rb") as file:
            first = file.read(n)
            file.seek(end - n)
            return zlib.crc32(file.read(n), zlib.crc32(first))
    except OSError:  # its reader reports the problem
        return 0


def _visible(folder: Path, only: str) -> Iterator[Path]:
    """Yield the visible files and folders in a folder; with `only`, the one with this name."""
    try:
        with os.scandir(folder) as listing:
            yield from (
                folder / item.name
                for item in listing
                if (item.name == only if only else not is_skipped(item.name))
            )
    except FileNotFoundError:
        return


def end_of_last_record(path: Path, start: int, end: int, quote: bytes) -> int:
    """Return the end of the last CSV record between `start` and `end`, if a quoted field is open at `end`.

    The number of quotes shows whether a quote is open. A record has at most `MAX_RECORD_LINES` lines: if none
    of that many lines opens it, a quote is misplaced, and reading does not wait for another one.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            n_left, n_quotes = end - start, 0
            while n_left > 0 and (data := file.read(min(n_left, _READ_BYTES))):
                n_quotes += data.count(quote)
                n_left -= len(data)
    except OSError:  # its reader reports the problem
        return end
    stop = end
    for _ in range(MAX_RECORD_LINES):
        if n_quotes % 2 == 0:
            return stop
        if stop <= start:
            break
        begin = end_of_last_line(path, start, stop - 1)
        with path.open("rb") as file:
            file.seek(begin)
            n_quotes -= file.read(stop - begin).count(quote)
        stop = begin
    return end


def end_of_last_line(path: Path, start: int, end: int) -> int:
    """Return the end of the last line that ends between `start` and `end`; `start` if none does."""
    try:
        with path.open("rb") as file:
            stop = end
            while stop > start:
                begin = max(stop - _TAIL_BYTES, start)
                file.seek(begin)
                at = file.read(stop - begin).rfind(b"\n")
                if at >= 0:
                    return begin + at + 1
                stop = begin
    except OSError:
        return end
    return start
