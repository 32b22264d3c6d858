"""Rules with joined tables, drawn, and what the engine and the oracle report of them.

Such a case is made from a drawn case over one stream: some columns of its rules become columns of tables,
whose versions are drawn with equal times, deletions, rows that come back, NULLs and keys that no event has.
They arrive in any order, as long as none is late. The oracle looks at all versions for each event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import compile_rules
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.engine.tables.tables import GivenTable
from cep.expression import Aggregate, Call, Column, Expression, Frame, Joined, Type, Windowed
from cep.program.program import Program
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.oracle import TooManyRunsError, find_matches
from tests.oracle.tables import Tables, joined_of
from tests.property.differential import (
    Row,
    advanced,
    in_order,
    reachable_us,
    rows_of,
    rows_of_matches,
    stream_table,
    useless_left_out,
    woken,
)
from tests.property.strategies.cases import Case, Step, cases, cases_of_windows, cases_of_zones
from tests.property.strategies.events import COLUMNS, HUGE, SECOND_US

_VALUES = (
    Field("i", "bigint"),
    Field("d", "double"),
    Field("s", "string"),
    Field("b", "boolean"),
)
_OF_VERSION = (Field("at", "timestamp"), Field("n", "bigint"), Field("op", "string"))


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a row of table `table`. It is pushed in step `step` or before the watermark passes it."""

    table: str
    step: int
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableCase:
    """A case with tables. Versions are in order of arrival. Those of the tables in `given` do not arrive."""

    case: Case
    tables: tuple[Stream, ...]
    versions: tuple[Version, ...]
    given: frozenset[str]


# ---------------------------------------------------------------- tables


def _table(name: str, key: tuple[str, ...], kind: TableKind, *, has_ties: bool, has_op: bool) -> Stream:
    keys = tuple(Field(f"k_{column}", COLUMNS[column].type.value) for column in key)
    settings_ = TableSettings(tuple(field.name for field in keys), kind, "op" if has_op else None)
    is_static = kind is TableKind.STATIC
    return Stream(
        name,
        (*keys, *_VALUES, *_OF_VERSION),
        "" if is_static else "at",
        ("n",) if has_ties else (),
        table=settings_,
    )


@st.composite
def _tables_of(draw: st.DrawFn, key: tuple[str, ...]) -> tuple[tuple[Stream, tuple[str, ...]], ...]:
    """Draw one or two tables, each with the columns of an event that are its key."""
    own = key if draw(st.booleans()) else key[::-1]
    kinds = draw(st.lists(st.sampled_from(list(TableKind)), min_size=1, max_size=2, unique=True))
    found = []
    for kind in kinds:
        columns = own
        if kind is not TableKind.CHANGELOG:
            columns = draw(st.sampled_from([("i",), ("s",), ("s", "i"), ("k",), ("b",)]))
        has_op = kind is not TableKind.STATIC and draw(st.integers(0, 3)) > 0
        table = _table(kind.value, columns, kind, has_ties=draw(st.booleans()), has_op=has_op)
        found.append((table, columns))
    return tuple(found)


def _order_of(table: Stream, columns: tuple[str, ...], key: tuple[str, ...]) -> tuple[str, ...] | None:
    assert table.table is not None
    return None if table.table.kind is not TableKind.CHANGELOG else _order_of_key(table, columns, key)


def _order_of_key(table: Stream, columns: tuple[str, ...], key: tuple[str, ...]) -> tuple[str, ...]:
    assert table.table is not None
    return tuple(table.table.key[columns.index(name)] for name in key)


def _reader(key: tuple[str, ...], tables: Sequence[tuple[Stream, tuple[str, ...]]], random: Random) -> Any:
    """Return what makes some columns of an expression columns of tables."""

    def read(expression: Expression) -> Expression:
        match expression:
            case Column(name=name, type=kind) if name in ("i", "d", "s", "b") and random.random() < 0.35:
                table, columns = random.choice(list(tables))
                keys = tuple(COLUMNS[column] for column in columns)
                return Joined(table.name, keys, name, _order_of(table, columns, key), kind)
            case Aggregate(argument=argument) if argument is not None:
                return replace(expression, argument=read(argument))
            case Windowed(argument=argument, condition=condition):
                return replace(
                    expression,
                    argument=None if argument is None else read(argument),
                    condition=None if condition is None else read(condition),
                )
            case Call(args=args):
                return replace(expression, args=tuple(map(read, args)))
            case _:
                return expression

    return read


