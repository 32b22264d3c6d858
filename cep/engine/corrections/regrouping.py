"""Dividing the state of a corrector by key, and merging the state of several correctors.

See `cep.engine.matching.regrouping`. Correctors save states at different times. The joined one has a single
segment, which begins at the latest start of the first segments: no part corrects anything before that. A part
whose first segment begins earlier repeats its events up to that time, as a correction does. Where rules began
with a past, everything before that is final for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.engine.corrections.corrector import Corrector, fingerprint_of
from cep.engine.corrections.evaluated import Evaluated
from cep.engine.corrections.retained import (
    Retained,
    RetainedTable,
    Segment,
    tables_of,
    without_warm,
)
from cep.engine.matching.regrouping import GroupsOf, Part, is_for_all
from cep.program.program import TIME_COLUMN
from cep.rule_set import REVISION

_FOR_ALL = -1
"""The group of a row that each group has."""


def divided_corrector(unit: Evaluated, data: bytes, groups_of: Sequence[GroupsOf], n: int) -> list[Part]:
    """Return the snapshots of `n` groups of keys, given that of a corrector.

    `groups_of` returns the group of rows, for each program of `unit`. Raises StateError as
    `Corrector.restore` does.
    """
    stored = Retained.decode(data, fingerprint_of(unit))
    fronts = unit.divided(stored.front, groups_of, n)
    waiting = stored.waiting.table()
    of_waiting = _groups_of_events(unit, waiting, groups_of)
    segments = [_divided(unit, segment, groups_of, n) for segment in without_warm(stored.segments)]
    parts = []
    for group in range(n):
        part = Retained(
            [stored.numbers[0], *(stored.numbers[1:] if group == 0 else [0] * (len(stored.numbers) - 1))],
            fronts[group].data,
            RetainedTable.of(_of_group(waiting, of_waiting, group)),
            stored.withdrawn,  # an id that no key of the group has is never found again
            [of_groups[group] for of_groups in segments],
            stored.final_us,
        )
        is_empty = fronts[group].is_empty and not (of_waiting == group).any()
        is_empty = is_empty and not any(segment.rows or segment.events for segment in part.segments)
        parts.append(Part(part.encode(fingerprint_of(unit)), is_empty))
    return parts


def _divided(unit: Evaluated, segment: Segment, groups_of: Sequence[GroupsOf], n: int) -> list[Segment]:
    saves = unit.divided(segment.save, groups_of, n) if len(segment.save) else None
    events = tables_of(segment.events, unit.event_schema)
    rows = tables_of(segment.rows, unit.match_schema.append(pa.field(REVISION, pa.int64())))
    of_events, of_rows = _groups_of_events(unit, events, groups_of), _groups_of_rows(unit, rows, groups_of)
    return [
        Segment(
            segment.start_us,
            b"" if saves is None else saves[group].data,
            as_retained(_of_group(events, of_events, group)),
            as_retained(_of_group(rows, of_rows, group)),
            segment.has_other_measures,
        )
        for group in range(n)
    ]


def as_retained(table: pa.Table) -> list[RetainedTable]:
    """Return a table in the form that a segment contains."""
    return [RetainedTable.of(table)] if table.num_rows else []


def _of_group(table: pa.Table, groups: I64, group: int) -> pa.Table:
    return table.filter(pa.array((groups == group) | (groups == _FOR_ALL)))


def _groups_of_events(unit: Evaluated, events: pa.Table, groups_of: Sequence[GroupsOf]) -> I64:
    """Return the group of each prepared event."""
    groups = np.full(events.num_rows, _FOR_ALL, np.int64)
    for number, program in enumerate(unit.programs):
        rows, own = unit.own_rows(number, events), unit.split(number, events)
        by_key = ~is_for_all(program, own)
        if by_key.any():
            groups[rows[by_key]] = groups_of[number](own.filter(pa.array(by_key)))
    return groups


def _groups_of_rows(unit: Evaluated, rows: pa.Table, groups_of: Sequence[GroupsOf]) -> I64:
    """Return the group of each reported row."""
    groups = np.zeros(rows.num_rows, np.int64)
    for number, program in enumerate(unit.programs):
        names = pa.array([rule.name for rule in program.rules], pa.string())
        own = np.flatnonzero(np.asarray(pc.is_in(rows.column("rule"), value_set=names)))
        if len(own):
            keys = [
                rows.column(name).take(pa.array(own)).cast(program.event_schema.field(column).type)
                for name, column in zip(program.key, program.key_columns, strict=True)
            ]
            groups[own] = groups_of[number](pa.table(keys, names=list(program.key_columns)))
    return groups


class Trimmed(NamedTuple):
    """What a corrector retains from some time on."""

    save: bytes
    events: pa.Table
    rows: pa.Table


def joined_corrector(correctors: Sequence[Corrector]) -> bytes:
    """Return the state of several correctors of the same rules as a snapshot of one.

    They have different keys, and have reached the same event time.
    """
    unit = correctors[0].unit
    stored = [Retained.decode(of.snapshot(), fingerprint_of(unit)) for of in correctors]
    for of in stored:
        of.segments = without_warm(of.segments)
    start_us = max(of.segments[0].start_us for of in stored)
    trimmed = [retained_from(unit, of.segments, start_us) for of in stored]
    save = unit.as_one([of.save for of in trimmed]) if all(len(of.save) for of in trimmed) else b""
    rows = pa.concat_tables([of.rows for of in trimmed])
    whole_segment = Segment(
        start_us,
        save,
        as_retained(_once(unit, [of.events for of in trimmed])),
        as_retained(rows),
        any(segment.has_other_measures for of in stored for segment in of.segments),
    )
    finals = [of.final_us for of in stored if of.final_us]
    whole = Retained(
        [max(of.numbers[0] for of in stored), *np.sum([of.numbers[1:] for of in stored], axis=0).tolist()],
        unit.as_one([of.front for of in stored]),
        RetainedTable.of(_once(unit, [of.waiting.table() for of in stored])),
        RetainedTable.of(latest_withdrawn([of.withdrawn.table() for of in stored])),
        [whole_segment],
        np.max(finals, axis=0).tolist() if finals else (),
    )
    return whole.encode(fingerprint_of(unit))


def retained_from(unit: Evaluated, segments: Sequence[Segment], start_us: int) -> Trimmed:
    """Return what segments retain from `start_us` on, which is not before the first of them."""
    number = max(number for number, segment in enumerate(segments) if segment.start_us <= start_us)
    later = segments[number:]
    events = tables_of([item for segment in later for item in segment.events], unit.event_schema)
    schema = unit.match_schema.append(pa.field(REVISION, pa.int64()))
    rows = tables_of([item for segment in later for item in segment.rows], schema)
    if later[0].start_us == start_us:
        return Trimmed(bytes(later[0].save), events, rows)
    matcher = unit.restored(later[0].save)
    is_before = np.asarray(events.column(TIME_COLUMN)) <= start_us
    matcher.take_in(events.filter(pa.array(is_before)))
    found = matcher.advance(start_us)
    is_known = pc.is_in(rows.column("match_id"), value_set=found.column("match_id").combine_chunks())
    return Trimmed(matcher.snapshot(), events.filter(pa.array(~is_before)), rows.filter(pc.invert(is_known)))


def _once(unit: Evaluated, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the prepared events of all parts; those that each part has, once."""
    none = [lambda rows: np.zeros(rows.num_rows, np.int64)] * len(unit.programs)
    first, *others = tables
    own = [table.filter(pa.array(_groups_of_events(unit, table, none) != _FOR_ALL)) for table in others]
    return pa.concat_tables([first, *own])


def latest_withdrawn(tables: Sequence[pa.Table]) -> pa.Table:
    """Return withdrawn matches, each once, with its latest revision."""
    table = pa.concat_tables(tables)
    found = table.group_by("match_id").aggregate([(REVISION, "max"), ("until", "max")])
    columns = [found.column("match_id"), found.column(f"{REVISION}_max"), found.column("until_max")]
    return pa.Table.from_arrays(columns, schema=table.schema)
