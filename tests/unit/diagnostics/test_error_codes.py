"""Every code that a user can meet is in the one table of codes, and on the page that the table names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cep.diagnostics.codes import CODES, PAGES

_ROOT = Path(__file__).parents[3]
_FILES = [
    path
    for room in ("cep", "spark_runtime", "scenarios")
    for path in (_ROOT / room).rglob("*.py")
    if path != _ROOT / "cep/diagnostics/codes.py"
]


def test_the_source_uses_the_codes_of_the_table_and_no_other() -> None:
    used = {code for path in _FILES for code in re.findall(r'"([EW]0\d{3})"', path.read_text())}
    assert used == set(CODES)


def test_a_code_stands_in_one_family() -> None:
    assert len(CODES) == sum(map(len, PAGES.values()))


def test_there_is_no_second_table() -> None:
    for path in _FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
                assert not CODES.keys() & set(keys), f"{path}:{node.lineno}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_explains_the_codes_that_the_table_gives_it_in_their_order(page: str) -> None:
    explained = re.findall(r"(?:^### |^\| )([EW]0\d{3})\b", (_ROOT / page).read_text(), re.MULTILINE)
    assert explained == list(PAGES[page])
