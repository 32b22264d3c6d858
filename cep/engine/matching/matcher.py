"""Matcher: events in, matches out, for all keys that it receives. It holds all live state.

    matcher = Matcher(program)
    late = matcher.push(events)          # a prepared table; returns the rows that came too late
    matches = matcher.advance(time_us)   # event time has reached time_us
    data = matcher.snapshot()            # and Matcher.restore(program, data) elsewhere

Events wait in a buffer until the watermark reaches them, then the rules evaluate them in order. The result
depends only on the events and on the order of their times, not on how they were divided into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I32, I64
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US, is_late, late_by_us
from cep.engine.kernels import layout as at
from cep.engine.kernels.clocks import has_open_look_behinds, run_timed_events
from cep.engine.kernels.columns.lookahead import BEGIN_MASK, mark_used
from cep.engine.kernels.columns.order import gather, rows_with
from cep.engine.kernels.windows import end_all, run_events
from cep.engine.keys.key_slots import KeySlots, make_index
from cep.engine.matching.counters import Counters, n_counted
from cep.engine.matching.deadlines import Deadlines
from cep.engine.matching.match_batch import build_matches, empty_matches
from cep.engine.matching.packed_rule import packed_rules
from cep.engine.order.column_cells import ColumnCells
from cep.engine.order.event_blocks import BLOCK_ROWS, event_blocks
from cep.engine.order.lookahead import Lookahead, use_of
from cep.engine.order.ordering import OrderedEvents, order_events
from cep.engine.prepare.columns import lent, whole
from cep.engine.prepare.versions import parted, until
from cep.engine.state import codec
from cep.engine.state.event_lists import KeptEvents, Nodes
from cep.engine.state.open_runs import awaited
from cep.engine.state.runs import StoredRuns, fan_out, make_pool, new_matches, new_stack, no_runs
from cep.engine.state.sections import RuleSection, SharedSection, StateSections, fitted
from cep.engine.state.strings import StringPool
from cep.engine.state.suppression import Suppression
from cep.errors import StateError
from cep.expression import Type
from cep.program.identity import RuleIdentity
from cep.program.opcodes import SelectionCode
from cep.program.program import TIME_COLUMN, Program, RuleProgram, bits_column
from cep.program.tables import VERSION_COLUMN

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable
    from cep.engine.window_rules.window_rules import WindowRules
    from cep.engine.windows.context_columns import Context

_FIRST_MATCHES, _MOST_MATCHES = 256, 65_536
"""Room for matches at first, and room so large that to empty it again and again costs nothing."""

MOST_PENDING = 131_072
"""Matches of a rule that are kept before they become a table, if `advance` has somewhere to emit them."""

_FEW_SLOTS, _LOOKS = 4096, 4
"""So many keys are looked at after each batch, to forget those that do not matter; more of them only after
a quarter as many events."""

_FEW_USED = 2
"""If less than one in this many events can be used, the others are left out."""

_FEW_BEGIN, _SOME_ROWS = 16, 4096
"""Events that a strict rule can use are sought if less than one in so many begins a run, of so many events.

