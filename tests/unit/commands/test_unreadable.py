"""Folders without permission, and files that are refused from some place on: messages and exit codes."""

from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cep.commands.cli import main

STREAMS = """
streams:
  taps: {event_time: ts, schema: {k: string, ts: timestamp, kind: string}}
"""
RULE = """
RULE pair
FROM taps
PARTITION BY k
PATTERN a -> b
DEFINE a AS kind = 'a', b AS kind = 'b'
"""
EVENT = {"k": "x", "ts": "2024-05-01T00:00:00Z", "kind": "a"}


@pytest.fixture(autouse=True)
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("pair.cep").write_text(RULE)
    Path("taps.jsonl").write_text(json.dumps(EVENT) + "\n")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("check nd/x.cep", "error[E0613]: `nd/x.cep` cannot be read: Permission denied\n"),
        ("match nd/x.cep -i taps.jsonl", "error[E0613]: `nd/x.cep` cannot be read: Permission denied\n"),
        ("test nd/x.test.yaml", "error[E0613]: `nd/x.test.yaml` cannot be read: Permission denied\n"),
        ("new nd/x", "error[E0613]: `nd/streams.yaml` cannot be read: Permission denied\n"),
        ("profile nd/x.jsonl", "error[E0613]: `nd/streams.yaml` cannot be read: Permission denied\n"),
        ("init nd/y", "error[E0617]: `nd/y/streams.yaml` cannot be written: Permission denied\n"),
    ],
)
def test_a_folder_without_permission_is_named(
    monkeypatch: pytest.MonkeyPatch, command: str, says: str
) -> None:
    real = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        if path.parts and path.parts[0] == "nd" and len(path.parts) > 1:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 1
    assert says in result.output


@pytest.mark.parametrize(
    "command",
    [
        "match pair.cep -i two.jsonl.gz",
        "why pair.cep -i two.jsonl.gz",
        "why pair.cep -i two.jsonl.gz --summary",
        "plot pair.cep -i two.jsonl.gz",
        "plot pair.cep -i two.jsonl.gz -o line.svg",
        "profile two.jsonl.gz",
        "backtest pair.cep -i two.jsonl.gz",
    ],
)
def test_a_file_with_other_bytes_at_its_end_is_told_by_the_exit_code(command: str) -> None:
    part = gzip.compress(Path("taps.jsonl").read_bytes())
    Path("two.jsonl.gz").write_bytes(part + part + b"junk bytes")
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 3, result.output
    assert "refused" in result.output
    assert ("`cep match --dead-letter FILE` says why" in result.output) == command.startswith("backtest")
