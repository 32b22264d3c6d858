"""Event time of a query with `detect`, told by a listener."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from spark_runtime import TimeListener, detect
from spark_runtime.event_time.listener import watermark_of
from spark_runtime.event_time.time_status import TimeStatus
from tests.spark.events import START, drain, observations, observed, stream_of_files

RULE = """
RULE pairs FROM events PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS n = 1, b AS n = 2 MEASURES a.n AS n
"""


def test_a_listener_tells_where_the_watermark_is(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        rows = [(START + timedelta(seconds=10 * number + s), s, 1) for s in range(1, 3)]
        frame = spark.createDataFrame(rows, "ts timestamp, n bigint, k bigint").coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
    told: list[tuple[str, TimeStatus]] = []
    listener = TimeListener(lambda query, status: told.append((query, status)), clock=lambda: 100.0)
    spark.streams.addListener(listener)
    try:
        events = stream_of_files(spark, tmp_path / "in")
        found = drain(
            detect(events, RULE, event_time="ts", lateness="5 seconds"), "timed", tmp_path / "checkpoint"
        )
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert len(found) >= 2
    assert {query for query, _ in told} == {"timed"}
    reached = [status.watermark_us for _, status in told if status.watermark_us is not None]
    latest_us = round((START + timedelta(seconds=22)).timestamp() * 1e6)
    assert reached == sorted(reached)
    assert reached[-1] == latest_us - 5_000_000
    assert all(len(status.partitions) == 1 and status.held_s == 0 for _, status in told)


def test_the_progress_says_how_many_events_of_detect_were_late(spark: SparkSession, tmp_path: Path) -> None:
    for name, seconds in (("on_time", (100, 200)), ("late", (1, 2, 190))):
        rows = [(START + timedelta(seconds=s), 1, 1) for s in seconds]
        frame = spark.createDataFrame(rows, "ts timestamp, n bigint, k bigint").coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
        events = stream_of_files(spark, tmp_path / "in")
        query = (
            detect(events, RULE, event_time="ts", lateness="20 seconds")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .queryName(name)
            .start()
        )
        query.awaitTermination()
    names = {name for counts in observations(query) for name in counts}
    assert {name.rpartition("_")[0] for name in names} == {"detect"}
    assert sum(metrics["late_events"] for metrics in observed(query)) == 2


def test_before_any_event_there_is_no_watermark() -> None:
    assert watermark_of({}) is None
    assert watermark_of({"watermark": "1970-01-01T00:00:00.000Z"}) is None
    assert watermark_of({"watermark": "1970-01-01T00:00:01.500Z"}) == 1_500_000


def test_the_progress_says_what_limits_of_detect_dropped(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(START + timedelta(seconds=s), 1 + (s == 8), 1) for s in range(9)]
    spark.createDataFrame(rows, "ts timestamp, n bigint, k bigint").coalesce(1).write.parquet(
        str(tmp_path / "in")
    )
    found = detect(
        stream_of_files(spark, tmp_path / "in"),
        RULE.replace("DEFINE", "AFTER MATCH NO SKIP DEFINE"),
        event_time="ts",
        key_groups=1,
        limits={"matches": {"at_most": 3, "then": "drop_oldest"}},
    )
    query = (
        found.writeStream.format("memory")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .queryName("limited")
        .start()
    )
    query.awaitTermination()
    assert spark.table("limited").count() == 3
    assert sum(metrics["beyond_limits"] for metrics in observed(query)) == 5
