"""Rules that change while state is kept: what continues is as if the new rules had always run.

What begins with the change sees exactly the events after it, as in a stream that starts with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import compile_rules
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.matching.matcher import Matcher
from cep.engine.order.event_blocks import BLOCK_ROWS
from cep.engine.prepare.predicates import prepare
from cep.errors import StateError
from cep.expression import Type
from cep.program.changes import KEPT, changes_of
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import changed_state, decode_state, encode_state
from tests.property.differential import (
    Row,
    advanced,
    in_order,
    reachable_us,
    rows_of,
    stream_table,
    useless_left_out,
)
from tests.property.strategies.cases import Case, cases, cases_of_values
from tests.property.strategies.expressions import values
from tests.property.strategies.patterns import taken_variables
from tests.property.strategies.rules import rules, windows
from tests.property.variants import Pool, variants

TALLY: Counter[str] = Counter()
"""The verdicts of the cases so far, and how many matches each of them had."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The rules of `case` replace the rules `before` after step number `at`."""

    case: Case
    before: tuple[ir.Rule, ...]
    at: int


@dataclass(frozen=True, slots=True)
class TwoSets:
    """The compiled rules before and now."""

    before: RuleSet
    now: RuleSet


@st.composite
def changed_sets(draw: st.DrawFn, *, has_window_rules: bool = True) -> Changed:
    """Draw a case in which rules change."""
    of_values = draw(st.integers(0, 3)) == 0
    case = draw(
        cases_of_values(have_conditions=False)
        if of_values
        else cases(3, max_size=3, has_window_rules=has_window_rules)
    )
    now = list(case.rules)
    before = [other for rule in now if (other := draw(_changed(rule))) is not None]
    if not before or draw(st.booleans()):
        before.append(draw(rules("gone", 2)))
    if draw(st.booleans()):
        before.reverse()
    if draw(st.booleans()):
        before, now = now, before
    at = draw(st.integers(0, len(case.steps) - 1))
    return Changed(replace(case, rules=tuple(now)), tuple(before), at)


@st.composite
def _changed(draw: st.DrawFn, rule: ir.Rule) -> ir.Rule | None:
    """Return a rule as it may have been before; None: it is new."""
    what = draw(st.sampled_from(["same", "words", "measures", "measures", "measures", "bound", "new"]))
    match what:
        case "words":
            return replace(rule, title="before", severity="low", tags=("a",))
        case "measures":
            return replace(rule, measures=draw(_other_measures(rule)))
        case "bound" if rule.window is not None and rule.windowing is None:
            return replace(rule, window=draw(windows()))
        case "new":
            return None
        case _:
            return rule


@st.composite
def _other_measures(draw: st.DrawFn, rule: ir.Rule) -> tuple[ir.Measure, ...]:
    """Return more measures than the rule has, or fewer of them, in another order."""
    measures = list(rule.measures)
    if not measures:
        return ()
    if rule.windowing is not None or draw(st.integers(0, 3)) == 0:
        return tuple(draw(st.lists(st.sampled_from(measures), min_size=1, unique_by=lambda one: one.name)))
    kinds = [Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP]
    taken = sorted(taken_variables(rule.pattern))
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True)):
        expression = draw(values(kind, taken, bare=False, depth=1, approximate=True, has_windows=False))
        measures.insert(draw(st.integers(0, len(measures))), ir.Measure(f"x_{kind}", expression))
    return tuple(measures)


def compiled(case: Changed, *, optimize: bool = True) -> TwoSets:
    """Return both sets of rules."""
    streams = {case.case.stream.name: case.case.stream}
    sets = (compile_rules(of, streams, optimize=optimize) for of in (case.before, case.case.rules))
    return TwoSets(*map(RuleSet, sets))


def both(case: Changed, sets: TwoSets) -> tuple[list[Row], list[Row]]:
    """Return what is expected of the rules of now after the change, and what they report."""
    block_rows = (1, 2, 5, BLOCK_ROWS)[len(case.case.events) % 4]
    with (
        mock.patch("cep.engine.matching.matcher.BLOCK_ROWS", block_rows),
        useless_left_out(len(case.case.events)),
    ):
        return _both(case, sets)


