"""Rules in the documentation are rules: each fenced block of one is parsed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.compiler.aggregates import AGGREGATES
from cep.compiler.typing.functions import FUNCTION_GROUPS, FUNCTION_NAMES
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.language.grammar import CLAUSE_WORDS, RESERVED
from cep.language.parser import parse

_ROOT = Path(__file__).parents[3]
_HEAD = "RULE r FROM s PARTITION BY k "


def _blocks(kind: str) -> list[tuple[str, str]]:
    """Return the blocks of one kind with the file and line they are at."""
    found = []
    for path in sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")]):
        text = path.read_text()
        for match in re.finditer(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 2
            found.append((f"{path.relative_to(_ROOT)}:{line}", match[1]))
    return found


def _lines(kind: str) -> list[tuple[str, str]]:
    return [
        (f"{place}+{n}", line) for place, block in _blocks(kind) for n, line in enumerate(block.splitlines())
    ]


def _check(place: str, text: str) -> None:
    rules, problems = parse(Source(place, text))
    assert not problems, render(problems)
    assert rules


@pytest.mark.parametrize(("place", "text"), _blocks("cep"))
def test_a_rule_in_the_documentation_is_well_formed(place: str, text: str) -> None:
    _check(place, text)


@pytest.mark.parametrize(("place", "pattern"), _lines("pattern"))
def test_a_pattern_in_the_documentation_is_well_formed(place: str, pattern: str) -> None:
    _check(place, f"{_HEAD} PATTERN {pattern}")


@pytest.mark.parametrize(("place", "expression"), _lines("expression"))
def test_an_expression_in_the_documentation_is_well_formed(place: str, expression: str) -> None:
    _check(place, f"{_HEAD} PATTERN a DEFINE a AS {expression}")


def test_the_grammar_has_examples_of_each_kind() -> None:
    assert len(_blocks("cep")) >= 2
    assert len(_lines("pattern")) >= 6
    assert len(_lines("expression")) >= 10


def test_the_grammar_names_every_reserved_word() -> None:
    text = (_ROOT / "docs/language/grammar.md").read_text()
    listed = re.search(r"only in backticks, or after a dot: `([^`]+)`", text)
    assert listed is not None
    assert set(listed[1].split()) == RESERVED
    assert {word for word in CLAUSE_WORDS if word not in text} == set()


def test_the_grammar_has_a_table_of_all_functions_that_can_be_called() -> None:
    text = (_ROOT / "docs/language/grammar.md").read_text()
    tables = text[text.index("| Function |") : text.index("### Regular expressions")]
    named = set(re.findall(r"\b([A-Z][A-Z0-9_]+)\b(?=\(|`)", tables))
    assert named - {"CAST", "TRY_CAST", "BIGINT", "LONG", "STRING"} == set(FUNCTION_NAMES)


def test_the_help_for_an_unknown_function_has_every_function_in_one_group() -> None:
    shown = [name for names in FUNCTION_GROUPS.values() for name in names]
    assert sorted(shown) == sorted((*FUNCTION_NAMES, *AGGREGATES))
