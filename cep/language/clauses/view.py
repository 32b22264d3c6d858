"""The clauses of a view, read one by one: VIEW name KEY column FROM table JOIN table ON column SELECT ..."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NoReturn

from cep.errors import Span
from cep.language import ast
from cep.language.clauses.forms import FORMS, VIEW_CLAUSES_SHOWN
from cep.language.clauses.rule_reader import RuleReader
from cep.language.grammar import JOIN_WORDS, Token
from cep.language.patterns import PatternReader

_OF_RULES = frozenset(FORMS) - {"RULE", "VIEW"}
_INSTEAD = {
    "PARTITION": "say the key of a row in KEY",
    "MEASURES": "say what a row has in SELECT",
    "HAVING": "say which rows there are in WHERE",
}
"""First word of a clause of rules -> what to write in a view."""


class ViewReader(RuleReader):
    """Collects the clauses of one view; each except JOIN occurs at most once, in any order."""

    def __init__(self, parser: PatternReader) -> None:
        super().__init__(parser)
        self.where: ast.Expression | None = None
        shared = ("TITLE", "SEVERITY", "TAGS", "STATUS", "PARAM", "FROM", "JOIN")
        self.clauses = {word: read for word, read in self.clauses.items() if word in shared}
        self.clauses |= {
            "KEY": self._read_columns,
            **{word: partial(self._read_join_of, word) for word in JOIN_WORDS},
            "WHERE": self._read_where,
            "SELECT": self._read_select,
        }

    def _refuse(self, token: Token) -> NoReturn:
        self.parser.refuse_comment()
        self.parser.refuse_closing_bracket()
        if token.word in _OF_RULES:
            self.parser.fail(
                "E0330",
                f"{token.word} in a view",
                Span(token.start, token.end),
                "a clause of rules",
                f"{_INSTEAD.get(token.word, 'leave it out')}; clauses of a view: {VIEW_CLAUSES_SHOWN}",
            )
        expected = f"{self.may_follow} or a clause" if self.may_follow else "a clause"
        self.parser.unexpected(expected, f"clauses of a view: {VIEW_CLAUSES_SHOWN}")

    def _read_columns(self) -> None:
        names = self.parser.names("the name of a column")
        self.key = tuple(ast.KeyPart((ast.Column(None, name, name.span),), name.span) for name in names)
        self.may_follow = "`,`"

    def _read_join_of(self, word: str) -> None:
        if word != "INNER":
            self.parser.accept_word("OUTER")
        self.parser.expect_word("JOIN")
        self.joins.read(ast.JoinKind[word])
        self.may_follow = "AND"

    def _read_where(self) -> None:
        self.where = self.parser.condition()
        self.may_follow = "an operator"

    def _read_select(self) -> None:
        """Read ``expression [AS name], ...``; a single column keeps its name."""
        self.measures = tuple(self.parser.listed(self._column))
        self.may_follow = "AS, `,`"

    def _column(self) -> ast.Measure:
        parser = self.parser
        expression = parser.condition()
        if parser.accept_word("AS"):
            name = parser.name("the name of a column of the view")
        elif isinstance(expression, ast.Column):
            name = expression.name
        else:
            parser.unexpected("an operator or AS", "give what is no column a name: a.x + b.x AS total")
        return ast.Measure(expression, name)

    def finish(self, span: Span, sound: bool) -> ast.Rule | None:
        """Return the view, or None after reporting missing clauses."""
        if self.name is None:
            return None
        lacking = {
            "KEY": "which columns tell its rows apart",
            "FROM": "which table has its rows",
            "SELECT": "what a row has",
        }
        for clause, need in lacking.items():
            if clause not in self.seen:
                self._lacks("view", clause, need, FORMS[clause] if clause != "FROM" else "FROM table")
        if not sound or not self.key or not self.streams or not self.measures:
            return None
        rule = self._rule(self.name, ast.Step(ast.Name("", span), span), span)
        return replace(rule, where=self.where, is_view=True)
