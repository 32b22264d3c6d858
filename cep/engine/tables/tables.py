"""The tables of a program: what is kept of their versions, and the columns that events get from them.

    tables = Tables(program)
    tables.take_in(versions)           # the due versions
    events = tables.extend(events, order)   # with joined columns
    tables.fold()                      # the versions are older than all events to come

For each key, the last version before the watermark is kept (`KeptRows`). Versions that are not due yet wait
with the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from cep.arrays import I32, I64, Mask
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.keys.kept_rows import KeptRows
from cep.engine.keys.kernel import DueVersions, find_due, group_versions
from cep.engine.order.ordering import OrderedEvents, key_values, numbered, order_by_time
from cep.engine.prepare.columns import lent, plain, whole
from cep.engine.prepare.predicates import from_arrow
from cep.engine.tables.changes import Changes
from cep.engine.tables.versions import SameNumberError, Sought, Versions, by_ties
from cep.errors import InputError
from cep.expression import Type
from cep.program.program import TIME_COLUMN, Program
from cep.program.tables import VERSION_COLUMN, JoinedColumn, JoinedTable
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Field, Stream
from cep.schema.table_rows import deleted

KEY = "#key"
"""The column of stored rows of a table that has their key."""

_MOST_SEEDS = 64
_NO_CODES, _NO_EVENTS = np.zeros(0, np.int32), np.zeros(0, np.int64)

Values = Callable[[str], pa.Array]
"""Returns the values of a column of a table for n events, NULL where there is no row."""


class GivenTable:
    """All versions of a table, which any number of matchers of one process can look up.

    `rows`: its versions from a reader (the columns of the table in the types of `ARROW_TYPES`), in order of
    arrival. Those of a static table are always valid.
    """

    def __init__(self, table: Stream, rows: pa.Table) -> None:
        self.table = table
        self.rows = rows
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], _Sorted] = {}

    def sorted_by(self, joined: JoinedTable, columns: tuple[str, ...]) -> _Sorted:
        """Return the versions by the key of `joined`, with the given columns of the table."""
        name = (joined.key, columns)
        if name not in self._known:
            rows, table = self.rows, self.table
            times = np.full(rows.num_rows, START_OF_TIME_US)
            if not table.is_static:
                times = np.asarray(rows.column(table.event_time)).astype(np.int64)
            keys = texts_or_numbers(
                key_values(pa.table({key: plain(rows.column(key)) for key in joined.key}), joined.key)
            )
            values = pa.table(
                [_of_type(rows.column(column), table, column) for column in columns], names=list(columns)
            )
            ties = tuple(plain(rows.column(tie)) for tie in table.tie_break)
            found = _Sorted(joined)
            found.set(keys, times, deleted(rows, table), values, ties)
            n_rows = int((~found.versions.last_of_each().is_deleted).sum())
            _check_limit(table, n_rows)
            self._known[name] = found
        return self._known[name]


class _Sorted:
    """Given or due versions."""

    def __init__(self, joined: JoinedTable) -> None:
        self.joined = joined
        self.seed = 0
        self.versions: Versions

    def set(
        self,
        keys: pa.Array,
        times_us: I64,
        is_deleted: np.ndarray[tuple[int], np.dtype[np.bool_]],
        values: pa.Table,
        ties: tuple[pa.Array, ...],
    ) -> None:
        """Sort versions with a seed that distinguishes their keys."""
        for seed in range(_MOST_SEEDS):
            try:
                self.versions = Versions.of(keys, times_us, is_deleted, values, ties, seed)
            except SameNumberError:
                continue
            self.seed = seed
            return
        raise AssertionError("keys that no seed tells apart")


class _Kept:
    """What is kept of the versions of one table."""

    def __init__(self, joined: JoinedTable, columns: tuple[str, ...]) -> None:
        self.joined = joined
        self.types = {name: _field(joined.table, name).type for name in columns}
        self.rows = KeptRows(self.types)
        self.due: _Due | None = None  # not older than the events that are looked up now
        self._due_groups = np.zeros(0, np.int32)  # see `group_versions`, as for `_due_marks`
        self._due_marks = np.zeros(0, np.int64)

    @property
    def n_rows(self) -> int:
        """Rows kept."""
        return self.rows.n_rows

    @property
    def n_bytes(self) -> int:
        """The bytes that are kept."""
        return self.rows.n_bytes

    def take_in(self, rows: pa.Table) -> None:
        """Add due versions: prepared rows of this table."""
        prepared = dict(self.joined.values)
        keys = texts_or_numbers(key_values(rows, self.joined.key_columns))
        times_us = np.asarray(whole(rows.column(TIME_COLUMN)))
        codes, distinct, _, hashes = numbered(keys)
        places = self.rows.add(distinct, hashes)[codes]
        if len(self._due_groups) < self.rows.capacity:
            self._due_groups = np.full(self.rows.capacity, -1, np.int32)
            self._due_marks = np.zeros(self.rows.capacity // 64 + 1, np.int64)
        n = len(places)
        order, starts, group_of = np.empty(n, np.int64), np.zeros(n + 1, np.int64), np.empty(n, np.int32)
        by_time = order_by_time(times_us)
        n_rows = group_versions(by_time, places, self._due_groups, self._due_marks, group_of, starts, order)
        starts = starts[: n_rows + 1]
        places, times_us = places[order], times_us[order]
        is_same = (places[1:] == places[:-1]) & (times_us[1:] == times_us[:-1])
        if is_same.any():
            ties = tuple(whole(rows.column(prepared[name])) for name in self.joined.table.tie_break)
            order = by_ties(order, is_same, ties) if ties else order
            is_last = np.append(~is_same, True)
            order, places, times_us = order[is_last], places[is_last], times_us[is_last]
            starts[1:] = np.cumsum(np.bincount(group_of[order]))
        is_deleted = np.asarray(whole(rows.column(VERSION_COLUMN))) < 0
        values = {name: whole(rows.column(prepared[name])) for name in self.types}
        self.due = _Due(order, places, times_us, starts, is_deleted, values)

    def found(
        self,
        keys: pa.Array,
        hashes: I64 | None,
        codes: I32 | None,
        times_us: I64,
        by_key: OrderedEvents | None,
    ) -> Values:
        """Return the columns for events at their times; their keys are `keys`, or ``keys[codes]``.

        `by_key`: the events in the order of these keys, which is then the order of `times_us`. So the
        versions that they look up are next to each other.
        """
        of_keys = self.rows.find(keys, hashes)
        due = self.due
        if due is None:
            of_keys = self.rows.that_are_there(of_keys)
            return partial(self.rows.values, places=of_keys if codes is None else of_keys[codes])
        n_events = len(times_us if codes is None else codes)
        places, found = np.full(n_events, -1), np.empty((2, len(times_us)), np.int64)
        codes = codes if by_key is None else by_key.codes
        n = find_due(
            self.rows.marked(of_keys),
            _NO_CODES if codes is None else codes,
            lent(times_us),
            _NO_EVENTS if by_key is None else by_key.rows,
            DueVersions(self._due_groups, self._due_marks, due.starts, lent(due.times_us), due.order),
            places,
            found,
        )
        return partial(self._with_due, due=due, places=places, at=found[0, :n], versions=found[1, :n])

    def _with_due(self, name: str, due: _Due, places: I64, at: I64, versions: I64) -> pa.Array:
        """Return a column of the rows at `places`; for the events `at` it is that of due versions."""
        if not len(at):
            return self.rows.values(name, places)
        is_deleted = due.is_deleted[versions] if due.is_deleted.any() else None
        chosen = due.values[name].take(pa.array(versions, mask=is_deleted))
        vector = self.rows.cells(name, places)
        if vector is None:
            both = pa.concat_arrays([self.rows.values(name, places), chosen])
            order = np.arange(len(places))
            order[at] = len(places) + np.arange(len(at))
            return both.take(pa.array(order))
        of_due = from_arrow(chosen, vector.type)
        vector.values[at] = of_due.values
        vector.known[at] = of_due.known
        return vector.to_arrow()

    def fold(self) -> None:
        """Make the due versions the last ones of their keys.

        Raises InputError: the table has more rows than allowed (E0619).
        """
        due, self.due = self.due, None
        if due is None:
            return
        last = due.starts[1:] - 1
        versions, places = due.order[last], due.places[last]
        self._due_groups[places] = -1
        self._due_marks[places >> 6] = 0
        self.rows.change(places, due.is_deleted[versions], due.values, versions)
        _check_limit(self.joined.table, self.n_rows)

    def check_limit(self) -> None:
        """Raise InputError if the table has more rows than allowed (E0619): at most one for each key."""
        table = self.joined.table.table
        if table is not None and table.max_rows is not None and self.rows.capacity > table.max_rows:
            self.fold()

    def stored(self) -> pa.Table | None:
        """Return the rows for a snapshot: the key, then the columns; None: there are none."""
        self.fold()  # after the end of the input, they still wait
        if not self.n_rows:
            return None
        places = self.rows.places()
        values = {name: self.rows.values(name, places) for name in self.types}
        return pa.table({KEY: self.rows.keys(), **values})

    def restore(self, stored: pa.Table) -> None:
        """Restore what `stored` returned. Raises ValueError: it has other columns."""
        if sorted(stored.column_names) != sorted([KEY, *self.types]):
            raise ValueError("other columns")
        values = {name: whole(stored.column(name)) for name in self.types}
        if [column.type for column in values.values()] != [ARROW_TYPES[kind] for kind in self.types.values()]:
            raise ValueError("columns of other types")
        keys = whole(stored.column(KEY))
        if keys.null_count or keys.type not in (pa.string(), pa.int64()):
            raise ValueError("no keys")
        self.rows.keep(keys, values)

    def held(self) -> pa.Table:
        """Return the columns of all rows, as they were before the due versions."""
        places = self.rows.places()
        return pa.table({name: self.rows.values(name, places) for name in self.types})


@dataclass(frozen=True, slots=True)
class _Due:
    """m versions, those of a row next to each other in order of time; one for each row and time.

    Parameters
    ----------
    order : (m,) int64
        Their places in `values`.
    places : (m,) int64
        The places of their rows in `KeptRows`.
    times_us : (m,) int64
        The times from which they are valid.
    starts : (rows + 1,) int64
        The first version of each row, and where the last ones end.
    is_deleted : (n,) bool
        By their places in `values`: whether the row is deleted from then on.
    values
        Columns of the table, in order of arrival.
    """

    order: I64
    places: I64
    times_us: I64
    starts: I64
    is_deleted: Mask
    values: Mapping[str, pa.Array]


class Tables:
    """The tables of one program.

    `given`: tables whose versions come from elsewhere, by name: all static tables, and others that are not
    kept here. The mapping is read at each look-up, so its owner may replace a table by another one of the
    same name in between.
    """

    def __init__(self, program: Program, given: Mapping[str, GivenTable]) -> None:
        self.program = program
        joins = program.joins
        columns = [
            tuple(dict.fromkeys(column.column for column in joins.columns if column.table == number))
            for number in range(len(joins.tables))
        ]
        for joined in joins.tables:
            if joined.table.is_static and joined.table.name not in given:
                raise InputError(
                    "E0620",
                    f"the rows of the static table `{joined.table.name}` are not given",
                    f"give the file of `{joined.table.name}`, too",
                )
        self._kept = {
            number: _Kept(joined, columns[number])
            for number, joined in enumerate(joins.tables)
            if joined.table.name not in given
            and (columns[number] or not program.has_silent_windows)  # FOR EACH reads its keys only
        }
        self._columns = columns
        self._given = given
        for number, joined in enumerate(joins.tables):
            if joined.table.name in given:
                self._sorted(number)  # refuses too many rows
        self._changes = Changes(program) if program.has_views else None

    def take_in(self, rows: pa.Table) -> pa.Table | None:
        """Add due versions: prepared rows. Return the events of views: what they change."""
        number = np.abs(np.asarray(whole(rows.column(VERSION_COLUMN))))
        for table, kept in self._kept.items():
            is_of_table = number == table + 1
            if is_of_table.all():
                kept.take_in(rows)
            elif is_of_table.any():
                kept.take_in(rows.filter(pa.array(is_of_table)))
        if self._changes is None:
            return None
        return self._changes.of(rows, lambda number: self._kept[number].held())

    def extend(self, events: pa.Table, order: OrderedEvents) -> pa.Table:
        """Return prepared events, whose order is known, with their joined columns (`Joins.columns`)."""
        times_us = np.asarray(whole(events.column(TIME_COLUMN)))
        found: dict[tuple[int, tuple[str, ...], bool], Values] = {}
        for column in self.program.joins.columns:
            place = (column.table, column.keys, column.is_before)
            if place not in found:
                at_us = times_us - 1 if column.is_before else times_us
                found[place] = self._find(column, events, order, at_us)
            events = events.append_column(column.name, found[place](column.column))
        return events

    def _find(self, column: JoinedColumn, events: pa.Table, order: OrderedEvents, times_us: I64) -> Values:
        codes = hashes = None
        is_of_key = column.keys == self.program.key_columns
        if is_of_key and order.row_codes is not None:  # the keys are numbered already
            codes, keys, hashes = order.row_codes, texts_or_numbers(order.keys), order.hashes
        else:
            keys = texts_or_numbers(key_values(events, column.keys))
        if column.table in self._kept:
            by_key = None if codes is None else order
            at_us = times_us if by_key is None else order.time_us - column.is_before
            return self._kept[column.table].found(keys, hashes, codes, at_us, by_key)
        given = self._sorted(column.table)
        seed = given.seed
        sought = Sought.of(keys, seed) if codes is None else Sought.of_codes(keys, codes, seed)
        return partial(_values_of, given.versions, given.versions.rows_at(sought, times_us))

    def _sorted(self, number: int) -> _Sorted:
        """Return the versions of a given table."""
        joined = self.program.joins.tables[number]
        return self._given[joined.table.name].sorted_by(joined, self._columns[number])

    def fold(self) -> None:
        """Make the added versions the last ones of their keys."""
        for kept in self._kept.values():
            kept.fold()

    def check_limits(self) -> None:
        """Raise InputError if a table has more rows than allowed (E0619)."""
        for kept in self._kept.values():
            kept.check_limit()

    @property
    def n_rows(self) -> dict[str, int]:
        """Rows kept, by table."""
        return {kept.joined.table.name: kept.n_rows for kept in self._kept.values()}

    @property
    def n_bytes(self) -> int:
        """The bytes that are kept."""
        return sum(kept.n_bytes for kept in self._kept.values())

    def stored(self) -> list[tuple[int, pa.Table]]:
        """Return the number and the rows of each table that has any."""
        found = ((number, kept.stored()) for number, kept in self._kept.items())
        return [(number, rows) for number, rows in found if rows is not None]

    def restore(self, stored: Sequence[tuple[int, pa.Table]]) -> None:
        """Restore what `stored` returned.

        Raises ValueError or KeyError: tables like these cannot have stored it.
        """
        for number, rows in stored:
            if number in self._kept:
                self._kept[number].restore(rows)


def _values_of(versions: Versions, rows: I64, name: str) -> pa.Array:
    """Return a column of the versions in `rows`, NULL where one is -1 or a deletion."""
    is_row = rows >= 0
    if len(versions):
        is_row &= ~versions.is_deleted[rows]
    return whole(versions.values.column(name)).take(pa.array(rows, mask=~is_row))


def texts_or_numbers(keys: pa.Array) -> pa.Array:
    """Return keys as strings or 64-bit numbers."""
    return keys if pa.types.is_string(keys.type) else keys.cast(pa.int64())


def _field(table: Stream, name: str) -> Field:
    field = table.field(name)
    assert field is not None
    return field


def _of_type(column: pa.ChunkedArray, table: Stream, name: str) -> pa.Array:
    values, kind = plain(column), ARROW_TYPES[_field(table, name).type]
    return values if values.type == kind else values.cast(kind)


def _check_limit(table: Stream, n_rows: int) -> None:
    """Raise InputError if a table has more rows than allowed."""
    assert table.table is not None
    most = table.table.max_rows
    if most is not None and n_rows > most:
        raise InputError(
            "E0619",
            f"the table `{table.name}` has {n_rows:,} rows, it may have {most:,}",
            "raise `max_rows` of the table if there is memory for its rows wherever they are needed, or join "
            "it by the rule's key, so that each row is needed in one place",
        )


def warm_up_tables() -> None:
    """Change rows of a table and look them up, which compiles every kernel."""
    rows = KeptRows({"n": Type.BIGINT, "text": Type.STRING})
    for length in (1, 99):
        keys = pa.array(["k" * length])
        places = rows.add(keys)
        values = {"n": pa.array([1]), "text": keys}
        rows.change(places, np.zeros(1, np.bool_), values, np.zeros(1, np.int64))
    rows.find(pa.array([1]))
    groups, marks = np.full(rows.capacity, -1, np.int32), np.zeros(rows.capacity, np.int64)
    room, codes, starts = np.zeros((3, 1), np.int64), np.zeros(1, np.int32), np.zeros(2, np.int64)
    group_versions(room[0], places, groups, marks, codes, starts, room[1])
    due = DueVersions(groups, marks, starts, places, room[1])
    find_due(places, codes, room[0], room[1], due, room[2], np.zeros((2, 1), np.int64))
    rows.keep(rows.keys(), {name: rows.values(name, rows.places()) for name in rows.types})
