"""The example of `docs/connectors/spool.md` does what the page says, and pipelines read what a spool has."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.spool.folder import readers, segments
from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.java_classes import own_spark
from tests.servers.spools import batch, until
from tests.unit.test_readme import ROOT

pytestmark = pytest.mark.spark


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@contextmanager
def spool(*options: str) -> Iterator[str]:
    """Run a spool in the folder `inbox` of the current folder; yield its address."""
    command = [sys.executable, "-m", "cep", "spool", "http", "--into", "inbox", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield (
            process.stderr.readline().partition("listening at ")[2].strip().replace("127.0.0.1", "localhost")
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def test_the_example_gives_the_output_that_the_page_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks("README.md", "json")[0])
    sending, reading, _ = blocks("docs/connectors/spool.md", "python")
    names: dict[str, Any] = {}
    shown = StringIO()
    with spool() as address, redirect_stdout(shown):
        exec(sending.replace("http://localhost:8085", address), names)
    (tmp_path / "pipeline.yaml").write_text(blocks("docs/connectors/spool.md", "yaml")[0])
    quiet_run(tmp_path / "pipeline.yaml")
    with redirect_stdout(shown):
        exec(reading, names)
    assert shown.getvalue() == "".join(blocks("docs/connectors/spool.md", "text"))


def test_the_loop_of_pub_sub_acknowledges_what_is_on_disk_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("docs/connectors/spool.md", "python")[2], names)
    told: list[str] = []

    def message(name: str) -> SimpleNamespace:
        """Return what the page knows of a message of Pub/Sub."""
        return SimpleNamespace(
            data=json.dumps({"id": name}).encode(),
            message_id=name,
            ack=lambda: told.append(f"{name} acknowledged"),
            nack=lambda: told.append(f"{name} refused"),
        )

    with spool() as address:
        names["take"](message("a"), f"{address}/transactions")
        there = batch(Path("inbox"))
    names["take"](message("b"), f"{address}/transactions")  # nobody listens
    assert told == ["a acknowledged", "b refused"]
    assert (there.values, there.columns["id"]) == ([b'{"id": "a"}'], ["a"])


def test_the_other_settings_of_the_page_are_read(tmp_path: Path) -> None:
    _, deduplicated, columns = blocks("docs/connectors/spool.md", "yaml")
    fields = "path: string, trace_id: string, received_at: timestamp"
    (tmp_path / "streams.yaml").write_text(deduplicated.replace("boolean}", f"boolean, {fields}}}"))
    (tmp_path / "r.cep").write_text(
        "RULE r FROM transactions PARTITION BY card_id PATTERN a DEFINE a AS amount > 0"
    )
    (tmp_path / "p.yaml").write_text(
        f"rules: [r.cep]\nsource:\n  stream: transactions\n  format: spool\n  path: inbox\n  {columns}"
        "  from: latest\n  reader: me\n  on_lost: go_on\n  max_events_per_trigger: 5\n  value: csv\n"
        "  watermark_per: card_id\nsinks: [{format: console}]\ncheckpoint: c\n"
    )
    load_pipeline(tmp_path / "p.yaml")


STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [message], deduplicate: true, lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp, message: string}}
"""
RULE = """
RULE each FROM ticks PARTITION BY k PATTERN a DEFINE a AS id >= 0 MEASURES a.id AS id NO SKIP
"""
PIPELINE = """
rules: [rules.cep]
source:
  {{stream: ticks, format: spool, path: inbox, reader: {0}, columns: {{id: message}}}}
sinks: [{{format: json, path: out-{0}}}]
checkpoint: checkpoint-{0}
{1}
"""


def post(address: str, number: int) -> None:
    body = json.dumps({"id": number, "k": "k", "ts": f"2024-05-01T10:00:{number:02}Z"}).encode()
    urllib.request.urlopen(
        urllib.request.Request(address, body, {"Idempotency-Key": str(number)}), timeout=30
    ).close()


def ids(folder: Path) -> list[int]:
    lines = [line for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_a_stream_goes_on_across_segments_drops_copies_and_lets_the_spool_remove_what_it_has_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    one, two, everything = tmp_path / "one.yaml", tmp_path / "two.yaml", tmp_path / "all.yaml"
    one.write_text(PIPELINE.format("one", "at_end: finish"))
    two.write_text(PIPELINE.format("two", ""))
    everything.write_text(PIPELINE.format("all", "mode: batch"))
    with spool(
        "--segment-bytes", "1000", "--wait-for", "one", "--wait-for", "two", "--keep", "1 second"
    ) as address:
        for number in range(30):
            post(address, number)
            if number % 3 == 0:
                post(address, number)
        quiet_run(everything)
        first = quiet_run(two).counts
        assert (first.events, first.duplicates) == (40, 10)
        for number in range(30, 40):
            post(address, number)
        second = quiet_run(two).counts
        assert (second.events, second.duplicates) == (10, 0)
        assert segments(tmp_path / "inbox")[0] == 0  # the other pipeline has not registered
        assert quiet_run(one).counts.events == 50
        assert readers(tmp_path / "inbox")["one"].number == 0  # Spark might have repeated its micro-batch
        post(address, 50)
        for file in (one, two, one, two):
            quiet_run(file)
            post(address, 51)
        assert min(place.number for place in readers(tmp_path / "inbox").values()) >= 50
        until(lambda: segments(tmp_path / "inbox")[0] > 40)  # it looks once a second
    assert ids(tmp_path / "out-all") == list(range(30))
    assert ids(tmp_path / "out-two")[:39] == list(range(39))


KILLED = """
import os, signal, sys
from spark_runtime.connectors.spool.planner import SpoolPlanner
from spark_runtime.pipeline.pipeline import run_pipeline

commit, n, is_after = SpoolPlanner.commit, int(sys.argv[2]), sys.argv[3] == "after"
visits = []

def planted(self, end):
    visits.append(end)
    if len(visits) == n and not is_after:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, end)
    if len(visits) == n:
        os.kill(os.getpid(), signal.SIGKILL)

SpoolPlanner.commit = planted
run_pipeline(sys.argv[1], quiet=True)
"""


@pytest.mark.deep
def test_a_pipeline_that_is_killed_around_its_commit_reads_each_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    file = tmp_path / "one.yaml"
    file.write_text(
        PIPELINE.format("one", "at_end: finish").replace("reader: one", "max_events_per_trigger: 10")
    )
    with spool("--segment-bytes", "600", "--keep", "0.001 seconds") as address:
        for number in range(50):
            post(address, number)
        for moment in ("before", "after"):
            done = subprocess.run(
                [sys.executable, "-c", KILLED, str(file), "2", moment],
                env=own_spark(),
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == -signal.SIGKILL, done.stderr
        quiet_run(file)
    assert ids(tmp_path / "out-one") == list(range(50))
