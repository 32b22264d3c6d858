"""Estimated event times in pipelines: a stream has the matches of the batch, however files are portioned."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from cep import InputError, load_rules, match_file
from spark_runtime import detect, run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.unit.engine.simulated_clocks import Device, records

STREAMS = """
streams:
  readings:
    event_time: true_time
    tie_break: [id]
    lateness: 90 minutes
    device_clock: {device: device, event: measured, sent: sent, received: received}
    schema: {id: bigint, room: string, device: string, n: bigint,
             measured: timestamp, sent: timestamp, received: timestamp}
"""

RULES = """
RULE rising FROM readings PARTITION BY room PATTERN a b+ c WITHIN 10 MINUTES
DEFINE b AS n > a.n, c AS n < a.n MEASURES a.id AS first, c.id AS last
"""

N_FILES = 6


def prepare(folder: Path, kind: str = "parquet") -> Path:
    """Write files of what four devices sent; each has its clock, and one in five records came late."""
    jumps = [(5000.0, -900.0), (9000.0, 2000.0)]
    devices = [
        Device(f"d{n}", 3600.0 * n - 5400, 40 * n - 60, 30, 3, retried=0.2, jumps=jumps[:n]) for n in range(4)
    ]
    table, _ = records(devices, seed=7)
    n = table.num_rows
    random = np.random.default_rng(7)
    table = table.append_column("id", pa.array(np.arange(n)))
    table = table.append_column("n", pa.array(random.integers(0, 10, n)))
    table = table.append_column("room", pa.array(random.choice(["a", "b"], n).tolist()))
    for name in ("measured", "sent", "received"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pc.cast(table.column(name), pa.timestamp("us", "UTC")))
    (folder / "in").mkdir()
    for number in range(N_FILES):
        part = table.slice(n * number // N_FILES, n * (number + 1) // N_FILES - n * number // N_FILES)
        # The names, and so the order in which they are written, are not the order of receipt.
        path = folder / "in" / f"{(number * 5) % N_FILES}.{kind}"
        if kind == "parquet":
            pq.write_table(part, path)
        else:
            rows = [{k: str(v) if k in ("measured", "sent", "received") else v for k, v in row.items()}
                    for row in part.to_pylist()]  # fmt: skip
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "rules.cep").write_text(RULES)
    return folder


def run(folder: Path, source: str, more: str) -> tuple[Summary, Counter[tuple[Any, ...]]]:
    name = f"out-{len(list(folder.glob('out-*.yaml')))}"
    (folder / f"{name}.yaml").write_text(
        f"rules: [rules.cep]\nsource: {{stream: readings, path: in, {source}}}\n"
        f"sinks: [{{format: parquet, path: {name}}}]\n{more}\n"
    )
    summary = run_pipeline(folder / f"{name}.yaml", console=Console(file=StringIO()), quiet=True)
    columns = ["match_id", "match_start", "match_end", "first", "last"]
    table = pyarrow.dataset.dataset(folder / name, partitioning=None).to_table(columns)
    return summary, Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.deep(but="json")
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_stream_has_the_matches_of_the_batch_and_of_a_local_run(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = prepare(tmp_path, kind)
    local = match_file(load_rules(folder / "rules.cep"), folder / "in").matches
    columns = ["match_id", "match_start", "match_end", "first", "last"]
    expected = Counter(tuple(row.values()) for row in local.select(columns).to_pylist())
    assert expected.total() > 50
    source = f"format: {kind}"
    assert run(folder, source, "mode: batch")[1] == expected
    at_once, found = run(folder, source, "checkpoint: c1\nat_end: finish")
    assert (at_once.counts.late, found) == (0, expected)
    one_by_one, found = run(folder, f"{source}, max_files_per_trigger: 1", "checkpoint: c2\nat_end: finish")
    assert (one_by_one.counts.late, found) == (0, expected)
    assert one_by_one.counts.clocks.keys() == {"readings"}
    assert "clocks" not in one_by_one.to_json()["counts"]


def test_what_is_known_of_clocks_goes_on_in_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    expected = run(folder, "format: parquet", "mode: batch")[1]
    files = sorted((folder / "in").iterdir(), key=lambda path: (int(path.stem) * 5) % N_FILES)
    aside = [file.rename(folder / file.name) for file in files[3:]]
    run(folder, "format: parquet", "checkpoint: c")
    for file in aside:
        file.rename(folder / "in" / file.name)
    pipeline = folder / "out-1.yaml"
    pipeline.write_text(pipeline.read_text() + "at_end: finish\n")
    summary = run_pipeline(pipeline, console=Console(file=StringIO()), quiet=True)
    table = pyarrow.dataset.dataset(folder / "out-1", partitioning=None).to_table(["match_id", "first"])
    assert summary.counts.late == 0
    assert sorted(table.column("match_id").to_pylist()) == sorted(row[0] for row in expected.elements())


def test_detect_wants_the_event_time_as_a_column(spark: SparkSession, tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    frame: DataFrame = spark.read.parquet(str(folder / "in"))
    rules = load_rules(folder / "rules.cep")
    with pytest.raises(InputError, match="a DataFrame has no order") as caught:
        detect(frame, rules)
    assert caught.value.code == "E0829"
    timed = frame.selectExpr("*", "measured + (received - sent) AS true_time")
    assert detect(timed, rules).count() > 50
