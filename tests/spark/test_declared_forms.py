"""Units, formats, zones, nested fields and decimals mean in a DataFrame what they mean in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.errors import InputError, Source
from cep.formats.files import read_events
from cep.schema.stream import Stream
from cep.settings.schema_file import parse_streams
from spark_runtime import detect
from spark_runtime.compat.driver import to_arrow
from spark_runtime.dataflow.frame_readers import with_texts
from spark_runtime.dataflow.schema import misfits, typed_events
from tests.unit.schema import test_array_elements as array_elements

SCHEMA = """
      ts: {type: timestamp, unit: milliseconds}
      sec: {type: timestamp, unit: seconds}
      ns: {type: timestamp, unit: nanoseconds}
      frac: {type: timestamp, unit: seconds}
      nanos: {type: timestamp, unit: nanoseconds}
      text: {type: timestamp, format: "%d.%m.%Y %H:%M", zone: Europe/Berlin}
      zoned: {type: timestamp, format: "%Y-%m-%dT%H:%M%z"}
      day: {type: date, format: "%d/%m/%y"}
      local: {type: timestamp, zone: Europe/Berlin}
      card: {type: string, field: n.card_id}
      deep: {type: bigint, field: n.more.x}
      price: double
      small: {type: float, field: Small}
      as_time: {type: timestamp, unit: seconds}
