"""The formats of reports are the same words for all verbs, and those of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from tests.unit.commands.test_cli_page import PAGE, VERBS


def formats(verb: str) -> tuple[str, ...] | None:
    """Return the choices of `--format` of a verb; None: it has no such option, or free text."""
    command: click.Command = VERBS[verb]
    for parameter in command.params:
        if "--format" in parameter.opts and isinstance(parameter.type, click.Choice):
            return tuple(map(str, parameter.type.choices))
    return None


PICTURES_AND_INPUTS = {"explain", "plot", "match", "replay"}


@pytest.mark.parametrize(
    "verb", [verb for verb in sorted(VERBS) if formats(verb) is not None and verb not in PICTURES_AND_INPUTS]
)
def test_a_report_has_the_words_of_all_reports_and_a_row_on_the_page(verb: str) -> None:
    table = PAGE.partition("### Formats")[2].partition("\n## ")[0]
    (row,) = [line for line in table.splitlines() if line.startswith("|") and f"`cep {verb}" in line]
    assert formats(verb) == (("table", "json", "junit") if row.endswith("| yes |") else ("table", "json"))


def test_problems_of_a_check_are_a_suite_of_junit_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {s: {event_time: ts, schema: {k: string, ts: timestamp, x: double}}}"
    )
    rule = "RULE {} FROM s PARTITION BY k PATTERN a DEFINE a AS {} > 5"
    (tmp_path / "one.cep").write_text(rule.format("one", "x"))
    (tmp_path / "two.cep").write_text(rule.format("two", "'<'"))
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--format", "junit"])
    suites = ElementTree.fromstring(result.output)
    assert result.exit_code == 1
    assert [(Path(str(suite.get("name"))).name, suite.get("failures")) for suite in suites] == [
        ("one.cep", "0"),
        ("two.cep", "1"),
    ]
    assert re.search(r"two\.cep:1:\d+", suites.findtext(".//failure") or "")
    listed = CliRunner().invoke(main, ["check", str(tmp_path), "--format", "json"])
    assert listed.output == CliRunner().invoke(main, ["check", str(tmp_path), "--json"]).output
    assert [Path(one["file"]).name for one in json.loads(listed.output)] == ["two.cep"]


def test_rules_of_the_library_are_listed_as_json() -> None:
    lines = CliRunner().invoke(main, ["rules", "list", "--format", "json"]).output.splitlines()
    found = {row["path"]: row for row in map(json.loads, lines)}
    assert found["fraud/card_testing"]["streams"] == ["card_events"]
    assert found["fraud/card_testing"]["title"] == "Tiny charges online, then a large one"
