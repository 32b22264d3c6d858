"""Writes a PostgreSQL table: each micro-batch is one transaction with its number. Only for the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cep.errors import InputError
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.statements import LEDGER, Target, takes
from spark_runtime.sinks.json_rows import nested_texts
from spark_runtime.sinks.protocol import Collected, Guarantee, Mark, MicroBatch, Output

_CHECK_MS = 3_000
"""Milliseconds that a statement may wait before anything runs."""

_LOCK_MS = 60_000
"""Milliseconds for which another transaction may lock the table while the stream runs."""

_MAX_NAME = 63
"""Most bytes of a name in PostgreSQL."""

_NO_INDEX, _LOCKED, _CANCELLED, _NO_SCHEMA = "42P10", "55P03", "57014", "3F000"


@dataclass(slots=True)
class PostgresSink:
    """A table; see `TableSink`."""

    output: Output
    connection: Connection
    target: Target
    _client: Any = field(default=None, repr=False)  # psycopg.Connection
    _types: dict[str, str] = field(default_factory=dict)  # of the existing columns
    _has_index: bool = False  # whether the table has an index on the key
    _has_plan: bool = True  # whether the ledger has a column for plans

    guarantee = Guarantee.EXACTLY_ONCE

    def check(self) -> None:
        """Create the table and the ledger if they are missing; try a write without rows and roll it back."""
        self._require_names()
        with self._connected(_CHECK_MS) as client:
            client.execute(f"SET LOCAL statement_timeout = {_CHECK_MS}")
            # Two pipelines that start together must not both create a table.
            client.execute("SELECT pg_advisory_xact_lock(hashtext('spark-cep'))")
            if not self._exists(LEDGER):
                client.execute(self.target.make_ledger())
            self._has_plan = self._extended()
            if not self._exists(self.target.name):
                for statement in self.target.make():
                    client.execute(statement)
            client.commit()
            self._types = self._columns()
            self._has_index = bool(self.target.key) and self._try(has_index=True)
            if not self._has_index:
                if self.target.is_current:
                    names = ", ".join(part.as_string(client) for part in self.target.key)
                    raise InputError(
                        "E0870",
                        f"table `{self.target.shown}` has no unique index on {names}",
                        f"CREATE UNIQUE INDEX ON {self.target.shown} ({names})",
                    )
                self._try(has_index=False)

    def last(self, run: str) -> Mark | None:
        """Return the micro-batch that the ledger records."""
        with self._connected(_CHECK_MS):
            return self._noted(run)

    def begin(self, batch: MicroBatch) -> None:
        """Roll back an interrupted micro-batch."""
        from psycopg import Error

        if self._client is not None:
            try:
                self._client.rollback()
                self._client.execute("SELECT")
                self._client.rollback()
            except Error:  # the server was restarted, so reconnect
                with suppress(Error):
                    self.close()
        self._open(_LOCK_MS)

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Write the rows to the table in a transaction; without rows, open none."""
        if not rows.n_rows:
            return
        with self._said():
            if batch.run is not None:
                noted = self._client.execute(*self._raising(batch))
                if not noted.rowcount:
                    there = self._noted(batch.run)
                    self._client.rollback()
                    assert there is not None
                    assert there.is_of(batch)
                    return
            self._put(rows.tables, has_index=self._has_index)

    def commit(self, batch: MicroBatch) -> None:
        """Commit the transaction, with the number of the micro-batch in it."""
        with self._said():
            self._client.commit()

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # ------------------------------------------------------------ the ledger

    @property
    def _ledger_name(self) -> str:
        return f"{self.output.kind} in {self.target.name}"

    def _raising(self, batch: MicroBatch) -> tuple[Any, dict[str, Any]]:
        """Return the statement that records a micro-batch, and its values."""
        values = {"run": batch.run, "output": self._ledger_name, "batch": batch.number, "plan": batch.plan}
        return self.target.raise_ledger(has_plan=self._has_plan), values

    def _noted(self, run: str) -> Mark | None:
        """Return the ledger's record of a stream."""
        said = self.target.noted(has_plan=self._has_plan)
        found = self._client.execute(said, (run, self._ledger_name)).fetchone()
        return None if found is None else Mark(f"table `{self.target.shown}`", *found)

    def _extended(self) -> bool:
        """Add the column of plans to a ledger of an earlier version; return whether the ledger has one."""
        import psycopg

        place = self.target.ledger.as_string(self._client)
        said = "SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'plan'"
        if self._client.execute(said, (place,)).fetchone() is None:
            try:
                with self._client.transaction():  # a savepoint
                    self._client.execute(self.target.extend_ledger())
            except psycopg.Error:  # another user's, or in use: record only numbers
                return False
        return True

    # ------------------------------------------------------------ rows

    def _put(self, rows: Callable[[], Iterator[pa.Table]], *, has_index: bool) -> None:
        """Write rows to the table; `rows` may be called again to get them again."""
        from psycopg.errors import UniqueViolation

        if not has_index:
            self._copy(rows(), is_staged=False)
            return
        if not self.target.is_corrected:
            # Usually no row exists yet, and a staging table would double the cost.
            with suppress(UniqueViolation), self._client.transaction():  # a savepoint
                self._copy(rows(), is_staged=False)
                return
        self._merge(rows())

    def _merge(self, tables: Iterator[pa.Table]) -> None:
        """Write rows that may already exist to the table, through a staging table."""
        self._client.execute(self.target.stage(self._types))
        self._copy(tables, is_staged=True)
        for statement in self.target.merge():
            self._client.execute(statement)

    def _copy(self, tables: Iterator[pa.Table], *, is_staged: bool) -> None:
        with self._client.cursor() as cursor, cursor.copy(self.target.copy(is_staged=is_staged)) as copy:
            for table in tables:
                for part in csv_parts(table):
                    copy.write(part)

    # ------------------------------------------------------------ before anything runs

    def _require_names(self) -> None:
        for name in (*self.target.types, self.target.name):
            if len(name.encode()) > _MAX_NAME:
                raise InputError(
                    "E0870",
                    f"`{name}` is too long for a name in PostgreSQL, which has at most {_MAX_NAME} bytes",
                    "rename the measure or the table",
                )

    def _exists(self, name: str) -> bool:
        place = Target(self.target.schema, name, self.output, False).place.as_string(self._client)
        (found,) = self._client.execute("SELECT to_regclass(%s)", (place,)).fetchone()
        return found is not None

    def _columns(self) -> dict[str, str]:
        """Return the types of the existing columns; raise InputError if they do not fit."""
        place = self.target.place.as_string(self._client)
        rows = self._client.execute(
            "SELECT attname, format_type(atttypid, NULL), format_type(atttypid, atttypmod), "
            "attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (place,),
        ).fetchall()
        there = {name: full for name, _, full, _ in rows}
        plain = {name: kind for name, kind, _, _ in rows}
        for name, _, _, needs_value in rows:
            if needs_value and name not in self.target.types:
                raise InputError(
                    "E0870",
                    f"table `{self.target.shown}` has a column `{name}` that must have a value, "
                    "and gets none",
                    "give the column a default, or name another table",
                )
        for name, ours in self.target.types.items():
            if name not in there:
                raise InputError(
                    "E0870",
                    f"table `{self.target.shown}` has no column `{name}`",
                    f'ALTER TABLE {self.target.shown} ADD COLUMN "{name}" {ours}; or name another table',
                )
            if not (takes(there[name], ours) or (ours == "text" and takes(plain[name], ours))):
                raise InputError(
                    "E0870",
                    f"column `{name}` of table `{self.target.shown}` is of type {there[name]}, "
                    f"its values are of type {ours}",
                    "change the type of the column, or name another table",
                )
        return there

    def _try(self, *, has_index: bool) -> bool:
        """Try a write without rows, and roll it back; return whether the table has the needed index."""
        from psycopg import errors

        try:
            self._client.execute(*self._raising(MicroBatch("", 0)))
            self._copy(iter(()), is_staged=False)
            if has_index:
                self._merge(iter(()))
        except errors.InvalidColumnReference:
            return False
        finally:
            with suppress(Exception):
                self._client.rollback()
        return has_index

    # ------------------------------------------------------------ the connection

    def _open(self, lock_ms: int) -> None:
        if self._client is None:
            session = {"timezone": "UTC", "lock_timeout": str(lock_ms)}
            self._client = self.connection.connect(session, autocommit=False)

    @contextmanager
    def _connected(self, lock_ms: int) -> Iterator[Any]:
        """Yield a connection, which is closed at the end of the block."""
        self._open(lock_ms)
        try:
            with self._said():
                yield self._client
        finally:
            self.close()

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turn an error of PostgreSQL into one that a user can act on."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                self.close()
            doing = f"table `{self.target.shown}`"
            if error.sqlstate in (_LOCKED, _CANCELLED):
                raise InputError(
                    "E0871",
                    f"another transaction locks {doing} of `{self.connection.address}`",
                    "end it; one run at a time works on a checkpoint",
                ) from error
            if error.sqlstate == _NO_SCHEMA:
                schema = self.target.schema
                raise InputError(
                    "E0870",
                    f"database `{self.connection.address}` has no schema `{schema}`"
                    if schema
                    else f"no schema of the search path exists in `{self.connection.address}`",
                    f'CREATE SCHEMA "{schema}"; or name another table'
                    if schema
                    else "write table: SCHEMA.NAME",
                ) from error
            if (error.sqlstate or "").startswith(("22", "23", "42")) and error.sqlstate != "42501":
                raise InputError(
                    "E0870",
                    f"{doing} does not take the rows: {self.connection.shown(error)}",
                    "change the table, or name another one",
                ) from error
            raise self.connection.failure(error, doing) from error


