"""What stored state remembers apart from open runs, for people to read: windows, tables, suppressed matches.

The kernels compute the values of windows, as they would for a row that is directly after the watermark and is
not an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.order.column_cells import arrow_of
from cep.engine.order.ordering import OrderedEvents, key_values
from cep.engine.state.packing import Packed
from cep.engine.state.sections import RuleSection, StateSections, WindowSection
from cep.engine.state.strings import StringPool
from cep.engine.state.suppression import Suppression
from cep.program.fingerprint import joined_meanings
from cep.program.identity import fingerprints_in
from cep.program.program import Program
from cep.program.tables import table_name
from cep.program.windows import Function, WindowColumn


class WindowState(NamedTuple):
    """The state of one window of all keys.

    - `columns`: the windowed columns that it serves.
    - `rules`: the names of the rules that read them.
    - `n_entries`: (keys,) int64 how many entries each key keeps: events, or what remains of them.
    - `n_bytes`: the length in a snapshot.
    """

    columns: tuple[WindowColumn, ...]
    rules: tuple[str, ...]
    n_entries: I64
    n_bytes: int


class WindowValue(NamedTuple):
    """The value of a windowed column of one key. `rules`: the names of the rules that read it."""

    column: WindowColumn
    rules: tuple[str, ...]
    value: Any


def bytes_of_rule(section: RuleSection) -> int:
    """Return the length in a snapshot of the open runs of a rule, their events, and what SUPPRESS keeps."""
    return sum(map(_n_bytes, (section.keys, section.rows, section.suppressed_until, section.nodes)))


def _n_bytes(packed: Packed) -> int:
    return sum(memoryview(part).nbytes for part in packed.parts())


def window_states(program: Program, sections: StateSections) -> Iterator[WindowState]:
    """Yield the state of each window of the program that wrote the sections."""
    columns = {program.window_meanings[column.name]: column for column in program.windows}
    read = _rules_by_column(program)
    for section in sections.windows:
        found = [columns[meaning] for meaning in _meanings(program, section)]
        if found:
            rules = dict.fromkeys(name for column in found for name in read[column.name])
            n_entries = section.parts[0].matrix()[:, 0]
            yield WindowState(tuple(found), tuple(rules), n_entries, sum(map(_n_bytes, section.parts)))


def _meanings(program: Program, section: WindowSection) -> list[bytes]:
    """Return the meanings of the columns of a section.

    In one of window rules, the meaning of their windows precedes them; it may have no columns.
    """
    found = fingerprints_in(section.meaning)
    return found[1:] if program.has_window_rules else found


def _rules_by_column(program: Program) -> dict[str, list[str]]:
    """Return the names of the rules that read each windowed column."""
    found: dict[str, list[str]] = {column.name: [] for column in program.windows}
    names = {meaning: name for name, meaning in program.window_meanings.items()}
    for rule, meanings in zip(program.rules, program.windows_read, strict=True):
        for meaning in meanings:
            found[names[meaning]].append(rule.name)
    return found


def window_values(program: Program, sections: StateSections, slot: int) -> list[WindowValue]:
    """Return the values of all windowed columns of a key, directly after the watermark. Not for window rules.

    SEEN is left out: it depends on the next event.
    """
    if not program.windows or program.has_window_rules or sections.shared.watermark_us >= END_OF_TIME_US:
        return []
    from cep.engine.windows.context_columns import stored_rings
    from cep.engine.windows.windows import Windows, of_events

    assert sections.shared.keys is not None
    n_slots = sections.shared.keys.num_rows
    windows = Windows([of_events(column) for column in program.windows])
    windows.restore(stored_rings(program, sections.windows), n_slots)
    windows.keep_slots(_only(slot, n_slots))
    order = OrderedEvents(
        rows=np.zeros(1, np.int64),
        codes=np.zeros(1, np.int32),
        time_us=np.array([sections.shared.watermark_us + 1]),
        identity=np.zeros(0, np.uint64),
        keys=pa.nulls(0),
        first_rows=np.zeros(0, np.int64),
        n_duplicates=(),
    )
    no = np.zeros(1, np.bool_)
    found = windows.compute(
        order, np.zeros(1, np.int32), 1, 1, lambda name: (np.zeros(1, np.int64), no), lambda place: no
    )
    strings, read = StringPool(sections.shared.strings), _rules_by_column(program)
    return [
        WindowValue(
            column,
            tuple(read[column.name]),
            arrow_of(*found[column.name], column.type, strings)[0].as_py(),
        )
        for column in program.windows
        if column.function is not Function.SEEN
    ]


def _only(slot: int, n_slots: int) -> Mask:
    live = np.zeros(n_slots, np.bool_)
    live[slot] = True
    return live


def open_windows(program: Program, sections: StateSections, slot: int) -> pa.Table:
    """Return the open windows of a key of window rules, with their values so far (`Program.match_schema`).

    `match_start` and `match_end` are those of the windows. Conditions of HAVING are left out, and so are
    windows without events. Raises StateError: the sections are damaged.
    """
    if not program.has_window_rules:
        return program.match_schema.empty_table()
    from cep.engine.matching.match_batch import build_matches
    from cep.engine.state.event_lists import KeptEvents, Nodes
    from cep.engine.tables.tables import GivenTable
    from cep.engine.window_rules.window_rules import Due, WindowRules
    from cep.schema.arrow_types import ARROW_TYPES

    shared, all_keys = sections.shared, sections.shared.keys
    assert all_keys is not None
    given = {
        table.name: GivenTable(
            table, pa.table({field.name: pa.array([], ARROW_TYPES[field.type]) for field in table.fields})
        )
        for table in program.joins.declared
        if table.is_static
    }
    strings = StringPool(shared.strings)
    windows = WindowRules(program, given)
    windows.restore(sections.windows, all_keys.num_rows)
    windows.keep_slots(_only(slot, all_keys.num_rows))
    found: list[list[I64]] = [[] for _ in program.rules]
    due = Due(None, None, np.zeros(0, np.int32), program, strings)
    windows.open_windows(due, 1, shared.watermark_us, lambda number, rows: found[number].append(rows))
    keys = [column.combine_chunks() for column in all_keys.slice(slot, 1).columns]
    kept = KeptEvents(np.zeros(0, np.int64), program.kept_schema.empty_table())
    return build_matches(program, found, keys, strings, [Nodes(rule) for rule in program.rules], kept)


def table_rows(program: Program, sections: StateSections) -> Iterator[tuple[str, pa.Table, bool]]:
    """Yield the name, the kept rows, and whether the key of the rows is that of the rules, of each table.

    The column `tables.KEY` of the rows contains their keys. Static tables are not kept here.
    """
    numbers = {meaning: name for name, meaning in joined_meanings(program).items()}
    places = {table_name(number): joined for number, joined in enumerate(program.joins.tables)}
    for section in sections.tables:
        joined = places[numbers[section.meaning]]
        yield joined.table.name, section.rows, joined.is_co_partitioned


def row_of_key(rows: pa.Table, key: pa.Table) -> dict[str, Any] | None:
    """Return the row of a key in rows of `table_rows`. `key`: one row with the columns of the key."""
    import pyarrow.compute as pc

    from cep.engine.tables.tables import KEY, texts_or_numbers

    wanted = texts_or_numbers(key_values(key, tuple(key.column_names)))
    found = rows.filter(pc.equal(rows.column(KEY), wanted[0])).drop_columns([KEY]).to_pylist()
    return found[0] if found else None


def suppressed_until(program: Program, sections: StateSections, slot: int) -> dict[str, int]:
    """Return until when matches of a key are not reported, by rule, in microseconds since 1970."""
    limits = {rule.name: (rule.suppress_us, rule.n_per_day) for rule in program.rules}
    found = {
        section.name: Suppression(*limits[section.name], section.suppressed_until.matrix()[:, 0]).ends_us(
            slot
        )
        for section in sections.rules
        if any(limits[section.name]) and section.suppressed_until.n_rows
    }
    return {name: until for name, until in found.items() if until > sections.shared.watermark_us}
