"""The changes of views: for which keys a version of a table may change the row, and when.

    changes = Changes(program).of(rows, held)

A version of a table with the key of the view may change the row of its own key. A version of any other table
may change the rows that are joined with it. The keys of these rows are found in the table of FROM, as it was
before the due versions, and in these versions: all rows that had the value at some time are read. So an event
may belong to a row that does not change. Such an event is not taken, because the row equals the previous one.
Each key has one event for each instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.engine.order.ordering import key_values
from cep.engine.prepare.columns import whole
from cep.program.program import TIME_COLUMN, Program, bits_column
from cep.program.tables import VERSION_COLUMN
from cep.program.views import CHANGE_US


class Changes:
    """Computes the changes of a program of views."""

    def __init__(self, program: Program) -> None:
        self.program = program
        joins = program.joins
        self._base = [
            number for number, joined in enumerate(joins.tables) if joined.table.name == program.stream.name
        ]
        """The table in FROM; with a RIGHT JOIN, a view may read nothing of it."""
        columns = [
            {column.column for column in joins.columns if column.table == number}
            for number in range(len(joins.tables))
        ]
        self._searched = [
            number
            for number, joined in enumerate(joins.tables)
            if joined.is_co_partitioned and columns[number].issuperset(joined.key)
        ]
        """The tables whose rows make rows of the view: all of their key is kept, to be searched."""
        by_name = {column.name: column.column for column in joins.columns}
        self._by_rows: dict[int, list[tuple[str, ...]]] = {}
        """Table -> the ways in which it is joined: columns of the table in FROM, in the order of its key."""
        for column in joins.columns:
            joined = joins.tables[column.table]
            if not joined.is_co_partitioned and not joined.table.is_static and not column.is_before:
                way = tuple(by_name.get(name, name) for name in column.keys)
                ways = self._by_rows.setdefault(column.table, [])
                if way not in ways:
                    ways.append(way)

    def of(self, rows: pa.Table, held: Callable[[int], pa.Table]) -> pa.Table:
        """Return the changes as prepared events, one for each key and instant, in no order.

        `rows`: due versions, prepared (`Program.event_schema`). `held`: returns the rows kept of a table
        before, given its number: its columns, including the key. It takes time for each row, so it is only
        called if a table with a different key has changed.
        """
        numbers = np.abs(np.asarray(whole(rows.column(VERSION_COLUMN)))) - 1
        found = [
            _renamed(rows.filter(pa.array(np.isin(numbers, self._with_key))), self._own),
            *self._of_other_tables(rows, numbers, held),
        ]
        names = [*self.program.key_columns, TIME_COLUMN]
        table = pa.concat_tables([part.select(names) for part in found])
        table = table.group_by(names, use_threads=False).aggregate([]).combine_chunks()
        return self._events(table)

    @property
    def _with_key(self) -> list[int]:
        return [at for at, joined in enumerate(self.program.joins.tables) if joined.is_co_partitioned]

    @property
    def _own(self) -> Mapping[str, str]:
        return {name: name for name in (*self.program.key_columns, TIME_COLUMN)}

    def _of_other_tables(
        self,
        rows: pa.Table,
        numbers: I64,
        held: Callable[[int], pa.Table],
    ) -> Iterator[pa.Table]:
        """Yield the changes of rows by tables whose key is not that of the view."""
        changed = [number for number in self._by_rows if (numbers == number).any()]
        if not changed:
            return
        known: dict[int, tuple[pa.Table, pa.Table]] = {}  # table -> its due versions, the kept rows
        for number in changed:
            versions = rows.filter(pa.array(numbers == number))
            keys = key_values(versions, self.program.joins.tables[number].key_columns)
            times_us = np.asarray(whole(versions.column(TIME_COLUMN)))
            for way in self._by_rows[number]:
                # A row without a row of the table in FROM is joined by the key of the view, if at all.
                is_of_key = set(way) <= set(self.program.key_columns)
                for searched in self._searched if is_of_key else self._base:
                    if searched not in known:
                        known[searched] = (rows.filter(pa.array(numbers == searched)), held(searched))
                    yield self._joined(self._rows_of(searched, way, *known[searched]), way, keys, times_us)

    def _rows_of(self, number: int, way: tuple[str, ...], due: pa.Table, kept: pa.Table) -> pa.Table:
        """Return the key of the view and the columns `way` of all rows of a table, due and kept."""
        joined, key = self.program.joins.tables[number], self.program.key_columns
        in_kept = dict(zip(key, joined.key, strict=True))
        in_due = dict(joined.values) | dict(zip(key, key, strict=True))
        columns = dict.fromkeys((*key, *way))
        return pa.concat_tables(
            [
                _renamed(due, {name: in_due[name] for name in columns}),
                _renamed(kept, {name: in_kept.get(name, name) for name in columns}),
            ]
        )

    def _joined(
        self,
        rows: pa.Table,
        way: tuple[str, ...],
        keys: pa.Array,
        times_us: I64,
    ) -> pa.Table:
        """Return the keys of `rows`, with each time at which a joined row has a version."""
        known = keys.unique()
        codes = np.asarray(pc.index_in(keys, value_set=known)).astype(np.int64)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(known)))
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        of_rows = pc.index_in(key_values(rows.combine_chunks(), way), value_set=known)
        is_joined = np.asarray(pc.is_valid(of_rows))
        of_rows = np.asarray(of_rows.drop_null()).astype(np.int64)
        n_times = (ends - starts)[of_rows]
        places = np.repeat(np.flatnonzero(is_joined), n_times)
        first = np.repeat(starts[of_rows] - (np.cumsum(n_times) - n_times), n_times)
        times = times_us[order][first + np.arange(len(first))]
        found = rows.select(list(self.program.key_columns)).take(pa.array(places))
        return found.append_column(TIME_COLUMN, pa.array(times, pa.int64()))

    def _events(self, keys: pa.Table) -> pa.Table:
        """Return keys and times as prepared events for which every predicate may hold."""
        n = keys.num_rows
        own = {bits_column(word) for word in range(len(self.program.predicates))}
        columns = []
        for field in self.program.event_schema:
            if field.name in keys.column_names:
                column = whole(keys.column(field.name))
            elif field.name == CHANGE_US:
                column = whole(keys.column(TIME_COLUMN))
            elif field.name in own:
                column = pa.array(np.full(n, -1, np.int64))
            elif field.name == VERSION_COLUMN:
                column = pa.array(np.zeros(n, np.int64))
            else:
                column = pa.nulls(n, field.type)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.program.event_schema)


def _renamed(table: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """Return columns of a table under other names: `columns` has new -> old."""
    return pa.table({name: table.column(old) for name, old in columns.items()})
