"""Corrector: a matcher that also counts late events, up to a bound before the watermark.

    corrector = Corrector(program, Corrections(within_us))
    late = corrector.push(events)          # returns the rows that came too late even for a correction
    rows = corrector.advance(time_us)      # matches, and what corrects matches of earlier calls

The idea is Time Warp's (Jefferson, Virtual Time, TOPLAS 1985): the matcher continues as if no event were
late, and its state is saved from time to time. At a late event it returns to the last state saved before the
event and repeats the later events. Rows that then differ are withdrawn or added, so the remaining rows are
always those of a batch over the events so far. Without late events nothing is evaluated twice.

Time is divided into segments, one for each saved state. A segment contains the events later than its state,
in order of arrival, and the rows that were reported since. A segment ends where the next one starts. When the
watermark has passed it by the bound, no event can change it any longer, and it is dropped.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.corrections.evaluated import Evaluated, Front, OneProgram
from cep.engine.corrections.retained import (
    MAGIC,
    Part,
    Retained,
    RetainedTable,
    Segment,
    Warm,
    other_kind,
    tables_of,
)
from cep.engine.corrections.row_differences import changed_ids, may_differ
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US, is_late, late_by_us
from cep.engine.matching.counters import Counters
from cep.engine.matching.matcher import Emit, Matcher
from cep.engine.prepare.columns import whole
from cep.errors import StateError
from cep.program.program import MATCH, TIME_COLUMN, Program
from cep.rule_set import KIND, RETRACT, REVISION, Corrections

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable

SAVES = 4
"""States that are saved within the bound of corrections. With more of them less is done again for an event
that is a little late, and more bytes are stored."""

WITHDRAWN = pa.schema([("match_id", pa.string()), (REVISION, pa.int64()), ("until", pa.int64())])


class Corrector:
    """Rules over the events of any number of keys, with corrections.

    Parameters
    ----------
    corrections
        How late an event may arrive, and how much is retained.
    tables
        Only for a single program: see `Matcher`. Versions that come with events correct matches as events do.
    """

    def __init__(
        self,
        program: Program | Evaluated,
        corrections: Corrections,
        tables: Mapping[str, GivenTable] | None = None,
    ) -> None:
        self.program = program
        self.corrections = corrections
        self._unit: Evaluated = OneProgram(program, tables) if isinstance(program, Program) else program
        self._may_differ = may_differ(self._unit.programs)
        self._front = self._unit.matcher()
        self._segments = [Segment(START_OF_TIME_US, self._front.snapshot())]
        self._waiting: list[pa.Table] = []  # events that the watermark has not reached
        self._late: list[pa.Table] = []  # events that it has passed, not evaluated yet
        self._withdrawn = WITHDRAWN.empty_table()  # matches that may be found again
        self._first_revision = 0
        self._has_overflowed = False  # more was found in this call than may be retained
        self._n_events = self._n_late = self._n_uncorrected = 0
        self._n_retracted = {rule.name: 0 for rule in program.rules}
        self._final_us: dict[str, int] = {}  # rows of these rules that ended by then do not change

    @property
    def unit(self) -> Evaluated:
        """What it evaluates."""
        return self._unit

    @property
    def watermark_us(self) -> int:
        """The event time reached."""
        return self._front.watermark_us

    @property
    def final_us(self) -> int:
        """The event time up to which nothing is corrected any longer."""
        return max(self.watermark_us - self.corrections.within_us, self._segments[0].start_us)

    @property
    def counters(self) -> Counters:
        """The counts so far, as if every counted event had arrived in time."""
        return replace(
            self._front.counters,
            events=self._n_events,
            late=self._n_late,
            retracted=dict(self._n_retracted),
            uncorrected=self._n_uncorrected,
        )

    @property
    def n_retained(self) -> int:
        """Number of events and rows that are retained for corrections."""
        return sum(segment.size for segment in self._segments)

    @property
    def open_runs(self) -> Mapping[str, int]:
        """Number of open runs of all keys, by rule."""
        return self._front.open_runs

    @property
    def n_keys(self) -> int:
        """Number of known keys."""
        return self._front.n_keys

    @cached_property
    def _row_schema(self) -> pa.Schema:
        """Columns of rows that are retained."""
        return self._unit.match_schema.append(pa.field(REVISION, pa.int64()))

    def push(self, events: pa.Table | pa.RecordBatch) -> pa.Table:
        """Add events of ``program.event_schema`` in any order; return those that come too late."""
        if isinstance(events, pa.RecordBatch):
            events = pa.Table.from_batches([events])
        time_us = np.asarray(events.column(TIME_COLUMN))
        late_us = late_by_us(time_us, self.watermark_us)
        too_late = is_late(late_us - (self.watermark_us - self.final_us))
        late = events.slice(0, 0)
        if too_late.any():
            within = ~is_late(late_us[too_late] - self.corrections.within_us)
            late, events = events.filter(pa.array(too_late)), events.filter(pa.array(~too_late))
            late_us = late_us[~too_late]
            self._n_uncorrected += self._unit.n_counted(late.filter(pa.array(within)))
        self._n_events += self._unit.n_counted(events)
        self._n_late += self._unit.n_counted(late)
        is_behind = is_late(late_us)
        if is_behind.any():
            self._late.append(events.filter(pa.array(is_behind)))
            events = events.filter(pa.array(~is_behind))
        if events.num_rows:
            self._waiting.append(events)
        return late

    def advance(
        self, watermark_us: int, emit: Emit | None = None, emit_beyond: Emit | None = None
    ) -> pa.Table:
        """Advance event time to `watermark_us`; return what corrects earlier rows, then the matches.

        The rows have the columns of `program.match_schema`, then `REVISION` and `KIND`. With `emit`, a rule
        emits its matches in large parts, as in `Matcher.advance`; the returned rows follow them.

        If event time was already beyond `watermark_us`, a correction may add rows that end after it.
        `emit_beyond` receives them; without it they are among the others.
        """
        found = [self._with_kind(self._row_schema.empty_table(), MATCH)]
        if self._late:
            *corrected, beyond = self._correct(watermark_us if emit_beyond else self.watermark_us)
            found += corrected
            if emit is not None and emit_beyond is not None and beyond.num_rows:
                emit(pa.concat_tables(found))  # withdrawn rows come first
                found = found[:1]
                emit_beyond(beyond)
        if watermark_us > self.watermark_us:
            if emit is not None and len(found) > 1:
                emit(pa.concat_tables(found))
                found = found[:1]
            found.append(self._go_on(watermark_us, emit))
        self._let_go()
        return pa.concat_tables(found)

    def finish(self, emit: Emit | None = None) -> pa.Table:
        """The input is complete: advance to the end of time, so that every window closes."""
        return self.advance(END_OF_TIME_US, emit)

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        tables = [*self._waiting, *self._late]
        deadlines = [int(np.asarray(table.column(TIME_COLUMN)).min()) for table in tables]
        of_runs = self._front.next_deadline_us()
        return min(deadlines if of_runs is None else [*deadlines, of_runs], default=None)

    # ------------------------------------------------------------ continuing

    def _go_on(self, watermark_us: int, emit: Emit | None) -> pa.Table:
        """Evaluate the events up to `watermark_us`; return the matches."""
        due = self._due(watermark_us)
        if watermark_us >= END_OF_TIME_US:  # nothing follows
            self._front.take_in(due)
            rows = self._front.advance(watermark_us, self._retaining(emit, retain=False))
            return self._reported(rows, retain=False)
        found = []
        time_us = np.asarray(due.column(TIME_COLUMN))
        reached_us = START_OF_TIME_US
        for stop_us in self._stops(watermark_us):
            is_now = (time_us > reached_us) & (time_us <= stop_us)
            events = due if is_now.all() else due.filter(pa.array(is_now))
            if events.num_rows:
                self._front.take_in(events)
                self._segments[-1].events.append(RetainedTable.of(events))
            rows = self._front.advance(stop_us, self._retaining(emit))
            found.append(self._reported(rows))
            reached_us = stop_us
            self._let_go()
        return pa.concat_tables(found)

    def _due(self, watermark_us: int) -> pa.Table:
        """Remove the events up to the watermark from those that wait, and return them."""
        if not self._waiting:
            return self._unit.event_schema.empty_table()
        table = self._waiting[0]  # the usual case: nothing is copied
        if len(self._waiting) > 1:
            table = pa.concat_tables(self._waiting).combine_chunks()
        is_due = np.asarray(table.column(TIME_COLUMN)) <= watermark_us
        if is_due.all():
            self._waiting = []
            return table
        self._waiting = [table.filter(pa.array(~is_due))]
        return table.filter(pa.array(is_due))

    def _stops(self, watermark_us: int) -> list[int]:
        """Return the times at which to stop: a large step then retains no more than small ones."""
        within_us = self.corrections.within_us
        stops = [watermark_us - within_us + within_us * number // SAVES for number in range(SAVES)]
        return [*(us for us in stops if us - self.watermark_us >= self._step_us), watermark_us]

    @property
    def _step_us(self) -> int:
        """From one saved state to the next."""
        return max(self.corrections.within_us // SAVES, 1)

    def _retaining(self, emit: Emit | None, *, retain: bool = True) -> Emit | None:
        if emit is None:
            return None
        to_emit = emit
        return lambda rows: to_emit(self._reported(rows, retain=retain))

    def _reported(self, rows: pa.Table, *, retain: bool = True) -> pa.Table:
        """Return new matches with their revision."""
        revision = np.full(rows.num_rows, self._first_revision, np.int64)
        if rows.num_rows and self._withdrawn.num_rows:
            known = pc.index_in(rows.column("match_id"), value_set=whole(self._withdrawn.column("match_id")))
            places = np.asarray(pc.fill_null(known, -1))
            again = places >= 0
            revision[again] = np.asarray(self._withdrawn.column(REVISION))[places[again]] + 1
            self._withdrawn = _without(self._withdrawn, places[again])
        rows = _with_revision(rows, revision)
        if retain and rows.num_rows and not self._has_overflowed:
            segment = self._segments[-1]
            segment.rows.append(RetainedTable.of(self._not_final(rows)))
            if segment.size > self.corrections.max_retained:  # one call can find any number of matches
                self._has_overflowed = True
                self._segments = [Segment(segment.start_us, b"")]
        return self._with_kind(rows, MATCH)

    @staticmethod
    def _with_kind(rows: pa.Table, kind: str) -> pa.Table:
        return rows.append_column(pa.field(KIND, pa.string()), pa.repeat(pa.scalar(kind), rows.num_rows))

    # ------------------------------------------------------------ corrections

    def _correct(self, shown_us: int) -> list[pa.Table]:
        """Repeat everything since the earliest late event.

        Returns
        -------
        list of 3 tables
            The withdrawn rows, the added rows that may be reported at event time `shown_us`, and the other
            added rows.
        """
        late = pa.concat_tables(self._late)
        self._late = []
        late_us = np.asarray(late.column(TIME_COLUMN))
        first = bisect_left(self._segments, int(late_us.min()), key=lambda segment: segment.start_us) - 1
        again = self._segments[first:]
        old = tables_of([rows for segment in again for rows in segment.rows], self._row_schema)
        if any(segment.has_other_measures for segment in again):
            old = _with_values_of(old, pa.concat_tables(self._repeated(again, late.slice(0, 0)).found))
        segments, found, is_beyond, self._front = self._repeated(again, late, shown_us)
        gone, revisions, is_new = self._compare(old, pa.concat_tables(found))
        added: list[pa.Table] = []
        added_beyond: list[pa.Table] = []
        bounds = np.cumsum([rows.num_rows for rows in found])[:-1]
        split = (np.split(revisions, bounds), np.split(is_new, bounds))
        for segment, rows, beyond, revision, new in zip(segments, found, is_beyond, *split, strict=True):
            stands = _with_revision(rows, revision)
            if rows.num_rows:
                segment.rows.append(RetainedTable.of(stands))
            added.append(stands.filter(pa.array(new & ~beyond)))
            added_beyond.append(stands.filter(pa.array(new & beyond)))
        self._segments[first:] = segments
        of_kind = [(gone, RETRACT), (pa.concat_tables(added), MATCH), (pa.concat_tables(added_beyond), MATCH)]
        return [self._with_kind(rows, kind) for rows, kind in of_kind]

    def _repeated(
        self, again: Sequence[Segment], late: pa.Table, shown_us: int = END_OF_TIME_US
    ) -> _Repeated:
        """Evaluate the events of some segments, which reach to the watermark, and late events, again."""
        late_us = np.asarray(late.column(TIME_COLUMN))
        matcher = self._unit.restored(again[0].save)
        ends = [*(segment.start_us for segment in again[1:]), self.watermark_us]
        segments: list[Segment] = []
        found: list[pa.Table] = []
        is_beyond: list[Mask] = []
        for segment, end_us in zip(again, ends, strict=True):
            if segments and segment.warm is not None:
                matcher = self._unit.restored(warmed_unit(self._unit, matcher.snapshot(), segment.warm))
            save = matcher.snapshot() if segments else segment.save
            of_segment = late.filter(pa.array((late_us > segment.start_us) & (late_us <= end_us)))
            events = pa.concat_tables([tables_of(segment.events, self._unit.event_schema), of_segment])
            matcher.take_in(events)
            stops = [end_us] if shown_us >= end_us else [shown_us, end_us]
            parts = [self._not_final(matcher.advance(us)) for us in stops]
            found.append(pa.concat_tables(parts))
            is_beyond.append(np.repeat([False, True][: len(parts)], [rows.num_rows for rows in parts]))
            retained = [RetainedTable.of(events)] if events.num_rows else []
            segments.append(Segment(segment.start_us, save, retained, warm=segment.warm))
        return _Repeated(segments, found, is_beyond, matcher)

    def _not_final(self, rows: pa.Table) -> pa.Table:
        """Return the rows that may still change."""
        if not self._final_us:
            return rows
        of_rule = pc.index_in(rows.column("rule"), value_set=pa.array(list(self._final_us), pa.string()))
        final_us = np.array([*self._final_us.values(), START_OF_TIME_US])
        is_final = final_us[np.asarray(pc.fill_null(of_rule, -1))] >= _times_us(rows, "match_end")
        return rows.filter(pa.array(~is_final))

    def _compare(self, old: pa.Table, new: pa.Table) -> tuple[pa.Table, I64, Mask]:
        """Return the rows that withdraw invalid rows of `old`, and those of `new` that are new or revised.

        Ids and their numbers of rows are compared, and the values of rules that need it (`may_differ`). The
        rows of a match are withdrawn together.
        """
        withdrawn = self._withdrawn
        ids = [chunk for table in (old, new, withdrawn) for chunk in table.column("match_id").chunks]
        encoded = pa.chunked_array(ids, pa.string()).combine_chunks().dictionary_encode()
        n_ids = len(encoded.dictionary)
        numbers = np.asarray(encoded.indices)
        of_old, of_new, of_withdrawn = np.split(numbers, [old.num_rows, old.num_rows + new.num_rows])
        n_old, n_new = (np.bincount(part, minlength=n_ids) for part in (of_old, of_new))
        holds = n_old == n_new
        if self._may_differ:
            then, now = self._is_differing(old), self._is_differing(new)
            rows = (old.filter(pa.array(then)), new.filter(pa.array(now)))
            holds &= ~changed_ids(rows[0], rows[1], of_old[then], of_new[now], n_ids)
        last = np.full(n_ids, self._first_revision - 1, np.int64)  # the last written revision of each id
        last[of_withdrawn] = np.asarray(withdrawn.column(REVISION))
        np.maximum.at(last, of_old, np.asarray(old.column(REVISION)))
        last[~holds & (n_old > 0)] += 1
        a_row = np.zeros(n_ids, np.int64)
        a_row[of_old] = np.arange(old.num_rows)
        self._count_retracted(old.take(pa.array(a_row[~holds & (n_old > 0)])))
        stays_out = (n_old > 0) & (n_new == 0)
        self._withdrawn = pa.concat_tables(
            [
                _without(withdrawn, np.flatnonzero(n_new[of_withdrawn] > 0)),
                as_withdrawn(self._unit, old.take(pa.array(a_row[stays_out])), last[stays_out]),
            ]
        )
        is_gone, is_new = ~holds[of_old], ~holds[of_new]
        gone = old.filter(pa.array(is_gone)).drop_columns(REVISION)
        return _with_revision(gone, last[of_old[is_gone]]), last[of_new] + is_new, is_new

    def _is_differing(self, rows: pa.Table) -> Mask:
        """Return which rows belong to rules that `may_differ`."""
        names = pa.array(self._may_differ, pa.string())
        chosen: Mask = np.asarray(pc.is_in(rows.column("rule"), value_set=names))
        return chosen

    def _count_retracted(self, rows: pa.Table) -> None:
        """Count matches, given one row of each."""
        for item in pc.value_counts(rows.column("rule")).to_pylist():
            self._n_retracted[item["values"]] += item["counts"]

    # ------------------------------------------------------------ what is retained

    def _let_go(self) -> None:
        """Save the state if it is due; drop what is final, and what exceeds the limit."""
        within_us, most = self.corrections.within_us, self.corrections.max_retained
        if self.watermark_us >= END_OF_TIME_US:
            self._segments = [Segment(self.watermark_us, b"")]
            self._withdrawn = WITHDRAWN.empty_table()
            return
        if self._has_overflowed:
            self._segments = [Segment(self.watermark_us, self._front.snapshot())]
            self._has_overflowed = False
        last = self._segments[-1]
        is_far = self.watermark_us - last.start_us >= self._step_us
        if last.size and (is_far or last.size >= max(most // SAVES, 1)):
            self._segments.append(Segment(self.watermark_us, self._front.snapshot()))
        n_final = 0
        n_retained = self.n_retained
        for segment, following in pairwise(self._segments):
            if following.start_us > self.watermark_us - within_us and n_retained <= most:
                break
            n_final += 1
            n_retained -= segment.size
        self._segments = self._segments[n_final:]
        if max(self._final_us.values(), default=END_OF_TIME_US) <= self._segments[0].start_us:
            self._final_us = {}
        until_us = np.asarray(self._withdrawn.column("until"))
        self._withdrawn = _without(self._withdrawn, np.flatnonzero(until_us < self._segments[0].start_us))
        if self._withdrawn.num_rows > most:  # all later revisions are higher, so none is used twice
            revision = np.asarray(self._withdrawn.column(REVISION))
            self._first_revision = max(self._first_revision, int(revision.max()) + 1)
            self._withdrawn = WITHDRAWN.empty_table()

    # ------------------------------------------------------------ snapshot

    @property
    def n_waiting(self) -> int:
        """Prepared events that wait until the watermark reaches them."""
        return self._front.n_waiting + sum(int(table.num_rows) for table in self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of these events in memory."""
        return self._front.waiting_bytes + sum(int(table.nbytes) for table in self._waiting)

    def snapshot(self) -> bytes:
        """Return what is needed to continue elsewhere, as bytes (`cep.engine.corrections.retained`)."""
        waiting = pa.concat_tables([self._unit.event_schema.empty_table(), *self._waiting, *self._late])
        names = [rule.name for rule in self.program.rules]
        numbers = [
            *(self._first_revision, self._n_events, self._n_late, self._n_uncorrected),
            *self._n_retracted.values(),
        ]
        return Retained(
            numbers,
            self._front.snapshot(),
            RetainedTable.of(waiting),
            RetainedTable.of(self._withdrawn),
            self._segments,
            [self._final_us.get(name, START_OF_TIME_US) for name in names] if self._final_us else (),
        ).encode(fingerprint_of(self._unit))

    @classmethod
    def restore(
        cls,
        program: Program | Evaluated,
        data: bytes | memoryview,
        corrections: Corrections,
        tables: Mapping[str, GivenTable] | None = None,
    ) -> Corrector:
        """Return the corrector that wrote `data`; the bound of corrections may differ.

        Raises StateError: the bytes are damaged, of an unknown format, of other rules, or of a run without
        corrections.
        """
        corrector = cls(program, corrections, tables)
        unit = corrector._unit
        stored = Retained.decode(data, fingerprint_of(unit))
        numbers = stored.numbers
        if len(numbers) != N_NUMBERS + len(program.rules):
            raise StateError("E0702", "the snapshot is damaged: its counters do not fit its rules")
        corrector._first_revision, *counts = numbers[:N_NUMBERS]
        corrector._n_events, corrector._n_late, corrector._n_uncorrected = counts
        names = [rule.name for rule in program.rules]
        corrector._n_retracted = dict(zip(names, numbers[N_NUMBERS:], strict=True))
        corrector._front = unit.restored(bytes(stored.front))
        waiting = stored.waiting.table()
        time_us = np.asarray(waiting.column(TIME_COLUMN))
        has_passed = is_late(late_by_us(time_us, corrector.watermark_us))
        corrector._late = _non_empty(waiting.filter(pa.array(has_passed)))
        corrector._waiting = _non_empty(waiting.filter(pa.array(~has_passed)))
        corrector._withdrawn = stored.withdrawn.table()
        corrector._segments = stored.segments
        if stored.final_us:
            corrector._final_us = dict(zip(names, stored.final_us, strict=True))
        return corrector


