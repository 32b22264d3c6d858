from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import spark_runtime
from tests.spark.connect_server import IS_REMOTE, connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTION = "the function of foreachBatch runs in the server, see connect.py"
_PLAN = "it reads a plan of Spark, in Java"
_PIPELINE = "a pipeline needs a driver of its own"
_FILES = "it writes by Java's file systems"
_SESSION = "it starts a session with Java in a process of its own"

NOT_REMOTE = {
    "test_detect_gives_what_corrects_matches": _FUNCTION,
    "test_detect_all_gives_only_what_is_late_for_good": _FUNCTION,
    "test_a_stream_gives_late_events_and_counts_in_each_micro_batch": _FUNCTION,
    "test_the_plan_reads_the_source_once_and_shuffles_once": _PLAN,
    "test_a_stream_that_is_killed_goes_on_with_each_match_once": _PIPELINE,
    "test_a_micro_batch_that_is_killed_is_repeated_with_the_static_table_that_it_had": _PIPELINE,
    "test_ctrl_c_stops_a_stream_and_prints_the_summary": _PIPELINE,
    "test_a_signal_while_java_starts_stops_the_stream_and_leaves_no_java": _PIPELINE,
    "test_a_pipeline_reads_a_format_and_writes_a_sink_of_a_plug_in": _PIPELINE,
    "test_a_stream_reads_a_source_of_a_plug_in_partition_by_partition": _PIPELINE,
    "test_events_come_as_parcels_of_the_rules": "it reads the source of a pipeline",
    "test_runner_contract.py": _PIPELINE,
    "test_metrics.py": _PIPELINE,
    "test_replay.py": _PIPELINE,
    "test_own_session.py": _SESSION,
    "test_session.py": _SESSION,
    "test_history.py": "the command starts a session with Java in this process",
    "test_a_folder_that_only_spark_reaches_tells_its_micro_batches": _FILES,
    "test_files_are_replaced_in_one_step_and_created_once": _FILES,
    "[remote]": _FILES,
    "test_the_manager_of_files_of_checkpoints_exists": "it asks Java for a class",
    "test_java_forgets_the_state_of_streams_at_once": "it asks Java for its state stores",
    "test_a_listener_tells_where_the_watermark_is": "it waits for the listeners in Java",
}
"""Name of a test, of a file of tests, or the parameter `name` -> why it does not run with Spark Connect."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            original = getattr(item, "originalname", item.name)
            parameters = (
                item.callspec.params
                if isinstance(item, pytest.Function) and hasattr(item, "callspec")
                else {}
            )
            names = (original, f"[{parameters.get('name')}]", item.path.name)
            why = next(filter(None, map(NOT_REMOTE.get, names)), None)
            if IS_REMOTE and why:
                item.add_marker(pytest.mark.skip(reason=why))


def no_pipeline(*_: Any, **__: Any) -> None:
    pytest.skip(_PIPELINE)


if IS_REMOTE:  # before the modules of tests import it
    spark_runtime.run_pipeline = no_pipeline  # type: ignore[assignment]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    from pyspark.sql import SparkSession

    from spark_runtime import session

    conf = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        # By default state stores are looked after every minute, longer than any test takes.
        "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    }
    if IS_REMOTE:
        with connect_server(conf) as address:
            remote = SparkSession.builder.remote(address).getOrCreate()
            yield remote
            remote.stop()
        return
    running = session(conf, name="tests", is_short=True)
    yield running
    running.stop()
