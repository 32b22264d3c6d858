"""What the operator relies on and no documentation of Spark promises: run this for each version supported.

`applyInPandasWithState` with event-time timeouts drops rows behind Spark's watermark by the watermarked
column of its input. `Dataflow` gives it a column that is never late, so that late events reach the engine.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cep.counts import Counts
from spark_runtime.dataflow.dataflow import Dataflow, drop_unusable
from spark_runtime.dataflow.schema import typed_events
from spark_runtime.pipeline.failures import as_cep_error
from spark_runtime.wire.output import COUNTS, KIND, MATCH, MATCHES_COLUMN, carried_schema
from spark_runtime.wire.parcels import table_of_bytes
from tests.spark.events import (
    ROOM_RULE,
    RULES,
    START,
    STREAM,
    compiled,
    drain,
    far_future_event,
    stream_of_files,
    write_files,
)


def test_the_contract_was_tried_on_this_version_of_pyspark() -> None:
    assert pyspark.__version__.startswith(("3.5.", "4.0.", "4.1.", "4.2.", "4.3."))


def operator_output(frame: DataFrame, rules: str = RULES, n_groups: int = 2) -> DataFrame:
    programs = compiled(rules)
    flow = Dataflow(programs, n_groups, is_batch=not frame.isStreaming)
    events = drop_unusable(typed_events(frame, STREAM), STREAM)
    return flow.output(flow.prepared({STREAM: events}))


def event(number: int, seconds: float, sensor: str, kind: str) -> dict[str, Any]:
    quiet = dict.fromkeys((field.name for field in STREAM.fields), None)
    return {**quiet, "id": number, "ts": START + timedelta(seconds=seconds), "sensor": sensor, "kind": kind}


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row[KIND] == kind]


def matches_in(rows: list[dict[str, Any]], rules: str = RULES) -> list[dict[str, Any]]:
    schema = carried_schema(compiled(rules).match_schema)
    tables = [table_of_bytes(row[MATCHES_COLUMN], schema) for row in of_kind(rows, MATCH)]
    return [row for table in tables for row in table.to_pylist()]


def test_late_rows_reach_the_operator_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    # The second file's event lies before what the first one's latest event leaves open.
    events = [event(1, 1000, "s1", "c"), event(2, 100, "s1", "c")]
    write_files(spark, tmp_path / "events", events, 2)
    rows = drain(operator_output(stream_of_files(spark, tmp_path / "events")), "late", tmp_path / "c")
    counts = Counts()
    for row in of_kind(rows, COUNTS):
        counts.add(Counts.of_json(row["_text"]))
    assert counts.late_of == {STREAM.name: 1}


def test_a_group_without_events_gets_its_timeout_when_the_watermark_of_others_passes(
    spark: SparkSession, tmp_path: Path
) -> None:
    # s1 asks and is silent; only other sensors, in all groups, go on. `availableNow` still comes to an end.
    events = [event(1, 0, "s1", "c"), *(event(10 + k, 500, f"s{k}", "b") for k in range(2, 12))]
    write_files(spark, tmp_path / "events", events[:1], 1)
    more = write_files(spark, tmp_path / "more", events[1:], 1)
    more.write.mode("append").parquet(str(tmp_path / "events"))
    rows = drain(operator_output(stream_of_files(spark, tmp_path / "events")), "idle", tmp_path / "c")
    (match,) = matches_in(rows)
    assert (match["rule"], match["sensor"]) == ("silence", "s1")


def test_events_that_no_rule_needs_still_move_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    events = [event(1, 0, "s1", "c"), far_future_event()]
    write_files(spark, tmp_path / "events", events, 2)
    rows = drain(operator_output(stream_of_files(spark, tmp_path / "events")), "heartbeat", tmp_path / "c")
    assert [row["rule"] for row in matches_in(rows)] == ["silence"]


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    events = [event(1, 0, "s1", "c"), event(2, 1, "s1", "a"), event(3, 2, "s1", "a")]
    events = [{**item, "value": 1.0} for item in events]
    rest = [{**event(4, 3, "s1", "b"), "value": 9.0}, far_future_event()]
    folder = tmp_path / "events"
    write_files(spark, folder, events, 1)
    first = drain(operator_output(stream_of_files(spark, folder)), "first", tmp_path / "c")
    assert matches_in(first) == []
    write_files(spark, tmp_path / "more", rest, 1).write.mode("append").parquet(str(folder))
    second = drain(operator_output(stream_of_files(spark, folder)), "second", tmp_path / "c")
    assert sorted(row["rule"] for row in matches_in(second)) == ["rise", "silence"]


def test_state_of_another_number_of_key_groups_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    events = [event(k, 1, f"s{k}", "c") for k in range(9)]  # some for each group
    write_files(spark, folder, events, 1)
    drain(operator_output(stream_of_files(spark, folder)), "two", tmp_path / "c")
    write_files(spark, tmp_path / "more", events, 1).write.mode("append").parquet(str(folder))
    with pytest.raises(StreamingQueryException) as caught:
        drain(operator_output(stream_of_files(spark, folder), n_groups=1), "one", tmp_path / "c")
    assert str(as_cep_error(caught.value)) == (
        "error[E0704]: the checkpoint has 2 key groups, this run has 1\n"
        "help: set spark.sql.shuffle.partitions (or key_groups) to 2, or start with an empty checkpoint"
    )


def test_workers_load_neither_the_compiler_nor_the_parser(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", [event(1, 0, "s1", "c")], 1)
    flow = Dataflow(compiled(RULES), 2, is_batch=True)
    parcels = flow.prepared({STREAM: drop_unusable(typed_events(frame, STREAM), STREAM)})
    operate = flow.operator.batch

    # In the operator's own task: a task that only looks may be given a worker that never ran the operator.
    def modules(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        n_rows = sum(batch.num_rows for batch in operate(batches))
        yield pa.RecordBatch.from_pydict({"name": sorted(sys.modules), "n_rows": [n_rows] * len(sys.modules)})

    rows = parcels.repartition(1).mapInArrow(modules, "name string, n_rows bigint").collect()
    assert all(row.n_rows > 0 for row in rows)
    loaded = {row.name for row in rows}
    assert "spark_runtime.operator.operator" in loaded
    assert "cep.engine.matching.matcher" in loaded
    forbidden = ("pyparsing", "networkx", "cep.compiler", "cep.language", "cep.rulebook")
    assert [name for name in loaded if name.startswith(forbidden)] == []


def test_the_plan_reads_the_source_once_and_shuffles_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", [event(1, 0, "s1", "c")], 1)
    output = operator_output(frame, RULES + ROOM_RULE)
    plan = output._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan") == 1
    assert plan.count("Exchange") == 1
