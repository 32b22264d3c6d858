"""The runs of one rule, event by event: what the kernels did with each of them.

The kernels are those of every run. They receive one event at a time, and the open runs are copied in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cep.arrays import I32, I64, Mask
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.kernels import layout as at
from cep.engine.kernels.conditions import (
    begin_run,
    can_take,
    holds,
    is_excluded,
    is_forbidden,
    is_past_last_event,
    next_take,
    set_clocks,
    set_deadline,
    state_after_releases,
)
from cep.engine.kernels.registers import update_registers
from cep.engine.matching.matcher import Matcher
from cep.engine.order.column_cells import ColumnCells
from cep.engine.order.event_blocks import event_blocks
from cep.engine.order.ordering import OrderedEvents
from cep.engine.prepare.columns import lent, whole
from cep.engine.state.event_lists import Nodes
from cep.engine.state.runs import RunPool, key_width, n_registers, new_matches, new_stack
from cep.engine.state.strings import StringPool
from cep.expression import Type
from cep.program.opcodes import Mode
from cep.program.program import Program, RuleProgram, bits_column

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable


class Guard(StrEnum):
    """What an event does to a run: the checks of `cep.engine.kernels.step`, in their order."""

    EXCLUDED = "an exclusion of its state holds"
    NOT_NEXT = "an absence directly after the last event is broken"
    TAKEN = "the run takes it"
    STRICT = "the run ignores nothing"
    BEGINS = "another branch begins with it"
    NOT_FOLLOWED_BY = "an absence is broken"
    LAST_EVENT = "it is the last event that a limit allows"
    IGNORED = "the run ignores it"


class _AllNodes(Nodes):
    """Nodes of which none is dropped, so the number of a node stays what it is."""

    def compact(self, pool: RunPool, found: Sequence[I64]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The open runs of a key after an event, or after the deadlines before it.

    Parameters
    ----------
    event
        The place of the event in `Watched.events`; after the last one: the end of the input.
    by_time
        Whether it is before the event, after what time ends before it. There is one for each time at which
        something ends, and one directly before the event.
    at_us
        The event time up to which everything has ended.
    rows : (runs, width) int64
        The open runs, in order, with columns as in `cep.engine.kernels.layout`.
    matches : (n, width) int64
        The matches and timeouts of the moment.
    n_dropped
        Runs dropped at MAX RUNS so far.
    """

    event: int
    by_time: bool
    at_us: int
    rows: I64
    matches: I64
    n_dropped: int


