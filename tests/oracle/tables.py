"""Columns of joined tables: all versions, for each event (docs/language/semantics/tables.md, "Tables")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cep.compiler import ir
from cep.expression import Column, Joined, walk
from cep.schema.stream import Stream

Event = Mapping[str, Any]

Tables = Mapping[str, tuple[Stream, Sequence[Event]]]
"""By name a table and its versions in order of arrival; the column `op` of a version may be "d"."""


def joined_of(rule: ir.Rule) -> Iterator[Joined]:
    """Yield the joined columns of a rule."""
    for expression in rule.expressions:
        yield from (node for node in walk(expression) if isinstance(node, Joined))


def column_of_table(joined: Joined) -> str:
    """Return the column of an event that has the value of a joined column."""
    return f"#{joined!r}"


def joined_at(joined: Joined, event: Event, time_us: int, tables: Tables) -> Any:
    """Return the value of a joined column for an event at `time_us`."""
    table, versions = tables[joined.table]
    assert table.table is not None
    wanted = [event.get(column.name) for column in joined.keys if isinstance(column, Column)]
    if None in wanted:
        return None
    valid = _row_at(table, versions, dict(zip(table.table.key, wanted, strict=True)), time_us)
    return None if valid is None else valid[joined.column]


def is_there(
    table: Stream, versions: Sequence[Event], key: Mapping[str, Any], start_us: int, end_us: int
) -> bool:
    """Return whether the row of a key was there from a time until before another one."""
    times = [version[table.event_time] for version in versions]
    moments = [start_us, *(time_us for time_us in times if start_us < time_us < end_us)]
    return all(_row_at(table, versions, key, moment) is not None for moment in moments)


def _row_at(table: Stream, versions: Sequence[Event], key: Mapping[str, Any], time_us: int) -> Event | None:
    """Return the version of a key that is valid at a time; None: there is no row."""
    assert table.table is not None
    valid: Event | None = None
    for version in versions:
        if any(version[name] != value for name, value in key.items()):
            continue
        if not table.is_static and version[table.event_time] > time_us:
            continue
        if valid is None or _place(version, table) >= _place(valid, table):
            valid = version
    if valid is None or (table.table.op is not None and valid[table.table.op].lower() in ("d", "delete")):
        return None
    return valid


def _place(version: Event, table: Stream) -> tuple[Any, ...]:
    """Return the place of a version among those of its key: time, then tie breakers, NULL first."""
    ties = (version[name] for name in table.tie_break)
    return (
        0 if table.is_static else version[table.event_time],
        *((True, tie) if tie is not None else (False,) for tie in ties),
    )
