"""Where events come from: files of JSON lines, CSV or Parquet, and Spark's rate source.

A source becomes parcels (`spark_runtime.parcels`): events for the programs, and what was refused, on its way
to the dead letters. Files are read in the workers (`spark_runtime.file_readers`), by the same code as without
Spark: bad lines are told with the same words, and no event becomes a row of the JVM. From file systems that
only Spark knows lines or rows come through the JVM, as from the rate source.
"""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader

from cep import dead_letter
from cep.files import Format, find_files
from cep.local import keys_of, streams_of
from cep.schema import Stream
from spark_runtime.dataflow import Dataflow
from spark_runtime.file_readers import FileReader, LineReader
from spark_runtime.layout import REFUSED, TEXT, Layout
from spark_runtime.pipeline_file import SourceSpec
from spark_runtime.schema import quoted, typed_events

_FILE_DDL = "path string, modificationTime timestamp, length bigint, content binary"
"""Columns of Spark's format `binaryFile`; what is not asked for is not read."""


def source_parcels(
    spark: SparkSession, spec: SourceSpec, flow: Dataflow, *, is_stream: bool, may_be_empty: bool = False
) -> DataFrame:
    """Return the parcels of a source for the programs of `flow`.

    `may_be_empty`: files of text may come later.

    Raises
    ------
    InputError
        The path does not exist, or its columns are not those of the stream.
    """
    stream = streams_of(flow.programs)[spec.stream]
    if spec.file_format == "rate":
        rate = spark.readStream.format("rate").option("rowsPerSecond", spec.rows_per_second).load()
        return flow.packed(flow.rows(checked_events(rate, flow.layout, stream, has_files=False), stream))
    if not is_remote(spec):
        is_waiting = may_be_empty and spec.file_format != "parquet" and Path(spec.path).is_dir()
        if not is_waiting:
            find_files(spec.path, Format(spec.file_format))
        paths = _paths(spark, spec, is_stream)
        return flow.read(paths, FileReader(flow.packer, stream, Format(spec.file_format)))
    if spec.file_format != "parquet":
        return _read_lines(spark, spec, flow, stream, is_stream)
    frame = _parquet(spark, spec, stream, is_stream)
    return flow.packed(flow.rows(checked_events(frame, flow.layout, stream, has_files=True), stream))


def is_remote(spec: SourceSpec) -> bool:
    """Say whether only Spark knows the file system."""
    return "://" in spec.path


def is_counted_by_spark(spec: SourceSpec) -> bool:
    """Say whether the events of a source are rows of Spark's, and not counted by a reader."""
    return spec.file_format == "rate" or (spec.file_format == "parquet" and is_remote(spec))


def _paths(spark: SparkSession, spec: SourceSpec, is_stream: bool) -> DataFrame:
    if not is_stream:
        return spark.read.format("binaryFile").load(spec.path).select("path")
    reader, folder = _file_stream(spark.readStream.schema(_FILE_DDL).format("binaryFile"), spec)
    return reader.load(folder).select("path")


def _read_lines(
    spark: SparkSession, spec: SourceSpec, flow: Dataflow, stream: Stream, is_stream: bool
) -> DataFrame:
    if not is_stream:
        lines = spark.read.option("lineSep", "\n").text(spec.path)
    else:
        reader, folder = _file_stream(spark.readStream.option("lineSep", "\n"), spec)
        lines = reader.text(folder)
    columns = lines.select(F.col("value").cast("binary"), F.col("_metadata.file_path").alias("path"))
    return flow.read(columns, LineReader(flow.packer, stream, Format(spec.file_format)))


def _parquet(spark: SparkSession, spec: SourceSpec, stream: Stream, is_stream: bool) -> DataFrame:
    frame = spark.read.parquet(spec.path)
    if not is_stream:
        return frame
    names = [field.name for field in stream.fields]
    schema = T.StructType([field for field in frame.schema if field.name in names])
    reader, folder = _file_stream(spark.readStream.schema(schema), spec)
    return reader.parquet(folder)


def _file_stream(reader: DataStreamReader, spec: SourceSpec) -> tuple[DataStreamReader, str]:
    """Return a reader of the source's files, and its path. Of a stream Spark reads folders only."""
    if spec.max_files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", spec.max_files_per_trigger)
    path = Path(spec.path)
    if is_remote(spec) or not path.is_file():
        return reader, spec.path
    return reader.option("pathGlobFilter", re.sub(r"([\\*?\[\]{}])", r"\\\1", path.name)), str(path.parent)


def checked_events(frame: DataFrame, layout: Layout, stream: Stream, *, has_files: bool) -> DataFrame:
    """Return columns as typed events; `REFUSED` says which of them are dead letters, `TEXT` is the letter.

    The small number is what later filters read: Spark copies the definition of what a filter reads into it,
    and one that holds the JSON of the letter is computed for every event, in a method too large for the JIT.
    """
    keys = keys_of(layout.programs, stream)
    place = []
    if has_files:
        place = [
            F.col("_metadata.file_path").alias("_path"),
            (F.col("_metadata.row_index") + 1).alias("_position"),
        ]
    events = typed_events(frame, stream, *place)
    time = quoted(stream.event_time)
    without_key = reduce(
        lambda a, b: a & b,
        [reduce(lambda a, b: a | b, [quoted(name).isNull() for name in key]) for key in keys],
    )
    is_outside = (time < stream.min_valid_us) | (time >= stream.max_valid_us)
    refused = F.when(time.isNull(), 1).when(is_outside, 2).when(without_key, 3).otherwise(0)
    reasons = [
        dead_letter.null_event_time(stream),
        dead_letter.invalid_event_time(stream),
        dead_letter.null_key(keys),
    ]
    names = [field.name for field in stream.fields]
    raw = F.to_json(F.struct(*map(quoted, names)), {"ignoreNullFields": "false"})
    letter = F.struct(
        F.element_at(F.array(*map(F.lit, reasons)), F.col(REFUSED)).alias("reason"),
        (_plain_path(F.col("_path")) if has_files else F.lit("rate")).alias("source"),
        (F.col("_position") if has_files else F.lit(0).cast("bigint")).alias("position"),
        raw.alias("raw"),
    )
    text = F.when(F.col(REFUSED) != 0, F.to_json(letter))
    return events.withColumn(REFUSED, refused).select(*map(quoted, names), REFUSED, text.alias(TEXT))


def _plain_path(path: SparkColumn) -> SparkColumn:
    # A plus sign is itself in a file's address, a space in a form's.
    plain = F.url_decode(F.regexp_replace(path, r"\+", "%2B"))
    return F.regexp_replace(plain, "^file:(//)?", "")
