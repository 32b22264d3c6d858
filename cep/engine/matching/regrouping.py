"""Dividing the state of a matcher by key, and merging the state of several matchers.

    parts = divided(program, snapshot, groups_of, n)   # one for each group of keys
    whole = joined(program, snapshots)                 # of parts that have reached the same event time

What belongs to a key moves with it. The rows of tables without the rules' key, and the times of the input
(`cep.engine.prepare.versions.extent_rows`), belong to all keys: each part has a copy, and the copies of parts
that have reached the same time are equal. Each matcher numbers strings, nodes and events itself, so these
numbers change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.kernels import layout as at
from cep.engine.matching.open_state import OpenRule, OpenState, OpenWindow, rows_of_slots
from cep.engine.prepare.columns import whole
from cep.engine.state.codec import decode, encode
from cep.engine.state.event_lists import KeptEvents
from cep.engine.state.strings import StringPool
from cep.engine.tables.tables import KEY
from cep.engine.windows.kernels import layout as windows
from cep.program.fingerprint import joined_meanings
from cep.program.program import Program
from cep.program.tables import VERSION_COLUMN, JoinedTable, table_name

GroupsOf = Callable[[pa.Table], npt.NDArray[np.integer]]
"""Takes rows with the columns `Program.key_columns`; returns the group of each row."""


class Part(NamedTuple):
    """The state of one group of keys: a snapshot.

    `is_empty`: it contains nothing that belongs to a key of the group.
    """

    data: bytes
    is_empty: bool


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
    state = OpenState.of(program, decode(data))
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
        part = OpenState(
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


def _chosen(rule: OpenRule, slots: I64) -> OpenRule:
    """Return the state of some keys."""
    until = rule.until[slots] if len(rule.until) else rule.until
    rows = rule.rows[rows_of_slots(slots, rule.n_runs)]
    return OpenRule(rule.rule, rule.section, rule.keys[slots], rows, until, rule.nodes.copy())


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
    keys = whole(rows.column(KEY))
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
    """Merge the snapshots of several matchers into one.

    They have different keys, and have reached the same event time. Raises StateError as `Matcher.restore`
    does.
    """
    states = [OpenState.of(program, decode(data)) for data in snapshots]
    first = states[0].shared
    assert all(state.shared.watermark_us == first.watermark_us for state in states)
    pool, n_kept = numbered_together(states)
    shared = replace(
        first,
        position=max(n_kept, *(state.shared.position for state in states)),
        counters=_sums([state.shared.counters for state in states]),
        waiting=_all_waiting(program, [state.shared.waiting for state in states]),
        keys=_all_rows([state.shared.keys for state in states]),
        strings=pool.values if len(pool) else None,
        kept=all_kept([state.shared.kept for state in states]),
    )
    rules = [_all_of_rule(of_rule) for of_rule in zip(*(state.rules for state in states), strict=True)]
    counters = [
        _sums([state.rules[number].section.counters for state in states])
        for number in range(len(program.rules))
    ]
    whole_state = OpenState(program, shared, rules, _all_windows(states), _all_tables(program, states))
    return encode(whole_state.stored(counters), program.fingerprint)


def numbered_together(states: Sequence[OpenState]) -> tuple[StringPool, int]:
    """Renumber the strings, nodes and kept events of several states as if they were one, in place.

    Return the strings, and how many events are kept.
    """
    pool = StringPool()
    n_kept, n_nodes = 0, [0] * len(states[0].rules)
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
    return pool, n_kept


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


def all_kept(kept: Sequence[KeptEvents | None]) -> KeptEvents | None:
    """Return the events that runs may report, numbered in their order."""
    columns = _all_rows([None if of is None else of.columns for of in kept])
    return None if columns is None else KeptEvents(np.arange(columns.num_rows), columns)


def _all_of_rule(rules: Sequence[OpenRule]) -> OpenRule:
    first = rules[0]
    matrices = (
        np.concatenate([getattr(rule, name) for rule in rules]) for name in ("keys", "rows", "until", "nodes")
    )
    section = replace(first.section, begins_us=max(rule.section.begins_us for rule in rules))
    return OpenRule(first.rule, section, *matrices)


def _all_windows(states: Sequence[OpenState]) -> list[OpenWindow]:
    found = []
    for window in states[0].windows:
        same = [next(of for of in state.windows if of.meaning == window.meaning) for state in states]
        entries = [of.entries for of in same if of.entries is not None]
        of_all = [of.of_all for of in same if of.of_all is not None]
        found.append(
            OpenWindow(
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


def _all_tables(program: Program, states: Sequence[OpenState]) -> dict[bytes, pa.Table]:
    by_key = _tables_by_key(program)
    found: dict[bytes, pa.Table] = {}
    for state in states:
        for meaning, rows in state.tables.items():
            if meaning not in found:
                found[meaning] = rows
            elif meaning in by_key:
                found[meaning] = pa.concat_tables([found[meaning], rows])
    return found
