"""Changes of PostgreSQL tables as a source of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.schema.stream import Stream
from spark_runtime.connectors.postgres import first_copy, publication, server
from spark_runtime.connectors.postgres.pgoutput import Decoder, RenamedTableError
from spark_runtime.connectors.postgres.planner import PostgresPlanner, read_beginning
from spark_runtime.connectors.postgres.reading import (
    COPY,
    CopyRange,
    LogRange,
    PostgresReading,
    TableRange,
    lsn_text,
)
from spark_runtime.connectors.postgres.rows import COPIED, MissingColumnError, chunk_of, of_changes, of_copy
from spark_runtime.sources.protocol import Range
from spark_runtime.storage.checkpoint_files import is_there

_TABLE_BYTES = 1  # the size is unknown


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """The rows of tables, and their changes, as events; see `Source`."""

    reading: PostgresReading

    @property
    def stream(self) -> Stream:
        """The stream of its events."""
        return self.reading.stream

    def check(self) -> None:
        """Check the server's tables, publication and slot; raise InputError or StateError."""
        reading = self.reading
        if reading.slot and reading.begin == COPY and not reading.log:
            raise InputError(
                "E0843",
                "`from: copy` keeps the copy in the checkpoint, and only Spark reaches its file system",
                "say from: now, or keep the checkpoint on a disk",
            )
        log = Path(reading.log) if reading.log else None
        begun = read_beginning(log) if log is not None and is_there(log) else None
        connection = reading.connect()
        try:
            server.check(reading, connection, begun)
        finally:
            connection.close()

    def planner(self) -> PostgresPlanner:
        """Return the planner of micro-batches."""
        return PostgresPlanner(self.reading)

    def everything(self) -> list[tuple[int, Range]]:
        """Return ranges of all rows that exist at the time of reading."""
        return [(_TABLE_BYTES, TableRange("table"))]

    def partition(self, part: Range) -> str:
        """Return an empty text: there is only one log."""
        return ""

    def position_text(self, source: str, position: int) -> str:
        """Return table and LSN, ``public.orders@16/B374D848``; for a copy, the number of the row."""
        return f"{source}:{position}" if source.endswith(COPIED) else f"{source}@{lsn_text(position)}"

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the rows of a copy, or the changes of a range of the log."""
        match part[0]:
            case "copy":
                yield self._of_copy(CopyRange(*part), ahead)
            case "log":
                yield from self._of_log(LogRange(*part), ahead)
            case _:
                yield from self._of_tables(ahead)

    @property
    def _origin(self) -> str:
        return ", ".join(self.reading.tables)

    def _of_copy(self, part: CopyRange, ahead: AheadGuard) -> Chunk:
        try:
            copied = first_copy.read_file(self.reading, part.number)
        except FileNotFoundError as error:
            raise InputError(
                "E0865",
                f"`{self.reading.copy_file(part.number)}`, a part of the first copy, is gone",
                "restore the checkpoint directory, or start with an empty one",
            ) from error
        rows = of_copy(self.reading, copied, part.first_row, part.lsn, part.moment_us)
        return chunk_of(self.reading, rows, self._origin + COPIED, ahead)

    def _of_log(self, part: LogRange, ahead: AheadGuard) -> Iterator[Chunk]:
        reading = self.reading
        connection = reading.connect()
        try:
            with server.meant(reading, f"slot `{reading.slot}`"):
                oids = publication.table_oids(reading, connection)
                decoder = Decoder(
                    part.start,
                    part.end,
                    frozenset(reading.tables),
                    frozenset(oids),
                    tuple(dict.fromkeys(reading.of_row.values())),
                    tuple(dict.fromkeys(reading.of_old_row.values())),
                    reading.key_of_table,
                )
                for messages in server.messages(reading, connection, part.end):
                    changes = decoder.decode(messages)
                    if len(changes):
                        yield chunk_of(reading, of_changes(reading, changes), self._origin, ahead)
                slot = server.slot_of(reading, connection)
            if slot is None:
                raise server.lost(reading, "it is not there any more")
            server.require_unread(reading, slot, part.start)  # released changes were not read
        except RenamedTableError as error:
            now, was = oids[error.relation.oid], error.relation.table
            what = f"table `{now}` had the name `{was}` when it was changed"
            raise publication.changed(reading, what) from error
        except MissingColumnError as error:
            name = next(
                name
                for name, column in {**reading.of_row, **reading.of_old_row}.items()
                if column == error.column
            )
            raise server.no_column(error.table, error.column, self.stream.name, name) from error
        finally:
            connection.close()

    def _of_tables(self, ahead: AheadGuard) -> Iterator[Chunk]:
        connection: Any = self.reading.connect()
        try:
            first_row = 1
            for lsn, moment_us, copied in first_copy.read_tables(self.reading, connection):
                rows = of_copy(self.reading, copied, first_row, lsn, moment_us)
                yield chunk_of(self.reading, rows, self._origin + COPIED, ahead)
                first_row += copied.num_rows
        finally:
            connection.close()
