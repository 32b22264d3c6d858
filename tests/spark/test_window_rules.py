"""Window rules on Spark have the rows and ids of a local run, in a batch and in a stream, beside patterns."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_runtime import detect
from tests.spark.events import (
    RULES,
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

WINDOW_RULES = """
RULE hops
FROM readings
PARTITION BY sensor
WINDOW HOPPING 25 SECONDS EVERY 10 SECONDS
WHERE kind IN ('a', 'b')
HAVING COUNT(DISTINCT room) > 1 AND SUM(value) FILTER (WHERE ok) > 2
MEASURES COUNT(*) AS n, SUM(value) AS total, MAX(ts) AS last_ts, LAST_VALUE(kind) AS last_kind

RULE day
FROM readings
PARTITION BY sensor
WINDOW TUMBLING 1 MINUTE ZONE 'Europe/Berlin'
HAVING COUNT(*) > 1
MEASURES COUNT(*) AS n, AVG(value) AS average, COUNT(DISTINCT kind) AS kinds, MEDIAN(serial) AS median
SUPPRESS FOR 2 MINUTES

RULE visit
FROM readings
PARTITION BY sensor
WINDOW SESSION GAP 9 SECONDS MAX 40 SECONDS
WHERE kind = 'a'
MEASURES COUNT(*) AS n, FIRST_VALUE(serial) AS first_serial
"""


def test_a_batch_and_a_stream_have_the_rows_of_a_local_run(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(5, 400)
    rule_set = compiled(RULES + WINDOW_RULES)
    expected = local_matches(rule_set, events)
    assert {dict(row)["rule"] for row in expected} >= {"hops", "day", "visit", "rise"}
    batch = write_files(spark, tmp_path / "whole", events, 2)
    assert comparable(spark_rows(detect(batch, rule_set))) == expected
    write_files(spark, tmp_path / "events", [*events, far_future_event()], 8)
    rows = drain(
        detect(stream_of_files(spark, tmp_path / "events"), rule_set), "windows", tmp_path / "checkpoint"
    )
    assert comparable(rows) == expected