def _windows_joining(
    rule: ir.Rule, tables: Sequence[tuple[Stream, tuple[str, ...]]], random: Random
) -> ir.Rule:
    """Return a window rule with some columns of tables, the same ones in WHERE and in the values."""
    assert rule.windowing is not None
    known: dict[Expression, Expression] = {}
    draw = _reader(rule.key, tables, random)

    def read(expression: Expression) -> Expression:
        match expression:
            case Call(args=args):
                return replace(expression, args=tuple(map(read, args)))
            case Windowed(argument=argument, condition=condition):
                return replace(
                    expression,
                    argument=None if argument is None else read(argument),
                    condition=None if condition is None else read(condition),
                )
            case _:
                return known.setdefault(expression, draw(expression))

    where, having = rule.windowing.where, rule.windowing.having
    where = None if where is None else read(where)
    table, columns = random.choice(list(tables))
    keys = tuple(COLUMNS[column] for column in columns)
    some = Joined(table.name, keys, "i", _order_of(table, columns, rule.key), Type.BIGINT)
    last = Windowed("LAST_VALUE", some, where, rule.windowing.window, 0.0, "", Type.BIGINT)
    measures = tuple(replace(item, expression=read(item.expression)) for item in rule.measures)
    return replace(
        rule,
        windowing=replace(rule.windowing, where=where, having=None if having is None else read(having)),
        measures=(*measures, ir.Measure("of_table", last)),
        tables=tuple(table for table, _ in tables),
    )


def _joining(rule: ir.Rule, tables: Sequence[tuple[Stream, tuple[str, ...]]], random: Random) -> ir.Rule:
    """Return `rule` with some of its columns of tables, and a measure that is one."""
    if rule.windowing is not None:
        return _windows_joining(rule, tables, random)
    read = _reader(rule.key, tables, random)
    table, columns = tables[0]
    keys = tuple(COLUMNS[column] for column in columns)
    some = Joined(table.name, keys, "i", _order_of(table, columns, rule.key), Type.BIGINT)
    taken = ir.summary(rule.pattern).taken
    measures = tuple(replace(item, expression=read(item.expression)) for item in rule.measures)
    if taken:
        measures += (ir.Measure("of_table", Aggregate("LAST", taken[0], some, 0, Type.BIGINT)),)
    return replace(
        rule,
        variables=tuple(
            item if item.predicate is None else replace(item, predicate=read(item.predicate))
            for item in rule.variables
        ),
        measures=measures,
        tables=tuple(table for table, _ in tables),
    )


@st.composite
def table_cases(draw: st.DrawFn, max_rules: int = 1, *, has_window_rules: bool = False) -> TableCase:
    """Draw a case with tables: of patterns, or of window rules alone."""
    case: Case = draw(
        cases_of_windows() if has_window_rules else cases(max_rules=max_rules, has_window_rules=False)
    )
    keys = {rule.key for rule in case.rules}
    own = draw(_tables_of(min(keys)))
    if len(keys) > 1:  # one table cannot have the keys of both
        own = tuple(item for item in own if item[0].name != TableKind.CHANGELOG.value) or (
            (_table("static", ("i",), TableKind.STATIC, has_ties=False, has_op=False), ("i",)),
        )
    random = Random(draw(st.integers(0, 2**16)))
    case = replace(case, rules=tuple(_joining(rule, own, random) for rule in case.rules))
    tables = tuple(table for table, _ in own)
    given_ = {table.name for table in tables if table.is_static}
    given_ |= {
        table.name
        for table in tables
        if table.table is not None and table.table.kind is TableKind.REPLICATED and draw(st.booleans())
    }
    return with_versions(TableCase(case, tables, (), frozenset(given_)), case, random)


def with_versions(drawn: TableCase, case: Case, random: Random) -> TableCase:
    """Return a case of the tables of `drawn` with the events of `case` and versions near them."""
    is_silent = any(rule.windowing is not None and rule.windowing.table is not None for rule in case.rules)
    known = 0.5 if is_silent else 0.95  # keys without events have windows, too
    versions = [
        Version(table.name, random.randint(0, len(case.steps)), _row(table, case, random, known))
        for table in drawn.tables
        for _ in range(random.randint(0, 14))
    ]
    if is_silent:
        _begin_early(versions, case, random)
    return delivered_as(replace(drawn, versions=tuple(versions)), case)


def delivered_as(drawn: TableCase, case: Case) -> TableCase:
    """Return `drawn` with the events of `case`, and its versions in time for them."""
    return replace(drawn, case=case, versions=tuple(_in_arrival(drawn.versions, case, drawn.tables)))


