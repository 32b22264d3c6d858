"""Columns of joined tables, typed: ``customers.segment``, ``big.customers.segment``."""

from __future__ import annotations

from dataclasses import dataclass

from cep.compiler.typing.checker import Checker
from cep.diagnostics.diagnostic import did_you_mean
from cep.expression import Column, Expression, Joined
from cep.language import ast
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class RuleJoin:
    """A table that a rule joins.

    `keys`: the columns of an event that are the key of a version, in the order of the table's key. In a view
    they may be columns of another table. `order`: the table's key in the order of the rule's key, if the
    table is needed only where its key is. `stream`: the stream whose events have the columns of the table.
    """

    table: Stream
    keys: tuple[Column | Joined, ...]
    order: tuple[str, ...] | None
    stream: str


class JoinChecker(Checker):
    """Types columns of joined tables."""

    def is_of_table(self, node: ast.Column) -> bool:
        """Return whether `node` is, or stands for, a column of a joined table."""
        return node.table is not None or (
            node.variable is not None
            and node.variable.text in (*self.scope.joins, *self.scope.tables)
            and node.variable.text not in (*self.scope.taken, *self.scope.absent, *self.scope.subsets)
        )

    def of_table(self, table: ast.Name, column: ast.Name) -> Expression | None:
        """Return the column of the version that is valid at an event, or None after a report."""
        join = self.scope.joins.get(table.text)
        if join is None and table.text in self.scope.joins:
            return None
        if join is None:
            known = tuple(self.scope.joins)
            self.problem(
                "E0220",
                f"the rule joins no table `{table.text}`",
                table.span,
                "not in a JOIN",
                f"add JOIN {table.text} ON column"
                if table.text in self.scope.tables or not known
                else did_you_mean(table.text, known, "tables of the rule"),
            )
            return None
        field = join.table.field(column.text)
        if field is None:
            self.problem(
                "E0203",
                f"table `{table.text}` has no column `{column.text}`",
                column.span,
                f"not a column of `{table.text}`",
                did_you_mean(column.text, [field.name for field in join.table.fields], "columns"),
            )
            return None
        return Joined(table.text, join.keys, field.name, join.order, field.type)

    def joined_of_event(self, table: ast.Name, node: ast.Column) -> Expression | None:
        """Return ``table.x`` of the event under test."""
        found = self.of_table(table, node.name)
        if found is None or self._in_window:
            return found
        read = f"{table.text}.{node.name.text}"
        names = ", ".join(f"{variable}.{read}" for variable in self.scope.taken[:5])
        if self._inside is not None:
            self.problem(
                "E0210",
                f"`{read}` of which variable?",
                node.span,
                "an aggregate is over the events of one variable",
                f"write one of: {names}",
            )
            return None
        if self.scope.subject is None:
            self.problem(
                "E0209",
                f"`{read}` of which variable?",
                node.span,
                "a measure has no event of its own",
                f"write one of: {names}",
            )
            return None
        return found
