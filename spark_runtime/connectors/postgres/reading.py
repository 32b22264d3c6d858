"""How tables are read: the settings for the driver and the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cep.schema.stream import Stream
from spark_runtime.connectors.postgres.connection import Connection

COPY, NOW = "copy", "now"
"""Where a stream starts: with the present rows, or with changes from now on."""

BEFORE = "before."
OP, COMMIT_TIME, LSN, TABLE, TRANSACTION, NUMBER = (
    *("op", "commit_time", "lsn", "table"),
    *("transaction", "number"),
)
METADATA = (OP, COMMIT_TIME, LSN, TABLE, TRANSACTION, NUMBER)
"""What may be a column in addition to those of the row; also `BEFORE` and the name of a column."""

MOST_MESSAGES = 500_000
"""Messages of a micro-batch if the pipeline sets no limit: the server keeps them in its own files."""

SESSION = {
    # The text of values depends on these settings, which may differ by user.
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


class LogRange(NamedTuple):
    """The transactions committed at or after `start` and before `end`; both are LSNs."""

    kind: str  # "log"
    start: int
    end: int


class CopyRange(NamedTuple):
    """A file of the first copy: its number, and the number of its first row."""

    kind: str  # "copy"
    number: int
    first_row: int
    lsn: int
    moment_us: int


class TableRange(NamedTuple):
    """All rows at the time when a batch reads them."""

    kind: str  # "table"


@dataclass(frozen=True, slots=True)
class PostgresReading:
    """How the rows of tables, and their changes, become events of `stream`.

    - `tables`: schema and name of each table.
    - `slot`, `publication`: the names of slot and publication; empty in a batch, which reads no changes.
    - `begin`: `COPY` or `NOW`.
    - `creates`: whether missing slots and publications are created.
    - `keys`: keys of the rules: an event with a NULL in each of them is a dead letter.
    - `columns`: the values in addition to those of the row (`METADATA`), by the name of the column.
    - `max_events`, `max_bytes`: limits of a micro-batch: changes, and bytes of messages. A transaction is not
      split.
    - `nulls_unchanged`: whether a value that the log omits is NULL. Otherwise its change is a dead letter.
    - `log`: the file in which a stream records where it started.
    """

    stream: Stream
    connection: Connection
    tables: tuple[str, ...]
    slot: str = ""
    publication: str = ""
    begin: str = COPY
    creates: bool = True
    keys: tuple[tuple[str, ...], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    max_events: int | None = None
    max_bytes: int | None = None
    nulls_unchanged: bool = False
    log: str = ""

    def connect(self, **more: Any) -> Any:
        """Return a connection that formats values as the reader of rows expects; raises InputError."""
        return self.connection.connect(SESSION, **more)

    @property
    def of_row(self) -> dict[str, str]:
        """The columns of the stream that are columns of the tables: name in the stream -> in the tables."""
        estimated = {self.stream.event_time} if self.stream.device_clock is not None else set()
        return {
            field.name: field.column
            for field in self.stream.fields
            if field.name not in self.columns and field.name not in estimated
        }

    @property
    def of_old_row(self) -> dict[str, str]:
        """The columns of the stream that are columns of rows before a change."""
        return {
            name: what.removeprefix(BEFORE) for name, what in self.columns.items() if what.startswith(BEFORE)
        }

    @property
    def key_of_table(self) -> tuple[str, ...]:
        """The columns that distinguish the rows of a table whose rows can be deleted; empty for a stream."""
        table, of_row = self.stream.table, self.of_row
        if table is None or table.op is None:
            return ()
        return tuple(of_row[name] for name in table.key if name in of_row)

    @property
    def passed_over(self) -> str:
        """The file with the LSN up to which the slot has released changes of other tables."""
        return f"{self.log}.passed_over"

    @property
    def copy_folder(self) -> str:
        """The folder of the files of the first copy."""
        return f"{self.log}.copy"

    def copy_file(self, number: int) -> str:
        """Return the name of a file of the first copy."""
        return f"{self.copy_folder}/{number:06}.csv.zst"


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
