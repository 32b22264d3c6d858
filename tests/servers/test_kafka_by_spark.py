"""Topics that Spark's own connector reads, ``via: spark``: in a process whose Java has the jars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.java_classes import own_spark
from tests.kills.points import BEFORE, Call
from tests.kills.runs import Kill, killed
from tests.kills.ticks import Tick, expected_rows, write_rules
from tests.kills.written import in_json, lines_of
from tests.left_out import require
from tests.servers.kafka_broker import JARS, USER, Broker

CONNECTOR = JARS.parent / "spark-kafka"


def write_pipeline(folder: Path, source: str, *more: str) -> Path:
    """Write a pipeline of files whose Java has the connector."""
    write_rules(folder)
    streams = (folder / "streams.yaml").read_text()
    streams = streams.replace(
        "ts: timestamp}", "ts: timestamp, kept: timestamp, part: string, trace: string}"
    )
    (folder / "streams.yaml").write_text(streams)
    file = folder / "pipeline.yaml"
    jars = ",".join(map(str, sorted(CONNECTOR.glob("*.jar"))))
    lines = (
        "rules: [rules.cep]",
        f"source: {{stream: ticks, format: kafka, via: spark, {source}}}",
        "sinks: [{format: json, path: out}]",
        "late: {format: json, path: late}",
        "dead_letter: {format: json, path: dead}",
        f"spark: {{spark.jars: '{jars}'}}",
    )
    file.write_text("\n".join((*lines, *more)) + "\n")
    return file


@pytest.mark.deep
def test_a_stream_of_sparks_connector_has_the_matches_of_a_local_run_also_when_it_was_killed(
    broker: Broker, tmp_path: Path
) -> None:
    require(CONNECTOR.is_dir(), "Spark's connector for Kafka")
    topic = broker.topic(n_partitions=2)
    ticks = [Tick(number) for number in range(120)]
    for partition in (0, 1):
        texts = [tick.text for tick in ticks if tick.number % 2 == partition]
        broker.send(topic, texts[:30], partition, headers={"trace": b"t"})
    broker.send(topic, [None, "no event"])
    columns = "columns: {timestamp: kept, partition: part, header.trace: trace}"
    source = f'brokers: "{broker.address}", topic: {topic}, max_events_per_trigger: 50, {columns}'
    file = write_pipeline(tmp_path, source, "checkpoint: checkpoint")
    assert killed(file, Kill(Call("spark_runtime.pipeline.micro_batches", "write_done", BEFORE), 2))
    before = in_json(tmp_path / "out")
    for partition in (0, 1):
        texts = [tick.text for tick in ticks if tick.number % 2 == partition]
        broker.send(topic, texts[30:], partition)
    file.write_text(file.read_text() + "at_end: finish\n")
    assert not killed(file, Kill())
    assert lines_of(tmp_path / "late") == []
    assert [json.loads(line) for line in lines_of(tmp_path / "dead")] == [
        {"reason": "not a JSON object", "source": f"{topic}[0]", "position": 31, "raw": "no event"}
    ]
    expected = expected_rows(tmp_path, ticks)
    assert 0 < len(before) < len(expected)
    assert sorted(in_json(tmp_path / "out")) == sorted(expected)


def test_without_the_jars_doctor_and_run_name_them(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic()
    file = write_pipeline(tmp_path, f'brokers: "{broker.address}", topic: {topic}', "mode: batch")
    text = file.read_text()
    file.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("spark:")))
    for verb in ("doctor", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "cep", verb, str(file)],
            env=own_spark(COLUMNS="500"),
            capture_output=True,
            text=True,
            timeout=300,
        )
        told = done.stdout + done.stderr
        assert done.returncode != 0, verb
        assert "E0830" in told, told
        assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in told
        assert "org.apache.commons:commons-pool2:2.13.1" in told
        assert "Traceback" not in told


def test_before_it_reads_a_run_says_what_the_cluster_refuses(broker: Broker, tmp_path: Path) -> None:
    require(CONNECTOR.is_dir(), "Spark's connector for Kafka")
    topic = broker.topic()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    door = "kafka.security.protocol: SASL_PLAINTEXT, kafka.sasl.mechanism: PLAIN"
    password = f'kafka.sasl.jaas.config: \'{login} username="{USER}" password="${{CEP_TEST_PASSWORD}}";\''
    sources = {
        "topic": f'brokers: "{broker.address}", topic: nowhere',
        "password": f'brokers: "{broker.sasl_address}", topic: {topic}, options: {{{door}, {password}}}',
        "settings": f'brokers: "{broker.sasl_address}", topic: {topic}, options: {{{door}}}',
    }
    files = []
    for name, source in sources.items():
        (tmp_path / name).mkdir()
        files.append(str(write_pipeline(tmp_path / name, source, "mode: batch")))
    done = subprocess.run(  # one Java for all, with the jars
        [sys.executable, "-c", _RUN_EACH, *files],
        env=own_spark(CEP_TEST_PASSWORD="the-wrong-password"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [error["code"] for error in told] == ["E0851", "E0852", "E0853"], done.stdout + done.stderr
    assert f"there is no topic `nowhere` at `{broker.address}`" in told[0]["message"]
    assert "refuses access to topic" in told[1]["message"]
    assert "Authentication failed" in told[1]["message"]
    assert "the-wrong-password" not in done.stdout + done.stderr


@pytest.mark.deep
def test_a_topic_that_was_made_again_is_refused_though_it_is_longer(broker: Broker, tmp_path: Path) -> None:
    require(CONNECTOR.is_dir(), "Spark's connector for Kafka")
    topic = broker.topic()
    broker.send(topic, [Tick(number).text for number in range(5)])
    source = f'brokers: "{broker.address}", topic_pattern: {topic}.*'
    file = write_pipeline(tmp_path, source, "checkpoint: checkpoint")
    with subprocess.Popen(  # one Java for all, with the jars
        [sys.executable, "-c", _RUN_WHEN_TOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=own_spark(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = process.stdout.readline()
        broker.remake(topic)
        broker.send(topic, [Tick(number).text for number in range(100, 130)])
        process.stdin.write("\n")
        process.stdin.flush()
        second = process.stdout.readline()
    assert (first, second) == ("5\n", "E0854\n")


_RUN_WHEN_TOLD = """
import sys
from cep.errors import CepError
from spark_runtime import run_pipeline

print(run_pipeline(sys.argv[1], quiet=True, allow_spark_settings=True).counts.events, flush=True)
sys.stdin.readline()
try:
    run_pipeline(sys.argv[1], quiet=True, allow_spark_settings=True)
except CepError as error:
    print(error.code, flush=True)
"""

_RUN_EACH = """
import json, sys
from cep.errors import CepError
from spark_runtime import run_pipeline

for file in sys.argv[1:]:
    try:
        run_pipeline(file, quiet=True, allow_spark_settings=True)
    except CepError as error:
        print(json.dumps({"code": error.code, "message": str(error)}), flush=True)
"""
