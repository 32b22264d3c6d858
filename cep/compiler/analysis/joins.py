"""JOIN: which table a rule joins, and which columns of an event are the key of a version."""

from __future__ import annotations

from collections.abc import Mapping

from cep.compiler import ir
from cep.compiler.analysis.partitioning import Partitioning, report_no_column
from cep.compiler.pattern_shape import variable_names
from cep.compiler.typing.joins import RuleJoin
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.expression import Column, Joined, walk
from cep.language import ast
from cep.schema.stream import Field, Role, Stream, TableKind, TableSettings, qualified


def resolve_joins(
    rule: ast.Rule, partitioning: Partitioning, streams: Mapping[str, Stream], report: Reporter
) -> dict[str, RuleJoin | None]:
    """Return the joins of `rule` by table; None: a problem of one was reported."""
    found: dict[str, RuleJoin | None] = {}
    taken = {subset.name.text for subset in rule.subsets}
    if rule.is_view:
        taken.add(rule.streams[0].text)
    taken.update(variable_names(rule.pattern))
    for join in rule.joins:
        name = join.table
        if name.text in found or name.text in taken:
            what = "joined already" if name.text in found else "a variable of the pattern or a subset, too"
            what = "in FROM already" if rule.is_view and name.text not in found else what
            report(
                "E0225",
                f"the table's name `{name.text}` is taken",
                name.span,
                what,
                "keep one JOIN of the table"
                if name.text in found
                else "a view has one row of each table: declare the table once more under another name"
                if rule.is_view
                else "give the variable or the subset another name",
            )
            continue
        table = declared_table(join.table, streams, report)
        found[name.text] = None
        if table is not None and len(partitioning.streams) == len(rule.streams):  # all are known
            found[name.text] = _Join(join, table, partitioning, report, is_view=rule.is_view).resolve()
    return found


def warn_of_unread(rule: ast.Rule, typed: ir.Rule, report: Reporter) -> None:
    """Warn about joined tables from which the rule reads no column."""
    parts = (part for expression in typed.expressions for part in walk(expression))
    read = {part.table for part in parts if isinstance(part, Joined)}
    for join in rule.joins:
        if join.table.text not in read:
            report(
                "W0518",
                f"no column of `{join.table.text}` is read",
                join.table.span,
                "joined for nothing: events without a row count, too",
                f"leave the JOIN out, or ask for a row: {join.table.text}.{_key_of(join, typed)} IS NOT NULL",
            )


def _key_of(join: ast.Join, typed: ir.Rule) -> str:
    table = next(table for table in typed.tables if table.name == join.table.text)
    assert table.table is not None
    return table.table.key[0]


def declared_table(name: ast.Name, streams: Mapping[str, Stream], report: Reporter) -> Stream | None:
    """Return the table called `name`, or None after a report."""
    table = streams.get(name.text)
    if table is None:
        tables = [stream.name for stream in streams.values() if stream.table is not None]
        report(
            "E0220",
            f"there is no table `{name.text}`",
            name.span,
            "not declared in the streams file",
            did_you_mean(name.text, tables, "tables") if tables else "declare it under `tables:`",
        )
    elif table.table is None:
        report(
            "E0221",
            f"`{name.text}` is a stream, not a table",
            name.span,
            "its events are no versions of rows",
            f"name it in FROM, or declare `{name.text}` under `tables:`",
        )
        return None
    return table