def _both(case: Changed, sets: TwoSets) -> tuple[list[Row], list[Row]]:
    change = case.at + 1
    before, _ = stepped(case.case, [Matcher(program) for program in sets.before.programs], 0, change)
    data = encode_state(before, 1)
    changes = changes_of(sets.before.programs, sets.now.programs)
    n_events = sum(step.n_events for step in case.case.steps[:change])
    begins_us = max(event["ts"] for event in case.case.events[:n_events])
    try:
        data = changed_state(data, sets.before, sets.now, 1, begins_us)
    except StateError:
        assert changes.refusals
        TALLY["refused"] += 1
        return [], []
    begins_us = max(begins_us, *(matcher.watermark_us for matcher in before))
    found = finished(case, [of for of in decode_state(data, sets.now, 1) if isinstance(of, Matcher)], change)
    expected: list[Row] = []
    for program, source in zip(sets.now.programs, changes.taken_from, strict=True):
        kept = {rule.name for rule in program.rules if changes.verdicts[rule.name] in KEPT}
        whole, _ = stepped(case.case, [Matcher(program)], 0, change)
        always = finished(case, whole, change)
        begun = Matcher(program)
        if source is not None and program.windows:  # windows that others have contain the past
            for state in begun._rules:
                state.begins_us = START_OF_TIME_US if state.rule.name in kept else begins_us
            _begin_windows(begun, kept, begins_us)
            whole, _ = stepped(case.case, [begun], 0, change)
            anew = finished(case, whole, change)
        else:
            whole, tables = stepped(case.case, [begun], 0, change, begins_us)
            assert not any(table.num_rows for table in tables)
            anew = finished(case, whole, change, begins_us)
        expected += [row for row in always if row[0] in kept] + [row for row in anew if row[0] not in kept]
    for name, verdict in changes.verdicts.items():
        TALLY[verdict] += 1
        TALLY[f"matches of {verdict}"] += sum(row[0] == name for row in expected)
    return in_order(expected), in_order(found)


def _begin_windows(matcher: Matcher, kept: set[str], begins_us: int) -> None:
    """Let the windows that no rule in `kept` reads begin after `begins_us`."""
    program = matcher.program
    read = {
        of
        for rule, columns in zip(program.rules, program.windows_read, strict=True)
        for of in columns
        if rule.name in kept
    }
    for ring in () if matcher._context is None else matcher._context.windows._rings:
        if not read & {program.window_meanings[column.name] for column in ring.columns}:
            ring.begins_us = begins_us


def stepped(
    case: Case, matchers: list[Matcher], first: int, end: int, after_us: int = START_OF_TIME_US
) -> tuple[list[Matcher], list[pa.Table]]:
    """Do some steps with the events after `after_us`; return the matchers, and their matches."""
    found = []
    for number in range(first, end):
        step = case.steps[number]
        start = sum(before.n_events for before in case.steps[:number])
        seen = start + step.n_events
        events = [event for event in case.events[start:seen] if event["ts"] > after_us]
        reach_us = reachable_us(
            case, seen, max(event["ts"] for event in case.events[:seen]), ahead=step.ahead
        )
        for place, matcher in enumerate(matchers):
            assert matcher.push(prepare(matcher.program, stream_table(case.stream, events))).num_rows == 0
            if step.advances:
                found.append(advanced(matcher, reach_us))
            if step.restores:
                matchers[place] = Matcher.restore(matcher.program, matcher.snapshot())
    return matchers, found


def finished(
    case: Changed, matchers: list[Matcher], first: int, after_us: int = START_OF_TIME_US
) -> list[Row]:
    """Do the remaining steps; return the matches, and the id of each."""
    matchers, found = stepped(case.case, matchers, first, len(case.case.steps), after_us)
    found += [matcher.finish() for matcher in matchers]
    return ids_and_rows(case, found)


def ids_and_rows(case: Changed, found: list[pa.Table]) -> list[Row]:
    """Return the matches in some tables, and the id of each.

    The ids of events that nothing distinguishes depend on the other rules.
    """
    rows = [row for table in found for row in rows_of(table, case.case.rules)]
    names = ("ts", *case.case.stream.tie_break)
    if len({tuple(event[name] for name in names) for event in case.case.events}) < len(case.case.events):
        return rows
    return rows + [(row["rule"], row["match_id"]) for table in found for row in table.to_pylist()]


@dataclass(frozen=True, slots=True)
class ChangedRules:
    """Rules over one stream that change (`tests.property.kinds`)."""

    strategy: st.SearchStrategy[Changed]

    def plain(self, case: Changed) -> Case:
        return case.case

    def compiled(self, case: Changed, *, optimize: bool = True) -> TwoSets:
        return compiled(case, optimize=optimize)

    def both(self, case: Changed, programs: TwoSets) -> tuple[list[Row], list[Row]]:
        return both(case, programs)

    def derived(self, case: Changed, pool: Pool, random: Random, n: int) -> Iterator[Changed]:
        for one in variants(case.case, pool, random, n):
            yield Changed(one, case.before, random.randrange(len(one.steps)))

    def smaller(self, case: Changed, fails: Callable[[Changed], bool]) -> Changed:
        return case