NOT_STORED, INSTEAD = "\x00", "�"
"""The only character that PostgreSQL does not store, and its replacement."""

_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_WITHOUT_HEADER = pyarrow.csv.WriteOptions(include_header=False)
_ROWS = 50_000


def csv_parts(table: pa.Table) -> Iterator[memoryview]:
    """Yield the rows of a table as CSV, some at a time."""
    for start in range(0, table.num_rows, _ROWS):
        part = table.slice(start, _ROWS)
        texts = pa.table([_plain(column) for column in part.columns], names=part.column_names)
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(texts, sink, _WITHOUT_HEADER)
        yield memoryview(sink.getvalue())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type whose CSV PostgreSQL reads."""
    kind = column.type
    if pa.types.is_string(kind):
        if pc.any(pc.match_substring(column, NOT_STORED)).as_py():
            return pc.replace_substring(column, NOT_STORED, INSTEAD)
        return column
    if pa.types.is_nested(kind):
        texts = (None if text is None else _storable(text) for text in nested_texts(column))
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_binary(kind):
        values = column.to_pylist()
        return pa.chunked_array([pa.array([None if v is None else f"\\x{v.hex()}" for v in values])])
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz="UTC"))
    return column


def _storable(text: str) -> str:
    """Return JSON without the character that is not stored; a backslash may precede its escape."""
    return _ESCAPED.sub(rf"\1{INSTEAD}", text) if "\\u0000" in text else text
