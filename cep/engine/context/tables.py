"""The tables of a program: what is kept of their versions, and the columns that events get of them.

    tables = Tables(program)
    events = tables.take_in(rows)      # the versions among `rows` are taken out
    events = tables.extend(events, order)   # with joined columns
    tables.fold()                      # the versions are older than all events to come

Kept are, for each key, the last version before the watermark: versions that are not due yet wait with the
events. They lie in levels of versions, each several times as large as the next one, so that taking in new
versions costs little however many there are (a log-structured merge: O'Neil et al., The log-structured
merge-tree, Acta Informatica 33, 1996).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.engine.context.changes import Changes
from cep.engine.context.versions import SameNumberError, Sought, Versions, merged
from cep.engine.order.ordering import OrderedEvents, key_values
from cep.engine.prepare.columns import plain, whole
from cep.engine.watermark import START_OF_TIME_US
from cep.errors import InputError
from cep.program.program import TIME_COLUMN, Program
from cep.program.tables import VERSION_COLUMN, JoinedColumn, JoinedTable
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Stream
from cep.schema.table_rows import deleted

_GROWTH = 4
"""A level is at least so many times as large as the next one."""

_MOST_SEEDS = 64


_OPEN, _NOTHING = -1, -2
"""Places of events of which no version was found yet, and of those whose row was deleted."""


class Found:
    """The versions that were found for n events: parts of tables, and the place of each event in them.

    `places` is (n,) int64, in the parts one after the other; below 0: there is no row.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[Versions, I64 | None]] = []
        self.places = np.zeros(0, np.int64)
        self._n = 0

    def add(self, versions: Versions, rows: I64 | None) -> I64:
        """Add `rows` of `versions`, None: all; return the place of each, `_NOTHING` if it is deleted."""
        is_deleted = versions.is_deleted if rows is None else versions.is_deleted[rows]
        if not len(is_deleted):
            return np.zeros(0, np.int64)
        places = np.where(is_deleted, _NOTHING, self._n + np.arange(len(is_deleted)))
        self.parts.append((versions, rows))
        self._n += len(is_deleted)
        return places

    def values(self, column: str, kind: pa.DataType) -> pa.Array:
        """Return the values of a column of the table for the events, NULL where there is no row."""
        pieces = []
        for versions, rows in self.parts:
            values = whole(versions.values.column(column))
            pieces.append(values if rows is None else values.take(pa.array(rows)))
        if not pieces:
            return pa.nulls(len(self.places), kind)
        values = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return values.take(pa.array(self.places, mask=self.places < 0))


