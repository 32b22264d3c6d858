"""Shadow rules on Spark: their matches go to a sink of their own, and a promotion changes no state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep import load_rules
from spark_runtime import detect, detect_all, split
from tests.spark.events import EVENTS_RULE, RULES, STREAM, write_files
from tests.spark.test_pipeline import FINISH, quiet_run, read, write_json, write_pipeline
from tests.spark.test_reload import EVENTS, FIRST, SECOND, Live, add, cep, has_read, ids, local_matches, until

LIVE = RULES.replace("40 SECONDS", "4 MINUTES") + EVENTS_RULE
SHADOW = LIVE.replace("RULE rise", "RULE rise STATUS shadow")
SOURCE = "format: json, path: events, max_files_per_trigger: 1"
SINKS = "[{format: json, path: out/matches}, {format: parquet, path: out/more}]"


def written(folder: Path, more: str, shadow: str) -> Path:
    write_json(folder / "events", FIRST, 2)
    return write_pipeline(folder, SOURCE, f"{more}\nshadow: {shadow}", SINKS, SHADOW)


@pytest.mark.deep(but="True-json")
@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("is_running", [True, False])
def test_open_runs_of_a_shadow_rule_go_on_as_those_of_a_live_rule(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, is_running: bool
) -> None:
    trigger = 'trigger: "0 seconds"' if is_running else ""
    more = f"{trigger}\nreload: on change\nrule_version: true"
    file = written(tmp_path, more, f"{{format: {kind}, path: out/shadow}}")
    checkpoint, rules = tmp_path / "out/checkpoint", tmp_path / "readings.cep"
    said = ""

    def told() -> str:
        nonlocal said
        said += capfd.readouterr().err
        return said

    def promote() -> None:
        until(lambda: has_read(checkpoint, FIRST))
        rules.write_text(LIVE)
        until(lambda: "the rules have changed, from micro-batch" in told())
        add(tmp_path, SECOND)
        until(lambda: has_read(checkpoint, SECOND))

    if is_running:
        Live(file, promote).run()
    else:
        quiet_run(file)
        rules.write_text(LIVE)
        add(tmp_path, SECOND)
    if is_running:
        assert "  words     rise  its status" in said
    file.write_text(file.read_text().replace('trigger: "0 seconds"', "") + f"\n{FINISH}\n")
    quiet_run(file)
    whole = local_matches(LIVE, EVENTS)
    live, unseen = read(tmp_path / "out/matches", "json"), read(tmp_path / "out/shadow", kind)
    assert {row["rule"] for row in unseen} == {"rise"}
    assert ids(live, "rise") + ids(unseen, "rise") == ids(whole, "rise")
    assert ids(live, "silence", "whole") == ids(whole, "silence", "whole")
    assert ids(read(tmp_path / "out/more", "parquet"), "rise") == ids(live, "rise")
    begins = max(event["ts"] for event in FIRST)
    began_before = [row for row in whole if row["match_start"] <= begins]
    assert ids(began_before, "rise") & ids(live, "rise"), "no run was open at the promotion"
    versions = load_rules(LIVE, STREAM).versions
    assert {row["rule_version"] for row in unseen} == {versions["rise"]}
    assert {row["rule"]: row["rule_version"] for row in live} == versions
    assert all("times" not in row for row in unseen)  # a column of a live rule
    [*_, latest] = map(json.loads, cep("history", str(checkpoint), "--format", "json").splitlines())
    assert latest["changes"] == [{"rule": "rise", "verdict": "words", "reasons": ["its status"]}]


def test_a_shadow_rule_without_a_sink_is_only_counted(spark: SparkSession, tmp_path: Path) -> None:
    write_json(tmp_path / "events", FIRST, 2)
    file = write_pipeline(tmp_path, SOURCE, FINISH, SINKS, LIVE)
    said = cep("run", str(file), "--shadow", "rise", "--shadow", "silence")
    whole = local_matches(LIVE, FIRST)
    for place, kind in (("out/matches", "json"), ("out/more", "parquet")):
        rows = read(tmp_path / place, kind)
        assert {row["rule"] for row in rows} == {"whole"}
        assert ids(rows, "whole") == ids(whole, "whole")
        assert all("lows" not in row for row in rows)
    n_unseen = sum(ids(whole, "rise", "silence").values())
    lines = [line for line in said.splitlines() if line.startswith("shadow")]
    assert [line.split()[1] for line in lines] == [f"{n_unseen:,}"]


def test_detect_returns_live_matches_and_detect_all_those_of_shadow_rules_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = write_files(spark, tmp_path / "events", FIRST, 2)
    whole = local_matches(LIVE, FIRST)
    rules = load_rules(SHADOW, STREAM).telling_version()
    versions = {row.rule: row.rule_version for row in detect(events, rules).collect()}
    assert versions == {name: of for name, of in rules.versions.items() if name != "rise"}
    alerts = [row.asDict() for row in detect(events, SHADOW, streams=STREAM).collect()]
    assert ids(alerts, "silence", "whole") == ids(whole, "silence", "whole")
    assert not ids(alerts, "rise")
    parts = split(detect_all(events, SHADOW, streams=STREAM))
    assert ids([row.asDict() for row in parts.matches.collect()], "silence", "whole", "rise") == ids(
        whole, "silence", "whole"
    )
    assert ids([row.asDict() for row in parts.shadow.collect()], "silence", "whole", "rise") == ids(
        whole, "rise"
    )
