"""Takes messages from receivers and writes them: one fsync for all that wait, then the acknowledgements."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cep.errors import CepError, InputError
from cep.spool.counts import SpoolCounts
from cep.spool.folder import write_whole
from cep.spool.segments import ReceivedBatch
from cep.spool.writer import DiskFailedError, SegmentWriter
from cep.write_errors import FULL

MAX_GROUP_BYTES = 32 << 20
"""Bytes that are written before one fsync, about."""

_TEND_SECONDS = 1.0
_ROOM_SECONDS = 1.0
"""If the disk was full, writing is tried again after this time."""

_NO_ROOM = "E0616"


class AtLimit(Enum):
    """What happens to messages for which there is no room."""

    REFUSE = "refuse"
    DROP = "drop"
    REMOVE_OLDEST = "remove-oldest"


class Outcome(Enum):
    """What happened to a batch."""

    WRITTEN = "written"
    """It is on disk: acknowledge it."""
    REFUSED = "refused"
    """There is no room now: the sender keeps it."""
    DROPPED = "dropped"
    """There is no room, and the sender shall go on: acknowledge it. It is counted."""
    FAILED = "failed"
    """The spool ends: the sender keeps it."""


Told = Callable[[Outcome], None]
"""Is called once when it is known what became of a batch; in another thread, mostly."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much a spool may store.

    `max_bytes`: bytes of all segments together; None: as much as the disk. `max_waiting_bytes`: bytes in
    memory, before they are written. `at_limit`: what happens to messages beyond these limits.
    """

    max_bytes: int | None = None
    max_waiting_bytes: int = 64 << 20
    at_limit: AtLimit = AtLimit.REFUSE


class Intake:
    """Moves messages from receivers to the disk. `offer` may be called by any thread.

    - `clock`: returns seconds since some fixed time.
    - `about`: what the status contains apart from counts, such as the protocol.
    - `show`: receives the status line, at most once a second.
    - `stop`: is called when the spool cannot continue; `error` says why.
    """

    def __init__(
        self,
        writer: SegmentWriter,
        room: Room,
        clock: Callable[[], float],
        *,
        about: dict[str, object] | None = None,
        show: Callable[[str], None] = lambda line: None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.counts = SpoolCounts()
        self.error: CepError | None = None
        self._writer = writer
        self._room = room
        self._clock = clock
        self._about = about or {}
        self._show = show
        self._stop = stop
        self._changed = threading.Condition()
        self._waiting: list[tuple[ReceivedBatch, Told]] = []
        self._waiting_bytes = 0  # including those that are being written
        self._is_writing = self._is_closing = False
        self._room_at = float("-inf")  # when the disk may have room again
        self._full = ""
        self._tended = float("-inf")
        self._thread = threading.Thread(target=self._work, name="spool", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ for receivers

    def offer(
        self, batch: ReceivedBatch, told: Told = lambda outcome: None, *, is_again: bool = False
    ) -> Outcome | None:
        """Take a batch. Return None if `told` will be called later; else what happened to the batch.

        `is_again`: the batch was refused before and has been counted.
        """
        n_bytes = batch.n_bytes
        with self._changed:
            if not is_again:
                self.counts.taken += len(batch)
            if self._is_closing or self.error is not None:
                self.counts.refused += len(batch)
                return Outcome.FAILED
            if not self._has_room(n_bytes):
                return self._without_room(0 if is_again else len(batch))
            self._waiting.append((batch, told))
            self._waiting_bytes += n_bytes
            self._changed.notify_all()
        return None

    def is_full(self) -> str:
        """Return the limit that is reached; "": none."""
        with self._changed:
            return "" if self._has_room(0) else self._full

    def acknowledged(self, n: int) -> None:
        """Record that the senders of `n` messages have received the acknowledgement."""
        with self._changed:
            self.counts.acknowledged += n

    def missed(self, gaps: int = 0, dropped: int = 0) -> None:
        """Record messages that never arrived."""
        with self._changed:
            self.counts.gaps += gaps
            self.counts.dropped += dropped

    def lost(self, refused: int = 0, slow: int = 0, broken: int = 0) -> None:
        """Record connections that were refused, closed because they were slow, or broken."""
        with self._changed:
            self.counts.refused_connections += refused
            self.counts.slow_connections += slow
            self.counts.broken_connections += broken

    def flush(self) -> None:
        """Wait until everything offered is written or has failed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._is_writing)

    def close(self) -> None:
        """Write the waiting messages; accept nothing more."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        with suppress(CepError, OSError):
            self._tell_status(is_running=False)

    # ------------------------------------------------------------ limits

    def _has_room(self, n_bytes: int) -> bool:
        self._full = ""
        room = self._room
        if self._waiting_bytes and self._waiting_bytes + n_bytes > room.max_waiting_bytes:
            self._full = "memory"
        elif self._clock() < self._room_at:
            self._full = "disk full"
        elif room.at_limit is not AtLimit.REMOVE_OLDEST and self._is_over(n_bytes):
            self._full = "max-bytes"
        return not self._full

    def _is_over(self, n_bytes: int) -> bool:
        most = self._room.max_bytes
        return most is not None and self._writer.total_bytes + self._waiting_bytes + n_bytes > most

    def _without_room(self, n: int) -> Outcome:
        if self._room.at_limit is AtLimit.DROP:
            self.counts.dropped += n
            return Outcome.DROPPED
        self.counts.refused += n
        return Outcome.REFUSED

    # ------------------------------------------------------------ the thread that writes

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing, _TEND_SECONDS)
                group = self._next_group()
                if not group and self._is_closing:
                    return
                self._is_writing = bool(group)
            if group:
                self._write(group)
            self._tend()

    def _next_group(self) -> list[tuple[ReceivedBatch, Told]]:
        n_bytes, n = 0, 0
        for batch, _ in self._waiting:
            n_bytes += batch.n_bytes
            n += 1
            if n_bytes >= MAX_GROUP_BYTES:
                break
        group, self._waiting = self._waiting[:n], self._waiting[n:]
        return group

    def _write(self, group: list[tuple[ReceivedBatch, Told]]) -> None:
        outcome = self._written([batch for batch, _ in group])
        n = sum(len(batch) for batch, _ in group)
        with self._changed:
            if outcome is Outcome.WRITTEN:
                self.counts.written += n
            elif outcome is Outcome.DROPPED:
                self.counts.dropped += n
            else:
                self.counts.refused += n
        for _, told in group:
            told(outcome)
        with self._changed:
            self._waiting_bytes -= sum(batch.n_bytes for batch, _ in group)
            self._is_writing = False
            self._changed.notify_all()

    def _written(self, batches: list[ReceivedBatch]) -> Outcome:
        if self.error is not None:
            return Outcome.FAILED
        removes = self._room.at_limit is AtLimit.REMOVE_OLDEST
        try:
            while removes and self._room.max_bytes is not None:
                if self._writer.total_bytes + sum(batch.n_bytes for batch in batches) <= self._room.max_bytes:
                    break
                if not self._writer.remove_oldest():
                    break
            while True:
                try:
                    self._writer.append(batches)
                    self._room_at = float("-inf")
                    return Outcome.WRITTEN
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                    if not (removes and self._writer.remove_oldest()):
                        break
        except (OSError, DiskFailedError, CepError) as error:
            self._fail(error)
            return Outcome.FAILED
        self._room_at = self._clock() + _ROOM_SECONDS
        return Outcome.DROPPED if self._room.at_limit is AtLimit.DROP else Outcome.REFUSED

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, CepError):
            error = InputError(
                "E0958",
                f"the disk of `{self._writer.folder}` failed: {error}",
                "what was acknowledged is kept; check the disk, then start the spool again",
            )
        self.error = error
        self._stop()

    def _tend(self) -> None:
        now = self._clock()
        if now - self._tended < _TEND_SECONDS or self.error is not None:
            return
        self._tended = now
        for step in (self._writer.tend, self._tell_status):
            try:
                step()
            except OSError as error:
                if error.errno not in FULL:
                    self._fail(error)
            except CepError as error:
                if error.code != _NO_ROOM:
                    self._fail(error)

    # ------------------------------------------------------------ outcomes and status

    def line(self) -> str:
        """Return the status line."""
        with self._changed:
            self.counts.removed_unread = self._writer.n_removed_unread
            line = self.counts.line()
            is_full = not self._has_room(0)
            if not is_full and self._clock() < self._room_at + _TEND_SECONDS:  # until it is tried again
                is_full, self._full = True, "disk full"
            return f"{line}; no room: {self._full}" if is_full else line

    def _tell_status(self, *, is_running: bool = True) -> None:
        line = self.line()
        with self._changed:
            counts = self.counts.to_json()
            full = self._full
        following = self._writer.next_number
        behind = {name: following - number for name, number in self._writer.places().items()}
        status = {
            **self._about,
            "is_running": is_running,
            **counts,
            "next_number": following,
            "segments": self._writer.n_segments,
            "bytes": self._writer.total_bytes,
            "limit_reached": full,
            "readers_behind": behind,
        }
        file, text = self._writer.folder / "status.json", json.dumps(status, indent=1) + "\n"
        try:
            write_whole(file, text)
        except InputError as error:
            if error.code != _NO_ROOM:
                raise
            with suppress(FileNotFoundError):
                _overwrite(file, text.encode())
        if is_running:
            self._show(line)


def _overwrite(file: Path, text: bytes) -> None:
    """Write a small file without new room on its disk; raises OSError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)
