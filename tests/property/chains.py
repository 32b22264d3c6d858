"""Rules over rules, drawn, and what the engine and the oracle report of them.

Rules of the first level are drawn as for one stream. They report measures with the names and types of the
stream's columns, so a rule that is drawn in the same way can read their matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.analysis.match_streams import stream_of_matches
from cep.compiler.compile import compile_rules
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.expression import Aggregate, Windowed
from cep.rule_set import RuleSet
from cep.schema.stream import Role, Stream
from tests.oracle import Match, TooManyRunsError
from tests.oracle.chains import find_chained
from tests.property.differential import Row, in_order, reachable_us, rows_of, rows_of_matches, stream_table
from tests.property.strategies.cases import Case, Step, cases
from tests.property.strategies.events import COLUMNS, FIELDS, SECOND_US
from tests.property.strategies.patterns import taken_variables
from tests.property.strategies.rules import rules
from tests.property.test_streams import StreamsOf, first_steps, in_streams, with_streams

KEY_TYPES = {field.name: field.type for field in FIELDS}


@dataclass(frozen=True, slots=True)
class Chained:
    """`case` with its rules and rules over their matches, each behind those that it reads."""

    case: Case

    @property
    def rule_set(self) -> RuleSet:
        return RuleSet(compile_rules(self.case.rules, {self.case.stream.name: self.case.stream}))


@st.composite
def chained(draw: st.DrawFn, max_levels: int = 3) -> Chained:
    """Draw one or two rules over the stream, and one rule or two over matches."""
    case: Case = draw(cases(max_rules=2, max_size=2))
    made = [draw(_readable(rule)) for rule in case.rules]
    for level in range(draw(st.integers(1, max_levels - 1))):
        outer = draw(rules(f"outer_{level}", 3))
        made.append(draw(_readable(_over(draw, outer, case.stream, made))))
    return Chained(replace(case, rules=tuple(made)))


@st.composite
def _readable(draw: st.DrawFn, rule: ir.Rule) -> ir.Rule:
    """Return `rule` with a measure for each column of the stream, and with a bound for late matches."""
    if rule.windowing is not None:
        values = [
            ir.Measure(
                name,
                Windowed(
                    "LAST_VALUE", column, rule.windowing.where, rule.windowing.window, 0.0, "", column.type
                ),
            )
            for name, column in COLUMNS.items()
            if name not in rule.key
        ]
        return replace(rule, measures=(*rule.measures, *values))
    taken = sorted(taken_variables(rule.pattern))
    several = len(rule.streams) > 1
    on = _streams_of(rule)
    measures = []
    for name, column in COLUMNS.items():
        if name not in rule.key:
            variable = draw(st.sampled_from(taken))
            argument = in_streams(column, on[variable], {}) if several else column
            measures.append(ir.Measure(name, Aggregate("LAST", variable, argument, 0, column.type)))
    if rule.selection is not ir.Selection.EARLIEST and not isinstance(rule.window, ir.Window):
        length_us = draw(st.sampled_from([2, 4, 8])) * SECOND_US
        rule = replace(rule, window=ir.Window(length_us, draw(st.booleans())))
    return replace(rule, measures=(*rule.measures, *measures))


def _streams_of(rule: ir.Rule) -> dict[str, tuple[str, ...]]:
    """Return the stream of each variable."""
    return {
        item.name: (rule.roles[item.role].stream if item.role >= 0 else rule.streams[0],)
        for item in rule.variables
    }


def _over(draw: st.DrawFn, rule: ir.Rule, stream: Stream, made: Sequence[ir.Rule]) -> ir.Rule:
    """Return `rule`, drawn over one stream, as a rule over matches of `made`, and perhaps over the stream."""
    of_rules = {found.name: found for item in made if (found := stream_of_matches(item, KEY_TYPES))}
    chosen = draw(st.lists(st.sampled_from(sorted(of_rules)), min_size=1, max_size=2, unique=True))
    has_stream = draw(st.booleans())
    # In the order of declaration: matches come behind the streams, by the names of their rules.
    if rule.windowing is not None:  # its conditions and values are drawn over one stream
        has_stream, chosen = False, chosen[:1]
    read = (*([stream.name] if has_stream else []), *sorted(chosen))
    rule = replace(rule, streams=read, matches=tuple(of_rules[name] for name in sorted(chosen)))
    if len(read) == 1:
        return rule
    names = [item.name for item in rule.variables]
    stream_of = {name: draw(st.sampled_from(read)) for name in names}
    stream_of |= {until: stream_of[step] for until, step in first_steps(rule.pattern).items()}
    streams_of: StreamsOf = {name: (of,) for name, of in stream_of.items()}
    for subset in rule.subsets:
        streams_of[subset.name] = tuple(dict.fromkeys(stream_of[name] for name in subset.members))
    return replace(
        rule,
        roles=tuple(Role(name, rule.key) for name in read),
        pattern=with_streams(rule.pattern, streams_of),
        variables=tuple(
            replace(
                item,
                role=read.index(stream_of[item.name]),
                predicate=item.predicate and in_streams(item.predicate, streams_of[item.name], streams_of),
            )
            for item in rule.variables
        ),
        measures=tuple(
            replace(item, expression=in_streams(item.expression, (), streams_of)) for item in rule.measures
        ),
    )


# ---------------------------------------------------------------- both sides


def engine_tables(case: Chained, steps: Sequence[Step], rule_set: RuleSet | None = None) -> list[pa.Table]:
    """Return all matches that the engine finds if the events are delivered in `steps`.

    `rule_set` are the compiled rules; without it they are compiled here.
    """
    rule_set = case.rule_set if rule_set is None else rule_set
    events, stream = case.case.events, case.case.stream
    chain = Chain(rule_set)
    tables: list[pa.Table] = []
    seen, newest_us = 0, 0
    for step in steps:
        batch = events[seen : seen + step.n_events]
        seen += step.n_events
        chain.push_events(stream, stream_table(stream, batch))
        newest_us = max(newest_us, *(event["ts"] for event in batch))
        if step.advances:
            reach_us = reachable_us(case.case, seen, newest_us, ahead=step.ahead)
            chain.advance(reach_us, tables.append, in_parts=seen % 2 == 0)
        if step.restores:
            restored = [
                Matcher.restore(matcher.program, matcher.snapshot())
                for matcher in chain.matchers
                if isinstance(matcher, Matcher)
            ]
            chain = Chain(rule_set, restored)
    chain.finish(tables.append)
    assert not sum(matcher.counters.late for matcher in chain.matchers)
    return tables


def engine_rows(case: Chained, tables: Sequence[pa.Table]) -> list[Row]:
    return in_order([row for table in tables for row in rows_of(table, case.case.rules)])


def ids_of(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(match_id for table in tables for match_id in table.column("match_id").to_pylist())


def oracle_rows(case: Chained, tables: Sequence[pa.Table]) -> list[Row]:
    """Return the matches that the oracle finds. Ids are the engine's: equal matches may swap theirs."""
    ids: dict[Any, list[str]] = {}
    for table in tables:
        firsts = dict(zip(rows_of(table, case.case.rules), table.column("match_id").to_pylist(), strict=True))
        for row, match_id in firsts.items():
            ids.setdefault(row[:6], []).append(match_id)
    taken: dict[Any, int] = {}

    def id_of(rule: ir.Rule, match: Match) -> str:
        (row, *_) = rows_of_matches(rule, [match])
        number = taken[row[:6]] = taken.get(row[:6], -1) + 1
        known = sorted(set(ids.get(row[:6], ())))
        return known[number] if number < len(known) else f"unknown {number}"

    found = find_chained(
        case.case.rules,
        {case.case.stream.name: case.case.stream},
        {case.case.stream.name: case.case.events},
        id_of,
    )
    return in_order([row for rule in case.case.rules for row in rows_of_matches(rule, found[rule.name])])


AT_ONCE = (Step(10**6, advances=False, restores=False),)


def check(case: Chained) -> int:
    """Compare both sides; return the number of matches of rules over matches. Too large: -1."""
    tables = engine_tables(case, case.case.steps)
    try:
        expected = oracle_rows(case, tables)
    except TooManyRunsError:
        return -1
    assert engine_rows(case, tables) == expected
    return sum(row[0].startswith("outer") for row in expected)
