"""`cep lint` names what rules lack, and a comment with a reason allows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from cep.diagnostics.codes import LINT
from cep.editor.project import problems

STREAMS = """\
streams:
  payments:
    event_time: ts
    schema: {card: string, ts: timestamp, amount: double}
"""

HEAD = "RULE drain\n  TITLE 'Small, then large'\n  SEVERITY high\n"
BODY = """\
FROM payments
PARTITION BY card
PATTERN probe->{2,} -> cashout
WITHIN 10 MINUTES
DEFINE probe AS amount < 5, cashout AS amount > 100
MEASURES cashout.amount AS loss
"""

MATCH = """\
  two probes:
    events: [{at: 0s, amount: 1}, {at: 1m, amount: 1}, {at: 2m, amount: 200}]
    expect: [{loss: 200}]
"""
MISS = """\
  one probe:
    events: [{at: 0s, amount: 1}, {at: 2m, amount: 200}]
    expect: none
"""


def write(folder: Path, rule: str, *cases: str) -> Path:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "drain.cep").write_text(rule)
    if cases:
        (folder / "drain.test.yaml").write_text("defaults: {card: c1}\ncases:\n" + "".join(cases))
    return folder / "drain.cep"


def lint(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["lint", *map(str, arguments)])


def codes(result: Result) -> list[str]:
    return re.findall(r"\[([EW]0\d{3})\]", result.output)


def test_a_rule_with_a_head_and_both_tests_has_no_findings(tmp_path: Path) -> None:
    result = lint(write(tmp_path, HEAD + BODY, MATCH, MISS))
    assert (result.exit_code, result.output) == (0, "linted 1 file, 1 rule: no findings\n")


def test_a_finding_has_a_code_a_place_a_reason_and_what_to_write(tmp_path: Path) -> None:
    file = write(tmp_path, "RULE drain\n  SEVERITY high\n" + BODY, MATCH, MISS)
    result = lint(file)
    assert result.exit_code == 1
    assert result.output == (
        "warning[W0538]: rule `drain` has no TITLE\n"
        f"  --> {file}:1:6\n"
        "   |\n"
        " 1 | RULE drain\n"
        "   |      ^^^^^ nothing says what an alert means\n"
        "   |\n"
        "help: write TITLE 'what it finds, in one line' after the name\n\n"
        "linted 1 file, 1 rule: 1 finding\n"
    )


CHANGES = {
    "W0531": HEAD + BODY.replace("probe AS", "probe AS COUNT(*) OVER ALL > 3 AND"),
    "W0535": HEAD + BODY.replace("MEASURES cashout.amount AS loss\n", ""),
    "W0536": HEAD + BODY.replace("{2,}", "{2,80}"),
    "W0537": HEAD + BODY.replace("probe->{2,}", "probe->>{2,}"),
    "W0538": HEAD.replace("TITLE 'Small, then large'", "") + BODY,
    "W0539": HEAD.replace("SEVERITY high", "") + BODY,
    "W0540": HEAD.replace("TITLE 'Small, then large'", "-- lint: allow W0538") + BODY,
    "W0541": HEAD + "-- lint: allow W0538 because it is short\n" + BODY,
    "W0542": HEAD + "-- lint: ignore W0538\n" + BODY,
    "W0501": HEAD + BODY.replace("WITHIN 10 MINUTES\n", ""),
}


@pytest.mark.parametrize("code", CHANGES)
def test_a_rule_that_lacks_one_thing_has_one_finding(code: str, tmp_path: Path) -> None:
    cases = (MATCH, MISS) if code != "W0535" else (MATCH.replace("{loss: 200}", "{card: c1}"), MISS)
    result = lint(write(tmp_path, CHANGES[code], *cases))
    assert (codes(result), result.exit_code) == ([code], 1)


def test_every_loop_that_multiplies_runs_may_have_a_limit_instead(tmp_path: Path) -> None:
    rule = HEAD + BODY.replace("MEASURES", "MAX RUNS 50 PER KEY\nMEASURES").replace("probe->{", "probe->>{")
    assert lint(write(tmp_path, rule, MATCH, MISS)).exit_code == 0


def test_a_window_of_events_of_a_silent_key_is_found_once_at_its_place(tmp_path: Path) -> None:
    result = lint(write(tmp_path, HEAD + BODY.replace("10 MINUTES", "20 EVENTS"), MATCH, MISS))
    assert codes(result) == ["W0531"]
    assert "^^^^^^^^^ a key that falls silent keeps its runs" in result.output


@pytest.mark.parametrize(
    ("cases", "code"), [((), "W0532"), ((MISS,), "W0533"), ((MATCH,), "W0534")], ids=lambda one: str(one)[:6]
)
def test_a_rule_needs_a_case_that_matches_and_one_that_does_not(
    cases: tuple[str, ...], code: str, tmp_path: Path
) -> None:
    assert codes(lint(write(tmp_path, HEAD + BODY, *cases))) == [code]


def test_a_test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    result = lint(write(tmp_path, HEAD + BODY, MATCH.replace("loss", "lost"), MISS))
    assert (codes(result), result.exit_code) == (["W0532", "E0403"], 1)


def test_a_rule_with_an_error_has_no_other_findings(tmp_path: Path) -> None:
    result = lint(write(tmp_path, BODY.replace("FROM", "RULE r FROM").replace("amount <", "sum <")))
    assert codes(result) == ["E0203"]


def test_a_name_is_given_once_over_all_streams_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, HEAD + BODY, MATCH, MISS)
    result = lint(tmp_path)
    assert codes(result) == ["W0530"]
    assert "two/drain.cep:1:6\n" in result.output
    assert f"also in {tmp_path / 'one/drain.cep'}" in result.output


def test_a_comment_with_a_reason_allows_a_finding_of_its_rule_only(tmp_path: Path) -> None:
    other = HEAD.replace("drain", "second").replace("TITLE 'Small, then large'\n", "") + BODY
    allowed = "-- lint: allow w0538, W0532 because the name says it\n"
    file = write(tmp_path, HEAD + BODY + "\n" + allowed + other, MATCH, MISS)
    (tmp_path / "drain.test.yaml").write_text("rule: drain\n" + (tmp_path / "drain.test.yaml").read_text())
    result = lint(file)
    assert (result.exit_code, result.output) == (0, "linted 1 file, 2 rules: no findings, 2 allowed\n")
    file.write_text(HEAD + allowed + BODY + "\n" + other)
    assert codes(lint(file)) == ["W0541", "W0541", "W0532", "W0538"]


def test_an_allowed_code_must_be_one_that_exists(tmp_path: Path) -> None:
    result = lint(write(tmp_path, HEAD + "-- lint: allow W0583 because of it\n" + BODY, MATCH, MISS))
    assert codes(result) == ["W0542"]
    assert "^^^^^ not such a code" in result.output
    assert "help: codes of `cep lint`: W0530, W0531" in result.output


def test_an_error_is_never_allowed(tmp_path: Path) -> None:
    result = lint(write(tmp_path, HEAD + "-- lint: allow E0203 because\n" + BODY, MATCH, MISS))
    assert codes(result) == ["W0540", "W0542"]


def test_findings_are_json_and_junit_too(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + BODY, MATCH)
    (found,) = json.loads(lint(file, "--format", "json").output)
    assert (found["code"], found["line"], found["column"]) == ("W0534", 1, 6)
    suites = ElementTree.fromstring(lint(file, "--format", "junit").output)
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [(str(file), "1")]
    assert "it may match too much" in (suites.findtext(".//failure") or "")
    write(tmp_path, HEAD + BODY, MATCH, MISS)
    suites = ElementTree.fromstring(lint(file, "--format", "junit").output)
    assert [case.get("name") for case in suites.iter("testcase")] == ["no problems"]


def test_every_code_of_lint_is_found_here() -> None:
    assert LINT.keys() <= CHANGES.keys() | {"W0530", "W0532", "W0533", "W0534"}


def test_an_editor_shows_findings_if_it_is_asked_to(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + BODY, MATCH)
    assert problems(file, {}) == {file: ()}
    assert [one.code for one in problems(file, {}, with_lint=True)[file]] == ["W0534"]
    text = file.read_text().replace("amount <", "sum <")
    assert [one.code for one in problems(file, {file: text}, with_lint=True)[file]] == ["E0203"]
