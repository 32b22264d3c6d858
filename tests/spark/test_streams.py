"""Rules over several streams, and with keys that differ per variable: batch, stream and local run agree."""

import json
import random
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.given_events import event_table
from cep.local.match_file import match_chunks, match_file
from cep.schema.stream import Field, Stream
from spark_runtime import detect, run_pipeline
from tests.spark.events import START, comparable, drain, spark_rows, stream_of_files

LOGINS = Stream(
    "logins",
    (
        Field("n", "bigint"),
        Field("at", "timestamp"),
        Field("account", "string"),
        Field("host", "string"),
        Field("target", "string"),
        Field("ok", "boolean"),
    ),
    "at",
    ("n",),
    30_000_000,
)
PAYMENTS = Stream(
    "payments",
    (
        Field("id", "bigint"),
        Field("ts", "timestamp"),
        Field("card", "string"),
        Field("n", "bigint"),
        Field("amount", "double"),
    ),
    "ts",
    ("id",),
    20_000_000,
    deduplicate=True,
)
STREAMS = {"logins": LOGINS, "payments": PAYMENTS}

RULES = """
RULE takeover
FROM payments, logins
PARTITION BY logins.account = payments.card
PATTERN failed->{1,2} -> login -> !back -> drain
WITHIN 60 SECONDS
SUBSET any = (login, drain)
DEFINE
  failed ON logins AS NOT ok,
  login  ON logins AS ok AND host <> failed.host,
  back   ON logins AS ok AND host = failed.host,
  drain  ON payments AS amount > 2 AND n > failed.n
MEASURES COUNT(failed.*) AS tries, drain.amount AS loss, MAX(any.n) AS top, login.host AS host
AFTER MATCH SKIP TO NEXT EVENT

RULE directly
FROM logins, payments
PARTITION BY logins.account = payments.card
PATTERN login paid
WITHIN 4 EVENTS
DEFINE login ON logins AS ok, paid ON payments AS amount > 0
MEASURES login.at AS at
ALL ROWS PER MATCH

RULE chain
FROM logins
PARTITION BY machine
PATTERN inbound -> outbound
WITHIN 20 SECONDS
DEFINE inbound BY target AS ok, outbound BY host AS ok AND target <> inbound.host
MEASURES inbound.host AS came_from, outbound.target AS went_to

RULE quiet
FROM payments
PARTITION BY card
PATTERN big -> !small FOR 10 SECONDS
DEFINE big AS amount > 4, small AS amount < 3
MEASURES big.id AS id
"""
PROGRAMS = compile_sources([Source("rules", RULES)], STREAMS).rule_set

Rows = dict[str, list[dict[str, Any]]]


def random_rows(seed: int, n: int) -> Rows:
    """Events of both streams in arrival order, out of order by less than the smaller lateness, copies too."""
    drawn = random.Random(seed)
    rows: Rows = {"logins": [], "payments": []}
    seconds = 0.0
    for number in range(n):
        seconds += drawn.choice([0, 0.5, 1, 2])
        time = START + timedelta(seconds=seconds)
        who = drawn.choice(["p", "q", "r", None])
        if drawn.random() < 0.5:
            host, target = (drawn.choice(["h1", "h2", "h3", None]) for _ in range(2))
            ok = drawn.choice([True, True, False, None])
            rows["logins"].append(
                {"n": number, "at": time, "account": who, "host": host, "target": target, "ok": ok}
            )
        else:
            amount = drawn.choice([0.5, 2.5, 5.0, None])
            row = {"id": number, "ts": time, "card": who, "n": drawn.choice([number, 0]), "amount": amount}
            rows["payments"] += [row] * drawn.choice([1, 1, 1, 2])
    for name, stream in STREAMS.items():
        delay = [drawn.uniform(0, 18) for _ in rows[name]]
        order = sorted(
            range(len(delay)),
            key=lambda at: rows[name][at][stream.event_time] + timedelta(seconds=delay[at]),
        )
        rows[name] = [rows[name][at] for at in order]
    return rows


def end_of_time() -> dict[str, Any]:
    """A login that no rule takes and that closes everything before it."""
    return {
        "n": -1,
        "at": START + timedelta(days=30),
        "account": "p",
        "host": "h9",
        "target": None,
        "ok": None,
    }


