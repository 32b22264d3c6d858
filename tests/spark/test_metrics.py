"""Metrics of a running pipeline: what is scraped while it runs is what its summary says."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from spark_runtime import run_pipeline
from spark_runtime.pipeline.metrics import OTHER
from tests.pipeline_metrics import METRICS
from tests.spark.test_pipeline import keyed_events, text_of, write_json, write_pipeline

Samples = dict[tuple[str, tuple[str, ...]], float]
"""A name and the values of its labels -> the value."""


def got(address: str, path: str) -> str:
    with urlopen(f"http://{address}/{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def scraped(address: str) -> Samples:
    text = got(address, "metrics")
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(sample.labels.values())] = sample.value
    assert set(re.findall(r"^# TYPE (cep_\w+)", text, re.MULTILINE)) == METRICS
    return found


@contextmanager
def running(file: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a pipeline; yield its process, and the address of its metrics."""
    command = [sys.executable, "-m", "cep", "run", str(file), "--format", "json"]
    with (
        (file.parent / "errors.txt").open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield process, until(process, lambda: re.findall(r"metrics: http://([\d.:]+)/", read(errors)))[0]
        finally:
            process.kill()


def read(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read())


def until(process: subprocess.Popen[str], found: Any, seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def by_label(samples: Samples, name: str) -> dict[str, float]:
    return {labels[0]: value for (each, labels), value in samples.items() if each == name}


def assert_page_shows(live: dict[str, Any], counts: dict[str, Any]) -> None:
    assert {rule["name"]: rule["matches"] for rule in live["rules"]} == counts["matches"]
    assert sum(sum(rule["steps"].values()) for rule in live["rules"]) == sum(
        rule["open"] for rule in live["rules"]
    )
    assert {"late", "dead letters"} <= {gap["kind"] for gap in live["gaps"]}
    assert live["timeline"].count("<g>") > 3


def test_the_last_scrape_says_what_the_summary_says(tmp_path: Path) -> None:
    events = keyed_events(11, 600)
    bad = ['{"id": 2, "sensor": "s1"}', '{"id": "x", "ts": "2024-05-01T00:00:00Z", "sensor": "s1"}', "{"]
    write_json(tmp_path / "events", events, 2, bad)
    file = write_pipeline(
        tmp_path,
        "format: json, path: events, max_files_per_trigger: 1",
        'trigger: "200 milliseconds"\nmetrics: 127.0.0.1:0\nui: 127.0.0.1:0',
        "[{format: parquet, path: out/a}, {format: parquet, path: out/b}, {format: csv, path: out/c}]",
    )
    with running(file) as (process, address):
        health = json.loads(got(address, "health"))
        assert health["state"] in ("starting", "running", "waiting")
        until(process, lambda: scraped(address)["cep_events_total", ("readings",)] == len(events))
        late = {**text_of(events[0]), "id": 99_999}
        (tmp_path / "events/part-9.json").write_text(json.dumps(late) + "\n")
        until(process, lambda: sum(by_label(scraped(address), "cep_late_events_total").values()) == 1)
        until(process, lambda: json.loads(got(address, "health"))["state"] == "waiting")
        last, health = scraped(address), json.loads(got(address, "health"))
        page = re.findall(r"live page: http://([\d.:]+)/", (tmp_path / "errors.txt").read_text())[0]
        live = json.loads(got(page, "live.json"))
        process.send_signal(signal.SIGTERM)  # as Kubernetes and systemd end a process
        output, _ = process.communicate(timeout=120)
    assert (process.returncode, json.loads(output)["was_stopped"]) == (0, True)
    summary = json.loads(output)
    counts, status = summary["counts"], summary["time"]
    assert_page_shows(live, counts)
    assert last["cep_events_total", ("readings",)] == counts["events"] == len(events) + 1
    for name, field in (
        ("cep_matches", "matches"),
        ("cep_timeouts", "timeouts"),
        ("cep_suppressed_matches", "suppressed"),
        ("cep_dropped_runs", "dropped_runs"),
        ("cep_late_events", "late_of"),
        ("cep_dead_letters", "reasons"),
    ):
        assert by_label(last, f"{name}_total") == counts[field], name
    assert sum(counts["matches"].values()) > 5
    assert sum(counts["reasons"].values()) == 6
    # Each match has a delay; the events are of 2024, so all of them are in the last bucket.
    assert by_label(last, "cep_match_delay_seconds_count") == counts["matches"]
    days = by_label(last, "cep_match_delay_seconds_sum")["rise"] / counts["matches"]["rise"] / 86_400
    assert 700 < days < 20_000
    n_rows = counts["rows"]
    expected_rows = {"parquet": n_rows, "parquet-2": n_rows, "csv": n_rows, "late": 1, "dead_letter": 6}
    assert by_label(last, "cep_sink_rows_total") == expected_rows
    assert by_label(last, "cep_sink_seconds_total").keys() == expected_rows.keys()
    assert all(0 <= n < 500 for n in by_label(last, "cep_open_runs").values())
    assert sum(by_label(last, "cep_open_runs").values()) > 0
    # The end of the last micro-batch may have come after the scrape.
    assert last["cep_micro_batches_total", ()] == summary["micro_batches"] >= 3
    assert last["cep_micro_batch_seconds_count", ()] == summary["micro_batches"]
    phases = by_label(last, "cep_micro_batch_phase_seconds_total")
    assert {"addBatch", "walCommit", "queryPlanning", "wait"} <= phases.keys()
    assert OTHER not in phases
    work_s = sum(seconds for name, seconds in phases.items() if name != "wait")
    assert 0 < work_s < 1.5 * last["cep_micro_batch_seconds_sum", ()] + 1
    assert last["cep_watermark_timestamp_seconds", ()] > 1.7e9
    assert by_label(last, "cep_partition_latest_timestamp_seconds").keys() == {"readings"}
    assert by_label(last, "cep_pipeline_state")["waiting"] == last["cep_healthy", ()] == 1
    assert health["pipeline"] == "pipeline"
    assert health["last_micro_batch"] == summary["micro_batches"] - 1
    assert 0 <= health["last_micro_batch_age_seconds"] < 200
    assert health["watermark"] == status["watermark"]
    assert health["reason"] is None


def test_a_batch_says_its_address_too_and_a_run_without_the_setting_has_none(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = keyed_events(12, 50)
    write_json(tmp_path / "events", events, 1)
    for setting, n in (("metrics: 0", 1), ("", 0)):
        file = write_pipeline(tmp_path, "format: json, path: events", f"mode: batch\n{setting}")
        assert run_pipeline(file).counts.events == len(events)
        assert (
            len(re.findall(r"^metrics: http://127\.0\.0\.1:\d+/metrics$", capsys.readouterr().err, re.M)) == n
        )
