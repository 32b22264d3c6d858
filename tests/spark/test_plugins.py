"""A package of somebody else is used by its names, in `cep match` and in a pipeline on Spark."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests/sample_plugin"

STREAMS = "streams:\n  s: {event_time: ts, schema: {id: bigint, ts: timestamp}}\n"
RULE = "RULE even FROM s PARTITION BY id PATTERN a DEFINE a AS id >= 2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "rule.cep").write_text(RULE)
    (tmp_path / "in").mkdir()
    lines = [f"id={number} ts=2024-05-01T00:00:0{number}Z" for number in range(4)]
    (tmp_path / "in/a.kv").write_text("\n".join([*lines, "no event", ""]))
    return tmp_path


def cep(folder: Path, *arguments: str, plugin: Path | None = PLUGIN) -> subprocess.CompletedProcess[str]:
    """Run the command with the package on the path."""
    path = ":".join(str(item) for item in (ROOT, plugin) if item is not None)
    return subprocess.run(
        [sys.executable, "-m", "cep", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )


def pipeline(folder: Path, source: str, more: str) -> None:
    (folder / "pipeline.yaml").write_text(
        f"rules: [rule.cep]\nsource: {{stream: s, {source}}}\n"
        "sinks: [{format: sqlite, path: found.db}]\n"
        f"dead_letter: {{format: sqlite, path: dead.db}}\n{more}\n"
    )


def stored(file: Path, name: str) -> list[object]:
    with closing(sqlite3.connect(file)) as database:
        return [json.loads(line)[name] for (line,) in database.execute("SELECT line FROM found")]


@pytest.mark.parametrize("choice", [(), ("--format", "kv")])
def test_match_reads_a_format_of_a_plug_in(folder: Path, choice: tuple[str, ...]) -> None:
    done = cep(folder, "match", ".", "-i", "in", "--dead-letter", "dead.jsonl", *choice)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [2, 3]
    (dead,) = (folder / "dead.jsonl").read_text().splitlines()
    assert json.loads(dead) == {
        "reason": "not key=value",
        "source": "in/a.kv",
        "position": 5,
        "raw": "no event",
    }


def test_match_names_the_formats_that_there_are(folder: Path) -> None:
    done = cep(folder, "match", ".", "-i", "in", "--format", "xml")
    assert done.stderr == "error[E0680]: there is no format `xml`\nhelp: formats: json, csv, parquet, kv\n"
    done = cep(folder, "match", ".", "-i", "in/a.kv", plugin=None)
    assert done.stderr == (
        "error[E0602]: the format of `in/a.kv` cannot be told\nhelp: give the format: json, csv or parquet\n"
    )


def test_a_pipeline_names_a_plug_in_that_it_lacks_with_its_place(folder: Path) -> None:
    pipeline(folder, "format: kv, path: in", "mode: batch")
    done = cep(folder, "run", "pipeline.yaml", plugin=None)
    assert "error[E0841]: `format` cannot be `kv`" in done.stderr
    assert "write json or csv or parquet or rate" in done.stderr
    assert "error[E0841]: `format` cannot be `sqlite`" in done.stderr
    assert "write console or json or parquet" in done.stderr


def test_a_pipeline_refuses_a_setting_that_the_plug_in_does_not_have(folder: Path) -> None:
    pipeline(folder, "format: counter, path: in", "mode: batch")
    done = cep(folder, "run", "pipeline.yaml")
    assert "error[E0843]: a source of format counter has no `path`" in done.stderr
    pipeline(folder, "format: counter, event: 3", "mode: batch")
    done = cep(folder, "run", "pipeline.yaml")
    assert "error[E0403]: `source` has no setting `event`" in done.stderr
    assert "`events`" in done.stderr


def test_a_pipeline_reads_a_format_and_writes_a_sink_of_a_plug_in(folder: Path) -> None:
    pipeline(folder, "format: kv, path: in", "mode: batch")
    done = cep(folder, "run", "pipeline.yaml")
    assert done.returncode == 0, done.stderr
    assert sorted(map(str, stored(folder / "found.db", "id"))) == ["2", "3"]
    assert stored(folder / "dead.db", "position") == [5]


@pytest.mark.deep
def test_a_stream_reads_a_source_of_a_plug_in_partition_by_partition(folder: Path) -> None:
    pipeline(folder, "format: counter, events: 9, partitions: 2", "checkpoint: checkpoint\nat_end: finish")
    done = cep(folder, "run", "pipeline.yaml")
    assert done.returncode == 0, done.stderr
    expected = [number for number in (*range(2, 9), *range(100, 109)) if number % 100 != 6]
    assert sorted(map(str, stored(folder / "found.db", "id"))) == sorted(map(str, expected))
    dead = sorted(zip(*(stored(folder / "dead.db", name) for name in ("source", "position")), strict=True))
    assert dead == [("counter[0]", 6), ("counter[1]", 6)]
    reached = json.loads((folder / "checkpoint/done.json").read_text())
    (last,) = [
        json.loads(value[0]) for number, value in reached.items() if int(number) == max(map(int, reached))
    ]
    us = 1_714_521_608_000_000
    assert last[1] == {"s[0]": [us, "counter[0]@8"], "s[1]": [us, "counter[1]@8"]}
    assert (folder / "checkpoint/files/s.log").read_text().splitlines()[-1] == "[9, 9]"
