"""Versions of tables in the form that the engine reads: rows of `Program.event_schema`, among the events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.prepare.columns import nulls, plain, zeros
from cep.program.program import COUNTED_COLUMN, STREAM_COLUMN, TIME_COLUMN, Program
from cep.program.tables import VERSION_COLUMN
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Stream
from cep.schema.table_rows import deleted


def columns_of_versions(program: Program) -> dict[str, Callable[[int], pa.Array]]:
    """Return, by name, functions that create the n values that events have in the columns of versions."""
    if not program.joins.takes_versions:
        return {}
    makers: dict[str, Callable[[int], pa.Array]] = {
        name: partial(nulls, kind=ARROW_TYPES[kind]) for name, kind in program.joins.version_types.items()
    }
    return makers | {VERSION_COLUMN: zeros}


def prepare_versions(program: Program, number: int, rows: pa.Table) -> pa.Table:
    """Return versions of a table as rows of `program.event_schema`.

    `program`: the compiled rules; they join the table. `number`: the index of the table in
    `program.joins.tables`; a table may occur more than once. `rows`: versions from a reader of the table: the
    columns of the table in the types of `ARROW_TYPES`, event time and key never NULL.
    """
    joined = program.joins.tables[number]
    table = joined.table
    assert not table.is_static, "a static table has no time"
    n = rows.num_rows
    sources = {prepared: name for name, prepared in joined.values}
    sources |= dict(zip(joined.key_columns, joined.key, strict=True))
    signs = np.where(deleted(rows, table), np.int64(-1), np.int64(1))
    own = {
        TIME_COLUMN: lambda: rows.column(table.event_time),
        VERSION_COLUMN: lambda: pa.array(signs * np.int64(number + 1)),
        STREAM_COLUMN: lambda: zeros(n),
        COUNTED_COLUMN: lambda: pa.array(np.ones(n, np.bool_)),
    }
    columns = []
    for field in program.event_schema:
        if field.name in sources:
            column = plain(rows.column(sources[field.name]))
        elif field.name in own:
            column = own[field.name]()
        elif field.nullable:
            column = nulls(n, field.type)
        else:
            column = zeros(n)  # no predicate holds
        columns.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.Table.from_arrays(columns, schema=program.event_schema)


def extent_rows(program: Program, stream: Stream, first_us: int | None, latest_us: int) -> pa.Table:
    """Return rows of `program.event_schema` that say which stretch of time the input is known to cover.

    They are versions without a key: a deletion gives the time of an event of the rules' streams, any other a
    time that the input has reached. So they wait, are late and are stored in snapshots like all rows.

    `program`: it has windows without events (`Program.has_silent_windows`). `stream`: the stream of the
    events, or a table. `first_us` and `latest_us`: the times of the earliest and the latest of them; None:
    the earliest is unknown.
    """
    told = [(latest_us, 1)]
    if stream in program.streams and first_us is not None:
        told.append((first_us, -1))
    own = {
        TIME_COLUMN: [time_us for time_us, _ in told],
        VERSION_COLUMN: [sign for _, sign in told],
        STREAM_COLUMN: [0] * len(told),
        COUNTED_COLUMN: [True] * len(told),
    }
    columns = [
        pa.array(own[field.name], field.type)
        if field.name in own
        else pa.nulls(len(told), field.type)
        if field.nullable
        else pa.array([0] * len(told), field.type)
        for field in program.event_schema
    ]
    return pa.Table.from_arrays(columns, schema=program.event_schema)


def extents(program: Program, stream: Stream, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the `extent_rows` of typed events of `stream`, or versions of a table, if they are needed."""
    if program.has_silent_windows and rows.num_rows and not stream.is_static:
        yield extent_rows(program, stream, *extent(stream, rows))


def extent(stream: Stream, rows: pa.Table) -> tuple[int, int]:
    """Return the earliest and the latest time of typed events or versions, at least one."""
    times = pc.min_max(plain(rows.column(stream.event_time)).cast(pa.int64()))
    return times["min"].as_py(), times["max"].as_py()


def prepared_versions(program: Program, table: Stream, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield what `prepare_versions` returns, once for each time that the program joins `table`."""
    for number, joined in enumerate(program.joins.tables):
        if joined.table == table and not table.is_static:
            yield prepare_versions(program, number, rows)


def is_event(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which prepared rows are events; the others are versions."""
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.asarray(rows.column(VERSION_COLUMN)) == 0
    return found


def parted(program: Program, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
    """Return the events among prepared rows, and the versions. A table of only one kind is not copied."""
    events: list[pa.Table] = []
    versions: list[pa.Table] = []
    for rows in tables:
        are_events = is_event(rows) if program.joins.takes_versions else None
        if are_events is None or are_events.all():
            events.append(rows)
        elif not are_events.any():
            versions.append(rows)
        else:
            events.append(rows.filter(pa.array(are_events)))
            versions.append(rows.filter(pa.array(~are_events)))
    return events, versions


def until(
    time_us: int, tables: Sequence[pa.Table], names: Sequence[str]
) -> tuple[pa.Table | None, pa.Table | None]:
    """Return two tables, the prepared rows up to a time and those after it; None: there are none.

    Parameters
    ----------
    names
        The columns of the due rows that are needed. Each column is copied where there are several tables.
    """
    due: list[pa.Table] = []
    waiting: list[pa.Table] = []
    for rows in tables:
        is_due = np.asarray(rows.column(TIME_COLUMN)) <= time_us
        if is_due.any():
            due.append((rows if is_due.all() else rows.filter(pa.array(is_due))).select(names))
        if not is_due.all():
            waiting.append(rows.filter(pa.array(~is_due)) if is_due.any() else rows)
    return _joined(due), _joined(waiting)


def _joined(tables: Sequence[pa.Table]) -> pa.Table | None:
    if len(tables) > 1:
        return pa.concat_tables(tables).combine_chunks()
    return tables[0] if tables else None