@dataclass(frozen=True, slots=True)
class Watched:
    """n events of one key and what the runs of a rule did with them.

    Parameters
    ----------
    events
        The events in order: the columns of prepared events, of tables and of windows.
    time_us : (n,) int64
        Their event times.
    bits : (n,) int64
        The bits of the local predicates that hold.
    moments
        In order. Events outside the watched times have none.
    nodes : (nodes, NODE_WIDTH) int64
        The events that runs took (`cep.engine.kernels.event_nodes`).
    """

    rule: RuleProgram
    events: pa.Table
    time_us: I64
    bits: I64
    moments: tuple[Moment, ...]
    nodes: I64
    strings: StringPool
    packed: I64
    fields: I64

    def after_take(self, row: I64, variable: int, event: int) -> I64:
        """Return the row of a run as it would be after it took an event as a variable."""
        runs = row[None].copy()
        address = int(self.packed[at.VARIABLES]) + at.VARIABLE_WIDTH * variable
        with np.errstate(all="ignore"):
            update_registers(self.packed, self.fields, runs, address, 0, event, event)
        taken: I64 = runs[0]
        return taken

    def successors(self, row: I64, variable: int, event: int) -> Iterator[tuple[I64, bool]]:
        """Yield what a run becomes if it takes an event as a variable, in order of preference.

        Yield also whether a limit in events ends the new run at once. The state of a complete run is
        `layout.NONE`. A `row` in state 0 is a run that starts with the event.
        """
        pool, offered, rule = self._pool(row, event), self._offered(event), self.packed
        runs, scratch = pool.runs, int(pool.meta[at.SCRATCH_RUN])
        state = int(row[at.STATE])
        if state == 0:
            begin_run(rule, runs, 0, offered)
            if self.rule.is_timed:
                runs[0, rule[at.CLOCK] + at.START_EVENT] = event + 1
        elif rule[at.HAS_EXCLUSIONS]:
            state = int(state_after_releases(pool, offered, state, 0))
        place = at.place_of(state)
        for take in range(rule[place + at.STATE_TAKES], rule[place + at.STATE_TAKES + at.END], at.TAKE_WIDTH):
            if self._number(rule[take + at.TAKE_VARIABLE]) != variable or not can_take(
                pool, offered, take, 0
            ):
                continue
            runs[scratch] = self.after_take(runs[0], variable, event)
            if self.rule.is_timed:
                set_clocks(rule, runs, scratch, take, offered.time_us, event + 1)
            for entry in range(rule[take + at.TAKE_AFTERS], rule[take + at.TAKE_AFTERS + at.END]):
                after, is_over = int(rule[entry]), False
                if self.rule.is_timed and after != at.NONE:
                    set_deadline(rule, runs, scratch, after)
                    is_over = bool(is_past_last_event(pool, 0, scratch))
                    if is_over and rule[at.place_of(after) + at.STATE_CLOSES]:
                        after, is_over = at.NONE, False
                runs[scratch, at.STATE] = after
                yield runs[scratch].copy(), is_over

    def first_row(self) -> I64:
        """Return the row of a run that has taken nothing yet."""
        row: I64 = np.zeros(at.REGISTER + n_registers(self.rule) + self._n_clocks, np.int64)
        row[at.VALID] = self.packed[at.ZERO_VALID]
        return row

    @property
    def _n_clocks(self) -> int:
        return at.GROUP_CLOCK + len(self.rule.tables.group_us) if self.rule.is_timed else 0

    def guard(self, row: I64, event: int) -> tuple[Guard, int]:
        """Return what the event does to an open run, and the variable that decides it; -1: none."""
        with np.errstate(all="ignore"):  # integers may overflow, as in machine code
            return self._guard(row, event)

    def _guard(self, row: I64, event: int) -> tuple[Guard, int]:
        pool, offered, rule = self._pool(row, event), self._offered(event), self.packed
        state = int(row[at.STATE])
        if rule[at.HAS_EXCLUSIONS]:
            state = int(state_after_releases(pool, offered, state, 0))
        place = at.place_of(state)
        excluded = range(rule[place + at.STATE_EXCLUSIONS], rule[place + at.STATE_EXCLUSIONS + at.END],
                         at.EXCLUSION_WIDTH)  # fmt: skip
        for first in excluded:
            if is_excluded(pool, offered, first, first + at.EXCLUSION_WIDTH, 0):
                return Guard.EXCLUDED, self._number(rule[first + at.EXCLUSION_VARIABLE])
        if is_forbidden(pool, offered, place, 0):
            return Guard.NOT_NEXT, self._first_of(pool, offered, place + at.STATE_NOT_NEXT)
        last = rule[place + at.STATE_TAKES + at.END]
        early = self.early_by_us(row, event) > 0
        take = last if early else next_take(pool, offered, rule[place + at.STATE_TAKES], last, 0)
        if take < last and rule[place + at.STATE_MODE] != Mode.ANY:
            return Guard.TAKEN, self._number(rule[take + at.TAKE_VARIABLE])
        if rule[place + at.STATE_MODE] == Mode.STRICT:
            return Guard.STRICT, -1
        if rule[place + at.STATE_MODE] == Mode.NEXT and not early:
            number = self._first_of(pool, offered, place + at.STATE_BEGINS)
            if number >= 0:
                keeps_out = self._keeps_out(pool, offered, place)
                return (Guard.EXCLUDED, keeps_out) if keeps_out >= 0 else (Guard.BEGINS, number)
        number = self._first_of(pool, offered, place + at.STATE_NOT_FOLLOWED_BY)
        if number >= 0:
            return Guard.NOT_FOLLOWED_BY, number
        if self.rule.is_timed and is_past_last_event(pool, 0, 0):
            return Guard.LAST_EVENT, -1
        return (
            (Guard.TAKEN, self._number(rule[take + at.TAKE_VARIABLE])) if take < last else (Guard.IGNORED, -1)
        )

    def early_by_us(self, row: I64, event: int) -> int:
        """Return by how much an event is too early for the run; 0 or less: it is not too early."""
        if not self.rule.is_timed:
            return 0
        low = int(self.packed[at.place_of(int(row[at.STATE])) + at.STATE_LOW])
        return int(row[self.packed[at.CLOCK] + at.LAST_US]) + low - int(self.time_us[event])

    def holds(self, row: I64, variable: int, event: int) -> bool:
        """Return whether the condition of a variable holds for a run and an event."""
        address = int(self.packed[at.VARIABLES]) + at.VARIABLE_WIDTH * variable
        with np.errstate(all="ignore"):
            return bool(holds(self._pool(row, event), self._offered(event), address, 0))

    def keeps_out(self, row: I64, event: int) -> int:
        """Return the variable that keeps the event out of a take of the state of a run; -1: none does."""
        pool, offered, state = self._pool(row, event), self._offered(event), int(row[at.STATE])
        return self._keeps_out(pool, offered, at.place_of(state))

    def _keeps_out(self, pool: at.Pool, offered: at.Offered, place: int) -> int:
        """Return the number of the variable that keeps the event out of a take of a state; -1: none does."""
        rule = self.packed
        for take in range(rule[place + at.STATE_TAKES], rule[place + at.STATE_TAKES + at.END], at.TAKE_WIDTH):
            if holds(pool, offered, rule[take + at.TAKE_VARIABLE], 0):
                first, last = rule[take + at.TAKE_EXCLUSIONS], rule[take + at.TAKE_EXCLUSIONS + at.END]
                for exclusion in range(first, last, at.EXCLUSION_WIDTH):
                    if is_excluded(pool, offered, exclusion, exclusion + at.EXCLUSION_WIDTH, 0):
                        return self._number(rule[exclusion + at.EXCLUSION_VARIABLE])
        return -1

    def _first_of(self, pool: at.Pool, offered: at.Offered, place: int) -> int:
        """Return the number of the first variable of a list of a state that holds; -1: none does."""
        for entry in range(self.packed[place], self.packed[place + at.END]):
            if holds(pool, offered, self.packed[entry], 0):
                return self._number(self.packed[entry])
        return -1

    def _number(self, variable: int) -> int:
        return int(variable - self.packed[at.VARIABLES]) // at.VARIABLE_WIDTH

    def _offered(self, event: int) -> at.Offered:
        return at.Offered(self.fields, int(self.bits[event]), 0, event, event, int(self.time_us[event]))

    def _pool(self, row: I64, event: int) -> at.Pool:
        """Return a pool of this run alone, whose key has had the events up to `event`."""
        keys, meta = np.zeros((1, key_width(self.rule)), np.int64), np.zeros(at.N_META, np.int64)
        if self.rule.is_timed:
            keys[0, at.N_EVENTS] = event + 1
        meta[at.SCRATCH_RUN] = 1
        stack = new_stack(self.rule)
        return at.Pool(
            rule=self.packed,
            runs=np.stack((row, row)),
            keys=keys,
            meta=meta,
            matches=new_matches(self.rule, 1),
            nodes=self.nodes,
            stack=stack,
            null=np.zeros(len(stack), np.uint8),
        )

    def register(self, rows: I64, number: int) -> pa.Array:
        """Return the values that a register has in some rows of runs."""
        cells = np.ascontiguousarray(rows[:, at.REGISTER + number])
        known = rows[:, at.VALID] >> number & 1 != 0
        return self.strings.values_of(self.rule.registers[number].type, cells, known)

    def set_of(self, row: I64, number: int) -> tuple[list[object], bool]:
        """Return the values of the set that register `number` counts, and whether NULL is among them."""
        kind = self.rule.registers[number + 1].values
        assert kind is not None
        found: list[object] = []
        has_null, node = False, int(row[at.REGISTER + number + 1]) - 1
        while node >= 0:
            parent, value, mark = self.nodes[node].tolist()
            has_null |= mark == at.NULL_NODE
            if mark != at.NULL_NODE:
                found.append(self._value(kind, value))
            node = parent
        return found, has_null

    def _value(self, kind: Type, cell: int) -> object:
        cells, known = np.array([cell], np.int64), np.ones(1, np.bool_)
        if kind in (Type.STRING, Type.DOUBLE, Type.BOOLEAN):
            return self.strings.values_of(kind, cells, known)[0].as_py()
        return cell


