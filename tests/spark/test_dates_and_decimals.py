"""Columns of type date and decimal are to rules what they are without Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal

from pyspark.sql import SparkSession

from spark_runtime import detect
from spark_runtime.dataflow.schema import stream_of_schema, typed_events


def test_dates_are_midnights_and_decimals_the_nearest_doubles(spark: SparkSession) -> None:
    rows = [
        (datetime(2024, 1, 1, tzinfo=UTC), date(1970, 1, 2), Decimal("12345678901234567.89")),
        (datetime(2024, 1, 1, tzinfo=UTC), date(1969, 12, 31), Decimal("0.10")),
        (datetime(2024, 1, 1, tzinfo=UTC), None, None),
    ]
    frame = spark.createDataFrame(rows, "ts timestamp, day date, price decimal(20,2)")
    stream = stream_of_schema(frame.schema, "orders", "ts")
    assert [field.ddl for field in stream.fields] == ["timestamp", "date", "decimal(20,2)"]
    found = [(row["day"], row["price"]) for row in typed_events(frame, stream).collect()]
    assert found == [(86_400_000_000, 12345678901234567.89), (-86_400_000_000, 0.1), (None, None)]


def test_events_are_reported_with_dates_and_doubles(spark: SparkSession) -> None:
    rows = [
        ("a", datetime(2024, 1, 1, tzinfo=UTC), date(1969, 12, 31), Decimal("12345678901234567.89")),
        ("a", datetime(2024, 1, 2, tzinfo=UTC), None, None),
    ]
    frame = spark.createDataFrame(rows, "k string, ts timestamp, day date, price decimal(20,2)")
    rule = "RULE r FROM events PARTITION BY k PATTERN x ALL ROWS PER MATCH"
    found = [
        row["event"].asDict() for row in detect(frame, rule, event_time="ts").orderBy("match_end").collect()
    ]
    assert [(event["day"], event["price"]) for event in found] == [
        (rows[0][2], 12345678901234567.89),
        (None, None),
    ]
