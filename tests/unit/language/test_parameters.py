"""Parameters of rules: `PARAM small = 5`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
from cep.compiler.compile import Compiled, compile_sources
from cep.errors import RuleError, Source
from cep.language import ast
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
