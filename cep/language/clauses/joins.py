"""The clause JOIN: a table, and the columns of an event that are its key."""

from __future__ import annotations

from cep.language import ast
from cep.language.cursor import Cursor

JOIN_FORM = "JOIN customers ON customer_id, or JOIN countries ON country = countries.iso"

_HELP = f"write {JOIN_FORM}"


class JoinClauses:
    """Reads these clauses, each after its first word, into `joins`. A rule may have several."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.joins: list[ast.Join] = []

    def read(self, kind: ast.JoinKind = ast.JoinKind.INNER) -> None:
        """Read ``table ON column [= column] [AND ...]``."""
        cursor = self.cursor
        start = cursor.tokens[cursor.at - 1].start
        table = cursor.name("the name of a table")
        cursor.accept_word("ON") or cursor.unexpected("ON", _HELP)
        pairs = [self._pair()]
        while cursor.accept_word("AND"):
            pairs.append(self._pair())
        self.joins.append(ast.Join(table, tuple(pairs), cursor.span_from(start), kind))

    def _pair(self) -> ast.JoinPair:
        start = self.cursor.now.start
        left = self._column()
        right = self._column() if self.cursor.accept_sign("=", "==") else None
        return ast.JoinPair(left, right, self.cursor.span_from(start))

    def _column(self) -> ast.Column:
        cursor = self.cursor
        start = cursor.now.start
        name = cursor.name("the name of a column")
        if not cursor.accept_sign("."):
            return ast.Column(None, name, name.span)
        column = cursor.name_after_dot(f"write a column after the dot: {name.text}.id")
        return ast.Column(name, column, cursor.span_from(start))
