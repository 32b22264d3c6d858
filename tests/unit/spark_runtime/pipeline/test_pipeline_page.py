"""docs/reference/pipeline.md: its example over the rule library is sound; rules are chosen by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.errors import RuleError
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.pages import DOCS

(EXAMPLE,) = re.findall(
    r"^```yaml\n(rules: \[rules/security\].*?)^```$",
    (DOCS / "reference/pipeline.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


def loaded(folder: Path, text: str) -> Pipeline:
    (folder / "rules").symlink_to(DOCS.parent / "rules")
    (folder / "pipeline.yaml").write_text(text)
    return load_pipeline(folder / "pipeline.yaml")


def test_the_example_with_chosen_rules_is_sound(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, EXAMPLE)
    assert sorted(pipeline.rules.inputs) == ["logins", "transactions"]
    names = {rule.name for program in pipeline.rules.programs for rule in program.rules}
    assert names == {"takeover_then_drain", "guessing"}
    assert "RULE lateral_movement" not in "".join(text.text for text in pipeline.texts)


def test_without_the_choice_each_stream_needs_a_source(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        loaded(tmp_path, re.sub("^only.*\n", "", EXAMPLE, flags=re.MULTILINE))
    assert {problem.code for problem in caught.value.diagnostics} == {"E0842"}


def test_a_table_that_is_written_as_a_stream_is_marked_itself(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {e: {event_time: ts, schema: {k: string, ts: timestamp}}}\n"
        "tables: {c: {key: k, event_time: at, schema: {k: string, at: timestamp, v: double}}}\n"
    )
    (tmp_path / "r.cep").write_text(
        "RULE r FROM e JOIN c ON k PARTITION BY k PATTERN a DEFINE a AS c.v > 1 MEASURES a.k AS key\n"
    )
    (tmp_path / "pipeline.yaml").write_text(
        "rules: [r.cep]\n"
        "sources:\n"
        "  - {stream: e, format: json, path: e}\n"
        "  - {stream: c, format: json, path: c}\n"
        "sinks: [{format: json, path: out}]\n"
        "checkpoint: state\n"
    )
    with pytest.raises(RuleError) as caught:
        load_pipeline(tmp_path / "pipeline.yaml")
    (problem,) = [one for one in caught.value.diagnostics if one.code == "E0842"]
    assert problem.title == "`c` is a table, not a stream"
    assert "  --> pipeline.yaml:4:5\n" in str(caught.value).replace(f"{tmp_path}/", "")


def test_a_chosen_rule_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        loaded(tmp_path, EXAMPLE.replace("guessing]", "gessing]"))
    assert "error[E0897]: there is no rule and no view `gessing`" in str(caught.value)
    assert "did you mean `guessing`?" in str(caught.value)


def test_tables_are_declared_in_the_file_without_streams(tmp_path: Path) -> None:
    (tmp_path / "v.cep").write_text("VIEW v KEY k FROM a SELECT x")
    pipeline = loaded(
        tmp_path,
        "tables: {a: {key: [k], event_time: at, schema: {k: string, at: timestamp, x: bigint}}}\n"
        "rules: [v.cep]\n"
        "source: {table: a, format: json, path: a}\n"
        "sinks: [{format: console}]\n"
        "mode: batch\n",
    )
    assert list(pipeline.rules.inputs) == ["a"]


def test_no_rules_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        loaded(tmp_path, re.sub(r"^rules: \[.*\]$", "rules: []", EXAMPLE, flags=re.MULTILINE))
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.title, problem.help) == (
        "E0404",
        "the pipeline has no rules",
        "add: - rules.cep",
    )
