"""Why a window gave no row, or why a view has none: the answer for rules without steps.

The engine runs the rule a second time, with every window or every row: without HAVING, or without WHERE and
with each JOIN as a LEFT JOIN. The parts of the conditions are measures of that rule. So the verdict of each
part is the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.compiler import ir
from cep.compiler.analysis.analyze import analyze
from cep.compiler.automaton.build import Built
from cep.compiler.compile import compile_rules
from cep.compiler.lowering.parts import COMPARISONS, values_read
from cep.compiler.lowering.shared import conjuncts
from cep.compiler.rewrite import rewrite
from cep.diagnostics.diagnostic import Span
from cep.explain.shown import show_duration, show_expression
from cep.expression import Call, Expression, Type, Windowed, rebuild
from cep.language import ast
from cep.local.replay import Keys, Replay, replay, rows_of_key, run_once
from cep.program.views import KIND, REVISION
from cep.rule_set import RETRACT, RuleSet
from cep.schema.stream import Stream
from cep.why.answer import Answer, why
from cep.why.conditions import Place, duration_text, places_of_parts, shown_value, terms_of, why_not_true
from cep.why.reasons import Ending, Event, Failed, Period, Reason, Refusal, RowsOfTable, Why, WhyRows

_MOST_EVENTS = 50
"""Events of a window that an answer names; of more, the last ones."""

_NEAREST = 3
"""Events that WHERE refused and that an answer names."""

_ADDED = "why "
"""Begins the names of added measures: no rule can have such a name."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of HAVING or WHERE, and the columns of the rows that have its truth, sides and values."""

    written: Expression
    truth: str
    sides: tuple[str, ...]
    values: Mapping[Expression, str]
    text: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a view: the columns of the rows that have its row, the first of its key.

    `join` is the place of its JOIN if a row of the view needs a row of it; None: it needs none.
    """

    name: str
    columns: Mapping[str, str]
    join: Span | None


@dataclass(frozen=True)
class RowReplay:
    """A window rule or a view with its input.

    Parameters
    ----------
    rows
        Every window, or every row over time, of all keys.
    parts
        The parts of its condition.
    events
        The events that count; None: it is a view.
    matches
        What a run reports.
    tables
        The tables of a view, that of FROM first.
    """

    rule: ir.Rule
    tree: ast.Rule | None
    rows: pa.Table
    parts: tuple[_Part, ...]
    events: Replay | None
    matches: pa.Table
    tables: tuple[_Table, ...] = ()
    streams: tuple[Stream, ...] = field(default=(), repr=False)

    @cached_property
    def keys(self) -> Keys:
        """The keys of the events and of the rows."""
        if self.events is None:
            columns = self.rows.select(list(self.rule.key))
            kinds = tuple(_type_of(of.type) for of in columns.schema)
            return Keys(_with_numbers(columns), self.rule.key, kinds)
        found = self.events.keys
        schema = found.table.schema
        rows = self.rows.select(list(self.rule.key)).rename_columns(schema.names).cast(schema)
        return replace(found, table=pa.concat_tables([found.table, rows]))

    def key_of(self, texts: Sequence[str], *, is_option: bool = True) -> tuple[Any, ...]:
        """Return the key that is written as `texts`. See `Keys.find`."""
        return replace(self.keys, is_option=is_option).find(texts)


def row_replay(
    built: Sequence[Built],
    rules: RuleSet,
    name: str,
    tables: Mapping[str, pa.Table],
    tree: ast.Rule | None = None,
) -> RowReplay:
    """Return a window rule or a view with its input. The parameters are those of `replay`."""
    rule = next(one.rule for one in built if one.rule.name == name)
    is_window = rule.windowing is not None
    if is_window:
        parts, relaxed = _every_window(rule, tree)
        of_view: tuple[_Table, ...] = ()
    else:
        assert tree is not None, "a view has a text"
        parts, relaxed, of_view = _every_row(tree, rules.inputs)
    others = [one.rule for one in built if one.rule.name != name]
    found, _ = run_once(RuleSet(compile_rules([*others, relaxed], rules.inputs)), tables)
    rows = _of_rule(found, name)
    events = replay(built, rules, name, tables, tree) if is_window else None
    matches = events.matches if events is not None else _of_rule(run_once(rules, tables)[0], name)
    return RowReplay(
        rule=rule,
        tree=tree,
        rows=rows,
        parts=parts,
        events=events,
        matches=matches,
        tables=of_view,
        streams=tuple(rules.inputs.values()),
    )


def prepared(
    built: Sequence[Built],
    rules: RuleSet,
    name: str,
    tables: Mapping[str, pa.Table],
    tree: ast.Rule | None = None,
) -> Replay | RowReplay:
    """Return a rule with its input, with or without steps. The parameters are those of `replay`."""
    rule = next(one.rule for one in built if one.rule.name == name)
    make = replay if rule.windowing is None and rule.viewing is None else row_replay
    return make(built, rules, name, tables, tree)


def told(
    found: Replay | RowReplay, key: Sequence[Any], at_us: int | None = None, limit: int = 3
) -> Why | WhyRows:
    """Return what `why` or `why_rows` returns."""
    return why(found, key, at_us, limit) if isinstance(found, Replay) else why_rows(found, key, at_us, limit)


def _of_rule(found: Sequence[pa.Table], name: str) -> pa.Table:
    """Return the matches of a rule, in a table with its measures."""
    own = [table.filter(pa.compute.equal(table.column("rule"), name)) for table in found]
    own = [table for table in own if len(table)] or own[:1]
    return pa.concat_tables(own, promote_options="default")


def _type_of(kind: pa.DataType) -> Type:
    if pa.types.is_timestamp(kind):
        return Type.TIMESTAMP
    if pa.types.is_boolean(kind):
        return Type.BOOLEAN
    if pa.types.is_floating(kind):
        return Type.DOUBLE
    return Type.BIGINT if pa.types.is_integer(kind) else Type.STRING


def _every_window(rule: ir.Rule, tree: ast.Rule | None) -> tuple[tuple[_Part, ...], ir.Rule]:
    """Return the parts of HAVING, and the rule without it, with their values as measures."""
    assert rule.windowing is not None
    having = rule.windowing.having
    written = [] if having is None else list(conjuncts(having))
    places = places_of_parts(None if tree is None else tree.having, len(written))
    added: dict[str, Expression] = {}
    parts: list[_Part] = []
    for number, part in enumerate(written):
        truth = f"{_ADDED}{number}"
        added[truth] = part
        is_comparison = isinstance(part, Call) and part.function in COMPARISONS
        sides = dict(enumerate(part.args)) if isinstance(part, Call) and is_comparison else {}
        values = dict.fromkeys(values_read(part))
        of_sides = {f"{truth} side {place}": side for place, side in sides.items()}
        of_values = {f"{truth} value {place}": value for place, value in enumerate(values)}
        added |= of_sides | of_values
        place = places[number]
        names = {_as_written(value, rule.windowing.where): column for column, value in of_values.items()}
        shown = _as_written(part, rule.windowing.where)
        text = "" if tree is None or place is None else place.text(tree.source.text)
        text = text or show_expression(shown)
        parts.append(_Part(shown, truth, tuple(of_sides), names, text, place and place.span))
    measures = [ir.Measure(name, expression) for name, expression in added.items()]
    report = replace(rule.report, suppress_us=0, n_per_day=0)
    windowing = replace(rule.windowing, having=None)
    every = replace(rule, measures=(*rule.measures, *measures), windowing=windowing, report=report)
    return tuple(parts), every


def _as_written(expression: Expression, where: Expression | None) -> Expression:
    """Return an expression over windows without the WHERE of the rule, which each condition includes."""

    def own(leaf: Expression) -> Expression:
        if where is None or not isinstance(leaf, Windowed) or leaf.condition is None:
            return leaf
        parts = list(conjuncts(leaf.condition))
        rest = parts[len(list(conjuncts(where))) :]
        condition = Call("and", tuple(rest), Type.BOOLEAN) if len(rest) > 1 else next(iter(rest), None)
        return replace(leaf, condition=condition)

    return rebuild(expression, own)


def _every_row(
    tree: ast.Rule, streams: Mapping[str, Stream]
) -> tuple[tuple[_Part, ...], ir.Rule, tuple[_Table, ...]]:
    """Return the parts of WHERE, the view without it and with all rows, and its tables."""
    added: dict[str, ast.Expression] = {}
    terms = [] if tree.where is None else terms_of(tree.where)
    sides: list[tuple[str, ...]] = []
    values: list[dict[str, ast.Column]] = []
    for number, term in enumerate(terms):
        truth = f"{_ADDED}{number}"
        of_term = dict.fromkeys(_columns(term))
        is_comparison = isinstance(term, ast.Binary) and term.operator in COMPARISONS
        ends = (term.left, term.right) if isinstance(term, ast.Binary) and is_comparison else ()
        of_sides = {f"{truth} side {place}": side for place, side in enumerate(ends)}
        of_values = {f"{truth} value {place}": column for place, column in enumerate(of_term)}
        added |= {truth: term, **of_sides, **of_values}
        sides.append(tuple(of_sides))
        values.append(of_values)
    tables: list[_Table] = []
    joins = {join.table.text: join for join in tree.joins}
    # A RIGHT JOIN gives a row even if the tables before it have none; a LEFT JOIN would give a different row.
    loosens = not any(join.kind in ast.OUTER for join in tree.joins)
    for name in dict.fromkeys([tree.streams[0].text, *joins]):
        columns: dict[str, str] = {}
        declared = streams[name]
        assert declared.table is not None
        own = [of.name for of in declared.fields if of.type is not Type.OPAQUE]
        for column in [*declared.table.key, *(of for of in own if of not in declared.table.key)]:
            if column not in (declared.event_time, declared.table.op):
                columns[column] = f"{_ADDED}{name}.{column}"
                added[columns[column]] = ast.Column(
                    ast.Name(name, tree.name.span), ast.Name(column, tree.name.span), tree.name.span
                )
        join = joins.get(name)
        is_needed = join is not None and join.kind is ast.JoinKind.INNER and loosens
        tables.append(_Table(name, columns, join.span if join is not None and is_needed else None))
    measures = [ast.Measure(value, ast.Name(name, tree.name.span)) for name, value in added.items()]
    loose = tuple(
        replace(join, kind=ast.JoinKind.LEFT) if join.kind is ast.JoinKind.INNER and loosens else join
        for join in tree.joins
    )
    every = replace(tree, where=None, joins=loose, measures=(*tree.measures, *measures))
    (typed,), problems = analyze([every], streams)
    assert not any(problem.is_error for problem in problems), problems
    assert typed.viewing is not None
    selected = {measure.name: measure.expression for measure in typed.viewing.selected}
    parts = [
        _Part(
            selected[f"{_ADDED}{number}"],
            f"{_ADDED}{number}",
            sides[number],
            {selected[column]: column for column in values[number]},
            Place(term.span, (term.span,)).text(tree.source.text),
            term.span,
        )
        for number, term in enumerate(terms)
    ]
    return tuple(parts), rewrite(typed), tuple(tables)


def _columns(node: Any) -> Iterator[ast.Column]:
    """Yield the columns in an expression."""
    if isinstance(node, ast.Column):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _columns(part)
    elif hasattr(node, "__dataclass_fields__"):
        for name in node.__dataclass_fields__:
            yield from _columns(getattr(node, name))


# ---------------------------------------------------------------- the answer


def why_rows(found: RowReplay, key: Sequence[Any], at_us: int | None = None, limit: int = 3) -> WhyRows:
    """Return which windows or rows of a key were reported, and why others were not.

    Parameters
    ----------
    key
        The values of the key columns (`RowReplay.key_of`).
    at_us
        Only those that were open or valid at this event time, in microseconds. None: all.
    limit
        Those that were not reported at most, the nearest.
    """
    rows = found.rows.filter(pa.array(rows_of_key(found.rows, key, found.rule.key)))
    counts = _Counts.of(found, tuple(key))
    periods = list(
        _windows(found, key, rows, counts) if found.events is not None else _view_rows(found, rows)
    )
    if at_us is not None:
        periods = [
            one for one in periods if one.start_us <= at_us and (one.end_us is None or at_us < one.end_us)
        ]
    reported = [one for one in periods if one.match_id is not None and one.removed_by is None]
    others = [one for one in periods if one.match_id is None or one.removed_by is not None]
    nearest = sorted(others, key=_nearness)[:limit]
    refused, n_refused = counts.refused() if at_us is None else ((), 0)
    return WhyRows(
        rule=found.rule.name,
        key=dict(zip(found.rule.key, map(shown_value, key, found.keys.kinds), strict=True)),
        kind="row" if found.events is None else "window",
        n_events=counts.n_events,
        reported=tuple(reported),
        others=tuple(sorted(nearest, key=lambda one: (one.start_us, one.end_us or 0))),
        n_others=len(others),
        refused=tuple(refused),
        n_refused=n_refused,
        tables=tuple(RowsOfTable(of.name, tuple(_table_rows(of, rows))) for of in found.tables),
    )


def _nearness(period: Period) -> tuple[int, float, int]:
    sizes = [abs(float(failed.by)) if failed.by is not None else float("inf") for failed in period.failed]
    return len(period.failed), max(sizes, default=0.0), period.start_us


class _Counts:
    """The events of a key: which of them count, and why the others do not. A view has none."""

    def __init__(self, answer: Answer | None) -> None:
        self.answer = answer
        self.variable = ""
        self.time_us: I64 = np.zeros(0, np.int64) if answer is None else answer.watched.time_us
        self.count: Mask = np.zeros(self.n_events, np.bool_)
        if answer is not None:
            (self.variable,) = answer.watched.rule.variables
            events = np.arange(self.n_events)
            self.count[:] = self._truths(events).all(axis=0)

    @classmethod
    def of(cls, found: RowReplay, key: tuple[Any, ...]) -> _Counts:
        """Return the windows or rows of a key."""
        if found.events is None:
            return cls(None)
        events = found.events.events
        has_events = rows_of_key(events, key, found.events.watched.program.key_columns).any()
        return cls(Answer(found.events, key) if has_events else None)

    @property
    def n_events(self) -> int:
        return len(self.time_us)

    def _truths(self, events: I64) -> Mask:
        assert self.answer is not None
        return self.answer.conditions.truths(self.variable, self.answer.watched.first_row(), events)

    def inside(self, start_us: int, end_us: int) -> tuple[Event, ...]:
        """Return the events that count in a window; if there are many, the last ones."""
        if self.answer is None:
            return ()
        chosen = np.flatnonzero(self.count & (self.time_us >= start_us) & (self.time_us < end_us))
        return tuple(self.answer.event(place) for place in chosen[-_MOST_EVENTS:].tolist())

    def refused(self) -> tuple[list[Refusal], int]:
        """Return the events that WHERE refused, those with the fewest failed parts first."""
        others = np.flatnonzero(~self.count)
        if self.answer is None or not len(others):
            return [], 0
        n_failed = (~self._truths(others)).sum(axis=0)
        chosen = others[np.argsort(n_failed, kind="stable")][:_NEAREST]
        row = self.answer.watched.first_row()
        found: list[Refusal] = []
        for place in chosen.tolist():
            failed = self.answer.conditions.failed(self.variable, row, place)
            event = self.answer.event(place)
            found.append(Refusal(event, self.variable, failed[0].reason, failed[0].says, failed))
        return found, len(others)


def _windows(found: RowReplay, key: Sequence[Any], rows: pa.Table, counts: _Counts) -> Iterator[Period]:
    """Yield the windows of a key."""
    names = [measure.name for measure in found.rule.measures]
    kinds = {measure.name: measure.expression.type for measure in found.rule.measures}
    own = found.matches.filter(pa.array(rows_of_key(found.matches, key, found.rule.key)))
    reported = set(own.column("match_id").to_pylist())
    before: tuple[str, int] | None = None
    in_order = _as_rows(rows)
    in_order.sort(key=lambda row: (row["match_end"], row["match_start"]))
    for row in in_order:
        failed = tuple(_failed_parts(found, row))
        start_us, end_us, match_id = row["match_start"], row["match_end"], row["match_id"]
        removed = None
        if not failed and match_id not in reported:
            removed = _suppressed(found.rule, before, end_us)
        elif not failed:
            before = match_id, end_us
        values = {name: shown_value(row[name], kinds[name]) for name in names}
        events = counts.inside(start_us, end_us)
        yield Period(start_us, end_us, values, None if failed else match_id, failed, removed, events)


def _suppressed(rule: ir.Rule, before: tuple[str, int] | None, end_us: int) -> Ending:
    assert before is not None, "the first one is reported"
    match_id, until_us = before
    if rule.report.n_per_day:
        says = f"match {match_id} was the last of its day: SUPPRESS AFTER {rule.report.n_per_day} PER DAY"
        return Ending(Reason.SUPPRESSED, says, match_id=match_id)
    by_us = until_us + rule.report.suppress_us - end_us
    length = show_duration(rule.report.suppress_us)
    says = f"too soon by {duration_text(by_us)} after match {match_id}: SUPPRESS FOR {length}"
    return Ending(Reason.SUPPRESSED, says, by_us=by_us, match_id=match_id)


def _view_rows(found: RowReplay, rows: pa.Table) -> Iterator[Period]:
    """Yield the rows of a view over time, and the times without one."""
    selected = () if found.rule.viewing is None else found.rule.viewing.selected
    kinds = {measure.name: measure.expression.type for measure in selected}
    in_order = _as_rows(rows)
    in_order.sort(key=lambda row: row[REVISION])
    last: Period | None = None
    for row in in_order:
        if last is not None:
            last = replace(last, end_us=row["match_start"])
        if row[KIND] == RETRACT:
            if last is not None:
                yield last
            last = None
            continue
        failed = (*_without_row(found, row), *_failed_parts(found, row))
        values = {name: shown_value(row[name], kind) for name, kind in kinds.items()}
        match_id = None if failed else row["match_id"]
        period = Period(row["match_start"], None, values, match_id, failed)
        if last is not None and last.failed == period.failed and _is_same(last.values, period.values):
            last = replace(last, end_us=None)
            continue
        if last is not None:
            yield last
        last = period
    if last is not None:
        yield last


def _table_rows(table: _Table, rows: pa.Table) -> Iterator[Period]:
    """Yield the rows of a table over time, as a row of the view saw them."""
    kinds = {of.name: _type_of(of.type) for of in rows.schema}
    in_order = _as_rows(rows)
    in_order.sort(key=lambda row: row[REVISION])
    last: Period | None = None
    for row in in_order:
        values = {name: shown_value(row[column], kinds[column]) for name, column in table.columns.items()}
        there = row[KIND] != RETRACT and next(iter(values.values())) is not None
        if last is not None and there and _is_same(last.values, values):
            continue
        if last is not None:
            yield replace(last, end_us=row["match_start"])
        last = Period(row["match_start"], None, values) if there else None
    if last is not None:
        yield last


def _is_same(values: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether values are the same; NaN is NaN."""
    pairs = zip(values.values(), others.values(), strict=True)
    return all(one == other or (one != one and other != other) for one, other in pairs)


