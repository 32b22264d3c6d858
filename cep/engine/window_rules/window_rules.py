"""Window rules: a row at each window's end, from values over its events.

The end of a window becomes a row of its key after the events of the window's last instant. The window kernels
compute the values of this row as for an event. Rows for which HAVING is TRUE become matches.

With FOR EACH, a window without events also has a row if its key was in a table from its start to its end
(`silent_windows`). Such rows differ only in key and window, so HAVING is evaluated only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I32, I64, Mask
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.kernels import layout as at
from cep.engine.kernels.columns.order import count_keys, hash_values
from cep.engine.order.column_cells import arrow_of, cells_of
from cep.engine.order.ordering import OrderedEvents
from cep.engine.prepare.columns import lent, whole
from cep.engine.prepare.predicates import Vectors, evaluate, is_all
from cep.engine.state.packing import Packed, packed
from cep.engine.state.runs import new_matches
from cep.engine.state.sections import TableSection, WindowSection, damaged
from cep.engine.state.strings import Cells, StringPool
from cep.engine.tables.tables import GivenTable, Tables
from cep.engine.window_rules.ends import LAST, Ends, Timeline, next_end_us, places_behind, steps_of
from cep.engine.window_rules.silent_windows import (
    Presence,
    SilentWindows,
    SlotsOf,
    next_silent_end_us,
    silent_windows,
)
from cep.engine.windows.context_columns import restore_tables, sections_of, with_joined_columns
from cep.engine.windows.kernels.layout import NEVER
from cep.engine.windows.rings import StoredRing
from cep.engine.windows.windows import IS_EVENT, Windows, of_events
from cep.expression import column_names
from cep.program.fingerprint import joined_meanings
from cep.program.identity import FINGERPRINT_BYTES, fingerprints_in
from cep.program.program import TIME_COLUMN, Program, RuleProgram, bits_column
from cep.program.tables import VERSION_COLUMN, table_name
from cep.program.windows import Frame, Window, WindowColumn

_MOST_ENDS = 1 << 16
"""About this many events and ends of windows are evaluated together, so that their columns stay in the cache.
Those of one key are always evaluated together.
"""

Column = tuple[I64, Mask | None]
"""Cells, and which are known; None: all."""

Found = Callable[[int, I64], None]
"""Takes the number of a rule and matches of it (`cep.engine.kernels.layout`)."""


@dataclass(frozen=True)
class Due:
    """Events that the watermark has reached, in order, and their columns.

    Parameters
    ----------
    table
        Prepared events; None: there are none.
    slots : (keys of `order`,) int32
        The slot of each key.
    """

    table: pa.Table | None
    order: OrderedEvents | None
    slots: I32
    program: Program
    strings: StringPool
    _columns: dict[str, Column] = field(default_factory=dict)

    def cells(self, name: str) -> Column:
        """Return a column, by row of the table."""
        if name not in self._columns:
            self._columns[name] = (
                (np.zeros(0, np.int64), None)
                if self.table is None
                else cells_of(whole(self.table.column(name)), self.program.type_of(name), self.strings)
            )
        return self._columns[name]

    def bits(self, word: int) -> I64:
        """Return a word of predicates, by row of the table."""
        if self.table is None:
            return np.zeros(0, np.int64)
        return np.asarray(whole(self.table.column(bits_column(word))))


class WindowRules:
    """The open windows of a program of window rules, and the tables that they join. `given`: see `Tables`."""

    def __init__(self, program: Program, given: Mapping[str, GivenTable]) -> None:
        self.program = program
        self.tables = Tables(program, given)
        numbers: dict[tuple[Window, tuple[int, int] | None, int | None], list[int]] = {}
        for number, rule in enumerate(program.rules):
            of = rule.windowed
            assert of is not None
            numbers.setdefault((of.window, of.where, of.table), []).append(number)
        self._presences: dict[int, Presence] = {}
        self._groups: list[_Group] = []
        for (window, where, table), of_window in numbers.items():
            group = _Group(program, window, where, of_window)
            if table is not None and group.silent_rules:
                group.presence = self._presences.setdefault(table, Presence(program, table))
            self._groups.append(group)
        self._first_us: int = NEVER  # of the events of the input; NEVER: there were none
        self._latest_us: int = NEVER  # of the due rows

    def _note_times(self, times_us: I64, *, are_of_events: bool) -> None:
        """Note the times that the input has reached, and the first time of its events."""
        self._latest_us = max(self._latest_us, int(times_us.max(initial=NEVER)))
        if are_of_events and len(times_us):
            first_us = int(times_us.min())
            self._first_us = first_us if self._first_us == NEVER else min(self._first_us, first_us)

    def place_versions(self, slots_of: SlotsOf) -> None:
        """Assign slots to the keys of the added versions."""
        for presence in self._presences.values():
            presence.place(slots_of)

    def take_in(self, versions: pa.Table) -> pa.Table | None:
        """Add due versions of tables: prepared rows. No view has events here.

        Versions without a key give the time covered by the input (`cep.engine.prepare.versions.extent_rows`).
        """
        if self.program.has_silent_windows:
            times_us = np.asarray(whole(versions.column(TIME_COLUMN)))
            has_key = np.asarray(pc.is_valid(versions.column(self.program.key_columns[0])))
            tells_event = np.asarray(whole(versions.column(VERSION_COLUMN))) < 0
            self._note_times(times_us, are_of_events=False)
            self._note_times(times_us[~has_key & tells_event], are_of_events=True)
            versions = versions.filter(pa.array(has_key))
            for presence in self._presences.values():
                presence.take_in(versions)
        return self.tables.take_in(versions) if versions.num_rows else None

    def run(self, due: Due, n_slots: int, before_us: int, watermark_us: int, found: Found) -> None:
        """Advance event time from `before_us` to `watermark_us`. Pass the rows of ended windows to `found`.

        `due`: the events in between. They get the columns of tables. `found`: receives the rows of a rule,
        for each key in the order of their ends.
        """
        if due.table is not None and due.order is not None:
            if self._presences:
                self._note_times(np.asarray(whole(due.table.column(TIME_COLUMN))), are_of_events=True)
            due = replace(due, table=with_joined_columns(self.tables, due.table, due.order))
        until_us = watermark_us
        if watermark_us >= END_OF_TIME_US:  # windows without events end with the input
            until_us = max(self._latest_us, before_us)
        after_us = max(before_us, self._first_us)
        for group in self._groups:
            silent = None
            if group.presence is not None and self._first_us != NEVER:
                silent = silent_windows(group.window, group.presence.stays(n_slots), after_us, until_us)
            group.run(due, n_slots, before_us, watermark_us, found, silent)
        for presence in self._presences.values():
            presence.set_slots(n_slots)
            presence.settle()
        self._latest_us = NEVER

    def open_windows(self, none_due: Due, n_slots: int, watermark_us: int, found: Found) -> None:
        """Pass the open windows with events to `found`, as rows of windows that the end of the input ends.

        HAVING is left out. Use the object no more: its windows are closed then. `none_due`: no events.
        """
        for group in self._groups:
            group.leave_out_having()
            group.run(none_due, n_slots, watermark_us, END_OF_TIME_US, found, None)

    def next_end_us(self, watermark_us: int) -> int | None:
        """Return when the next window of any key ends; None: no window is open."""
        ends = [group.next_end_us(watermark_us, self._first_us) for group in self._groups]
        return min((end for end in ends if end is not None), default=None)

    def live(self, n_slots: int, watermark_us: int) -> Mask:
        """Return which keys have an open window."""
        live = np.zeros(n_slots, np.bool_)
        for group in self._groups:
            group.set_slots(n_slots)
            live |= group.is_open
        for presence in self._presences.values():
            presence.set_slots(n_slots)
            live |= presence.since_us != NEVER
        return live

    def expire(self, watermark_us: int) -> None:
        """Release what no open window contains."""
        for group in self._groups:
            group.expire(watermark_us)
        self.tables.fold()

    def keep_slots(self, live: Mask) -> None:
        """Forget the keys that are not in `live`; the others move up."""
        for group in self._groups:
            group.keep_slots(live)
        for presence in self._presences.values():
            presence.since_us = presence.since_us[live]

    def string_cells(self) -> Cells:
        """Return arrays that hold codes of strings, and where these contain a code."""
        return [cells for group in self._groups for cells in group.values.string_cells()]

    def sections(self) -> tuple[WindowSection, ...]:
        """Return the contents of open windows, for a snapshot."""
        found = [section for group in self._groups for section in group.sections()]
        meanings = joined_meanings(self.program)
        first_us = packed(np.array([[self._first_us]]))
        for number, presence in self._presences.items():
            since_us = packed(presence.since_us[:, np.newaxis])
            found.append(WindowSection(meanings[table_name(number)], (since_us, first_us)))
        return tuple(found)

    def table_sections(self) -> tuple[TableSection, ...]:
        """Return what is kept of tables, for a snapshot."""
        return sections_of(self.tables)

    def restore(
        self, sections: Sequence[WindowSection], n_slots: int, tables: Sequence[TableSection] = ()
    ) -> None:
        """Restore what `sections` and `table_sections` returned.

        It may come from a program with its rules in a different order. Raises StateError: it is damaged
        (E0702).
        """
        try:
            of_group: dict[bytes, list[WindowSection]] = {}
            for section in sections:
                of_group.setdefault(bytes(section.meaning[:FINGERPRINT_BYTES]), []).append(section)
            for group in self._groups:
                group.restore(of_group.pop(group.meaning), n_slots)
            meanings = joined_meanings(self.program)
            for number, presence in self._presences.items():
                (section,) = of_group.pop(meanings[table_name(number)])
                since_us, first_us = section.parts
                presence.since_us = since_us.matrix()[:, 0]
                self._first_us = int(first_us.matrix()[0, 0])
                if len(presence.since_us) != n_slots:
                    raise ValueError("the keys of a table do not fit the keys")
            if of_group:
                raise ValueError("other windows were stored")
            restore_tables(self.tables, tables)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged("its windows or tables do not fit its rules") from error


class _Group:
    """The rules with the same windows over the same events."""

    def __init__(
        self, program: Program, window: Window, where: tuple[int, int] | None, numbers: Sequence[int]
    ) -> None:
        self.program = program
        self.window = window
        self.where = where
        self.rules = [(number, program.rules[number]) for number in numbers]
        names = {name for _, rule in self.rules for name in _columns_of(rule)}
        self.columns = [column for column in program.windows if column.name in names]
        self.values = Windows([of_events(column) for column in self.columns])
        self.meaning = program.window_rule_meanings[numbers[0]]
        self._step = steps_of(window)
        self._windows_of_event = 1
        if window.frame is Frame.HOPPING:
            self._windows_of_event = -(-window.length // window.every_us)
        self._state = _closed(0)
        self.presence: Presence | None = None  # of the table of FOR EACH, if silence is reported
        self._of_silence = {column.name: _of_nothing(column) for column in self.columns}
        self.silent_rules = {
            number
            for number, rule in self.rules
            if rule.windowed is not None
            and rule.windowed.table is not None
            and _holds_of(rule, self._of_silence, self.columns)
        }

    def run(
        self,
        due: Due,
        n_slots: int,
        before_us: int,
        watermark_us: int,
        found: Found,
        silent: SilentWindows | None,
    ) -> None:
        self.set_slots(n_slots)
        starts = np.zeros(len(due.slots) + 1, np.int64)
        if due.order is not None:
            count_keys(lent(due.order.codes), starts)
        is_other = self.is_open
        if silent is not None:
            is_other[silent.slots] = True
        is_other[due.slots] = False
        others = np.flatnonzero(is_other)
        slots = np.concatenate((due.slots, others)).astype(np.int64)
        starts = np.concatenate((starts, np.full(len(others), starts[-1])))
        n_of_slot = (np.diff(starts) + 1) * self._windows_of_event
        if silent is not None:
            n_of_slot += silent.counts(n_slots)[slots]
        n_ends = np.cumsum(n_of_slot)
        first = 0
        while first < len(slots):
            done = int(n_ends[first - 1]) if first else 0
            behind = max(int(np.searchsorted(n_ends, done + _MOST_ENDS, side="right")), first + 1)
            part = _Part(due, slots[first:behind], starts[first : behind + 1])
            self._run_part(part, before_us, watermark_us, found, silent)
            first = behind
        self.values.close(self.is_open)

    def _run_part(
        self, part: _Part, before_us: int, watermark_us: int, found: Found, silent: SilentWindows | None
    ) -> None:
        timeline = part.timeline(self.where)
        state = self._state[part.slots]
        ends, self._state[part.slots] = self._step(self.window, timeline, state, before_us, watermark_us)
        columns = self._values_at(part, timeline, ends) if self.columns else {}
        without = None if silent is None else self._without_events(silent, part, ends)
        if not len(ends.codes) and (without is None or not len(without.codes)):
            return
        for number, rule in self.rules:
            rows, codes = np.zeros((0, new_matches(rule, 0).shape[1]), np.int64), ends.codes
            if len(ends.codes):
                chosen = _chosen(rule, columns, self.columns, len(ends.codes), part.due.strings)
                rows = _matches(rule, part.slots, ends, columns, chosen)
                codes = ends.codes if chosen is None else ends.codes[chosen]
            if without is not None and number in self.silent_rules:
                n = len(without.codes)
                same = {name: _repeated(column, n) for name, column in self._of_silence.items()}
                rows = np.concatenate((rows, _matches(rule, part.slots, without, same, None)))
                codes = np.concatenate((codes, without.codes))
                rows = rows[np.lexsort((rows[:, at.MATCH_END], codes))]
            if len(rows):
                found(number, rows)

    def _without_events(self, silent: SilentWindows, part: _Part, ends: Ends) -> Ends:
        """Return the windows of a part's keys that end now without an event; `ends` are those with events."""
        codes, windows = silent.without(part.slots, len(self._state), ends.codes, ends.start_us)
        end_us = silent.ends_us[windows]
        return Ends(codes, end_us - 1, silent.begins_us[windows], end_us, np.zeros(0, np.int64))

    def _values_at(self, part: _Part, timeline: Timeline, ends: Ends) -> dict[str, Column]:
        """Return the values at the ends of windows; the events that open windows need are kept."""
        n, m = len(timeline.codes), len(ends.codes)
        if not n and not m:
            return {}
        if ends.first is not None and m:
            bounds = np.append(ends.first, n)
            totals = self.values.totals(
                bounds, n, partial(part.cells, n_ends=0), partial(part.holds, n_ends=0)
            )
            if totals is not None:
                return totals
        of_key = np.diff(part.starts)
        low = part.starts[ends.codes] - part.starts[0]
        places = places_behind(timeline.time_us, low, low + of_key[ends.codes], ends.at_us)
        codes = np.insert(timeline.codes, places, ends.codes)
        begins_us = None
        if len(ends.begins_us) or self.window.frame is not Frame.HOPPING:
            begins_us = np.insert(ends.begins_us, places, ends.start_us)
        is_there = np.zeros(len(part.slots), np.bool_)
        is_there[codes] = True
        order = OrderedEvents(
            rows=np.insert(np.arange(n), places, np.arange(n, n + m)),
            codes=(np.cumsum(is_there) - 1)[codes].astype(np.int32),
            time_us=np.insert(timeline.time_us, places, ends.at_us),
            identity=np.zeros(0, np.uint64),
            keys=pa.nulls(0),
            first_rows=np.zeros(0, np.int64),
            n_duplicates=(),
        )
        found = self.values.compute(
            order,
            part.slots[is_there].astype(np.int32),
            len(self._state),
            n + m,
            lambda name: part.cells(name, m),
            lambda place: part.holds(place, m),
            begins_us,
        )
        return {
            name: (values[n:], None if known is None else known[n:])
            for name, (values, known) in found.items()
        }

    def next_end_us(self, watermark_us: int, first_us: int) -> int | None:
        end_us = next_end_us(self.window, self._state, watermark_us)
        since_us = None if self.presence is None else self.presence.first_us
        if since_us is None or first_us == NEVER:
            return end_us
        silent_us = next_silent_end_us(self.window, since_us, max(watermark_us, first_us))
        return silent_us if end_us is None else min(end_us, silent_us)

    def leave_out_having(self) -> None:
        without = []
        for number, rule in self.rules:
            assert rule.windowed is not None
            without.append((number, replace(rule, windowed=replace(rule.windowed, having=None))))
        self.rules = without

    @property
    def is_open(self) -> Mask:
        """Which keys have an open window."""
        is_open: Mask = self._state[:, LAST] != NEVER
        return is_open

    def expire(self, watermark_us: int) -> None:
        self.values.expire(watermark_us - 1)  # the next ends may be at the watermark, like rows of events

    def set_slots(self, n_slots: int) -> None:
        if n_slots > len(self._state):
            self._state = np.concatenate((self._state, _closed(n_slots - len(self._state))))

    def keep_slots(self, live: Mask) -> None:
        self._state = self._state[live]
        self.values.set_slots(len(live))
        self.values.keep_slots(live)

    def sections(self) -> Iterator[WindowSection]:
        meanings = self.program.window_meanings
        self.values.set_slots(len(self._state))
        yield WindowSection(self.meaning, (packed(self._state),))
        for ring in self.values.stored():
            names = b"".join(sorted(meanings[name] for name in ring.columns))
            yield WindowSection(self.meaning + names, (ring.keys, ring.entries))

    def restore(self, sections: Sequence[WindowSection], n_slots: int) -> None:
        names = {self.program.window_meanings[column.name]: column.name for column in self.columns}
        rings: list[StoredRing] = []
        states: list[Packed] = []
        for section in sections:
            of = section.meaning[FINGERPRINT_BYTES:]
            if not of:
                states += section.parts
                continue
            columns = tuple(names[meaning] for meaning in fingerprints_in(of))
            rings.append(StoredRing(columns, *section.parts))
        (state,) = states
        if (state.n_rows, len(state.low)) != (n_slots, 2):
            raise ValueError("the windows do not fit the keys")
        self._state = state.matrix()
        self.values.restore(rings, n_slots)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some keys: their slots, and where the events of each start in the order of all."""

    due: Due
    slots: I64  # (keys,)
    starts: I64  # (keys + 1,)

    @property
    def _events(self) -> slice:
        return slice(int(self.starts[0]), int(self.starts[-1]))

    @property
    def _rows(self) -> I64:
        order = self.due.order
        return np.zeros(0, np.int64) if order is None else order.rows[self._events]

    def timeline(self, where: tuple[int, int] | None) -> Timeline:
        """Return the events of the keys; `where` says which count."""
        order = self.due.order
        times = np.zeros(0, np.int64) if order is None else order.time_us[self._events]
        codes = np.repeat(np.arange(len(self.slots)), np.diff(self.starts))
        counting = np.arange(len(times))
        if where is not None:
            counting = np.flatnonzero(self.holds(where, 0))
        return Timeline(codes, times, counting)

    def cells(self, name: str, n_ends: int) -> Column:
        """Return a column of the events of the keys, then NULL for the ends of windows."""
        values, known = self.due.cells(name)
        if known is None and not n_ends:
            return values[self._rows], None
        of_events = np.ones(len(self._rows), np.bool_) if known is None else known[self._rows]
        return (
            np.concatenate((values[self._rows], np.zeros(n_ends, np.int64))),
            np.concatenate((of_events, np.zeros(n_ends, np.bool_))),
        )

    def holds(self, place: tuple[int, int], n_ends: int) -> Mask:
        """Return the events of the keys for which a predicate holds; it never holds for ends of windows."""
        of_events = np.ones(len(self._rows), np.bool_)
        if place != IS_EVENT:
            word, bit = place
            of_events = (self.due.bits(word)[self._rows] >> np.int64(bit) & 1).astype(np.bool_)
        return np.concatenate((of_events, np.zeros(n_ends, np.bool_)))


def _closed(n: int) -> I64:
    return np.full((n, 2), NEVER, np.int64)


def _columns_of(rule: RuleProgram) -> set[str]:
    assert rule.windowed is not None
    having = rule.windowed.having
    return {*rule.windowed.columns, *(() if having is None else column_names(having))}


def _of_nothing(column: WindowColumn) -> Column:
    """Return the value of a window without events."""
    value = column.function.value.of_nothing
    return np.array([value or 0], np.int64), np.array([value is not None])


def _repeated(column: Column, n: int) -> Column:
    values, known = column
    return np.repeat(values, n), None if known is None else np.repeat(known, n)


def _holds_of(rule: RuleProgram, nothing: Mapping[str, Column], of: Sequence[WindowColumn]) -> bool:
    """Return whether a window without events has a row."""
    chosen = _chosen(rule, nothing, of, 1, StringPool())
    return chosen is None or len(chosen) > 0


def _chosen(
    rule: RuleProgram, columns: Mapping[str, Column], of: Sequence[WindowColumn], n: int, strings: StringPool
) -> I64 | None:
    """Return for which windows HAVING is TRUE; None: there is no HAVING."""
    assert rule.windowed is not None
    having = rule.windowed.having
    if having is None:
        return None
    read = column_names(having)
    arrays = {
        column.name: arrow_of(*columns[column.name], column.type, strings)
        for column in of
        if column.name in read
    }
    vector = evaluate(having, Vectors(pa.table({"#": pa.nulls(n), **arrays})))
    holds = vector.values if is_all(vector.known) else vector.values & vector.known
    return np.flatnonzero(holds)


def _matches(
    rule: RuleProgram, slots: I64, ends: Ends, columns: Mapping[str, Column], chosen: I64 | None
) -> I64:
    """Return the rows of windows as matches."""
    assert rule.windowed is not None
    chosen = np.arange(len(ends.codes)) if chosen is None else chosen
    rows = np.zeros((len(chosen), new_matches(rule, 0).shape[1]), np.int64)
    rows[:, at.MATCH_SLOT] = slots[ends.codes[chosen]]
    rows[:, at.MATCH_START] = ends.start_us[chosen]
    rows[:, at.MATCH_END] = ends.end_us[chosen]
    hashed, all_known = np.zeros(len(chosen), np.uint64), np.ones(len(chosen), np.uint8)
    for column in (at.MATCH_START, at.MATCH_END):
        hash_values(np.ascontiguousarray(rows[:, column]), all_known, hashed)
    rows[:, at.MATCH_HASH] = hashed.view(np.int64)
    for number, name in enumerate(rule.windowed.columns):
        values, known = columns[name]
        is_known = np.ones(len(chosen), np.bool_) if known is None else known[chosen]
        rows[:, at.MATCH_REGISTER + number] = np.where(is_known, values[chosen], 0)
        rows[:, at.MATCH_VALID] |= is_known.astype(np.int64) << np.int64(number)
    return rows
