"""Output -> files on a local disk, in the workers that have it as Arrow already: all sinks in one pass.

Spark's own writer would make rows of matches first, four microseconds each, and takes a job for each sink,
which would have to be preceded by keeping the output: half a second in each micro-batch.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from spark_runtime.layout import TEXT
from spark_runtime.operator import COUNTS, KIND, MATCH, MATCHES_COLUMN, OUTPUT_SCHEMA, carried_schema
from spark_runtime.parcels import table_of_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """What goes into one folder: the output of one kind, as a file for each partition."""

    kind: str  # MATCH, or one whose texts are JSON objects with the columns of `schema`
    folder: Path
    file_format: str  # json (not for matches) or parquet
    schema: pa.Schema

    @property
    def hidden(self) -> Path:
        """Where the folder is until it is whole."""
        return self.folder.with_name(f".{self.folder.name}")

    def write(self, path: Path, rows: Sequence[Any]) -> None:
        """Write packed matches or texts as a file."""
        if self.file_format == "json":
            path.write_text("".join(f"{text}\n" for text in rows), encoding="utf-8")
            return
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, self.schema) as writer:
            for table in self._tables(rows):
                writer.write_table(table)

    def _tables(self, rows: Sequence[Any]) -> Iterator[pa.Table]:
        if self.kind == MATCH:
            carried = carried_schema(self.schema)
            yield from (table_of_bytes(data, carried).cast(self.schema) for data in rows)
        elif rows:
            objects = [json.loads(text) for text in rows]
            columns = [pa.array([row.get(name) for row in objects]) for name in self.schema.names]
            yield pa.table(columns, names=self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes the output of one partition: the function that runs in the workers."""

    parts: tuple[Part, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows of output; yield the texts of those that are counts."""
        rows = pa.Table.from_batches(batches, OUTPUT_SCHEMA).to_pylist()
        context = TaskContext.get()
        assert context is not None
        for part in self.parts:
            column = MATCHES_COLUMN if part.kind == MATCH else TEXT
            chosen = [row[column] for row in rows if row[KIND] == part.kind]
            if chosen:
                name = f"part-{context.partitionId():05}.{part.file_format}"
                part.hidden.mkdir(parents=True, exist_ok=True)
                # No attempt of the task is in the way of another.
                unfinished = part.hidden / f".{name}.{context.taskAttemptId()}"
                part.write(unfinished, chosen)
                unfinished.replace(part.hidden / name)
        counts = [row[TEXT] for row in rows if row[KIND] == COUNTS]
        yield pa.RecordBatch.from_arrays([pa.array(counts, pa.string())], [TEXT])


def can_write(file_format: str, kind: str, schema: pa.Schema) -> bool:
    """Say whether workers can write output of `kind`; JSON of matches and nested ones are left to Spark."""
    if kind != MATCH:
        return True
    return file_format == "parquet" and not any(pa.types.is_nested(field.type) for field in schema)


def write_parts(output: DataFrame, parts: Sequence[Part], *, are_all_made: bool) -> list[str]:
    """Compute `output` and write `parts` of it; return the texts of the rows that are counts.

    A folder takes the place of what was there when it is whole. Without rows there is none, unless
    `are_all_made`.
    """
    for part in parts:
        shutil.rmtree(part.hidden, ignore_errors=True)
    texts = [row[0] for row in output.mapInArrow(PartWriter(tuple(parts)), f"{TEXT} string").collect()]
    for part in parts:
        if are_all_made and not part.hidden.exists():
            part.hidden.mkdir(parents=True)
            if part.file_format == "parquet":  # else nobody could tell the columns
                part.write(part.hidden / "part-00000.parquet", [])
        if part.hidden.exists():
            (part.hidden / "_SUCCESS").touch()
            shutil.rmtree(part.folder, ignore_errors=True)
            part.hidden.rename(part.folder)
    return texts
