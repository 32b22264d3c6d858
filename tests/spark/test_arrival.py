"""Events and versions of equal key and time: without `tie_break` their arrival decides, in each door."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.local.match_file import match_file
from spark_runtime import run_pipeline
from tests.spark.events import comparable
from tests.spark.test_tables import read

STREAMS = """
streams:
  e: {event_time: ts, schema: {ts: timestamp, k: string, n: bigint}}
tables:
  c: {key: [k], event_time: at, schema: {k: string, at: timestamp, v: bigint}}
  r: {key: [k], replicated: true, event_time: at, schema: {k: string, at: timestamp, v: bigint}}
"""
RULES = """
RULE joined FROM e JOIN c ON k JOIN r ON e.k = r.k PARTITION BY k
PATTERN a DEFINE a AS TRUE MEASURES a.c.v AS c, a.r.v AS r, a.n AS n

RULE pair FROM e PARTITION BY k PATTERN a b WITHIN 1 SECOND DEFINE a AS TRUE, b AS TRUE
MEASURES a.n AS first, b.n AS second
"""
PIPELINE = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {stream: e, format: json, path: e}
  - {table: c, format: json, path: c}
  - {table: r, format: json, path: r}
sinks: [{format: parquet, path: out/rows}]
checkpoint: out/checkpoint
"""
SIZES = (3, 40, 1, 25, 12)
"""Lines of the files, which are read by several tasks, the largest first."""


def write(folder: Path) -> dict[str, Path]:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "rules.cep").write_text(RULES)
    number = 0
    for name, time, value in (("e", "ts", "n"), ("c", "at", "v"), ("r", "at", "v")):
        (folder / name).mkdir()
        for at, n in enumerate(SIZES):
            rows = [{"k": f"k{m % 20}", time: "2024-05-01T10:00:00Z", value: number + m} for m in range(n)]
            number += n
            file = folder / name / f"{at}.json"
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            os.utime(file, (1_700_000_000 + at, 1_700_000_000 + at))
    return {name: folder / name for name in "ecr"}


@pytest.mark.parametrize("mode", ["at_end: finish", "mode: batch"])
def test_a_stream_and_a_batch_take_files_in_the_order_of_a_local_run(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    paths = write(tmp_path)
    expected = match_file(tmp_path / "rules.cep", {name: str(path) for name, path in paths.items()}).matches
    (tmp_path / "pipeline.yaml").write_text(f"{PIPELINE}{mode}\n")
    run_pipeline(tmp_path / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
    assert comparable(read(tmp_path / "out/rows")) == comparable(expected.to_pylist())
