"""Matches of a rule: order the events, find the derivations of every start, select and skip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cep.compiler import ir
from cep.schema.stream import Stream
from tests.oracle.derivations import (
    MAX_STATES,
    Assignment,
    Derivation,
    Derivations,
    Instant,
    OpenState,
    TooManyRunsError,
    events_by_name,
)
from tests.oracle.expressions import Event, evaluate
from tests.oracle.partitions import TIME, columns_of, partition, times_of
from tests.oracle.suppression import not_suppressed
from tests.oracle.tables import Tables, column_of_table, is_there, joined_at, joined_of
from tests.oracle.window_rules import Silence, rows_of_key
from tests.oracle.windows import column_of, value_at, windows_of


@dataclass(frozen=True, slots=True)
class Match:
    """One match. A position is the number of an event in the order of its key, from 0."""

    key: tuple[Any, ...]
    assignment: Assignment
    start_us: int
    end_us: int
    measures: Mapping[str, Any]
    events: tuple[Event, ...]
    is_timeout: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A derivation with its start and preference, which order the candidates of one instant."""

    start: int
    preference: int
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class _Resume:
    """A skip: from `instant` on, starts before `position` are pruned."""

    instant: Instant
    position: int


def find_matches(
    rule: ir.Rule,
    streams: Stream | Sequence[Stream],
    events: Sequence[Event],
    tables: Tables | None = None,
) -> list[Match]:
    """Return the matches of `rule` in `events`, key by key.

    The events are in order of arrival, and none is late. Several streams are in the order of declaration, and
    then `partitions.event_of` makes the events. The matches of a key are in the order in which they are
    reported.
    """
    read = (streams,) if isinstance(streams, Stream) else streams
    if rule.windowing is not None:
        return _rows_of_windows(rule, read, events, tables or {})
    return [
        match
        for key, ordered in partition(rule, read, events).items()
        for match in _matches_of_key(rule, key, _with_windows(rule, _with_tables(rule, ordered, tables)))
    ]


def _rows_of_windows(
    rule: ir.Rule, streams: Sequence[Stream], events: Sequence[Event], tables: Tables
) -> list[Match]:
    partitions = partition(rule, streams, events)
    keys: dict[tuple[Any, ...], Silence | None] = dict.fromkeys(partitions)
    assert rule.windowing is not None
    if rule.windowing.table is not None and events:
        table, versions = tables[rule.windowing.table.name]
        columns = rule.windowing.table_key
        times = times_of(streams, events)
        latest_us = max([*times, *(version[table.event_time] for version in versions)])
        for key in [*keys, *(tuple(version[column] for column in columns) for version in versions)]:
            row = dict(zip(columns, key, strict=True))
            keys[key] = Silence(min(times), latest_us, partial(is_there, table, versions, row))
    return [
        Match(key, (), start_us, end_us, measures, ())
        for key, silence in keys.items()
        for start_us, end_us, measures in rows_of_key(
            rule, _with_tables(rule, partitions.get(key, []), tables), silence
        )
    ]


def _with_tables(rule: ir.Rule, events: Sequence[Event], tables: Tables | None) -> list[Event]:
    """Return the events of a key with the columns of tables that the rule reads."""
    columns = set(joined_of(rule))
    return [
        {
            **event,
            **{
                column_of_table(column): joined_at(column, event, event[TIME], tables or {})
                for column in columns
            },
        }
        for event in events
    ]


def _with_windows(rule: ir.Rule, events: Sequence[Event]) -> list[Event]:
    """Return the events of a key with the values of the rule's windows."""
    windows = set(windows_of(rule))
    times = [event[TIME] for event in events]
    return [
        {
            **event,
            **{
                column_of(windowed): value_at(
                    windowed, events, at, times, lambda part, of: evaluate(part, of, {})
                )
                for windowed in windows
            },
        }
        for at, event in enumerate(events)
    ]


def _matches_of_key(rule: ir.Rule, key: tuple[Any, ...], events: Sequence[Event]) -> list[Match]:
    times = [event[TIME] for event in events]
    candidates: list[_Candidate] = []
    states: list[OpenState] = []
    for start in range(len(events)):
        derivations = Derivations(rule, times, events, start)
        for preference, derivation in enumerate(derivations.all()):
            candidates.append(_Candidate(start, preference, derivation))
        states += derivations.states
        if len(states) > MAX_STATES:
            raise TooManyRunsError
    resumes: list[_Resume] = []
    if rule.selection is ir.Selection.EARLIEST:
        chosen = _earliest(rule.skip, candidates, resumes)
    elif rule.selection is ir.Selection.PREFERRED:
        instants = {(time, 0, position) for position, time in enumerate(times)}
        instants |= {state.until for state in states if state.until is not None}
        chosen = _preferred(rule.skip, candidates, states, sorted(instants))
    elif rule.skip.kind is ir.SkipKind.NO_SKIP:
        chosen = sorted(candidates, key=lambda c: (c.derivation.instant, c.start, c.preference))
    else:
        instants = {(time, 0, position) for position, time in enumerate(times)}
        instants |= {state.until for state in states if state.until is not None}
        chosen = _pending(rule.skip, candidates, states, sorted(instants), resumes)
    numbers = not_suppressed(rule.report, [c.derivation.end_us for c in chosen])
    found = [_match(rule, key, times, events, chosen[number].derivation) for number in numbers]
    if rule.report.timeouts:
        late = _timeouts(candidates, states, resumes)
        found += [replace(_match(rule, key, times, events, each), is_timeout=True) for each in late]
    return found


