"""Every recorded answer of Flink agrees with ours, or docs/flink.md says why not."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cep.errors import Source
from cep.language.diagnostics import render
from cep.language.grammar import CLAUSE_WORDS
from cep.language.parser import parse
from tests.conformance.case_files import FOLDER, read_cases
from tests.conformance.compare import AGREES, NOT_COMPARED, Verdict, judge
from tests.conformance.differences import DIFFERENCES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "flink.md"
FILES = ("flink_suite.jsonl.gz", "flink_random.jsonl.gz")


@cache
def verdicts(name: str) -> tuple[Verdict, ...]:
    return tuple(judge(case) for case in read_cases(FOLDER / name))


@pytest.mark.parametrize("name", FILES)
def test_every_case_agrees_or_differs_on_purpose(name: str) -> None:
    assert [verdict.name for verdict in verdicts(name) if not verdict.is_explained] == []


def test_nearly_all_cases_agree() -> None:
    found = [verdict for name in FILES for verdict in verdicts(name) if verdict.outcome != NOT_COMPARED]
    assert sum(verdict.outcome == AGREES for verdict in found) >= 0.95 * len(found)


@pytest.mark.parametrize("name", [difference.name for difference in DIFFERENCES])
def test_each_difference_is_there_and_described(name: str) -> None:
    found = [verdict for file in FILES for verdict in verdicts(file) if name in verdict.documented]
    assert found
    assert f"### {name[0].upper()}{name[1:]}\n" in PAGE.read_text(encoding="utf-8")


def rules_of_the_page() -> list[str]:
    """Return what the tables of the page say in their columns of rules."""
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "/or/")
    rows = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith("|")]
    return [one.replace("/or/", "|") for row in rows for cell in row for one in re.findall("`([^`]+)`", cell)]


@pytest.mark.parametrize("text", rules_of_the_page())
def test_the_tables_hold_patterns_and_clauses(text: str) -> None:
    is_clause = text.split()[0] in CLAUSE_WORDS
    pattern = "PATTERN a -> b" if is_clause else f"PATTERN {text}"
    parts = ["RULE r FROM s", "PARTITION BY k" * ("PARTITION" not in text), pattern, text * is_clause]
    rules, problems = parse(Source("flink.md", "\n".join(parts)))
    assert not problems, render(problems)
    assert rules


def test_no_case_stops_the_command() -> None:
    lines = "\n".join(
        (
            '{"name": "a", "pattern": {"stages": []}, "events": []}',
            '{"name": "b"}',
            '{"name": "c", "pattern": {"stages": [{"name": "s", "where": ["odd"]}]}, "events": []}',
            '{"name": "d", "pattern": {"stages": [{"name": "s"}]}, "events": [{"id": "x", "ts": 5}]}',
        )
    )
    command = [sys.executable, "-m", "tests.conformance"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=True)
    assert len(done.stdout.splitlines()) == 4
    assert '"matches": [{"s": ["x"]}], "match_ts": [5]' in done.stdout.splitlines()[3]
