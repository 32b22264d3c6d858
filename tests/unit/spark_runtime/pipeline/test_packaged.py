"""A job runs the files of its own archive, and nothing that other jobs have left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_runtime.pipeline import packaged as packaged_module
from spark_runtime.pipeline.package import write_package
from spark_runtime.pipeline.pipeline_file import load_pipeline

RULE = "RULE {} FROM readings PARTITION BY device PATTERN a DEFINE a AS x > 1\n"
STREAMS = "streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}\n"
PIPELINE = """\
rules: [rules]
source: {stream: readings, format: json, path: /data/in}
sinks: [{format: json, path: /data/out}]
mode: batch
"""
UNPACK = """\
from spark_runtime.pipeline.packaged import pipeline_file

print(pipeline_file("pipeline.yaml"), flush=True)
input()
"""


def packaged(folder: Path, *names: str, name: str = "pipeline.yaml") -> Path:
    """Return the archive of a project in `folder` that has a file for each rule, without kernels."""
    (folder / "rules").mkdir(parents=True)
    for rule in names:
        (folder / f"rules/{rule}.cep").write_text(RULE.format(rule))
    (folder / "streams.yaml").write_text(STREAMS + f"# {'comment ' * 200}\n")
    (folder / name).write_text(PIPELINE)
    write_package(folder / name, folder / "job.zip", ())
    return folder / "job.zip"


@contextmanager
def started(archive: Path, temporary: Path) -> Iterator[Path]:
    """Unpack an archive in a process that lives until the end; yield the pipeline file."""
    environment = {**os.environ, "PYTHONPATH": str(archive), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", UNPACK], cwd=temporary, env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        yield Path(job.stdout.readline().rstrip("\n"))
        job.communicate("\n")


def owner(file: Path, archive: Path) -> dict[str, str]:
    """Return what a sink has of the owner of its rows, if a pipeline file was unpacked from an archive."""
    with pytest.MonkeyPatch.context() as patch:  # the package of the archive takes half a second to load
        patch.setattr(packaged_module, "_ARCHIVE", archive)
        return load_pipeline(file).owner.said("/data/out", "match")


def rules(file: Path) -> list[str]:
    return sorted(path.stem for path in file.parent.rglob("*.cep"))


def test_jobs_of_the_same_name_share_no_files(tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    before, after = packaged(tmp_path / "a", "high", "gone"), packaged(tmp_path / "b", "high")
    with started(before, temporary) as one, started(after, temporary) as other:
        assert rules(one) == ["gone", "high"]
        assert rules(other) == ["high"]
        # A batch that is packaged again replaces its own result.
        assert owner(one, before) == owner(other, after)
        assert owner(one, before) != owner(other, temporary)
    with started(after, temporary) as last:
        assert rules(last) == ["high"]
        assert not one.exists()
        assert not other.exists()


def test_nobody_else_reads_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with started(packaged(tmp_path / "a", "high"), tmp_path) as file:
            [place] = tmp_path.glob("spark-cep-*")
            assert (file.is_relative_to(place), place.stat().st_mode & 0o777) == (True, 0o700)
    finally:
        os.umask(before)


def run_main(archive: Path, temporary: Path, limit: str = "unlimited") -> str:
    """Run the `main.py` of an archive, but no Spark; return its messages. `limit`: KB of a file."""
    with zipfile.ZipFile(archive) as file:
        file.extract("main.py", temporary)
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f {limit}; exec {sys.executable} main.py --root /other"],
        cwd=temporary, env={**os.environ, "PYTHONPATH": str(archive), "TMPDIR": str(temporary)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_pipeline_may_have_any_name(tmp_path: Path) -> None:
    name = 'Größe "x" a\\b.yaml'
    (tmp_path / f"spark-cep-{os.geteuid()}").touch()  # a folder of all jobs would have this name
    (tmp_path / "pyspark").mkdir()  # one that is too old: a mistake in a file is reported first
    (tmp_path / "pyspark/__init__.py").touch()
    (tmp_path / "pyspark/version.py").write_text('__version__ = "3.4.0"\n')
    said = run_main(packaged(tmp_path / "a", "high", name=name), tmp_path)
    assert said.startswith("error[E0839]: a path outside of the declared roots")
    assert f"/job.zip/job/{name}:1:" in said


def test_files_that_cannot_be_unpacked_are_an_error_in_one_sentence(tmp_path: Path) -> None:
    archive = packaged(tmp_path / "a", "high")
    said = run_main(archive, tmp_path, "1")
    place = rf"`{tmp_path}/spark-cep-\w+/job.zip`"
    assert re.fullmatch(rf"error\[E0609\]: {place} cannot be written: File too large\n", said)
