"""Both sides of a comparison: the matches of the engine and of the oracle, in one form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pyarrow as pa

from cep.compiler import ir
from cep.compiler.compile import compile_rules
from cep.engine.matching.matcher import Matcher
from cep.engine.order.event_blocks import BLOCK_ROWS
from cep.engine.prepare.predicates import prepare
from cep.program.program import EVENT_COLUMNS, MATCH, OUTCOME, TIMEOUT, Program
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Stream, qualified
from tests.oracle import Match, find_matches
from tests.property.strategies.cases import Case, Step

Row = tuple[Any, ...]
"""Compared values: rule, key, start, end, outcome, measures of a match; number, variable, event of a row."""


def stream_table(stream: Stream, events: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return events as a table of the stream's columns in the types of `ARROW_TYPES`."""
    columns = {
        field.name: pa.array([event[field.name] for event in events], ARROW_TYPES[field.type])
        for field in stream.fields
    }
    return pa.table(columns)


def canonical(value: Any) -> Any:
    """Make floats comparable: NaN becomes a word, and the last bits are cut, because STDDEV may differ."""
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, list):
        return tuple(canonical(item) for item in value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return round(value, 6) + 0.0 if abs(value) < 1e6 else float(f"{value:.9g}")
    return value


def _canonical_event(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((name, canonical(value)) for name, value in sorted(event.items()))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def oracle_rows(case: Case) -> list[Row]:
    """Return the matches that the oracle reports."""
    found = [(rule, find_matches(rule, case.stream, case.events)) for rule in case.rules]
    return in_order([row for rule, matches in found for row in rows_of_matches(rule, matches)])


def rows_of_matches(rule: ir.Rule, matches: Sequence[Match]) -> list[Row]:
    """Return the matches of the oracle in the form of `Row`."""
    rows: list[Row] = []
    for match in matches:
        measures = tuple((name, canonical(value)) for name, value in match.measures.items())
        outcome = TIMEOUT if match.is_timeout else MATCH
        row = (rule.name, match.key, match.start_us, match.end_us, outcome, measures)
        if not rule.report.all_rows:
            rows.append((*row, None, None, None))
            continue
        for number, ((variable, _), event) in enumerate(zip(match.assignment, match.events, strict=True)):
            rows.append((*row, number, variable, _canonical_event(event)))
    return rows


def rows_of(table: pa.Table, rules: Sequence[ir.Rule]) -> list[Row]:
    """Return the rows of a table of matches in the form of `Row`."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.to_pylist()
    by_name = {rule.name: rule for rule in rules}
    rows = []
    for number in range(table.num_rows):
        rule = by_name[columns["rule"][number]]
        key = tuple(columns[name][number] for name in rule.key)
        measures = tuple((m.name, canonical(columns[m.name][number])) for m in rule.measures)
        times = (columns["match_start"][number], columns["match_end"][number])
        outcome = columns[OUTCOME][number] if OUTCOME in columns else MATCH
        of_event = tuple(columns[name][number] if name in columns else None for name in EVENT_COLUMNS)
        event = of_event[-1]
        if event is not None and len(rule.streams) > 1:
            event = {
                qualified(stream, name): value
                for stream, columns in event.items()
                if columns is not None
                for name, value in columns.items()
            }
        event = None if event is None else _canonical_event(event)
        rows.append((rule.name, key, *times, outcome, measures, *of_event[:-1], event))
    return rows


def deliver(program: Program, case: Case, steps: Sequence[Step]) -> pa.Table:
    """Push the events of `case` in `steps`, finish, and return the matches.

    In three of four cases a block has only a few events, so kernels see many blocks, as in large batches. In
    half of the cases rules hand over two matches at a time.
    """
    block_rows = (1, 2, 5, BLOCK_ROWS)[len(case.events) % 4]
    with (
        mock.patch("cep.engine.matching.matcher.BLOCK_ROWS", block_rows),
        mock.patch("cep.engine.matching.matcher.MOST_PENDING", 2),
        useless_left_out(len(case.events)),
    ):
        return _delivered(program, case, steps, hands_over=len(case.events) % 8 < 4)


@contextmanager
def useless_left_out(n: int) -> Iterator[None]:
    """In two of three cases, leave out all events that no rule can use, as if there were few others, and
    compute windows only for keys with an event for which they are read.
    """
    if n % 3 == 0:
        yield
        return
    with (
        mock.patch("cep.engine.matching.matcher._FEW_BEGIN", 0),
        mock.patch("cep.engine.matching.matcher._FEW_USED", 1),
        mock.patch("cep.engine.windows.windows._FEW_KEYS", 0),
    ):
        yield


def _delivered(program: Program, case: Case, steps: Sequence[Step], *, hands_over: bool) -> pa.Table:
    matcher = Matcher(program)
    tables: list[pa.Table] = []
    emit = tables.append if hands_over else None
    seen, newest_us = 0, 0
    for step in steps:
        batch = case.events[seen : seen + step.n_events]
        seen += step.n_events
        late = matcher.push(prepare(program, stream_table(case.stream, batch)))
        assert late.num_rows == 0, "no event of a case is late"
        newest_us = max(newest_us, *(event["ts"] for event in batch))
        if step.advances:
            reach_us = reachable_us(case, seen, newest_us, ahead=step.ahead)
            tables.append(advanced(matcher, reach_us, emit))
        if step.n_events % 2:  # as an owner of state does while no call comes
            matcher.settle()
        if step.restores:
            matcher = Matcher.restore(program, matcher.snapshot())
    tables.append(advanced(matcher, newest_us, emit))
    tables.append(matcher.finish(emit))
    assert matcher.next_deadline_us() is None
    for table in tables:
        assert_ordered(table)
    return pa.concat_tables(tables)


def advanced(matcher: Matcher, time_us: int, emit: Callable[[pa.Table], None] | None = None) -> pa.Table:
    """Let event time reach `time_us` and return the matches. A timer at the next deadline would not miss one.

    On Spark a key group without events is called when its next deadline has passed.
    """
    deadline_us = matcher.next_deadline_us()
    before = list(matcher.counters.matches.values())
    found = matcher.advance(time_us, emit)
    if deadline_us is None or deadline_us > time_us:
        assert list(matcher.counters.matches.values()) == before, f"no timer: {deadline_us}, {time_us}"
    return found


def woken(matcher: Matcher, time_us: int) -> pa.Table:
    """Let event time reach `time_us` as timers do, from one deadline to the next one; return the matches."""
    found = []
    while (deadline_us := matcher.next_deadline_us()) is not None and deadline_us <= time_us:
        assert deadline_us > matcher.watermark_us, "a timer that is over"
        found.append(matcher.advance(deadline_us))
    return pa.concat_tables([*found, advanced(matcher, time_us)])


def reachable_us(case: Case, seen: int, newest_us: int, *, ahead: bool) -> int:
    """Return how far the watermark can advance after `seen` events without making a later event late."""
    if not ahead:
        return newest_us - max(case.stream.lateness_us, 1)
    return min((event["ts"] - 1 for event in case.events[seen:]), default=newest_us)


def assert_ordered(table: pa.Table) -> None:
    """Check that the matches of one call are ordered by end, then start, then rule."""
    names = ("match_end", "match_start", "rule")
    order = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    assert order == sorted(order)


def engine_tables(case: Case, steps: Sequence[Step]) -> list[pa.Table]:
    """Return the matches of each program of the case's rules."""
    return [deliver(program, case, steps) for program in programs_of(case)]


def programs_of(case: Case, *, optimize: bool = True) -> tuple[Program, ...]:
    """Return the compiled rules of `case`."""
    return compile_rules(case.rules, {case.stream.name: case.stream}, optimize=optimize)


def rows_by(programs: Sequence[Program], case: Case) -> list[Row]:
    """Return the matches of `case` that the engine reports with `programs`, compiled from its rules."""
    tables = [deliver(program, case, case.steps) for program in programs]
    return in_order([row for table in tables for row in rows_of(table, case.rules)])


def engine_rows(case: Case, steps: Sequence[Step] | None = None) -> list[Row]:
    """Return the matches that the engine reports."""
    tables = engine_tables(case, case.steps if steps is None else steps)
    return in_order([row for table in tables for row in rows_of(table, case.rules)])


def match_ids(case: Case, steps: Sequence[Step]) -> list[str]:
    """Return the ids of all matches, sorted."""
    tables = engine_tables(case, steps)
    return sorted(match_id for table in tables for match_id in table.column("match_id").to_pylist())