def _without_row(found: RowReplay, row: Mapping[str, Any]) -> Iterator[Failed]:
    for table in found.tables:
        column = next(iter(table.columns.values()))
        if table.join is not None and row[column] is None:
            text = "" if found.tree is None else found.tree.source.text[table.join.start : table.join.end]
            says = f"there was no row of `{table.name}`"
            yield Failed(Reason.ROW, -1, " ".join(text.split()), {}, None, says, table.join)


def _failed_parts(found: RowReplay, row: Mapping[str, Any]) -> Iterator[Failed]:
    for number, part in enumerate(found.parts):
        truth = row[part.truth]
        if truth is True:
            continue
        values = {expression: row[column] for expression, column in part.values.items()}
        sides = [row[column] for column in part.sides]
        reason, by, says = why_not_true(
            part.written, values, sides, is_null=truth is None, is_of_window=found.events is not None
        )
        shown = {show_expression(of): shown_value(value, of.type) for of, value in values.items()}
        yield Failed(reason, number, part.text, shown, by, says, part.span)


def _as_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows with points in time as microseconds."""
    found: list[dict[str, Any]] = _with_numbers(rows).to_pylist()
    return found


def _with_numbers(rows: pa.Table) -> pa.Table:
    """Return a table with points in time as microseconds."""
    columns = {
        name: column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return pa.table(columns)
