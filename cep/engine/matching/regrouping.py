"""The state of a matcher divided by key, and the state of several matchers as that of one.

    parts = divided(program, snapshot, groups_of, n)   # one for each group of keys
    whole = joined(program, snapshots)                 # of parts that have reached the same event time

What belongs to a key moves with it. The rows of tables without the rules' key, and the times of the input
(`cep.engine.prepare.versions.extent_rows`), belong to all keys: each part has a copy, and the copies of parts
that have reached the same time are equal. Each matcher numbers texts, nodes and events itself, so these
numbers change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.kernels import layout as at
from cep.engine.kernels.event_nodes import compact_nodes, mark_nodes
from cep.engine.prepare.columns import whole
from cep.engine.state.codec import decode, encode
from cep.engine.state.event_lists import KeptEvents
from cep.engine.state.packing import packed
from cep.engine.state.sections import (
    RuleSection,
    SharedSection,
    StateSections,
    TableSection,
    WindowSection,
    fitted,
)
from cep.engine.state.strings import Cells, StringPool
from cep.engine.windows.kernels import layout as windows
from cep.expression import Type
from cep.program.fingerprint import joined_meanings
from cep.program.identity import FINGERPRINT_BYTES
from cep.program.program import Program, RuleProgram
from cep.program.tables import VERSION_COLUMN, JoinedTable, table_name
from cep.program.window_functions import Kept

GroupsOf = Callable[[pa.Table], npt.NDArray[np.integer]]
"""Takes rows with the columns `Program.key_columns`; returns the group of each row."""

_KEY = "#key"
"""The column of stored rows of a table that has their key (`cep.engine.tables.tables`)."""


class Part(NamedTuple):
    """The state of one group of keys: a snapshot.

    `is_empty`: nothing in it belongs to a key of the group.
    """

    data: bytes
    is_empty: bool


@dataclass
class _OpenRule:
    """The state of one rule as matrices; see `RuleSection`."""

    rule: RuleProgram
    section: RuleSection
    keys: I64
    rows: I64
    until: I64
    nodes: I64

    @classmethod
    def of(cls, rule: RuleProgram, section: RuleSection) -> _OpenRule:
        parts = (section.keys, section.rows, section.suppressed_until, section.nodes)
        return cls(rule, section, *(part.matrix() for part in parts))

    def stored(self, counters: tuple[int, ...]) -> RuleSection:
        return replace(
            self.section,
            counters=counters,
            keys=packed(self.keys),
            rows=packed(self.rows),
            suppressed_until=packed(self.until),
            nodes=packed(self.nodes),
        )

    @property
    def n_runs(self) -> I64:
        """The number of runs of each key."""
        return self.keys[:, 0]

    def links(self) -> Iterator[I64]:
        """Yield the registers that lead to nodes, in place: of each run 1 + its last node, or 0."""
        registers = [number for number, of in enumerate(self.rule.registers) if of.values is not None]
        registers += [self.rule.node_register] if self.rule.node_register >= 0 else []
        for number in registers:
            yield self.rows[:, at.REGISTER - at.STATE + number]

    def texts(self) -> Cells:
        """Return the cells that hold codes of texts, in place."""
        known = self.rows[:, at.VALID - at.STATE]
        found = [
            (self.rows[:, at.REGISTER - at.STATE + number], known >> number & 1 != 0)
            for number, register in enumerate(self.rule.registers)
            if register.type is Type.STRING
        ]
        sets = [
            at.FIRST_SET - (number - 1)
            for number, register in enumerate(self.rule.registers)
            if register.values is Type.STRING
        ]
        return [*found, (self.nodes[:, at.NODE_EVENT], np.isin(self.nodes[:, at.NODE_VARIABLE], sets))]

    @property
    def events(self) -> tuple[I64, Mask]:
        """The cells of nodes, in place, and which of them hold the position of an event."""
        return self.nodes[:, at.NODE_EVENT], self.nodes[:, at.NODE_VARIABLE] >= 0

    def drop_unreached(self) -> None:
        """Drop the nodes that no run reaches."""
        if not len(self.nodes):
            return
        links = list(self.links())
        marks = np.zeros(len(self.nodes), np.uint8)
        for link in links:
            mark_nodes(self.nodes, np.ascontiguousarray(link), marks)
        moved = np.zeros(len(self.nodes) + 1, np.int64)  # by node + 1
        n_nodes = compact_nodes(self.nodes, marks, moved[:-1])
        moved[1:] = moved[:-1] + 1
        moved[0] = 0
        self.nodes = self.nodes[:n_nodes].copy()
        for link in links:
            link[:] = moved[link]


@dataclass
class _OpenWindow:
    """The state of one group of windowed columns, or of the windows of window rules.

    Parameters
    ----------
    of_keys
        A row for each key. With `entries` its first number is that of the key's entries.
    entries
        The entries of rings, key by key; None: there are none.
    of_all
        What belongs to no key; None: nothing does.
    """

    meaning: bytes
    of_keys: I64
    entries: I64 | None = None
    of_all: I64 | None = None

    @classmethod
    def of(cls, section: WindowSection) -> _OpenWindow:
        of_keys, *more = (part.matrix() for part in section.parts)
        if more and of_keys.shape[1] == 1:  # the keys that a table contains, and when the input begins
            return cls(section.meaning, of_keys, of_all=more[0])
        return cls(section.meaning, of_keys, *more)

    def stored(self) -> WindowSection:
        parts = (self.of_keys, self.entries, self.of_all)
        return WindowSection(self.meaning, tuple(packed(part) for part in parts if part is not None))

    def chosen(self, slots: I64) -> _OpenWindow:
        entries = self.entries
        if entries is not None:
            entries = entries[_runs_of(slots, self.of_keys[:, 0])]
        return _OpenWindow(self.meaning, self.of_keys[slots], entries, self.of_all)


@dataclass
class _Open:
    """The state of a matcher in matrices that may be changed."""

    program: Program
    shared: SharedSection
    rules: list[_OpenRule]
    windows: list[_OpenWindow]
    tables: dict[bytes, pa.Table]

    @classmethod
    def of(cls, program: Program, stored: StateSections) -> _Open:
        stored = fitted(stored, program)
        return cls(
            program,
            stored.shared,
            [_OpenRule.of(*pair) for pair in zip(program.rules, stored.rules, strict=True)],
            [_OpenWindow.of(section) for section in stored.windows],
            {section.meaning: section.rows for section in stored.tables},
        )

    def stored(self, counters: Sequence[tuple[int, ...]]) -> StateSections:
        return StateSections(
            self.shared,
            tuple(rule.stored(of) for rule, of in zip(self.rules, counters, strict=True)),
            tuple(window.stored() for window in self.windows),
            tuple(TableSection(meaning, rows) for meaning, rows in self.tables.items() if rows.num_rows),
        )

    def texts(self) -> Cells:
        """Return the cells that hold codes of texts, in place."""
        of_rules = [cells for rule in self.rules for cells in rule.texts()]
        of_texts = _windows_of_texts(self.program)
        return of_rules + [
            (window.entries[:, windows.VALUE], window.entries[:, windows.WORD] & 1 != 0)
            for window in self.windows
            if window.entries is not None and of_texts & _parts(window.meaning)
        ]

    def drop_unreached(self) -> None:
        """Drop the nodes, events and texts that nothing refers to."""
        for rule in self.rules:
            rule.drop_unreached()
        kept = self.shared.kept
        if kept is not None:
            kept = kept.only([cells[holds] for cells, holds in (rule.events for rule in self.rules)])
        strings = StringPool(self.shared.strings)
        strings.keep(self.texts())
        self.shared = replace(
            self.shared,
            kept=kept if kept is not None and len(kept.positions) else None,
            strings=strings.values if len(strings) else None,
        )


def _windows_of_texts(program: Program) -> set[bytes]:
    """Return the meanings of the windowed columns whose entries hold codes of texts."""
    return {
        program.window_meanings[column.name]
        for column in program.windows
        if column.argument_type is Type.STRING and column.function.value.kept is not Kept.COUNTS
    }


def _parts(meaning: bytes) -> set[bytes]:
    return {meaning[at : at + FINGERPRINT_BYTES] for at in range(0, len(meaning), FINGERPRINT_BYTES)}


# ---------------------------------------------------------------- dividing


class _Places:
    """The places of the members of each group."""

    def __init__(self, groups: npt.NDArray[np.integer], n: int) -> None:
        self._order = np.argsort(groups, kind="stable")
        self._ends = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=n))))

    def of(self, group: int) -> I64:
        """Return the places of a group, in order."""
        return self._order[self._ends[group] : self._ends[group + 1]]


def divided(program: Program, data: bytes | memoryview, groups_of: GroupsOf, n: int) -> list[Part]:
    """Return the state of each of `n` groups of keys.

    The first part has the counts so far. Raises StateError as `Matcher.restore` does.
    """
    state = _Open.of(program, decode(data))
    shared = state.shared
    slots = _Places(_groups(groups_of, shared.keys), n)
    waiting = shared.waiting
    for_all = np.zeros(0, np.bool_) if waiting is None else is_for_all(program, waiting)
    events = _Places(_groups(groups_of, None if waiting is None else waiting.filter(pa.array(~for_all))), n)
    of_events = np.flatnonzero(~for_all)
    of_rows = {
        meaning: _Places(_groups(groups_of, _keys_of_rows(program, table, state.tables[meaning])), n)
        for meaning, table in _tables_by_key(program).items()
        if meaning in state.tables
    }
    parts = []
    for group in range(n):
        own, own_events = slots.of(group), of_events[events.of(group)]
        tables = dict(state.tables)
        for meaning, places in of_rows.items():
            tables[meaning] = tables[meaning].take(pa.array(places.of(group)))
        chosen = np.sort(np.concatenate((np.flatnonzero(for_all), own_events)))
        part = _Open(
            program,
            replace(
                shared,
                counters=shared.counters if group == 0 else (0,) * len(shared.counters),
                waiting=_taken(waiting, chosen),
                keys=_taken(shared.keys, own),
            ),
            [_chosen(rule, own) for rule in state.rules],
            [window.chosen(own) for window in state.windows],
            tables,
        )
        part.drop_unreached()
        is_empty = not (len(own) or len(own_events) or any(tables[meaning].num_rows for meaning in of_rows))
        counters = [rule.section.counters for rule in state.rules]
        if group:
            counters = [(0,) * len(of) for of in counters]
        parts.append(Part(encode(part.stored(counters), program.fingerprint), is_empty))
    return parts


def _groups(groups_of: GroupsOf, table: pa.Table | None) -> npt.NDArray[np.integer]:
    return np.zeros(0, np.int64) if table is None or not table.num_rows else groups_of(table)


def _taken(table: pa.Table | None, rows: I64) -> pa.Table | None:
    return None if table is None or not len(rows) else table.take(pa.array(rows)).combine_chunks()


def _chosen(rule: _OpenRule, slots: I64) -> _OpenRule:
    """Return the state of some keys."""
    until = rule.until[slots] if len(rule.until) else rule.until
    rows = rule.rows[_runs_of(slots, rule.n_runs)]
    return _OpenRule(rule.rule, rule.section, rule.keys[slots], rows, until, rule.nodes.copy())


def _runs_of(slots: I64, lengths: I64) -> I64:
    """Return the rows of some slots in a matrix that has `lengths` rows of each slot."""
    n_rows = lengths[slots]
    first = (np.cumsum(lengths) - lengths)[slots]
    of_slot = np.cumsum(n_rows) - n_rows
    rows: I64 = np.repeat(first - of_slot, n_rows) + np.arange(int(n_rows.sum()))
    return rows


def is_for_all(program: Program, rows: pa.Table) -> Mask:
    """Return which prepared rows all keys have: versions of tables without the rules' key, and times."""
    if not program.joins.takes_versions:
        return np.zeros(rows.num_rows, np.bool_)
    numbers = np.abs(np.asarray(whole(rows.column(VERSION_COLUMN))))
    by_key = [n + 1 for n, table in enumerate(program.joins.tables) if table.is_co_partitioned]
    has_key = np.asarray(pc.is_valid(whole(rows.column(program.key_columns[0]))))
    found: Mask = (numbers > 0) & ~(np.isin(numbers, by_key) & has_key)
    return found


