"""What a run says of a declared field that no event has: at its end, and while a stream goes on."""

from __future__ import annotations

import json
import threading
import time
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline

TEXT = (
    "field `Speed` is in none of 3 events; the data have `speed`: upper and lower case count; "
    "declare field: speed"
)


def write(folder: Path, *more: str) -> Path:
    (folder / "e.cep").write_text(
        "RULE fast FROM e PARTITION BY k PATTERN a DEFINE a AS Speed > 1 MEASURES a.Speed AS s"
    )
    (folder / "in").mkdir()
    event = {"ts": "2024-05-01T10:00:00Z", "k": "a", "speed": 2}
    (folder / "in/1.json").write_text(f"{json.dumps(event)}\n" * 3 + "broken\n")
    file = folder / "p.yaml"
    lines = (
        "streams: {e: {event_time: ts, schema: {ts: timestamp, k: string, Speed: double, unread: int}}}",
        "rules: [e.cep]\nsource: {stream: e, format: json, path: in}\nsinks: [{format: json, path: out}]",
    )
    file.write_text("\n".join((*lines, *more)) + "\n")
    return file


@pytest.mark.parametrize("more", [("mode: batch",), ("checkpoint: c", "at_end: finish")])
def test_a_field_that_no_event_has_is_said(
    spark: SparkSession, tmp_path: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run_pipeline(write(tmp_path, *more), console=Console(file=StringIO()), quiet=True)
    assert summary.lacks_fields
    found = summary.to_json()["absent_fields"]
    assert [(item["column"], item["events"], item["is_read"]) for item in found] == [
        ("Speed", 3, True),
        ("unread", 3, False),
    ]
    assert "absent" not in summary.to_json()["counts"]
    said = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert said == ["malformed 1 not a JSON object (1)", f"absent fields 1 {TEXT}"]


def test_a_stream_that_goes_on_says_it_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(
        tmp_path,
        "checkpoint: c",
        "trigger: 100 milliseconds",
        "dead_letter: {format: json, path: dead}",
    )
    has_ended = threading.Event()  # it may have failed, or have been skipped
    feeding = threading.Thread(target=lambda: _feed(tmp_path, spark, has_ended), daemon=True)
    feeding.start()
    try:
        run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    finally:
        has_ended.set()
    feeding.join(60)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count(f"warning: {TEXT}") == 1


def _feed(folder: Path, spark: SparkSession, has_ended: threading.Event) -> None:
    """Write a file when the last one has been read, three in all; then end the stream if it runs."""
    deadline = time.monotonic() + 240
    for number in (2, 3, 4):  # when the third one has been read, all about the first ones has been said
        while len(list((folder / "dead").rglob("part-*"))) < number - 1 and time.monotonic() < deadline:
            if has_ended.wait(0.2):
                return  # nor are the streams of other tests to be stopped
        (folder / f"in/{number}.json").write_text((folder / "in/1.json").read_text())
    for query in spark.streams.active:
        query.stop()