def warmed_unit(unit: Evaluated, data: Part, warm: Warm) -> bytes:
    """Return the state of an evaluator in which some rules have a past.

    Raises StateError as `warmed` does.
    """
    from cep.engine.matching.warmed_rules import warmed  # it loads kernels that only new rules use

    parts = list(unit.snapshots(memoryview(data)))
    for number, past in warm.states.items():
        parts[number] = warmed(unit.programs[number], bytes(parts[number]), bytes(past), warm.rules)
    return unit.together([bytes(part) for part in parts])


def as_withdrawn(unit: Evaluated, rows: pa.Table, revision: I64) -> pa.Table:
    """Return withdrawn matches, given a row of each, with the time after which they cannot be found again."""
    spans = np.array(unit.reported_within_us, np.int64)
    names = pa.array([rule.name for rule in unit.rules], pa.string())
    of_rule = np.asarray(pc.index_in(rows.column("rule"), value_set=names))
    span_us = spans[of_rule]
    has_end = np.array([rule.windowed is not None for rule in unit.rules])[of_rule]
    start_us, end_us = (_times_us(rows, name) for name in ("match_start", "match_end"))
    until_us = np.where(span_us < 0, END_OF_TIME_US, np.where(has_end, end_us, start_us) + span_us)
    columns = [rows.column("match_id"), pa.array(revision), pa.array(until_us)]
    return pa.Table.from_arrays(columns, schema=WITHDRAWN)


