"""Texts from data, for terminals and for XML: neither may take a character in them for a command."""

from __future__ import annotations

import re

MAX_SHOWN = 60
"""Characters of a value that a line quotes."""

_NOT_IN_XML = re.compile("[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff\\ufffe\\uffff]")


def for_terminal(text: str) -> str:
    """Return a text with unprintable characters escaped, except line feeds and tabs."""
    return text if text.isprintable() else "".join(map(_printable, text))


def for_cell(text: str) -> str:
    """Return a text of data for one line of a terminal, with all unprintable characters escaped."""
    return for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")


def in_short(text: str) -> str:
    """Return a value of data for a line of a terminal, shortened to `MAX_SHOWN` characters."""
    return for_cell(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "...")


def _printable(sign: str) -> str:
    return sign if sign.isprintable() or sign in "\n\t" else sign.encode("unicode_escape").decode()


def for_xml(text: str) -> str:
    """Return a text with a replacement for each character that XML cannot contain."""
    return _NOT_IN_XML.sub("\ufffd", text)
