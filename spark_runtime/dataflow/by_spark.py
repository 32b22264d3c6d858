"""Sources that only Spark can read: files of other file systems, and Spark's rate source. On the driver only.

Spark reads lines or rows, and the workers turn them into events and dead letters (`frame_readers`).
Spark's own log records what a stream has read, by the path of each file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader

from cep.errors import InputError
from cep.formats.chunks import without
from cep.formats.files import Reading
from cep.formats.protocol import FileFormat
from cep.formats.registry import FORMATS
from cep.schema.stream import Stream
from spark_runtime.dataflow.frame_readers import MISFIT, PATH, POSITION, LineReader, RowReader
from spark_runtime.dataflow.schema import misfits, typed_events, value_at
from spark_runtime.sources.protocol import ReadsRows

_RATE = "rate"


@dataclass(frozen=True, slots=True)
class FilesOfSpark:
    """A file, a folder of files or a pattern of paths, read by Spark; see `SparkSource`."""

    stream: Stream
    path: str
    file_format: str
    reading: Reading
    max_files: int | None = None

    def parcels(self, spark: SparkSession, flow: ReadsRows, *, is_stream: bool) -> DataFrame:
        """Return the events as parcels; raise InputError if the columns are not those of the stream."""
        found = FORMATS.get(self.file_format)
        if not isinstance(found, FileFormat):
            reader = LineReader(flow.packer, self.stream, self.file_format, self.reading)
            return flow.read(self._lines(spark, is_stream), reader)
        if not found.name_in_spark:
            raise InputError(
                "E0685",
                f"Spark cannot read files of the format `{self.file_format}`: `{self.path}`",
                "copy them to a disk of this machine, and keep the checkpoint on one",
            )
        pattern = self.reading.pattern
        inside = without(self.stream, pattern.names if pattern is not None else ())
        place = [
            F.col("_metadata.file_path").alias(PATH),
            (F.col("_metadata.row_index") + 1).alias(POSITION),
        ]
        frame = self._rows(spark, found.name_in_spark, inside, is_stream)
        rows = typed_rows(frame, inside, place)
        return flow.read(rows, RowReader(flow.packer, self.stream, self.reading))

    @property
    def _path(self) -> str:
        """The path; a pattern is in Spark's syntax."""
        return self.path if self.reading.pattern is None else self.reading.pattern.glob

    def _lines(self, spark: SparkSession, is_stream: bool) -> DataFrame:
        if is_stream:
            reader, folder = self._stream(spark.readStream.option("lineSep", "\n"))
            lines = reader.text(folder)
        else:
            lines = spark.read.option("lineSep", "\n").text(self._path)
        return lines.select(F.col("value").cast("binary"), F.col("_metadata.file_path").alias(PATH))

    def _rows(self, spark: SparkSession, name_in_spark: str, stream: Stream, is_stream: bool) -> DataFrame:
        frame = spark.read.format(name_in_spark).load(self._path)
        if not is_stream:
            return frame
        names = [field.place[0] for field in stream.fields]
        schema = T.StructType([field for field in frame.schema if field.name in names])
        reader, folder = self._stream(spark.readStream.schema(schema))
        return reader.format(name_in_spark).load(folder)

    def _stream(self, reader: DataStreamReader) -> tuple[DataStreamReader, str]:

        reader = reader.option("maxFileAge", "36500d")
        if self.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files)
        path = Path(self._path)
        if "://" in self._path or not path.is_file():
            return reader, self._path
        return reader.option("pathGlobFilter", re.sub(r"([\\*?\[\]{}])", r"\\\1", path.name)), str(
            path.parent
        )


@dataclass(frozen=True, slots=True)
class RateSource:
    """Spark's generator of rows; see `SparkSource`."""

    stream: Stream
    reading: Reading
    rows_per_second: int

    def parcels(self, spark: SparkSession, flow: ReadsRows, *, is_stream: bool) -> DataFrame:
        """Return the rows as parcels; they are a stream in any mode."""
        rows = spark.readStream.format(_RATE).option("rowsPerSecond", self.rows_per_second).load()
        place = [F.lit(_RATE).alias(PATH), F.lit(0).cast("bigint").alias(POSITION)]
        return flow.read(
            typed_rows(rows, self.stream, place), RowReader(flow.packer, self.stream, self.reading)
        )


def typed_rows(rows: DataFrame, stream: Stream, place: Sequence[SparkColumn]) -> DataFrame:
    """Return rows in the form that `RowReader` reads; `place` contains the columns `PATH` and `POSITION`."""
    values = [F.when(bad, value_at(field)).alias(field.name) for field, bad in misfits(rows, stream).items()]
    nothing = F.lit(None).cast("string")
    texts = F.to_json(F.struct(*values)) if values else nothing
    misfit = F.when(texts != F.lit("{}"), texts).otherwise(nothing)
    return typed_events(rows, stream, *place, misfit.alias(MISFIT))
