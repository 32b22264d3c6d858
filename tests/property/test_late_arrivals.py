"""Late events and late versions under several rules at once: what stands is what a batch reports.

These are the same cases each time; `python -m tests.property.corrections` draws new ones.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.property.corrections import main
from tests.property.late_arrivals import check
from tests.property.strategies.late import drawn

ABOUT = ("patterns", "patterns with tables", "window rules", "rules over rules")


def test_what_stands_is_what_a_batch_reports_value_by_value() -> None:
    tally: Counter[str] = Counter()
    for number in range(40):
        check(drawn(Random(number)), tally)
    # A case in which nothing is withdrawn tests nothing.
    assert tally["rows withdrawn"] > 100
    assert tally["rows withdrawn whose match stays"] > 75
    for name in ABOUT:
        assert tally[f"values changed of {name}"] > 2, name


def test_cases_without_anything_withdrawn_are_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.property.corrections.check", lambda case, tally=None: None)
    assert main(["--examples", "2", "--seed", "1", "--only", "late"]) == 1
    assert "test nothing" in capsys.readouterr().err
