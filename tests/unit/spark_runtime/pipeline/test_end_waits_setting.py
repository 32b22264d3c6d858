"""`end_waits_after` of a pipeline file: its value, the column that it brings, the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.rule_set import ENDED_BY, KIND, REVISION
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline

S = 1_000_000

RULE = "RULE r FROM readings PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0"


def pipeline(folder: Path, more: str, rule: str = RULE, key: str = "k") -> Pipeline:
    (folder / "r.cep").write_text(rule)
    (folder / "p.yaml").write_text(
        f"streams: {{readings: {{event_time: ts, schema: {{{key}: string, ts: timestamp, v: double}}}}}}\n"
        "rules: [r.cep]\n"
        "source: {stream: readings, format: json, path: events}\n"
        "sinks: [{format: console}]\n"
        f"{more}\n"
    )
    return load_pipeline(folder / "p.yaml")


@pytest.mark.parametrize(
    "mode",
    ["mode: batch", "checkpoint: out", "checkpoint: out\ntrigger: 1 second", "checkpoint: out\nmode: stream"],
)
def test_the_column_is_there_in_every_mode_of_the_file(tmp_path: Path, mode: str) -> None:
    found = pipeline(tmp_path, f"{mode}\nend_waits_after: 30 seconds")
    assert found.end_waits_after_us == 30 * S
    assert found.rules.match_schema.names[:6] == [
        "rule",
        "k",
        "match_id",
        "match_start",
        "match_end",
        "ended_by",
    ]
    without = pipeline(tmp_path, mode)
    assert without.end_waits_after_us is None
    assert ENDED_BY not in without.rules.match_schema.names


def test_beside_corrections_it_stands_behind_their_columns(tmp_path: Path) -> None:
    found = pipeline(tmp_path, "mode: batch\nend_waits_after: 1 second\nlate: correct within 1 hour")
    assert found.rules.match_schema.names[5:8] == [REVISION, KIND, ENDED_BY]


def test_the_example_of_the_page_is_a_pipeline(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/operate/time.md").read_text()
    (example,) = [
        text for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S) if "end_waits" in text
    ]
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/r.cep").write_text(RULE)
    (tmp_path / "rules/streams.yaml").write_text(
        "streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}\n"
    )
    (tmp_path / "p.yaml").write_text(example)
    assert load_pipeline(tmp_path / "p.yaml").end_waits_after_us == 30 * S


@pytest.mark.parametrize("text", ["0 seconds", "soon"])
def test_what_is_no_time_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RuleError) as error:
        pipeline(tmp_path, f"mode: batch\nend_waits_after: {text}")
    lines = str(error.value).splitlines()
    assert lines[0] == f"error[E0409]: `{text}` is not a time after which waits end"
    assert lines[-1] == 'help: write a number and a unit, for example "30 seconds"'
    assert lines[1].startswith(f"  --> {tmp_path / 'p.yaml'}:6:")


def test_a_rule_with_a_column_of_this_name_is_refused(tmp_path: Path) -> None:
    more = "mode: batch\nend_waits_after: 1 second"
    with pytest.raises(InputError) as error:
        pipeline(tmp_path, more, f"{RULE} MEASURES a.v AS ended_by")
    assert str(error.value) == (
        "error[E0650]: rule `r` has a measure `ended_by`, with `end_waits_after` matches have a column of "
        "this name\nhelp: rename the measure, or run the rule without `end_waits_after`"
    )
    with pytest.raises(InputError) as error:
        pipeline(tmp_path, more, RULE.replace("BY k", "BY ended_by"), "ended_by")
    assert str(error.value) == (
        "error[E0650]: the key column `ended_by` has the name of a column that matches have with "
        "`end_waits_after`\nhelp: rename the column, or run the rules without `end_waits_after`"
    )
