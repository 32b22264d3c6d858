"""docs/guides/profiles.md: its commands print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import DOCS, blocks, cep_prints, shown_commands

PAGE = (DOCS / "guides/profiles.md").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, kind in (("streams.yaml", "yaml"), ("rules.cep", "cep"), ("events.jsonl", "json")):
        (text,) = blocks(PAGE, kind)
        Path(name).write_text(text)
    return tmp_path


def test_the_commands_print_what_the_page_shows() -> None:
    shown = shown_commands(PAGE)
    assert len(shown) == 2
    for command, output in shown:
        assert cep_prints(command) == output
