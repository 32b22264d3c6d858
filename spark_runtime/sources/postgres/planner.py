"""Plans what a stream reads of tables: first their rows, then the log. On the driver.

An offset of the source says how many files of the first copy were read, and up to where the log was:
``{"copy": 3, "lsn": 26935080}``.
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
from cep.errors import InputError, StateError
from spark_runtime.sources.postgres import first_copy, server
from spark_runtime.sources.postgres.reading import (
    COPY,
    MOST_MESSAGES,
    CopyRange,
    LogRange,
    PostgresReading,
)

LOOK_SECONDS = 0.1
"""The log is looked at so often."""

_ROW_BYTES = 100  # a guess where the log has not told

Offset = Mapping[str, int]


class PostgresPlanner:
    """Plans micro-batches; see `Planner`.

    Parameters
    ----------
    reading
        How tables are read.
    clock
        Seconds, from anywhere on.
    """

    def __init__(self, reading: PostgresReading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self.clock = clock
        self._kept: Any = None  # the connection
        self._begun: dict[str, Any] | None = None
        self._limit: int | None = None  # nothing behind it is offered
        self._committed: Offset | None = None  # its micro-batch may still be repeated
        self._released: Offset | None = None  # what lies before is not read again
        self._looked_at: int | None = None  # where the log was when it was found to have nothing more
        self._next_look = float("-inf")
        self._sizes: dict[int, int] = {}  # bytes of the log before the end of a micro-batch
        self._lag: tuple[int, int] | None = None
        self._stopped = threading.Event()
        self._is_copying = False

    # ------------------------------------------------------------ the beginning

    def start(self) -> dict[str, int]:
        """Return where the stream begins; after its first start a file in the checkpoint says it."""
        return {"copy": 0, "lsn": self._beginning["lsn"]}

    @property
    def _beginning(self) -> dict[str, Any]:
        if self._begun is None:
            log = Path(self.reading.log) if self.reading.log else None
            if log is not None and log.exists():
                self._begun = _read(log)
                self._require_same_server()
            else:
                self._begun = self._begin(log)
        return self._begun

    def _begin(self, log: Path | None) -> dict[str, Any]:
        reading, connection = self.reading, self._connection()
        making = None if log is None else log.with_name(f"{log.name}.making")
        with server.meant(reading, f"slot `{reading.slot}`"):
            if making is not None and making.exists() and server.slot_of(reading, connection) is not None:
                # A run that ended here has made it, and has read nothing.
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
                server.create_publication(reading, connection)
                with _MadeSlot(reading) as (lsn, snapshot):
                    if reading.begin == COPY:
                        files, moment_us = self._copied(connection, snapshot)
            begun = {
                "database": server.identity(connection),
                "lsn": lsn,
                "moment_us": moment_us,
                "files": [list(file) for file in files],
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
            connection.close()  # `close` has left it to us
            raise
        finally:
            self._is_copying = False

    def _require_same_server(self) -> None:
        assert self._begun is not None
        with server.meant(self.reading, "its name"):
            found = server.identity(self._connection())
        if found != self._begun["database"]:
            raise StateError(
                "E0865",
                f"`{self.reading.connection.address}` is not the database that this checkpoint has read",
                "name that one, or start with an empty checkpoint directory",
            )

    # ------------------------------------------------------------ offsets

    def latest(self, start: Offset) -> dict[str, int]:
        """Return where the micro-batch that starts at `start` ends."""
        self._release()
        files = self._beginning["files"]
        if start["copy"] < len(files):
            return {"copy": self._next_file(start["copy"]), "lsn": start["lsn"]}
        end = self._next_lsn(start)
        return dict(start) if end is None else {"copy": start["copy"], "lsn": end}

    def stop_at_now(self) -> None:
        """Look at the end of the log for the last time."""
        self.start()
        self._limit = self._slot().flushed

    def ranges(self, start: Offset, end: Offset) -> list[tuple[int, CopyRange | LogRange]]:
        """Return what lies between two offsets, with sizes in bytes."""
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
        """Note that the output of what lies before `end` is written.

        Spark writes this down a moment later. If it dies before, it repeats the micro-batch. So the slot
        forgets what lies before `end` only when the next micro-batch is planned.
        """
        self._committed = end

    def close(self, counts: Counts) -> None:
        """Let go of the connection. The run may be stopped while another thread copies."""
        self._stopped.set()
        if self._kept is not None and not self._is_copying:
            self._kept.close()
            self._kept = None

    def __del__(self) -> None:
        # A run that fails does not close its planners.
        if self._kept is not None:
            self._kept.close()

    def _release(self) -> None:
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
            with server.meant(self.reading, f"slot `{self.reading.slot}`"):
                server.advance(self.reading, self._connection(), end["lsn"])
        self._released = end

    # ------------------------------------------------------------ what is there

    def _connection(self) -> Any:
        if self._kept is None or self._kept.closed:
            self._kept = self.reading.connect()
        return self._kept

    def _slot(self) -> server.Slot:
        """Return the state of the slot; raises an error if it is not what it was."""
        with server.meant(self.reading, f"slot `{self.reading.slot}`"):
            found = server.slot_of(self.reading, self._connection())
        if found is None:
            raise server.lost(self.reading, "it is not there any more")
        server.require_slot(self.reading, found)
        kept = found.flushed if found.kept is None else found.kept
        self._lag = (found.flushed - found.confirmed, found.flushed - kept)
        return found

    def status(self) -> str:
        """Return how much of the log was not read, and how much of it the slot keeps on disk."""
        if self._lag is None:
            return ""
        behind, kept = self._lag
        return f"slot {self.reading.slot} is {behind:,} bytes behind and keeps {kept:,} bytes of the log"

    def _next_file(self, number: int) -> int:
        """Return the file behind those of a micro-batch that begins with file `number`."""
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

    def _next_lsn(self, start: Offset) -> int | None:
        """Return the end of the last transaction of a micro-batch, None: nothing new was committed."""
        if self._limit is None and self.clock() < self._next_look:
            return None
        slot = self._slot()
        self._next_look = self.clock() + LOOK_SECONDS
        server.require_unread(self.reading, slot, start["lsn"])
        if slot.flushed == self._looked_at:
            return None
        limit = slot.flushed if self._limit is None else self._limit
        end, is_all = self._last_of_portion(start["lsn"], limit)
        if end is None and is_all:
            self._looked_at = slot.flushed
            self._pass_over(start, slot)
        return end

    def _last_of_portion(self, start: int, limit: int) -> tuple[int | None, bool]:
        """Return where the next micro-batch ends, and whether the log has been seen to its end."""
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
            most *= 4  # what was read before is still in the slot

    def _pass_over(self, start: Offset, slot: server.Slot) -> None:
        """Let the slot forget what it keeps of other tables, though nothing was read.

        Up to the last checkpoint of the server: that is where a record begins, so all transactions before it
        have been seen.
        """
        log = self.reading.log
        # What was planned and is not done may have to be read again.
        is_done = start["lsn"] <= (self._released or self.start())["lsn"]
        if log and is_done and slot.checkpoint > slot.confirmed:
            # Written down before: a slot that is further than that was read by somebody else.
            _write(Path(self.reading.passed_over), slot.checkpoint)
            with server.meant(self.reading, f"slot `{self.reading.slot}`"):
                server.advance(self.reading, self._connection(), slot.checkpoint)


class _MadeSlot:
    """A new slot: where it begins, and a snapshot of the tables there, which lasts as long as this."""

    def __init__(self, reading: PostgresReading) -> None:
        self.reading = reading

    def __enter__(self) -> tuple[int, str]:
        from psycopg import sql

        # Only a connection for replication can have the snapshot.
        self._connection = self.reading.connect(replication="database")
        name = sql.Identifier(self.reading.slot).as_string(self._connection)
        row = self._connection.execute(
            f"CREATE_REPLICATION_SLOT {name} LOGICAL {server.PLUGIN} EXPORT_SNAPSHOT"
        ).fetchone()
        high, low = row[1].split("/")
        return (int(high, 16) << 32) + int(low, 16), row[2]

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _read(log: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(log.read_text())
        return {name: found[name] for name in ("database", "lsn", "moment_us", "files")}
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(
            "E0702",
            f"`{log}`, where the stream began, is damaged",
            "restore the checkpoint directory, or start with an empty one",
        ) from error


def _write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(json.dumps(value))
    first_copy.onto_disk(unfinished)
    unfinished.replace(file)
    first_copy.onto_disk(file.parent)