def _timeouts(
    candidates: Sequence[_Candidate], states: Sequence[OpenState], resumes: Sequence[_Resume]
) -> list[Derivation]:
    """Return each assignment once whose last open state was ended by a limit ("Timeouts")."""
    complete = {(each.derivation.assignment, each.derivation.instant) for each in candidates}
    states_of: dict[Assignment, list[OpenState]] = {}
    for state in states:
        states_of.setdefault(state.assignment, []).append(state)
    found = []
    for assignment, of_assignment in states_of.items():
        ends = [state.until for state in of_assignment if state.until is not None]
        if len(ends) < len(of_assignment):
            continue  # one of its states stays open for ever
        last = max(ends)
        limits = [
            state.limit_us for state in of_assignment if state.until == last and state.limit_us is not None
        ]
        is_event = last[1] == 0
        before = [each for each in resumes if each.instant < last or (is_event and each.instant == last)]
        resume = max((each.position for each in before), default=0)
        if limits and (assignment, last) not in complete and assignment[0][1] >= resume:
            found.append(Derivation(assignment, last, min(limits)))
    return found


def _match(
    rule: ir.Rule,
    key: tuple[Any, ...],
    times: Sequence[int],
    events: Sequence[Event],
    derivation: Derivation,
) -> Match:
    """Report a derivation ("What a match reports")."""
    taken = events_by_name(rule, events, derivation.assignment)
    measures = {measure.name: evaluate(measure.expression, None, taken) for measure in rule.measures}
    took = tuple(columns_of(events[position]) for _, position in derivation.assignment)
    start_us = times[derivation.assignment[0][1]]
    return Match(key, derivation.assignment, start_us, derivation.end_us, measures, took)


def _earliest(skip: ir.Skip, candidates: Sequence[_Candidate], resumes: list[_Resume]) -> list[_Candidate]:
    """Carry out "MATCH EARLIEST": decide at each instant, without looking ahead."""
    chosen = []
    resume = 0  # starts before this position are pruned
    for instant in sorted({candidate.derivation.instant for candidate in candidates}):
        complete = [candidate for candidate in candidates if candidate.derivation.instant == instant]
        complete.sort(key=lambda candidate: (candidate.start, candidate.preference))
        reported_start = -1
        for candidate in complete:
            if candidate.start < resume or candidate.start == reported_start:
                continue
            chosen.append(candidate)
            reported_start = candidate.start
            target = _skip_target(skip, candidate.derivation.assignment)
            if skip.kind is not ir.SkipKind.NO_SKIP:
                next_start = candidate.start + 1
                resume = max(resume, next_start if target is None else max(target, next_start))
                resumes.append(_Resume(instant, resume))
    return chosen


def _pending(
    skip: ir.Skip,
    candidates: Sequence[_Candidate],
    states: Sequence[OpenState],
    instants: Sequence[Instant],
    resumes: list[_Resume],
) -> list[_Candidate]:
    """Carry out "MATCH ALL with a skip clause": a match pends while a run of an earlier start is open."""
    chosen: list[_Candidate] = []
    pending: list[_Candidate] = []
    resume = 0
    for instant in instants:
        pending += [candidate for candidate in candidates if candidate.derivation.instant == instant]
        while pending := [candidate for candidate in pending if candidate.start >= resume]:
            first = min(pending, key=lambda c: (c.start, c.derivation.instant, c.preference))
            is_open = any(
                resume <= state.start < first.start
                and state.since <= instant
                and (state.until is None or instant < state.until)
                for state in states
            )
            if is_open:
                break
            pending.remove(first)
            chosen.append(first)
            target = _skip_target(skip, first.derivation.assignment)
            if skip.kind in (ir.SkipKind.TO_FIRST, ir.SkipKind.TO_LAST):
                resume = max(resume, 0 if target is None else target)
            else:
                resume = max(resume, first.start + 1 if target is None else target)
            resumes.append(_Resume(instant, resume))
    return chosen


def _preferred(
    skip: ir.Skip, candidates: Sequence[_Candidate], states: Sequence[OpenState], instants: Sequence[Instant]
) -> list[_Candidate]:
    """Carry out "MATCH PREFERRED": report a match when its start can have no better match any more."""
    chosen: list[_Candidate] = []
    resume = 0
    in_order = skip.kind not in (ir.SkipKind.NO_SKIP, ir.SkipKind.TO_NEXT)
    for instant in (*instants, None):  # None: the end of all events

        def has_happened(other: Instant, instant: Instant | None = instant) -> bool:
            return instant is None or other <= instant

        for start in sorted(
            {candidate.start for candidate in candidates} | {state.start for state in states}
        ):
            if start < resume or any(match.start == start for match in chosen):
                continue
            complete = [each for each in candidates if each.start == start]
            complete = [each for each in complete if has_happened(each.derivation.instant)]
            best = min(complete, key=lambda each: each.preference, default=None)
            is_open = any(
                state.start == start
                and instant is not None
                and state.since <= instant
                and (state.until is None or instant < state.until)
                and (best is None or state.preference <= best.preference)
                for state in states
            )
            if is_open and in_order:
                break
            if best is None or is_open:
                continue
            chosen.append(best)
            if in_order:
                target = _skip_target(skip, best.derivation.assignment)
                resume = max(start + 1, start + 1 if target is None else target)
    return chosen


def _skip_target(skip: ir.Skip, assignment: Assignment) -> int | None:
    """Return the position that the skip clause names ("Where matching resumes"), or None."""
    if skip.kind is ir.SkipKind.PAST_LAST:
        return assignment[-1][1] + 1
    if skip.kind in (ir.SkipKind.TO_FIRST, ir.SkipKind.TO_LAST):
        positions = [
            position for variable, position in assignment if variable in (skip.members or (skip.variable,))
        ]
        if positions:
            return positions[0] if skip.kind is ir.SkipKind.TO_FIRST else positions[-1]
    return None
