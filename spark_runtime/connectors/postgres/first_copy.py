"""The rows that are there: read from their tables, and as a stream's first copy kept in files.

A first copy is a moment of the tables: that at which the slot was made. What was committed before is in
the copy, what was committed later is in the log, nothing is in both. A server gives such a moment only once,
and a micro-batch may be repeated. So the copy is written into files in the checkpoint before anything is
read.

Executors import this module: it imports nothing of the compiler.
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
"""Rows of one file, at most."""

FILE_BYTES = 8 << 20
"""Bytes of one file before it is compressed, about."""


class CopyFile(NamedTuple):
    """A file of a first copy: its rows and its bytes before it is compressed."""

    n_rows: int
    n_bytes: int


class CopyStoppedError(Exception):
    """The run ends before the copy is complete."""


def statement(reading: PostgresReading, connection: Any) -> Any:
    """Return the query for all rows as CSV: the number of the table, then its columns.

    Rows come in the order of their event time if that is a column of theirs: then none of them is late.
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
    # What is in quotes is a value, however empty; what is not is NULL.
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(query)


def portions(
    reading: PostgresReading, connection: Any, most_rows: int, stopped: threading.Event
) -> Iterator[tuple[int, bytes]]:
    """Yield all rows as CSV, some at a time, each time with their number.

    Raises
    ------
    CopyStoppedError
        `stopped` was set.
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
    """Write the rows of a snapshot into files; return these, and when it was, microseconds since 1970."""
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
    """Return the rows of a file of the copy as texts."""
    with pa.input_stream(reading.copy_file(number), compression="zstd") as source:
        return as_texts(reading, source.read())


def read_tables(reading: PostgresReading, connection: Any) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield all rows as they are now, as texts: the LSN of the log, the time, the rows."""
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
    """Return rows of CSV as texts: the number of the table, then its columns."""
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
    """Let what was written outlive the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
