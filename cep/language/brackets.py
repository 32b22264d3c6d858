"""Brackets among tokens: which of them are open at a place."""

from __future__ import annotations

from collections.abc import Sequence

from cep.language.grammar import Lexeme, Token

CLOSING = {"(": ")", "[": "]", "{": "}"}
"""Bracket -> the bracket that closes it."""


def innermost_open(tokens: Sequence[Token], first: int, end: int) -> int | None:
    """Return the place of the last bracket from `first` to before `end` that is not closed there."""
    opened: list[int] = []
    for place in range(first, end):
        token = tokens[place]
        if token.kind is not Lexeme.SIGN:
            continue
        if token.text in CLOSING:
            opened.append(place)
        elif opened and token.text == CLOSING[tokens[opened[-1]].text]:
            opened.pop()
    return opened[-1] if opened else None
