"""The current rows of tables: read by a batch, or stored in files as the first copy of a stream.

A first copy shows the tables at the moment at which the slot was created. Earlier commits are in the copy,
later ones are in the log, and no commit is in both. A server exports this moment only once, but a micro-batch
may be repeated. So the copy is written to files in the checkpoint before anything is read.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from spark_runtime.connectors.postgres.publication import published_tables
from spark_runtime.connectors.postgres.reading import PostgresReading
from spark_runtime.connectors.postgres.server import meant, table_of

FILE_ROWS = 50_000
"""Maximum number of rows in a file."""

FILE_BYTES = 8 << 20
"""Approximate number of bytes in a file before compression."""


class CopyFile(NamedTuple):
    """A file of a first copy: the number of its rows, and of its bytes before compression."""

    n_rows: int
    n_bytes: int


class CopyStoppedError(Exception):
    """The run ends before the copy is complete."""


def statement(reading: PostgresReading, connection: Any) -> Any:
    """Return the query for all rows as CSV: the number of the table, then its columns.

    Rows are sorted by their event time if that is one of their columns, so that none of them is late.
    """
    from psycopg import sql

    published = published_tables(reading, connection) if reading.publication else {}
    of_row = reading.of_row
    parts = []
    for number, name in enumerate(reading.tables):
        table = table_of(reading, connection, name)
        columns = sql.SQL(", ").join(map(sql.Identifier, of_row.values()))
        place = sql.Identifier(*name.split(".", 1))
        only = sql.SQL("" if table.is_partitioned else "ONLY ")
        condition = published[name].condition if name in published else None
        where = sql.SQL(f" WHERE {condition}" if condition else "")
        parts.append(
            sql.SQL("SELECT {} AS cep_table, {} FROM {}{}{}").format(number, columns, only, place, where)
        )
    query = sql.SQL(" UNION ALL ").join(parts)
    if reading.stream.event_time in of_row:
        place_of_time = 2 + list(of_row).index(reading.stream.event_time)
        query += sql.SQL(" ORDER BY {} NULLS FIRST").format(place_of_time)
    # A quoted text is a value, even if it is empty; an empty text without quotes is NULL.
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(query)


def portions(
    reading: PostgresReading, connection: Any, most_rows: int, stopped: threading.Event
) -> Iterator[tuple[int, bytes]]:
    """Yield portions of all rows as CSV, each with the number of its rows.

    Raises CopyStoppedError: `stopped` was set.
    """
    rows: list[bytes] = []
    n_bytes = 0
    with connection.cursor() as cursor, cursor.copy(statement(reading, connection)) as copy:
        for row in copy:
            rows.append(bytes(row))
            n_bytes += len(row)
            if len(rows) >= most_rows or n_bytes >= FILE_BYTES:
                if stopped.is_set():
                    raise CopyStoppedError
                yield len(rows), b"".join(rows)
                rows, n_bytes = [], 0
    if rows:
        yield len(rows), b"".join(rows)


def write(
    reading: PostgresReading, connection: Any, snapshot: str, stopped: threading.Event
) -> tuple[list[CopyFile], int]:
    """Write the rows of a snapshot to files; return the files, and the snapshot's time in microseconds
    since 1970.
    """
    folder = Path(reading.copy_folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    most_rows = min(FILE_ROWS, reading.max_events or FILE_ROWS)
    with meant(reading, "its tables"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute("SET TRANSACTION SNAPSHOT '" + snapshot.replace("'", "''") + "'")
        moment_us = _now_us(connection)
        found: list[CopyFile] = []
        for n_rows, content in portions(reading, connection, most_rows, stopped):
            file = Path(reading.copy_file(len(found)))
            with pa.output_stream(file, compression="zstd") as output:
                output.write(content)
            onto_disk(file)
            found.append(CopyFile(n_rows, len(content)))
        connection.execute("COMMIT")
    onto_disk(folder)
    return found, moment_us


def read_file(reading: PostgresReading, number: int) -> pa.RecordBatch:
    """Return the rows of a file of the copy as strings."""
    with pa.input_stream(reading.copy_file(number), compression="zstd") as source:
        return as_texts(reading, source.read())


def read_tables(reading: PostgresReading, connection: Any) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield all current rows as strings: the LSN of the log, the time, the rows."""
    with meant(reading, "its tables"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [(lsn,)] = connection.execute(
            "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_lsn() - '0/0')::bigint END"
        ).fetchall()
        moment_us = _now_us(connection)
        for _, content in portions(reading, connection, FILE_ROWS, threading.Event()):
            yield lsn, moment_us, as_texts(reading, content)
        connection.execute("COMMIT")


def as_texts(reading: PostgresReading, content: bytes) -> pa.RecordBatch:
    """Return CSV rows as strings: the number of the table, then its columns."""
    names = [str(number) for number in range(1 + len(reading.of_row))]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(len(content), 1)
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    columns = [table.column(name).combine_chunks() for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _now_us(connection: Any) -> int:
    [(moment_us,)] = connection.execute("SELECT (extract(epoch FROM now()) * 1000000)::bigint").fetchall()
    return int(moment_us)


def onto_disk(path: Path) -> None:
    """Flush a file or folder to the disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
