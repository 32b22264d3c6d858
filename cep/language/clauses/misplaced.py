"""Clauses of window rules in a rule that has no WINDOW."""

from __future__ import annotations

from cep.errors import Span
from cep.language.cursor import Cursor
from cep.language.grammar import Token


def refuse_without_window(parser: Cursor, token: Token) -> None:
    """Refuse HAVING, and WHERE at the beginning of a line, in a rule that has no WINDOW."""
    before = parser.tokens[max(parser.at - 1, 0)]
    begins_line = "\n" in parser.source.text[before.end : token.start]
    if token.word != "HAVING" and not (token.word == "WHERE" and begins_line):
        return
    instead = "write the condition in DEFINE: DEFINE a AS amount > 5"
    if token.word == "HAVING":
        instead = "compare in the condition of the last variable: DEFINE b AS COUNT(a.*) > 5"
    parser.fail(
        "E0244",
        f"{token.word} without WINDOW",
        Span(token.start, token.end),
        "a clause of window rules",
        f"{instead}; or write WINDOW TUMBLING 1 HOUR in place of PATTERN",
    )
