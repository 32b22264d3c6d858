"""Each answer agrees with the recorded answer of Flink, or docs/start/flink.md says why it differs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.language.grammar import CLAUSE_WORDS
from cep.language.parser import parse
from tests.conformance.case_files import FOLDER, read_cases
from tests.conformance.compare import AGREES, NOT_COMPARED, Verdict, judge
from tests.conformance.differences import DIFFERENCES, differences_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start" / "flink.md"
DRAWN = ("flink_suite.jsonl.gz", "flink_random.jsonl.gz")
FILES = (*DRAWN, "flink_rare.jsonl.gz")  # the last file shows differences that the others do not show

# The effect of each difference on the recorded cases: the number of patterns that it concerns, and of these
# the numbers of answers that agree nevertheless, differ for this reason, and differ only for this reason.
WIDTHS = {
    "absence before an optional end": (25, 21, 4, 1),
    "an event both forbidden and wanted": (140, 117, 23, 5),
    "absence next to a choice": (31, 18, 13, 10),
    "several absences in a row": (25, 14, 11, 8),
    "absence at the end of a group": (2, 0, 2, 1),
    "a match and a timeout of the same events": (31, 10, 9, 6),
    "greedy before an option": (3, 2, 1, 1),
    "greedy at the end of an option": (3, 0, 3, 3),
    "greedy and until": (26, 22, 4, 3),
    "the until of a group": (14, 8, 6, 5),
    "the order of matches with the same start": (381, 364, 15, 3),
    "the joint after a repeated group": (32, 26, 6, 1),
    "one match, reported more than once": (87, 63, 4, 1),
    "the limit of an event that is not taken": (10, 0, 10, 5),
    "a limit after a loop or an option": (39, 27, 12, 5),
    "timeouts of pruned runs": (236, 225, 6, 1),
}


@cache
def verdicts(name: str) -> tuple[Verdict, ...]:
    return tuple(judge(case) for case in read_cases(FOLDER / name))


@pytest.mark.parametrize("name", FILES)
def test_every_case_agrees_or_differs_on_purpose(name: str) -> None:
    assert [verdict.name for verdict in verdicts(name) if not verdict.is_explained] == []


def test_nearly_all_cases_agree() -> None:
    found = [verdict for name in DRAWN for verdict in verdicts(name) if verdict.outcome != NOT_COMPARED]
    assert sum(verdict.outcome == AGREES for verdict in found) >= 0.95 * len(found)


@pytest.mark.parametrize("name", [difference.name for difference in DIFFERENCES])
def test_each_difference_is_there_and_described(name: str) -> None:
    assert any(verdict.documented == (name,) for file in FILES for verdict in verdicts(file))
    assert f"### {name[0].upper()}{name[1:]}\n" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("flink_suite.jsonl.gz", "from Flink's tests and documentation"),
        ("flink_random.jsonl.gz", "random patterns"),
        ("flink_rare.jsonl.gz", "chosen because they are rare, or show a difference"),
    ],
)
def test_the_page_counts_the_answers(name: str, title: str) -> None:
    outcomes = Counter(verdict.outcome for verdict in verdicts(name))
    agree, unknown = outcomes[AGREES], outcomes[NOT_COMPARED]
    row = f"| {title} | {agree} | {outcomes.total() - agree - unknown} | {unknown} |\n"
    assert row in PAGE.read_text(encoding="utf-8")


def test_no_difference_is_wider_than_it_was() -> None:
    found = {difference.name: [0, 0, 0, 0] for difference in DIFFERENCES}
    for file in FILES:
        for case, verdict in zip(read_cases(FOLDER / file), verdicts(file), strict=True):
            for difference in differences_of(case):
                counts = found[difference.name]
                counts[0] += 1
                counts[1] += verdict.outcome == AGREES
                counts[2] += difference.name in verdict.documented
                counts[3] += verdict.documented == (difference.name,)
    assert {name: tuple(counts) for name, counts in found.items()} == WIDTHS


def rules_of_the_page() -> list[str]:
    """Return the rule texts in the tables of the page."""
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
