"""Writes segments: when `append` returns, the messages are on disk, even after a power failure."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from cep.errors import InputError, StateError
from cep.spool.folder import (
    VERSION,
    Place,
    durable,
    durable_bytes,
    identity,
    readers,
    readers_locked,
    segment_path,
    segments,
    sync_folder,
    write_whole,
)
from cep.spool.segments import (
    HEADER_BYTES,
    ReceivedBatch,
    block_of,
    check_header,
    cut,
    joined,
    segment_header,
    sound_end,
)
from cep.write_errors import FULL, writing


class DiskFailedError(Exception):
    """The disk failed during a write: none of the write counts, and nothing more can be written."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a new segment starts, and how long segments are kept.

    - `segment_bytes`, `segment_seconds`: a segment that is larger or older is closed.
    - `keep_seconds`: how long a segment is kept after every reader has read it.
    - `remove_after_seconds`: an older closed segment is removed, read or not; None: only if it was read.
    - `wanted`: names of readers that must have read a segment, even if they have not registered yet.
    """

    segment_bytes: int = 64 << 20
    segment_seconds: float = 600.0
    keep_seconds: float = 60.0
    remove_after_seconds: float | None = None
    wanted: tuple[str, ...] = ()


class SegmentWriter:
    """The only writer of a folder, for one thread at a time.

    Raises StateError: another spool writes to the folder (E0951), or acknowledged messages are damaged
    (E0952). Raises InputError: the folder cannot be written. If only the disk is full, an existing spool
    opens, and `append` raises OSError.

    `folder`: created if it is missing. `clock`: seconds since 1970.
    """

    def __init__(self, folder: Path, limits: Limits, clock: Callable[[], float]) -> None:
        self.folder = folder
        self.limits = limits
        self.clock = clock
        self.n_removed_unread = 0
        self.total_bytes = 0
        self._begun_s = 0.0
        self._sizes: dict[int, int] = {}
        self._closed_s: dict[int, float] = {}
        self._done_since: dict[int, float] = {}  # segments that every reader has read
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._file = self._durable_file = -1
        try:
            self._acquire()
            self._name()
            with writing(folder):
                self._durable_file = os.open(folder / "durable", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                following = self._recover()
                for segment in segments(folder):
                    found = segment_path(folder, segment).stat()
                    self._sizes[segment], self._closed_s[segment] = found.st_size, found.st_mtime
                self.total_bytes = sum(self._sizes.values())
                self._end = Place(following, HEADER_BYTES, following)
                with _suppress_full():  # if the disk is full, `append` begins
                    self._begin(following)
        except BaseException:
            self._release()
            raise

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 200, 0).decode(errors="replace")
            raise StateError(
                "E0951",
                f"another spool writes into `{self.folder}`: {holder}",
                "end it, or give each spool a folder of its own",
            ) from None
        os.truncate(self._lock, 0)
        with suppress(OSError):  # the disk is full; the lock is held without its text
            os.pwrite(self._lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _name(self) -> None:
        """Give the spool an identity if it has none."""
        if (self.folder / "spool.json").exists():
            identity(self.folder)
            return
        if segments(self.folder):
            raise StateError(
                "E0952",
                f"`{self.folder}` has segments and no `spool.json`",
                "restore the file, or name an empty folder",
            )
        with writing(self.folder):
            about = json.dumps({"version": VERSION, "id": uuid4().hex})
            write_whole(self.folder / "spool.json", about, is_durable=True)

    # ------------------------------------------------------------ after a crash

    def _recover(self) -> int:
        """Truncate what was not written completely; return the number of the next message."""
        found, told = segments(self.folder), durable(self.folder)
        # A number is never used again, even if somebody has removed segments.
        told_number = 0 if told is None else told.number
        if not found:
            return told_number
        last = found[-1]
        path = segment_path(self.folder, last)
        sure = told.n_bytes if told is not None and told.segment == last else 0
        end, following = self._sound_end(path, last, sure)
        if end < sure > HEADER_BYTES:
            raise StateError(
                "E0952",
                f"`{path}` is damaged at byte {end:,}; messages after it were acknowledged",
                "restore the segment from a copy; what comes after the damage can be read by no pipeline",
            )
        if end <= HEADER_BYTES:  # nothing was written into it
            path.unlink()
            return max(last, told_number)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size > end:
                os.ftruncate(descriptor, end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return max(following, told_number)

    @staticmethod
    def _sound_end(path: Path, segment: int, sure: int) -> tuple[int, int]:
        size = path.stat().st_size
        if size < HEADER_BYTES:
            return 0, segment
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if sure > HEADER_BYTES or data[:HEADER_BYTES].strip(b"\0"):
                check_header(data[:HEADER_BYTES], segment, path.name)
                return sound_end(data, segment, size)
        return 0, segment

    # ------------------------------------------------------------ writing

    @property
    def n_segments(self) -> int:
        """The number of segments, including the open one."""
        return len(self._sizes)

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return self._end.number

    def append(self, batches: Sequence[ReceivedBatch]) -> None:
        """Write messages; they are on disk when it returns.

        Raises OSError: the disk has no room for the messages. None of them was written. Raises
        DiskFailedError: the disk failed: it is unknown whether they were written, and this writer writes
        nothing more.
        """
        if self._file < 0:
            self._begin(self._end.number)
        elif self._end.n_bytes > HEADER_BYTES and self._is_over():
            self.roll()
        end = self._end
        try:
            for batch in cut(joined(batches)):
                block = block_of(batch, end.segment, end.number)
                _write_all(self._file, block)
                end = Place(end.segment, end.n_bytes + len(block), end.number + len(batch))
        except OSError as error:
            self._cut_off(error)
            raise
        try:
            os.fdatasync(self._file)
        except OSError as error:
            # The fate of pages that the system could not write is unknown: never try again.
            with suppress(OSError, DiskFailedError):
                self._cut_off(error)
            raise DiskFailedError(str(error)) from error
        try:
            self._publish(end)
        except OSError as error:  # some file systems need room even for this
            self._cut_off(error)
            raise

    def roll(self) -> None:
        """Close the open segment and start the next one. Raises OSError."""
        before, segment = self._file, self._end.segment
        self._begin(self._end.number)
        os.close(before)
        self._closed_s[segment] = self.clock()

    def close(self) -> None:
        """Release the folder."""
        self._release()

    def _is_over(self) -> bool:
        is_old = self.clock() - self._begun_s >= self.limits.segment_seconds
        return is_old or self._end.n_bytes >= self.limits.segment_bytes

    def _begin(self, following: int) -> None:
        path = segment_path(self.folder, following)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o666)
        try:
            _write_all(descriptor, segment_header(following))
            os.fsync(descriptor)
            sync_folder(self.folder)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        try:
            self._publish(Place(following, HEADER_BYTES, following))
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._file = descriptor
        self._begun_s = self.clock()

    def _publish(self, end: Place) -> None:
        """Show readers what is on disk up to `end`."""
        os.pwrite(self._durable_file, durable_bytes(end), 0)
        self._end = end
        self.total_bytes += end.n_bytes - self._sizes.get(end.segment, 0)
        self._sizes[end.segment] = end.n_bytes

    def _cut_off(self, error: OSError) -> None:
        """Remove what was written after the end."""
        try:
            os.ftruncate(self._file, self._end.n_bytes)
        except OSError:
            raise DiskFailedError(str(error)) from error

    def _release(self) -> None:
        for descriptor in (self._file, self._durable_file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._durable_file = self._lock = -1

    # ------------------------------------------------------------ removing

    def tend(self) -> None:
        """Start a new segment if the open one is old; remove segments no longer needed. Raises OSError."""
        if self._end.n_bytes > HEADER_BYTES and self._is_over():
            self.roll()
        now = self.clock()
        with readers_locked(self.folder):
            needed = self._needed()
            for segment, following in self._closed():
                if (
                    following <= needed
                    and now - self._done_since.setdefault(segment, now) >= self.limits.keep_seconds
                ):
                    self._remove(segment)
            after = self.limits.remove_after_seconds
            for segment, following in self._closed():
                if after is not None and now - self._closed_s[segment] >= after:
                    self._remove_unread(segment, following, needed)

    def remove_oldest(self) -> bool:
        """Remove the oldest closed segment, read or not; return whether there was one. Raises OSError."""
        with readers_locked(self.folder):
            for segment, following in self._closed():
                self._remove_unread(segment, following, self._needed())
                return True
        return False

    def places(self) -> dict[str, int]:
        """Return, for each reader, the number of the message that it reads next."""
        return {name: place.number for name, place in readers(self.folder).items()}

    def _needed(self) -> int:
        """Return the number of the first message that somebody must still read."""
        known = self.places()
        if not known or not set(self.limits.wanted) <= known.keys():
            return -1
        return min(known.values())

    def _closed(self) -> list[tuple[int, int]]:
        """Return the closed segments in order, each with the number of the message after it."""
        found = sorted(self._sizes)
        return list(pairwise(found if self._file >= 0 else [*found, self._end.number]))

    def _remove_unread(self, segment: int, following: int, needed: int) -> None:
        self._remove(segment)
        self.n_removed_unread += following - max(segment, min(needed, following))

    def _remove(self, segment: int) -> None:
        segment_path(self.folder, segment).unlink(missing_ok=True)
        self.total_bytes -= self._sizes.pop(segment)
        self._closed_s.pop(segment, None)
        self._done_since.pop(segment, None)


@contextmanager
def _suppress_full() -> Iterator[None]:
    """Ignore the OSError of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def writer_at(folder: Path, limits: Limits, clock: Callable[[], float]) -> SegmentWriter:
    """Return the writer of a folder; raises StateError and InputError."""
    if folder.exists() and not folder.is_dir():
        raise InputError("E0950", f"`{folder}` is a file", "name a folder, or one that is not there yet")
    return SegmentWriter(folder, limits, clock)
