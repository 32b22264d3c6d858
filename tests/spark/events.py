"""Random events and rules for the Spark tests, and the local run they are compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.match_file import match_chunks
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.compat.driver import to_arrow
from tests.spark.connect_server import IS_REMOTE

START = datetime(2024, 5, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
BIG = 2**60 + 1
LATENESS_SECONDS = 30

STREAM = Stream(
    "readings",
    (
        Field("id", "bigint"),
        Field("ts", "timestamp"),
        Field("sensor", "string"),
        Field("room", "bigint"),
        Field("kind", "string"),
        Field("value", "double"),
        Field("serial", "bigint"),
        Field("ok", "boolean"),
    ),
    "ts",
    ("id",),
    LATENESS_SECONDS * 1_000_000,
)

RULES = """
RULE rise
FROM readings
PARTITION BY sensor
PATTERN low->{2,4} -> high
WITHIN 40 SECONDS
DEFINE
  low  AS kind = 'a' AND value < 3,
  high AS kind = 'b' AND value > 2 + AVG(low.value)
MEASURES
  COUNT(low.*) AS lows, AVG(low.value) AS average, high.serial AS serial,
  high.ok AS ok, FIRST(low.kind) AS kind
AFTER MATCH SKIP TO NEXT EVENT

RULE silence
FROM readings
PARTITION BY sensor
PATTERN asked -> !answered
WITHIN 20 SECONDS
DEFINE
  asked    AS kind = 'c',
  answered AS kind = 'd'
MEASURES
  asked.serial AS serial, asked.ts AS asked_at
"""

ROOM_RULE = """
RULE crowd
FROM readings
PARTITION BY room
PATTERN one -> other
WITHIN 5 SECONDS
DEFINE
  one   AS kind = 'a',
  other AS kind = 'a' AND serial <> one.serial
MEASURES
  one.serial AS serial, other.value AS value
"""

STRICT_RULE = """
RULE neighbours
FROM readings
PARTITION BY sensor
PATTERN one other
WITHIN 1 MINUTE
DEFINE
  one   AS ok,
  other AS NOT ok
MEASURES
  one.serial AS serial
"""

EVENTS_RULE = """
RULE whole
FROM readings
PARTITION BY sensor
PATTERN one ->[<= 12 SECONDS] other->+ -> end
WITHIN 20 SECONDS
DEFINE
  one   AS kind = 'a',
  other AS kind = 'b',
  end   AS kind = 'c'
MEASURES
  ARRAY_AGG(other.serial)    AS serials,
  ARRAY_AGG(other.ts)        AS times,
  ARRAY_AGG(one.value + 1.0) AS added,
  ARRAY_AGG(one.kind)        AS kinds