def _tables_by_key(program: Program) -> dict[bytes, JoinedTable]:
    """Return the tables whose rows belong to the keys of the rules, by meaning."""
    meanings = joined_meanings(program)
    return {
        meanings[table_name(number)]: table
        for number, table in enumerate(program.joins.tables)
        if table.is_co_partitioned
    }


def _keys_of_rows(program: Program, table: JoinedTable, rows: pa.Table) -> pa.Table:
    """Return the keys of stored rows of a table, as columns of the rules' key."""
    keys = whole(rows.column(_KEY))
    types = [program.event_schema.field(name).type for name in table.key_columns]
    columns = [keys] if len(types) == 1 else _split_keys(keys, len(types))
    arrays = [column.cast(kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=list(table.key_columns)).select(program.key_columns)


def _split_keys(keys: pa.Array, n: int) -> list[pa.Array]:
    """Return the parts of keys of several columns (`cep.engine.order.ordering.key_values`)."""
    columns: list[list[str]] = [[] for _ in range(n)]
    for key in keys.to_pylist():
        rest = key.encode()
        for column in columns:
            length, _, rest = rest.partition(b":")
            column.append(rest[: int(length)].decode())
            rest = rest[int(length) + 1 :]
    return [pa.array(column, pa.string()) for column in columns]


# ---------------------------------------------------------------- joining


def joined(program: Program, snapshots: Sequence[bytes | memoryview]) -> bytes:
    """Return the snapshots of several matchers as that of one.

    They have different keys, and have reached the same event time. Raises StateError as `Matcher.restore`
    does.
    """
    states = [_Open.of(program, decode(data)) for data in snapshots]
    first = states[0].shared
    assert all(state.shared.watermark_us == first.watermark_us for state in states)
    pool = StringPool()
    n_kept, n_nodes = 0, [0] * len(program.rules)
    for state in states:
        if state.shared.strings is not None:
            codes = pool.encode(state.shared.strings)
            for cells, holds in state.texts():
                cells[holds] = codes[cells[holds]]
        kept = state.shared.kept
        for number, rule in enumerate(state.rules):
            cells, holds = rule.events
            if kept is not None:
                cells[holds] = kept.rows(cells[holds]) + n_kept
            parents = rule.nodes[:, at.NODE_PARENT]
            parents[parents >= 0] += n_nodes[number]
            for link in rule.links():
                link[link > 0] += n_nodes[number]
            n_nodes[number] += len(rule.nodes)
        n_kept += 0 if kept is None else len(kept.positions)
    shared = replace(
        first,
        position=max(n_kept, *(state.shared.position for state in states)),
        counters=_sums([state.shared.counters for state in states]),
        waiting=_all_waiting(program, [state.shared.waiting for state in states]),
        keys=_all_rows([state.shared.keys for state in states]),
        strings=pool.values if len(pool) else None,
        kept=_all_kept([state.shared.kept for state in states]),
    )
    rules = [_all_of_rule(of_rule) for of_rule in zip(*(state.rules for state in states), strict=True)]
    counters = [
        _sums([state.rules[number].section.counters for state in states])
        for number in range(len(program.rules))
    ]
    whole_state = _Open(program, shared, rules, _all_windows(states), _all_tables(program, states))
    return encode(whole_state.stored(counters), program.fingerprint)


def _sums(counters: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counters, strict=True)))


