"""Rules over several streams, and with different key columns for variables: the engine against the oracle.

Such a case is made from a drawn case over one stream: its variables get a stream and columns for the key, and
its events are dealt out to the streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import check_sources, compile_rules
from cep.diagnostics.diagnostic import render
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.expression import Aggregate, Call, Column, Expression, Literal, Windowed
from cep.schema.stream import Role, Stream, qualified
from tests.deep import n_cases
from tests.oracle import TooManyRunsError, find_matches
from tests.oracle.partitions import event_of
from tests.property.differential import Row, in_order, rows_of, rows_of_matches, stream_table
from tests.property.rule_text import rule_text
from tests.property.strategies.cases import Case, cases
from tests.property.strategies.events import streams
from tests.property.test_engine import SLOW
from tests.property.test_rule_text import REFUSED

GATE = settings(
    max_examples=n_cases(100), deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
FEW = settings(GATE, max_examples=n_cases(30))

KEYS = (("k",), ("t",), ("i",))
"""Columns of one type that may hold the key."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """A rule, its streams in the order of declaration, and (stream, event) in the order of arrival."""

    rule: ir.Rule
    streams: tuple[Stream, ...]
    events: tuple[tuple[int, dict[str, Any]], ...]
    restores_after: int


StreamsOf = dict[str, tuple[str, ...]]
"""Variable or subset -> names of the streams of its events."""


def in_streams(expression: Expression, own: tuple[str, ...], streams_of: StreamsOf) -> Expression:
    """Return `expression` with each column renamed to the column of the streams of its variable."""
    match expression:
        case Column(name=name, type=kind):
            columns = tuple(Column(qualified(stream, name), kind) for stream in own)
            return columns[0] if len(columns) == 1 else Call("coalesce", columns, kind)
        case Aggregate(variable=variable, argument=argument) if argument is not None:
            return replace(expression, argument=in_streams(argument, streams_of[variable], streams_of))
        case Windowed(type=kind):
            if len(own) != 1:  # a window is over one stream
                return Literal(None, kind)
            parts: dict[str, Any] = {
                name: None if part is None else in_streams(part, own, streams_of)
                for name, part in (("argument", expression.argument), ("condition", expression.condition))
            }
            return replace(expression, stream=own[0], **parts)
        case Call(function=function, args=args, type=kind):
            return Call(function, tuple(in_streams(arg, own, streams_of) for arg in args), kind)
        case _:
            return expression


def with_streams(node: ir.Node, streams_of: StreamsOf) -> ir.Node:
    """Return a pattern with the columns of DISTINCT BY renamed to those of the streams of the loop."""
    match node:
        case ir.Sequence(items=items):
            return ir.Sequence(
                tuple(replace(item, node=with_streams(item.node, streams_of)) for item in items)
            )
        case ir.Alternation(branches=parts):
            return ir.Alternation(tuple(with_streams(part, streams_of) for part in parts))
        case ir.Permutation(parts=parts):
            return replace(node, parts=tuple(with_streams(part, streams_of) for part in parts))
        case ir.Repeat(distinct=distinct, body=body):
            own = tuple(dict.fromkeys(name for step in steps(body) for name in streams_of[step]))
            value = None if distinct is None else in_streams(distinct, own, streams_of)
            return replace(node, body=with_streams(body, streams_of), distinct=value)
        case ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return replace(node, body=with_streams(body, streams_of))
        case _:
            return node


def first_steps(node: ir.Node) -> dict[str, str]:
    """Return the first variable of the loop that each condition closes. Both have the same stream."""
    found: dict[str, str] = {}
    for loop in loops(node):
        if loop.until is not None:
            found[loop.until] = next(steps(loop))
    return found


def inside(node: ir.Node) -> tuple[ir.Node, ...]:
    match node:
        case ir.Sequence(items=items):
            return tuple(item.node for item in items)
        case ir.Alternation(branches=parts) | ir.Permutation(parts=parts):
            return parts
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return (body,)
        case _:
            return ()


def loops(node: ir.Node) -> Iterator[ir.Repeat]:
    if isinstance(node, ir.Repeat):
        yield node
    for part in inside(node):
        yield from loops(part)


def steps(node: ir.Node) -> Iterator[str]:
    if isinstance(node, ir.Take):
        yield node.variable
    for part in inside(node):
        yield from steps(part)


@st.composite
def dealt(draw: st.DrawFn) -> Dealt:
    """Draw a rule over one to three streams. Its variables differ in the stream or in the key column."""
    case: Case = draw(cases(max_rules=1, has_window_rules=False))
    (rule,) = case.rules
    n_streams = draw(st.sampled_from([1, 2, 2, 3]))
    read = tuple(
        replace(draw(streams()), name=name, lateness_us=0) for name in ("left", "right", "third")[:n_streams]
    )
    names = [variable.name for variable in rule.variables]
    stream_of = {name: draw(st.sampled_from(read)).name for name in names}
    first = first_steps(rule.pattern)
    stream_of |= {until: stream_of[step] for until, step in first.items()}
    is_bound = n_streams == 1 or draw(st.booleans())
    if is_bound:  # different key columns, so every stream has a variable
        read = tuple(stream for stream in read if stream.name in stream_of.values())
        key_of = {name: draw(st.sampled_from(KEYS)) for name in names}
        key_of |= {until: key_of[step] for until, step in first.items()}
        role_of = {name: Role(stream_of[name], key_of[name]) for name in names}
    else:
        column = {stream.name: draw(st.sampled_from(KEYS)) for stream in read}
        role_of = {name: Role(stream_of[name], column[stream_of[name]]) for name in names}
    found = set(role_of.values()) | (set() if is_bound else {Role(name, key) for name, key in column.items()})
    order = [stream.name for stream in read]
    roles = tuple(sorted(found, key=lambda role: (order.index(role.stream), role.key)))
    if len(read) > 1:
        streams_of: StreamsOf = {name: (stream,) for name, stream in stream_of.items()}
        for subset in rule.subsets:
            streams_of[subset.name] = tuple(dict.fromkeys(stream_of[name] for name in subset.members))
        rule = replace(
            rule,
            pattern=with_streams(rule.pattern, streams_of),
            variables=tuple(
                item
                if item.predicate is None
                else replace(item, predicate=in_streams(item.predicate, streams_of[item.name], streams_of))
                for item in rule.variables
            ),
            measures=tuple(
                replace(item, expression=in_streams(item.expression, (), streams_of))
                for item in rule.measures
            ),
        )
    rule = replace(
        rule,
        streams=tuple(order),
        key=("key",) if is_bound else roles[0].key,
        roles=roles,
        variables=tuple(replace(item, role=roles.index(role_of[item.name])) for item in rule.variables),
    )
    events = [event for event in case.events if event["i"] is None or event["i"] >= -1]
    drawn = tuple((draw(st.integers(0, len(read) - 1)), _agreed(event, read)) for event in events)
    return Dealt(rule, read, drawn, draw(st.integers(0, len(events))))


def _agreed(event: dict[str, Any], read: tuple[Stream, ...]) -> dict[str, Any]:
    """Make events differ in a tie breaker if copies count as one event, so that only copies agree in all."""
    return event if not any(stream.deduplicate for stream in read) else {**event, "t": event["w"] % 2**31}


def oracle_rows(case: Dealt) -> list[Row]:
    events = [
        event_of(case.streams[number], event) if len(case.streams) > 1 else event
        for number, event in case.events
    ]
    return in_order(rows_of_matches(case.rule, find_matches(case.rule, case.streams, events)))


def engine_table(case: Dealt, *, one_by_one: bool) -> pa.Table:
    (program,) = compile_rules((case.rule,), {stream.name: stream for stream in case.streams})
    matcher = Matcher(program)
    tables = []
    for at, (number, event) in enumerate(case.events):
        stream = case.streams[number]
        late = matcher.push(prepare(program, stream_table(stream, [event]), stream))
        assert late.num_rows == 0
        if one_by_one and at + 1 == case.restores_after:
            following = [event["ts"] for _, event in case.events[at + 1 :]]
            tables.append(matcher.advance(min(following, default=event["ts"] + 1) - 1))
            matcher = Matcher.restore(program, matcher.snapshot())
    tables.append(matcher.finish())
    return pa.concat_tables(tables)


def is_small(case: Dealt) -> bool:
    try:
        oracle_rows(case)
    except TooManyRunsError:
        return False
    return True


@GATE
@given(dealt())
def test_the_engine_reports_what_the_oracle_reports_of_several_streams_and_keys(case: Dealt) -> None:
    assume(is_small(case))
    table = engine_table(case, one_by_one=False)
    assert in_order(rows_of(table, [case.rule])) == oracle_rows(case)


@FEW
@given(dealt())
def test_a_snapshot_between_events_changes_nothing(case: Dealt) -> None:
    assume(is_small(case))
    at_once, on_the_way = (engine_table(case, one_by_one=way) for way in (False, True))
    ids = [sorted(table.column("match_id").to_pylist()) for table in (at_once, on_the_way)]
    assert ids[0] == ids[1]
    assert in_order(rows_of(on_the_way, [case.rule])) == oracle_rows(case)


@FEW
@given(dealt())
def test_the_text_of_the_rule_is_read_as_the_same_rule(case: Dealt) -> None:
    declared = {stream.name: stream for stream in case.streams}
    rules, problems = check_sources([Source("rule.cep", rule_text(case.rule))], declared)
    errors = [problem for problem in problems if problem.is_error]
    assert {problem.code for problem in errors} <= REFUSED, render(errors)
    assume(not errors)
    (read,) = rules
    assert (read.streams, read.key, read.roles) == (case.rule.streams, case.rule.key, case.rule.roles)
    assume(is_small(case))
    assert oracle_rows(replace(case, rule=read)) == oracle_rows(case)
