"""The state of streams that Java keeps in memory. Only for the driver."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from spark_runtime.compat.driver import forget_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forget_ended(spark: SparkSession) -> None:
    """Make Java drop the state of ended streams, unless another stream is running.

    Spark keeps it, and its maintenance writes snapshots of it later. If the checkpoint's folder has been
    replaced by then, they would be mistaken for state of the new checkpoint. This affects the Java of this
    process, not executors on other machines.
    """
    with suppress(Exception):  # a dead Java keeps nothing
        jvm: Any = spark._jvm  # PySpark has no such call
        if not spark.streams.active:
            forget_state(jvm)