def write(folder: Path, rows: Rows, n_files: int) -> None:
    """Write each stream as Parquet files, a file of each for the same stretch of time."""
    import os

    for name, stream in STREAMS.items():
        (folder / name).mkdir(parents=True)
        last = max(row[stream.event_time] for row in rows[name] if row.get("n") != -1)
        length = (last - START) / n_files
        parts: list[list[dict[str, Any]]] = [[] for _ in range(n_files)]
        for row in rows[name]:
            parts[min(int((row[stream.event_time] - START) / length), n_files - 1)].append(row)
        for number, part in enumerate(parts):
            table = event_table(stream, part)
            at = table.column_names.index(stream.event_time)
            times = table.column(at).cast(pa.timestamp("us", tz="UTC"))
            file = folder / name / f"part-{number:03}.parquet"
            pq.write_table(table.set_column(at, stream.event_time, times), file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def local_rows(rows: Rows) -> list[tuple[Any, ...]]:
    letters = DEAD_LETTER_SCHEMA.empty_table()
    chunks = {name: [Chunk(event_table(STREAMS[name], part), letters)] for name, part in rows.items()}
    result = match_chunks(PROGRAMS, chunks)
    assert all(count > 3 for count in result.counts.matches.values()), result.counts.matches
    return comparable(result.matches.to_pylist())


def test_a_batch_of_several_streams_gives_the_local_matches(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_rows(1, 1500)
    write(tmp_path, rows, 2)
    frames = {name: spark.read.parquet(str(tmp_path / name)) for name in STREAMS}
    assert comparable(spark_rows(detect(frames, PROGRAMS))) == local_rows(rows)


def test_a_stream_of_several_streams_gives_the_local_matches(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_rows(2, 1500)
    rows["logins"].append(end_of_time())
    write(tmp_path / "in", rows, 3)
    frames = {name: stream_of_files(spark, tmp_path / "in" / name) for name in STREAMS}
    found = drain(detect(frames, PROGRAMS), "several", tmp_path / "checkpoint")
    assert comparable(found) == local_rows(rows)


def test_streams_are_declared_by_the_frames(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_rows(3, 600)
    write(tmp_path, rows, 1)
    frames = {name: spark.read.parquet(str(tmp_path / name)) for name in STREAMS}
    found = detect(
        frames,
        RULES,
        event_time={"logins": "at", "payments": "ts"},
        tie_break={"logins": ["n"], "payments": ["id"]},
        deduplicate=True,
    )
    assert comparable(spark_rows(found)) == local_rows(rows)


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_pipeline_with_several_sources_counts_and_reports_as_a_local_run(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    rows = random_rows(4, 900)
    write(tmp_path / "in", rows, 1)
    texts = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows["logins"]]
    texts[3:3] = ["{", json.dumps({"n": 1, "at": None})]
    (tmp_path / "in" / "json").mkdir()
    (tmp_path / "in" / "json" / "logins.json").write_text("\n".join(texts) + "\n")
    declared = {
        name: {
            "event_time": stream.event_time,
            "tie_break": list(stream.tie_break),
            "lateness": f"{stream.lateness_us // 1_000_000} seconds",
            "deduplicate": stream.deduplicate,
            "schema": {field.name: field.ddl for field in stream.fields},
        }
        for name, stream in STREAMS.items()
    }
    (tmp_path / "rules.cep").write_text(RULES)
    (tmp_path / "pipeline.yaml").write_text(
        json.dumps(
            {
                "streams": declared,
                "rules": ["rules.cep"],
                "sources": [
                    {"stream": "logins", "format": "json", "path": "in/json"},
                    {"stream": "payments", "format": "parquet", "path": "in/payments"},
                ],
                "sinks": [{"format": "parquet", "path": "out/matches"}],
                "dead_letter": {"format": "json", "path": "out/dead"},
                "mode": mode,
                "checkpoint": "out/checkpoint",
                "at_end": "finish",
            }
        )
    )
    summary = run_pipeline(tmp_path / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
    local = match_file(
        PROGRAMS, {"logins": tmp_path / "in" / "json", "payments": tmp_path / "in" / "payments"}
    )
    assert local.counts.malformed > 2
    assert local.counts.duplicates > 10
    assert summary.counts == local.counts
    matches = pyarrow.dataset.dataset(tmp_path / "out/matches", partitioning=None).to_table().to_pylist()
    assert comparable(matches) == comparable(local.matches.to_pylist())
