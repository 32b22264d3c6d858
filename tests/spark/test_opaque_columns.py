"""Arrays, structs, maps and binary are passed on by Spark as they are without it."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.local.match_file import match_file
from cep.rulebook import load_rules
from cep.settings.schema_file import load_streams
from spark_runtime import detect
from spark_runtime.dataflow.schema import stream_of_schema
from tests.spark.events import comparable, drain, spark_rows

DDL = (
    "k string, ts timestamp, n int, tags array<string>, raw binary, price decimal(12,2), "
    "body struct<id:bigint,at:timestamp,day:date,cost:decimal(10,2),more:map<string,double>,"
    "list:array<struct<x:int>>>"
)
RULE = """
RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS tags IS NOT NULL, b AS tags IS NULL AND a.raw IS NOT NULL
MEASURES ARRAY_AGG(a.body) AS bodies, b.body IS NULL AS bare, COUNT(a.raw) AS n
ALL ROWS PER MATCH
"""


def _time(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)


def _frame(spark: SparkSession) -> DataFrame:
    body = (7, _time(1), _time(0).date(), Decimal("1.50"), {"x": 0.5, "y": None}, [(1,), None])
    nothing = (None, None, None, None, None, None)
    rows = [
        ("p", _time(0), 1, ["ü", None], bytearray(b"\x00\xff"), Decimal("0.10"), body),
        ("p", _time(1), 2, None, None, Decimal("1234567890.12"), nothing),
        ("q", _time(0), 3, [], bytearray(b""), None, None),
        ("q", _time(1), 4, None, None, None, None),
        ("r", _time(0), 5, [], None, None, None),
        ("r", _time(1), 6, None, None, None, None),
        ("far", datetime(2030, 1, 1, tzinfo=UTC), 7, None, None, None, None),
    ]
    return spark.createDataFrame(rows, DDL)


def test_numbers_and_times_without_a_zone_have_the_texts_of_a_local_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own JSON has 1.0E7, and no zone; a time without one is in the zone of the session."""
    kinds = (
        "k string, ts timestamp, a array<double>, f map<string,float>, d array<decimal(18,10)>, "
        "raw binary, w struct<t:timestamp>"
    )
    (tmp_path / "streams.yaml").write_text(f"streams: {{s: {{event_time: ts, schema: '{kinds}'}}}}")
    rule = "RULE r FROM s PARTITION BY k PATTERN x ALL ROWS PER MATCH"
    streams = load_streams(tmp_path / "streams.yaml")
    frame = spark.sql(
        "SELECT 'k' AS k, timestamp'2024-05-01' AS ts, array(1e7D, 1e20D, 1e-5D, double('NaN'), 0.1D) AS a, "
        "map('x', 1e7F, 'y', 0.1F) AS f, array(0.0000000001BD::decimal(18,10)) AS d, "
        "repeat('x', 100)::binary AS raw, struct(timestamp_ntz'2024-05-01 12:00:00' AS t) AS w"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "events"))
    (expected,) = match_file(load_rules(rule, streams), tmp_path / "events").matches.to_pylist()
    assert expected["event"]["a"] == '[10000000.0,1e+20,1e-05,"NaN",0.1]'
    assert expected["event"]["w"] == '{"t":"2024-05-01T12:00:00.000000Z"}'
    assert comparable(spark_rows(detect(frame, rule, streams=streams))) == comparable([expected])
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        (found,) = spark_rows(detect(frame, rule, streams=streams))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found["event"]["w"] == '{"t":"2024-05-01T03:00:00.000000Z"}'


def test_a_batch_and_a_stream_report_what_a_local_run_does(spark: SparkSession, tmp_path: Path) -> None:
    frame = _frame(spark)
    frame.coalesce(1).write.parquet(str(tmp_path / "events"))
    stream = stream_of_schema(frame.schema, "events", "ts")
    assert [field.ddl for field in stream.fields][-1].startswith("struct<id:bigint,at:timestamp,day:date,")
    programs = compile_sources([Source("rules", RULE)], {"events": stream}).rule_set
    expected = match_file(programs, tmp_path / "events").matches.to_pylist()
    assert [row["n"] for row in expected] == [1, 1, 1, 1]
    assert expected[0]["event"]["price"] == Decimal("0.10")
    assert expected[0]["event"]["raw"] == "AP8="
    assert expected[0]["event"]["body"] == (
        '{"id":7,"at":"2024-01-01T00:00:01.000000Z","day":"2024-01-01","cost":1.50,'
        '"more":{"x":0.5,"y":null},"list":[{"x":1},null]}'
    )
    assert comparable(spark_rows(detect(frame, programs))) == comparable(expected)
    reader = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "events"))
    found = drain(detect(reader, programs), "opaque", tmp_path / "checkpoint")
    assert comparable(found) == comparable(expected)
