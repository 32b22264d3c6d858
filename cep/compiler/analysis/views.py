"""A view: syntax tree -> typed rule. Its only event is a change; the condition says that the row differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cep.compiler import ir
from cep.compiler.aggregates import AGGREGATES
from cep.compiler.analysis.conditions import is_of_bounded_size
from cep.compiler.analysis.joins import resolve_joins
from cep.compiler.analysis.names import resolve_names
from cep.compiler.analysis.outputs import rule_of_events, type_measures
from cep.compiler.analysis.partitioning import Partitioning
from cep.compiler.analysis.view_rows import (
    Presence,
    all_of,
    any_of,
    check_outer,
    has_outer,
    presence,
    tables_with_rows,
)
from cep.compiler.typing.checker import Scope
from cep.compiler.typing.inference import Inference
from cep.compiler.typing.joins import RuleJoin
from cep.compiler.typing.previous import PREVIOUS
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.errors import Diagnostic, Span
from cep.expression import Aggregate, Call, Column, Expression, Joined, Literal, Type, rebuild
from cep.language import ast
from cep.program.program import MATCH
from cep.program.views import CHANGE_US, KIND, REVISION, change_stream
from cep.program.window_functions import WINDOW_FUNCTIONS
from cep.rule_set import RETRACT
from cep.schema.stream import Stream, TableKind

_CHANGE = "change"
"""The variable of the event."""


def view_partitioning(rule: ast.Rule, streams: Mapping[str, Stream], report: Reporter) -> Partitioning:
    """Return the table of FROM and the key of a view; no table after a report."""
    table = _table(rule, streams, report)
    key = tuple(part.name.text for part in rule.key)
    if table is None or table.table is None:
        return Partitioning((), key)
    if sorted(key) != sorted(table.table.key):
        columns = ", ".join(table.table.key)
        report(
            "E0328",
            f"the key of `{table.name}` is {', '.join(f'`{name}`' for name in table.table.key)}",
            Span(rule.key[0].span.start, rule.key[-1].span.end),
            "not the columns that tell its rows apart",
            f"write KEY {columns}; or name another table in FROM: a view has one row for each row of it",
        )
        return Partitioning((), key)
    types = {field.name: field.type for field in table.fields if field.name in key}
    return Partitioning((table,), key, key_types=types)


def _table(rule: ast.Rule, streams: Mapping[str, Stream], report: Reporter) -> Stream | None:
    first, *more = rule.streams
    table = streams.get(first.text)
    tables = [stream.name for stream in streams.values() if stream.table is not None]
    if more or rule.matches:
        span = Span(first.span.start, rule.streams[-1].span.end)
        wrong = (
            "a view is of the rows of one table",
            span,
            "several, or matches of a rule",
            f"write FROM {first.text}, and JOIN for each other table",
        )
    elif table is None:
        report(
            "E0220",
            f"there is no table `{first.text}`",
            first.span,
            "not declared in the streams file",
            did_you_mean(first.text, tables, "tables") if tables else "declare it under `tables:`",
        )
        return None
    elif table.table is None:
        report(
            "E0221",
            f"`{first.text}` is a stream, not a table",
            first.span,
            "its events are no versions of rows",
            f"declare `{first.text}` under `tables:`, with the `key` of its rows",
        )
        return None
    elif table.table.kind is not TableKind.CHANGELOG:
        wrong = (
            f"a view FROM a table that is {table.table.kind.value}",
            first.span,
            "its rows are everywhere, so each would be reported again and again",
            f"leave `{table.table.kind.value}: true` of `{first.text}` out, "
            f"or name a changelog in FROM and JOIN `{first.text}`",
        )
    else:
        return table
    report("E0328", *wrong)
    return None


def typed_view(
    rule: ast.Rule,
    partitioning: Partitioning,
    streams: Mapping[str, Stream],
    columns: Sequence[str],
    report: Reporter,
) -> ir.Rule | None:
    """Return the view as a rule, or None after a report.

    `columns`: names that no column of the view may have.
    """
    if not partitioning.streams:
        return None
    (table,) = partitioning.streams
    joined = resolve_joins(rule, partitioning, streams, report)
    base = _base(table, partitioning.key)
    joins = {name: join and _by_rows(join, base) for name, join in joined.items()}
    names = resolve_names(rule, partitioning, report)
    tables = tuple(name for name, stream in streams.items() if stream.table is not None)
    check_outer(rule, report)
    found = [(join, resolved) for join in rule.joins if (resolved := joins.get(join.table.text)) is not None]
    is_outer = has_outer(rule)
    there = presence(base, found)
    scope = Scope(
        rule.source,
        table,
        (),
        (),
        _CHANGE,
        {_CHANGE: table},
        joins={table.name: base, **joins},
        tables=tables,
    )
    inference = _ViewInference(scope, report.add, base, there, partitioning.key if is_outer else ())
    where = None
    if rule.where is not None and is_of_bounded_size(rule.where, names, report):
        where = inference.condition(rule.where)
    # A row always has its key.
    is_key = [_is_key(measure, tables_with_rows(rule), base, joins) for measure in rule.measures]
    kept = tuple(measure for measure, known in zip(rule.measures, is_key, strict=True) if not known)
    selected = type_measures(
        replace(names, rule=replace(rule, measures=kept)),
        tuple(dict.fromkeys((*columns, REVISION, KIND))),
        report,
        inference.value,
    )
    if any(join is None for join in joins.values()) or (rule.where is not None and where is None):
        return None
    known = [join for join in joins.values() if join is not None]
    kinds = tuple((join.table.text, ir.JoinKind[join.kind.name]) for join in rule.joins)
    row = _Row(there, where)
    kind = Call("case", (row.is_there, _text(MATCH), _text(RETRACT)), Type.STRING)
    measures = [
        ir.Measure(REVISION, Column(CHANGE_US, Type.BIGINT)),
        ir.Measure(KIND, kind),
        *(ir.Measure(measure.name, row.value(measure.expression)) for measure in selected),
    ]
    return replace(
        rule_of_events(rule, partitioning),
        streams=(table.name,),
        pattern=ir.Take(_CHANGE),
        variables=(ir.Variable(_CHANGE, row.differs([measure.expression for measure in selected])),),
        measures=tuple(ir.Measure(item.name, _of_change(item.expression)) for item in measures),
        skip=ir.Skip(ir.SkipKind.PAST_LAST),
        tables=(table, *(join.table for join in known)),
        viewing=ir.Viewing(change_stream(table, partitioning.key), kinds, where, selected),
    )


def _base(table: Stream, key: tuple[str, ...]) -> RuleJoin:
    """Return how a change finds the row of the table in FROM."""
    assert table.table is not None
    types = {field.name: field.type for field in table.fields}
    columns = tuple(Column(name, types[name]) for name in table.table.key)
    return RuleJoin(table, columns, key, table.name)


def _by_rows(join: RuleJoin, base: RuleJoin) -> RuleJoin:
    """Return a join by columns of the table in FROM: the columns of its key are those of the change."""
    assert base.order is not None
    keys = tuple(
        key if isinstance(key, Joined) or key.name in base.order else _column(base, key.name, key.type)
        for key in join.keys
    )
    return replace(join, keys=keys)


def _column(join: RuleJoin, name: str, kind: Type) -> Joined:
    return Joined(join.table.name, join.keys, name, join.order, kind)


def _is_key(
    measure: ast.Measure,
    tables: Sequence[str],
    base: RuleJoin,
    joins: Mapping[str, RuleJoin | None],
) -> bool:
    """Return whether a column of a view is a column of its key, under its own name.

    It may be written as the first non-NULL column of all `tables` whose rows create rows of the view:
    COALESCE(a.k, b.k) AS k.
    """
    value, name = measure.expression, measure.name.text
    assert base.order is not None
    if name not in base.order:
        return False
    if isinstance(value, ast.Column) and value.variable is None:
        return value.table is None and value.name.text == name
    columns = value.args if isinstance(value, ast.Function) and value.name.text == "COALESCE" else (value,)
    place = base.order.index(name)
    orders = {of: join.order for of, join in (*joins.items(), (base.table.name, base)) if join is not None}
    named = {
        column.variable.text
        for column in columns
        if isinstance(column, ast.Column)
        and column.table is None
        and column.variable is not None
        and (order := orders.get(column.variable.text)) is not None
        and column.name.text == order[place]
    }
    return len(named) == len(columns) and named >= set(tables)


def _text(value: str) -> Literal:
    return Literal(value, Type.STRING)


def _of_change(value: Expression) -> Expression:
    """Return a value of the event in the form of a measure."""
    return Aggregate("LAST", _CHANGE, value, 0, value.type)


def _before(value: Expression) -> Expression:
    """Return what a value was directly before the change."""

    def of_leaf(leaf: Expression) -> Expression:
        if not isinstance(leaf, Joined):
            return leaf
        keys = tuple(replace(key, is_before=True) if isinstance(key, Joined) else key for key in leaf.keys)
        return replace(leaf, keys=keys, is_before=True)

    return rebuild(value, of_leaf)


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of a view at a change, composed from rows of its tables."""

    there: Presence
    where: Expression | None

    @property
    def is_there(self) -> Expression:
        """Whether there is a row, TRUE or FALSE."""
        if self.where is None:
            return self.there.is_there
        no = Literal(value=False, type=Type.BOOLEAN)
        return all_of([self.there.is_there, Call("coalesce", (self.where, no), Type.BOOLEAN)])

    def value(self, value: Expression) -> Expression:
        """Return a column of the row, or of the deleted row."""
        return Call("case", (self.is_there, value, _before(value)), value.type)

    def differs(self, values: Sequence[Expression]) -> Expression:
        """Return whether the row differs from the one directly before."""
        now, before = self.is_there, _before(self.is_there)
        ways = [all_of([now, _not(before)]), all_of([before, _not(now)])]
        changed = [part for value in values for part in _distinct(value, _before(value))]
        if changed:
            ways.append(all_of([now, before, any_of(changed)]))
        return any_of(ways)