To leave others out saves 15 ns each, and to seek them takes 4 ns an event.
"""

_MOST_SOUGHT = 8
"""Rules for each of which events are sought; more of them would take longer than they save."""

_NO_SLOTS = np.zeros(0, np.int32)

Emit = Callable[[pa.Table], None]
"""Takes in a table of matches."""


class _RuleState:
    """Open runs of one rule, and the room that its kernels need."""

    def __init__(self, rule: RuleProgram, packed: I64, stored: StoredRuns) -> None:
        self.rule = rule
        self.packed = packed
        self.pool = make_pool(stored, 0)
        self.matches = new_matches(rule, _FIRST_MATCHES)
        self.stack = new_stack(rule)
        self.null = np.zeros(len(self.stack), np.uint8)
        self.fan_out = fan_out(rule)
        self.deadlines = Deadlines(rule, self.fan_out)
        self.event_mask = int(np.uint64(rule.event_mask).astype(np.int64))
        self.use = use_of(rule)
        self.suppression = Suppression(rule.suppress_us, rule.n_per_day)
        self.run_events = run_timed_events if rule.is_timed else run_events
        self.nodes = Nodes(rule)
        self.begins_us = START_OF_TIME_US  # it sees only later events; the watermark has not reached it
        self.hand_over: Callable[[], None] | None = None  # called when `found` has become large

    def arrays(self) -> at.Pool:
        """Return the arrays of the kernels; some are replaced when room is made."""
        return at.Pool(
            rule=self.packed,
            runs=self.pool.runs,
            keys=self.pool.keys,
            meta=self.pool.meta,
            matches=self.matches,
            nodes=self.nodes.nodes,
            stack=self.stack,
            null=self.null,
        )

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        self.pool = self.pool.with_slots(n_slots)
        self.suppression.set_slots(n_slots)

    def make_room(self, slot: int, found: list[I64]) -> None:
        """Remove the matches and, if that is not enough, enlarge the pool or the room for matches."""
        self.drain(found)
        count = int(self.pool.keys[slot, at.N_RUNS])
        needed = (count + 1) * (self.fan_out + 1)
        if needed > self.pool.meta[at.N_FREE]:
            self.pool = self.pool.with_room(2 * needed)
        self.nodes.make_room(needed, self.pool, found)
        if needed + count > len(self.matches) or len(self.matches) < _MOST_MATCHES:
            self.matches = new_matches(self.rule, max(2 * (needed + count), 4 * len(self.matches)))

    def drain(self, found: list[I64]) -> None:
        """Move the matches so far to `found`."""
        n_out = int(self.pool.meta[at.N_OUT])
        if n_out:
            matches = self.matches[:n_out]
            if 2 * n_out < len(self.matches):
                matches = matches.copy()
            else:  # not copied, but passed on with its room
                self.matches = new_matches(self.rule, len(self.matches))
            self.pool.meta[at.N_OUT] = 0
            self.report(matches, found)

    def report(self, matches: I64, found: list[I64]) -> None:
        """Add matches that are not suppressed to `found`, in the order in which they were found."""
        reported = self.suppression.reported(matches)
        if len(reported):
            found.append(reported)
        if self.hand_over is not None and sum(map(len, found)) >= MOST_PENDING:
            self.hand_over()

    def report_windows(self, rows: I64, found: list[I64]) -> None:
        """Add the rows of windows that ended after the rule began."""
        if self.begins_us > START_OF_TIME_US:
            rows = rows[rows[:, at.MATCH_END] > self.begins_us]
        self.report(rows, found)

    def run(self, events: I64, bits: I64, rows: I64, base: int, found: list[I64]) -> None:
        """Offer the events of `rows` to the rule."""
        if self.begins_us > START_OF_TIME_US:
            rows = rows[events[at.TIME_US, rows] > self.begins_us]
            if not len(rows):
                return
        done = 0
        while True:
            done = self.run_events(self.arrays(), events, bits, rows, done, base, self.fan_out)
            if done == len(rows):
                break
            self.make_room(int(events[at.SLOT, rows[done]]), found)
        self.deadlines.note(self.arrays(), events, rows)
        self.drain(found)

    @property
    def overflowed_slot(self) -> int | None:
        """The key that had too many runs under ON OVERFLOW FAIL, or None."""
        slot = int(self.pool.meta[at.OVERFLOWED]) - 1
        return slot if slot >= 0 else None

    def next_end_us(self) -> int:
        """Return a time before which no run ends by time; `END_OF_TIME_US` or more: no run ever does."""
        return self.deadlines.first(self.arrays())

    def keep_slots(self, kept: npt.NDArray[np.bool_]) -> None:
        """Forget the keys that are not in `kept`."""
        self.pool = self.pool.with_keys(kept)
        self.suppression.keep_slots(kept)
        self.deadlines.forget()

    def live(self, watermark_us: int) -> npt.NDArray[np.bool_]:
        """Return which keys have an open run, matches to suppress, or a remembered event."""
        live: npt.NDArray[np.bool_] = self.pool.keys[:, at.N_RUNS] > 0
        live = live | self.suppression.matters(watermark_us)
        if self.rule.is_timed:
            live = live | has_open_look_behinds(self.rule.tables, self.pool.keys, watermark_us)
        return live

    def close(self, bound_us: int, found: list[I64]) -> None:
        """Close the windows, and end the runs by their deadlines, up to `bound_us`."""
        if self.deadlines.exist:
            self._visit_keys(lambda pool, first: self.deadlines.close(pool, first, bound_us), found)
        if bound_us == END_OF_TIME_US and self.rule.selection == SelectionCode.PREFERRED:
            self._visit_keys(end_all, found)
        self.drain(found)

    def _visit_keys(self, visit: Callable[[at.Pool, int], int], found: list[I64]) -> None:
        """Run a kernel over all keys. It stops where room is needed."""
        done = 0
        while done < len(self.pool.keys):
            done = visit(self.arrays(), done)
            if done < len(self.pool.keys):
                self.make_room(done, found)


class Matcher:
    """The rules of one program over the events of any number of keys.

    `tables`: joined tables whose versions do not come with the events, by name: the static tables.
    """

    def __init__(self, program: Program, tables: Mapping[str, GivenTable] | None = None) -> None:
        self.program = program
        self.watermark_us = START_OF_TIME_US
        names = [rule.name for rule in program.rules]
        self.counters = Counters(
            duplicates_of=[0] * len(program.streams),
            matches=dict.fromkeys(names, 0),
            timeouts=dict.fromkeys(names, 0),
            suppressed=dict.fromkeys(names, 0),
            dropped_runs=dict.fromkeys(names, 0),
        )
        self.busy_from: int | None = None  # None: `busiest` is not noted
        self.busiest: dict[str, tuple[int, int, str]] = {}  # see `_note_busiest`
        self._position = 0
        self._looked_at = 0  # after this many events
        self._pending: list[pa.Table] = []
        self._strings = StringPool(None, make_index)
        no_keys = [pa.array([], program.event_schema.field(name).type) for name in program.key_columns]
        self._keys = KeySlots(program.key_columns, no_keys)
        self._kept = KeptEvents(np.zeros(0, np.int64), program.kept_schema.empty_table())
        self._rules = [
            _RuleState(rule, packed, no_runs(rule))
            for rule, packed in zip(program.rules, packed_rules(program), strict=True)
        ]
        self._lookahead = Lookahead(program)
        self._context: Context | None = None
        self._window_rules: WindowRules | None = None
        # They load kernels that other programs do not use.
        if program.has_window_rules:
            from cep.engine.window_rules.window_rules import WindowRules

            self._window_rules = WindowRules(program, tables or {})
        elif program.windows or program.joins.tables:
            from cep.engine.windows.context_columns import Context

            self._context = Context(program, tables or {})
        self._past = self._context or self._window_rules

    @property
    def _n_slots(self) -> int:
        return len(self._keys)

    def push(self, events: pa.Table | pa.RecordBatch) -> pa.Table:
        """Add events of ``program.event_schema`` in any order; return the events that come too late.

        Versions of tables (`cep.engine.prepare.versions`) are added likewise, with the events or separately.
        """
        if isinstance(events, pa.RecordBatch):
            events = pa.Table.from_batches([events])
        time_us = np.asarray(events.column(TIME_COLUMN))
        too_late = is_late(late_by_us(time_us, self.watermark_us))
        late = events.slice(0, 0)
        if too_late.any():
            late, events = events.filter(pa.array(too_late)), events.filter(pa.array(~too_late))
        self.counters.late += n_counted(late)
        self.take_in(events)
        return late

    def take_in(self, events: pa.Table) -> None:
        """Add events that the watermark has not passed, as the caller guarantees."""
        self.counters.events += n_counted(events)
        if events.num_rows:
            self._pending.append(events)

    def advance(self, watermark_us: int, emit: Emit | None = None) -> pa.Table:
        """Advance event time to `watermark_us`; return the matches, in order (`program.match_schema`).

        The rules evaluate all events up to that time; then the windows that end by then close. A watermark
        before the one already reached changes nothing.

        One hot key can complete more matches than memory holds. With `emit`, a rule emits `MOST_PENDING` of
        them at a time, each table in order. The returned table follows them.
        """
        if watermark_us <= self.watermark_us:
            return empty_matches(self.program)
        before_us, self.watermark_us = self.watermark_us, watermark_us
        found: list[list[I64]] = [[] for _ in self._rules]
        for number, state in enumerate(self._rules):
            state.hand_over = None if emit is None else partial(self._hand_over, number, found, emit)
        due, versions = self._due(watermark_us)
        if versions is not None and self._past is not None:
            changes = self._past.take_in(versions)
            due = due if changes is None else changes
        if self._window_rules is not None:
            self._run_window_rules(self._window_rules, due, before_us, found)
        elif due is not None:
            self._run(due, found)
        for state, matches in zip(self._rules, found, strict=True):
            state.close(watermark_us, matches)
            if state.overflowed_slot is not None:
                raise self._too_many_runs(state.rule, state.overflowed_slot)
        table = self._table(found)
        for state in self._rules:
            name = state.rule.name
            self.counters.suppressed[name] = state.suppression.n_suppressed
            self.counters.dropped_runs[name] = state.pool.n_dropped
            state.hand_over = None
            if state.begins_us <= watermark_us:
                state.begins_us = START_OF_TIME_US
        if watermark_us < END_OF_TIME_US:
            self._forget()
            self._forget_events()
        elif self._past is not None:
            self._past.tables.check_limits()
        return table

    def _table(self, found: list[list[I64]]) -> pa.Table:
        """Return the matches found as a table, and count them."""
        for state, matches in zip(self._rules, found, strict=True):
            n_timeouts = sum(int(rows[:, at.MATCH_TIMED_OUT].sum()) for rows in matches)
            self.counters.matches[state.rule.name] += sum(map(len, matches)) - n_timeouts
            self.counters.timeouts[state.rule.name] += n_timeouts
        nodes = [state.nodes for state in self._rules]
        return build_matches(self.program, found, self._keys.columns, self._strings, nodes, self._kept)

    def _hand_over(self, number: int, found: list[list[I64]], emit: Emit) -> None:
        """Pass the matches that one rule has found to `emit`."""
        emit(self._table([rows if index == number else [] for index, rows in enumerate(found)]))
        found[number].clear()

    def settle(self) -> None:
        """Do what the next events would have to wait for. It changes no result, and need not be called."""
        if self._context is not None:
            self._context.settle()

    def finish(self, emit: Emit | None = None) -> pa.Table:
        """The input is complete: advance to the end of time, so that every window closes."""
        return self.advance(END_OF_TIME_US, emit)

    @property
    def n_waiting(self) -> int:
        """Prepared events that wait until the watermark reaches them."""
        return sum(table.num_rows for table in self._pending)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of these events in memory."""
        return sum(table.nbytes for table in self._pending)

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        if self.watermark_us == END_OF_TIME_US:
            return None
        deadlines = [int(np.asarray(table.column(TIME_COLUMN)).min()) for table in self._pending]
        deadlines += [state.next_end_us() for state in self._rules]
        end_us = None if self._window_rules is None else self._window_rules.next_end_us(self.watermark_us)
        deadlines += [] if end_us is None else [end_us]
        earliest = min(deadlines, default=END_OF_TIME_US)
        return earliest if earliest < END_OF_TIME_US else None

    @property
    def open_runs(self) -> dict[str, int]:
        """Number of open runs of all keys, by rule."""
        return {state.rule.name: int(state.pool.total) for state in self._rules}

    def open_steps(self, most: int) -> dict[str, dict[str, int]]:
        """Return the number of open runs of all keys, by rule and by what they wait for.

        Rules with more than `most` open runs are left out, because each run is examined.
        """
        found: dict[str, dict[str, int]] = {}
        for state in self._rules:
            if 0 < state.pool.total <= most:
                states = state.pool.runs[state.pool.live_rows(), at.STATE]
                steps = found.setdefault(state.rule.name, {})
                for number, n in zip(*(part.tolist() for part in np.unique_counts(states)), strict=True):
                    words = awaited(state.rule, number)
                    steps[words] = steps.get(words, 0) + n
        return found

    def waiting_us(self) -> I64:
        """Return the times of the events that wait, without versions of tables, in order of arrival."""
        table, rows = self._waiting()
        return np.zeros(0, np.int64) if table is None else np.asarray(table.column(TIME_COLUMN))[rows]

    def drop_waiting(self, dropped: npt.NDArray[np.bool_]) -> pa.Table:
        """Drop waiting events, and return them. `dropped` (bool[n]) refers to the events of `waiting_us`."""
        table, rows = self._waiting()
        assert table is not None
        keeps = np.ones(table.num_rows, np.bool_)
        keeps[rows[dropped]] = False
        self._pending = [table.filter(pa.array(keeps))] if keeps.any() else []
        return table.filter(pa.array(~keeps))

    def _waiting(self) -> tuple[pa.Table | None, I64]:
        """Return the waiting events and versions as one table, and the rows of it that are events."""
        if not self._pending:
            return None, np.zeros(0, np.int64)
        table = pa.concat_tables(self._pending).combine_chunks()
        self._pending = [table]
        if VERSION_COLUMN not in table.column_names:
            return table, np.arange(table.num_rows)
        return table, np.flatnonzero(np.asarray(table.column(VERSION_COLUMN)) == 0)

    @property
    def run_bytes(self) -> int:
        """The bytes of the open runs in memory, with the events that they have taken."""
        pools = [state.pool for state in self._rules]
        rows: int = sum(pool.total * pool.runs.shape[1] for pool in pools)
        nodes = sum(int(pool.meta[at.N_NODES]) * at.NODE_WIDTH for pool in pools)
        return 8 * (rows + nodes) + int(self._kept.columns.nbytes)

    def started(self, rule: str) -> tuple[I64, I64]:
        """Return the start times and positions of the open runs of a rule, key by key, in order."""
        pool = self._state_of(rule).pool
        rows = pool.live_rows()
        return pool.runs[rows, at.START_US], pool.runs[rows, at.START_POS]

    def drop_runs(self, rule: str, dropped: npt.NDArray[np.bool_], most: int) -> dict[str, int]:
        """Drop open runs of a rule; return how many each key loses, of the `most` keys that lose most.

        `dropped` (bool[n]) refers to the runs in the order of `started`.
        """
        state = self._state_of(rule)
        state.pool, lost = state.pool.without(dropped)
        state.deadlines.forget()
        state.nodes.compact(state.pool, ())
        self._forget_events()
        self.counters.dropped_runs[rule] = state.pool.n_dropped
        slots = np.argsort(-lost, kind="stable")[:most]
        return {self.key_of(slot): int(lost[slot]) for slot in slots.tolist() if lost[slot]}

    def _state_of(self, rule: str) -> _RuleState:
        return next(state for state in self._rules if state.rule.name == rule)

    def key_of(self, slot: int) -> str:
        """Return a key as text: ``card = c7``."""
        values = (keys[slot].as_py() for keys in self._keys.columns)
        return ", ".join(f"{name} = {value}" for name, value in zip(self.program.key, values, strict=True))

    @property
    def n_open_runs(self) -> int:
        """Number of open runs of all rules and keys."""
        return sum(self.open_runs.values())

    @property
    def n_keys(self) -> int:
        """Number of keys that have or had state."""
        return self._n_slots

    # ------------------------------------------------------------ events

    def _due(self, watermark_us: int) -> tuple[pa.Table | None, pa.Table | None]:
        """Remove and return the events and the versions of tables up to the watermark."""
        pending, self._pending = self._pending, []
        found: list[pa.Table | None] = []
        names = self.program.columns_of_events, self.program.columns_of_versions
        for tables, read in zip(parted(self.program, pending), names, strict=True):
            due, waiting = until(watermark_us, tables, read)
            found.append(due)
            self._pending += [] if waiting is None else [waiting]
        events, versions = found
        begins_us = min((state.begins_us for state in self._rules), default=START_OF_TIME_US)
        if self._window_rules is not None and events is not None and begins_us > START_OF_TIME_US:
            events = events.filter(pc.greater(events.column(TIME_COLUMN), begins_us))
            events = events if events.num_rows else None
        return events, versions

    def _ordered(self, table: pa.Table) -> OrderedEvents:
        order = order_events(self.program, table)
        self.counters.keys += len(order.keys)
        for stream, n_copies in enumerate(order.n_duplicates):
            self.counters.duplicates_of[stream] += n_copies
        return order

    def _run_window_rules(
        self, rules: WindowRules, table: pa.Table | None, before_us: int, found: list[list[I64]]
    ) -> None:
        from cep.engine.window_rules.window_rules import Due

        order = None if table is None else self._ordered(table)
        slots = np.zeros(0, np.int32)
        if table is not None and order is not None:
            slots = self._keys.place(table, order.keys, order.first_rows, order.hashes)
        rules.place_versions(self._keys.place)
        for state in self._rules:
            state.set_slots(self._n_slots)
        due = Due(table, order, slots, self.program, self._strings)
        rules.run(
            due,
            self._n_slots,
            before_us,
            self.watermark_us,
            lambda number, rows: self._rules[number].report_windows(rows, found[number]),
        )
        if order is not None:
            self._note_busiest(order, slots)

    def _run(self, table: pa.Table, found: list[list[I64]]) -> None:
        cells = ColumnCells(self.program, self._strings)
        table, order, slots, seen = self._extended(table, cells)
        blocks = event_blocks(self.program, table, order, slots, cells)
        n_rows = len(order.rows)
        bits = np.zeros((len(self.program.predicates), n_rows), np.int64)
        for word, of_word in enumerate(bits):
            if self.program.predicates[word]:
                gather(lent(np.asarray(whole(table.column(bits_column(word))))), order.rows, of_word)
        for state in self._rules:
            state.set_slots(self._n_slots)
        pools = [state.pool for state in self._rules]
        of_use = self._lookahead.rows(bits, order, pools, self.watermark_us)
        if self.program.kept_columns:  # before the first match is reported
            columns = table.select(self.program.kept_columns).take(pa.array(order.rows))
            self._kept = self._kept.with_batch(self._position, columns)
        everything = np.arange(min(BLOCK_ROWS * len(self._rules), n_rows))
        room = np.empty(len(everything) + 1, np.int64)
        for part, events in blocks.blocks(len(everything)):
            for number, (state, matches) in enumerate(zip(self._rules, found, strict=True)):
                of_word, rows = bits[state.rule.word, part], of_use.get(number)
                if rows is not None:
                    first, last = np.searchsorted(rows, (part.start, part.stop))
                    rows = rows[first:last] - part.start
                elif state.rule.needs_every_event:
                    rows = everything[: part.stop - part.start]
                else:
                    rows = room[: rows_with(of_word, state.event_mask, room)]
                if len(rows):
                    state.run(events, of_word, rows, self._position + part.start, matches)
        self._position += n_rows
        self._note_busiest(*seen)

    def _note_busiest(self, order: OrderedEvents, slots: I32) -> None:
        """Note the key with the most of these events, and of their keys the one with the most open runs of
        each rule, if they have `busy_from` or more: how many, of how many events, and the key.
        """
        if self.busy_from is None or not len(order.codes):
            return
        streams, key = (stream.name for stream in self.program.streams), ", ".join(self.program.key)
        name = f"events of {', '.join(streams)} by {key}"
        numbers = {name: np.bincount(order.codes)} if len(order.codes) >= self.busy_from else {}
        known = self.busiest.get(name, (0, 0, ""))
        self.busiest[name] = known[0], known[1] + len(order.codes), known[2]
        for state in self._rules:
            if state.pool.meta[at.USED] - state.pool.meta[at.N_FREE] > self.busy_from:
                numbers[f"open runs of {state.rule.name}"] = state.pool.keys[slots, at.N_RUNS]
        for name, of_keys in numbers.items():
            code = int(of_keys.argmax())
            n, known = int(of_keys[code]), self.busiest.get(name, (0, 0, ""))
            if n >= max(self.busy_from, known[0]):
                self.busiest[name] = n, known[1], self.key_of(int(slots[code]))

    def _extended(
        self, table: pa.Table, cells: ColumnCells
    ) -> tuple[pa.Table, OrderedEvents, I32, tuple[OrderedEvents, I32]]:
        """Return events with their columns of tables and windows, in order, and the slots of their keys: of
        the events that a rule can use, then of all.
        """
        order, known = self._ordered(table), None
        slots: I32 | None = None  # where nothing is kept, neither before nor now
        if self._context is None or self._n_slots or self.watermark_us < END_OF_TIME_US:
            slots = self._keys.place(table, order.keys, order.first_rows, order.hashes)
        if self._context is not None:
            table = self._context.extend(table, order, slots, self._n_slots, cells)
        seen, used = order, self._used(table, order, slots)
        if used is not None:
            order, known = order.only(used)
        if slots is None:
            slots = self._keys.place(table, order.keys, order.first_rows, order.hashes)
            return table, order, slots, (order, slots)
        return table, order, slots if known is None else slots[known], (seen, slots)

    def _used(self, table: pa.Table, order: OrderedEvents, slots: I32 | None) -> I64 | None:
        """Return the places of the events that a rule can use, as all bits are known now; None: of many."""
        strict = [state for state in self._rules if state.rule.needs_every_event]
        if self._context is None and not strict:
            return None  # whoever prepared the events has left the others out
        sought = [state for state in self._rules if state.use is not None]
        if len(sought) > _MOST_SOUGHT:
            sought = []
        if any(state not in sought for state in strict):
            return None
        used = np.zeros(len(order.rows), np.uint8)
        for word, predicates in enumerate(self.program.predicates):
            states = [state for state in self._rules if state.rule.word == word]
            if not predicates or not states:
                continue
            bits = lent(np.asarray(whole(table.column(bits_column(word)))))
            mask = np.bitwise_or.reduce([state.event_mask for state in states if state not in sought] or [0])
            if mask:
                used |= (bits & mask != 0)[order.rows]
            for state in states:
                if state.use is None or state not in sought:
                    continue
                if state in strict and _begin_often(bits, state.use):
                    return None
                state.set_slots(self._n_slots)
                of_keys = _NO_SLOTS if slots is None else slots
                mark_used(bits, order.rows, order.codes, of_keys, state.pool.keys, state.use, used)
        return np.flatnonzero(used.view(np.bool_)) if _FEW_USED * np.count_nonzero(used) < len(used) else None

    def _too_many_runs(self, rule: RuleProgram, slot: int) -> StateError:
        key = ", ".join(
            f"{name} = {keys[slot].as_py()!r}"
            for name, keys in zip(self.program.key, self._keys.columns, strict=True)
        )
        return StateError(
            "E0707",
            f"rule `{rule.name}` has more than {rule.max_runs:,} open runs for the key {key}",
            "raise MAX RUNS, shorten the window, or choose ON OVERFLOW DROP OLDEST",
        )

    # ------------------------------------------------------------ memory

    def _live_slots(self) -> npt.NDArray[np.bool_]:
        """Return which keys have state that may still matter to a rule."""
        live = np.zeros(self._n_slots, np.bool_)
        for state in self._rules:
            state.set_slots(self._n_slots)
            live |= state.live(self.watermark_us)
        if self._past is not None:
            live |= self._past.live(self._n_slots, self.watermark_us)
        return live

    def _forget(self) -> None:
        """Drop keys without runs, and strings that no run refers to, once they are the majority."""
        if self._past is not None:
            self._past.expire(self.watermark_us)
        # Examining all keys costs as much as a few events of each, so it waits for that many events.
        if self._n_slots <= max(_FEW_SLOTS, _LOOKS * (self.counters.events - self._looked_at)):
            self._looked_at = self.counters.events
            live = self._live_slots()
            if self._n_slots > 64 + 2 * int(live.sum()):
                self._keep_slots(live)
        if self._strings.is_large:
            self._keep_strings()

    def _forget_events(self) -> None:
        """Drop the events that no run has taken, where rules report events."""
        reporting = [state for state in self._rules if state.rule.node_register >= 0]
        if reporting and len(self._kept.positions):
            for state in reporting:
                state.nodes.compact(state.pool, ())
            self._kept = self._kept.only([state.nodes.positions(state.pool) for state in reporting])

    def _keep_slots(self, live: npt.NDArray[np.bool_]) -> None:
        self._keys.keep(live)
        for state in self._rules:
            state.keep_slots(live)
        if self._past is not None:
            self._past.keep_slots(live)

    def _keep_strings(self) -> None:
        self._strings.keep(
            [
                state.pool.string_cells(number)
                for state in self._rules
                for number, register in enumerate(state.rule.registers)
                if register.type is Type.STRING
            ]
            + [cells for state in self._rules for cells in state.nodes.string_cells(state.pool)]
            + ([] if self._past is None else self._past.string_cells())
        )

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> bytes:
        """Return everything needed to continue elsewhere, as bytes (see `cep.engine.state.codec`)."""
        live = self._live_slots()
        if not live.all():
            self._keep_slots(live)
        self._keep_strings()
        identity = self.program.identity
        waiting = pa.concat_tables(self._pending).combine_chunks() if self._pending else None
        keys = pa.table(self._keys.columns, self._keys.names) if self._n_slots else None
        counters = self.counters
        shared = SharedSection(
            fingerprint=identity.shared.fingerprint,
            about=identity.shared.packed,
            watermark_us=self.watermark_us,
            position=self._position,
            counters=(counters.events, counters.late, *counters.duplicates_of),
            waiting=waiting,
            keys=keys,
            strings=self._strings.values if len(self._strings) else None,
            kept=self._kept if len(self._kept.positions) else None,
        )
        rules = zip(self._rules, identity.rules, strict=True)
        windows = () if self._past is None else self._past.sections()
        tables = () if self._past is None else self._past.table_sections()
        of_rules = tuple(self._section(state, rule) for state, rule in rules)
        sections = StateSections(shared, of_rules, windows, tables)
        return codec.encode(sections, identity.fingerprint)

    def _section(self, state: _RuleState, identity: RuleIdentity) -> RuleSection:
        runs = state.pool.stored()
        name = state.rule.name
        return RuleSection(
            name=name,
            fingerprint=identity.fingerprint,
            about=identity.packed,
            counters=(
                self.counters.matches[name],
                self.counters.timeouts[name],
                state.suppression.n_suppressed,
                state.pool.n_dropped,
            ),
            keys=runs.keys,
            rows=runs.rows,
            suppressed_until=state.suppression.stored(),
            nodes=state.nodes.stored(state.pool),
            begins_us=state.begins_us,
        )

    @classmethod
    def restore(
        cls,
        program: Program,
        data: bytes | memoryview,
        tables: Mapping[str, GivenTable] | None = None,
    ) -> Matcher:
        """Return the matcher that wrote `data`, which does not contain the `tables`.

        Raises StateError: the bytes are damaged, of an unknown format, or were written by other rules.
        """
        stored = fitted(codec.decode(data), program)
        shared = stored.shared
        matcher = cls(program, tables)
        matcher.watermark_us = shared.watermark_us
        matcher._position = shared.position
        matcher.counters.events, matcher.counters.late, *matcher.counters.duplicates_of = shared.counters
        if shared.waiting is not None:
            matcher._pending = [shared.waiting]
        if shared.keys is not None:
            columns = [shared.keys.column(name).combine_chunks() for name in program.key_columns]
            matcher._keys = KeySlots(program.key_columns, columns)
        matcher._strings = StringPool(shared.strings, make_index)
        if shared.kept is not None:
            matcher._kept = shared.kept
        for state, section in zip(matcher._rules, stored.rules, strict=True):
            matcher._restore_rule(state, section)
        if matcher._past is not None:
            matcher._past.restore(stored.windows, matcher._n_slots, stored.tables)
        return matcher

    def _restore_rule(self, state: _RuleState, section: RuleSection) -> None:
        matched, timed_out, suppressed, dropped = section.counters
        state.pool = make_pool(StoredRuns(section.keys, section.rows), 2 * section.rows.n_rows)
        state.pool.meta[at.DROPPED] = dropped
        rule, stored = state.rule, section.suppressed_until.matrix()[:, 0]
        state.suppression = Suppression(rule.suppress_us, rule.n_per_day, stored)
        state.suppression.n_suppressed = suppressed
        state.nodes = Nodes(state.rule, section.nodes.matrix())
        state.pool.meta[at.N_NODES] = section.nodes.n_rows
        state.begins_us = section.begins_us
        name = state.rule.name
        self.counters.matches[name] = matched
        self.counters.timeouts[name] = timed_out
        self.counters.suppressed[name] = suppressed
        self.counters.dropped_runs[name] = dropped


def _begin_often(bits: I64, use: I64) -> bool:
    """Return whether many of some events may begin a run."""
    some = bits[:_SOME_ROWS] & use[BEGIN_MASK] != 0
    return bool(_FEW_BEGIN * np.count_nonzero(some) >= len(some))
