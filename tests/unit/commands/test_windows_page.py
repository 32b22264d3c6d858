"""docs/guides/windows.md: its rules find what the page shows, and `cep explain` says what it says there."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from cep.language.ast import OverKind
from cep.program.window_functions import WINDOW_FUNCTIONS
from cep.rulebook import check_rules
from tests.pages import DOCS, blocks, cep_prints, shown_commands

PAGE = (DOCS / "guides/windows.md").read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (streams,) = blocks(PAGE, "yaml")
    Path("streams.yaml").write_text(streams)
    Path("windows.cep").write_text(blocks(PAGE, "cep")[0])
    Path("payments.jsonl").write_text(blocks(PAGE, "json")[0])
    return tmp_path


def test_the_command_prints_what_the_page_shows(folder: Path) -> None:
    (shown,) = shown_commands(PAGE)
    assert cep_prints(shown[0]) == shown[1]
    assert len(shown[1].splitlines()) == 4


def test_the_other_rules_of_the_page_are_rules(folder: Path) -> None:
    for number, text in enumerate(blocks(PAGE, "cep")[1:]):
        Path(f"{number}.cep").write_text(text)
        assert check_rules([f"{number}.cep"]).problems == ()


def test_python_computes_the_same_values(folder: Path) -> None:
    events = [json.loads(line) for line in Path("payments.jsonl").read_text().splitlines()]
    for event in events:
        event["ts"] = datetime.fromisoformat(event["ts"])
    found = {}
    for number, event in enumerate(events):
        minute = [e for e in events[: number + 1] if (event["ts"] - e["ts"]).total_seconds() <= 60]
        if len(minute) >= 4 and len({e["merchant"] for e in minute}) >= 3:
            found["burst", event["tx"]] = sum(e["amount"] for e in minute)
        good = [e["amount"] for e in events[max(number - 5, 0) : number] if e["approved"]]
        if good and event["amount"] > 10 * sum(good) / len(good):
            found["unusual", event["tx"]] = sum(good) / len(good)
    assert found == {("unusual", 3): 16.0, ("unusual", 6): 9.25, ("burst", 8): 240.0}
    printed = [
        json.loads(line) for line in cep_prints("match windows.cep -i payments.jsonl --quiet").splitlines()
    ]
    assert [row["usual"] for row in printed if row["rule"] == "unusual"] == [16.0, 9.25]
    assert [row["spent"] for row in printed if row["rule"] == "burst"] == [240.0]


def test_explain_says_what_the_page_shows(folder: Path) -> None:
    of_steps, of_burst = blocks(PAGE, "explain")
    assert of_burst in cep_prints("explain windows.cep")
    Path("steps.cep").write_text(blocks(PAGE, "cep")[1])
    assert of_steps in cep_prints("explain steps.cep")


def test_explain_says_of_each_function_what_a_key_keeps_of_its_steps(folder: Path) -> None:
    kept = {
        "COUNT(*)": "the counts of at most 25 panes of 1 HOUR, 16 bytes each",
        "STDDEV(amount)": "the sums of at most 25 panes of 1 HOUR, 64 bytes each for values of similar size",
        "MAX(amount)": "the values of at most 25 panes of 1 HOUR that can still be the MAX, 16 bytes each",
        "SEEN(merchant)": "each value's last pane, of at most 25 panes of 1 HOUR, 16 bytes each",
        "FIRST_VALUE(amount)": "the first values of at most 25 panes of 1 HOUR, 16 bytes each",
        "LAST_VALUE(amount)": "the last value, 16 bytes",
        "LAG(amount, 3)": "the last 3 values, 16 bytes each",
    }
    values = ", ".join(f"{call} OVER LAST 1 DAY BY 1 HOUR AS m{n}" for n, call in enumerate(kept))
    Path("r.cep").write_text(f"RULE r FROM payments PARTITION BY card PATTERN a MEASURES {values}")
    printed = cep_prints("explain r.cep")
    for call, what in kept.items():
        assert f"  {call} OVER LAST 1 DAY BY 1 HOUR: a key keeps {what}\n" in printed


def test_the_page_has_every_function_and_every_kind_of_frame() -> None:
    for name in WINDOW_FUNCTIONS:
        assert re.search(rf"`{name}\(", PAGE), name
    for kind in OverKind:
        assert re.search(rf"OVER {kind}\b", PAGE), kind
