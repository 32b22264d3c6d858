"""A checkpoint on a file system that only Spark reaches; `make object-store-test` has S3."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from spark_runtime.storage.checkpoint_files import HadoopFiles
from tests.spark.test_pipeline import keyed_events, quiet_run, read, write_json, write_pipeline


def test_files_are_replaced_in_one_step_and_created_once(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}/far")
    assert files.read("plan/1.json") is None
    assert files.names("plan") == []
    for text in ("first", "second, which is longer", "3"):
        files.write("plan/1.json", text)
        assert files.read("plan/1.json") == text
    assert files.create("lease/1", "mine")
    assert not files.create("lease/1", "another one's")
    assert files.read("lease/1") == "mine"
    here = tmp_path / "here"
    here.write_bytes(bytes(range(256)) * 100)
    files.copy(here, "rows/batch=1/part-a.json")
    assert files.read_bytes("rows/batch=1/part-a.json") == here.read_bytes()
    assert [name for name in files.names("plan") if not name.startswith(".")] == ["1.json"]
    files.remove("plan")
    assert files.names("plan") == []


def test_a_run_ends_its_lease(spark: SparkSession, tmp_path: Path) -> None:
    write_json(tmp_path / "events", keyed_events(5, 100), 1)
    pipeline = write_pipeline(tmp_path, "format: json, path: events")
    text = pipeline.read_text()
    assert "checkpoint: out/checkpoint" in text
    pipeline.write_text(text.replace("checkpoint: out/", f"checkpoint: file://{tmp_path}/out/"))
    assert quiet_run(pipeline).counts.events > 50
    assert read(tmp_path / "out/matches")
    (lease,) = (file for file in (tmp_path / "out/checkpoint/lease").iterdir() if file.name.isdigit())
    assert lease.name == "1"
    assert json.loads(lease.read_text())["ended"]
