"""Front ends read the text of rules. A line here adds a language.

A front end returns the syntax trees of `cep.language.ast`, which are all that the compiler knows about a
language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from cep.diagnostics.diagnostic import Diagnostic, Source
from cep.language import ast
from cep.language.parser import parse

_PATTERN = re.compile(r"\bPATTERN\b", re.IGNORECASE)
_BEGIN = re.compile(r"\b(RULE|VIEW)(?=\s)", re.IGNORECASE)
_FROM = re.compile(r"\sFROM\s", re.IGNORECASE)


class FrontEnd(Protocol):
    """Reads rules of one language. It runs on the driver only, and never raises for what a text contains."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the files with rules in this language, with the dot."""

    def recognizes(self, text: str) -> bool:
        """Return whether a text contains rules in this language, well-formed or not, rather than a path."""

    def read(self, source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
        """Return the well-formed rules of a text, and every problem of the others with its place.

        Defaults of the language are in the trees.
        """


class _RuleText:
    """The language of docs/language/grammar.md."""

    suffixes = (".cep",)

    def recognizes(self, text: str) -> bool:
        """Return whether a text contains PATTERN, or RULE or VIEW and later FROM: no path has these words."""
        if _PATTERN.search(text):
            return True
        begin = _BEGIN.search(text)  # two searches: one for both would start again at each RULE of a text
        return begin is not None and _FROM.search(text, begin.end()) is not None

    def read(self, source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
        """Return the rules of a text and its problems."""
        rules, problems = _parsed(source)
        return rules, list(problems)


@lru_cache(maxsize=64)
def _parsed(source: Source) -> tuple[tuple[ast.Rule, ...], tuple[Diagnostic, ...]]:
    """Parse a text once, however many values of its parameters are tried: two fifths of a compilation."""
    rules, problems = parse(source)
    return rules, tuple(problems)


RULE_TEXT: FrontEnd = _RuleText()

FRONT_ENDS: Sequence[FrontEnd] = (RULE_TEXT,)
"""In the order in which they are asked."""

SUFFIXES = tuple(suffix for front_end in FRONT_ENDS for suffix in front_end.suffixes)
"""Endings of rule files."""


def rule_files(folder: Path) -> list[Path]:
    """Return the rule files in a folder and in all folders inside it, by path.

    A link to a file that is gone is one of them, so that reading it reports it; editors use hidden ones.
    """
    named = (file for file in folder.rglob("*") if file.name.endswith(SUFFIXES))
    return sorted(
        file for file in named if file.is_file() or (not file.exists() and not file.name.startswith("."))
    )


def is_rule_text(text: str) -> bool:
    """Return whether a text contains rules rather than a path."""
    return any(front_end.recognizes(text) for front_end in FRONT_ENDS)


def read_rules(source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
    """Return the rules and the problems of a text.

    The ending of the source's name determines the language. If it does not, the text does. The default is
    `RULE_TEXT`.
    """
    by_name = [front_end for front_end in FRONT_ENDS if source.name.endswith(front_end.suffixes)]
    by_text = (front_end for front_end in FRONT_ENDS if front_end.recognizes(source.text))
    return next(iter((*by_name, *by_text)), RULE_TEXT).read(source)
