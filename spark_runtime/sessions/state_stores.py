"""The state that Java keeps in memory of streams. On the driver only."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forget_ended(spark: SparkSession) -> None:
    """Let Java forget the state of streams that have ended, unless another stream runs.

    Spark keeps it, and its maintenance writes snapshots of it later. If the folder of the checkpoint has been
    replaced by then, they would be taken for state of the checkpoint that is there now. This reaches the Java
    of this process, not executors on other machines.
    """
    with suppress(Exception):  # Java may be dead; then it keeps nothing
        jvm: Any = spark._jvm  # PySpark has no such call
        if not spark.streams.active:
            jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
