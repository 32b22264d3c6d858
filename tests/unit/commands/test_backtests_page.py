"""docs/guides/backtests.md: its commands print what the page shows, over data of two scenarios."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from cep.backtest.scorecard import Thresholds
from scenarios.fraud.generate import Options as FraudOptions
from scenarios.fraud.generate import generate as generate_fraud
from scenarios.trading.generate import Options as TradingOptions
from scenarios.trading.generate import generate as generate_trading
from tests.pages import DOCS, blocks, cep_prints, shown_commands

PAGE = (DOCS / "guides/backtests.md").read_text()
RULES = DOCS.parent / "rules"
SHOWN = shown_commands(PAGE.replace(" \\\n    ", " "))
CHANGED = 1_767_600_000
"""When the rules of the page were changed: 2026-01-05."""


@pytest.fixture(scope="module")
def folder(compiled_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the page describes."""
    place = tmp_path_factory.mktemp("history")
    generate_fraud(FraudOptions(events=20_000), place / "cards")
    generate_trading(TradingOptions(events=40_000), place / "orders")
    rule = blocks(PAGE, "cep")[0]
    (place / "card_testing.cep").write_text(rule)
    ((old, new),) = re.findall(r"^sed 's/(.*)/(.*)/' card_testing.cep > old.cep$", PAGE, re.MULTILINE)
    assert old in rule
    (place / "old.cep").write_text(rule.replace(old, new))
    shutil.copy(RULES / "fraud/streams.yaml", place)
    shutil.copytree(RULES / "trading", place / "trading")
    for file in (place / "trading").iterdir():
        os.utime(file, (CHANGED, CHANGED))
    (place / "verdicts.csv").write_text(blocks(PAGE, "csv")[0])
    return place


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_a_command_prints_what_the_page_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(folder)
    command, output = SHOWN[number]
    assert cep_prints(command) == output


def test_the_curve_of_the_page_is_that_of_its_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (command,) = (command for command, _ in SHOWN if "--report" in command)
    cep_prints(command)
    drawn = re.findall(r"<svg.*?</svg>\n", (folder / "report.html").read_text(), re.DOTALL)
    (curve,) = (svg for svg in drawn if "card_testing, by small" in svg)
    assert curve == (DOCS / "images/card_testing_small.svg").read_text(), "copy it to docs/images"


def test_every_command_is_run() -> None:
    assert len(SHOWN) == PAGE.count("$ cep ") == 9


def test_the_page_names_the_data_and_the_thresholds_as_they_are() -> None:
    assert "scenarios.fraud.generate --events 20000 --out cards" in PAGE
    assert "scenarios.trading.generate --events 40000 --out orders" in PAGE
    own = Thresholds()
    for words in (
        f"no alert in {own.silent_days:.0f} days",
        f"less than {own.confirmed:.0%} of at least {own.verdicts} verdicts",
        f"less than {own.confirmed / 10:.0%} of at least {own.verdicts} verdicts",
        f"more than {own.a_day:.0f} alerts a day",
        f"more than {own.noise:.0%} of its alerts",
    ):
        assert words in PAGE
