"""What each runner promises: the same rules and events, the same matches with the same ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.local.match_file import LocalRun, Result, read_inputs
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.runs import BatchRun, StreamRun
from tests.spark.test_pipeline import FINISH, keyed_events, write_json, write_pipeline

Made = tuple[LocalRun | BatchRun | StreamRun, Callable[[], pa.Table]]


def local(spark: SparkSession, folder: Path) -> Made:
    rules = load_pipeline(folder / "pipeline.yaml").rules
    found: list[Result] = []
    runner = LocalRun(rules, read_inputs(rules, folder / "events"), found.append)
    return runner, lambda: found[0].matches


def on_spark(kind: type[BatchRun | StreamRun]) -> Callable[[SparkSession, Path], Made]:
    def made(spark: SparkSession, folder: Path) -> Made:
        pipeline = load_pipeline(folder / "pipeline.yaml")
        nowhere = Console(file=StringIO(), quiet=True)
        warming = Thread(target=lambda: None)
        warming.start()
        runner = kind(pipeline, spark, nowhere, nowhere, time.monotonic(), warming)
        files = folder / "out/matches"
        return runner, lambda: pyarrow.dataset.dataset(files, partitioning=None).to_table()

    return made


RUNNERS = {"local": local, "batch": on_spark(BatchRun), "stream": on_spark(StreamRun)}


def test_each_runner_finds_the_same_matches_with_the_same_ids(spark: SparkSession, tmp_path: Path) -> None:
    reported, counted = {}, {}
    events = keyed_events(3, 900)
    for name, made in RUNNERS.items():
        folder = tmp_path / name
        folder.mkdir()
        write_json(folder / "events", events, 3, ["no event"])
        mode = "mode: batch" if name == "batch" else FINISH
        write_pipeline(folder, "format: json, path: events", mode)
        runner, matches = made(spark, folder)
        assert not runner.was_stopped
        counts = runner.run()
        assert not runner.was_stopped
        schema = runner.rules.match_schema
        rows = matches().select(schema.names).cast(schema).to_pylist()
        reported[name] = sorted(rows, key=lambda row: str(row["match_id"]))
        counted[name] = (counts.events, counts.matches, dict(counts.reasons))
    assert len({row["match_id"] for row in reported["local"]}) == len(reported["local"]) > 50
    assert reported["batch"] == reported["stream"] == reported["local"]
    assert counted["batch"] == counted["stream"] == counted["local"]
    assert counted["local"][0] == len(events)


@pytest.mark.parametrize("name", RUNNERS)
def test_a_runner_reads_the_rules_that_it_was_made_with(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    write_json(tmp_path / "events", keyed_events(4, 20), 1)
    write_pipeline(tmp_path, "format: json, path: events", FINISH)
    runner, _ = RUNNERS[name](spark, tmp_path)
    assert [rule.name for rule in runner.rules.rules] == ["rise", "silence"]
