"""Reads tables, the publication, the slot and the log from a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cep.errors import InputError, StateError
from spark_runtime.connectors.postgres import publication
from spark_runtime.connectors.postgres.reading import BEFORE, COPY, PostgresReading, lsn_text

MIN_VERSION = 130_000
PLUGIN = "pgoutput"

BUSY_SECONDS = 20.0
"""How many seconds a slot may remain in use by a dead reader until its server notices."""

_RETRY_SECONDS = 0.1
_IN_USE, _WRONG_STATE, _NO_OBJECT = "55006", "55000", "42704"
_FEW_ROWS, _PORTION_BYTES, _MOST_ROWS = 256, 8 << 20, 50_000


class Slot(NamedTuple):
    """The state of a slot and of the log, as LSNs.

    `confirmed`: earlier commits are no longer sent. `kept`: the log is kept from here on. `checkpoint`: the
    start of a record.
    """

    plugin: str
    is_here: bool  # in this database
    confirmed: int
    kept: int | None
    wal_status: str
    flushed: int
    checkpoint: int


class Commit(NamedTuple):
    """A transaction in the log: the end of its commit, its number of changes, the bytes of its messages."""

    end: int
    n_changes: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, and the part of its old rows that the log contains.

    - `name`: schema and name.
    - `columns`: column -> whether it is generated.
    - `keys`: the columns of its replica identity.
    - `is_partitioned`: whether other tables contain its rows.
    - `is_full`: whether the log contains complete old rows.
    """

    name: str
    columns: Mapping[str, bool]
    keys: frozenset[str]
    is_partitioned: bool
    is_full: bool


