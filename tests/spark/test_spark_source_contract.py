"""What each source that only Spark can read promises (`spark_runtime.sources.protocol.SparkSource`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import InputError
from cep.formats.files import Reading
from cep.formats.registry import FORMATS
from cep.rulebook import compile_rulebook, load_rulebook
from cep.schema.stream import Field, Stream
from spark_runtime import run_pipeline
from spark_runtime.dataflow.by_spark import FilesOfSpark, RateSource
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.sources.protocol import Source, SparkSource
from spark_runtime.sources.registry import SOURCES

pytestmark = pytest.mark.spark

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
RATE = Stream("s", (Field("value", "bigint"), Field("timestamp", "timestamp")), "timestamp")
START = datetime(2024, 5, 1, tzinfo=UTC)
STREAMS = "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp}}}"
OF_RATE = "streams: {s: {event_time: timestamp, schema: {value: bigint, timestamp: timestamp}}}"


def write(file: Path, file_format: str, ids: list[int], name: str = "id") -> None:
    file.parent.mkdir(exist_ok=True)
    times = [START + timedelta(seconds=number) for number in ids]
    if file_format == "parquet":
        pq.write_table(pa.table({name: ids, "ts": pa.array(times, pa.timestamp("us", "UTC"))}), file)
    elif file_format == "csv":
        lines = "".join(f"{number},{time.isoformat()}\n" for number, time in zip(ids, times, strict=True))
        file.write_text(f"{name},ts\n{lines}")
    else:
        rows = [{name: number, "ts": time.isoformat()} for number, time in zip(ids, times, strict=True)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def files(file_format: str) -> Callable[[Path], SparkSource]:
    def made(folder: Path) -> SparkSource:
        for number in range(3):
            write(folder / "in" / f"{number}.{file_format}", file_format, [2 * number, 2 * number + 1])
        return FilesOfSpark(STREAM, f"file://{folder}/in", file_format, Reading(in_worker=True))

    return made


def rate(folder: Path) -> SparkSource:
    return RateSource(RATE, Reading(in_worker=True), 5)


FILES = tuple(FORMATS.built_in)
BY_NAME: dict[str, Callable[[Path], SparkSource]] = {**{name: files(name) for name in FILES}, "rate": rate}


def flow(folder: Path, streams: str = STREAMS, column: str = "id") -> Dataflow:
    (folder / "streams.yaml").write_text(streams)
    (folder / "r.cep").write_text(
        f"RULE r FROM s PARTITION BY {column} PATTERN a DEFINE a AS {column} >= 0 MEASURES a.{column} AS n"
    )
    return Dataflow(compile_rulebook(load_rulebook([folder / "r.cep"])).rule_set, 2)


def test_each_source_that_is_no_source_of_ours_is_tested_here() -> None:
    assert "rate" in SOURCES.built_in
    assert set(BY_NAME) == {*FORMATS.built_in, "rate"}


@pytest.mark.parametrize("name", BY_NAME)
def test_events_come_as_parcels_of_the_rules(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source = BY_NAME[name](tmp_path)
    assert isinstance(source, SparkSource)
    assert not isinstance(source, Source)
    of_rate = name not in FILES
    made = flow(tmp_path, OF_RATE, "value") if of_rate else flow(tmp_path)
    stream = source.parcels(spark, made, is_stream=True)
    batch = source.parcels(spark, made, is_stream=False)
    assert stream.isStreaming
    assert batch.isStreaming is of_rate  # Spark's generator is a stream in any mode
    assert stream.schema == batch.schema
    if not of_rate:
        assert batch.count() > 0


@pytest.mark.parametrize("name", FILES)
def test_a_stream_reads_each_event_once_also_when_it_is_started_again(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    BY_NAME[name](tmp_path)
    flow(tmp_path)
    file = tmp_path / "p.yaml"
    source = f"source: {{stream: s, format: {name}, path: 'file://{tmp_path}/in'}}"
    file.write_text(
        f"rules: [r.cep]\n{source}\nsinks: [{{format: json, path: out}}]\ncheckpoint: checkpoint\n"
    )

    def events() -> int:
        return run_pipeline(file, console=Console(file=StringIO()), quiet=True).counts.events

    assert events() == 6
    assert events() == 0
    write(tmp_path / "in" / f"9.{name}", name, [50, 51])
    assert events() == 2
    lines = [line for part in (tmp_path / "out").rglob("part-*") for line in part.read_text().splitlines()]
    found = [json.loads(line)["n"] for line in lines]
    assert sorted(found) == sorted(set(found))
    assert set(found) >= {*range(6)}


def test_columns_that_are_not_those_of_the_stream_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "0.parquet", "parquet", [1], name="other")
    wrong: list[SparkSource] = [
        FilesOfSpark(STREAM, f"file://{tmp_path}/in", "parquet", Reading(in_worker=True)),
        RateSource(STREAM, Reading(in_worker=True), 1),
    ]
    for source in wrong:
        with pytest.raises(InputError):
            source.parcels(spark, flow(tmp_path), is_stream=False)
