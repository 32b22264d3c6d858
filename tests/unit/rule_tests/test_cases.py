"""Test files of rules: what is refused, what fails, and what no case tests."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
from cep.diagnostics.codes import CODES
from cep.errors import Diagnostic, RuleError, Source
from cep.language.parser import parse
from cep.rule_tests.cases import Arrival
from cep.rule_tests.checking import check_case
from cep.rule_tests.coverage import coverage
from cep.rule_tests.delivery import Way, all_ways, lag_of, matches_of, shuffled
from cep.rule_tests.mutants import mutants, mutate
from cep.rule_tests.reading import read_tests
from tests.pages import cep_prints

STREAMS = """
streams:
  taps:
    event_time: ts
    tie_break: [n]
    lateness: 10 seconds
    schema: {k: string, n: bigint, ts: timestamp, kind: string, x: double}
  beeps:
    event_time: ts
    lateness: 10 seconds
    schema: {k: string, ts: timestamp, kind: string}
"""
RULE = """
RULE pair
FROM taps
PARTITION BY k
PATTERN a -> !c -> b
WITHIN 1 MINUTE
DEFINE
  a AS kind = 'a' AND x < 5,
  b AS kind = 'b',
  c AS kind = 'c'
MEASURES b.x AS x, b.ts - a.ts AS apart
"""
ONE = """defaults: {k: one, x: 1}
cases:
  one:
    events:
"""


@pytest.fixture(autouse=True)
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("pair.cep").write_text(RULE)
    return tmp_path


def refused(text: str) -> str:
    Path("pair.test.yaml").write_text(text)
    with pytest.raises(RuleError) as error:
        read_tests("pair.test.yaml")
    return str(error.value)


def case_with(*events: str, expect: str = "none") -> str:
    return ONE + "".join(f"      - {event}\n" for event in events) + f"    expect: {expect}\n"


def failures(*events: str, expect: str = "none") -> list[str]:
    """Return the codes and labels of the problems of a case."""
    Path("pair.test.yaml").write_text(case_with(*events, expect=expect))
    tests = read_tests("pair.test.yaml")
    return [f"{found.code} {found.label}" for found in check_case(tests, tests.cases[0])]


A, B, C = "{at: 0 seconds, kind: a}", "{at: 30 seconds, kind: b}", "{at: 20 seconds, kind: c}"


def test_a_wrong_value_is_named_with_its_place() -> None:
    text = refused(case_with("{at: 0 seconds, x: much}"))
    assert "error[E0671]: column `x` is double, and `much` is not\n" in text
    assert "pair.test.yaml:5:28\n" in text
    assert "^^^^ not of this type\n" in text


OUTSIDE = "error[E0671]: this time is outside the years 1 to 9999\n"


@pytest.mark.parametrize("amount", ["9999999 days", "-9999999 days", "99999999 days", "999999999999 days"])
@pytest.mark.parametrize(
    ("event", "place"),
    [
        ("{at: %s, kind: a}", "5:14"),
        ("{after: %s, kind: a}", "5:17"),
        ("{ts: %s, kind: a}", "5:14"),
        ("{at: 0 seconds, due: %s}", "5:30"),
        ("advance: %s", "5:18"),
    ],
)
def test_a_time_that_no_match_can_have_is_refused_at_its_place(event: str, place: str, amount: str) -> None:
    Path("streams.yaml").write_text(STREAMS.replace("x: double", "x: double, due: timestamp"))
    text = refused(case_with(event % amount))
    assert text.startswith(f"{OUTSIDE}  --> pair.test.yaml:{place}\n")
    assert text.count("error[") == 1


@pytest.mark.parametrize(
    ("start", "event", "says"),
    [
        ("9999-12-31T00:00:00Z", "{at: 2 days}", OUTSIDE),
        ("0001-01-01T00:00:00Z", "{at: -1 seconds}", OUTSIDE),
        ("2024-01-01", "{at: '9999-12-31T23:00:00-02:00'}", OUTSIDE),
        (
            "'9999-12-31T23:00:00-02:00'",
            "{at: 0 seconds}",
            "error[E0410]: `9999-12-31T23:00:00-02:00` is not",
        ),
    ],
)
def test_a_time_beyond_the_start_is_refused(start: str, event: str, says: str) -> None:
    text = refused(f"start: {start}\n{case_with(event)}")
    assert says in text
    assert text.count("error[") == 1


def test_an_expected_time_is_in_the_years_of_matches() -> None:
    text = refused(case_with(A, expect="[{match_end: 9999999 days}]"))
    assert "error[E0673]: `match_end` of a match is a time\n" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (case_with("{kind: a}"), "error[E0671]: an event without a time\n"),
        (case_with("{at: soon, kind: a}"), "error[E0671]: `soon` is no time\n"),
        (case_with("advance: soon"), "error[E0671]: `soon` is not a duration\n"),
        (case_with("{at: 0 seconds, kid: a}"), "help: did you mean `kind`?"),
        (case_with("beeps: {at: 0 seconds}"), "error[E0610]: the rules read no stream `beeps`\n"),
        (case_with(A, "{at: 20 seconds}", "{at: 9 seconds}"), "late: event time was 1 second past it\n"),
        (case_with("{at: 5 seconds, late: very}"), "error[E0671]: `late` is true or false\n"),
        (case_with(A, "{at: 5 seconds, late: true}"), "error[E0672]: this event is not late\n"),
        (case_with(A, expect="one"), "error[E0402]: `expect` must be a list of matches, or none\n"),
        (case_with(A, expect="[{apat: 1}]"), "help: did you mean `apart`?"),
        (case_with(A, expect="[{x: a}]"), "error[E0673]: `x` of a match is a number\n"),
        (case_with(A, expect="[{match_end: a}]"), "error[E0673]: `match_end` of a match is a time\n"),
        ("cases: {}", "error[E0404]: there is no case\n"),
        ("rule: pear\n" + case_with(A), "error[E0897]: there is no rule and no view `pear`\n"),
        ("start: soon\n" + case_with(A), "error[E0410]: `soon` is not a point in time\n"),
        ("defaults: {y: 1}\n" + ONE.partition("\n")[2] + "    - {}\n", "error[E0407]: no stream of these"),
    ],
)
def test_what_a_test_file_cannot_have_is_refused_with_a_code(text: str, says: str) -> None:
    assert says in refused(text)


def test_a_line_of_csv_is_named_with_its_place() -> None:
    text = "cases:\n  one:\n    expect: none\n    events: |\n      at, kind, x\n      0 seconds, a, 1\n"
    assert "pair.test.yaml:7:7\n" in refused(text + "      1 second, b, many\n")
    assert "pair.test.yaml:7:7\n" in refused(text + "      1 second, b\n")


def test_a_rule_without_tests_is_told_what_to_write() -> None:
    result = CliRunner().invoke(cep.commands.cli.main, ["test", "pair.cep", "missing.cep"])
    assert result.exit_code == 1
    assert "error[E0670]: `pair.cep` has no tests\nhelp: write them to pair.test.yaml\n" in result.output
    assert "error[E0611]: there is no file or directory `missing.cep`" in result.output


def test_a_match_is_compared_by_the_columns_that_are_written() -> None:
    assert failures(A, B, expect="[{x: 1}]") == []
    assert failures(A, B, expect="[{apart: 30 seconds, match_end: 30 seconds}]") == []
    assert failures(A, B, expect="[{x: 1.000001}]")[0] == "E0674 the nearest match differs: x is 1.0"
    assert failures(A, B, expect="[{match_end: 20 seconds}]")[0].endswith("00:00:30Z, 10 seconds later")
    assert failures(A, B) == ["E0674 not all are expected"]
    assert failures(A, expect="[{x: 1}]") == ["E0674 not found"]
    assert failures(A, B, expect="[{x: 1}, {x: 1}]") == ["E0674 not found"]
    assert failures(A, C, B) == []


def test_expected_matches_are_assigned_so_that_as_many_as_possible_are_found() -> None:
    events = [A, B, "{at: 31 seconds, kind: a}", "{at: 40 seconds, kind: b, x: 2}"]
    assert failures(*events, expect="[{k: one}, {x: 1}]") == []
    assert failures(*events, expect="[{x: 2}, {k: one}]") == []


def test_late_events_are_not_counted() -> None:
    assert (
        failures(A, "{at: 31 seconds, k: two}", "{at: 20 seconds, kind: c, late: true}", B, expect="[{}]")
        == []
    )


def test_a_case_may_end_before_the_input() -> None:
    Path("pair.cep").write_text(
        "RULE pair FROM taps PARTITION BY k PATTERN a -> !c FOR 1 MINUTE "
        "DEFINE a AS kind = 'a', c AS kind = 'c'"
    )
    assert failures(A, "advance: 59 seconds") == []
    assert failures(A, "advance: 60 seconds", expect="[{k: one}]") == []
    assert failures(A, expect="[{k: one}]") == []


def test_matches_that_depend_on_the_order_of_arrival_fail_the_case() -> None:
    Path("streams.yaml").write_text(STREAMS.replace("    tie_break: [n]\n", ""))
    Path("pair.cep").write_text(
        "RULE pair FROM taps PARTITION BY k PATTERN a b DEFINE a AS kind = 'a', b AS kind = 'b'"
    )
    events = [f"{{at: 1 second, kind: {kind}}}" for kind in "abababab"]
    assert [found[:5] for found in failures(*events, expect="[{}, {}, {}, {}]")] == ["E0675"]


def test_in_no_order_of_arrival_is_another_event_late() -> None:
    Path("pair.test.yaml").write_text(
        case_with(*(f"{{at: {9 * number % 31} seconds, kind: a, late: false}}" for number in range(2)))
    )
    tests = read_tests("pair.test.yaml")
    lag_us, random = lag_of(tests.compiled.rule_set), Random(1)
    steps = [
        Arrival("taps", number, random.randrange(100) * 1_000_000, False, tests.cases[0].span)
        for number in range(40)
    ]
    for seed in range(20):
        latest_us, order = 0, shuffled(steps, lag_us, seed)
        assert sorted(map(id, order)) == sorted(map(id, steps))
        for step in order:
            assert step.time_us > latest_us - lag_us or latest_us == 0
            latest_us = max(latest_us, step.time_us)


@pytest.mark.parametrize(("seconds", "n_orders"), [((0, 10, 30), 0), ((0, 1), 1), ((0, 1, 2, 3), 3)])
def test_events_are_delivered_in_each_order_in_which_they_may_arrive_once(
    seconds: tuple[int, ...], n_orders: int
) -> None:
    Path("pair.test.yaml").write_text(case_with(*(f"{{at: {n} seconds, kind: a}}" for n in seconds)))
    tests = read_tests("pair.test.yaml")
    rules, case = tests.compiled.rule_set, tests.cases[0]
    ways = list(all_ways(rules, case))
    assert ways[:3] == [(Way.WRITTEN, 0), (Way.TOGETHER, 0), (Way.SNAPSHOTS, 0)]
    orders = [shuffled(case.steps, lag_of(rules), seed) for way, seed in ways[3:]]
    assert [list(case.steps), *orders].count(list(case.steps)) == 1
    assert (len(orders), all(orders.count(order) == 1 for order in orders)) == (n_orders, True)


def test_each_way_of_delivery_reports_the_same() -> None:
    text = case_with(A, "{at: 25 seconds, kind: b}", C, "{at: 26 s, k: two}")
    Path("pair.test.yaml").write_text(text)
    tests = read_tests("pair.test.yaml")
    found = [matches_of(tests.compiled.rule_set, ["pair"], tests.cases[0], way) for way in Way]
    assert found == [[]] * 4


def test_transitions_that_no_case_takes_are_named() -> None:
    Path("pair.test.yaml").write_text(case_with(A))
    assert coverage(read_tests("pair.test.yaml")).missing == (
        "pair: no case takes `b` after `a`",
        "pair: no case has `c` after `a`",
        "pair: no case has an attempt that a limit in time ends",
    )
    times = {40: "a", 50: "b", 60: "a", 200: "b"}
    later = [f"{{at: {second} seconds, kind: {kind}}}" for second, kind in times.items()]
    Path("pair.test.yaml").write_text(case_with(A, C, B, *later, expect="[{}]"))
    found = coverage(read_tests("pair.test.yaml"))
    assert (found.n_taken, found.n_all, found.missing) == (4, 4, ())


def test_each_kind_of_small_change_is_tried() -> None:
    Path("pair.test.yaml").write_text(case_with(A))
    (rule,) = read_tests("pair.test.yaml").compiled.rules
    assert [mutant.says for mutant in mutants(rule.tree)] == [
        "directly after instead of ->",
        "without !c",
        "directly after instead of ->",
        "1 MINUTE becomes 54 SECONDS",
        "1 MINUTE becomes 66 SECONDS",
        "without kind = 'a'",
        "= becomes <>",
        "without x < 5",
        "< becomes <=",
        "5 becomes 4",
        "5 becomes 6",
        "= becomes <>",
        "= becomes <>",
    ]


def test_an_amount_that_is_a_parameter_is_changed_once() -> None:
    rule = (
        "RULE r PARAM least = 3, wait = 10 MINUTES, a_day = 5 FROM s PARTITION BY k PATTERN a->{least,} -> b "
    )
    (tree,), _ = parse(Source("r.cep", f"{rule}WITHIN wait SUPPRESS AFTER a_day PER DAY"))
    said = [mutant.says for mutant in mutants(tree) if " becomes " in mutant.says]
    assert said == [
        "3 becomes 2",
        "3 becomes 4",
        "10 MINUTES becomes 9 MINUTES",
        "10 MINUTES becomes 11 MINUTES",
        "5 becomes 4",
        "5 becomes 6",
    ]
    assert not any(mutant.says.startswith("at least") for mutant in mutants(tree))


def test_the_number_of_alerts_a_day_is_changed() -> None:
    Path("pair.cep").write_text(f"{RULE}SUPPRESS AFTER 3 PER DAY\n")
    Path("pair.test.yaml").write_text(case_with(A))
    (rule,) = read_tests("pair.test.yaml").compiled.rules
    said = [mutant.says for mutant in mutants(rule.tree)]
    assert {"3 becomes 2", "3 becomes 4"} <= set(said)


def test_changes_that_a_case_notices_are_not_named() -> None:
    def unnoticed(*events: str, expect: str = "none") -> list[str]:
        Path("pair.test.yaml").write_text(case_with(*events, expect=expect))
        return [mutant.says for mutant in mutate(read_tests("pair.test.yaml")).unnoticed]

    assert "without !c" in unnoticed(A, B, expect="[{}]")
    assert "without !c" not in unnoticed(A, C, B)
    assert "without kind = 'a'" in unnoticed(A, B, expect="[{}]")
    assert "< becomes <=" not in unnoticed("{at: 0 seconds, kind: a, x: 5}", B)


def test_a_recorded_alert_has_the_events_that_it_needs_and_passes() -> None:
    events = [
        {"k": key, "n": number, "ts": f"2024-05-01T00:00:{number:02}Z", "kind": kind, "x": 1.5}
        for number, (key, kind) in enumerate(zip("1121212", "azacbbb", strict=True))
    ]
    Path("taps.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (line,) = cep_prints("match pair.cep -i taps.jsonl -q").splitlines()
    assert json.loads(line)["k"] == "2"
    result = record(line)
    assert (result.exit_code, result.stdout[-10:]) == (0, ", 2 events\n"[-10:])
    assert cep_prints("test pair.cep").endswith("1 file, 1 case: all passed\n")
    assert "error[E0676]: `pair.test.yaml` has a test of match" in record(line).output
    assert "do not report match" in record(line.replace("1.5", "2.5")).output
    assert "error[E0676]: this is no match\n" in record("[]").output
    assert "cannot be read from `nosuch.jsonl`: No such file" in record("nosuch.jsonl").output


PAIR_OF_TAPS = "".join(
    json.dumps({"k": "one", "n": n, "ts": f"2024-05-01T00:00:0{n}Z", "kind": kind, "x": 1.5}) + "\n"
    for n, kind in enumerate("abz")
)
EACH = "RULE each FROM taps PARTITION BY k, kind PATTERN t DEFINE t AS x > 1 MEASURES t.x AS height\n"
BEEP = "RULE beeped FROM beeps PARTITION BY k PATTERN t DEFINE t AS kind = 'a'\n"
OUTER = "RULE outer FROM MATCHES OF pair PARTITION BY k PATTERN t DEFINE t AS x > 0\n"


def matched(rule: str, *files: str) -> str:
    """Return the first match of a rule in `taps.jsonl`."""
    Path("taps.jsonl").write_text(PAIR_OF_TAPS)
    lines = cep_prints(f"match {' '.join(files)} --only {rule} -i taps.jsonl -q").splitlines()
    return next(line for line in lines if json.loads(line)["rule"] == rule)


@pytest.mark.parametrize(
    ("others", "recorded"),
    [
        (EACH, ("pair", "each")),
        (BEEP, ("pair",)),
        (EACH + BEEP, ("each", "pair")),
        (OUTER, ("outer", "pair")),
        (OUTER + EACH, ("each", "outer", "pair")),
    ],
)
def test_alerts_of_several_rules_in_a_file_are_recorded_and_pass(
    others: str, recorded: tuple[str, ...]
) -> None:
    Path("pair.cep").write_text(RULE + others)
    for number, rule in enumerate(recorded, 1):
        result = record(matched(rule, "pair.cep"), "taps=taps.jsonl")
        assert result.exit_code == 0, result.output
        passed = "1 case" if number == 1 else f"{number} cases"
        assert cep_prints("test pair.cep").endswith(f"1 file, {passed}: all passed\n")


def test_alerts_beside_a_view_are_recorded() -> None:
    """Beside a view, matches have a revision and a kind, which those of a rule alone do not have."""
    table = (
        "tables:\n  owners: {key: [k], event_time: ts, schema: {k: string, ts: timestamp, owner: string}}\n"
    )
    Path("streams.yaml").write_text(STREAMS + table)
    Path("pair.cep").write_text(RULE + "VIEW owned KEY k FROM owners SELECT owner AS owner\n")
    Path("taps.jsonl").write_text(PAIR_OF_TAPS)
    Path("owners.jsonl").write_text('{"k": "one", "ts": "2024-05-01T00:00:00Z", "owner": "o"}\n')
    inputs = ("taps=taps.jsonl", "owners=owners.jsonl")
    lines = cep_prints(f"match pair.cep -q -i {' -i '.join(inputs)}").splitlines()
    assert [json.loads(line)["rule"] for line in lines] == ["owned", "pair"]
    for line in lines:
        retracted = record(line.replace('"kind": "match"', '"kind": "retract"'), *inputs)
        assert "do not report match" in retracted.output
        assert record(line, *inputs).exit_code == 0
    assert cep_prints("test pair.cep").endswith("1 file, 2 cases: all passed\n")


@pytest.mark.parametrize(("more", "names"), [("", "rule: outer\n"), (EACH, "")])
def test_an_alert_of_a_rule_over_a_rule_in_another_file_is_recorded(more: str, names: str) -> None:
    Path("outer").mkdir()
    Path("outer/outer.cep").write_text(OUTER + more)
    for rule in ("outer", "each") if more else ("outer",):
        line = matched(rule, "pair.cep", "outer/outer.cep")
        result = CliRunner().invoke(
            cep.commands.cli.main, ["test", "pair.cep", "outer", "--record", line, "-i", "taps.jsonl"]
        )
        assert result.exit_code == 0, result.output
    head = f"rules: [outer.cep, ../pair.cep]\n{names}cases:\n"
    assert Path("outer/outer.test.yaml").read_text().startswith(head)
    assert "all passed" in cep_prints("test outer")


def test_an_alert_is_recorded_as_the_test_file_sets_its_rules_up() -> None:
    streams = STREAMS + "tables:\n  most: {key: [k], schema: {k: string, height: double}, static: true}\n"
    Path("streams.yaml").write_text(streams)
    joined = "RULE high FROM taps JOIN most ON k PARTITION BY k PATTERN t DEFINE t AS x > most.height\n"
    Path("pair.cep").write_text(RULE + joined)
    Path("most.jsonl").write_text('{"k": "one", "height": 9}\n')
    Path("taps.jsonl").write_text(PAIR_OF_TAPS)
    inputs = ("taps=taps.jsonl", "most=most.jsonl")
    (line,) = cep_prints("match pair.cep --only pair -i taps=taps.jsonl -q").splitlines()
    tables = "tables:\n  most:\n    - {k: one, height: 1}\n"
    Path("pair.test.yaml").write_text(f"{tables}{case_with(A, expect='none')}")  # `high` matches there, too
    Path("pair.test.yaml").write_text(Path("pair.test.yaml").read_text().replace("x: 1}\n", "x: 0}\n", 1))
    result = record(line, *inputs)
    assert result.exit_code == 0, result.output
    assert Path("pair.test.yaml").read_text().count("rule: high") == 2
    assert cep_prints("test pair.cep").endswith("1 file, 2 cases: all passed\n")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("rule: each\n", "error[E0676]: `pair.test.yaml` does not compare the matches of `pair`"),
        ("parameters: {small: 1}\n", "do not report match"),
    ],
)
def test_an_alert_that_a_test_file_cannot_expect_is_refused(head: str, said: str) -> None:
    rule = RULE.replace("FROM taps", "PARAM small = 5 FROM taps").replace("< 5", "< small")
    Path("pair.cep").write_text(rule + EACH)
    text = head + case_with("{at: 0 s, kind: z, x: 0}")
    Path("pair.test.yaml").write_text(text)
    result = record(matched("pair", "pair.cep"))
    assert result.exit_code == 1
    assert said in result.output
    assert Path("pair.test.yaml").read_text() == text


def test_a_test_file_that_cannot_be_read_is_not_replaced_by_a_recorded_alert() -> None:
    Path("pair.cep").write_text(RULE)
    for text, said in ((b"\xff", "error[E0613]"), (b"cases: [", "error[E0401]"), (b"cases:\n", "")):
        Path("pair.test.yaml").write_bytes(text)
        result = record(matched("pair", "pair.cep"))
        assert (said in result.output, result.exit_code) == (True, 1 if said else 0), result.output
        assert Path("pair.test.yaml").read_bytes().startswith(text)
    for begun in ("\ufeff", ""):
        Path("pair.test.yaml").write_bytes(f"{begun}{case_with(A, C)}".replace("\n", "\r\n").encode())
        assert record(matched("pair", "pair.cep")).exit_code == 0
        assert cep_prints("test pair.cep").endswith("1 file, 2 cases: all passed\n")


def test_an_alert_that_depends_on_the_order_of_arrival_is_not_recorded() -> None:
    Path("streams.yaml").write_text(STREAMS.replace("    tie_break: [n]\n", ""))
    Path("pair.cep").write_text(RULE)
    times = PAIR_OF_TAPS.replace("00:01Z", "00:00Z")
    Path("taps.jsonl").write_text(times)
    (line,) = cep_prints("match pair.cep -i taps.jsonl -q").splitlines()
    result = record(line)
    assert result.exit_code == 1
    assert "error[E0675]" in result.output
    assert not Path("pair.test.yaml").exists()


def test_a_match_with_a_key_that_has_signs_of_line_ends_is_recorded() -> None:
    events = [
        {"k": "a\x85b\u2028", "n": n, "ts": f"2024-05-01T00:00:0{n}Z", "kind": kind, "x": 1.5}
        for n, kind in enumerate("ab")
    ]
    Path("taps.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    cep_prints("match pair.cep -i taps.jsonl -q -o m.jsonl")
    Path("m.jsonl").write_text("\ufeff" + Path("m.jsonl").read_text())
    result = record("m.jsonl")
    assert result.exit_code == 0, result.output
    assert '"a\\u0085b\\u2028"' in Path("pair.test.yaml").read_text()  # YAML would read them as spaces
    assert cep_prints("test pair.cep").endswith("1 file, 1 case: all passed\n")


@pytest.mark.parametrize(
    "odd", [{"match_start": None}, {"match_end": "soon"}, {"rule": ["pair"]}, {"match_id": 5}, "[" * 100_000]
)
def test_a_line_that_only_looks_like_a_match_is_not_recorded(odd: dict[str, Any] | str) -> None:
    time = "2024-05-01T00:00:00Z"
    row = {"rule": "pair", "k": "1", "match_id": "1", "match_start": time, "match_end": time}
    Path("taps.jsonl").write_text("")
    result = record(odd if isinstance(odd, str) else json.dumps({**row, **odd}))
    assert "error[E0676]: this is no match\n" in result.output


def test_a_recorded_alert_expects_all_rows_and_is_not_changed_by_defaults() -> None:
    Path("pair.cep").write_text(f"{RULE}ALL ROWS PER MATCH\n")
    Path("pair.test.yaml").write_text(case_with("{at: 0 s, kind: z}"))
    rows = [("a", 1.5, 0), ("z", 1.0, 1), ("b", None, 2)]
    events = [
        {"k": "one", "n": n, "ts": f"2024-05-01T00:00:0{n}Z", "kind": kind, "x": x} for kind, x, n in rows
    ]
    Path("taps.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    first, _ = cep_prints("match pair.cep -i taps.jsonl -q").splitlines()
    assert record(first).output.endswith(", 2 events\n")
    assert cep_prints("test pair.cep").endswith("1 file, 2 cases: all passed\n")


def test_a_disk_that_is_full_leaves_the_test_file_as_it_was() -> None:
    file = Path("pair.test.yaml")
    file.write_text(case_with(A, B))
    before = file.read_text()
    events = [
        {"k": "one", "ts": f"2024-05-01T00:00:0{n}Z", "kind": kind, "x": 1.5} for n, kind in enumerate("ab")
    ]
    Path("taps.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (line,) = cep_prints("match pair.cep -i taps.jsonl -q").splitlines()
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        result = record(line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert "error[E0609]: `pair.test.yaml` cannot be written" in result.output
    assert file.read_text() == before


def test_the_value_of_a_parameter_is_changed_too() -> None:
    Path("pair.cep").write_text(
        RULE.replace("FROM taps", "PARAM small = 5 FROM taps").replace("< 5", "< small")
    )
    Path("pair.test.yaml").write_text(case_with(A, B, expect="[{}]"))
    found = mutate(read_tests("pair.test.yaml"))
    assert {"5 becomes 4", "5 becomes 6"} <= {mutant.says for mutant in found.unnoticed}
    Path("pair.test.yaml").write_text("parameters: {small: 1}\n" + case_with(A, B))
    found = mutate(read_tests("pair.test.yaml"))
    assert "1 becomes 0" in {mutant.says for mutant in found.unnoticed}
    assert "1 becomes 2" not in {mutant.says for mutant in found.unnoticed}


def record(line: str, *inputs: str) -> Result:
    given = [word for path in inputs or ("taps.jsonl",) for word in ("-i", path)]
    return CliRunner().invoke(cep.commands.cli.main, ["test", "pair.cep", "--record", line, *given])


def test_junit_counts_cases_and_files_that_cannot_be_read() -> None:
    Path("pair.test.yaml").write_text(case_with(A, B))
    Path("other.test.yaml").write_text("rules: pair.cep\ncases: 5\n")
    result = CliRunner().invoke(cep.commands.cli.main, ["test", ".", "--format", "junit"])
    assert result.exit_code == 1
    other, pair = ET.fromstring(result.stdout)
    assert (other.get("errors"), pair.get("failures"), pair.get("tests")) == ("1", "1", "1")
    failure = pair.find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.startswith("error[E0674]: one: a match that is not expected\n")


def test_json_names_each_problem_with_its_place() -> None:
    Path("pair.test.yaml").write_text(case_with(A, B))
    result = CliRunner().invoke(cep.commands.cli.main, ["test", ".", "--format", "json", "--mutate"])
    (file,) = json.loads(result.stdout)
    assert [(case["passed"], case["problems"][0]["line"]) for case in file["cases"]] == [(False, 3)]
    assert file["transitions"]["taken"] == 2
    assert file["transitions"]["missing"][0] == "pair: no case has `c` after `a`"
    assert "changes" not in file  # of cases that fail, changes say nothing


def test_pytest_runs_each_case_as_a_test(folder: Path) -> None:
    two = case_with(A, B).partition("cases:\n")[2].replace("one:", "two:")
    Path("pair.test.yaml").write_text(case_with(A, C, B) + two)
    Path("others.test.yaml").write_text("of: another tool\n")
    plugin = "cep.rule_tests.pytest_plugin"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", str(folder)],
        capture_output=True, text=True, check=False, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
    )  # fmt: skip
    assert run.returncode == 1
    assert "1 failed, 1 passed" in run.stdout
    assert "error[E0674]: two: a match that is not expected" in run.stdout
    assert "Traceback" not in run.stdout


def test_watch_runs_again_when_a_file_changes(folder: Path) -> None:
    Path("pair.test.yaml").write_text(case_with(A, C, B))
    command = [sys.executable, "-m", "cep", "test", "pair.cep", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while "watching" not in process.stderr.readline():
                assert process.poll() is None
            time.sleep(0.01)  # a file system may count the time of a change in milliseconds
            Path("pair.cep").write_text(RULE.replace("kind = 'c'", "kind = 'z'"))
            while "watching" not in process.stderr.readline():
                assert process.poll() is None
        finally:
            process.terminate()
        assert [line for line in process.stdout.read().splitlines() if line.endswith("  one")] == [
            "  passed  one",
            "  FAILED  one",
        ]


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_test_file_is_read_or_refused_with_problems_that_have_a_code(seed: int) -> None:
    random = Random(seed)
    rows = "      - beeps: {at: 1 s}\n      - advance: 5 s\n    tables: {t: [{a: 1}]}\n"
    text = "start: 2024-05-01T10:00:00Z\nparameters: {}\n" + case_with(A, B, "{after: 1 s, late: false}")
    text += (
        "  two:\n    events: |\n      at, kind, x\n      0 s, a, 1\n    expect: [{x: 1, match_end: 3 s}]\n"
        + rows
    )
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(text))
        piece = random.choice(["", "-", ": ", "{", "\n", "null", "at", "9999999999999999999", "'", "é", "[]"])
        text = text[:start] + piece + text[start + random.randrange(5) :]
    Path("pair.test.yaml").write_text(text)
    problems: list[Diagnostic] = []
    try:
        tests = read_tests("pair.test.yaml")
        problems += (found for case in tests.cases for found in check_case(tests, case))
    except RuleError as error:
        problems += error.diagnostics
    assert {problem.code for problem in problems} <= CODES.keys()