def _all_rows(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    found = [table for table in tables if table is not None]
    return pa.concat_tables(found).combine_chunks() if found else None


def _all_waiting(program: Program, tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """Return the rows that wait; those that each part has, once."""
    first, *others = tables
    own = [None if table is None else table.filter(pa.array(~is_for_all(program, table))) for table in others]
    return _all_rows([first, *own])


def _all_kept(kept: Sequence[KeptEvents | None]) -> KeptEvents | None:
    """Return the events that runs may report, numbered in their order."""
    columns = _all_rows([None if of is None else of.columns for of in kept])
    return None if columns is None else KeptEvents(np.arange(columns.num_rows), columns)


def _all_of_rule(rules: Sequence[_OpenRule]) -> _OpenRule:
    first = rules[0]
    matrices = (
        np.concatenate([getattr(rule, name) for rule in rules]) for name in ("keys", "rows", "until", "nodes")
    )
    return _OpenRule(first.rule, first.section, *matrices)


def _all_windows(states: Sequence[_Open]) -> list[_OpenWindow]:
    found = []
    for window in states[0].windows:
        same = [next(of for of in state.windows if of.meaning == window.meaning) for state in states]
        entries = [of.entries for of in same if of.entries is not None]
        of_all = [of.of_all for of in same if of.of_all is not None]
        found.append(
            _OpenWindow(
                window.meaning,
                np.concatenate([of.of_keys for of in same]),
                np.concatenate(entries) if entries else None,
                _earliest(of_all) if of_all else None,
            )
        )
    return found


def _earliest(times: Sequence[I64]) -> I64:
    """Return the earliest known time; each is one number, `NEVER` if it is unknown."""
    known = [time for time in times if int(time[0, 0]) != windows.NEVER]
    return min(known, key=lambda time: int(time[0, 0])) if known else times[0]


def _all_tables(program: Program, states: Sequence[_Open]) -> dict[bytes, pa.Table]:
    by_key = _tables_by_key(program)
    found: dict[bytes, pa.Table] = {}
    for state in states:
        for meaning, rows in state.tables.items():
            if meaning not in found:
                found[meaning] = rows
            elif meaning in by_key:
                found[meaning] = pa.concat_tables([found[meaning], rows])
    return found
