"""A table of a SQLite file: a sink. The number of the micro-batch stands in the transaction with its rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from cep.settings.settings import Settings
from spark_runtime.sinks.protocol import BatchRows, Guarantee, Mark, MicroBatch, Output
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext


class _SqliteType:
    """The settings: the path of the file."""

    settings = ("path",)
    kinds = ALL_KINDS

    def spec(self, settings: Settings) -> SqliteSpec | None:
        """Return the spec."""
        path = settings.path("path")
        return None if path is None else SqliteSpec(path)


@dataclass(frozen=True, slots=True)
class SqliteSpec:
    """A file with tables."""

    path: str

    def open(self, output: Output, context: SinkContext) -> SqliteSink:
        """Return the sink."""
        return SqliteSink(output, self.path)


@dataclass(frozen=True, slots=True)
class SqliteSink:
    """Rows as JSON in the table `found`, in the transaction that notes their micro-batch."""

    output: Output
    path: str

    guarantee = Guarantee.EXACTLY_ONCE
    wants_rows = True

    def check(self) -> None:
        """Make the tables."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS found (kind, line)")
            database.execute(
                "CREATE TABLE IF NOT EXISTS ledger (kind, run, number, plan, PRIMARY KEY (kind, run, number))"
            )

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream in the ledger."""
        asked = "SELECT number, plan FROM ledger WHERE kind = ? AND run = ? ORDER BY number DESC"
        with closing(sqlite3.connect(self.path)) as database:
            found = database.execute(asked, (self.output.kind, run)).fetchone()
        return None if found is None else Mark(f"file `{self.path}`", *found)

    def begin(self, batch: MicroBatch) -> None:
        """Do nothing: a transaction that was not committed has left nothing."""

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Write the rows, unless the micro-batch is there already."""
        kind = self.output.kind
        last = None if batch.run is None else self.last(batch.run)
        if last is not None and last.is_of(batch):
            return
        lines = [(kind, json.dumps(row.asDict(), default=str)) for row in rows.frame.collect()]
        with closing(sqlite3.connect(self.path)) as database, database:
            noted = (kind, batch.run, batch.number, batch.plan)
            database.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", noted)
            database.executemany("INSERT INTO found VALUES (?, ?)", lines)

    def commit(self, batch: MicroBatch) -> None:
        """Do nothing: the transaction is committed."""

    def close(self) -> None:
        """Do nothing: each transaction had its own connection."""


SQLITE = _SqliteType()