def is_corrected(data: bytes | memoryview) -> bool:
    """Return whether a `Corrector` wrote `data`."""
    return bytes(data[:4]) == MAGIC


def fingerprint_of(program: Evaluated) -> bytes:
    """Return a hash of 16 bytes that also depends on the order of the rules.

    The retained events are prepared: the order of the rules decides the meaning of each bit.
    """
    names = "\0".join(rule.name for rule in program.rules)
    return hashlib.sha256(program.fingerprint + names.encode()).digest()[:16]


def restored(
    program: Program | Evaluated,
    data: bytes | memoryview,
    corrections: Corrections | None,
    tables: Mapping[str, GivenTable] | None = None,
) -> Matcher | Corrector:
    """Return the evaluator that wrote `data`; raises StateError if it was of the other kind."""
    if corrections is not None:
        return Corrector.restore(program, data, corrections, tables)
    if is_corrected(data):
        raise other_kind(is_corrected=True)
    assert isinstance(program, Program)
    return Matcher.restore(program, data, tables)


N_NUMBERS = 4
"""Numbers of a snapshot before the numbers of retracted matches by rule."""


class _Repeated(NamedTuple):
    """What comes out when segments are evaluated again.

    Parameters
    ----------
    segments
        The segments, without rows.
    found
        The rows of each.
    is_beyond
        Which of these may not be reported yet.
    front
        The evaluator at the end.
    """

    segments: list[Segment]
    found: list[pa.Table]
    is_beyond: list[Mask]
    front: Front


