"""What each front end promises (`cep.language.front_ends`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import Source
from cep.language.front_ends import FRONT_ENDS, FrontEnd, is_rule_text, read_rules, rule_files

GOOD = {".cep": "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS TRUE"}
BAD = {".cep": "RULE r FROM s PARTITION BY k PATTERN a ->\n\nRULE q FROM s PARTITION BY k PATTERN a"}

EACH = pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda front_end: front_end.suffixes[0])


@EACH
def test_a_front_end_recognizes_its_rules_and_no_path(front_end: FrontEnd) -> None:
    (suffix, *_) = front_end.suffixes
    assert front_end.recognizes(GOOD[suffix])
    assert front_end.recognizes(BAD[suffix])
    for path in (f"rules/a{suffix}", "rules", "", "patterns", "my-pattern_1.sql"):
        assert not front_end.recognizes(path)
        assert not is_rule_text(path)


@EACH
def test_a_front_end_reads_rules_and_tells_every_problem_with_its_place(front_end: FrontEnd) -> None:
    (suffix, *_) = front_end.suffixes
    rules, problems = front_end.read(Source(f"a{suffix}", GOOD[suffix]))
    assert ([rule.name.text for rule in rules], problems) == (["r"], [])
    rules, problems = front_end.read(Source(f"a{suffix}", BAD[suffix]))
    assert [rule.name.text for rule in rules] == ["q"]
    assert [problem.code for problem in problems] == ["E0101"]
    assert problems[0].source is not None
    assert problems[0].span is not None


@EACH
@pytest.mark.parametrize("text", ["", "\0", "PATTERN", "PATTERN " * 5000, "(" * 9999, "\ud800 PATTERN"])
def test_no_text_makes_a_front_end_raise(front_end: FrontEnd, text: str) -> None:
    rules, problems = front_end.read(Source("a", text))
    assert rules == ()
    assert problems


@EACH
def test_a_text_is_read_by_the_front_end_of_its_name_or_by_what_it_says(
    front_end: FrontEnd, tmp_path: Path
) -> None:
    (suffix, *_) = front_end.suffixes
    for name in (f"a{suffix}", "rules"):
        found = read_rules(Source(name, GOOD[suffix]))
        assert [rule.name.text for rule in found[0]] == [
            rule.name.text for rule in front_end.read(Source(name, GOOD[suffix]))[0]
        ]
    (tmp_path / "in").mkdir()
    for name in (f"b{suffix}", f"in/a{suffix}", "in/a.txt"):
        (tmp_path / name).write_text(GOOD[suffix])
    (tmp_path / f"c{suffix}").mkdir()
    assert rule_files(tmp_path) == [tmp_path / f"b{suffix}", tmp_path / f"in/a{suffix}"]
