"""What `spark_runtime.compat` promises, on each version of PySpark; forms for older versions run on all."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_runtime.compat import driver
from spark_runtime.compat.driver import (
    bigints,
    checkpoint_file_manager,
    condition_of,
    forget_state,
    pyspark_version,
    to_arrow,
)
from spark_runtime.event_time.upstream import _WATERMARKS, upstream

Bigints = Callable[[Callable[[pa.Array], pa.Array], pa.DataType], Callable[[Any], Any]]


def test_rows_as_arrow_have_null_and_nan_apart(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0,), (float("nan"),), (None,)], "x double")
    found = to_arrow(frame)
    assert found.schema.names == ["x"]
    assert (found.column("x").null_count, pc.sum(pc.is_nan(found.column("x"))).as_py()) == (1, 1)


def test_a_frame_without_rows_has_its_columns_in_arrow(spark: SparkSession) -> None:
    found = to_arrow(spark.createDataFrame([], "x double, y array<string>"))
    assert (found.num_rows, found.schema.field("x").type, found.schema.names) == (0, pa.float64(), ["x", "y"])


def test_streaming_operators_before_detect_are_found_and_those_of_a_joined_batch_are_not(
    spark: SparkSession,
) -> None:
    events = spark.readStream.format("rate").load()
    counted = spark.range(9).groupBy("id").count()
    joined = upstream(events.join(counted, events.value == counted.id), None, None)
    assert "Join" in joined.nodes
    assert "Aggregate" not in joined.nodes
    counts = events.withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    assert "Aggregate" in upstream(counts, None, None).nodes
    assert upstream(counts, None, None).nodes & set(_WATERMARKS)


@pytest.mark.parametrize("form", [bigints, driver._bigints_of_texts])
def test_texts_become_bigints_and_null_stays_null(spark: SparkSession, form: Bigints) -> None:
    def lengths(texts: pa.Array) -> pa.Array:
        large = pc.add(pc.utf8_length(texts).cast(pa.int64()), 2**62)
        return pc.if_else(pc.equal(texts, "none"), None, large)

    frame = spark.createDataFrame([("a",), (None,), ("",), ("none",), ("NaN",)], "t string")
    rows = frame.select(form(lengths, pa.string())(frame.t).alias("n")).collect()
    assert [row.n for row in rows] == [2**62 + 1, None, 2**62, None, 2**62 + 3]


@pytest.mark.parametrize("form", [bigints, driver._bigints_of_texts])
def test_times_without_a_zone_of_all_years_become_bigints(spark: SparkSession, form: Bigints) -> None:
    def microseconds(times: pa.Array) -> pa.Array:
        return times.cast(pa.timestamp("us")).view(pa.int64())

    times = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31), None]
    frame = spark.createDataFrame([(time,) for time in times], "t timestamp_ntz")
    rows = frame.select(form(microseconds, pa.timestamp("us"))(frame.t).alias("us")).collect()
    assert [row.us for row in rows] == [-62_135_596_800_000_000, -1, 253_402_214_400_000_000, None]


def test_times_after_the_last_year_are_none_in_the_form_for_older_versions(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp_ntz'9999-12-31 00:00:00' + interval 2 days as t")
    form = driver._bigints_of_texts(lambda times: times.view(pa.int64()), pa.timestamp("us"))
    assert [row.us for row in frame.select(form(frame.t).alias("us")).collect()] == [None]


def test_an_exception_has_its_condition(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.table("there_is_no_such_table").collect()  # Spark Connect asks its server only now
    assert condition_of(raised.value) == "TABLE_OR_VIEW_NOT_FOUND"


def test_the_manager_of_files_of_checkpoints_exists(spark: SparkSession) -> None:
    java: Any = spark._jvm
    name = checkpoint_file_manager()
    assert java.org.apache.spark.util.Utils.classForName(name, True, False).getName() == name


STORES = "org.apache.spark.sql.execution.streaming.state.StateStore"


def n_stores(java: Any) -> int:
    """Return the number of state stores that Java keeps."""
    singleton = java.org.apache.spark.util.Utils.classForName(f"{STORES}$", True, False)
    stores = singleton.getDeclaredField("loadedProviders")
    stores.setAccessible(True)
    n: int = stores.get(singleton.getField("MODULE$").get(None)).size()
    return n


def test_java_forgets_the_state_of_streams_at_once(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1,), (2,)], "x long").write.parquet(str(tmp_path / "in"))
    java: Any = spark._jvm
    for number in range(3):
        rows = spark.readStream.schema("x long").parquet(str(tmp_path / "in"))
        writer = rows.dropDuplicates(["x"]).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / f"c{number}")).start()
        try:
            query.processAllAvailable()
            assert n_stores(java) > 0  # Spark's maintenance would unload those of a query that has ended
            started = time.monotonic()
            forget_state(java)
            assert n_stores(java) == 0
            # `stop` of 4.2 and before may wait five minutes for Spark's maintenance, which waits for it.
            stops = pyspark_version() >= (4, 3)
            assert getattr(java, STORES).isMaintenanceRunning() is not stops
        finally:
            query.stop()
        assert time.monotonic() - started < 60
