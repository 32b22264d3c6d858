"""Plans what a stream reads from tables: first their rows, then the log. On the driver.

An offset of the source contains the number of files of the first copy that were read, and the place reached
in the log: ``{"copy": 3, "lsn": 26935080}``. If the source has no file of its own in the checkpoint, the
offset also describes the publication (`publication.Record`).
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import InputError
from spark_runtime.connectors.postgres import first_copy, publication, server
from spark_runtime.connectors.postgres.reading import (
    COPY,
    MOST_MESSAGES,
    CopyRange,
    LogRange,
    PostgresReading,
)
from spark_runtime.storage.checkpoint_files import damaged, is_there
from spark_runtime.storage.sealed import read_sealed_path, sealed

LOOK_SECONDS = 0.1
"""Seconds between two checks of the log."""

_ROW_BYTES = 100  # a guess if the log does not tell

_PUBLISHED = "published"

Offset = Mapping[str, Any]


class PostgresPlanner:
    """Plans micro-batches; see `Planner`. `clock`: returns seconds since a fixed moment."""

    def __init__(self, reading: PostgresReading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self.clock = clock
        self._kept: Any = None  # the connection
        self._begun: dict[str, Any] | None = None
        self._limit: int | None = None  # input after it is ignored
        self._committed: Offset | None = None  # its micro-batch may still be repeated
        self._released: Offset | None = None  # input before it is not read again
        self._looked_at: int | None = None  # end of the log when it had nothing new
        self._next_look = float("-inf")
        self._sizes: dict[int, int] = {}  # bytes of the log before the end of a micro-batch
        self._lag: tuple[int, int] | None = None
        self._stopped = threading.Event()
        self._is_copying = False

    # ------------------------------------------------------------ the start

    def start(self) -> dict[str, Any]:
        """Return the offset at which the stream starts, which is stored in the checkpoint."""
        begun = self._beginning
        return {"copy": 0, "lsn": begun["lsn"], **self._kept_in_offset(begun[_PUBLISHED])}

    def _kept_in_offset(self, published: publication.Record) -> dict[str, Any]:
        return {} if self.reading.log else {_PUBLISHED: published}

    @property
    def _beginning(self) -> dict[str, Any]:
        if self._begun is None:
            log = Path(self.reading.log) if self.reading.log else None
            if log is not None and is_there(log):
                begun = read_beginning(log)
                with server.meant(self.reading, "its name"):
                    server.require_database(self.reading, self._connection(), begun["database"])
                if begun[_PUBLISHED] is None:  # an earlier version did not record it
                    with server.meant(self.reading, "its publication"):
                        begun[_PUBLISHED] = publication.record(self.reading, self._connection())
                    _write(log, begun)
                self._begun = begun
            else:
                self._begun = self._begin(log)
        return self._begun

    def _begin(self, log: Path | None) -> dict[str, Any]:
        reading, connection = self.reading, self._connection()
        making = None if log is None else log.with_name(f"{log.name}.making")
        with server.meant(reading, f"slot `{reading.slot}`"):
            if making is not None and is_there(making) and server.slot_of(reading, connection) is not None:
                # A run that ended here created it, and read nothing.
                server.drop_slot(reading, connection)
            found = server.slot_of(reading, connection)
            if found is not None and reading.creates and log is not None:
                raise InputError(
                    "E0864",
                    f"slot `{reading.slot}` is there, and this checkpoint has not made it",
                    f"SELECT pg_drop_replication_slot('{reading.slot}'); if it was made for this pipeline, "
                    "say create: false and from: now, which begins where it stands",
                )
            files: list[first_copy.CopyFile] = []
            moment_us = 0
            if found is not None:
                lsn = found.confirmed
            else:
                if making is not None:
                    making.parent.mkdir(parents=True, exist_ok=True)
                    making.touch()
                publication.create(reading, connection)
            # Before the slot is created, so that later changes are noticed.
            published = publication.record(reading, connection)
            if found is None:
                with _MadeSlot(reading) as (lsn, snapshot):
                    if reading.begin == COPY:
                        files, moment_us = self._copied(connection, snapshot)
            begun = {
                "database": server.identity(connection),
                "lsn": lsn,
                "moment_us": moment_us,
                "files": [list(file) for file in files],
                _PUBLISHED: published,
            }
        if log is not None and making is not None:
            _write(log, begun)
            making.unlink(missing_ok=True)
        return begun

    def _copied(self, connection: Any, snapshot: str) -> tuple[list[first_copy.CopyFile], int]:
        self._is_copying = True
        try:
            return first_copy.write(self.reading, connection, snapshot, self._stopped)
        except first_copy.CopyStoppedError:
            connection.close()  # `close` leaves it open
            raise
        finally:
            self._is_copying = False

    # ------------------------------------------------------------ offsets

    def latest(self, start: Offset) -> dict[str, Any]:
        """Return the end of the micro-batch that starts at `start`.

        Raises StateError: the publication has changed (E0868).
        """
        published = start.get(_PUBLISHED) or self._beginning[_PUBLISHED]
        self._release(published)
        files = self._beginning["files"]
        if start["copy"] < len(files):
            return {**start, "copy": self._next_file(start["copy"])}
        end = self._next_lsn(start, published)
        if end is None:
            return dict(start)
        return {"copy": start["copy"], "lsn": end, **self._kept_in_offset(published)}

    def stop_at_now(self) -> None:
        """Ignore everything after the current end of the log."""
        self.start()
        self._limit = self._slot().flushed

    def ranges(self, start: Offset, end: Offset) -> list[tuple[int, CopyRange | LogRange]]:
        """Return the ranges between two offsets, with sizes in bytes."""
        begun = self._beginning
        found: list[tuple[int, CopyRange | LogRange]] = []
        first_row = 1
        for number, (n_rows, n_bytes) in enumerate(begun["files"]):
            if start["copy"] <= number < end["copy"]:
                part = CopyRange("copy", number, first_row, begun["lsn"], begun["moment_us"])
                found.append((n_bytes, part))
            first_row += n_rows
        if end["lsn"] > start["lsn"]:
            size = self._sizes.get(end["lsn"], _ROW_BYTES)
            found.append((size, LogRange("log", start["lsn"], end["lsn"])))
        return found

    def commit(self, end: Offset) -> None:
        """Record that the output of everything before `end` is written.

        Spark records this a moment later. If it dies before that, it repeats the micro-batch. So the slot
        releases the log before `end` only when the next micro-batch is planned.
        """
        self._committed = end

    def close(self, counts: Counts) -> None:
        """Close the connection. The run may be stopped while another thread is copying."""
        self._stopped.set()
        if self._kept is not None and not self._is_copying:
            self._kept.close()
            self._kept = None

    def __del__(self) -> None:
        # A run that fails does not close its planners.
        if self._kept is not None:
            self._kept.close()

    def _release(self, published: publication.Record) -> None:
        if self._committed is None:
            return
        end, self._committed = self._committed, None
        begun = self._beginning
        before = 0 if self._released is None else self._released["copy"]
        for number in range(before, end["copy"]):
            Path(self.reading.copy_file(number)).unlink(missing_ok=True)
        if end["copy"] >= len(begun["files"]) > 0 and self.reading.log:
            shutil.rmtree(self.reading.copy_folder, ignore_errors=True)
        if self._slot().confirmed < end["lsn"]:
            self._require_same(published)
            with server.meant(self.reading, f"slot `{self.reading.slot}`"):
                server.advance(self.reading, self._connection(), end["lsn"])
        self._released = end

    # ------------------------------------------------------------ the present input

    def _connection(self) -> Any:
        if self._kept is None or self._kept.closed:
            self._kept = self.reading.connect()
        return self._kept

    def _require_same(self, published: publication.Record) -> None:
        """Raise StateError if the publication changed before the end of the log."""
        with server.meant(self.reading, f"publication `{self.reading.publication}`"):
            publication.require_same(self.reading, self._connection(), published)

    def _slot(self) -> server.Slot:
        """Return the state of the slot; raise an error if it is not the slot of the checkpoint."""
        with server.meant(self.reading, f"slot `{self.reading.slot}`"):
            found = server.slot_of(self.reading, self._connection())
        if found is None:
            raise server.lost(self.reading, "it is not there any more")
        server.require_slot(self.reading, found)
        kept = found.flushed if found.kept is None else found.kept
        self._lag = (found.flushed - found.confirmed, found.flushed - kept)
        return found

    def status(self) -> str:
        """Return how much of the log is unread, and how much of it the slot keeps on disk."""
        if self._lag is None:
            return ""
        behind, kept = self._lag
        return f"slot {self.reading.slot} is {behind:,} bytes behind and keeps {kept:,} bytes of the log"

    def _next_file(self, number: int) -> int:
        """Return the file after those of a micro-batch that starts with file `number`."""
        n_rows = n_bytes = 0
        for at, (rows, size) in enumerate(self._beginning["files"][number:], number):
            n_rows, n_bytes = n_rows + rows, n_bytes + size
            if at > number and self._is_too_much(n_rows, n_bytes):
                return at
        return len(self._beginning["files"])

    def _is_too_much(self, n_events: int, n_bytes: int) -> bool:
        most_events, most_bytes = self.reading.max_events, self.reading.max_bytes
        return (most_events is not None and n_events > most_events) or (
            most_bytes is not None and n_bytes > most_bytes
        )

    def _next_lsn(self, start: Offset, published: publication.Record) -> int | None:
        """Return the end of the last transaction of a micro-batch; None if nothing new was committed."""
        if self._limit is None and self.clock() < self._next_look:
            return None
        slot = self._slot()
        self._next_look = self.clock() + LOOK_SECONDS
        server.require_unread(self.reading, slot, start["lsn"])
        if slot.flushed == self._looked_at:
            return None
        limit = slot.flushed if self._limit is None else self._limit
        end, is_all = self._last_of_portion(start["lsn"], limit)
        self._require_same(published)  # after what is planned or skipped
        if end is None and is_all:
            self._looked_at = slot.flushed
            self._pass_over(start, slot)
        return end

    def _last_of_portion(self, start: int, limit: int) -> tuple[int | None, bool]:
        """Return the end of the next micro-batch, and whether the log was examined to its end."""
        # A transaction of one change has three messages, or four.
        most = 4 * self.reading.max_events if self.reading.max_events else MOST_MESSAGES
        while True:
            with server.meant(self.reading, f"slot `{self.reading.slot}`"):
                found, is_all = server.commits(self.reading, self._connection(), most)
            n_events = n_bytes = 0
            end = None
            for commit in found:
                if commit.end <= start or commit.n_changes == 0 or commit.end > limit:
                    continue
                n_events, n_bytes = n_events + commit.n_changes, n_bytes + commit.n_bytes
                if end is not None and self._is_too_much(n_events, n_bytes):
                    break
                end = commit.end
                self._sizes = {end: n_bytes}
            if end is not None or is_all:
                return end, is_all
            most *= 4  # the slot still contains what was read before

    def _pass_over(self, start: Offset, slot: server.Slot) -> None:
        """Make the slot release the log of other tables, although nothing was read.

        It does so up to the last checkpoint of the server. A record starts there, so all transactions before
        it have been examined.
        """
        log = self.reading.log
        # Unfinished plans may have to be read again.
        is_done = start["lsn"] <= (self._released or self.start())["lsn"]
        if log and is_done and slot.checkpoint > slot.confirmed:
            # Recorded first: a slot that is further was read by another reader.
            _write(Path(self.reading.passed_over), slot.checkpoint)
            with server.meant(self.reading, f"slot `{self.reading.slot}`"):
                server.advance(self.reading, self._connection(), slot.checkpoint)


class _MadeSlot:
    """A new slot: its start, and a snapshot of the tables there, which lives as long as this object."""

    def __init__(self, reading: PostgresReading) -> None:
        self.reading = reading

    def __enter__(self) -> tuple[int, str]:
        from psycopg import sql

        # Only a replication connection can export the snapshot.
        self._connection = self.reading.connect(replication="database")
        name = sql.Identifier(self.reading.slot).as_string(self._connection)
        row = self._connection.execute(
            f"CREATE_REPLICATION_SLOT {name} LOGICAL {server.PLUGIN} EXPORT_SNAPSHOT"
        ).fetchone()
        high, low = row[1].split("/")
        return (int(high, 16) << 32) + int(low, 16), row[2]

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def read_beginning(log: Path) -> dict[str, Any]:
    """Return where a stream started, and its publication; None for the latter if an earlier version wrote it.

    Raises StateError: the file is damaged (E0702).
    """

    def parsed(text: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(text)
        begun = {name: found[name] for name in ("database", "lsn", "moment_us", "files")}
        return {**begun, _PUBLISHED: found.get(_PUBLISHED)}

    return read_sealed_path(log, parsed, damaged(log))


def _write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(sealed(json.dumps(value)))
    first_copy.onto_disk(unfinished)
    unfinished.replace(file)
    first_copy.onto_disk(file.parent)
