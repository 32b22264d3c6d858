"""Pipelines that read topics and write topics."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import CepError
from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime import run_pipeline
from spark_runtime.connectors.message_logs import planner
from spark_runtime.connectors.message_logs.catch_up import Backlog
from spark_runtime.connectors.message_logs.log import Place
from spark_runtime.pipeline.progress import Summary
from tests import odd_numbers
from tests.java_classes import own_spark
from tests.servers.kafka_broker import PASSWORD, USER, Broker

pytestmark = pytest.mark.spark

STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
"""
RULES = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""
START = datetime(2024, 5, 1, tzinfo=UTC)


def tick(number: int, seconds: float, k: str = "k") -> bytes:
    ts = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"id": number, "k": k, "ts": ts}).encode()


def pipeline(folder: Path, broker: Broker, topic: str, *more: str, sink: str, source: str = "") -> Path:
    (folder / "rules.cep").write_text(RULES)
    (folder / "streams.yaml").write_text(STREAMS)
    file = folder / "pipeline.yaml"
    lines = (
        "rules: [rules.cep]",
        f'source: {{stream: ticks, format: kafka, brokers: "{broker.address}", topic: {topic}{source}}}',
        f"sinks: [{sink}]",
        "checkpoint: checkpoint",
        *more,
    )
    file.write_text("\n".join(lines) + "\n")
    return file


def to_topic(broker: Broker, topic: str) -> str:
    return f'{{format: kafka, brokers: "{broker.address}", topic: {topic}}}'


TO_FILES = "{format: json, path: out}"


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def in_files(folder: Path) -> list[str]:
    lines = [line for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["match_id"] for line in lines)


def in_topic(broker: Broker, topic: str) -> list[str]:
    return sorted(json.loads(message.value())["match_id"] for message in broker.messages(topic))


def expected_of(folder: Path, broker: Broker, topic: str) -> list[str]:
    """Return the matches of a local run over the messages of a topic."""
    (folder / "rules.cep").write_text(RULES)
    (folder / "streams.yaml").write_text(STREAMS)
    file = folder / "events.json"
    file.write_text("".join(message.value().decode() + "\n" for message in broker.messages(topic)))
    rules = compile_rulebook(load_rulebook([folder / "rules.cep"])).rule_set
    return sorted(match_file(rules, file).matches.column("match_id").to_pylist())


def one_after_the_other(backlogs: Mapping[Place, Backlog], most: int) -> dict[Place, int]:
    """Share a micro-batch as if nobody knew event times: all of the first partition comes first."""
    found = {}
    for place, backlog in backlogs.items():
        found[place] = min(backlog.n, most)
        most -= found[place]
    return found


def test_partitions_of_unlike_density_are_caught_up_with_the_matches_of_a_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, [tick(i, i, f"k{i % 3}") for i in range(2_000)])
    broker.send(topic, [tick(10_000 + i, i * 50 + 0.5, f"k{i % 3}") for i in range(40)], partition=1)
    expected = expected_of(tmp_path, broker, topic)
    assert len(expected) > 900

    def found(name: str, *settings: str) -> tuple[list[str], int]:
        folder = tmp_path / name
        folder.mkdir()
        source = ", max_events_per_trigger: 1100"
        summary = quiet_run(pipeline(folder, broker, topic, *settings, sink=TO_FILES, source=source))
        assert summary.counts.events == 2_040
        return in_files(folder / "out"), summary.counts.late

    assert found("batch", "mode: batch") == (expected, 0)
    assert found("by time", "at_end: finish") == (expected, 0)
    # Even so nothing is late, because what is not read holds the watermark back; without that some are.
    monkeypatch.setattr(planner, "shares_by_time", one_after_the_other)
    assert found("in turn", "at_end: finish") == (expected, 0)
    _, n_late = found("fastest", "at_end: finish", "watermark: fastest")
    assert n_late > 10


