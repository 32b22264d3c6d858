"""Every code of rules and streams files has an example with a reviewed text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.diagnostics.codes import OF_RULES
from tests.golden.errors_cases import golden_path, names, said_about

_ROOT = Path(__file__).parents[2]
_OF_RULES = ("language", "compiler", "settings", "diagnostics")
_SHARED = ("declared.py", "settings.py", "parameters.py", "given_streams.py")
"""Pipeline files, the command and programs use these, too, which have codes of their own."""


@pytest.mark.parametrize("name", names())
def test_the_text_about_an_example_is_the_reviewed_text(name: str) -> None:
    assert said_about(name) == golden_path(name).read_text()


@pytest.mark.parametrize("name", names())
def test_an_example_shows_the_code_it_is_named_after(name: str) -> None:
    code = re.split(r"[_.]", name)[0]
    assert f"[{code}]" in golden_path(name).read_text()


@pytest.mark.parametrize("code", OF_RULES)
def test_every_code_has_an_example(code: str) -> None:
    assert any(re.split(r"[_.]", name)[0] == code for name in names())


def test_the_table_has_exactly_the_codes_that_the_front_end_uses() -> None:
    paths = [_ROOT / "cep" / part for part in _OF_RULES]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    assert len(files) > 10
    used = {
        code
        for file in files
        if file.name != "codes.py"
        for code in re.findall(r'"([EW]0\d{3})"', file.read_text())
        if file.name not in _SHARED or code in OF_RULES
    }
    assert used == set(OF_RULES)