class _Join:
    """One JOIN of a rule."""

    def __init__(
        self, join: ast.Join, table: Stream, partitioning: Partitioning, report: Reporter, *, is_view: bool
    ) -> None:
        assert table.table is not None
        self.is_view = is_view
        self.join = join
        self.table = table
        self.settings: TableSettings = table.table
        self.partitioning = partitioning
        self.report = report
        self.stream: Stream | None = None  # whose events are joined

    def resolve(self) -> RuleJoin | None:
        """Return the join, or None after a report."""
        columns: dict[str, Field] = {}  # of the key -> of the event
        is_sound = True
        for pair in self.join.pairs:
            found = self._pair(pair)
            if found is None:
                is_sound = False
                continue
            of_event, of_table = found
            if of_table.name in columns:
                self.report(
                    "E0223",
                    f"the key column `{of_table.name}` is joined twice",
                    pair.span,
                    "given before",
                    "keep one of them",
                )
                is_sound = False
            columns.setdefault(of_table.name, of_event)
        if not is_sound:
            return None
        lacking = [name for name in self.settings.key if name not in columns]
        if lacking:
            self.report(
                "E0222",
                f"the key of `{self.table.name}` is {_names(self.settings.key)}",
                self.join.span,
                f"does not give {_names(lacking)}",
                f"add: AND column = {self.table.name}.{lacking[0]}",
            )
            return None
        assert self.stream is not None
        ordered = [columns[name] for name in self.settings.key]
        key = self._key_order([field.name for field in ordered])
        is_everywhere = self.settings.kind is not TableKind.CHANGELOG
        if self.join.kind in ast.OUTER and (is_everywhere or key is None):
            self._refuse_outer(is_of_key=key is not None)
            return None
        if not is_everywhere and key is None:
            self._refuse_key(ordered)
            return None
        several = self.partitioning.has_several_streams
        names = (qualified(self.stream.name, f.name) if several else f.name for f in ordered)
        keys = tuple(Column(name, field.type) for name, field in zip(names, ordered, strict=True))
        return RuleJoin(self.table, keys, None if is_everywhere else key, self.stream.name)

    def _pair(self, pair: ast.JoinPair) -> tuple[Field, Field] | None:
        """Return the column of the event and the column of the table."""
        left, right = pair.left, pair.right
        of_event, of_table = left, right
        if right is not None and self._is_of_table(left) and not self._is_of_table(right):
            of_event, of_table = right, left
        if self._is_of_table(of_event) or (of_table is not None and not self._is_of_table(of_table)):
            self.report(
                "E0223",
                f"this joins nothing of `{self.table.name}` with a column of an event",
                pair.span,
                "expected a column of the event and one of the table",
                f"write column = {self.table.name}.{self.settings.key[0]}",
            )
            return None
        stream = self._stream_of(of_event)
        if stream is None:
            return None
        field = stream.field(of_event.name.text)
        if field is None:
            report_no_column(self.report, "stream", stream, of_event.name)
            return None
        named = of_event.name if of_table is None else of_table.name
        key = self.table.field(named.text)
        if key is None:
            report_no_column(self.report, "table", self.table, named)
            return None
        if key.name not in self.settings.key:
            self.report(
                "E0223",
                f"`{key.name}` is not in the key of `{self.table.name}`",
                named.span,
                "may be the same in several rows",
                f"join by {_names(self.settings.key)}: write column = "
                f"{self.table.name}.{self.settings.key[0]}",
            )
            return None
        if key.type is not field.type:
            self.report(
                "E0224",
                f"`{field.name}` is {field.type.upper()}, `{self.table.name}.{key.name}` is "
                f"{key.type.upper()}",
                pair.span,
                "values of different types are never equal",
                "use columns of one type, or change the type of one in the streams file",
            )
            return None
        return field, key

    def _is_of_table(self, column: ast.Column) -> bool:
        return column.variable is not None and column.variable.text == self.table.name

    def _stream_of(self, column: ast.Column) -> Stream | None:
        """Return the stream of a column of the event; it is the same for the whole join."""
        streams = {stream.name: stream for stream in self.partitioning.streams}
        if column.variable is None and len(streams) > 1:
            having = [name for name, stream in streams.items() if stream.field(column.name.text) is not None]
            self.report(
                "E0232",
                f"`{column.name.text}` of which stream?",
                column.span,
                "the rule reads several streams",
                f"write {(having or list(streams))[0]}.{column.name.text}",
            )
            return None
        name = self.partitioning.streams[0].name if column.variable is None else column.variable.text
        if name not in streams:
            assert column.variable is not None
            self.report(
                "E0231",
                f"`{name}` is not {'the table in FROM' if self.is_view else 'a stream of this rule'}",
                column.variable.span,
                "a view joins by columns of that table" if self.is_view else "not in FROM",
                did_you_mean(name, tuple(streams), "tables" if self.is_view else "streams of the rule"),
            )
            return None
        if self.stream is not None and self.stream.name != name:
            self.report(
                "E0223",
                f"`{self.table.name}` is joined by columns of two streams",
                column.span,
                f"the others are of `{self.stream.name}`",
                "an event has columns of its own stream only: name columns of one stream",
            )
            return None
        self.stream = streams[name]
        return self.stream

    def _key_order(self, columns: list[str]) -> tuple[str, ...] | None:
        """Return the table's key in the order of the rule's key; None: the keys differ."""
        assert self.stream is not None
        partitioning = self.partitioning
        roles = partitioning.roles or (Role(self.stream.name, partitioning.key),)
        orders: set[tuple[str, ...] | None] = set()
        for role in roles:
            if role.stream == self.stream.name:
                is_same = sorted(role.key) == sorted(columns)
                orders.add(
                    tuple(self.settings.key[columns.index(name)] for name in role.key) if is_same else None
                )
        return orders.pop() if len(orders) == 1 else None

    def _refuse_outer(self, *, is_of_key: bool) -> None:
        """Refuse a join that keeps rows of a replicated table, or of one without the view's key."""
        name, key = self.table.name, ", ".join(self.settings.key)
        kind = self.settings.kind.value
        alone = f"rows of `{name}` without a partner have no {_names(self.partitioning.key)}"
        self.report(
            "E0328",
            f"{self.join.kind} of a table that is {kind}"
            if is_of_key
            else f"{self.join.kind} by another key than the view's",
            self.join.span,
            "its rows are everywhere, so each would be reported again and again" if is_of_key else alone,
            f"leave `{kind}: true` of `{name}` out"
            if is_of_key
            else "write LEFT JOIN"
            + (f"; or, for all rows of `{name}`, a view KEY {key} FROM {name}" * (kind == "changelog")),
        )

    def _refuse_key(self, ordered: list[Field]) -> None:
        columns = ", ".join(field.name for field in ordered)
        instead = "" if self.is_view else f", or write PARTITION BY {columns}"
        self.report(
            "E0226",
            f"the {'view' if self.is_view else 'rule'}'s key is {_names(self.partitioning.key)}, "
            f"`{self.table.name}` is joined by {_names([field.name for field in ordered])}",
            self.join.span,
            "its versions would be needed for every key",
            f"add `replicated: true` to `{self.table.name}` in the streams file (`static: true` if its rows "
            f"have no event time){instead}",
        )


def _names(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
