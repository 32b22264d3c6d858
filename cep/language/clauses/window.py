"""The clauses of window rules: WINDOW, WHERE and HAVING, and which other clauses cannot stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cep.errors import Diagnostic, Span
from cep.language import ast
from cep.language.cursor import text_of
from cep.language.grammar import WINDOW_KINDS, Lexeme, Token
from cep.language.patterns import PatternReader

WINDOW_FORMS = {
    "WINDOW": "WINDOW TUMBLING 1 HOUR, HOPPING 10 MINUTES EVERY 1 MINUTE or SESSION GAP 30 MINUTES",
    "WHERE": "WHERE amount > 5",
    "HAVING": "HAVING COUNT(*) > 100",
}
"""First word of a clause -> how it is written."""

_OF_PATTERNS = {
    "PATTERN": "PATTERN",
    "WITHIN": "WITHIN",
    "SUBSET": "SUBSET",
    "DEFINE": "DEFINE",
    "MATCH": "MATCH",
    "AFTER": "AFTER MATCH",
    "ONE": "ROWS PER MATCH",
    "ON": "ON TIMEOUT",
    "MAX": "MAX RUNS",
}
"""First word of a clause about patterns -> the clause."""

_INSTEAD = {
    "DEFINE": "say which events count in WHERE: WHERE amount > 5",
    "WITHIN": "the window has its length in WINDOW: leave WITHIN out",
}
_LEAVE_OUT = "leave it out; or leave WINDOW out and write a PATTERN"

_EVERY_HELP = (
    "WINDOW TUMBLING 1 HOUR reports each hour, WINDOW HOPPING 1 DAY EVERY 1 HOUR each hour about the last day"
)


def is_window_rule(tokens: list[Token], at: int) -> bool:
    """Return whether the rule whose tokens begin at `at` has the clause WINDOW."""
    for place in range(at, len(tokens) - 1):
        token, after = tokens[place], tokens[place + 1]
        if token.word == "RULE" and after.kind in (Lexeme.WORD, Lexeme.QUOTED) and after.word != "AS":
            return False
        if token.word == "WINDOW" and (after.word in WINDOW_KINDS or after.kind is Lexeme.NUMBER):
            return True
    return False


class WindowClauses:
    """Reads these clauses, each behind its first word."""

    def __init__(self, parser: PatternReader) -> None:
        self.parser = parser
        self.windowing: ast.Windowing | None = None
        self.where: ast.Expression | None = None
        self.having: ast.Expression | None = None
        self.readers: dict[str, Callable[[], None]] = {
            "WINDOW": self.read_window,
            "WHERE": self.read_where,
            "HAVING": self.read_having,
        }

    def read_window(self) -> None:
        """Read the clause WINDOW."""
        parser = self.parser
        start = parser.now.start
        word = parser.accept_word("TUMBLING", "HOPPING", "SESSION")
        if word is None:
            every = parser.now.word == "EVERY"
            parser.unexpected(
                "TUMBLING, HOPPING or SESSION", _EVERY_HELP if every else WINDOW_FORMS["WINDOW"]
            )
        kind = ast.WindowKind(word.word)
        every_us = offset_us = most_us = zone = table = None
        if kind is ast.WindowKind.SESSION:
            parser.expect_word("GAP")
        length_us = parser.duration()
        if kind is ast.WindowKind.HOPPING:
            parser.expect_word("EVERY")
            every_us = parser.duration()
        if kind is ast.WindowKind.SESSION and parser.now.word == "MAX" and parser.ahead().word != "RUNS":
            parser.take()
            most_us = parser.duration()
        if kind is not ast.WindowKind.SESSION and parser.accept_word("OFFSET"):
            offset_us = parser.duration()
        if kind is ast.WindowKind.TUMBLING and parser.accept_word("ZONE"):
            zone = _zone(parser)
        if parser.now.word == "FOR" and parser.ahead().word == "EACH":
            parser.take()
            parser.take()
            table = parser.name("the name of a table")
        self.windowing = ast.Windowing(
            kind=kind,
            length_us=length_us,
            span=parser.span_from(start),
            every_us=every_us,
            offset_us=offset_us,
            most_us=most_us,
            zone=zone,
            table=table,
        )

    def read_where(self) -> None:
        """Read which events count."""
        self.where = self.parser.condition()

    def read_having(self) -> None:
        """Read of which windows there is a row."""
        self.having = self.parser.condition()

    def problems(self, seen: Mapping[str, Span]) -> Iterator[Diagnostic]:
        """Yield what is wrong with the clauses that a rule has, by their first words."""
        if "WINDOW" not in seen:
            return
        for word, clause in _OF_PATTERNS.items():
            if word in seen:
                yield self.parser.problem(
                    "E0243",
                    f"{clause} beside WINDOW",
                    seen[word],
                    "a clause about patterns; a window rule has none",
                    _INSTEAD.get(word, _LEAVE_OUT),
                )


def _zone(parser: PatternReader) -> ast.Text:
    if parser.now.kind is not Lexeme.TEXT:
        parser.unexpected("the name of a time zone as a text", "write: ZONE 'Europe/Berlin'")
    return text_of(parser.take())