def test_dead_letters_tombstones_and_late_events_are_told_and_a_new_partition_is_read(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, dead, late = broker.topic(), broker.topic("dead"), broker.topic("late")
    broker.send(topic, [tick(1, 1), b"no", None, tick(2, 2), tick(3, 100)])
    sinks = (f"dead_letter: {to_topic(broker, dead)}", f"late: {to_topic(broker, late)}")
    file = pipeline(tmp_path, broker, topic, *sinks, sink=TO_FILES)
    counts = quiet_run(file).counts
    assert (counts.events, counts.malformed, counts.tombstones) == (3, 1, {f"{topic}[0]": 1})
    broker.grow(topic, 2)
    broker.send(topic, [tick(4, 5), tick(5, 200)], partition=1)
    broker.send(topic, [tick(6, 300)])
    counts = quiet_run(file).counts
    assert (counts.events, counts.late) == (3, 1)
    assert [json.loads(message.value()) for message in broker.messages(dead)] == [
        {"reason": "not a JSON object", "source": f"{topic}[0]", "position": 1, "raw": "no"}
    ]
    assert [json.loads(message.value())["id"] for message in broker.messages(late)] == [4]
    assert counts.late_in == {f"{topic}[1]": 1}


KILLED = """
import os, signal, sys
from spark_runtime.connectors.kafka.sink import TopicSink
from spark_runtime.pipeline.pipeline import run_pipeline

commit, number, is_after = TopicSink.commit, int(sys.argv[2]), sys.argv[3] == "after"

def planted(self, batch):
    if batch.number == number and not is_after:
        self._producer.client.flush(30)  # all messages are there, and not committed
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, batch)
    if batch.number == number:
        os.kill(os.getpid(), signal.SIGKILL)

TopicSink.commit = planted
run_pipeline(sys.argv[1], quiet=True)
"""


@pytest.mark.deep
def test_a_run_that_is_killed_around_the_commit_of_its_sink_writes_each_match_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, out = broker.topic(n_partitions=2), broker.topic("out")
    for partition in (0, 1):
        broker.send(topic, [tick(2 * i + partition, i, f"k{i % 3}") for i in range(200)], partition=partition)
    expected = expected_of(tmp_path, broker, topic)
    folder = tmp_path / "stream"
    folder.mkdir()
    source = ", max_events_per_trigger: 200"
    file = pipeline(folder, broker, topic, "at_end: finish", sink=to_topic(broker, out), source=source)
    n_seen = []
    for number, moment in ((1, "before"), (1, "after")):
        command = [sys.executable, "-c", KILLED, str(file), str(number), moment]
        done = subprocess.run(command, env=own_spark(), capture_output=True, text=True, timeout=300)
        assert done.returncode == -signal.SIGKILL, done.stderr
        n_all = len(broker.messages(out, "read_uncommitted"))
        n_seen.append((len(in_topic(broker, out)), n_all))
    quiet_run(file)
    assert in_topic(broker, out) == expected
    (before, before_all), (after, after_all) = n_seen
    assert 0 < before < before_all  # it was killed with messages that nobody may see
    assert before < after < len(expected)
    assert after_all > after


def test_secrets_stand_nowhere_and_errors_come_before_anything_runs(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("secret")
    broker.allow("secret")
    broker.send(topic, [tick(i, i) for i in range(4)])
    file = pipeline(tmp_path, broker, topic, "at_end: finish", sink=TO_FILES)
    options = f"options: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: {USER}, "
    options += "sasl.password: '${CEP_TEST_PASSWORD}'}"
    text = file.read_text().replace(broker.address, broker.sasl_address)
    file.write_text(text.replace(f"topic: {topic}", f"topic: {topic}, {options}"))

    def code() -> str:
        with pytest.raises(CepError) as caught:
            quiet_run(file)
        assert not (tmp_path / "out").rglob("part-*") or not list((tmp_path / "out").rglob("part-*"))
        return caught.value.code

    monkeypatch.delenv("CEP_TEST_PASSWORD", raising=False)
    assert code() == "E0853"
    monkeypatch.setenv("CEP_TEST_PASSWORD", "wrong")
    assert code() == "E0852"
    # The workers have the environment that they were started with, so the secret is put into theirs, too.
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    spark.sparkContext.environment["CEP_TEST_PASSWORD"] = PASSWORD
    try:
        assert quiet_run(file).counts.events == 4
    finally:
        del spark.sparkContext.environment["CEP_TEST_PASSWORD"]
    stored = [
        path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert stored == []


def test_matches_in_a_topic_are_the_stream_and_the_table_of_the_next_pipeline(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    events, matches = broker.topic(), broker.topic("matches")
    broker.send(events, [line.encode() for line in odd_numbers.lines().splitlines()])
    streams = odd_numbers.STREAMS.replace(
        "static: true", "event_time: match_start\n    replicated: true"
    ).replace("schema: {id: string, x: double}", "schema: {id: string, match_start: timestamp, x: double}")
    (tmp_path / "streams.yaml").write_text(streams)
    (tmp_path / "first.cep").write_text(odd_numbers.FIRST)
    (tmp_path / "second.cep").write_text(odd_numbers.SECOND)

    def source(stream: str, topic: str) -> str:
        kind = "table" if stream == "known" else "stream"
        return f'{{{kind}: {stream}, format: kafka, brokers: "{broker.address}", topic: {topic}}}'

    (tmp_path / "first.yaml").write_text(
        f"rules: [first.cep]\nsource: {source('first', events)}\n"
        f"sinks: [{to_topic(broker, matches)}]\ncheckpoint: one\nat_end: finish\n"
    )
    (tmp_path / "second.yaml").write_text(
        f"rules: [second.cep]\nsources: [{source('second', matches)}, {source('known', matches)}]\n"
        f"sinks: [{TO_FILES}]\ncheckpoint: two\nat_end: finish\n"
    )
    quiet_run(tmp_path / "first.yaml")
    counts = quiet_run(tmp_path / "second.yaml").counts
    assert (counts.events, counts.malformed) == (len(odd_numbers.NUMBERS), 0)
    lines = [line for file in tmp_path.rglob("part-*") for line in file.read_text().splitlines()]
    assert odd_numbers.found(map(json.loads, lines)) == odd_numbers.expected()
