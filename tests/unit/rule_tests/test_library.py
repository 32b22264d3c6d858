"""The tests beside the rules of the library pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.diagnostics.diagnostic import render
from cep.rule_tests.checking import check_case
from cep.rule_tests.coverage import coverage
from cep.rule_tests.reading import read_tests

RULES = Path(__file__).parents[3] / "rules"
FILES = sorted(RULES.rglob("*.test.yaml"))


def test_the_rules_of_the_library_lack_nothing_to_be_trusted_or_say_why() -> None:
    linted = CliRunner().invoke(main, ["lint", str(RULES)])
    assert linted.output.splitlines()[-1:] == [
        f"linted {len([*RULES.rglob('*.cep')])} files, 33 rules: no findings, 8 allowed"
    ]
    assert linted.exit_code == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_cases_of_a_rule_pass(file: Path) -> None:
    tests = read_tests(file)
    assert render([problem for case in tests.cases for problem in check_case(tests, case)]) == ""
    assert any(case.expected for case in tests.cases), "a match"
    assert any(not case.expected for case in tests.cases), "a near miss"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_cases_of_a_rule_take_all_events_that_its_pattern_can_take(file: Path) -> None:
    missing = coverage(read_tests(file)).missing
    assert [text for text in missing if "no case takes" in text] == []