@st.composite
def silent_cases(draw: st.DrawFn, max_events: int = 12) -> TableCase:
    """Draw a case of window rules with FOR EACH: keys without events, that come, go and come back."""
    case = draw(st.one_of(cases_of_windows(max_events), cases_of_zones()))
    rules = [
        (rule, rule.windowing)
        for rule in case.rules
        if rule.windowing and rule.windowing.window.frame is not Frame.SESSION
    ]
    assume(rules and case.events)
    key = rules[0][0].key
    columns = draw(st.sampled_from([key, key[::-1]]))
    has_op = draw(st.integers(0, 3)) > 0
    table = _table("each", columns, TableKind.CHANGELOG, has_ties=draw(st.booleans()), has_op=has_op)
    order = _order_of_key(table, columns, key)
    case = replace(
        case,
        rules=tuple(
            replace(
                rule,
                key=key,
                tables=(table,),
                windowing=replace(windowing, table=table, table_key=order),
            )
            for rule, windowing in rules
        ),
    )
    random = Random(draw(st.integers(0, 2**16)))
    versions = [
        Version("each", draw(st.integers(0, len(case.steps))), _row(table, case, random, 0.6))
        for _ in range(draw(st.integers(0, 14)))
    ]
    _begin_early(versions, case, random)
    return TableCase(case, (table,), tuple(_in_arrival(versions, case, (table,))), frozenset())


def _begin_early(versions: Sequence[Version], case: Case, random: Random) -> None:
    """Let most keys be there from the beginning, and some of them go later."""
    share = random.choice((0.3, 0.6))
    for version in versions:
        if random.random() < share:
            version.row["at"] = random.choice([0, 1, min(case.events, key=_time_of)["ts"]])
            version.row["op"] = "c"


def _time_of(event: Mapping[str, Any]) -> int:
    time_us: int = event["ts"]
    return time_us


def _row(table: Stream, case: Case, random: Random, known: float) -> dict[str, Any]:
    """Return a version, mostly of a key that an event has, at a time near those of events."""
    assert table.table is not None
    columns = [name.removeprefix("k_") for name in table.table.key]  # of events
    whole = [event for event in case.events if None not in [event[column] for column in columns]]
    event = random.choice(whole) if whole and random.random() < known else None
    fallback = {"i": 77, "s": "never", "k": 77, "g": "never", "b": True}
    key = [fallback[column] if event is None else event[column] for column in columns]
    near = random.choice(case.events)["ts"] if case.events else 0
    return {
        **dict(zip(table.table.key, key, strict=True)),
        "i": random.choice([0, 1, 2, 3, -1, None, HUGE]),
        "d": random.choice([0.0, 0.5, 1.5, -2.0, None, float("nan")]),
        "s": random.choice(["p", "q", "", "Straße", None]),
        "b": random.choice([True, False, None]),
        "at": max(near + random.choice([0, 0, 0, 1, -1, SECOND_US, -2 * SECOND_US]), 0),
        "n": random.choice([0, 1, None]),
        "op": random.choice(["c", "u", "U", "insert", "d", "DELETE"]),
    }


def watermarks(case: Case, steps: Sequence[Step]) -> list[int | None]:
    """Return how far the watermark advances after each step; None: it does not."""
    found: list[int | None] = []
    seen, newest_us = 0, 0
    for step in steps:
        batch = case.events[seen : seen + step.n_events]
        seen += step.n_events
        newest_us = max(newest_us, *(event["ts"] for event in batch))
        found.append(reachable_us(case, seen, newest_us, ahead=step.ahead) if step.advances else None)
    return found


def _in_arrival(versions: Sequence[Version], case: Case, tables: Sequence[Stream]) -> list[Version]:
    """Return the versions in the order of their steps, none of them after the watermark has passed it."""
    reached = watermarks(case, case.steps)
    static = {table.name for table in tables if table.is_static}
    moved = []
    for version in versions:
        last = next(
            (at for at, us in enumerate(reached) if us is not None and us >= version.row["at"]), len(reached)
        )
        step = version.step if version.table in static else min(version.step, last)
        moved.append(replace(version, step=step))
    return sorted(moved, key=lambda version: version.step)


# ---------------------------------------------------------------- both sides


def oracle_tables(case: TableCase) -> Tables:
    """Return the tables for the oracle."""
    return {
        table.name: (table, [version.row for version in case.versions if version.table == table.name])
        for table in case.tables
    }


