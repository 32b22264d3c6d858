"""What only Spark Connect does: the function of `foreachBatch` runs in a Python that the server starts."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_runtime import detect_all
from tests.spark.events import (
    RULES,
    comparable,
    compiled,
    far_future_event,
    local_matches,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)


def started(found: DataFrame, folder: Path) -> StreamingQuery:
    """Start a stream whose micro-batches the server splits and writes."""
    matches, late = str(folder / "matches"), str(folder / "late")

    def deliver(batch: DataFrame, number: int) -> None:
        from spark_runtime import split

        parts = split(batch)
        parts.matches.write.mode("append").parquet(matches)
        parts.late.write.mode("append").parquet(late)

    while True:  # a test has its limit of time
        writer = found.writeStream.foreachBatch(deliver).trigger(availableNow=True)
        try:
            return writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        except PySparkException as error:
            # Spark waits ten seconds for that Python to start, which a busy machine may not manage.
            if "failed to connect back" not in str(error):
                raise
            time.sleep(5)  # the one that came too late ends


def test_foreach_batch_splits_what_was_found(spark: SparkSession, tmp_path: Path) -> None:
    programs = compiled(RULES)
    events = [*random_events(41, 600), far_future_event()]
    write_files(spark, tmp_path / "events", events, 2)
    folder = tmp_path / "events"
    started(detect_all(stream_of_files(spark, folder), programs), tmp_path).awaitTermination()
    # Only an event that a rule could use is reported as late.
    write_files(spark, tmp_path / "more", [{**events[0], "id": 20_001, "kind": "a", "value": 1.0}], 1)
    (tmp_path / "more/part-000.parquet").rename(folder / "part-900.parquet")
    started(detect_all(stream_of_files(spark, folder), programs), tmp_path).awaitTermination()
    expected = local_matches(programs, events)
    assert len(expected) > 20
    assert comparable(spark_rows(spark.read.parquet(str(tmp_path / "matches")))) == expected
    (late,) = spark_rows(spark.read.parquet(str(tmp_path / "late")))
    assert '"id": 20001' in late["event"]
