"""Parameters of rules: `PARAM small = 5`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
from cep.compiler.compile import Compiled, compile_sources
from cep.errors import RuleError, Source, Span
from cep.language import ast
from cep.language.layout import laid_out
from cep.language.parameters import with_values
from cep.language.parser import parse
from cep.language.printer import print_rule
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream
from cep.settings.schema_file import load_streams

STREAM = Stream(
    "s",
    (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double"), Field("n", "bigint")),
    "ts",
)
HEAD = "RULE r PARAM small = 5, big = 50.0, who = 'a', soon = 2 MINUTES, live = TRUE"
RULE = f"""{HEAD} FROM s PARTITION BY k PATTERN (a->+ UNTIL (n > small)) -> b
WITHIN 5 MINUTES LET twice = 2 * small
DEFINE a AS x < small AND n < twice, b AS x > big AND k = who AND ts - a.ts < soon AND live
MEASURES b.x - small AS over"""
WINDOW = f"""{HEAD} FROM s PARTITION BY k WINDOW TUMBLING 1 HOUR WHERE x < big AND live AND k <> who
HAVING COUNT(*) > small AND MAX(ts) - MIN(ts) > soon MEASURES SUM(x) * small AS total"""

AMOUNTS = """RULE r
PARAM wait = 10 MINUTES, least = 2, most = 4, soon = 90 SECONDS, form = '^a+', shape = 'a%', one = 'x',
  two = 'y', runs = 50, a_day = 3, usual = 1 HOUR, last = 20, home = 'Asia/Tokyo'
FROM s PARTITION BY k
PATTERN a->{least,most} ->[<= soon] b -> !c FOR soon -> (d->{,most} -> e{least} WITHIN soon)
WITHIN < wait
LET past = COUNT(*) OVER LAST usual, before = AVG(x) OVER PREVIOUS last EVENTS,
  whole = SUM(x) OVER TUMBLING usual ZONE home
DEFINE a AS k LIKE shape AND k IN (one, 'z', two), b AS k RLIKE form AND past > n, c AS before > 1,
  d AS whole > 2, e AS x > 0
SUPPRESS AFTER a_day PER DAY
MAX RUNS runs PER KEY"""
"""Every place where only a constant may be."""

AMOUNTS_WRITTEN = """RULE r
FROM s PARTITION BY k
PATTERN a->{2,4} ->[<= 90 SECONDS] b -> !c FOR 90 SECONDS -> (d->{,4} -> e{2} WITHIN 90 SECONDS)
WITHIN < 10 MINUTES
LET past = COUNT(*) OVER LAST 1 HOUR, before = AVG(x) OVER PREVIOUS 20 EVENTS,
  whole = SUM(x) OVER TUMBLING 1 HOUR ZONE 'Asia/Tokyo'
DEFINE a AS k LIKE 'a%' AND k IN ('x', 'z', 'y'), b AS k RLIKE '^a+' AND past > n, c AS before > 1,
  d AS whole > 2, e AS x > 0
