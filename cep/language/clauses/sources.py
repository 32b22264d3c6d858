"""The clause FROM: the streams of a rule, and the rules whose matches it reads as events."""

from __future__ import annotations

from cep.language import ast
from cep.language.cursor import Cursor


def read_sources(cursor: Cursor) -> tuple[tuple[ast.Name, ...], tuple[int, ...]]:
    """Read ``logins, MATCHES OF scan, ...`` after FROM.

    MATCHES is also a name: ``FROM matches`` reads a stream of this name.

    Returns
    -------
    names
        All names, in the order of the text.
    marked
        The places in `names` that MATCHES OF precedes.
    """
    names: list[ast.Name] = []
    marked: list[int] = []
    while True:
        if cursor.now.word == "MATCHES" and cursor.ahead().word == "OF":
            cursor.take_word()
            cursor.take_word()
            marked.append(len(names))
            names.append(cursor.name("the name of a rule"))
        else:
            names.append(cursor.name("the name of a stream"))
        if not cursor.accept_sign(","):
            return tuple(names), tuple(marked)
