"""Rules over rules on Spark: batch, stream and local run agree, by one key and by another, after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep.local.match_file import match_file
from spark_runtime import detect
from tests.spark.events import (
    RULES,
    _plain,
    comparable,
    compiled,
    drain,
    far_future_event,
    local_matches,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, write_json, write_pipeline
from tests.standing import Standing

SAME_KEY = (
    RULES.replace("FIRST(low.kind) AS kind", "FIRST(low.kind) AS kind, high.room AS place")
    + """
RULE twice
FROM MATCHES OF rise
PARTITION BY sensor
PATTERN first -> second
WITHIN 4 MINUTES
MATCH PREFERRED
DEFINE first AS lows > 1, second AS TRUE
MEASURES first.match_id AS first_id, second.match_id AS second_id

RULE rise_then_silence
FROM MATCHES OF twice, silence, readings
PARTITION BY sensor
PATTERN risen -> other -> silent
WITHIN 10 MINUTES
DEFINE risen ON twice, other ON readings AS kind = 'd', silent ON silence
MEASURES risen.first_id AS first_id, silent.asked_at AS asked_at
"""
)
ANOTHER_KEY = """
RULE one_place
FROM MATCHES OF rise
PARTITION BY at_room
PATTERN r->{2}
WITHIN 1 HOUR
DEFINE r BY place
MEASURES COUNT(r.*) AS rises, LAST(r.match_id) AS last_id

RULE of_place
FROM MATCHES OF rise
PARTITION BY place
PATTERN r
LET highest = MAX(lows) OVER LAST 1 HOUR
DEFINE r AS TRUE
MEASURES r.highest AS highest

RULE place_again
FROM MATCHES OF of_place
PARTITION BY place
PATTERN first -> second
WITHIN 1 HOUR
DEFINE second AS highest >= first.highest
MEASURES second.highest AS highest

RULE of_minutes
FROM MATCHES OF place_again
PARTITION BY place
WINDOW TUMBLING 1 MINUTE
MEASURES COUNT(*) AS rises
"""
RULE_SETS = {"one key": SAME_KEY, "another key": SAME_KEY + ANOTHER_KEY}


@pytest.mark.parametrize("name", RULE_SETS)
def test_a_batch_and_a_stream_give_the_local_matches(spark: SparkSession, tmp_path: Path, name: str) -> None:
    rules = compiled(RULE_SETS[name])
    assert (rules.chains.n_stages, len(rules.chains.gathered)) == ((1, 0) if name == "one key" else (2, 7))
    assert max(rules.chains.lags_us) > 0
    events = [*random_events(21, 1500), far_future_event()]
    frame = write_files(spark, tmp_path / "events", events, 3)
    expected = local_matches(rules, events)
    of_rules = {rule.name for rule in rules.rules}
    assert of_rules <= {word for row in expected for word in map(str, dict(row).values())}
    assert comparable(spark_rows(detect(frame, rules))) == expected
    stream = stream_of_files(spark, tmp_path / "events")
    assert comparable(drain(detect(stream, rules), f"chains {len(name)}", tmp_path / "cp")) == expected


SOURCE = "format: json, path: events, max_files_per_trigger: 1"


def test_a_pipeline_as_a_batch_writes_the_matches_of_all_stages(spark: SparkSession, tmp_path: Path) -> None:
    rules = RULE_SETS["another key"]
    write_json(tmp_path / "events", keyed_events(22, 900), 3, ["{"])
    summary = quiet_run(write_pipeline(tmp_path, SOURCE, "mode: batch", rules=rules))
    local = match_file(compiled(rules), tmp_path / "events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    assert summary.counts == local.counts
    assert local.counts.matches["one_place"] > 0
    assert len(read(tmp_path / "out/dead", "json")) == local.dead_letters.num_rows == 3


@pytest.mark.deep
def test_a_stream_that_is_killed_goes_on_with_each_match_once(spark: SparkSession, tmp_path: Path) -> None:
    rules = RULE_SETS["another key"]
    write_json(tmp_path / "events", keyed_events(21, 1500), 6)
    file = write_pipeline(tmp_path, SOURCE, FINISH, rules=rules)
    command = [sys.executable, "-m", "cep", "run", str(file)]
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=null, stderr=null, start_new_session=True)
    try:
        ends = time.monotonic() + 120
        while len(list((tmp_path / "out/matches").glob("batch=*"))) < 2:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < ends
            time.sleep(0.005)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    early = len(list((tmp_path / "out/matches").glob("batch=*")))
    quiet_run(file)
    local = match_file(compiled(rules), tmp_path / "events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    assert 0 < early < len(list((tmp_path / "out/matches").glob("batch=*")))


def test_late_events_correct_what_was_found_over_matches(spark: SparkSession, tmp_path: Path) -> None:
    rules = RULE_SETS["another key"].replace(" AS kind,", " AS first_kind,")  # a column of corrections
    events = keyed_events(21, 1200)
    write_json(tmp_path / "whole", events, 1)
    parts = [events[at::5] for at in range(5)]  # from the second file on most events are late
    write_json(tmp_path / "events", [event for part in parts for event in part], len(parts))
    file = write_pipeline(tmp_path, SOURCE, f"{FINISH}\nwatermark: fastest", rules=rules)
    file.write_text(file.read_text().replace("path: out/late}", "path: out/late, correct_within: 1 day}"))
    quiet_run(file)
    standing = Standing(lambda value: repr(_plain(value)))
    standing.read(sorted(read(tmp_path / "out/matches"), key=lambda row: row["revision"]))
    standing.check(match_file(compiled(rules), tmp_path / "whole").matches.to_pylist())
    assert standing.n_retracted > 3
