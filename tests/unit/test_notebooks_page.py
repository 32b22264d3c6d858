"""docs/guides/notebooks.md: its code does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pages import DOCS, blocks

PAGE = (DOCS / "guides/notebooks.md").read_text()


def test_the_code_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cash_out.cep").write_text(blocks(PAGE, "cep")[0])
    Path("streams.yaml").write_text(blocks(PAGE, "yaml")[0])
    cells: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):  # cells of one notebook
        exec(block, cells)
    assert capsys.readouterr().out == blocks(PAGE, "text")[0]
    tests = [run for name, run in cells.items() if name.startswith("test_")]
    assert len(tests) == 2
    for run in tests:
        run()
