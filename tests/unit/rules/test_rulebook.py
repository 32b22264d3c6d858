"""Rule files and their streams: found, read, checked together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.local.find_matches import find_matches
from cep.rulebook import check_rules, compile_rulebook, load_rulebook, load_rules
from cep.schema.stream import Field, Stream

STREAMS = """\
streams:
  payments:
    event_time: ts
    schema: {card: string, ts: timestamp, amount: double}
"""


PAYMENTS = (Field("card", "string"), Field("ts", "timestamp"), Field("amount", "double"))


def rule(name: str, condition: str = "amount > 5") -> str:
    return (
        f"RULE {name}\nFROM payments\nPARTITION BY card\nPATTERN a -> b\nWITHIN 1 MINUTE\n"
        f"DEFINE a AS {condition}, b AS amount < 1\n"
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems_of_loading(*paths: Path) -> list[tuple[str, str]]:
    with pytest.raises(RuleError) as caught:
        load_rulebook(paths)
    return [(problem.code, problem.title) for problem in caught.value.diagnostics]


def test_rules_of_a_directory_read_the_nearest_streams_file(tmp_path: Path) -> None:
    write(tmp_path / "streams.yaml", STREAMS)
    write(tmp_path / "b.cep", rule("second"))
    write(tmp_path / "deep" / "er" / "a.cep", rule("first"))
    write(tmp_path / "notes.txt", "no rule")
    compiled = compile_rulebook(load_rulebook([tmp_path]))
    assert sorted(found.name for found in compiled.rules) == ["first", "second"]
    assert [program.stream.name for program in compiled.programs] == ["payments"]


def test_a_file_named_twice_is_one_file(tmp_path: Path) -> None:
    write(tmp_path / "streams.yaml", STREAMS)
    file = write(tmp_path / "a.cep", rule("first"))
    assert len(load_rulebook([file, tmp_path, file]).sources) == 1
    (tmp_path / "link.cep").symlink_to(file)
    other = Path(os.path.relpath(file))
    assert len(load_rulebook([tmp_path, other, tmp_path / "link.cep"]).sources) == 1


def test_a_text_given_twice_is_one_text_and_another_of_its_name_is_refused() -> None:
    streams = {"payments": Stream("payments", PAYMENTS, "ts")}
    (found,) = load_rules([rule("r"), rule("s"), rule("r")], streams, only="r").rules
    assert found.name == "r"
    rows = [{"card": "c", "ts": 1, "amount": 6.0}, {"card": "c", "ts": 2, "amount": 0.5}]
    assert len(find_matches(load_rules([rule("r"), rule("r")], streams), None, rows)) == 1
    for twice in ([rule("r") * 2], [rule("r"), rule("r", "amount > 6")]):
        with pytest.raises(RuleError) as caught:
            load_rules(twice, streams)
        assert [problem.code for problem in caught.value.diagnostics] == ["E0301"]


@pytest.mark.parametrize("rules", [[], "", ["", Path()]])
def test_no_rules_are_an_error(
    rules: list[str] | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty text would be the path of the current directory."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "streams.yaml", STREAMS)
    write(tmp_path / "a.cep", rule("first"))
    with pytest.raises(RuleError) as caught:
        load_rules(rules)
    assert [problem.code for problem in caught.value.diagnostics] == ["E0611"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"rules": None}, "rules is None"),
        ({"rules": [5]}, r"rules is \[5\]"),
        ({"streams": 5}, "streams is 5"),
        ({"streams": {"payments": 5}}, "streams is {'payments': 5}"),
        ({"only": 5}, "only is 5"),
        ({"only": [5]}, r"only is \[5\]"),
        ({"parameters": ["x"]}, r"parameters is \['x'\]"),
        ({"parameters": {"x": 4}}, "parameters is {'x': 4}"),
    ],
)
def test_an_argument_of_another_type_is_named(arguments: dict[str, object], told: str) -> None:
    given = {"rules": rule("r"), "streams": Stream("payments", PAYMENTS, "ts"), **arguments}
    with pytest.raises(InputError, match=f"E0827.*{told}"):
        load_rules(**given)  # type: ignore[arg-type]


def test_streams_can_be_given_as_a_file_or_as_declarations(tmp_path: Path) -> None:
    file = write(tmp_path / "rules" / "a.cep", rule("first"))
    streams = write(tmp_path / "other" / "declared.yaml", STREAMS)
    assert list(load_rulebook([file], streams).streams) == ["payments"]
    declared = {"payments": Stream("payments", (Field("ts", "timestamp"),), "ts")}
    assert load_rulebook([file], declared).streams == declared


def test_every_missing_thing_is_reported_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.cep", rule("first"))
    (tmp_path / "empty").mkdir()
    found = problems_of_loading(tmp_path / "nowhere", tmp_path / "empty", file)
    assert found == [
        ("E0611", f"there is no file or directory `{tmp_path}/nowhere`"),
        ("E0611", f"there are no rule files in `{tmp_path}/empty`"),
        ("E0612", f"there is no `streams.yaml` beside `{file}` or in a directory above it"),
    ]


def test_a_rule_file_that_is_not_text_is_one_clear_error(tmp_path: Path) -> None:
    write(tmp_path / "streams.yaml", STREAMS)
    (tmp_path / "a.cep").write_bytes(b"RULE \xff\xfe")
    assert problems_of_loading(tmp_path) == [
        ("E0613", f"`{tmp_path}/a.cep` is not UTF-8 text: byte 6 begins no character")
    ]


def test_an_empty_rule_file_is_one_clear_error(tmp_path: Path) -> None:
    write(tmp_path / "streams.yaml", STREAMS)
    write(tmp_path / "a.cep", "-- nothing here\n")
    with pytest.raises(RuleError) as caught:
        compile_rulebook(load_rulebook([tmp_path]))
    assert [problem.code for problem in caught.value.diagnostics] == ["E0107"]


def test_one_stream_declared_in_two_ways_cannot_be_run_but_checked(tmp_path: Path) -> None:
    for name, text in (("a", STREAMS), ("b", STREAMS.replace("double", "int"))):
        write(tmp_path / name / "streams.yaml", text)
        write(tmp_path / name / "rule.cep", rule(name))
    assert [code for code, _ in problems_of_loading(tmp_path)] == ["E0614"]
    assert check_rules([tmp_path]).problems == ()


def test_a_check_reports_all_problems_of_all_files_in_order(tmp_path: Path) -> None:
    write(tmp_path / "a" / "streams.yaml", STREAMS)
    write(tmp_path / "a" / "x.cep", rule("first", "amout > 5") + rule("second", "card > 5"))
    write(tmp_path / "a" / "y.cep", rule("third") + "RULE fourth FROM nothing")
    write(tmp_path / "b" / "streams.yaml", STREAMS.replace("double", "money"))
    write(tmp_path / "b" / "z.cep", rule("fifth"))
    checked = check_rules([tmp_path])
    places = [
        (Path(problem.source.name).name, problem.code) for problem in checked.problems if problem.source
    ]
    assert {("x.cep", "E0203"), ("x.cep", "E0207"), ("streams.yaml", "E0406")} <= set(places)
    assert any(name == "y.cep" for name, _ in places)
    assert [problem.source.name for problem in checked.problems if problem.source] == sorted(
        problem.source.name for problem in checked.problems if problem.source
    )


def test_a_check_finds_limits_that_only_lowering_knows(tmp_path: Path) -> None:
    write(tmp_path / "streams.yaml", STREAMS)
    names = [f"v{number}" for number in range(70)]
    defines = ", ".join(f"{name} AS amount > {number}" for number, name in enumerate(names))
    write(
        tmp_path / "a.cep",
        f"RULE wide FROM payments PARTITION BY card PATTERN {' -> '.join(names)} WITHIN 1 DAY "
        f"DEFINE {defines}",
    )
    assert [problem.code for problem in check_rules([tmp_path]).problems] == ["E0904"]


def test_files_are_counted_even_if_their_streams_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.cep", rule("first"))
    (tmp_path / "no_file.cep").mkdir()
    checked = check_rules([tmp_path], tmp_path / "nowhere.yaml")
    assert (checked.n_files, checked.n_rules) == (1, 0)
    assert [problem.code for problem in checked.problems] == ["E0414"]