def oracle_rows(case: TableCase) -> list[Row]:
    """Return the matches that the oracle reports."""
    tables = oracle_tables(case)
    rows = []
    for rule in case.case.rules:
        rows += rows_of_matches(rule, find_matches(rule, case.case.stream, case.case.events, tables))
    return in_order(rows)


def programs_of(case: TableCase, *, optimize: bool = True) -> tuple[Program, ...]:
    """Return the compiled rules."""
    return compile_rules(case.case.rules, {case.case.stream.name: case.case.stream}, optimize=optimize)


def given_tables(case: TableCase) -> Mapping[str, GivenTable]:
    """Return the tables whose versions do not arrive."""
    return {
        name: GivenTable(table, stream_table(table, list(rows)))
        for name, (table, rows) in oracle_tables(case).items()
        if name in case.given
    }


def prepared(program: Program, case: TableCase, step: int) -> list[pa.Table]:
    """Return the versions that arrive in a step, some together and some alone."""
    tables = {table.name: table for table in case.tables}
    found: list[pa.Table] = []
    for name, table in tables.items():
        if name in case.given:
            continue
        rows = [version.row for version in case.versions if (version.table, version.step) == (name, step)]
        cuts = [rows[:1], rows[1:]] if len(rows) % 2 else [rows]
        for part in cuts:
            if part:
                found += prepared_versions(program, table, stream_table(table, part))
                found += extents(program, table, stream_table(table, part))
    return found


def deliver(program: Program, case: TableCase, steps: Sequence[Step]) -> pa.Table:
    """Push events and versions, finish, and return the matches.

    In a third of the cases event time goes on by timers, as on Spark. In half of the cases rows are moved
    together whenever most are not there any more, as in large tables.
    Snapshots move them together, too, so these cases have none.
    """
    moves = len(case.versions) % 2 == 1
    with (
        mock.patch("cep.engine.keys.kept_rows._FEW", 0 if moves else 64),
        useless_left_out(len(case.case.events)),
    ):
        return _delivered(program, case, steps, restores=not moves)


def _delivered(program: Program, case: TableCase, steps: Sequence[Step], *, restores: bool) -> pa.Table:
    given_by_name = given_tables(case)
    matcher = Matcher(program, given_by_name)
    found: list[pa.Table] = []
    advance = woken if len(case.versions) % 3 == 0 else advanced
    seen = 0
    of_case = len(steps) == len(case.case.steps)
    for number, (step, reach_us) in enumerate(zip(steps, watermarks(case.case, steps), strict=True)):
        versions = prepared(program, case, number) if of_case else []
        if not of_case and number == 0:
            for at in range(len(case.case.steps) + 1):
                versions += prepared(program, case, at)
        batch = case.case.events[seen : seen + step.n_events]
        seen += step.n_events
        typed = stream_table(case.case.stream, batch)
        events = prepare(program, typed)
        versions += extents(program, case.case.stream, typed)
        for table in [*versions[::2], events, *versions[1::2]] if len(versions) < 2 else [*versions, events]:
            assert matcher.push(table).num_rows == 0, "no event and no version of a case is late"
        if reach_us is not None:
            found.append(advance(matcher, reach_us))
        if step.restores and restores:
            matcher = Matcher.restore(program, matcher.snapshot(), given_by_name)
    if of_case:
        for table in prepared(program, case, len(steps)):
            matcher.push(table)
    found.append(matcher.finish())
    return pa.concat_tables(found)


def engine_rows(case: TableCase, programs: Sequence[Program], steps: Sequence[Step]) -> list[Row]:
    """Return the matches that the engine reports."""
    tables = [deliver(program, case, steps) for program in programs]
    return in_order([row for table in tables for row in rows_of(table, case.case.rules)])


def check(case: TableCase, *, also_unoptimized: bool = True) -> bool:
    """Compare the engine with the oracle. Return False if the case is too large for the oracle."""
    try:
        expected = oracle_rows(case)
    except TooManyRunsError:
        return False
    at_once = (Step(len(case.case.events), advances=False, restores=True),)
    programs = programs_of(case)
    assert engine_rows(case, programs, case.case.steps) == expected
    assert engine_rows(case, programs, at_once) == expected
    if also_unoptimized:
        assert engine_rows(case, programs_of(case, optimize=False), case.case.steps) == expected
    return True


def reads_tables(case: TableCase) -> bool:
    """Return whether a rule of the case reads a table."""
    return any(True for rule in case.case.rules for _ in joined_of(rule))
