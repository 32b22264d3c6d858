"""Spark's state store, read without Spark: each value is the one that Spark itself reads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep.errors import StateError
from cep.rulebook import compile_texts
from spark_runtime.compat.driver import pyspark_version
from spark_runtime.pipeline.checkpoint import read_checkpoint
from spark_runtime.pipeline.stored_state import stored_values
from spark_runtime.state.spark_store import SparkStore
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.forced_state import force_files, force_nothing
from tests.servers.s3_server import BUCKET, running_s3
from tests.spark.test_pipeline import keyed_events, quiet_run, write_json, write_pipeline

_STATE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
IN_HEAP = {f"{_STATE}.providerClass": f"{_PACKAGE}.HDFSBackedStateStoreProvider"}
ZSTD = {f"{_STATE}.compression.codec": "zstd"}
WHOLE = {f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "false"}
FORMAT_2 = {f"{_STATE}.checkpointFormatVersion": "2"}
N_FILES = 8


class OnlySnapshots(LocalFiles):
    """Files of a checkpoint without the changes of a version that has a snapshot."""

    def read_bytes(self, name: str) -> bytes | None:
        file = self.root / name
        if file.suffix in (".changelog", ".delta") and any(
            file.with_suffix(end).exists() for end in (".zip", ".snapshot")
        ):
            return None
        return super().read_bytes(name)


@pytest.fixture
def _often(spark: SparkSession) -> Iterator[None]:
    """Let Spark write its snapshots often; after the test its settings are as before."""
    changed = (f"{_STATE}.minDeltasForSnapshot", *IN_HEAP, *ZSTD, *WHOLE, *FORMAT_2)
    usual = {name: spark.conf.get(name, None) for name in changed}
    spark.conf.set(f"{_STATE}.minDeltasForSnapshot", "2")
    yield
    for name, value in usual.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def run(folder: Path, settings: dict[str, str], state: str = "files") -> Path:
    """Run a pipeline in which one key group gets events only at the beginning; return its checkpoint."""
    events = keyed_events(4, 60 * N_FILES)
    only = events[0]["sensor"]
    rest = [{**event, "sensor": only} for event in events[120:]]
    write_json(folder / "events", events[:120] + rest, N_FILES)
    more = f"state: {state}\nspark: {json.dumps(settings)}"
    quiet_run(write_pipeline(folder, "format: json, path: events, max_files_per_trigger: 1", more))
    return folder / "out/checkpoint"


def read_by_spark(spark: SparkSession, checkpoint: Path, batch: int) -> dict[int, bytes]:
    reader = spark.read.format("statestore").option("batchId", batch).load(str(checkpoint / "query"))
    rows = reader.selectExpr("key.*", "value.groupState.state").collect()
    return {group: bytes(value) for group, value in rows}


def versions(checkpoint: Path, end: str) -> list[int]:
    names = [file.name for file in (checkpoint / "query/state/0").rglob(f"*.{end}")]
    return sorted({int(re.match(r"\d+", name)[0]) for name in names})  # type: ignore[index]


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({}, ("changelog", "zip")),
        (ZSTD, ("changelog", "zip")),
        (WHOLE, ("zip",)),
        (IN_HEAP, ("delta", "snapshot")),
        pytest.param(
            FORMAT_2,
            ("changelog", "zip"),
            marks=pytest.mark.skipif(pyspark_version() < (4, 1), reason="a format of Spark 4.1"),
        ),
    ],
)
def test_values_are_those_that_spark_reads_from_each_kind_of_file(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str], ends: tuple[str, ...]
) -> None:
    checkpoint = run(tmp_path, settings)
    files = LocalFiles(str(checkpoint))
    batches = sorted(map(int, filter(str.isdigit, files.names("query/commits"))))
    assert len(batches) >= N_FILES
    for batch in batches:
        found = dict(SparkStore.after(files, batch).values())
        if pyspark_version() >= (4, 0):  # before, Spark does not read its own stores
            assert found == read_by_spark(spark, checkpoint, batch), batch
    for end in ends:
        assert versions(checkpoint, end), f"Spark wrote no file .{end}"
    snapshots = OnlySnapshots(str(checkpoint))
    for batch in batches:
        found = dict(SparkStore.after(snapshots, batch).values())
        assert found == dict(SparkStore.after(files, batch).values()), batch


@pytest.mark.deep(but="files")
@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("state", ["inline", "files"])
def test_state_is_shown_and_saved_without_pyspark(spark: SparkSession, tmp_path: Path, state: str) -> None:
    if state == "files":
        force_files()
    try:
        checkpoint = run(tmp_path, {}, state)
    finally:
        force_nothing()
    stored, rules = read_checkpoint(LocalFiles(str(checkpoint)), str(checkpoint))
    values = list(stored_values(stored, compile_texts(rules.texts, rules.streams).rule_set))
    assert {value.is_in_files for value in values} == {state == "files"}
    shown = [without_pyspark("state", "ls", str(checkpoint), "--format", "json").splitlines()]
    without_pyspark("savepoint", str(checkpoint), str(tmp_path / "saved"))
    shown.append(without_pyspark("state", "ls", str(tmp_path / "saved"), "--format", "json").splitlines())
    rows, saved = ([json.loads(line) for line in lines] for lines in shown)
    assert [row["bytes"] for row in rows if "group" in row] == [
        row["bytes"] for row in saved if "group" in row
    ]
    open_runs = [[row for row in found if "rule" in row] for found in (rows, saved)]
    assert open_runs[0] == open_runs[1]
    assert open_runs[0]


def without_pyspark(*arguments: str, variables: Mapping[str, str] | None = None, code: int = 0) -> str:
    """Return what `cep` prints where PySpark is not installed; `code` is its exit code."""
    program = "import sys; sys.modules['pyspark'] = None; from cep.commands.cli import main; main()"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(variables or {})})
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.mark.usefixtures("_often")
def test_a_checkpoint_on_s3_is_read_without_pyspark(spark: SparkSession, tmp_path: Path) -> None:
    force_files()
    try:
        checkpoint = run(tmp_path, FORMAT_2 if pyspark_version() >= (4, 1) else {})
    finally:
        force_nothing()
    with running_s3(tmp_path) as s3:
        variables = {
            "AWS_ENDPOINT_URL": s3.address,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
        }
        files = [file for file in checkpoint.rglob("*") if file.is_file()]
        s3.put({f"there/{file.relative_to(checkpoint)}": file.read_bytes() for file in files})
        there = f"s3a://{BUCKET}/there"
        found = without_pyspark("state", "ls", there, variables=variables)
        assert found == without_pyspark("state", "ls", str(checkpoint))
        assert " yes" in found, "no state was in files"
        without_pyspark("savepoint", there, str(tmp_path / "saved"), variables=variables)
        assert "E0705" in without_pyspark("state", "ls", f"s3a://{BUCKET}/other", code=1, variables=variables)
        said = without_pyspark("state", "ls", "s3a://nobodys/there", code=1, variables=variables)
        assert said.startswith("error[E0705]: `s3a://nobodys/there` ")


@pytest.mark.usefixtures("_often")
def test_what_is_damaged_or_unknown_in_sparks_store_is_named(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "copy"
    # Spark writes the snapshot of a loaded store when it looks after it, also now: a copy remains as it is.
    shutil.copytree(run(tmp_path, {}), checkpoint)
    files = LocalFiles(str(checkpoint))
    batch = max(map(int, filter(str.isdigit, files.names("query/commits"))))
    store = checkpoint / "query/state/0/0"
    last = store / f"{batch + 1}.changelog"
    whole = last.read_bytes()
    last.with_suffix(".zip").unlink(missing_ok=True)

    def refused() -> str:
        with pytest.raises(
            StateError, match=r"E0702.*Spark's state in `query/state/0/0` is damaged"
        ) as error:
            list(SparkStore.after(files, batch).values())
        return str(error.value)

    last.write_bytes(b"\x82SNAPPY\0" + bytes(40))
    assert "compressed neither by lz4 nor by zstd" in refused()
    last.write_bytes(whole[:-1])
    refused()
    last.unlink()
    assert f"version {batch + 1} is missing" in refused()
    last.write_bytes(whole)
    for file in store.glob("*.changelog"):
        if file.with_suffix(".zip").exists():
            file.unlink()
    archive = max(store.glob("*.zip"), key=lambda file: int(file.stem))
    batch = int(archive.stem) - 1
    assert list(SparkStore.after(files, batch).values())
    tables = sorted((store / "SSTs").iterdir())
    parts = {table: table.read_bytes() for table in tables if table.suffix == ".sst"}
    for table, data in parts.items():
        table.write_bytes(data[:-1])
    assert "is missing or cut off" in refused()
    for table, data in parts.items():
        table.write_bytes(data[:-8] + bytes(8))
    assert "a table of format" in refused()
    archive.write_bytes(archive.read_bytes()[:-30])
    refused()