class WatchedMatcher(Matcher):
    """A matcher of one rule that reports events (`cep.compiler.lowering.parts.WatchedRule`).

    `tables`: as for `Matcher`.
    """

    def __init__(self, program: Program, tables: Mapping[str, GivenTable] | None = None) -> None:
        super().__init__(program, tables)
        (self._state,) = self._rules
        self._state.nodes = _AllNodes(self._state.rule)
        if self._context is not None:
            self._context.readers = None  # the values of all events are shown

    def _used(self, table: pa.Table, order: OrderedEvents, slots: I32 | None) -> I64 | None:
        """Return None: every event is shown, even if no rule can use it."""
        return None

    def watch(
        self,
        prepared: Sequence[pa.Table],
        first_us: int,
        last_us: int,
        identities: tuple[I64, Mask] | None = None,
    ) -> Watched | None:
        """Match events of one key and versions of tables; return what happened from `first_us` to `last_us`.

        None: there is no event.

        Parameters
        ----------
        prepared
            The events, then the versions.
        identities : (events,) int64, (events,) bool
            What stands for each event in the ids of matches, and where this is known. A run that drops events
            before matching counts only the others where events have equal times. None: ids do not matter.
        """
        loaded = self._load(prepared, identities)
        if loaded is None:
            return None
        first, end = np.searchsorted(loaded.time_us, [first_us, last_us + 1]).tolist()
        moments = self._moments(loaded.fields, loaded.bits, loaded.time_us, first, end)
        return replace(loaded, moments=tuple(moments), nodes=self._nodes())

    def pause(self, prepared: Sequence[pa.Table], places: I64) -> tuple[Watched, list[I64]] | None:
        """Match events of all keys; return them, and the open runs of its key before some of the events.

        None: there is no event. The result has no moments.

        `places`: the places of these events, in order.
        """
        loaded = self._load(prepared)
        if loaded is None:
            return None
        found: list[I64] = []
        done = 0
        for event in places.tolist():
            self._state.run(loaded.fields, loaded.bits, np.arange(done, event), 0, [])
            done = event
            # Events come key by key: no run of another key is open that would still get one.
            self._state.close(int(loaded.time_us[event]) - 1, [])
            found.append(self._open_runs(int(loaded.fields[at.SLOT, event])))
        self._state.run(loaded.fields, loaded.bits, np.arange(done, len(loaded.bits)), 0, [])
        self._state.close(END_OF_TIME_US, [])
        return replace(loaded, nodes=self._nodes()), found

    def _open_runs(self, slot: int) -> I64:
        """Return the open runs of a key."""
        pool = self._state.pool
        places: list[int] = []
        place = int(pool.keys[slot, at.HEAD])
        while place != at.NONE:
            places.append(place)
            place = int(pool.runs[place, at.NEXT])
        rows: I64 = pool.runs[places]
        open_rows: I64 = rows[rows[:, at.STATE] != at.PENDING]
        return open_rows

    def _nodes(self) -> I64:
        nodes: I64 = self._state.nodes.nodes[: int(self._state.pool.meta[at.N_NODES])]
        return nodes

    def _load(
        self, prepared: Sequence[pa.Table], identities: tuple[I64, Mask] | None = None
    ) -> Watched | None:
        self._pending = list(prepared)
        due, versions = self._due(END_OF_TIME_US)
        if versions is not None and self._past is not None:
            self._past.take_in(versions)
        if due is None:
            return None
        cells = ColumnCells(self.program, self._strings)
        table, order, slots, _ = self._extended(due, cells)
        blocks = event_blocks(self.program, table, order, slots, cells)
        state, n = self._state, len(order.rows)
        state.set_slots(self._n_slots)
        ((_, fields),) = blocks.blocks(n)
        if identities is not None:
            values, known = (part[order.rows] for part in identities)
            fields[at.IDENTITY] = np.where(known, values, fields[at.IDENTITY])
        bits = np.zeros(n, np.int64)
        if self.program.predicates[state.rule.word]:
            bits = lent(np.asarray(whole(table.column(bits_column(state.rule.word)))))[order.rows]
        return Watched(
            rule=state.rule,
            events=table.take(pa.array(order.rows)),
            time_us=order.time_us,
            bits=bits,
            moments=(),
            nodes=np.zeros((0, at.NODE_WIDTH), np.int64),
            strings=self._strings,
            packed=state.packed,
            fields=fields,
        )

    def _moments(self, fields: I64, bits: I64, time_us: I64, first: int, end: int) -> list[Moment]:
        state, found = self._state, list[I64]()
        if first:
            state.run(fields, bits, np.arange(first), 0, found)
            found.clear()
        moments: list[Moment] = []
        for event in range(first, end):
            self._close(event, int(time_us[event]) - 1, moments)
            state.run(fields, bits, np.arange(event, event + 1), 0, found)
            moments.append(self._moment(event, False, int(time_us[event]), found, moments))
            found.clear()
        if end == len(bits):
            self._close(end, END_OF_TIME_US, moments)
        return moments

    def _close(self, event: int, bound_us: int, moments: list[Moment]) -> None:
        """Add what ends before an event, up to `bound_us`.

        One time comes after the other: so it is known which match skipped a run before its time was over.
        """
        found: list[I64] = []
        while True:
            at_us = min(self._state.next_end_us(), bound_us)
            self._state.close(at_us, found)
            moment = self._moment(event, True, at_us, found, moments)
            found.clear()
            if at_us == bound_us or len(moment.matches) or not moments or moment.rows is not moments[-1].rows:
                moments.append(moment)
            if at_us == bound_us:
                return

    def _moment(
        self, event: int, by_time: bool, at_us: int, found: list[I64], before: list[Moment]
    ) -> Moment:
        pool = self._state.pool
        rows = pool.runs[pool.live_rows()]
        if before and np.array_equal(before[-1].rows, rows):
            rows = before[-1].rows
        width = at.MATCH_REGISTER + n_registers(self._state.rule)
        matches = [part[:, :width].copy() for part in found]
        return Moment(
            event,
            by_time,
            at_us,
            rows,
            np.concatenate(matches) if matches else np.zeros((0, width), np.int64),
            pool.n_dropped,
        )
