from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.figures import Figure, Target, median_seconds, report


def test_a_ratio_says_how_many_times_slower_than_the_no_op() -> None:
    assert Figure("restore", "R1", 3.0, "s", 1.5).ratio == 2
    assert Figure("kernel", "R1", 10.0, "M events/s", 40.0).ratio == 4
    assert Figure("stored", "R1", 20.0, "bytes/run").ratio is None


def test_a_target_is_met_on_its_side() -> None:
    assert Figure("kernel", "R1", 100.0, "M events/s", target=Target(100)).is_met is True
    assert Figure("kernel", "R1", 99.0, "M events/s", target=Target(100)).is_met is False
    assert Figure("stored", "R1", 64.0, "bytes/run", target=Target(64, at_most=True)).is_met is True
    assert Figure("stored", "R1", 65.0, "bytes/run", target=Target(64, at_most=True)).is_met is False
    assert Figure("stored", "R1", 65.0, "bytes/run").is_met is None


def test_the_first_run_is_not_counted() -> None:
    calls = []
    median_seconds(lambda: calls.append(1), 3)
    assert len(calls) == 4


def test_what_is_reported_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("kernel", "R1, 100 keys", 12.345, "M events/s", 1234.5, Target(20))]
    report("The engine alone", figures, {"events": 5}, tmp_path / "deep" / "engine.json")
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "R1, 100 keys" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "R1, 100 keys", "kernel", "12.3 M events/s", "1,234", "100", ">= 20", "missed",
    ]  # fmt: skip
    written = json.loads((tmp_path / "deep" / "engine.json").read_text())
    assert written["options"] == {"events": 5}
    assert written["figures"][0]["value"] == 12.345
    assert written["figures"][0]["met"] is False
