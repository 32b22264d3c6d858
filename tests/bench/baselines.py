"""Spark alone over the same files: the source by itself, and a stateful operator that only counts.

The operator is the one our own stands on, `applyInPandasWithState` by key group. "all columns" hands it
whole events, as an operator that filters in Python would need them; "three numbers" only id, time and amount:
the least that any operator could look at. Neither filters before the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.schema.stream import Stream
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.wire.key_groups import labels

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState


def events(
    spark: SparkSession, stream: Stream, folder: str, file_format: str, files_per_trigger: int | None
) -> DataFrame:
    """Return the events through Spark's own reader; a stream if `files_per_trigger` is given."""
    schema = ", ".join(f"`{field.name}` {field.ddl}" for field in stream.fields)
    if files_per_trigger is None:
        return spark.read.schema(schema).format(file_format).load(folder)
    reader = spark.readStream.schema(schema).format(file_format)
    return reader.option("maxFilesPerTrigger", files_per_trigger).load(folder)


def counted(frame: DataFrame, stream: Stream, columns: tuple[str, ...], n_groups: int) -> DataFrame:
    """Return the number of rows of each call of an operator that gets `columns` of all events."""
    number = F.pmod(F.hash("card_id"), F.lit(n_groups)) + 1
    group = F.element_at(F.array(*map(F.lit, labels(n_groups, n_groups))), number).alias("group")
    time = F.col(stream.event_time)
    marked = frame.withWatermark(stream.event_time, f"{stream.lateness_us // 1_000_000} seconds")
    chosen = [
        F.unix_micros(time).alias("time") if name == stream.event_time else F.col(name) for name in columns
    ]
    rows = marked.select(group, *chosen)
    return rows.groupBy("group").applyInPandasWithState(
        count_rows, "n bigint", "n bigint", "append", "NoTimeout"
    )


def count_rows(key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count the rows of one call into the state."""
    import pandas as pd

    n = sum(len(frame) for frame in frames)
    state.update((n + (state.get[0] if state.exists else 0),))
    yield pd.DataFrame({"n": [n]})


def run_stream(frame: DataFrame, checkpoint: str) -> tuple[float, ...]:
    """Run a streaming query over what there is, to nowhere; return the seconds of its micro-batches."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    durations = [progress["durationMs"] for progress in query.recentProgress]
    return tuple(ms["triggerExecution"] / 1000 for ms in durations if "addBatch" in ms)


class NoOp(KeyGroups):
    """In place of the engine: takes its rows in, keeps how many there were, gives nothing."""

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Count the rows of one call into the state."""
        n = 0 if state.hasTimedOut else sum(len(frame) for frame in frames)
        before = int.from_bytes(state.get[0], "little") if state.exists else 0
        state.update(((before + n).to_bytes(8, "little"),))
        return iter(())

    def batch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the rows of one partition in."""
        for _ in batches:
            pass
        return iter(())


class NoOpDataflow(Dataflow):
    """The plan of the rules, with `NoOp` for the operator."""

    @property
    def operator(self) -> KeyGroups:
        """The function that runs on the executors."""
        return NoOp(self.rules, self.n_groups)


def run_batch(frame: DataFrame) -> None:
    """Read everything once, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()
