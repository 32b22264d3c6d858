"""The setting `limits` of a pipeline file, and what a run says of what it dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cep.counts import Counts
from cep.errors import RuleError
from cep.output.summary import loss_lines, summary_lines
from spark_runtime.operator.limits import HOT_PERCENT, Limit, Limits, Then
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.runs import StreamRun
from tests.unit.spark_runtime.pipeline.test_metrics import pipeline, watched


def problems(folder: Path, *settings: str) -> str:
    with pytest.raises(RuleError) as caught:
        pipeline(folder, *settings)
    return str(caught.value)


def test_each_limit_has_a_number_and_what_happens_beyond_it(tmp_path: Path) -> None:
    assert pipeline(tmp_path).limits == Limits(hot_percent=HOT_PERCENT)
    assert not pipeline(tmp_path).limits
    made = pipeline(
        tmp_path,
        "limits: {open_runs: {at_most: 7}, open_runs_mb: {at_most: 8, then: drop_newest},",
        "  matches: {at_most: 9, then: drop_least_severe},",
        "  waiting_events: {at_most: 3}, hot_key_percent: 40}",
    )
    assert made.limits == Limits(Limit(7), Limit(9, Then.SEVERITY), Limit(8, Then.NEWEST), Limit(3), 40)
    assert made.limits
    made = pipeline(tmp_path, "limits: {alerts_per_day: {at_most: 6, then: drop_newest}}")
    assert made.limits == Limits(hot_percent=HOT_PERCENT, alerts_per_day=Limit(6, Then.NEWEST))
    made = pipeline(tmp_path, "limits: {state_mb: {at_most: 5, then: fail}}")
    assert made.limits == Limits(hot_percent=HOT_PERCENT, state_mb=Limit(5))
    assert pipeline(tmp_path, "limits: {alerts_per_day: {at_most: 6}}").limits.alerts_per_day == Limit(6)
    assert pipeline(tmp_path, "limits: {hot_key_percent: 3}").limits == Limits(hot_percent=3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{open_runs: {then: fail}}", "`at_most`"),
        ("{open_runs: {at_most: 0}}", "`at_most` must be at least 1"),
        ("{open_runs: {at_most: 5, then: drop}}", "`then` cannot be `drop`"),
        ("{runs: {at_most: 5}}", "`runs`"),
        ("{alerts_per_day: {at_most: 5, then: drop_oldest}}", "`then` cannot be `drop_oldest`"),
        ("{state_mb: {at_most: 5, then: drop_oldest}}", "`then` cannot be `drop_oldest`"),
        ("5", "`limits`"),
    ],
)
def test_what_is_wrong_with_a_limit_is_said_at_its_place(tmp_path: Path, text: str, told: str) -> None:
    found = problems(tmp_path, f"limits: {text}")
    assert told in found
    assert f"{tmp_path}/p.yaml:6:" in found


def test_with_corrections_limits_only_fail_but_a_hot_key_may_be_named(tmp_path: Path) -> None:
    late = "late: correct within 1 hour"
    for limit, told in (
        ("matches: {at_most: 5, then: drop_oldest}", "`limits: matches` drops, with corrections"),
        (
            "alerts_per_day: {at_most: 5, then: drop_newest}",
            "`limits: alerts_per_day` drops, with corrections",
        ),
        ("open_runs_mb: {at_most: 5}", "`limits: open_runs_mb` with corrections"),
    ):
        assert f"error[E0843]: {told}" in problems(tmp_path, late, f"limits: {{{limit}}}")
    fails = "limits: {matches: {at_most: 5}, waiting_events: {at_most: 6}, alerts_per_day: {at_most: 7}}"
    assert pipeline(tmp_path, late, fails).limits.by_name() == {
        "matches": Limit(5),
        "waiting_events": Limit(6),
        "alerts_per_day": Limit(7),
    }
    pipeline(tmp_path, late, "limits: {hot_key_percent: 5}")


def test_the_first_time_that_a_limit_drops_something_a_warning_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(tmp_path).run
    assert isinstance(run, StreamRun)
    for number in (4, 5):
        run.of_batch = Counts(
            beyond={"open_runs": 1234},
            dropped_keys={"r: k = a": 900, "r: k = b": 300, "r: k = c": 7, "s: k = a": 1},
        )
        run._tell_dropped(number)
    run.of_batch = Counts(beyond={"matches": 2}, dropped_keys={"r: k = a": 2})
    run._tell_dropped(6)
    run.of_batch = Counts(beyond={"alerts_per_day": 1}, dropped_keys={"r: k = a": 1})
    run._tell_dropped(7)
    place = f"{tmp_path}/out/checkpoint"
    assert capsys.readouterr().out.splitlines() == [
        "warning[E0722]: micro-batch 4 had 1,234 open runs too many: they were dropped beyond `limits: "
        "open_runs`. Most were of r: k = a (900), r: k = b (300), r: k = c (7). What follows is in the "
        f"summary and in cep gaps {place}",
        "warning[E0722]: micro-batch 6 had 2 matches too many: they were dropped beyond `limits: matches`. "
        f"Most were of r: k = a (2). What follows is in the summary and in cep gaps {place}",
        "warning[E0722]: micro-batch 7 had 1 alert too many: it was dropped beyond `limits: alerts_per_day`. "
        f"It was of r: k = a (1). What follows is in the summary and in cep gaps {place}",
    ]


def test_the_summary_says_what_was_dropped_and_of_which_keys_also_when_it_is_quiet() -> None:
    counts = Counts(
        matches={"r": 9},
        dropped_runs={"r": 3, "s": 0},
        dropped_matches={"r": 2},
        dropped_events={"readings": 5},
        dropped_keys={"r: k = a": 4, "r: k = b": 1},
        beyond={"open_runs_mb": 3, "matches": 2},
    )
    expected = [
        "dropped runs             3  more runs were open than `MAX RUNS` or `limits` allow: r 3; most of "
        "r: k = a (4), r: k = b (1)",
        "dropped events           5  too many waited for the watermark: readings 5; most of r: k = a (4), "
        "r: k = b (1)",
        "unreported               2  matches beyond `limits`: r 2; most of r: k = a (4), r: k = b (1)",
    ]
    assert loss_lines(counts, {}) == expected
    assert [line for line in summary_lines(counts, 1.0, {}) if line in expected] == expected


def test_the_examples_of_the_page_are_sound(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/operate/running.md").read_text()
    for title, limits in (
        ("Limits over all keys", Limits(Limit(5_000_000, Then.SEVERITY), Limit(10_000, Then.OLDEST))),
        ("Alerts of a day", Limits(alerts_per_day=Limit(200, Then.NEWEST))),
    ):
        text = page.partition(f"### {title}")[2].partition("```yaml\n")[2].partition("```")[0]
        pipeline(tmp_path, text)
        assert load_pipeline(tmp_path / "p.yaml").limits == replace(limits, hot_percent=HOT_PERCENT)
