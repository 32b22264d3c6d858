"""Clauses of SQL and of other pattern languages in a rule, and what to write instead."""

from __future__ import annotations

from typing import NamedTuple

from cep.errors import Span
from cep.language.cursor import Cursor
from cep.language.grammar import JOIN_WORDS, Lexeme


class Instead(NamedTuple):
    """What to write instead of a clause, and the clause of a rule that was intended, if any."""

    help: str
    meant: str = ""


class ForeignClause(NamedTuple):
    """A clause of another language: what is wrong, its place, what to write."""

    title: str
    span: Span
    instead: Instead


_NO_FRAME = "leave it out: its clauses are clauses of the rule, without parentheses around them"
_SINKS = "leave it out: a pipeline file says where matches go; another rule reads them by FROM MATCHES OF"

FOREIGN_CLAUSES = {
    "SELECT": Instead("say what a match has in MEASURES: MEASURES b.amount AS loss", "MEASURES"),
    "RETURN": Instead("say what a match has in MEASURES: MEASURES b.amount AS loss", "MEASURES"),
    "KEY": Instead("write PARTITION BY column", "PARTITION"),
    "KEYBY": Instead("write PARTITION BY column", "PARTITION"),
    "LIMIT": Instead("leave it out: every match is reported; cep match --limit 10 shows ten"),
    "FETCH": Instead("leave it out: every match is reported; cep match --limit 10 shows ten"),
    "QUALIFY": Instead("compare in the condition: DEFINE b AS COUNT(*) OVER LAST 1 HOUR > 5"),
    "UNION": Instead("write both patterns, PATTERN a -> b | c -> d, or two rules"),
    "INSERT": Instead(_SINKS),
    "CREATE": Instead("leave it out: streams and tables are declared in streams.yaml"),
    "EMIT": Instead("leave it out: a row comes when its window has ended"),
    "OUTPUT": Instead("leave it out; SUPPRESS FOR 1 HOUR leaves out repeated matches"),
    "EVENT": Instead("write PATTERN a -> b", "PATTERN"),
    "SEQUENCE": Instead("write PARTITION BY column PATTERN a -> b", "PATTERN"),
    "MATCH_RECOGNIZE": Instead(_NO_FRAME),
}
"""First word of a clause of another language -> what to write."""

_JOINS = JOIN_WORDS | {"CROSS", "NATURAL"}
_JOIN_HELP = (
    "write JOIN alone: each event stays, and the columns of the table are NULL if it has no row for it; "
    "table.column IS NOT NULL in a condition leaves the others out"
)

_OF_WINDOWS = frozenset(("WINDOW_START", "WINDOW_END", "WINDOW_TIME"))
"""Columns that Flink SQL has of a window."""

_BEHIND_STREAM = frozenset(("PARTITION", "JOIN", "WHERE", "PATTERN", "WINDOW")) | JOIN_WORDS
"""First words of clauses that often stand on the line of FROM."""


def foreign_clause(cursor: Cursor, behind: str) -> ForeignClause | None:
    """Return the clause of another language at the cursor, if any; `behind` is the clause before it."""
    token, after = cursor.now, cursor.ahead()
    if token.word == "GROUP" and after.word == "BY":
        return ForeignClause("a rule has no `GROUP BY`", Span(token.start, after.end), _key_instead(cursor))
    if token.word in _JOINS and (after.word == "JOIN" or cursor.ahead(2).word == "JOIN"):
        last = after if after.word == "JOIN" else cursor.ahead(2)
        span = Span(token.start, last.end)
        shown = cursor.source.text[span.start : span.end].upper()
        return ForeignClause(f"a rule has no `{' '.join(shown.split())}`", span, Instead(_JOIN_HELP))
    if behind == "FROM" and (alias := _alias(cursor)) is not None:
        return alias
    found = FOREIGN_CLAUSES.get(token.word)
    if found is not None and found.meant == "MEASURES" and cursor.is_window_rule:
        found = Instead("say what a row has in MEASURES: MEASURES COUNT(*) AS n", "MEASURES")
    if found is None or (token.word == "KEY" and after.word != "BY"):
        return None
    return ForeignClause(f"a rule has no `{token.text}`", Span(token.start, token.end), found)


def _key_instead(cursor: Cursor) -> Instead:
    """Return what to write instead of ``GROUP BY card, window_start``: the columns that make up the key."""
    names: list[str] = []
    at = 2
    while (token := cursor.ahead(at)).kind in (Lexeme.WORD, Lexeme.QUOTED):
        sign = cursor.ahead(at + 1).text
        if sign in ("(", "."):
            break
        if token.word not in _OF_WINDOWS:
            names.append(token.text)
        if sign != ",":
            break
        at += 2
    windows = "" if cursor.is_window_rule or cursor.has_pattern else ", and the windows in WINDOW"
    return Instead(f"write PARTITION BY {', '.join(names) or 'column'}{windows}", "PARTITION")


def _alias(cursor: Cursor) -> ForeignClause | None:
    """Return ``AS t`` or ``t`` after the name of a stream, if it exists."""
    first = cursor.now
    by = 1 if first.word == "AS" else 0
    alias, behind = cursor.ahead(by), cursor.ahead(by + 1)
    if alias.kind not in (Lexeme.WORD, Lexeme.QUOTED) or cursor.is_first_of_line():
        return None
    if by == 0:
        is_last = behind.kind is Lexeme.END or "\n" in cursor.source.text[alias.end : behind.start]
        if not cursor.is_name() or not (is_last or behind.text == "," or behind.word in _BEHIND_STREAM):
            return None
    stream = cursor.tokens[cursor.at - 1].text
    help_text = (
        f"leave `{cursor.source.text[first.start : alias.end]}` out: a column is written alone, amount; "
        f"in a rule over several streams with the name of its stream, {stream}.amount"
    )
    return ForeignClause("a stream in FROM has no alias", Span(first.start, alias.end), Instead(help_text))
