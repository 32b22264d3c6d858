"""Matcher: events in, matches out, for all keys it is given. The only place where live state is.

    matcher = Matcher(program)
    late = matcher.push(events)          # a prepared table; returns the rows that came too late
    matches = matcher.advance(time_us)   # event time has reached time_us
    data = matcher.snapshot()            # and Matcher.restore(program, data) elsewhere

Events wait in a buffer until the watermark reaches them, then they go through the rules in order. The result
depends only on the events and on the order of their times, not on how they were cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine import codec
from cep.engine.kernels import (
    DROPPED,
    N_OUT,
    Events,
    Options,
    Runs,
    close_all,
    earliest_close,
    list_runs,
    run_events,
)
from cep.engine.match_batch import MatchColumns, build_matches, empty_matches
from cep.engine.ordering import OrderedEvents, key_values, order_events
from cep.engine.predicates import from_arrow
from cep.engine.runs import (
    compact,
    expand,
    fan_out,
    keep_slots,
    n_registers,
    new_matches,
    new_pool,
    new_stack,
    with_slots,
)
from cep.engine.strings import StringPool
from cep.errors import StateError
from cep.expression import Type
from cep.program import I64, TIME_COLUMN, Program, RuleProgram, bits_column

END_OF_TIME_US = np.iinfo(np.int64).max // 2
"""A watermark beyond every event: the input is complete."""

START_OF_TIME_US = np.iinfo(np.int64).min // 2
"""The watermark before any event."""

_FIRST_CAPACITY = 64
_MATCH_CAPACITY = 4096


@dataclass(slots=True)
class Counters:
    """What happened so far: every event pushed is counted once as taken in, late or duplicate."""

    events: int = 0
    late: int = 0
    duplicates: int = 0
    dropped_runs: int = 0
    matches: dict[str, int] = field(default_factory=dict)


class _RuleState:
    """Open runs of one rule and the room its kernels need."""

    def __init__(self, rule: RuleProgram, runs: Runs) -> None:
        self.rule = rule
        self.runs = runs
        self.matches = new_matches(n_registers(rule), _MATCH_CAPACITY)
        self.stack = new_stack(rule)
        self.fan_out = fan_out(rule)
        zero_valid = sum(
            1 << number for number, register in enumerate(rule.registers) if register.starts_at_zero
        )
        self.options = Options(
            rule.span_us,
            rule.close_us,
            int(rule.selection),
            int(rule.skip),
            rule.skip_register,
            rule.max_runs,
            np.uint64(zero_valid),
        )

    def make_room(self, slot: int, found: list[MatchColumns]) -> None:
        """Take the matches out and, where that is not enough, grow the pool or the room for matches."""
        self.drain(found)
        count = int(self.runs.n_runs[slot])
        needed = (count + 1) * (self.fan_out + 1)
        capacity = len(self.runs.next) - 1
        if needed > self.runs.meta[1]:
            columns = compact(self.runs)
            grown = max(2 * capacity, columns.total + 2 * needed)
            self.runs = expand(columns, grown, self.runs.meta)
        if needed + count > len(self.matches.slot):
            self.matches = new_matches(n_registers(self.rule), 2 * (needed + count))

    def drain(self, found: list[MatchColumns]) -> None:
        """Move the matches so far to `found`."""
        n_out = int(self.runs.meta[N_OUT])
        if n_out:
            found.append(MatchColumns.copied_from(self.matches, n_out))
            self.runs.meta[N_OUT] = 0

    def run(self, events: Events, rows: I64, base: int, found: list[MatchColumns]) -> None:
        """Offer the events of `rows` to the rule."""
        done = 0
        while True:
            done = run_events(
                self.rule.tables, self.options, events, self.runs, self.matches, self.stack,
                rows, done, base, self.fan_out,
            )  # fmt: skip
            if done == len(rows):
                break
            self.make_room(int(events.slot[rows[done]]), found)
        self.drain(found)

    def close(self, bound_us: int, found: list[MatchColumns]) -> None:
        """Close the windows that end at or before `bound_us`."""
        if self.rule.span_us < 0:
            return
        done = 0
        while True:
            done = close_all(self.rule.tables, self.options, self.runs, self.matches, done, bound_us)
            if done == len(self.runs.head):
                break
            self.make_room(done, found)
        self.drain(found)


class Matcher:
    """The rules of one program over the events of any number of keys.

    Parameters
    ----------
    program
        The compiled rules.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.watermark_us = START_OF_TIME_US
        self.counters = Counters(matches={rule.name: 0 for rule in program.rules})
        self._position = 0
        self._pending: list[pa.Table] = []
        self._strings = StringPool()
        self._keys: list[pa.Array] = [
            pa.array([], program.event_schema.field(name).type) for name in program.key
        ]
        self._rules = [
            _RuleState(rule, new_pool(n_registers(rule), _FIRST_CAPACITY, 0)) for rule in program.rules
        ]
        self._string_columns = [
            number for number, name in enumerate(program.columns) if program.type_of(name) is Type.STRING
        ]

    @property
    def _n_slots(self) -> int:
        return len(self._keys[0])

    def push(self, events: pa.Table | pa.RecordBatch) -> pa.Table:
        """Take in events of ``program.event_schema``, in any order; return those at or before the watermark."""
        if isinstance(events, pa.RecordBatch):
            events = pa.Table.from_batches([events])
        time_us = np.asarray(events.column(TIME_COLUMN))
        is_late = time_us <= self.watermark_us
        n_late = int(is_late.sum())
        late = events.filter(pa.array(is_late)) if n_late else events.slice(0, 0)
        if n_late:
            events = events.filter(pa.array(~is_late))
        self.counters.events += events.num_rows
        self.counters.late += n_late
        if events.num_rows:
            self._pending.append(events)
        return late

    def advance(self, watermark_us: int) -> pa.Table:
        """Let event time reach `watermark_us`; return the matches, in order (`program.match_schema`).

        All events up to that time go through the rules, then the windows that have closed by then. A
        watermark that lies behind the one reached before changes nothing.
        """
        if watermark_us <= self.watermark_us:
            return empty_matches(self.program)
        self.watermark_us = watermark_us
        found: list[list[MatchColumns]] = [[] for _ in self._rules]
        due = self._due(watermark_us)
        if due is not None:
            self._run(due, found)
        for state, matches in zip(self._rules, found, strict=True):
            state.close(watermark_us, matches)
        table = build_matches(self.program, found, self._keys, self._strings)
        for state, matches in zip(self._rules, found, strict=True):
            self.counters.matches[state.rule.name] += sum(len(columns.slot) for columns in matches)
        self.counters.dropped_runs = sum(int(state.runs.meta[DROPPED]) for state in self._rules)
        self._forget()
        return table

    def finish(self) -> pa.Table:
        """The input is complete: advance to the end of time, so that every window closes."""
        return self.advance(END_OF_TIME_US)

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        deadlines = [int(np.asarray(table.column(TIME_COLUMN)).min()) for table in self._pending]
        for state in self._rules:
            if state.rule.span_us >= 0:
                deadlines.append(int(earliest_close(state.runs, state.rule.span_us)))
        earliest = min(deadlines, default=END_OF_TIME_US)
        return earliest if earliest < END_OF_TIME_US else None

    @property
    def n_open_runs(self) -> int:
        """Number of open runs of all rules and keys."""
        return sum(int(state.runs.n_runs.sum()) for state in self._rules)

    # ------------------------------------------------------------ events

    def _due(self, watermark_us: int) -> pa.Table | None:
        """Take the events up to the watermark out of the buffer."""
        if not self._pending:
            return None
        table = pa.concat_tables(self._pending).combine_chunks()
        is_due = np.asarray(table.column(TIME_COLUMN)) <= watermark_us
        if is_due.all():
            self._pending = []
            return table
        if not is_due.any():
            self._pending = [table]
            return None
        self._pending = [table.filter(pa.array(~is_due))]
        return table.filter(pa.array(is_due))

    def _run(self, table: pa.Table, found: list[list[MatchColumns]]) -> None:
        order = order_events(self.program, table)
        self.counters.duplicates += order.n_duplicates
        slots = self._slots(table, order)[order.codes]
        values, valid = self._values(table, order.rows)
        words = [
            np.asarray(table.column(bits_column(word)))[order.rows].view(np.uint64)
            for word in range(len(self.program.predicates))
        ]
        everything = np.arange(len(order.rows))
        for state, matches in zip(self._rules, found, strict=True):
            rule = state.rule
            bits = words[rule.word]
            events = Events(
                order.time_us, slots, bits, order.identity, values, values.view(np.float64), valid
            )
            rows = everything
            if not rule.needs_every_event:
                rows = np.flatnonzero(bits & np.uint64(rule.event_mask))
            state.runs = with_slots(state.runs, self._n_slots)
            state.run(events, rows, self._position, matches)
        self._position += len(order.rows)

    def _slots(self, table: pa.Table, order: OrderedEvents) -> npt.NDArray[np.int32]:
        """Return the slot of each key of the batch; keys without open runs get new ones."""
        known = key_values(pa.table(self._keys, self._key_names()), self._key_names())
        found = (
            pc.index_in(order.keys, value_set=known) if len(known) else pa.nulls(len(order.keys), pa.int32())
        )
        is_new = np.asarray(pc.is_null(found))
        slots: npt.NDArray[np.int32] = np.asarray(pc.fill_null(found, 0)).astype(np.int32)
        slots[is_new] = self._n_slots + np.arange(int(is_new.sum()), dtype=np.int32)
        rows = pa.array(order.first_rows[is_new])
        self._keys = [
            pa.concat_arrays([old, table.column(name).combine_chunks().take(rows)])
            for old, name in zip(self._keys, self.program.key, strict=True)
        ]
        return slots

    def _key_names(self) -> tuple[str, ...]:
        return self.program.key

    def _values(self, table: pa.Table, rows: I64) -> tuple[I64, npt.NDArray[np.uint8]]:
        """Return the columns that kernels read, ordered, by their 64 bits, and which are not NULL."""
        names = self.program.columns
        values = np.zeros((len(names), len(rows)), np.int64)
        valid = np.zeros((len(names), len(rows)), np.uint8)
        for number, name in enumerate(names):
            kind = self.program.type_of(name)
            column = table.column(name).combine_chunks()
            if kind is Type.STRING:
                valid[number] = np.asarray(pc.is_valid(column))[rows]
                values[number] = self._strings.encode(column)[rows]
                continue
            vector = from_arrow(column, kind)
            valid[number] = vector.known[rows]
            bits = vector.values
            values[number] = (bits.view(np.int64) if bits.dtype == np.float64 else bits)[rows]
        return values, valid

    # ------------------------------------------------------------ memory

    def _forget(self) -> None:
        """Drop keys without runs and strings that no run refers to, once they are the larger part."""
        live = np.zeros(self._n_slots, np.bool_)
        for state in self._rules:
            state.runs = with_slots(state.runs, self._n_slots)
            live |= state.runs.n_runs > 0
        if self._n_slots > 64 + 2 * int(live.sum()):
            self._keys = [keys.filter(pa.array(live)) for keys in self._keys]
            for state in self._rules:
                columns = keep_slots(compact(state.runs), live)
                capacity = max(_FIRST_CAPACITY, 2 * columns.total)
                state.runs = expand(columns, capacity, state.runs.meta)
        if self._strings.is_large:
            self._strings.keep(self._string_registers())

    def _string_registers(self) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        """Return, for each register that holds strings, its cells in the pool and which hold one."""
        cells = []
        for state in self._rules:
            rows = np.zeros(len(state.runs.next), np.bool_)
            for number, register in enumerate(state.rule.registers):
                if register.type is Type.STRING:
                    if not rows.any():
                        rows = _live_rows(state.runs)
                    holds = (state.runs.valid >> np.uint64(number)) & np.uint64(1)
                    cells.append((state.runs.registers[:, number], rows & (holds != 0)))
        return cells

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> bytes:
        """Return everything needed to go on elsewhere, as bytes (see `cep.engine.codec`)."""
        live = np.zeros(self._n_slots, np.bool_)
        for state in self._rules:
            state.runs = with_slots(state.runs, self._n_slots)
            live |= state.runs.n_runs > 0
        self._strings.keep(self._string_registers())
        return codec.encode(
            codec.Snapshot(
                fingerprint=self.program.fingerprint,
                watermark_us=self.watermark_us,
                position=self._position,
                counters=self._counter_list(),
                pending=pa.concat_tables([self.program.event_schema.empty_table(), *self._pending]),
                keys=pa.table([keys.filter(pa.array(live)) for keys in self._keys], self._key_names()),
                strings=self._strings.values,
                runs=tuple(keep_slots(compact(state.runs), live) for state in self._rules),
            )
        )

    def _counter_list(self) -> tuple[int, ...]:
        counters = self.counters
        per_rule = [(counters.matches[s.rule.name], int(s.runs.meta[DROPPED])) for s in self._rules]
        return (counters.events, counters.late, counters.duplicates, *(n for pair in per_rule for n in pair))

    @classmethod
    def restore(cls, program: Program, data: bytes) -> Matcher:
        """Return the matcher that wrote `data`.

        Raises
        ------
        StateError
            The bytes are damaged, of an unknown format, or were written by other rules.
        """
        snapshot = codec.decode(data, [n_registers(rule) for rule in program.rules], program.fingerprint)
        matcher = cls(program)
        matcher.watermark_us = snapshot.watermark_us
        matcher._position = snapshot.position
        counts = list(snapshot.counters)
        matcher.counters.events, matcher.counters.late, matcher.counters.duplicates = counts[:3]
        if snapshot.pending.num_rows:
            matcher._pending = [snapshot.pending]
        matcher._keys = [snapshot.keys.column(name).combine_chunks() for name in program.key]
        matcher._strings = StringPool(snapshot.strings)
        if len(counts) != 3 + 2 * len(matcher._rules):
            raise StateError("E0702", "the snapshot is damaged: its counters do not fit its rules")
        for state, columns, matched, dropped in zip(
            matcher._rules, snapshot.runs, counts[3::2], counts[4::2], strict=True
        ):
            state.runs = expand(columns, max(_FIRST_CAPACITY, 2 * columns.total), state.runs.meta)
            state.runs.meta[DROPPED] = dropped
            matcher.counters.matches[state.rule.name] = matched
        matcher.counters.dropped_runs = sum(counts[4::2])
        return matcher


def _live_rows(runs: Runs) -> npt.NDArray[np.bool_]:
    order: Any = np.empty(int(runs.n_runs.sum()), np.int64)
    list_runs(runs, order)
    rows = np.zeros(len(runs.next), np.bool_)
    rows[order] = True
    return rows
