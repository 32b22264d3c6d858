"""Nobody else can read what `cep run` and `cep spool` write, unless a setting says so."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.e2e.standalone import SPARK_SUBMIT
from tests.e2e.test_running import ROOT, event
from tests.e2e.test_running import folder as folder
from tests.java_classes import own_spark

pytestmark = pytest.mark.spark

STREAM = """\
rules: [card_testing.cep]
source: {stream: transactions, format: spool, path: inbox, reader: alerts}
sinks:
  - {format: json, path: out/json}
  - {format: parquet, path: out/parquet}
  - {format: csv, path: out/csv}
  - {format: delta, path: out/delta}
late: {format: json, path: out/late}
dead_letter: {format: parquet, path: out/dead}
checkpoint: checkpoint
at_end: finish
"""
BATCH = """\
rules: [card_testing.cep]
source: {stream: transactions, format: json, path: events.jsonl}
sinks:
  - {format: json, path: shared/json}
  - {format: delta, path: shared/delta}
mode: batch
file_mode: 0640
"""


def cep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command as a shell with a usual umask does."""
    command = [sys.executable, "-m", "cep", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=own_spark(), umask=0o022, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, pipeline: str, text: str) -> str:
    (folder / pipeline).write_text(text)
    process = cep(folder, "run", pipeline)
    _, told = process.communicate()
    assert process.returncode in (0, 3), told  # 3: some input was passed over
    return told


def spool(folder: Path, into: str, text: str, *options: str) -> None:
    """Let a spool take lines."""
    process = cep(folder, "spool", "http", "--into", into, "--port", "0", *options)
    try:
        assert process.stderr is not None
        address = process.stderr.readline().partition("listening at ")[2].strip()
        request = urllib.request.Request(address, text.encode(), {"Content-Type": "text/plain"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def modes(*roots: Path) -> set[tuple[bool, str]]:
    """Return the modes of all folders (True) and files below some folders, and of these themselves."""
    found = [item for root in roots for item in (root, *root.rglob("*"))]
    assert len(found) > len(roots)
    return {(item.is_dir(), f"{item.stat().st_mode & 0o777:04o}") for item in found}


@pytest.mark.deep
def test_nobody_else_reads_what_a_spool_and_a_stream_write(folder: Path) -> None:
    spool(folder, "inbox", (folder / "events.jsonl").read_text() + "not an event\n")
    first = run(folder, "stream.yaml", STREAM)
    spool(folder, "inbox", event(9, "c1", "2024-05-01T10:00:30Z", 1.0))
    second = run(folder, "stream.yaml", STREAM)
    assert "malformed" in first
    assert "late" in second
    outputs = {"json", "parquet", "csv", "delta", "late", "dead"}
    assert {item.name for item in (folder / "out").iterdir() if any(item.rglob("part-*"))} == outputs
    assert any((folder / "checkpoint").rglob("*.changelog"))  # state
    written = modes(folder / "inbox", folder / "out", folder / "checkpoint")
    assert written == {(True, "0700"), (False, "0600")}


def test_nobody_else_reads_what_a_stream_under_spark_submit_writes_into_folders_that_exist(
    folder: Path,
) -> None:
    for name in ("out", "checkpoint"):
        (folder / name).mkdir(mode=0o755)
    (folder / "stream.yaml").write_text(
        "rules: [card_testing.cep]\nsource: {stream: transactions, format: json, path: events.jsonl}\n"
        "sinks: [{format: json, path: out}]\ncheckpoint: checkpoint\nat_end: finish\n"
    )
    (folder / "main.py").write_text("from cep.commands.cli import main\nmain(['run', 'stream.yaml'])\n")
    with zipfile.ZipFile(folder / "job.zip", "w") as archive:  # Java opens the disk for it
        archive.writestr("of_the_job.py", "")
    command = [str(SPARK_SUBMIT), "--master", "local[1]", "--py-files", "job.zip", "main.py"]
    own = own_spark(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, cwd=folder, env=own, umask=0o022, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = modes(*(folder / "out").iterdir(), *(folder / "checkpoint").iterdir())
    assert written == {(True, "0700"), (False, "0600")}


@pytest.mark.deep
def test_a_setting_lets_others_read(folder: Path) -> None:
    run(folder, "batch.yaml", BATCH)
    spool(folder, "inbox", "{}\n", "--file-mode", "0660")
    assert modes(folder / "shared") == {(True, "0750"), (False, "0640")}
    assert modes(folder / "inbox") == {(True, "0770"), (False, "0660")}
