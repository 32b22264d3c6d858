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
