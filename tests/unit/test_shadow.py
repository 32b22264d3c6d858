"""STATUS shadow: a rule that is run and counted, and alerts nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep import find_matches, load_rules
from cep.commands.cli import main
from cep.errors import RuleError, Source
from cep.language.parser import parse
from cep.language.printer import print_rules
from cep.local.match_file import match_file
from cep.program.changes import Verdict, changes_of
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream

STREAM = Stream("t", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double")), "ts")
RULES = """RULE up STATUS {status} FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS a.x < 10, b AS b.x > 100 MEASURES b.x AS top
RULE down FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS a.x > 100, b AS b.x < 10 MEASURES b.x AS low
"""
ROWS = [{"k": "one", "ts": n * 1_000_000, "x": x} for n, x in enumerate((1.0, 200.0, 2.0))]


def rules(status: str = "shadow") -> RuleSet:
    return load_rules(RULES.format(status=status), STREAM)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.cep").write_text(RULES.format(status="shadow"))
    (tmp_path / "streams.yaml").write_text(
        "streams:\n  t:\n    event_time: ts\n    schema: {k: string, ts: timestamp, x: double}\n"
    )
    lines = [{**row, "ts": f"2024-05-01T10:00:0{n}Z"} for n, row in enumerate(ROWS)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tmp_path


def test_the_status_is_printed_as_it_is_written() -> None:
    for status in ("shadow", "live"):
        trees, problems = parse(Source("rules", RULES.format(status=status.upper())))
        assert not problems
        assert f"  STATUS {status}\n" in print_rules(trees)
        assert parse(Source("rules", print_rules(trees)))[0] == trees


def test_status_and_its_words_remain_names() -> None:
    text = """RULE r FROM t PARTITION BY status PATTERN status shadow? live WITHIN 1 HOUR
DEFINE status AS status.x > 1, live AS live.status = 'shadow' MEASURES live.x AS top"""
    stream = Stream("t", (*STREAM.fields, Field("status", "string")), "ts")
    with pytest.raises(RuleError):  # as a clause
        load_rules(text, stream)
    quoted = text.replace("shadow?", "`shadow`?")
    assert not load_rules(quoted, stream).shadow
    trees, _ = parse(Source("rules", quoted))
    assert parse(Source("rules", print_rules(trees)))[0] == trees


def test_a_promotion_changes_only_words() -> None:
    for before, now in (("shadow", "live"), ("live", "shadow")):
        changes = changes_of(rules(before).programs, rules(now).programs)
        assert changes.keeps_all
        assert changes.keeps_fingerprints
        assert changes.verdicts == {"up": Verdict.WORDS, "down": Verdict.SAME}
        assert changes.rules[0].reasons == ("its status",)


def test_matches_of_a_shadow_rule_are_apart_with_the_ids_of_a_live_rule(folder: Path) -> None:
    found = match_file("rules.cep", "events.jsonl")
    assert found.matches.column("rule").to_pylist() == ["down"]
    assert found.shadow.column("rule").to_pylist() == ["up"]
    assert "top" not in found.matches.column_names
    assert "low" not in found.shadow.column_names
    assert found.counts.matches == {"up": 1, "down": 1}
    (folder / "rules.cep").write_text(RULES.format(status="live"))
    live = match_file("rules.cep", "events.jsonl")
    assert live.shadow.num_rows == 0
    both = found.matches.column("match_id").to_pylist() + found.shadow.column("match_id").to_pylist()
    assert sorted(live.matches.column("match_id").to_pylist()) == sorted(both)


def test_a_test_of_rules_sees_the_matches_of_shadow_rules() -> None:
    assert {row["rule"] for row in find_matches(rules(), None, ROWS)} == {"up", "down"}


def test_columns_of_rules_of_which_all_are_shadow_rules() -> None:
    only = load_rules(RULES.format(status="shadow").replace("RULE down", "RULE down STATUS shadow"), STREAM)
    assert only.schema_of(shadow=False) == only.schema_of(shadow=True) == only.match_schema


def cep(*words: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_cep_match_writes_them_to_a_file_of_their_own(folder: Path) -> None:
    out, said = cep("match", "rules.cep", "--input", "events.jsonl", "--shadow-output", "unseen.jsonl")
    assert [json.loads(line)["rule"] for line in out.splitlines()] == ["down"]
    assert [json.loads(line)["rule"] for line in Path("unseen.jsonl").read_text().splitlines()] == ["up"]
    assert "matches                  1  down 1\n" in said
    assert "shadow                   1  up 1; they alert nobody\n" in said


def test_cep_match_makes_any_rule_a_shadow_rule(folder: Path) -> None:
    out, said = cep("match", "rules.cep", "--input", "events.jsonl", "--shadow", "down")
    assert out == ""
    assert "shadow                   2  down 1, up 1; they alert nobody\n" in said
    _, said = cep("match", "rules.cep", "--input", "events.jsonl", "--shadow", "dwn", code=1)
    assert "error[E0897]: there is no rule and no view `dwn`" in said


def test_cep_diff_says_that_only_words_change(folder: Path) -> None:
    Path("new.cep").write_text(RULES.format(status="live"))
    out, _ = cep("diff", "rules.cep", "new.cep")
    assert "words     up    its status\n" in out
