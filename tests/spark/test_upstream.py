"""What a stream has passed before `detect`: a watermark is taken over or refused, state is refused."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.schema.stream import Stream
from spark_runtime import detect
from tests.spark.events import (
    RULES,
    STREAM,
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

TWO_STREAMS = """
RULE both FROM readings, more PARTITION BY readings.sensor = more.sensor PATTERN a -> b WITHIN 1 MINUTE
DEFINE a ON readings AS kind = 'a', b ON more AS kind = 'b'
"""
TWO = compile_sources(
    [Source("rules", TWO_STREAMS)],
    {name: Stream(name, STREAM.fields, "ts", ("id",), STREAM.lateness_us) for name in ("readings", "more")},
).rule_set


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    return [*random_events(31, 1200), far_future_event()]


@pytest.fixture(scope="module")
def expected(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = local_matches(compiled(RULES), events)
    assert len(found) > 30
    return found


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, events: list[dict[str, Any]]) -> DataFrame:
    write_files(spark, tmp_path / "events", events, 3)
    return stream_of_files(spark, tmp_path / "events")


def refusal(events: Any, rules: Any = None, **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        detect(events, rules or compiled(RULES), **arguments)
    return str(caught.value)


def test_a_watermark_of_the_lateness_is_taken_over(
    stream: DataFrame, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    marked = stream.withWatermark("ts", "30 seconds")
    found = drain(detect(marked, compiled(RULES)), "marked", tmp_path / "checkpoint")
    assert comparable(found) == expected


def test_duplicates_may_be_dropped_within_the_watermark_before(
    stream: DataFrame, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    twice = stream.withColumn("copy", F.explode(F.array(F.lit(1), F.lit(2))))
    once = twice.withWatermark("ts", "30 seconds").dropDuplicatesWithinWatermark(["id"])
    found = drain(detect(once, compiled(RULES)), "once", tmp_path / "checkpoint")
    assert comparable(found) == expected


def test_without_a_lateness_the_watermark_says_it(
    stream: DataFrame, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    marked = stream.withWatermark("ts", "30 seconds")
    matches = detect(marked, RULES, event_time="ts", tie_break="id")
    assert comparable(drain(matches, "says", tmp_path / "checkpoint")) == expected


def test_a_batch_may_have_any_watermark(
    spark: SparkSession, stream: DataFrame, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(tmp_path / "events")).withWatermark("ts", "7 hours")
    assert comparable(spark_rows(detect(frame, compiled(RULES)))) == expected


def test_a_watermark_of_another_delay_is_refused(stream: DataFrame) -> None:
    marked = stream.withWatermark("ts", "2 minutes")
    message = (
        "error[E0824]: the watermark of the events stays 2 MINUTES behind, their lateness is {}\n"
        "help: leave withWatermark out, since detect sets one; or make the two equal"
    )
    assert refusal(marked) == message.format("30 SECONDS")
    said = refusal(marked, RULES, event_time="ts", lateness="0 seconds")
    assert said == message.format("0 SECONDS")


def test_a_watermark_of_another_column_is_refused(stream: DataFrame) -> None:
    message = (
        "error[E0824]: stream `readings` has a watermark, but not on its event time `ts`\n"
        "help: leave withWatermark out, since detect sets one; or set it on `ts`, as the last step"
    )
    other = stream.withColumn("arrived", F.current_timestamp()).withWatermark("arrived", "30 seconds")
    assert refusal(other) == message
    changed = stream.withWatermark("ts", "30 seconds").withColumn(
        "ts", F.col("ts") + F.expr("INTERVAL 1 HOUR")
    )
    assert refusal(changed) == message


def test_watermarks_of_several_streams_must_agree(stream: DataFrame, tmp_path: Path) -> None:
    message = (
        "error[E0824]: the streams have different watermarks: {}\n"
        "help: leave withWatermark out, since detect sets one; or give each the same, of the largest lateness"
    )
    marked = stream.withWatermark("ts", "30 seconds")
    assert refusal({"readings": marked, "more": stream}, TWO) == message.format(
        "`readings` has 30 SECONDS, `more` has none"
    )
    other = stream.withWatermark("ts", "1 minute")
    assert refusal({"readings": marked, "more": other}, TWO) == message.format(
        "`readings` has 30 SECONDS, `more` has 1 MINUTE"
    )


def test_two_streams_with_one_watermark_give_the_matches_of_a_batch(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(tmp_path / "events"))
    expected = comparable(spark_rows(detect({"readings": frame, "more": frame}, TWO)))
    assert len(expected) > 30
    marked = [stream_of_files(spark, tmp_path / "events").withWatermark("ts", "30 seconds") for _ in range(2)]
    matches = detect({"readings": marked[0], "more": marked[1]}, TWO)
    assert comparable(drain(matches, "two", tmp_path / "checkpoint")) == expected


def test_matches_of_a_stream_as_a_stream_are_refused_and_of_a_batch_are_not(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(tmp_path / "events"))

    def again(events: DataFrame) -> DataFrame:
        matches = detect(events, compiled(RULES)).withColumnsRenamed({"match_end": "ts", "rule": "name"})
        rule = (
            "RULE twice FROM matches PARTITION BY sensor PATTERN a a2 WITHIN 1 DAY "
            "DEFINE a AS name = 'rise', a2 AS name = 'rise' MEASURES a2.lows AS lows"
        )
        return detect(matches, rule, event_time="ts", tie_break="match_id")

    (match,) = spark_rows(again(frame))
    assert match["rule"] == "twice"
    with pytest.raises(InputError) as caught:
        again(stream)
    assert str(caught.value) == (
        "error[E0825]: stream `matches` has passed another `detect`, or `applyInPandasWithState`: "
        "Spark runs no `detect` behind it in the same query\n"
        "help: write its result to a table or a topic, and read this as a stream in a second query; "
        "a batch needs no detour"
    )


def test_an_aggregated_stream_is_refused_and_a_joined_table_that_is_one_is_not(
    spark: SparkSession, stream: DataFrame, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    counted = (
        stream.withWatermark("ts", "30 seconds")
        .groupBy(F.window("ts", "1 minute"), "id", "sensor", "room", "kind", "value", "serial", "ok")
        .agg(F.max("ts").alias("ts"))
    )
    assert refusal(counted).splitlines()[0] == (
        "error[E0825]: stream `readings` has passed an aggregation: "
        "Spark runs no `detect` behind it in the same query"
    )
    table = spark.read.parquet(str(tmp_path / "events")).groupBy("id").count()
    joined = stream.join(table, "id")
    found = drain(detect(joined, compiled(RULES)), "joined", tmp_path / "checkpoint")
    assert comparable(found) == expected


def test_a_stream_and_a_batch_are_refused_together(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(tmp_path / "events"))
    assert refusal({"readings": stream, "more": frame}, TWO) == (
        "error[E0826]: `readings` is a stream and `more` is a batch\n"
        "help: read `more` with readStream, or `readings` with read"
    )
