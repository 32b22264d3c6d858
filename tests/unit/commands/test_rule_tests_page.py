"""docs/guides/rule_tests.md: its commands print what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import cep.commands.cli
from tests.pages import DOCS, blocks, shown_commands

PAGE = (DOCS / "guides/rule_tests.md").read_text()
YAML = blocks(PAGE, "yaml")
WRONG = """rules: card_testing.cep
defaults: {card: c1}
cases:
  another loss:
    events:
      - {at: 0 seconds, amount: 1}
      - {at: 1 minute, amount: 4.5}
      - {at: 4 minutes, amount: 949}
"""
EVENTS = """{"tx":1,"card":"c7","ts":"2024-05-01T10:00:00Z","amount":1.5}
{"tx":2,"card":"c8","ts":"2024-05-01T10:00:10Z","amount":2}
{"tx":3,"card":"c7","ts":"2024-05-01T10:00:40Z","amount":80}
{"tx":4,"card":"c7","ts":"2024-05-01T10:01:00Z","amount":0.5}
{"tx":5,"card":"c7","ts":"2024-05-01T10:03:00Z","amount":700}
"""


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(YAML[0])
    Path("card_testing.cep").write_text(blocks(PAGE, "cep")[0])
    Path("card_testing.test.yaml").write_text(YAML[1])
    Path("wrong.test.yaml").write_text(f"{WRONG.rstrip()}\n    expect:\n      - {{loss: 950}}\n")
    Path("incident.jsonl").write_text(EVENTS)
    return tmp_path


def test_the_commands_print_what_the_page_shows(folder: Path) -> None:
    shown = shown_commands(PAGE)
    assert len(shown) == 5
    for command, output in shown:
        result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
        assert result.exit_code == int("wrong" in command), result.output
        assert result.stdout == output
    assert YAML[-1] in Path("card_testing.test.yaml").read_text()
    result = CliRunner().invoke(cep.commands.cli.main, ["test", "."])
    assert "1 failed" in result.stdout


def test_a_block_and_a_file_are_read(folder: Path) -> None:
    (block,) = [text for text in YAML if "a block:" in text]
    Path("other.test.yaml").write_text("rules: card_testing.cep\ndefaults: {card: c1}\n" + block)
    result = CliRunner().invoke(cep.commands.cli.main, ["test", "other.test.yaml"])
    assert re.search(r"passed  a block\n  FAILED  a file\n", result.stdout), result.stdout
    assert '"probes": 2, "loss": 700.0' in result.stdout
