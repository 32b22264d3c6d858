"""The state of correctors under other rules.

    snapshots = changed_correctors(before, snapshots, now, changes, begins_us)

Every saved state is converted to the new rules (`cep.engine.matching.changed_rules`), so the new rules
re-evaluate what a late event changes. What was reported before depends on the verdict about its rule:

- A rule that continues adds and withdraws matches as if it had always run. Where its measures have changed,
  the next correction computes them for the rows that have the old ones (`Segment.has_other_measures`).
- Matches of a rule that has changed or is gone are final, and no longer retained. A rule that begins sees no
  event of earlier segments, so it finds nothing in them.
- If only HAVING has changed, rows of windows that have ended are final, too (`Retained.final_us`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.corrections.corrector import N_NUMBERS, WITHDRAWN, fingerprint_of, warmed_unit
from cep.engine.corrections.evaluated import Evaluated
from cep.engine.corrections.regrouping import as_retained, latest_withdrawn, retained_from
from cep.engine.corrections.retained import (
    Part,
    Retained,
    RetainedTable,
    Segment,
    Warm,
    tables_of,
    without_warm,
)
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.matching.changed_rules import begun, changed, read_until_us
from cep.engine.matching.warmed_rules import all_waiting
from cep.engine.state.codec import decode, encode
from cep.engine.state.sections import StateSections, fitted, moved
from cep.program.changes import KEPT, Changes, Verdict
from cep.program.program import TIME_COLUMN, Program, missing_column
from cep.rule_set import REVISION


def changed_correctors(
    before: Sequence[Evaluated],
    snapshots: Sequence[bytes],
    now: Sequence[Evaluated],
    taken_from: Sequence[tuple[Program, Program]],
    changes: Changes,
    begins_us: int,
    past: tuple[Mapping[bytes, bytes], Collection[str]] = ({}, ()),
) -> list[bytes]:
    """Return the snapshots of correctors of the units `before` as those of the units `now`.

    `snapshots`: one of each unit before; none: there is no state. `taken_from`: programs of the new rules,
    and those whose state they take over; other programs begin without state. Rules that begin see the events
    that are after `begins_us` and after all events in the snapshots. `past`: by the fingerprint of a program
    of the new rules, the snapshot of a matcher that has read the past, and the rules that begin with it.

    Raises StateError as `Corrector.restore` does.
    """
    units = [
        _Unit(unit, Retained.decode(data, fingerprint_of(unit)))
        for unit, data in zip(before, snapshots, strict=bool(snapshots))
    ]
    for of in units:
        of.stored.segments = without_warm(of.stored.segments)
    begins_us = max((begins_us, *(unit.read_until_us for unit in units)))
    sources = {
        id(program): _Source(unit, number)
        for program, then in taken_from
        for unit in units
        for number, of in enumerate(unit.unit.programs)
        if of is then
    }
    found = []
    for unit in now:
        own = [sources.get(id(program)) for program in unit.programs]
        retained = _Changed(unit, own, changes, begins_us).retained()
        _add_past(unit, retained, *past)
        found.append(retained.encode(fingerprint_of(unit)))
    return found


def _add_past(
    unit: Evaluated, retained: Retained, pasts: Mapping[bytes, bytes], rules: Collection[str]
) -> None:
    """Let rules begin with a past: what they know is part of the states from the change on.

    What they found up to then is final. The events that wait are those of the past, prepared for all rules.
    """
    known = {
        number: fitted(decode(pasts[program.fingerprint]), program)
        for number, program in enumerate(unit.programs)
        if program.fingerprint in pasts
    }
    if not known:
        return
    fronts = map(decode, unit.snapshots(retained.front))
    reached_us = max(of.shared.watermark_us for of in (*fronts, *known.values()))
    waiting, states = with_past(unit, retained.waiting.table(), known, reached_us)
    warm = Warm(tuple(sorted(rules)), states)
    retained.waiting = RetainedTable.of(waiting)
    retained.front = warmed_unit(unit, retained.front, warm)
    if retained.segments[-1].start_us < reached_us:
        retained.segments.append(Segment(reached_us, b""))
    retained.segments[-1].save, retained.segments[-1].warm = retained.front, warm


def with_past(
    unit: Evaluated, waiting: pa.Table, known: Mapping[int, StateSections], reached_us: int
) -> tuple[pa.Table, dict[int, Part]]:
    """Return the events that wait in an evaluator or in a past, and the past without its waiting events.

    Parameters
    ----------
    waiting
        The events of the unit that are later than `reached_us`.
    known
        The past of programs, by number, which has reached `reached_us`.
    """
    of_past = np.concatenate([unit.own_rows(number, waiting) for number in known])
    together = [waiting.take(pa.array(np.setdiff1d(np.arange(waiting.num_rows), of_past)))]
    states: dict[int, Part] = {}
    for number, sections in known.items():
        program = unit.programs[number]
        waits = (
            program.event_schema.empty_table() if sections.shared.waiting is None else sections.shared.waiting
        )
        is_later = (
            np.asarray(waits.column(TIME_COLUMN)) > reached_us
        )  # matches wait in the matchers themselves
        later = all_waiting(program, unit.split(number, waiting), waits.filter(pa.array(is_later)))
        if later is not None:
            together.append(unit.joined(number, later))
        stays = waits.filter(pa.array(~is_later)).combine_chunks()
        about = program.identity.shared.packed
        shared = replace(sections.shared, about=about, waiting=stays if stays.num_rows else None)
        states[number] = encode(replace(sections, shared=shared), program.fingerprint)
    return pa.concat_tables(together), states


@dataclass(frozen=True, eq=False)
class _Unit:
    """A unit of the rules before, and its state."""

    unit: Evaluated
    stored: Retained

    @cached_property
    def read_until_us(self) -> int:
        """The latest event time in it."""
        waiting: list[int] = np.asarray(self.stored.waiting.table().column(TIME_COLUMN)).tolist()
        fronts = self.unit.snapshots(self.stored.front)
        return max((*waiting, *(read_until_us(decode(front)) for front in fronts)))

    @property
    def start_us(self) -> int:
        """When its first segment begins."""
        return self.stored.segments[0].start_us

    def from_then_on(self, start_us: int) -> Segment:
        """Return its segments as one that begins at `start_us`, not before the first of them."""
        segments = self.stored.segments
        save, events, rows = retained_from(self.unit, segments, start_us)
        marks = any(segment.has_other_measures for segment in segments)
        return Segment(start_us, save, [RetainedTable.of(events)], [RetainedTable.of(rows)], marks)

    def by_rule(self, numbers: Sequence[int]) -> dict[str, int]:
        """Return numbers of its rules, in their order, by rule."""
        return dict(zip((rule.name for rule in self.unit.rules), numbers, strict=False))


@dataclass(frozen=True, eq=False)
class _Source:
    """Whose state a program takes over: that of program `number` of a unit."""

    of: _Unit
    number: int

    @property
    def program(self) -> Program:
        """The program before."""
        return self.of.unit.programs[self.number]

    @cached_property
    def reached_us(self) -> int:
        """The event time that the program has reached."""
        return decode(self.of.unit.snapshots(self.of.stored.front)[self.number]).shared.watermark_us


class _Changed:
    """A unit of the new rules, and whose state its programs take over; programs without a source begin
    without state.
    """

    def __init__(
        self, unit: Evaluated, sources: Sequence[_Source | None], changes: Changes, begins_us: int
    ) -> None:
        self.unit = unit
        self.sources = sources
        self.begins_us = begins_us
        self.verdicts = changes.verdicts
        self.units = list({id(source.of): source.of for source in sources if source is not None}.values())
        self.other_having = {
            name: source.reached_us
            for program, source in zip(unit.programs, sources, strict=True)
            if source is not None
            for name in changes.other_having & {rule.name for rule in program.rules}
        }

    def retained(self) -> Retained:
        """Return what a corrector of the unit retains."""
        if not self.units:
            front = self._state([])
            return Retained(
                [0] * (N_NUMBERS + len(self.unit.rules)),
                front,
                RetainedTable.of(self.unit.event_schema.empty_table()),
                RetainedTable.of(WITHDRAWN.empty_table()),
                [Segment(START_OF_TIME_US, front)],
                (),
            )
        stored = [of.stored for of in self.units]
        front = self._state([of.front for of in stored])
        return Retained(
            self._numbers(),
            front,
            RetainedTable.of(self._events([of.waiting.table() for of in stored])),
            RetainedTable.of(latest_withdrawn([of.withdrawn.table() for of in stored])),
            self._segments(front),
            self._final_us(),
        )

    def _numbers(self) -> list[int]:
        first, *counts = np.max([of.stored.numbers[:N_NUMBERS] for of in self.units], axis=0).tolist()
        retracted: dict[str, int] = {}
        for of in self.units:
            retracted |= of.by_rule(of.stored.numbers[N_NUMBERS:])
        return [first, *counts, *(retracted.get(rule.name, 0) for rule in self.unit.rules)]

    def _final_us(self) -> Sequence[int]:
        found = self.other_having
        for of in self.units:
            found = of.by_rule(of.stored.final_us) | found
        names = [rule.name for rule in self.unit.rules]
        return [found.get(name, START_OF_TIME_US) for name in names] if found.keys() & set(names) else ()

    def _segments(self, front: bytes) -> list[Segment]:
        """Return the segments. Rows of the new rules have one of their own."""
        of_units = [of.stored.segments for of in self.units]
        if len(of_units) > 1:
            start_us = max(of.start_us for of in self.units)
            of_units = [[of.from_then_on(start_us)] for of in self.units]
        segments = [self._segment(parts) for parts in zip(*of_units, strict=True)]
        reached_us = max(source.reached_us for source in self.sources if source is not None)
        if segments[-1].size:
            segments.append(Segment(reached_us, front))
        return segments

    def _segment(self, parts: Sequence[Segment]) -> Segment:
        """Return a segment, given that of each unit before."""
        is_over = not all(len(of.save) for of in parts)  # the end of time
        schemas = [of.unit.match_schema.append(pa.field(REVISION, pa.int64())) for of in self.units]
        pairs = list(zip(parts, schemas, self.units, strict=True))
        rows = pa.concat_tables([self._rows(tables_of(of.rows, schema)) for of, schema, _ in pairs])
        events = self._events([tables_of(of.events, unit.unit.event_schema) for of, _, unit in pairs])
        has_other = Verdict.MEASURES in {
            self.verdicts[name] for name in rows.column("rule").unique().to_pylist()
        }
        return Segment(
            parts[0].start_us,
            b"" if is_over else self._state([of.save for of in parts]),
            as_retained(events),
            as_retained(rows),
            has_other or any(of.has_other_measures for of in parts),
        )

    def _state(self, saves: Sequence[Part]) -> bytes:
        """Return a saved state, given that of each unit before."""
        found = []
        for program, source in zip(self.unit.programs, self.sources, strict=True):
            if source is None:
                found.append(begun(program, self.begins_us))
                continue
            save = saves[self.units.index(source.of)]
            sections = decode(source.of.unit.snapshots(memoryview(save))[source.number])
            found.append(
                changed(source.program, program, sections, self.verdicts, self.begins_us, source.reached_us)
            )
        return self.unit.together(found)

    def _events(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return prepared events, given those of each unit before."""
        found = [self.unit.event_schema.empty_table()]
        for number, (program, source) in enumerate(zip(self.unit.programs, self.sources, strict=True)):
            if source is not None:
                events = source.of.unit.split(source.number, tables[self.units.index(source.of)])
                then, now = source.program.identity.shared, program.identity.shared
                events = moved(events, then, now, program, is_of_other_rules=True)
                found.append(self.unit.joined(number, events))
        return pa.concat_tables(found)

    def _rows(self, rows: pa.Table) -> pa.Table:
        """Return the reported rows that may still change, with the columns of the unit."""
        names = [rule.name for rule in self.unit.rules]
        names = [name for name in names if self.verdicts[name] in KEPT and name not in self.other_having]
        own = rows.filter(pc.is_in(rows.column("rule"), value_set=pa.array(names, pa.string())))
        schema = self.unit.match_schema.append(pa.field(REVISION, pa.int64()))
        return pa.Table.from_arrays([_column(own, item) for item in schema], schema=schema)


def _column(rows: pa.Table, item: pa.Field) -> pa.ChunkedArray:
    """Return a column of rows in the type that it has now; what the rows lack is NULL."""
    column = rows.column(item.name) if item.name in rows.column_names else None
    if column is not None and column.type == item.type:
        return column
    numbers = {pa.int64(), pa.float64()}
    if column is not None and {column.type, item.type} <= numbers:
        return column.cast(item.type, safe=False)
    return missing_column(item, rows.num_rows)
