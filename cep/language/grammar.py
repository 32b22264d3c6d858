"""The lexical grammar: text -> tokens, written with pyparsing.

It is total: whatever the text, it yields tokens, if need be of kind `BAD`, so that a stray character or an
open quote becomes one exact message of the parser and never a message of the library. The phrases above
the tokens (clauses, patterns, expressions) are read by `cep.language.parser`, which always knows what may
come next and can say so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import pyparsing as pp

# fmt: off
RESERVED = frozenset((
    "AFTER", "AND", "AS", "BETWEEN", "CASE", "DEFINE", "ELSE", "FALSE", "FROM", "IN", "IS", "LIKE", "MATCH",
    "MEASURES", "NOT", "NULL", "OR", "PARTITION", "PATTERN", "RLIKE", "RULE", "SUBSET", "SUPPRESS", "THEN",
    "TRUE", "UNTIL", "WHEN", "WITHIN",
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

HEAD_CLAUSES = frozenset(("TITLE", "SEVERITY", "TAGS"))
"""Words that begin a clause, but are names in expressions."""

PAIRED_CLAUSES = {"NO": "SKIP", "ALL": "ROWS", "ONE": "ROW", "ON": "TIMEOUT", "MAX": "RUNS", "ORDER": "BY"}
"""Words that begin a clause only together with the next one: alone they are names."""

CLAUSE_WORDS = RESERVED_CLAUSES | HEAD_CLAUSES | frozenset(PAIRED_CLAUSES)
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


def _element(kind: Lexeme, pattern: str) -> pp.ParserElement:
    def token(text: str, start: int, found: pp.ParseResults) -> Token:
        piece = str(found[0])
        return Token(kind, piece, start, start + len(piece), piece.upper() if kind is Lexeme.WORD else "")

    # The kinds of white space are named: pyparsing's default is a global others may change.
    return pp.Regex(pattern).set_whitespace_chars(" \t\r\n").set_name(kind).add_parse_action(token)


_TOKENS = pp.ZeroOrMore(
    pp.MatchFirst(
        [
            _element(Lexeme.WORD, r"[^\W\d]\w*"),
            _element(Lexeme.COMMENT, r"--[^\n]*"),
            _element(Lexeme.BAD, r"/\*(?:[\s\S]*?\*/)?"),
            _element(Lexeme.NUMBER, r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"),
            _element(Lexeme.SIGN, r"->>|->|<=|>=|<>|!=|==|\|\||[-+*/%=<>!|&(){}\[\],.?^$]"),
            _element(Lexeme.TEXT, r"'(?:[^'\r\n]|'')*'"),
            _element(Lexeme.QUOTED, r"`(?:[^`\r\n]|``)+`"),
            _element(Lexeme.BAD, r"'[^\r\n]*|`[^\r\n]*|\"[^\"\r\n]*\"?|[^ \t\r\n]"),
        ]
    )
).parse_with_tabs()


def tokens(text: str) -> list[Token]:
    """Return the tokens of `text` without comments, closed by one of kind END."""
    found: list[Token] = [
        token for token in _TOKENS.parse_string(text, parse_all=True) if token.kind is not Lexeme.COMMENT
    ]
    end = found[-1].end if found else 0
    return [*found, Token(Lexeme.END, "", end, end)]
