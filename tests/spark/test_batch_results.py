"""Two batches with one folder: the second one does not replace the result of the first."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import InputError
from spark_runtime import run_pipeline
from tests.kills.written import files_of

STREAMS = "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp, k: string}}}"
RULE = "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS id >= 0 MEASURES a.id AS id"


def place(folder: Path, name: str, source: str, output: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(
        f"rules: [r.cep]\nsource: {{stream: s, format: json, path: {source}}}\n"
        f"sinks: [{{format: json, path: '{output}'}}]\nmode: batch\n"
    )
    return file


def run(file: Path) -> None:
    run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def ids(folder: Path) -> list[int]:
    lines = [line for file in files_of(folder / "out") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


@pytest.mark.parametrize("is_far", [False, True])
def test_a_batch_replaces_its_own_result_and_no_other(
    spark: SparkSession, tmp_path: Path, is_far: bool
) -> None:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "r.cep").write_text(RULE)
    for name, numbers in (("in1", range(3)), ("in2", range(10, 12))):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"id": i, "ts": f"2024-05-01T00:00:{i:02}Z", "k": "k"}) for i in numbers]
        (tmp_path / name / "0.json").write_text("\n".join(lines) + "\n")
    output = f"file://{tmp_path}/out" if is_far else "out"
    first = place(tmp_path, "p", "in1", output)
    run(first)
    run(first)
    assert ids(tmp_path) == [0, 1, 2]
    for other in (place(tmp_path, "q", "in1", output), place(tmp_path, "p", "in2", output)):
        with pytest.raises(InputError) as caught:
            run(other)
        assert caught.value.code == "E0887"
    assert ids(tmp_path) == [0, 1, 2]
    run(place(tmp_path, "p", "in1", output))
    assert ids(tmp_path) == [0, 1, 2]
