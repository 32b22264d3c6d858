"""Matches -> Parquet files, in the workers that have them as Arrow already.

Spark's own writer would make rows of them first: four microseconds a match.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from spark_runtime.operator import carried_schema
from spark_runtime.parcels import table_of_bytes


@dataclass(frozen=True)
class PartWriter:
    """Writes the matches of one partition as a file of `folder`: the function that runs in the workers."""

    folder: str
    match_schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows of output that have matches; yield nothing."""
        import pyarrow.parquet as pq

        context = TaskContext.get()
        assert context is not None
        part = f"part-{context.partitionId():05}.parquet"
        # No attempt of the task is in the way of another.
        hidden = f"{self.folder}/.{part}.{context.taskAttemptId()}"
        carried = carried_schema(self.match_schema)
        parcels = [data for batch in batches for data in batch.column(0).to_pylist()]
        if parcels:
            with pq.ParquetWriter(hidden, self.match_schema) as writer:
                for data in parcels:
                    writer.write_table(table_of_bytes(data, carried).cast(self.match_schema))
            os.replace(hidden, f"{self.folder}/{part}")
        return iter(())


def can_write(schema: pa.Schema) -> bool:
    """Say whether all columns of matches leave the operator as values that Arrow can cast back."""
    return not any(pa.types.is_nested(field.type) for field in schema)


def write_parts(matches: DataFrame, folder: Path, schema: pa.Schema) -> None:
    """Write packed matches as files of `folder`, in place of what it was; it appears when it is whole."""
    hidden = folder.with_name(f".{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    matches.mapInArrow(PartWriter(str(hidden), schema), "nothing boolean").collect()
    (hidden / "_SUCCESS").touch()
    shutil.rmtree(folder, ignore_errors=True)
    hidden.rename(folder)
