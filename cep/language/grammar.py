"""The lexical grammar: text -> tokens, written with pyparsing.

Every text has tokens, if necessary of kind `BAD`. So a stray character or an open quote becomes one exact
message from the parser, never one from the library. The phrases above the tokens (clauses, patterns,
expressions) are read by `cep.language.parser`, which always knows what may come next and can say so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import pyparsing as pp

from cep.diagnostics.limits import MAX_TOKENS

# fmt: off
RESERVED = frozenset((
    "AFTER", "AND", "AS", "BETWEEN", "CASE", "DEFINE", "ELSE", "FALSE", "FROM", "IN", "IS", "LIKE", "MATCH",
    "MEASURES", "NOT", "NULL", "OR", "PARTITION", "PATTERN", "RLIKE", "RULE", "SUBSET", "SUPPRESS", "THEN",
    "TRUE", "UNTIL", "WHEN", "WITHIN", "WITHOUT",
))
# fmt: on
"""Words that are names only in backticks (or after a dot)."""

RESERVED_CLAUSES = frozenset(
    (
        "RULE",
        "FROM",
        "PARTITION",
        "PATTERN",
        "WITHIN",
        "DEFINE",
        "MEASURES",
        "MATCH",
        "AFTER",
        "SUBSET",
        "SUPPRESS",
    )
)
"""Reserved words that begin a clause."""

HEAD_CLAUSES = frozenset(("TITLE", "SEVERITY", "TAGS", "PARAM", "LET"))
"""Words that begin a clause, but are names in expressions."""

PAIRED_CLAUSES = {"NO": "SKIP", "ALL": "ROWS", "ONE": "ROW", "ON": "TIMEOUT", "MAX": "RUNS", "ORDER": "BY"}
"""Words that begin a clause only together with the next one: alone they are names."""

STATUSES = frozenset(("SHADOW", "LIVE"))
"""Words behind STATUS, which begins a clause only with one of them."""

WINDOW_KINDS = frozenset(("TUMBLING", "HOPPING", "SESSION", "EVERY"))
"""Words behind WINDOW, which begins a clause only with one of them."""

WINDOW_CLAUSES = frozenset(("WHERE", "HAVING"))
"""Words that begin a clause in a rule that has a WINDOW: in other rules they are names."""

JOIN_WORDS = frozenset(("INNER", "LEFT", "RIGHT", "FULL"))
"""Words that begin a clause in a view before JOIN, those but INNER before OUTER JOIN, too."""

VIEW_CLAUSES = frozenset(("KEY", "SELECT", "WHERE")) | JOIN_WORDS
"""Words that begin a clause in a view: in rules they are names."""

CLAUSE_WORDS = (
    RESERVED_CLAUSES
    | HEAD_CLAUSES
    | frozenset(PAIRED_CLAUSES)
    | WINDOW_CLAUSES
    | VIEW_CLAUSES
    | frozenset(("WINDOW", "VIEW"))
)
"""Words that may begin a clause; the printer quotes names that look like them."""


class Lexeme(StrEnum):
    """Kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted name"
    NUMBER = "number"
    TEXT = "text"
    SIGN = "sign"
    COMMENT = "comment"
    BAD = "bad"
    END = "end"


class Token(NamedTuple):
    """A piece of the text, as written, and its place; `word` is its upper case if it is a word."""

    kind: Lexeme
    text: str
    start: int
    end: int
    word: str = ""


_PATTERNS = (
    (Lexeme.WORD, r"[^\W\d]\w*"),
    (Lexeme.COMMENT, r"--[^\n]*"),
    (Lexeme.BAD, r"/\*(?:[\s\S]*?\*/)?"),
    (Lexeme.NUMBER, r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"),
    (Lexeme.SIGN, r"->>|->|<=|>=|<>|!=|==|\|\||[-+*/%=<>!|&(){}\[\],.?^$]"),
    (Lexeme.TEXT, r"'(?:[^'\r\n]|'')*'"),
    (Lexeme.QUOTED, r"`(?:[^`\r\n]|``)+`"),
    (Lexeme.BAD, r"'[^\r\n]*|`[^\r\n]*|\"[^\"\r\n]*\"?|[^ \t\r\n]"),
)
"""Kinds of tokens and how they are written; the first that fits is it."""

# One expression for all kinds: a parser element for each of them takes four times as long.
_TOKEN = pp.Regex("|".join(f"({pattern})" for _, pattern in _PATTERNS))


def tokens(text: str, limit: int = MAX_TOKENS, *, with_comments: bool = False) -> list[Token]:
    """Return the tokens of `text`, followed by one of kind END; comments only `with_comments`.

    If there are more than `limit` tokens, the END token has the text of the first one that was not read.
    """
    found: list[Token] = []
    end = 0
    # The element's own expression: `scan_string` builds results for each token, two fifths of a parse.
    # Everything but white space is in a token, so the search passes over nothing else.
    for n_read, match in enumerate(_TOKEN.re.finditer(text)):
        if n_read == limit:
            return [*found, Token(Lexeme.END, match.group(), match.start(), match.end())]
        kind = _PATTERNS[(match.lastindex or 0) - 1][0]  # a token is in one of the groups
        if with_comments or kind is not Lexeme.COMMENT:
            piece, start, end = match.group(), match.start(), match.end()
            found.append(Token(kind, piece, start, end, piece.upper() if kind is Lexeme.WORD else ""))
    return [*found, Token(Lexeme.END, "", end, end)]
