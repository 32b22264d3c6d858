"""Files that are removed once they have been read: the stream goes on, whatever is left in the folder."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.kills.written import files_of

STREAMS = "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp, k: string}}}"
RULE = "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS id >= 0 MEASURES a.id AS id"


def run(folder: Path, source: str, more: str = "") -> Summary:
    (folder / "p.yaml").write_text(
        f"rules: [r.cep]\nsource: {{stream: s, {source}}}\n"
        f"sinks: [{{format: json, path: out}}]\ncheckpoint: checkpoint\n{more}\n"
    )
    return run_pipeline(folder / "p.yaml", console=Console(file=StringIO()), quiet=True)


@pytest.mark.parametrize("path", ["in", "in/*.json"])
def test_a_run_over_a_folder_whose_files_were_read_and_removed_has_no_events(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "r.cep").write_text(RULE)
    (tmp_path / "in").mkdir()

    def put(name: str, *ids: int) -> Path:
        lines = [json.dumps({"id": i, "ts": f"2024-05-01T00:00:{i:02}Z", "k": "k"}) + "\n" for i in ids]
        (tmp_path / "in" / name).write_text("".join(lines))
        return tmp_path / "in" / name

    source = f"format: json, path: '{path}'"
    first = put("0.json", 1, 2, 3)
    assert run(tmp_path, source).counts.events == 3
    first.unlink()
    assert run(tmp_path, source).counts.events == 0
    put("1.json")
    assert run(tmp_path, source).counts.events == 0
    put("2.json", 4, 5)
    assert run(tmp_path, source, "at_end: finish").counts.events == 2
    lines = [line for file in files_of(tmp_path / "out") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == [1, 2, 3, 4, 5]
