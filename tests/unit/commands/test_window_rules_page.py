"""docs/guides/window_rules.md: its rules find what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.errors import Source
from cep.language.parser import parse
from cep.local.find_matches import find_matches
from cep.rulebook import check_rules
from cep.settings.schema_file import parse_streams
from tests.pages import DOCS, blocks, cep_prints, shown_commands

PAGE = (DOCS / "guides/window_rules.md").read_text()
SECOND_US = 1_000_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(blocks(PAGE, "yaml")[0])
    Path("visits.cep").write_text(blocks(PAGE, "cep")[1])
    Path("requests.jsonl").write_text(blocks(PAGE, "json")[0])
    return tmp_path


def test_the_command_prints_what_the_page_shows(folder: Path) -> None:
    shown = shown_commands(PAGE)[0]
    assert cep_prints(shown[0]) == shown[1]
    assert len(shown[1].splitlines()) == 2


def test_the_command_prints_the_silent_devices_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = next(block for block in blocks(PAGE, "cep") if "FOR EACH" in block)
    readings, devices = blocks(PAGE, "json")[1:3]
    files = {
        "streams.yaml": blocks(PAGE, "yaml")[1],
        "silent.cep": rule,
        "readings.jsonl": readings,
        "devices.jsonl": devices,
    }
    for name, text in files.items():
        Path(name).write_text(text)
    command, printed = shown_commands(PAGE)[1]
    assert cep_prints(command) == printed


def test_the_first_rule_of_the_page_is_a_rule(folder: Path) -> None:
    Path("scan.cep").write_text(blocks(PAGE, "cep")[0])
    assert check_rules(["scan.cep"]).problems == ()


def test_a_column_of_a_table_is_that_of_the_time_of_each_event() -> None:
    rule = blocks(PAGE, "cep")[4]
    of = "customers: {key: [customer_id], event_time: at, replicated: true, schema: {%s}}"
    text = (
        "streams:\n  transactions: {event_time: ts, schema: {ts: timestamp, customer_id: string, "
        "country: string, amount: double}}\ntables:\n  "
        + of
        % "customer_id: string, at: timestamp, segment: string"
    )
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert not problems
    rows = {
        "transactions": [
            {"ts": 3600 * SECOND_US, "customer_id": "ann", "country": "DE", "amount": 9e9},
            {"ts": 5400 * SECOND_US, "customer_id": "ann", "country": "DE", "amount": 100_001.0},
            {"ts": 5500 * SECOND_US, "customer_id": "bob", "country": "DE", "amount": 9e9},
            {"ts": 7200 * SECOND_US, "customer_id": "ann", "country": "DE", "amount": 100_000.0},
        ],
        "customers": [
            {"customer_id": "ann", "at": 5400 * SECOND_US, "segment": "private"},
            {"customer_id": "ann", "at": 0, "segment": "basic"},
        ],
    }
    (row,) = find_matches(rule, streams, rows)
    assert (row["country"], row["spent"], row["segments"]) == ("DE", 100_001.0, 2)
    assert row["match_end"].hour == 2


def test_explain_says_what_a_key_keeps(folder: Path) -> None:
    (shown,) = blocks(PAGE, "explain")
    assert shown in cep_prints("explain visits.cep")


def test_the_table_of_other_names_is_what_the_parser_answers() -> None:
    head = "RULE r\nFROM requests\nPARTITION BY ip\nWINDOW "
    rows = re.findall(r"^\| `(\w+ [^`]+)` \| `([A-Z]+\([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for here, flink in rows:
        assert parse(Source("r", f"{head}{here}"))[1] == []
        (problem,) = parse(Source("r", f"{head}{flink.replace('...', 'DESCRIPTOR(ts)')}"))[1]
        assert (problem.code, problem.help) == ("E0114", f"write WINDOW {here}")
    (problem,) = parse(Source("r", f"{head}CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)"))[1]
    assert "SUM(amount) OVER TUMBLING 1 DAY at each event" in problem.help
