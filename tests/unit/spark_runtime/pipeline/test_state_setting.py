"""`state` of a pipeline file: where large state is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline

RULE = "RULE r FROM readings PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0"


def pipeline(folder: Path, *settings: str) -> Pipeline:
    (folder / "r.cep").write_text(RULE)
    lines = (
        "streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}",
        "rules: [r.cep]",
        "source: {stream: readings, format: json, path: events}",
        "sinks: [{format: console}]",
        *settings,
    )
    (folder / "p.yaml").write_text("\n".join(lines))
    return load_pipeline(folder / "p.yaml")


@pytest.mark.parametrize("checkpoint", ["c", "/mnt/shared/c", "s3a://lake/c"])
def test_large_state_is_in_files_by_default(tmp_path: Path, checkpoint: str) -> None:
    assert pipeline(tmp_path, f"checkpoint: {checkpoint}").keeps_files


@pytest.mark.parametrize("checkpoint", ["c", "s3a://lake/c"])
def test_state_may_be_in_the_store_of_spark(tmp_path: Path, checkpoint: str) -> None:
    assert not pipeline(tmp_path, f"checkpoint: {checkpoint}", "state: inline").keeps_files


@pytest.mark.parametrize("checkpoint", ["c", "s3a://lake/c", "hdfs://lake/c"])
def test_state_may_be_in_files_wherever_the_checkpoint_is(tmp_path: Path, checkpoint: str) -> None:
    assert pipeline(tmp_path, f"checkpoint: {checkpoint}", "state: files").asks_for_files
    assert not pipeline(tmp_path, f"checkpoint: {checkpoint}").asks_for_files