SUPPRESS AFTER 3 PER DAY
MAX RUNS 50 PER KEY"""

OTHER_AMOUNTS = {
    **{
        "wait": "11 MINUTES",
        "least": "1",
        "most": "5",
        "soon": "91 s",
        "form": "^b",
        "shape": "b%",
        "one": "q",
    },
    **{"runs": "60", "a_day": "4", "usual": "2 HOURS", "last": "30", "home": "Europe/Berlin"},
}

WINDOWED = """RULE r PARAM size = 1 HOUR, step = 10 MINUTES, shift = 1 MINUTE, quiet = 5 MINUTES
FROM s PARTITION BY k WINDOW HOPPING size EVERY step OFFSET shift HAVING COUNT(*) > 5
MEASURES COUNT(*) AS n SUPPRESS FOR quiet"""


def written_out(text: str) -> str:
    """Return a rule with the constants in the places of its parameters, and without PARAM."""
    text = text.replace(HEAD, "RULE r")
    for name, value in (("small", "5"), ("big", "50.0"), ("who", "'a'"), ("soon", "2 MINUTES")):
        text = text.replace(name, value)
    return text.replace("AND live", "AND TRUE")


def fingerprints(rules: Compiled | RuleSet) -> list[bytes]:
    return [program.fingerprint for program in rules.programs]


def compiled(text: str, **parameters: str) -> Program:
    (program,) = compile_sources([Source("r.cep", text)], {"s": STREAM}, parameters=parameters).programs
    return program


@pytest.mark.parametrize("rule", [RULE, WINDOW])
def test_a_rule_with_parameters_is_the_rule_with_their_values(rule: str) -> None:
    ((with_names,), _), ((plain,), _) = parse(Source("r", rule)), parse(Source("r", written_out(rule)))
    assert print_rule(with_values(with_names)).replace(print_rule(with_names).splitlines()[1] + "\n", "") == (
        print_rule(plain)
    )
    assert compiled(rule).fingerprint == compiled(written_out(rule)).fingerprint


@pytest.mark.parametrize("rule", [RULE, WINDOW])
def test_another_value_is_another_version_of_the_rule(rule: str) -> None:
    before = compiled(rule).fingerprint
    for name, value in {"small": "4", "big": "49", "who": "b", "soon": "1 MINUTE"}.items():
        other = rule.replace(HEAD, HEAD.replace("small = 5", "small = 4")) if name == "small" else None
        assert compiled(rule, **{name: value}).fingerprint != before
        assert other is None or compiled(other).fingerprint == compiled(rule, small="4").fingerprint
    assert compiled(rule, small="5", who="'a'").fingerprint == before


def test_the_printed_rule_has_the_value_that_was_set() -> None:
    found = compile_sources([Source("r.cep", RULE)], {"s": STREAM}, parameters={"r.small": "4"})
    (rule,) = found.rules
    assert "PARAM small = 4, big = 50.0, who = 'a', soon = 2 MINUTES, live = TRUE\n" in print_rule(rule.tree)
    assert parse(Source("again", print_rule(rule.tree)))[0] == (rule.tree,)


def test_a_view_may_have_parameters(tmp_path: Path) -> None:
    text = "VIEW v PARAM least = 5 FROM t KEY id WHERE x > least SELECT id, x + least AS more"
    ((view,), problems) = parse(Source("v.cep", text))
    assert problems == []
    assert isinstance(view.parameters[0].value, ast.Constant)
    file = tmp_path / "streams.yaml"
    file.write_text(
        "tables: {t: {key: [id], event_time: ts, schema: {id: string, ts: timestamp, x: double}}}"
    )
    sources, streams = [Source("v.cep", text)], load_streams(file)
    plain = [Source("v.cep", text.replace("PARAM least = 5 ", "").replace("least", "5"))]
    assert fingerprints(compile_sources(sources, streams)) == fingerprints(compile_sources(plain, streams))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("smal", "5", "error[E0889]: no rule has a parameter `smal`\nhelp: did you mean `small`?"),
        ("other.small", "5", "error[E0889]: no rule has a parameter `other.small`"),
        ("small", "4.5", "error[E0895]: parameter `small` is a whole number, and `4.5` is not\n"),
        ("small", "'4'", "help: give a whole number; a parameter declared as 5.0 may be 4.5"),
        ("big", "x", "error[E0895]: parameter `big` is a number, and `x` is not\n  --> r.cep:1:31\n"),
        ("soon", "2", "error[E0895]: parameter `soon` is a duration, and `2` is not\n"),
        ("live", "1", "error[E0895]: parameter `live` is TRUE or FALSE, and `1` is not\n"),
        ("small", "4 5", "error[E0895]"),
        ("small", "", "error[E0895]"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(RuleError) as error:
        compiled(RULE, **{name: value})
    assert says in str(error.value)


def test_a_parameter_is_a_name_elsewhere() -> None:
    ((rule,), problems) = parse(Source("r", "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS param < 5"))
    assert problems == []
    assert rule.parameters == ()


# ---------------------------------------------------------------- the command


FILE = """RULE r
PARAM small = 5
FROM taps
PARTITION BY k
PATTERN a
DEFINE a AS x < small
MEASURES a.x AS x
"""


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(
        "streams: {taps: {event_time: ts, schema: {k: string, ts: timestamp, x: double}}}\n"
    )
    Path("r.cep").write_text(FILE)
    Path("e.jsonl").write_text(
        "".join(f'{{"k":"a","ts":"2024-05-01T00:00:0{n}Z","x":{n}}}\n' for n in range(3, 7))
    )
    Path("r.test.yaml").write_text(
        "cases: {four: {events: [{at: 0 s, k: a, x: 4}, {at: 1 s, k: a, x: 6}], expect: [{x: 4}]}}\n"
    )
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cep.commands.cli.main, arguments)


def test_each_verb_takes_another_value(folder: Path) -> None:
    def matched(*options: str) -> list[float]:
        text = run("match", "r.cep", "-i", "e.jsonl", "-q", *options).stdout
        return [json.loads(line)["x"] for line in text.splitlines()]

    assert matched() == [3, 4]
    assert matched("--set", "small=4") == [3]
    assert matched("--set", "r.small = 6") == [3, 4, 5]
    assert "  parameters small = 4\n" in run("explain", "r.cep", "--set", "small=4").stdout
    assert run("test", "r.cep").exit_code == 0
    assert run("test", "r.cep", "--set", "small=4").exit_code == 1
    assert "0 matches" not in run("why", "r.cep", "-i", "e.jsonl", "--key", "a").stdout
    told = run("why", "r.cep", "-i", "e.jsonl", "--key", "a", "--set", "small=0").stdout
    assert "r, k a: 0 matches" in told
    assert run("diff", "r.cep", "r.cep").exit_code == 0
    assert run("diff", "r.cep", "r.cep", "--set", "small=4").exit_code == 3
    assert "error[E0889]" in run("check", "r.cep", "--set", "large=4").output
    assert run("check", "r.cep", "--set", "small").exit_code == 2


def test_a_test_file_and_python_may_set_values(folder: Path) -> None:
    Path("r.test.yaml").write_text("parameters: {small: 7}\n" + Path("r.test.yaml").read_text())
    assert "a match that is not expected" in run("test", "r.cep").stdout
    assert run("test", "r.cep", "--set", "small=5").exit_code == 0
    four, five = (load_rules("r.cep", parameters={"small": value}) for value in ("4", "5"))
    assert fingerprints(four) != fingerprints(five) == fingerprints(load_rules("r.cep"))


def test_a_pipeline_keeps_the_text_of_its_rules_with_its_values(folder: Path) -> None:
    from spark_runtime.pipeline.pipeline_file import load_pipeline

    text = "rules: [r.cep]\nsource: {stream: taps, format: json, path: in}\nmode: batch\n"
    text += "sinks: [{format: console}]\n"
    Path("in").mkdir()
    Path("p.yaml").write_text(text)
    plain = load_pipeline("p.yaml")
    Path("p.yaml").write_text(text + "parameters: {small: 4}\n")
    other = load_pipeline("p.yaml")
    assert plain.texts[0].text == FILE
    assert "PARAM small = 4\n" in other.texts[0].text
    assert fingerprints(other.rules) == fingerprints(load_rules("r.cep", parameters={"small": "4"}))
    assert run("diff", "r.cep", "p.yaml").exit_code == 3
    assert "write `parameters` into p.yaml" in run("diff", "r.cep", "p.yaml", "--set", "small=4").output


def test_a_view_may_begin_with_its_parameters_after_a_rule() -> None:
    rule = "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS x > 1\n"
    trees, problems = parse(Source("r.cep", f"{rule}VIEW v PARAM small = 5\nKEY k FROM t SELECT x AS y"))
    assert [tree.name.text for tree in trees] == ["r", "v"]
    assert problems == []


def test_a_parameter_stands_for_a_constant_wherever_only_a_constant_may_be() -> None:
    (tree,), problems = parse(Source("r", AMOUNTS))
    assert problems == []
    assert with_values(tree) == replace(parse(Source("r", AMOUNTS_WRITTEN))[0][0], parameters=tree.parameters)
    assert compiled(AMOUNTS).fingerprint == compiled(AMOUNTS_WRITTEN).fingerprint


def test_the_printed_rule_has_the_names_of_its_parameters() -> None:
    for text in (AMOUNTS, WINDOWED):
        (tree,), _ = parse(Source("r", text))
        printed = print_rule(tree)
        assert print_rule(parse(Source("again", printed))[0][0]) == printed
        for parameter in tree.parameters:
            assert len(re.findall(rf"\b{parameter.name.text}\b", printed)) > 1, parameter.name.text
        assert laid_out(Source("r.cep", laid_out(Source("r.cep", text)))) == laid_out(Source("r.cep", text))


@pytest.mark.parametrize("name", OTHER_AMOUNTS)
def test_another_amount_is_another_version_of_the_rule(name: str) -> None:
    other = compiled(AMOUNTS, **{name: OTHER_AMOUNTS[name]})
    assert other.fingerprint != compiled(AMOUNTS).fingerprint


@pytest.mark.parametrize(
    ("name", "value"), [("size", "2 h"), ("step", "5 m"), ("shift", "2 m"), ("quiet", "1 m")]
)
def test_windows_and_silence_have_parameters(name: str, value: str) -> None:
    plain = re.sub(r"PARAM .*", "", WINDOWED)
    declared = {"size": "1 HOUR", "step": "10 MINUTES", "shift": "1 MINUTE", "quiet": "5 MINUTES"}
    for each, constant in declared.items():
        plain = plain.replace(f" {each}", f" {constant}")
    assert compiled(WINDOWED).fingerprint == compiled(plain).fingerprint
    changed = WINDOWED.replace(f"{name} = {declared[name]}", f"{name} = {value}")
    assert compiled(WINDOWED, **{name: value}).fingerprint == compiled(changed).fingerprint
    assert compiled(changed).fingerprint != compiled(WINDOWED).fingerprint


def test_the_time_zone_of_a_window_rule_has_a_parameter() -> None:
    text = "RULE r PARAM home = 'Asia/Tokyo' FROM s PARTITION BY k WINDOW TUMBLING 1 DAY ZONE home "
    text += "HAVING COUNT(*) > 5 MEASURES COUNT(*) AS n"
    plain = text.replace("PARAM home = 'Asia/Tokyo' ", "").replace("home", "'Asia/Tokyo'")
    assert compiled(text).fingerprint == compiled(plain).fingerprint
    moved = compiled(plain.replace("Asia/Tokyo", "Europe/Berlin"))
    assert compiled(text, home="Europe/Berlin").fingerprint == moved.fingerprint != compiled(text).fingerprint
    (tree,), problems = parse(Source("r.cep", text))
    assert not problems
    assert "ZONE home" in print_rule(tree)


def test_a_clause_may_name_a_parameter_before_it_is_declared() -> None:
    text = "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN wait PARAM wait = 10 MINUTES"
    plain = "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN 10 MINUTES"
    assert compiled(text).fingerprint == compiled(plain).fingerprint


def test_a_parameter_of_another_rule_is_none_of_this_one() -> None:
    text = "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN wait\nRULE t PARAM wait = 1 s FROM s "
    _, problems = parse(Source("r", text + "PARTITION BY k PATTERN a -> b WITHIN wait"))
    assert [(one.code, one.span) for one in problems] == [("E0101", Span(51, 55))]


@pytest.mark.parametrize(
    ("clause", "help_text"),
    [
        ("WITHIN wiat", "did you mean `wait`? parameters: least, wait"),
        ("PATTERN a->{leats} -> b", "did you mean `least`? parameters: least, wait"),
        ("DEFINE a AS k LIKE pat", "parameters: least, wait"),
        ("LET t = SUM(x) OVER TUMBLING wait ZONE hoem", "parameters: least, wait"),
    ],
)
def test_a_misspelled_parameter_is_named(clause: str, help_text: str) -> None:
    pattern = "" if clause.startswith("PATTERN") else "PATTERN a -> b "
    text = f"RULE r PARAM wait = 1 HOUR, least = 2 FROM s PARTITION BY k {pattern}{clause}"
    problems = parse(Source("r", text))[1]
    assert (problems[0].code, problems[0].help) == ("E0101", help_text)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({"wait": "10"}, "parameter `wait` is a duration, and `10` is not"),
        ({"least": "2 MINUTES"}, "parameter `least` is a whole number, and `2 MINUTES` is not"),
        ({"least": "2.5"}, "parameter `least` is a whole number, and `2.5` is not"),
        ({"least": "-1"}, "parameter `least` is a whole number, and `-1` is not"),
        ({"form": "(a"}, "a group that is not closed"),
        ({"least": "9"}, "at least 9 but at most 4"),
        ({"home": "Europe/Berlyn"}, "there is no time zone 'Europe/Berlyn'"),
        ({"runs": "0"}, "a key without runs has no matches"),
    ],
)
def test_an_amount_that_cannot_be_is_refused_at_its_place(given: dict[str, str], title: str) -> None:
    with pytest.raises(RuleError) as caught:
        compiled(AMOUNTS, **given)
    (problem,) = [one for one in caught.value.diagnostics if one.is_error]
    assert title in problem.title
    assert problem.span is not None
    place = AMOUNTS[problem.span.start : problem.span.end]
    assert place in ("10 MINUTES", "2", "{least,most}", "->{least,most}", "'^a+'", "'Asia/Tokyo'", "runs"), (
        place
    )


def test_a_wrong_expression_is_shown_where_it_is_declared() -> None:
    text = AMOUNTS.replace("'^a+'", "'^(a'")
    with pytest.raises(RuleError) as caught:
        compiled(text)
    (problem,) = [one for one in caught.value.diagnostics if one.is_error]
    assert problem.span is not None
    assert (problem.code, text[problem.span.start : problem.span.end]) == ("E0241", "(")


def test_a_loop_that_a_parameter_makes_one_event_has_no_until() -> None:
    text = "RULE r PARAM most = 3 FROM s PARTITION BY k PATTERN a->{1,most} UNTIL (x > 5) -> b WITHIN 1 HOUR"
    assert compiled(text)
    with pytest.raises(RuleError) as caught:
        compiled(text, most="1")
    assert [one.code for one in caught.value.diagnostics if one.is_error] == ["E0314"]


def test_an_in_list_of_another_type_is_refused_at_the_name() -> None:
    text = "RULE r PARAM one = 5 FROM s PARTITION BY k PATTERN a DEFINE a AS k IN ('x', one)"
    with pytest.raises(RuleError) as caught:
        compiled(text)
    (problem,) = caught.value.diagnostics
    assert problem.span is not None
    assert (problem.code, text[problem.span.start : problem.span.end]) == ("E0207", "one")


def test_explain_shows_the_parameters_and_their_values_in_the_places(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {s: {event_time: ts, schema: {k: string, ts: timestamp, x: double, n: bigint}}}"
    )
    (tmp_path / "r.cep").write_text(AMOUNTS)
    arguments = ["explain", str(tmp_path / "r.cep"), "--set", "wait=20 MINUTES", "--set", "least=1"]
    shown = CliRunner().invoke(cep.commands.cli.main, arguments).stdout
    assert "  parameters wait = 20 MINUTES, least = 1, most = 4, soon = 90 SECONDS, form = '^a+'" in shown
    assert "  pattern    a->{1,4} ->[<= 90 SECONDS] b" in shown
    assert "  window     less than 20 MINUTES from first to last event" in shown
