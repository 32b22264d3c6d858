"""`late` of a pipeline file: a sink, drop, or corrections."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.rule_set import Corrections
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline

HOUR_US = 3_600_000_000
RULE = "RULE r FROM readings PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0"


def pipeline(folder: Path, late: str, rule: str = RULE) -> Pipeline:
    (folder / "r.cep").write_text(rule)
    (folder / "p.yaml").write_text(
        "streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}\n"
        "rules: [r.cep]\n"
        "source: {stream: readings, format: json, path: events}\n"
        "sinks: [{format: console}]\n"
        f"{late}\n"
        "mode: batch\n"
    )
    return load_pipeline(folder / "p.yaml")


@pytest.mark.parametrize(
    ("late", "has_sink", "corrections"),
    [
        ("", False, None),
        ("late: drop", False, None),
        ("late: {format: json, path: late}", True, None),
        ("late: correct within 1 hour", False, Corrections(HOUR_US)),
        ("late: {correct_within: 1 hour}", False, Corrections(HOUR_US)),
        ("late: {correct_within: 1 hour, max_retained: 5000}", False, Corrections(HOUR_US, 5000)),
        ("late: {format: json, path: late, correct_within: 1 hour}", True, Corrections(HOUR_US)),
    ],
)
def test_late_events_are_dropped_written_or_corrected(
    tmp_path: Path, late: str, has_sink: bool, corrections: Corrections | None
) -> None:
    found = pipeline(tmp_path, late)
    plain = pipeline(tmp_path, "late: {format: json, path: late}").late
    assert plain is not None
    assert found.late == (plain if has_sink else None)
    assert found.rules.corrections == corrections
    has_columns = {"revision", "kind"} <= set(found.rules.match_schema.names)
    assert has_columns == (corrections is not None)


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        (
            "late: side",
            "error[E0841]: `late` cannot be `side`\n"
            "help: write drop, correct within 1 hour, or {format: json, path: out/late}",
        ),
        (
            "late: correct within reason",
            "error[E0409]: `reason` is not a time within which matches are corrected\n"
            "help: write a number and a unit: correct within 1 hour",
        ),
        (
            "late: {correct_within: 0 seconds}",
            "error[E0409]: `0 seconds` is not a time within which matches are corrected\n"
            "help: write a number and a unit: correct within 1 hour",
        ),
        (
            "late: {format: json, path: late, max_retained: 5}",
            "error[E0843]: `max_retained` without `correct_within`\nhelp: add: correct_within: 1 hour",
        ),
        (
            "late: {path: late, correct_within: 1 hour}",
            "error[E0404]: `late` has no `format`\nhelp: add: format: ...",
        ),
        (
            "late: {correct_within: 1 hour, max_retained: 0}",
            "error[E0402]: `max_retained` must be at least 1\nhelp: write 1 or more",
        ),
        (
            "late: {correct_within: 1 hour, format: json, path: late, limit: 3}",
            "error[E0843]: a sink of format json has no `limit`\nhelp: remove it",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, late: str, expected: str) -> None:
    with pytest.raises(RuleError) as error:
        pipeline(tmp_path, late)
    lines = str(error.value).splitlines()
    assert f"{lines[0]}\n{lines[-1]}" == expected
    assert lines[1] == f"  --> {tmp_path / 'p.yaml'}:5:{lines[1].rpartition(':')[2]}"


def test_a_rule_with_a_measure_of_a_reserved_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        pipeline(tmp_path, "late: correct within 1 hour", f"{RULE} MEASURES a.v AS revision")
    assert str(error.value) == (
        "error[E0648]: rule `r` has a measure `revision`, corrections have a column of this name\n"
        "help: rename the measure, or run the rule without corrections"
    )
