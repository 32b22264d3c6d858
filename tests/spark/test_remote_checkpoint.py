"""A checkpoint on a file system that only Spark reaches; `make object-store-test` has S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.local.match_file import match_file
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.storage.checkpoint_files import HadoopFiles
from tests.forced_state import force_files, force_nothing
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, write_json, write_pipeline


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


@pytest.fixture
def _state_in_files() -> Iterator[None]:
    force_files()
    yield
    force_nothing()


@pytest.mark.usefixtures("_state_in_files")
def test_state_is_in_files_there_if_the_pipeline_asks_for_them(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's `file://` is storage of which we know nothing; pyarrow opens it, too."""
    events = sorted(keyed_events(3, 500), key=lambda event: event["ts"])
    write_json(tmp_path / "events", events[:300], 4)
    source = "format: json, path: events, max_files_per_trigger: 1"
    pipeline = write_pipeline(tmp_path, source, "state: files")
    usual = pipeline.read_text().replace("checkpoint: out/", f"checkpoint: file://{tmp_path}/out/")
    pipeline.write_text(usual)
    state = quiet_run(pipeline).counts.state
    assert state["recorded"] > 0
    assert state["snapshots"] > 2
    assert list((tmp_path / "out/checkpoint/state").glob("*/*"))
    found = CliRunner().invoke(main, ["state", "ls", f"file://{tmp_path}/out/checkpoint", "--format", "json"])
    assert found.output.count('"in_files": true') == 2, found.output
    force_nothing()
    write_json(tmp_path / "more", events[300:], 1)
    (tmp_path / "more/part-000.json").rename(tmp_path / "events/part-004.json")
    pipeline.write_text(usual.replace("state: files", FINISH))  # files are read; what is written is inline
    state = quiet_run(pipeline).counts.state
    assert (state["cold"], state.get("snapshots")) == (2, None)
    rules = load_pipeline(pipeline).rules
    local = match_file(rules, tmp_path / "events").matches.column("match_id").to_pylist()
    assert sorted(row["match_id"] for row in read(tmp_path / "out/matches")) == sorted(local)
    assert local


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