def _distinct(now: Expression, before: Expression) -> list[Expression]:
    """Return conditions, one of which is TRUE if two values differ; NULL is a value like others."""
    if now == before:
        return []
    null = [Call("is_null", (value,), Type.BOOLEAN) for value in (now, before)]
    known = [Call("is_not_null", (value,), Type.BOOLEAN) for value in (now, before)]
    other = Call("<>", (now, before), Type.BOOLEAN)
    return [all_of([null[0], known[1]]), all_of([known[0], null[1]]), other]


def _not(part: Expression) -> Expression:
    return Call("not", (part,), Type.BOOLEAN)


class _ViewInference(Inference):
    """Types the expressions of a view: they read one row of each of its tables.

    `own` are the key columns of the view itself, because the table in FROM may have no row.
    """

    def __init__(
        self,
        scope: Scope,
        report: Callable[[Diagnostic], None],
        base: RuleJoin,
        there: Presence,
        own: Sequence[str],
    ) -> None:
        super().__init__(scope, report)
        self._base = ast.Name(base.table.name, Span(0, 0))
        self._there = there
        self._own = {
            column.name: column for column in base.keys if isinstance(column, Column) and column.name in own
        }

    def infer_any(self, node: ast.Expression) -> Expression | None:
        """Return `node` typed."""
        is_over = isinstance(node, ast.Windowed) or (
            isinstance(node, ast.Function) and node.name.text in (*AGGREGATES, *WINDOW_FUNCTIONS, PREVIOUS)
        )
        if isinstance(node, ast.Function | ast.Windowed) and is_over:
            self.problem(
                "E0329",
                f"{node.name.text} in a view",
                node.span,
                "a row of a view is made of one row of each table",
                "leave it out; a rule over MATCHES OF the view can count its rows",
            )
            return None
        return super().infer_any(node)

    def of_table(self, table: ast.Name, column: ast.Name) -> Expression | None:
        """Return a column of a row of a table, or None after a report."""
        if table.text not in self.scope.joins:
            self._no_table(table)
            return None
        found = super().of_table(table, column)
        return self._there.column(found) if isinstance(found, Joined) else found

    def _bare_column(self, node: ast.Column) -> Expression | None:
        if node.name.text in self._own:
            return self._own[node.name.text]
        return self.of_table(self._base, node.name)

    def _column_of(self, variable: ast.Name, node: ast.Column) -> Expression | None:
        self._no_table(variable)
        return None

    def _no_table(self, name: ast.Name) -> None:
        known = tuple(self.scope.joins)
        self.problem(
            "E0220",
            f"the view has no table `{name.text}`",
            name.span,
            "neither in FROM nor in a JOIN",
            f"add JOIN {name.text} ON column"
            if name.text in self.scope.tables
            else did_you_mean(name.text, known, "tables of the view"),
        )