"""
DDL = (
    "ts bigint, sec int, ns bigint, frac double, nanos double, text string, zoned string, day string, "
    "local timestamp_ntz, n struct<card_id: string, more: struct<x: int>>, price decimal(20,2), "
    "Small decimal(10,3), as_time timestamp"
)
MAY = 1_714_557_600


def declared() -> Stream:
    text = f"streams:\n  s:\n    event_time: ts\n    schema:{SCHEMA}"
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert problems == []
    return streams["s"]


def rows() -> list[tuple[Any, ...]]:
    """Return rows of `DDL`: ordinary ones, hours twice and left out, and what is no time."""
    local = datetime(2024, 5, 1, 12)
    time = datetime(2024, 5, 1, 10, tzinfo=UTC)
    good = (
        *(MAY * 1000 + 123, MAY, MAY * 10**9 + 123_456_789, MAY + 0.25, 1.5e18, "01.05.2024 12:00"),
        *("2024-05-01T12:00+02:00", "1/5/24", local, ("c1", (7,)), Decimal("12345678901234567.89")),
        *(Decimal("0.1"), time),
    )
    twice = (*good[:5], "27.10.2024 02:30", *good[6:8], datetime(2024, 10, 27, 2, 30), *good[9:])
    left_out = (*good[:5], "31.03.2024 02:30", *good[6:8], datetime(2024, 3, 31, 2, 30), *good[9:])
    odd = (
        *(MAY * 1000, -1, -1, float("nan"), -1.5, "31.04.2024 12:00", "2024-05-01T12:00+24:00", "1/13/24"),
        *(None, ("c2", None), None, None, None),
    )
    large = (*(MAY * 1000, 2**31 - 1, -(2**63), 9.3e12, 9.3e30, "", " ", "", None, None, None, None, None),)
    rounded = (*good[:3], 0.0000005, 2.5, *good[5:])
    whole = (*good[:3], 171_455_760_013.0, -9_007_199_254_740_991.0, *good[5:])
    far = (253_402_300_800_000, *good[1:3], 253_402_300_800.0, *good[4:])
    return [good, twice, left_out, odd, large, rounded, whole, far]


def in_a_file(folder: Path, frame: DataFrame) -> list[dict[str, Any]]:
    """Return the events of `frame` as a file of Parquet gives them."""
    table = to_arrow(frame)
    at = table.schema.get_field_index("local")
    table = table.set_column(at, "local", table.column("local").cast(pa.timestamp("us")))
    pq.write_table(table, folder / "a.parquet")
    return [
        row for chunk in read_events(folder / "a.parquet", declared()) for row in chunk.events.to_pylist()
    ]


def test_a_dataframe_gives_the_values_that_a_file_gives(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(rows(), DDL)
    stream = declared()
    found = [row.asDict() for row in typed_events(frame, stream).collect()]
    is_bad = {field.name: flag for field, flag in misfits(frame, stream).items()}
    flags = [
        row.asDict() for row in frame.select(*(flag.alias(name) for name, flag in is_bad.items())).collect()
    ]
    bad = [{name for name, flag in row.items() if flag} for row in flags]
    assert bad == [
        set(),
        set(),
        set(),
        {"frac", "text", "zoned", "day"},
        {"frac", "nanos", "text", "zoned", "day"},
        set(),
        set(),
        {"ts", "frac"},
    ]
    sound = [row for row, names in zip(found, bad, strict=True) if not names]
    assert sound == in_a_file(tmp_path, frame)
    assert found[0] == {
        "ts": MAY * 10**6 + 123_000,
        "sec": MAY * 10**6,
        "ns": MAY * 10**6 + 123_456,
        "frac": MAY * 10**6 + 250_000,
        "nanos": 15 * 10**14,
        "text": MAY * 10**6,
        "zoned": MAY * 10**6,
        "day": 1_714_521_600_000_000,
        "local": MAY * 10**6,
        "card": "c1",
        "deep": 7,
        "price": 12345678901234567.89,
        "small": 0.10000000149011612,
        "as_time": MAY * 10**6,
    }
    assert (found[3]["sec"], found[3]["ns"], found[3]["nanos"], found[3]["deep"]) == (
        -1_000_000,
        -1,
        -1,
        None,
    )
    assert (found[4]["sec"], found[4]["ns"]) == ((2**31 - 1) * 10**6, -(2**63) // 1000)
    assert [found[row]["text"] for row in (1, 2)] == [found[row]["local"] for row in (1, 2)]
    us = F.expr(
        "timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01', "
        "convert_timezone('Europe/Berlin', 'UTC', local))"
    )
    of_spark = [row.us for row in frame.select(us.alias("us")).collect()]
    assert [row["local"] for row in found] == of_spark
    assert (found[5]["frac"], found[5]["nanos"]) == (0, 0)


def test_a_time_zone_of_the_session_changes_nothing(spark: SparkSession) -> None:
    frame = spark.createDataFrame(rows(), DDL)
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    expected = typed_events(frame, declared()).collect()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert typed_events(frame, declared()).collect() == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_rules_run_over_columns_of_other_forms(spark: SparkSession) -> None:
    times = F.array(F.lit(MAY * 1000), F.lit(MAY * 1000 + 60_000))
    frame = spark.createDataFrame(rows()[:1], DDL).withColumn("ts", F.explode(times))
    rule = """
    RULE r FROM s PARTITION BY card PATTERN a -> b WITHIN 1 HOUR
    DEFINE b AS text = a.text AND price > 1
    MEASURES b.text AS text, b.deep AS deep
    """
    (match,) = detect(frame, rule, streams={"s": declared()}).collect()
    assert (match.card, match.deep) == ("c1", 7)
    assert match.match_end.timestamp() - match.match_start.timestamp() == 60


@pytest.mark.parametrize(
    ("column", "ddl", "text"),
    [
        (
            "ts",
            "string",
            "column `ts` of the events is string, the stream declares timestamp (unit: milliseconds)\n"
            "help: the column must be an integer, a double or a timestamp that fits; "
            "cast it, or change the declaration",
        ),
        (
            "zoned",
            "bigint",
            "column `zoned` of the events is bigint, "
            "the stream declares timestamp (format: %Y-%m-%dT%H:%M%z)\n"
            "help: the column must be a string or a timestamp that fits; cast it, or change the declaration",
        ),
        (
            "price",
            "bigint",
            "column `price` of the events is bigint, the stream declares double\n"
            "help: the column must be a floating-point number that fits; cast it, or change the declaration",
        ),
    ],
)
def test_a_column_of_another_type_is_one_clear_error(
    spark: SparkSession, column: str, ddl: str, text: str
) -> None:
    frame = spark.createDataFrame([], DDL).withColumn(column, F.lit(None).cast(ddl))
    with pytest.raises(InputError) as caught:
        typed_events(frame, declared())
    assert str(caught.value) == f"error[E0605]: {text}"


def test_a_nested_field_that_is_not_there_is_one_clear_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], DDL).withColumn("n", F.struct(F.lit("x").alias("card")))
    with pytest.raises(InputError, match=r"E0604.* the events have no columns `n.card_id`, `n.more.x`"):
        typed_events(frame, declared())


def test_elements_of_arrays_are_those_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    array_elements.write_parquet(tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    stream = array_elements.stream_of()
    found, reasons = with_texts(to_arrow(typed_events(frame, stream).orderBy("ts")), stream)
    assert (found.to_pylist(), reasons) == (array_elements.expected(), {})
