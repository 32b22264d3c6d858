"""Files in other forms are read in a pipeline as without Spark, also where only Spark knows the files."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.local.match_file import match_file
from cep.rule_set import RuleSet
from cep.settings.schema_file import load_streams
from spark_runtime import run_pipeline
from tests.spark.events import comparable

RULE = "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN 1 DAY DEFINE b AS note = a.note"

STREAMS = """
streams:
  s:
    event_time: ts
    schema: {ts: {type: timestamp, format: "%d.%m.%Y %H:%M", zone: Europe/Berlin}, k: string, note: string}
    csv: {delimiter: ";", encoding: cp1252, header: false}
"""

PLACES = [("stream", ""), ("batch", ""), ("stream", "file://{folder}/"), ("batch", "file://{folder}/")]


def files(folder: Path, file_format: str, mode: str, place: str) -> tuple[Path, RuleSet]:
    """Write streams, rules and a pipeline into `folder`; return its file and the programs."""
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "r.cep").write_text(RULE)
    path = f"{place.format(folder=folder)}events"
    file = folder / "pipeline.yaml"
    file.write_text(
        f"streams: streams.yaml\nrules: [r.cep]\n"
        f"source: {{stream: s, format: {file_format}, path: '{path}'}}\n"
        "sinks: [{format: parquet, path: out/matches}]\ndead_letter: {format: json, path: out/dead}\n"
        f"checkpoint: out/checkpoint\nmode: {mode}\n" + ("" if mode == "batch" else "at_end: finish\n")
    )
    (folder / "events").mkdir()
    streams = load_streams(folder / "streams.yaml")
    return file, compile_sources([Source("r", RULE)], streams).rule_set


def found(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the matches and the dead letters of a run."""
    matches = pyarrow.dataset.dataset(folder / "out/matches", partitioning=None).to_table().to_pylist()
    dead = [
        json.loads(line)
        for file in (folder / "out/dead").rglob("part-*")
        for line in file.read_text().splitlines()
    ]
    return matches, dead


@pytest.mark.parametrize(("mode", "place"), PLACES)
def test_csv_of_another_layout_is_read_as_without_spark(
    spark: SparkSession, tmp_path: Path, mode: str, place: str
) -> None:
    file, programs = files(tmp_path, "csv", mode, place)
    lines = [
        f'1.5.2024 12:{minute:02};{key};"{key}\n\n""{minute // 5}"""'
        for minute in range(50)
        for key in ("Zo\u00eb", "b")
    ]
    lines[7:7] = [
        "2024-05-01;a;x",
        '1.5.2024 12:00;a;"open',
        "31.4.2024 12:00;a;x",
        "1.5.2024 12:00;a",
        "\x81",
        "",
    ]
    data = "\r\n".join(lines).encode("latin-1")
    for number in range(2):
        (tmp_path / "events" / f"{number}.csv").write_bytes(data)
    summary = run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    local = match_file(programs, tmp_path / "events")
    assert (local.counts.events, local.counts.malformed) == (200, 10)
    matches, dead = found(tmp_path)
    assert len(matches) > 20
    assert comparable(matches) == comparable(local.matches.to_pylist())
    assert comparable(dead) == comparable(local.dead_letters.to_pylist())
    assert summary.counts == local.counts


@pytest.mark.parametrize(("mode", "place"), PLACES)
def test_a_json_array_is_refused_as_without_spark(
    spark: SparkSession, tmp_path: Path, mode: str, place: str
) -> None:
    file, _ = files(tmp_path, "json", mode, place)
    (tmp_path / "events" / "a.json").write_text('[\n{"ts":"01.05.2024 12:00","k":"a"}\n]\n')
    with pytest.raises(InputError) as caught:
        run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    assert str(caught.value).startswith(f"error[E0640]: `{tmp_path}/events/a.json` is a JSON array")


def test_an_empty_file_does_not_stop_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    file, _ = files(tmp_path, "json", "stream", "")
    (tmp_path / "events" / "a.json").write_text('{"ts":"01.05.2024 12:00","k":"a"}\n')
    (tmp_path / "events" / "b.json").write_text("")
    summary = run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    assert (summary.counts.events, summary.counts.malformed) == (1, 0)
