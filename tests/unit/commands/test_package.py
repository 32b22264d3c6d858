"""`cep package` writes one archive, from which the pipeline runs and in which the engine is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main

STREAMS = "streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}\n"
RULE = "RULE high FROM readings PARTITION BY device PATTERN a DEFINE a AS x > 1\n"
PIPELINE = """\
rules: [../rules]
sources: [{{stream: readings, format: json, path: {events}}}]
sinks: [{{format: json, path: {out}}}]
mode: batch
"""


@pytest.fixture
def pipeline(tmp_path: Path, compiled_engine: None) -> Path:
    """Return a pipeline file whose rules are in a folder beside its own."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/high.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "pipelines").mkdir()
    file = tmp_path / "pipelines/readings.yaml"
    file.write_text(PIPELINE.format(events="/data/in", out="s3a://bucket/out"))
    return file


def package(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["package", *map(str, arguments), "--cpu", "host"])


def test_the_archive_has_the_pipeline_the_package_and_kernels(pipeline: Path, tmp_path: Path) -> None:
    archive = tmp_path / "my job.zip"
    done = package(pipeline, "-o", archive)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1:] == [
        f"  unzip -o '{archive}' main.py",
        f"  spark-submit --py-files '{archive}' main.py",
    ]
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        assert "pipeline_file('pipelines/readings.yaml')" in file.read("main.py").decode()
        assert file.read("job/rules/high.cep").decode() == RULE
    assert {"job/streams.yaml", "job/pipelines/readings.yaml", "spark_runtime/detection.py"} < {*names}
    assert len([name for name in names if name.startswith("cep/jit/carried/host-")]) > 70
    other = tmp_path / "other.zip"
    assert package(pipeline, "-o", other, "-q").output == ""
    assert other.read_bytes() == archive.read_bytes()


def test_from_the_archive_nothing_is_compiled(pipeline: Path, tmp_path: Path) -> None:
    archive = tmp_path / "job.zip"
    assert package(pipeline, "-o", archive).exit_code == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "events.jsonl").write_text('{"device":"d","ts":"2024-05-01T10:00:00Z","x":2}\n')
    command = [sys.executable, "-X", "importtime", "-m", "cep", "match"]
    done = subprocess.run(
        [*command, str(tmp_path / "rules"), "-i", str(tmp_path / "events.jsonl")],
        cwd=tmp_path / "empty",
        env={**os.environ, "PYTHONPATH": str(archive), "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert "cep.jit.loading" in imported
    assert not {"numba", "cep.jit.numba_compiler"} & {*imported}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("/data/in", "in", "in"),
        ("s3a://bucket/out", "../out", "../out"),
        ("mode: batch", "checkpoint: ../state", "../state"),
        ("../rules", "{folder}/rules", "{folder}/rules"),
    ],
)
def test_a_place_that_only_this_machine_has_is_refused(
    before: str, after: str, named: str, pipeline: Path, tmp_path: Path
) -> None:
    text = pipeline.read_text().replace(before, after.format(folder=tmp_path))
    pipeline.write_text(text)
    done = package(pipeline, "-o", tmp_path / "job.zip")
    assert done.exit_code == 1
    assert f"error[E0888]: `{named.format(folder=tmp_path)}`" in done.output
    assert not (tmp_path / "job.zip").exists()


def test_an_unknown_processor_is_refused(pipeline: Path) -> None:
    done = CliRunner().invoke(main, ["package", str(pipeline), "--cpu", "x86-64-v3,pentium"])
    assert done.exit_code == 2
    assert "`pentium` is none of host, x86-64-v4, x86-64-v3, x86-64-v2, aarch64." in done.output
