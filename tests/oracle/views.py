"""What a view reports, by looking at all rows of all tables at each instant.

Nothing of the engine is in here: tables are dicts, and a row of the view is what Python makes of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cep.schema.stream import Stream
from cep.schema.table_rows import DELETES

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A table of a JOIN: by which columns of the table in FROM, in the order of its key.

    `kind` is the word before JOIN. The columns are those of the view, if they are its key: never NULL.
    """

    table: str
    columns: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A view. `where` and `select` are given the rows by table; a row that is not there is empty.

    A column that `select` returns is NULL if what it needs is.
    """

    base: str
    key: tuple[str, ...]
    joins: tuple[Joined, ...]
    where: Callable[[Mapping[str, Row]], bool]
    select: Callable[[Mapping[str, Row]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the output: what the row of `key` is from a time on, or what it was until then."""

    at_us: int
    key: Key
    is_there: bool
    values: tuple[Any, ...]


def changes(view: View, tables: Mapping[str, tuple[Stream, Sequence[Row]]]) -> list[Change]:
    """Return all changes of a view, by time and key; the versions of a table are in order of arrival."""
    times = {row[table.event_time] for table, rows in tables.values() if not table.is_static for row in rows}
    found: list[Change] = []
    before: dict[Key, tuple[Any, ...]] = {}
    for at_us in sorted(times):
        states = {name: _state(table, rows, at_us) for name, (table, rows) in tables.items()}
        now = _rows(view, states)
        found += [
            Change(at_us, key, key in now, now.get(key, before.get(key, ())))
            for key in sorted({*before, *now})
            if now.get(key) != before.get(key)
        ]
        before = now
    return found


def _state(table: Stream, rows: Sequence[Row], at_us: int) -> dict[Key, Row]:
    """Return the rows of a table at a time, by key."""
    assert table.table is not None
    settings = table.table
    valid = [row for row in rows if table.is_static or row[table.event_time] <= at_us]
    if not table.is_static:
        ties = table.tie_break

        def place(row: Row) -> tuple[Any, ...]:
            return (row[table.event_time], *((row[name] is not None, row[name] or 0) for name in ties))

        valid.sort(key=place)  # and of those that agree the last to arrive
    found: dict[Key, Row] = {}
    for row in valid:
        key = tuple(row[name] for name in settings.key)
        found.pop(key, None)
        if settings.op is None or str(row[settings.op]).lower() not in DELETES:
            found[key] = row
    return found


def _rows(view: View, states: Mapping[str, Mapping[Key, Row]]) -> dict[Key, tuple[Any, ...]]:
    """Return the rows that are there: SQL's joins, one after the other."""
    found: dict[Key, dict[str, Row]] = {
        tuple(row[name] for name in view.key): {view.base: row} for row in states[view.base].values()
    }
    for join in view.joins:
        of_table = states[join.table]
        joined: dict[Key, dict[str, Row]] = {}
        for key, rows in found.items():
            of_view = dict(zip(view.key, key, strict=True))
            asked = tuple(of_view.get(name, rows[view.base].get(name)) for name in join.columns)
            if asked in of_table or join.kind in ("LEFT", "FULL"):
                joined[key] = rows | {join.table: of_table.get(asked, {})}
        if join.kind in ("RIGHT", "FULL"):
            of_none: dict[str, Row] = {name: {} for name in (view.base, *(of.table for of in view.joins))}
            for asked, row in of_table.items():
                named = dict(zip(join.columns, asked, strict=True))
                joined.setdefault(tuple(named[name] for name in view.key), of_none | {join.table: row})
        found = joined
    return {key: view.select(rows) for key, rows in found.items() if view.where(rows)}
