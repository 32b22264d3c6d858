"""Random cases say how far they came, and which one failed."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.property import cases
from tests.property.cases import try_cases
from tests.property.strategies.late import Late


@pytest.fixture(autouse=True)
def _signals_are_handled_as_before() -> Iterator[None]:
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def tried(
    monkeypatch: pytest.MonkeyPatch, options: str, ending: int | Exception | None
) -> tuple[int, list[str]]:
    """Try cases, the fourth of which gets a signal or fails; return the exit code, and the cases."""
    seen: list[str] = []

    def check(case: Late, folder: Path, random: Random, tally: Counter[str]) -> None:
        seen.append(repr(case))
        tally["seen"] += 1
        if len(seen) == 4 and isinstance(ending, Exception):
            raise ending
        if len(seen) == 4 and isinstance(ending, int):
            os.kill(os.getpid(), ending)

    monkeypatch.setattr(sys, "argv", ["cases", *options.split()])
    return try_cases("tests.property.none", check), seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_how_many_cases_were_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    code, seen = tried(monkeypatch, "--examples 10", number)
    assert (code, len(seen)) == (130, 4)
    assert capsys.readouterr().out == "interrupted in case 3; 3 cases before: {'seen': 4}\n"


def test_progress_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cases, "_TOLD_SECONDS", 0.0)
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    assert tried(monkeypatch, "--examples 2", None)[0] == 0
    assert capsys.readouterr().out.splitlines() == ["1 cases, 0 s", "2 cases, 0 s", "2 cases: {'seen': 2}"]


def test_a_case_that_failed_is_drawn_again_by_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, seen = tried(monkeypatch, "--examples 10 --seed 7", AssertionError("wrong"))
    assert code == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "case 3 of seed 7, after 4 cases: AssertionError: wrong",
        "again: --seed 7 --first 3 --examples 1",
    ]
    _, again = tried(monkeypatch, said[1].removeprefix("again: "), None)
    assert again == [seen[3]]