def _with_values_of(old: pa.Table, found: pa.Table) -> pa.Table:
    """Return reported rows with the measures that the new rules compute, if the new rules find the matches,
    too.
    """
    places = np.asarray(
        pc.fill_null(pc.index_in(found.column("match_id"), value_set=whole(old.column("match_id"))), -1)
    )
    revision = np.asarray(old.column(REVISION))[places[places >= 0]]
    others = pc.invert(pc.is_in(old.column("match_id"), value_set=whole(found.column("match_id"))))
    return pa.concat_tables(
        [_with_revision(found.filter(pa.array(places >= 0)), revision), old.filter(others)]
    )


def _times_us(rows: pa.Table, name: str) -> I64:
    times: I64 = np.asarray(rows.column(name).cast(pa.int64()))
    return times


def _with_revision(rows: pa.Table, revision: I64) -> pa.Table:
    return rows.append_column(pa.field(REVISION, pa.int64()), pa.array(revision))


def _without(table: pa.Table, places: I64) -> pa.Table:
    """Return `table` without the rows at `places`."""
    kept = np.ones(table.num_rows, np.bool_)
    kept[places] = False
    return table.filter(pa.array(kept))


def _non_empty(table: pa.Table) -> list[pa.Table]:
    return [table] if table.num_rows else []
