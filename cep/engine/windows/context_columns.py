"""What an event knows about its past and its surroundings: columns computed once events are in order.

Runs see the events with these columns. The columns of tables come first (`cep.engine.tables.tables`), then
those computed from them. Windows follow (`cep.engine.windows.windows`), because they may read columns of
tables, then the columns computed from windows. Each step clears the bits of predicates that turn out not to
hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from cep.arrays import I32, I64, Mask
from cep.engine.kernels.columns.order import clear_bit, rows_with
from cep.engine.order.column_cells import ColumnCells, arrow_of
from cep.engine.order.ordering import OrderedEvents
from cep.engine.prepare.columns import lent
from cep.engine.prepare.predicates import Vectors, column_name, evaluate, is_all
from cep.engine.state.sections import TableSection, WindowSection, damaged
from cep.engine.state.strings import Cells
from cep.engine.tables.tables import GivenTable, Tables
from cep.engine.windows.rings import StoredRing
from cep.engine.windows.windows import Windows
from cep.expression import Column, Expression, RegisterRef, RoleTest, walk
from cep.program.fingerprint import joined_meanings
from cep.program.identity import fingerprints_in
from cep.program.program import Program, bits_column
from cep.program.tables import table_name


class Context:
    """The window state that earlier events left, the tables, and the columns that later events get.

    `given`: see `Tables`.
    """

    def __init__(self, program: Program, given: Mapping[str, GivenTable]) -> None:
        self.program = program
        self.readers = readers_of(program)
        self.windows = Windows(program.windows)
        self.tables = Tables(program, given)

    def take_in(self, versions: pa.Table) -> pa.Table | None:
        """Add due versions of tables: prepared rows. Return the events of views."""
        return self.tables.take_in(versions)

    def extend(
        self, table: pa.Table, order: OrderedEvents, slots: I32 | None, n_slots: int, cells: ColumnCells
    ) -> pa.Table:
        """Return prepared events with their joined, windowed and computed columns, and all bits.

        Parameters
        ----------
        table
            n prepared events (`Program.event_schema`), in any order. They are added to the kept state.
        order
            The events in order; rows that are not in it get any value.
        slots : (keys of `order`,) int32
            The slot of each key. None: no key has a slot, and no event follows.
        cells
            The cells of the columns of `table`; those of windows are added.
        """
        program = self.program
        table = with_joined_columns(self.tables, table, order)

        def holds(place: tuple[int, int]) -> Mask:
            word, bit = place
            found: Mask = (np.asarray(table.column(bits_column(word))) >> np.int64(bit) & 1).astype(np.bool_)
            return found

        if program.windows:
            found = self.windows.compute(
                order,
                slots,
                n_slots,
                table.num_rows,
                partial(cells.of, table),
                holds,
                wanted=self._wanted(table),
            )
            cells.note(found)
            for column in program.windows:
                values, known = found[column.name]
                table = table.append_column(column.name, arrow_of(values, known, column.type, cells.strings))
        for name, expression in program.computed:
            table = table.append_column(name, evaluate(expression, Vectors(table)).to_arrow())
        return _refined(program.refined, table)

    def _wanted(self, table: pa.Table) -> I64 | None:
        """Return the rows for which windows are read; None: perhaps for all."""
        if self.readers is None:
            return None
        wanted = np.zeros(table.num_rows, np.bool_)
        for word, mask in self.readers.items():
            wanted |= np.asarray(table.column(bits_column(word))) & mask != 0
        return np.flatnonzero(wanted)

    def expire(self, watermark_us: int) -> None:
        """Release what no event after the watermark can see."""
        self.windows.expire(watermark_us)
        self.tables.fold()

    def settle(self) -> None:
        """Do what the next events would have to wait for. It changes no result."""
        self.windows.settle()

    def table_sections(self) -> tuple[TableSection, ...]:
        """Return what is kept of tables, for a snapshot."""
        return sections_of(self.tables)

    def live(self, n_slots: int, watermark_us: int) -> Mask:
        """Return which keys have state that an event after the watermark can see."""
        return self.windows.live(n_slots, watermark_us)

    def keep_slots(self, live: Mask) -> None:
        """Forget the keys that are not in `live`; the others move up."""
        self.windows.keep_slots(live)

    def string_cells(self) -> Cells:
        """Return arrays that hold codes of strings, and where these contain a code."""
        return self.windows.string_cells()

    def sections(self) -> tuple[WindowSection, ...]:
        """Return the state that earlier events left, for a snapshot."""
        meanings = self.program.window_meanings
        return tuple(
            WindowSection(
                b"".join(sorted(meanings[name] for name in ring.columns)),
                tuple(part for part in (ring.keys, ring.entries, ring.begins) if part is not None),
            )
            for ring in self.windows.stored()
        )

    def restore(
        self, sections: Sequence[WindowSection], n_slots: int, tables: Sequence[TableSection] = ()
    ) -> None:
        """Restore what `sections` and `table_sections` returned.

        It may come from a program with its rules in a different order. Raises StateError: it is damaged
        (E0702).
        """
        try:
            self.windows.restore(stored_rings(self.program, sections), n_slots)
            restore_tables(self.tables, tables)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged("its windows or tables do not fit its rules") from error


def readers_of(program: Program) -> dict[int, int] | None:
    """Return by word the predicates of the events for which a rule reads windows; None: perhaps of all.

    A predicate that reads windows is evaluated where the rest of it holds. Other parts of a rule read the
    columns of an event only if a predicate of the rule holds.
    """
    names = {window.name for window in program.windows}
    for name, expression in program.computed:
        if names & set(_columns_of(expression)):
            names.add(name)
    found: dict[int, int] = {}
    for word, bit, rest in program.refined:
        if names & set(_columns_of(rest)):
            found[word] = found.get(word, 0) | _mask(bit)
    if names & {*program.columns, *program.kept_columns}:
        for rule in program.rules:
            if (rule.tables.variable_mask == 0).any():
                return None
            found[rule.word] = found.get(rule.word, 0) | int(np.uint64(rule.event_mask).astype(np.int64))
    return found


def stored_rings(program: Program, sections: Sequence[WindowSection]) -> list[StoredRing]:
    """Return the state of the windowed columns of a program. Raises KeyError: it is of other windows."""
    names = {meaning: name for name, meaning in program.window_meanings.items()}
    return [
        StoredRing(tuple(names[meaning] for meaning in fingerprints_in(section.meaning)), *section.parts)
        for section in sections
    ]


def with_joined_columns(tables: Tables, events: pa.Table, order: OrderedEvents) -> pa.Table:
    """Return prepared events with the columns of tables, those computed from them, and all bits."""
    joins = tables.program.joins
    if not joins.columns:
        return events
    events = tables.extend(events, order)
    for name, expression in joins.derived:
        events = events.append_column(name, evaluate(expression, Vectors(events)).to_arrow())
    return _refined(joins.refined, events)


def sections_of(tables: Tables) -> tuple[TableSection, ...]:
    """Return what is kept of tables, for a snapshot."""
    meanings = joined_meanings(tables.program)
    return tuple(TableSection(meanings[table_name(number)], rows) for number, rows in tables.stored())


def restore_tables(tables: Tables, sections: Sequence[TableSection]) -> None:
    """Restore into `tables` what `sections_of` returned; the order of the program's rules may differ.

    Raises ValueError or KeyError: tables like these cannot have stored it.
    """
    numbers = {meaning: name for name, meaning in joined_meanings(tables.program).items()}
    places = {table_name(number): number for number in range(len(tables.program.joins.tables))}
    tables.restore([(places[numbers[section.meaning]], section.rows) for section in sections])


_SPARSE = 8
"""If a predicate may still hold for at most one row in this many, it is evaluated only for those rows."""


def _refined(refined: Sequence[tuple[int, int, Expression]], table: pa.Table) -> pa.Table:
    """Return `table`, with the bits of predicates cleared where the rest of the predicate does not hold."""
    if not refined:
        return table
    batch = Vectors(table)
    words: dict[int, I64] = {}
    room = np.empty(table.num_rows + 1, np.int64)
    for word, bit, rest in refined:
        if word not in words:
            words[word] = np.asarray(table.column(bits_column(word))).copy()
        rows = room[: rows_with(words[word], _mask(bit), room)]
        names = _columns_of(rest)
        if names and len(rows) * _SPARSE < len(words[word]):
            holds = _holds(rest, Vectors(table.select(names).take(pa.array(rows))))
            words[word][rows[~holds]] &= ~_mask(bit)
        else:
            holds = _holds(rest, batch)
            clear_bit(lent(np.ascontiguousarray(holds).view(np.uint8)), bit, words[word])
    for word, values in words.items():
        place = table.column_names.index(bits_column(word))
        table = table.set_column(place, table.schema.field(place), pa.array(values))
    return table


def _holds(predicate: Expression, batch: Vectors) -> Mask:
    """Return for which rows a predicate is TRUE."""
    vector = evaluate(predicate, batch)
    found: Mask = vector.values if is_all(vector.known) else vector.values & vector.known
    return found


def _columns_of(expression: Expression) -> list[str]:
    """Return the names of the columns that an expression reads."""
    parts = (part for part in walk(expression) if isinstance(part, Column | RegisterRef | RoleTest))
    return list(dict.fromkeys(map(column_name, parts)))


def _mask(bit: int) -> int:
    return int(np.uint64(1 << bit).astype(np.int64))
