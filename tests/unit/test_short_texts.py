"""What a notebook shows of streams, rules and results: a short line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep import Counts, RuleError, load_rules, load_streams, match_file

RULE = "RULE {name}\nFROM events\nPARTITION BY key\nPATTERN a\nWITHIN 1 HOUR\nDEFINE a AS x > 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(
        "streams:\n  events:\n    event_time: ts\n    schema:\n      key: string\n      x: double\n"
        "      ts: {type: timestamp, unit: milliseconds}\n"
        "  wide:\n    event_time: ts\n    schema: {ts: timestamp, "
        + ", ".join(f"c{number}: string" for number in range(9))
        + "}\ntables:\n  owners: {key: [key], static: true, schema: {key: string, name: string}}\n"
    )
    Path("many.cep").write_text("\n".join(RULE.format(name=f"r{number}") for number in range(10)))
    Path("one.cep").write_text(RULE.format(name="alone"))
    Path("events.csv").write_text("key,x,ts\nk,5,1714550400000\nk,bad,1714550400000\n")
    return tmp_path


def test_streams_and_tables_are_a_line_each(folder: Path) -> None:
    streams = load_streams("streams.yaml")
    assert repr(streams["events"]) == "Stream(events: key string, x double, ts timestamp)"
    assert repr(streams["wide"]) == (
        "Stream(wide: ts timestamp, "
        + ", ".join(f"c{number} string" for number in range(7))
        + ", and 2 more)"
    )
    assert repr(streams["owners"]) == "Table(owners: key string, name string)"
    assert repr(streams["events"].fields[2]) == "Field(ts timestamp (unit: milliseconds))"


def test_rules_and_results_are_a_line_each(folder: Path) -> None:
    assert repr(load_rules("one.cep")) == "RuleSet(alone; over events)"
    assert repr(load_rules("many.cep")) == "RuleSet(r0, r1, r2, r3, r4, r5, r6, r7, and 2 more; over events)"
    result = match_file(load_rules("one.cep"), "events.csv")
    assert repr(result) == "Result(matches: 1, dead letters: 1, late: 0)"
    assert match_file("one.cep", "events.csv").matches == result.matches
    assert repr(Counts()) == "Counts()"
    assert repr(Counts(events=3, matches={"alone": 1})) == "Counts(events=3, matches={'alone': 1})"


def test_a_problem_does_not_show_the_whole_text(folder: Path) -> None:
    with pytest.raises(RuleError) as raised:
        load_rules(RULE.format(name="r").replace("x > 1", "y > 1"), "streams.yaml")
    (problem,) = raised.value.diagnostics
    assert "Source('rules', 78 characters)" in repr(problem)
    assert "PATTERN" not in repr(problem)