ALL ROWS PER MATCH
ON TIMEOUT
SUPPRESS FOR 2 MINUTES
"""


def compiled(*texts: str, stream: Stream = STREAM) -> RuleSet:
    return compile_sources([Source("rules", text) for text in texts], {stream.name: stream}).rule_set


def random_events(seed: int, n: int, *, n_sensors: int = 7, shuffle: bool = True) -> list[dict[str, Any]]:
    """Events in arrival order, out of order by less than the lateness, with NULLs and large integers."""
    drawn = random.Random(seed)
    events: list[dict[str, Any]] = []
    seconds = 0.0
    for number in range(n):
        seconds += drawn.choice([0, 0.000001, 0.5, 1, 2, 3])
        events.append(
            {
                "id": number,
                "ts": START + timedelta(seconds=seconds),
                "sensor": drawn.choice([*(f"s{k}" for k in range(n_sensors)), None]),
                "room": drawn.choice([BIG, BIG + 1, 3, None]),
                "kind": drawn.choice(["a", "a", "a", "b", "c", "d", "e", "e", None]),
                "value": drawn.choice([0.0, 1.0, 2.5, 5.0, float("nan"), None]),
                "serial": drawn.choice([BIG + number, number, None]),
                "ok": drawn.choice([True, False, None]),
            }
        )
    if shuffle:
        delays = [drawn.uniform(0, LATENESS_SECONDS * 0.9) for _ in events]
        order = sorted(range(n), key=lambda at: events[at]["ts"] + timedelta(seconds=delays[at]))
        events = [events[at] for at in order]
    return events


def table(events: Sequence[dict[str, Any]]) -> pa.Table:
    """Events as the typed table of the local run."""
    rows = [{**event, "ts": _us(event["ts"])} for event in events]
    return pa.Table.from_pylist(rows, schema=event_table_schema(STREAM))


def _us(time: datetime) -> int:
    return (time - START) // timedelta(microseconds=1) + START_US


def local_matches(programs: RuleSet, events: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    result = match_chunks(programs, [Chunk(table(events), DEAD_LETTER_SCHEMA.empty_table())])
    return comparable(result.matches.to_pylist())


def comparable(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows sorted, with NaN as text and instants in UTC."""
    return sorted(
        (tuple((name, _plain(value)) for name, value in sorted(row.items())) for row in rows), key=repr
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _plain(item)) for name, item in sorted(value.items()))
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, float) and value != value:
        return "NaN"
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def spark_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows of a DataFrame; its session is in UTC, and so are its times."""
    rows: list[dict[str, Any]] = to_arrow(frame).to_pylist()
    return rows


def write_files(
    spark: SparkSession, folder: Path, events: Sequence[dict[str, Any]], n_files: int
) -> DataFrame:
    """Write events as Parquet files in arrival order; return them as a batch."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    times = pa.timestamp("us", tz="UTC")
    whole = table(events)
    whole = whole.set_column(1, "ts", whole.column("ts").cast(times))
    size = -(-len(events) // n_files)
    for number in range(n_files):
        pq.write_table(whole.slice(number * size, size), folder / f"part-{number:03}.parquet")
        _touch(folder / f"part-{number:03}.parquet", number)
    return spark.read.parquet(str(folder))


def _touch(file: Path, number: int) -> None:
    """Spark takes files in the order of their modification."""
    import os

    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def stream_of_files(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as a stream, one per micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def drain(matches: DataFrame, name: str, checkpoint: Path) -> list[dict[str, Any]]:
    """Run a stream until its source has nothing more; return the rows that came out."""
    rows: list[dict[str, Any]] = []

    def keep(batch: DataFrame, _number: int) -> None:
        rows.extend(spark_rows(batch))

    folder = str(checkpoint.with_name(f"{checkpoint.name}-{uuid4().hex}"))
    # The server of Spark Connect would run `keep`, and its list would stay there.
    written = matches.writeStream
    query = (
        (written.format("parquet").option("path", folder) if IS_REMOTE else written.foreachBatch(keep))
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if IS_REMOTE:
        # By name: the list that the sink keeps is not valid for a query that continues in a new folder.
        files = [str(file) for file in sorted(Path(folder).glob("part-*"))]
        return spark_rows(matches.sparkSession.read.schema(matches.schema).parquet(*files)) if files else []
    return rows


def observed(query: StreamingQuery) -> list[dict[str, int]]:
    """Return the counts of `detect` in each micro-batch."""
    return [row for counts in observations(query) for row in counts.values()]


def observations(query: StreamingQuery) -> list[dict[str, dict[str, int]]]:
    """Return what each micro-batch has counted, by name."""
    # PySpark 3.5 leaves out what is empty.
    found = [progress.get("observedMetrics", {}) for progress in query.recentProgress]
    return [{name: _counts(row) for name, row in rows.items()} for rows in found]


def _counts(row: Any) -> dict[str, int]:
    if IS_REMOTE:  # PySpark's client of Spark Connect returns the values beside their schema
        return dict(zip((field["name"] for field in row["schema"]["fields"]), row["values"], strict=True))
    return row if isinstance(row, dict) else row.asDict()  # a dict is of PySpark 3.5


def far_future_event() -> dict[str, Any]:
    """An event that no rule takes and that closes every window before it."""
    quiet = dict.fromkeys((field.name for field in STREAM.fields), None)
    return {**quiet, "id": -1, "ts": START + timedelta(days=30), "sensor": "s0", "kind": "e"}
