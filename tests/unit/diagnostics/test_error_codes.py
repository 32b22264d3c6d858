"""Every code that a user can meet is in the one table of codes, and on the page of errors."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cep.diagnostics.codes import CODES, FAMILIES
from tests.pages import loaded_tool

tool = loaded_tool("errors_page")
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
    assert len(CODES) == sum(map(len, FAMILIES.values()))


def test_there_is_no_second_table() -> None:
    for path in _FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
                assert not CODES.keys() & set(keys), f"{path}:{node.lineno}"


def test_the_page_has_the_families_codes_and_meanings_of_the_table() -> None:
    page = tool.PAGE.read_text()
    assert tool.errors_page(page) == page, "run .venv/bin/python tools/errors_page.py"


def test_the_page_explains_every_code() -> None:
    entries = re.findall(r"^### ([EW]0\d{3}): .+\n\n(?!#)\S", tool.PAGE.read_text(), re.MULTILINE)
    assert entries == list(CODES)


def test_the_writer_of_the_page_moves_texts_and_adds_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    families = {"New": {"E0102": "b", "E0103": "c"}, "Syntax": {"E0101": "a"}}
    monkeypatch.setattr(tool, "FAMILIES", families)
    page = (
        "# Errors\n\nTop.\n\n## Syntax\n\nAbout.\n\n### E0101: old\n\nOne: 1.\n\n"
        "### E0102: b\n\n```text\nTwo\n```\n"
    )
    written = (
        "# Errors\n\nTop.\n\n## New\n\n### E0102: b\n\n```text\nTwo\n```\n\n### E0103: c\n\n"
        "## Syntax\n\nAbout.\n\n### E0101: a\n\nOne: 1.\n"
    )
    assert tool.errors_page(page) == written
    with pytest.raises(ValueError, match="not in the table of codes: E0999"):
        tool.errors_page(page + "\n### E0999: gone\n\nText.\n")
    with pytest.raises(ValueError, match="`E0101` is explained twice"):
        tool.errors_page(page + "\n### E0101: again\n")