class GivenTable:
    """All versions of a table, to be looked up by any number of matchers of one process.

    Parameters
    ----------
    table
        The table.
    rows
        Its versions as a reader makes them (the columns of the table in the types of `ARROW_TYPES`), in the
        order in which they arrived. Those of a static table are valid always.
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
            keys = _texts_or_numbers(
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
    """Versions that are given, or due."""

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
        """Sort versions under a seed that tells their keys apart."""
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
        self.columns = columns  # of the table
        self.levels: list[Versions] = []  # from large and old to small and new, one version for each key
        self.due: Versions | None = None  # not older than the events that are looked up now
        self.n_rows = 0
        self.seed = 0

    def take_in(self, rows: pa.Table) -> None:
        """Take in versions that are due: prepared rows of this table."""
        prepared = dict(self.joined.values)
        keys = _texts_or_numbers(key_values(rows, self.joined.key_columns))
        values = pa.table(
            [whole(rows.column(prepared[column])) for column in self.columns], names=list(self.columns)
        )
        ties = tuple(whole(rows.column(prepared[name])) for name in self.joined.table.tie_break)
        times_us = np.asarray(whole(rows.column(TIME_COLUMN)))
        is_deleted = np.asarray(whole(rows.column(VERSION_COLUMN))) < 0
        for _ in range(_MOST_SEEDS):
            try:
                due = Versions.of(keys, times_us, is_deleted, values, ties, self.seed)
                self._check(due)
            except SameNumberError:
                self._reseed()
                continue
            self.due = due
            return
        raise AssertionError("keys that no seed tells apart")

    def _check(self, due: Versions) -> None:
        """Raise SameNumberError if a key has the number of another one that is kept."""
        if not pa.types.is_string(due.keys.type):
            return
        for level in self.levels:
            places = np.searchsorted(level.numbers, due.numbers)
            places = np.minimum(places, max(len(level) - 1, 0))
            if not len(level):
                continue
            same = np.flatnonzero(level.numbers[places] == due.numbers)
            own = level.keys.take(pa.array(places[same]))
            if not pc.all(pc.equal(own, due.keys.take(pa.array(same))), min_count=0).as_py():
                raise SameNumberError

    def _reseed(self) -> None:
        while self.seed < _MOST_SEEDS:
            self.seed += 1
            try:
                self.levels = [
                    Versions.of(level.keys, level.times_us, level.is_deleted, level.values, (), self.seed)
                    for level in self.levels
                ]
            except SameNumberError:
                continue
            return

    def found(self, sought: Sought, times_us: I64) -> Found:
        """Return the versions that were valid for events at their times."""
        of_keys = np.full(len(sought.numbers) + 1, _OPEN, np.int64)  # the last one is for keys that are NULL
        found = Found()
        for level in reversed(self.levels):
            rows = level.rows_of(sought)
            is_here = (rows >= 0) & (of_keys[:-1] == _OPEN)
            of_keys[:-1][is_here] = found.add(level, rows[is_here])
        found.places = of_keys[sought.codes]
        if self.due is not None and len(self.due):
            rows = self.due.rows_at(sought, times_us)
            is_here = rows >= 0
            found.places[is_here] = found.add(self.due, None)[rows[is_here]]
        return found

    def fold(self) -> None:
        """Let the versions that were due become the last ones of their keys.

        Raises
        ------
        InputError
            The table has more rows than it may have (E0619).
        """
        if self.due is None:
            return
        new, self.due = self.due.last_of_each(), None
        self.n_rows += self._added(new)
        _check_limit(self.joined.table, self.n_rows)
        self.levels.append(new)
        while len(self.levels) > 1 and len(self.levels[-2]) < _GROWTH * len(self.levels[-1]):
            newer = self.levels.pop()
            self.levels[-1] = merged(self.levels[-1], newer)
        self.levels[0] = self.levels[0].without_deleted()

    def _added(self, new: Versions) -> int:
        """Return by how many rows the table grows."""
        was_there = np.zeros(len(new), np.bool_)
        is_open = np.ones(len(new), np.bool_)
        sought = Sought(new.keys, new.numbers, np.arange(len(new)))
        for level in reversed(self.levels):
            rows = level.rows_of(sought)
            is_here = is_open & (rows >= 0)
            was_there[is_here] = ~level.is_deleted[rows[is_here]]
            is_open &= ~is_here
        is_there = ~new.is_deleted
        return int((is_there & ~was_there).sum()) - int((~is_there & was_there).sum())

    def compact(self) -> Versions | None:
        """Return all rows as one level; None: there are none."""
        while len(self.levels) > 1:
            newer = self.levels.pop()
            self.levels[-1] = merged(self.levels[-1], newer)
        if self.levels:
            self.levels[0] = self.levels[0].without_deleted()
        return self.levels[0] if self.levels and len(self.levels[0]) else None

    def stored(self) -> pa.Table | None:
        """Return the rows for a snapshot: the key, then the columns; None: there are none."""
        level = self.compact()
        return None if level is None else level.values.add_column(0, _KEY, level.keys)

    def restore(self, stored: pa.Table) -> None:
        """Hold what `stored` returned.

        Raises
        ------
        ValueError
            It has other columns.
        """
        types = {field.name: ARROW_TYPES[field.type] for field in self.joined.table.fields}
        wanted = [types[name] for name in self.columns]
        if sorted(stored.column_names) != sorted([_KEY, *self.columns]):
            raise ValueError("other columns")
        values = stored.select(self.columns)
        if values.schema.types != wanted:
            raise ValueError("columns of other types")
        keys = whole(stored.column(_KEY))
        n = len(keys)
        if keys.null_count or keys.type not in (pa.string(), pa.int64()):
            raise ValueError("no keys")
        found = _Sorted(self.joined)
        found.set(keys, np.full(n, START_OF_TIME_US), np.zeros(n, np.bool_), values, ())
        self.seed, self.levels, self.n_rows = found.seed, [found.versions], len(found.versions)

    @property
    def held(self) -> list[pa.Table]:
        """What is kept: the columns of the table, of rows that are gone or were replaced, too."""
        return [level.values for level in self.levels]

    @property
    def n_bytes(self) -> int:
        """The bytes that are kept."""
        return sum(level.values.nbytes + level.keys.nbytes + 17 * len(level) for level in self.levels)


_KEY = "#key"


class Tables:
    """The tables of one program.

    Parameters
    ----------
    program
        The compiled rules.
    given
        Tables whose versions come from elsewhere, by name: all static ones, and others that are not to be
        kept here.
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
        }
        self._given = {
            number: given[joined.table.name].sorted_by(joined, columns[number])
            for number, joined in enumerate(joins.tables)
            if joined.table.name in given
        }
        self._changes = Changes(program) if program.has_views else None

    def take_in(self, rows: pa.Table) -> pa.Table:
        """Take the versions out of prepared rows that are due; return the events.

        The events of views are what the versions change.
        """
        if not self.program.joins.takes_versions:
            return rows
        number = np.asarray(whole(rows.column(VERSION_COLUMN)))
        is_version = number != 0
        if not is_version.any():
            return rows
        for table, kept in self._kept.items():
            is_of_table = np.abs(number) == table + 1
            if is_of_table.any():
                kept.take_in(rows.filter(pa.array(is_of_table)))
        if self._changes is not None:
            return self._changes.of(rows, self._kept[self._changes.base].held)
        return rows.filter(pa.array(~is_version))

    def extend(self, events: pa.Table, order: OrderedEvents) -> pa.Table:
        """Return prepared events, whose order is known, with their joined columns (`Joins.columns`)."""
        times_us = np.asarray(whole(events.column(TIME_COLUMN)))
        found: dict[tuple[int, tuple[str, ...], bool], Found] = {}
        for column in self.program.joins.columns:
            place = (column.table, column.keys, column.is_before)
            if place not in found:
                at_us = times_us - 1 if column.is_before else times_us
                found[place] = self._find(column, events, order, at_us)
            values = found[place].values(column.column, ARROW_TYPES[column.type])
            events = events.append_column(column.name, values)
        return events

    def _find(self, column: JoinedColumn, events: pa.Table, order: OrderedEvents, times_us: I64) -> Found:
        kept, given = self._kept.get(column.table), self._given.get(column.table)
        seed = kept.seed if kept is not None else given.seed if given is not None else 0
        if column.keys == self.program.key_columns:  # the keys are told apart already
            codes = np.full(events.num_rows, -1, np.int64)
            codes[order.rows] = order.codes
            sought = Sought.of_codes(_texts_or_numbers(order.keys), codes, seed)
        else:
            sought = Sought.of(_texts_or_numbers(key_values(events, column.keys)), seed)
        if kept is not None:
            return kept.found(sought, times_us)
        assert given is not None
        found = Found()
        rows = given.versions.rows_at(sought, times_us)
        places = np.append(found.add(given.versions, None), _NOTHING)
        found.places = places[rows]
        return found

    def fold(self) -> None:
        """Let the versions taken in become the last ones of their keys."""
        for kept in self._kept.values():
            kept.fold()

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
        """Hold what `stored` returned.

        Raises
        ------
        ValueError, KeyError
            It cannot have been stored by tables like these.
        """
        for number, rows in stored:
            if number in self._kept:
                self._kept[number].restore(rows)


def _texts_or_numbers(keys: pa.Array) -> pa.Array:
    """Return keys as texts or 64-bit numbers."""
    return keys if pa.types.is_string(keys.type) else keys.cast(pa.int64())


def _of_type(column: pa.ChunkedArray, table: Stream, name: str) -> pa.Array:
    field = table.field(name)
    assert field is not None
    values, kind = plain(column), ARROW_TYPES[field.type]
    return values if values.type == kind else values.cast(kind)


def _check_limit(table: Stream, n_rows: int) -> None:
    """Raise InputError if a table has more rows than it may have."""
    assert table.table is not None
    most = table.table.max_rows
    if most is not None and n_rows > most:
        raise InputError(
            "E0619",
            f"the table `{table.name}` has {n_rows:,} rows, it may have {most:,}",
            "raise `max_rows` of the table if there is memory for its rows wherever they are needed, or join "
            "it by the rule's key, so that each row is needed in one place",
        )