def _asked(connection: Any, statement: str, *given: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = connection.execute(statement, given).fetchall()
    return found


@contextmanager
def meant(reading: PostgresReading, doing: str) -> Iterator[None]:
    """Turn psycopg errors into errors for users; `doing` names the failed action."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if reading.slot and error.sqlstate == _WRONG_STATE:
            raise lost(reading, reading.connection.shown(error)) from error
        if reading.slot and error.sqlstate == _NO_OBJECT and "publication" in str(error):
            # Before PostgreSQL 18; later versions skip changes made without it.
            raise publication.changed(reading, f"there is no publication `{reading.publication}`") from error
        if error.sqlstate == _IN_USE:
            raise InputError(
                "E0864",
                f"slot `{reading.slot}` is in use: {reading.connection.shown(error)}",
                "give each pipeline a slot of its own; one run at a time works on a checkpoint",
            ) from error
        raise reading.connection.failure(error, doing) from error


def lost(reading: PostgresReading, why: str) -> StateError:
    """Return the error for changes that can no longer be read."""
    return StateError(
        "E0865",
        f"slot `{reading.slot}` does not have changes any more that were not read: {why}",
        f"SELECT pg_drop_replication_slot('{reading.slot}'), and start with an empty checkpoint directory",
    )


# ---------------------------------------------------------------- before anything runs


def check(reading: PostgresReading, connection: Any, begun: Mapping[str, Any] | None) -> None:
    """Raise InputError if the tables cannot be read, or StateError if something is gone.

    `begun`: where the stream started, from the checkpoint; None if it has not started.
    """
    with meant(reading, "its tables"):
        version = connection.info.server_version
        if version < MIN_VERSION:
            raise InputError(
                "E0863",
                f"`{reading.connection.address}` is PostgreSQL {version // 10_000}",
                f"changes can be read from version {MIN_VERSION // 10_000} on",
            )
        if reading.slot and begun is not None:
            _require_continued(reading, connection, begun)
        tables = {name: table_of(reading, connection, name) for name in reading.tables}
        _require_columns(reading, tables)
        if not reading.slot or (reading.begin == COPY and begun is None):
            for table in tables.values():
                _require_right(reading, connection, table)
    if not reading.slot:
        return
    with meant(reading, f"slot `{reading.slot}`"):
        _require_logical(reading, connection)
        _require_publication(reading, connection, tables)
        found = slot_of(reading, connection)
        if found is not None:
            require_slot(reading, found)
        elif begun is not None:
            raise lost(reading, "it is not there any more")
        elif not reading.creates:
            raise InputError(
                "E0864",
                f"there is no slot `{reading.slot}` at `{reading.connection.address}`",
                "say create: true, or "
                f"SELECT pg_create_logical_replication_slot('{reading.slot}', '{PLUGIN}')",
            )
        else:
            _require_room(reading, connection)


def _require_continued(reading: PostgresReading, connection: Any, begun: Mapping[str, Any]) -> None:
    """Raise an error unless the database, the slot and the publication are those of the checkpoint."""
    slot = slot_of(reading, connection)
    if slot is not None:
        require_slot(reading, slot)
    require_database(reading, connection, begun["database"])
    publication.require_same(reading, connection, begun["published"])


def require_database(reading: PostgresReading, connection: Any, known: str) -> None:
    """Raise StateError unless this is the database of a checkpoint."""
    if identity(connection) != known:
        raise StateError(
            "E0865",
            f"`{reading.connection.address}` is not the database that this checkpoint has read",
            "name that one, or start with an empty checkpoint directory",
        )


def table_of(reading: PostgresReading, connection: Any, name: str) -> Table:
    """Return a table; raise InputError if it does not exist."""
    schema, _, bare = name.partition(".")
    found = _asked(
        connection,
        "SELECT c.oid::bigint, c.relkind::text, c.relreplident::text FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        schema,
        bare,
    )
    if not found:
        raise InputError(
            "E0862",
            f"there is no table `{name}` at `{reading.connection.address}`",
            "create it, or correct its name: schema.name, in the case of the letters that it has",
        )
    [(oid, kind, identity)] = found
    columns = _asked(
        connection,
        "SELECT attname, attgenerated <> '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        oid,
    )
    keys = _asked(
        connection,
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s AND CASE %s WHEN 'd' THEN i.indisprimary "
        "WHEN 'i' THEN i.indisreplident ELSE false END",
        oid,
        identity,
    )
    is_full = identity == "f"
    return Table(
        name,
        dict(columns),
        frozenset(columns_ for (columns_,) in keys) if not is_full else frozenset(dict(columns)),
        kind == "p",
        is_full,
    )


def _require_columns(reading: PostgresReading, tables: Mapping[str, Table]) -> None:
    for table in tables.values():
        for name, column in {**reading.of_row, **reading.of_old_row}.items():
            if column not in table.columns:
                raise no_column(table.name, column, reading.stream.name, name)
        for column in reading.of_old_row.values():
            if not table.is_full and column not in table.keys:
                raise InputError(
                    "E0866",
                    f"the log has no `{BEFORE}{column}`: of old rows of `{table.name}` it has the key only",
                    f"ALTER TABLE {table.name} REPLICA IDENTITY FULL",
                )


def no_column(table: str, column: str, stream: str, name: str) -> InputError:
    """Return the error for a column that a table lacks."""
    return InputError(
        "E0862",
        f"table `{table}` has no column `{column}`, which stream `{stream}` wants as `{name}`",
        "correct the stream's schema, name the column by `path`, or take it from `columns`",
    )


def _require_right(reading: PostgresReading, connection: Any, table: Table) -> None:
    schema, _, bare = table.name.partition(".")
    wanted = list(reading.of_row.values())
    [(may,)] = _asked(
        connection,
        "SELECT has_schema_privilege(n.oid, 'USAGE') AND (has_table_privilege(c.oid, 'SELECT') OR "
        "(SELECT bool_and(has_column_privilege(c.oid, w, 'SELECT')) FROM unnest(%s::text[]) w)) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        wanted,
        schema,
        bare,
    )
    if not may:
        raise InputError(
            "E0861",
            f"`{reading.connection.address}` refuses access to table `{table.name}`",
            f"GRANT SELECT ON {table.name} TO {connection.info.user}",
        )


def _require_logical(reading: PostgresReading, connection: Any) -> None:
    [(level, is_standby, may)] = _asked(
        connection,
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
        "(SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)",
    )
    if level != "logical":
        raise InputError(
            "E0863",
            f"`{reading.connection.address}` has wal_level {level}, so its log has no changes of rows",
            "ALTER SYSTEM SET wal_level = logical, and start the server again",
        )
    if is_standby:
        raise InputError(
            "E0863", f"`{reading.connection.address}` is a standby", "name the primary server in `host`"
        )
    if not may:
        raise InputError(
            "E0861",
            f"`{reading.connection.address}` refuses access to its log: the user may not replicate",
            f"ALTER ROLE {connection.info.user} REPLICATION",
        )


def _require_publication(reading: PostgresReading, connection: Any, tables: Mapping[str, Table]) -> None:
    name = reading.publication
    found = _asked(connection, "SELECT pubupdate OR pubdelete FROM pg_publication WHERE pubname = %s", name)
    if not found and not reading.creates:
        raise InputError(
            "E0862",
            f"there is no publication `{name}` at `{reading.connection.address}`",
            f"{publication.statement(reading)}; or say create: true",
        )
    has_columns = connection.info.server_version >= 150_000
    published = publication.published_tables(reading, connection) if found else {}
    for table in tables.values():
        wanted = {*reading.of_row.values(), *reading.of_old_row.values()}
        if found and table.name not in published:
            raise InputError(
                "E0862",
                f"publication `{name}` does not have table `{table.name}`",
                f"ALTER PUBLICATION {name} ADD TABLE {table.name}"
                + ("; SET (publish_via_partition_root)" if table.is_partitioned else ""),
            )
        there = published[table.name].columns if found and has_columns else None
        if there is None:
            there = frozenset(column for column, is_generated in table.columns.items() if not is_generated)
        missing = sorted(wanted - there)
        if missing:
            raise InputError(
                "E0862",
                f"publication `{name}` does not have column `{missing[0]}` of table `{table.name}`",
                "add it to the columns of the publication; a generated column is not published",
            )
        if not table.keys and not table.is_partitioned and (not found or found[0][0]):
            raise InputError(
                "E0866",
                f"table `{table.name}` has no primary key: once it is published, the server refuses "
                "each UPDATE and DELETE of it",
                f"give it one, or ALTER TABLE {table.name} REPLICA IDENTITY FULL",
            )


def _require_room(reading: PostgresReading, connection: Any) -> None:
    [(n, most)] = _asked(
        connection,
        "SELECT count(*), current_setting('max_replication_slots')::int FROM pg_replication_slots",
    )
    if n >= most:
        raise InputError(
            "E0863",
            f"`{reading.connection.address}` has {n} replication slots, and may have {most}",
            "drop one that nobody reads (SELECT * FROM pg_replication_slots), or raise max_replication_slots",
        )


def require_slot(reading: PostgresReading, slot: Slot) -> None:
    """Raise an error unless the slot is one of ours and still has the log."""
    if slot.plugin != PLUGIN or not slot.is_here:
        what = f"has the plug-in {slot.plugin or 'of physical replication'}, and not {PLUGIN}"
        raise InputError(
            "E0864",
            f"slot `{reading.slot}` {what if slot.plugin != PLUGIN else 'is of another database'}",
            "choose another name for `slot`",
        )
    if slot.wal_status == "lost":
        raise lost(reading, "the server has removed them (wal_status is lost)")


def require_unread(reading: PostgresReading, slot: Slot, start: int) -> None:
    """Raise StateError if the slot has released something that was committed at or after `start`."""
    passed_over = 0
    if reading.log:
        with suppress(FileNotFoundError):
            passed_over = int(Path(reading.passed_over).read_text())
    if slot.confirmed > max(start, passed_over):
        raise lost(reading, f"somebody has read it up to {lsn_text(slot.confirmed)}")


# ---------------------------------------------------------------- the slot


def slot_of(reading: PostgresReading, connection: Any) -> Slot | None:
    """Return the state of the slot, or None if it does not exist."""
    rows = _asked(
        connection,
        "SELECT coalesce(plugin::text, ''), coalesce(database = current_database(), false), "
        "(coalesce(confirmed_flush_lsn, '0/0') - '0/0')::bigint, (restart_lsn - '0/0')::bigint, "
        "coalesce(wal_status, ''), (pg_current_wal_flush_lsn() - '0/0')::bigint, "
        "((pg_control_checkpoint()).checkpoint_lsn - '0/0')::bigint "
        "FROM pg_replication_slots WHERE slot_name = %s",
        reading.slot,
    )
    return Slot(*rows[0]) if rows else None


def drop_slot(reading: PostgresReading, connection: Any) -> None:
    """Drop the slot; its last reader may have died a moment ago."""
    retried(lambda: _asked(connection, "SELECT pg_drop_replication_slot(%s)", reading.slot))


def advance(reading: PostgresReading, connection: Any, lsn: int) -> None:
    """Make the slot release the log before an LSN, which is the start or end of a record."""
    retried(
        lambda: _asked(
            connection, "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", reading.slot, lsn_text(lsn)
        )
    )


def retried(call: Any) -> Any:
    """Return the result of a call that needs the slot exclusively; repeat it while the slot is in use."""
    import psycopg

    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return call()
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


# ---------------------------------------------------------------- the log


def commits(reading: PostgresReading, connection: Any, most_messages: int) -> tuple[list[Commit], bool]:
    """Return the next transactions of the slot, and whether there are no more.

    The first byte of a message is its kind: C ends a transaction, I, U, D and T are changes.
    """
    rows = retried(
        lambda: _asked(
            connection,
            "SELECT max(n), max(encode(substr(data, 11, 8), 'hex')) FILTER (WHERE get_byte(data, 0) = 67), "
            "count(*) FILTER (WHERE get_byte(data, 0) IN (73, 85, 68, 84)), "
            "sum(octet_length(data)), count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, "
            "'proto_version', '1', 'publication_names', %s) WITH ORDINALITY AS c(lsn, xid, data, n) "
            "GROUP BY xid ORDER BY 1",
            reading.slot,
            most_messages,
            publication.quoted(reading.publication),
        )
    )
    found = [Commit(int(end, 16), n, int(n_bytes)) for _, end, n, n_bytes, _ in rows if end is not None]
    return found, sum(row[-1] for row in rows) < most_messages


def messages(reading: PostgresReading, connection: Any, end: int) -> Iterator[list[bytes]]:
    """Yield the slot's messages up to an LSN, some at a time, each after its LSN."""
    from psycopg import sql

    query = sql.SQL(
        "SELECT pg_lsn_send(lsn) || data FROM pg_logical_slot_peek_binary_changes({}, {}::pg_lsn, NULL, "
        "'proto_version', '1', 'publication_names', {})"
    ).format(reading.slot, lsn_text(end), publication.quoted(reading.publication))

    def begun() -> tuple[Any, list[Any]]:
        connection.execute("BEGIN READ ONLY")
        cursor = connection.cursor(name="cep", binary=True)
        try:
            cursor.execute(query)
            return cursor, cursor.fetchmany(_FEW_ROWS)
        except BaseException:
            cursor.close()
            connection.execute("ROLLBACK")
            raise

    cursor, rows = retried(begun)
    try:
        while rows:
            portion = [row[0] for row in rows]
            yield portion
            each = sum(map(len, portion)) // len(portion) + 1
            rows = cursor.fetchmany(max(1, min(_MOST_ROWS, _PORTION_BYTES // each)))
    finally:
        cursor.close()
    connection.execute("COMMIT")


def identity(connection: Any) -> str:
    """Return the identity of this cluster and database."""
    [(system, database)] = _asked(
        connection, "SELECT system_identifier::text, current_database()::text FROM pg_control_system()"
    )
    return f"{system}/{database}"
