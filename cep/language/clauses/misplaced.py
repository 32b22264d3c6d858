"""Clauses of window rules in a rule that has no WINDOW."""

from __future__ import annotations

from cep.errors import Span
from cep.language.cursor import Cursor
from cep.language.grammar import Token

_BEFORE_WHERE = ("FROM", "JOIN", "PARTITION")
"""Clauses that WHERE cannot be a part of."""


def refuse_without_window(parser: Cursor, token: Token, clause: str = "") -> None:
    """Refuse HAVING, and WHERE at the start of a line or after FROM, in a rule that has no WINDOW."""
    is_clause = parser.is_first_of_line() or clause in _BEFORE_WHERE
    if token.word != "HAVING" and not (token.word == "WHERE" and is_clause):
        return
    instead = "write the condition in DEFINE: DEFINE a AS amount > 5"
    if token.word == "HAVING":
        instead = "compare in the condition of the last variable: DEFINE b AS COUNT(a.*) > 5"
    if not parser.has_pattern:
        instead = "say which windows there are"
    parser.fail(
        "E0244",
        f"{token.word} without WINDOW",
        Span(token.start, token.end),
        "a clause of window rules",
        f"{instead}: WINDOW TUMBLING 1 HOUR"
        if not parser.has_pattern
        else f"{instead}; or write WINDOW TUMBLING 1 HOUR in place of PATTERN",
    )
