"""Every letter example of docs/ and every letter regression, on the oracle and on the engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import check_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.errors import Source
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.rulebook import load_rules
from tests.letter_cases import LetterCase, read_cases
from tests.letters import KEYS, match_letters, read_letters, show_match, show_window
from tests.oracle import find_matches as find_matches_slowly
from tests.oracle.partitions import event_of
from tests.pages import DOCS

ROOT = Path(__file__).parents[2]
SUBTLETIES = ROOT / "docs" / "language" / "subtleties.md"
REGRESSIONS = ROOT / "tests" / "golden" / "letters" / "regressions.md"
CASES = [
    case
    for page in (*sorted(DOCS.rglob("*.md")), REGRESSIONS)
    for case in read_cases(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def oracle_matches(case: LetterCase) -> list[str]:
    """Return the matches that the oracle finds."""
    events = read_letters(case.events, case.rule.streams)
    source = Source(case.name, case.rule.text())
    rules, problems = check_sources([source], case.inputs)
    assert not [problem for problem in problems if problem.is_error]
    (rule,) = rules
    streams = list(case.streams.values())
    rows = list(events.rows)
    if len(streams) > 1:
        rows = [event_of(streams[of], row) for of, row in zip(events.streams, events.rows, strict=True)]
    shown = []
    for match in find_matches_slowly(
        rule, streams, rows, {KEYS.name: (KEYS, read_letters(case.rule.keys).rows)}
    ):
        if case.rule.window:
            shown.append(show_window(match.start_us, match.end_us, match.measures))
            continue
        taken = [_seq(event) for event in match.events]
        text = "timeout " * match.is_timeout
        text += show_match(events, taken, match.end_us, match.measures, case.stream)
        if not rule.report.all_rows:
            shown.append(text)
            continue
        for number, ((variable, _), seq) in enumerate(zip(match.assignment, taken, strict=True)):
            shown.append(f"{text} #{number} {variable}={events.names[seq]}")
    return shown


def _seq(event: Mapping[str, Any]) -> int:
    return next(int(value) for name, value in event.items() if name.rpartition(".")[2] == "seq")


of_the_oracle = pytest.mark.parametrize(
    "case", [case for case in CASES if "MAX RUNS" not in case.rule.report], ids=lambda case: case.name
)
"""The oracle follows every run: it has no limit."""


@of_the_oracle
def test_the_oracle_finds_the_matches_of_the_example(case: LetterCase) -> None:
    assert sorted(oracle_matches(case)) == sorted(case.matches)


@each_case
def test_the_engine_finds_the_matches_of_the_example(case: LetterCase) -> None:
    assert sorted(match_letters(case.rule, case.events, case.stream)) == sorted(case.matches)


@each_case
def test_the_engine_finds_them_event_by_event_restored_after_each(case: LetterCase) -> None:
    events = read_letters(case.events, case.rule.streams)
    text = case.rule.text()
    rules = load_rules(text, case.inputs)
    (program,) = rules.programs
    by_stream = events.by_stream(case.rule.streams)
    if case.rule.keys:
        by_stream = {KEYS.name: list(read_letters(case.rule.keys).rows), **by_stream}
    ids = [match["match_id"] for match in find_matches(rules, None, by_stream)]
    arrived = [(row, name) for name, rows in by_stream.items() for row in rows]
    matcher = Matcher(program)
    found = []
    for row, name in sorted(arrived, key=lambda item: (item[0]["ts"], item[0]["seq"])):
        stream = case.inputs[name]
        found.append(matcher.advance(row["ts"] - 1))
        typed = event_table(stream, [row])
        if stream.table is None:
            matcher.push(prepare(program, typed, stream))
        for table in (*prepared_versions(program, stream, typed), *extents(program, stream, typed)):
            matcher.push(table)
        matcher = Matcher.restore(program, matcher.snapshot())
    found.append(matcher.finish())
    assert sorted(pa.concat_tables(found).column("match_id").to_pylist()) == sorted(ids)


def test_the_pages_have_every_paragraph_that_the_oracle_cites() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "language/semantics").glob("*.md")]
    headings = {heading for page in pages for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "oracle").glob("*.py"))
    docstrings = " ".join(re.findall(r'"""(.*?)"""', sources, re.DOTALL))
    cited = set(re.findall(r'"([A-Z][^"]+)"', docstrings))
    assert cited
    assert cited <= headings


def test_every_subtlety_has_an_example() -> None:
    entries = re.split(r"^\*\*S(\d+)\. ", SUBTLETIES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [int(number) for number in entries[1::2]] == list(range(1, 51))
    assert [
        number for number, entry in zip(entries[1::2], entries[2::2], strict=True) if "```cases" not in entry
    ] == []
