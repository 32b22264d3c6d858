"""What a pipeline file may say of Kafka; nothing here needs a broker or librdkafka."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError, RuleError
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.kafka.by_spark import JARS, KafkaOfSpark
from spark_runtime.connectors.kafka.log import KafkaLog
from spark_runtime.connectors.kafka.sink_settings import TopicSpec
from spark_runtime.connectors.message_logs.settings import MessageSpec
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sources.spec import SourceContext

FILE = """
streams: {{t: {{event_time: ts, schema: {{id: bigint, ts: timestamp}}}}}}
rules: [r.cep]
source: {{stream: t, format: kafka, {source}}}
sinks: [{{format: kafka, {sink}}}]
checkpoint: c
"""
SINK = "brokers: b, topic: out"
STREAM = Stream("t", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
CONTEXT = SourceContext(STREAM, (("id",),), is_stream=True)


def load(folder: Path, source: str, sink: str = SINK) -> Pipeline:
    (folder / "r.cep").write_text("RULE r FROM t PARTITION BY id PATTERN a DEFINE a AS id > 0")
    (folder / "p.yaml").write_text(FILE.format(source=source, sink=sink))
    return load_pipeline(folder / "p.yaml")


def source_of(folder: Path, text: str) -> tuple[MessageSpec, KafkaLog]:
    spec = load(folder, text).sources[0].spec
    assert isinstance(spec, MessageSpec)
    assert isinstance(spec.log, KafkaLog)
    return spec, spec.log


def problems(folder: Path, source: str, sink: str = SINK) -> list[str]:
    with pytest.raises(RuleError) as caught:
        load(folder, source, sink)
    return [f"{problem.code} {problem.title}: {problem.help}" for problem in caught.value.diagnostics]


def test_a_topic_needs_no_more_than_brokers_and_a_name(tmp_path: Path) -> None:
    spec, log = source_of(tmp_path, "brokers: 'b:9092', topic: orders")
    assert (log.topics, spec.begin, spec.value_format.name, log.isolation) == (
        ("orders",),
        "earliest",
        "json",
        "read_committed",
    )
    assert (spec.max_events, spec.goes_on_without, spec.has_dead_tombstones) == (None, False, False)
    assert spec.place == "orders"


def test_all_settings_are_read(tmp_path: Path) -> None:
    spec, log = source_of(
        tmp_path,
        "brokers: [a, b], topic: [x, y], from: {'x[0]': 5}, value: csv, columns: {key: id}, on_lost: go_on, "
        "max_events_per_trigger: 9, tombstones: dead_letter, isolation: read_uncommitted, "
        "options: {sasl.password: 'a${B}c', socket.timeout.ms: 10}",
    )
    assert (log.connection.brokers, log.topics, spec.begin) == ("a,b", ("x", "y"), {"x[0]": 5})
    assert (spec.value_format.name, spec.columns, spec.max_events) == ("csv", {"id": "key"}, 9)
    assert (spec.goes_on_without, spec.has_dead_tombstones, log.isolation) == (
        True,
        True,
        "read_uncommitted",
    )
    assert log.connection.options == (("sasl.password", "a${B}c"), ("socket.timeout.ms", "10"))
    assert "a${B}c" not in repr(spec)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("latest", "latest"),
        ("2024-05-01T00:00:00Z", 1714521600000000),
        ("2024-05-01", 1714521600000000),
        ("{0: 3, 1: 4}", {"x[0]": 3, "x[1]": 4}),
    ],
)
def test_a_stream_begins_by_word_time_or_offsets(tmp_path: Path, text: str, begin: Any) -> None:
    assert source_of(tmp_path, f"brokers: b, topic: x, from: {text}")[0].begin == begin


def test_topics_are_named_or_matched_by_a_pattern(tmp_path: Path) -> None:
    spec, log = source_of(tmp_path, "brokers: b, topic_pattern: 'orders-.*'")
    assert (log.topics, log.pattern, spec.place) == ((), "orders-.*", "orders-.*")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("topic: x", ["E0404 `source` has no `brokers`: add: brokers: ..."]),
        ("brokers: b", ["E0404 `source` has neither `topic` nor `topic_pattern`: add: topic: ..."]),
        (
            "brokers: b, topic: x, topic_pattern: y",
            ["E0843 `topic` and `topic_pattern` together: remove one"],
        ),
        (
            "brokers: b, topic_pattern: '('",
            [
                "E0402 `topic_pattern` is not a regular expression: missing ), unterminated subpattern at "
                "position 0: for example: orders-.*"
            ],
        ),
        (
            "brokers: b, topic: x, from: soon",
            [
                "E0841 `from` cannot be `soon`: write earliest, latest, a time such as 2024-05-01T12:00:00Z, "
                "or offsets: {0: 100, 1: 250}"
            ],
        ),
        (
            "brokers: b, topic: [x, y], from: {0: 1}",
            ["E0841 `0` is no partition: write topic and number: {orders[0]: 100}"],
        ),
        (
            "brokers: b, topic: x, value: parquet",
            ["E0841 `value` cannot be `parquet`: write json or csv or kv or avro or protobuf or debezium"],
        ),
        (
            "brokers: b, topic: x, columns: {size: id}",
            [
                "E0841 a message has no `size`: write key, headers, topic, partition, offset, timestamp "
                "or header.NAME"
            ],
        ),
        (
            "brokers: b, topic: x, columns: {key: id, topic: id}",
            ["E0843 column `id` occurs twice: keep one of them"],
        ),
        (
            "brokers: b, topic: x, options: {isolation.level: read_committed}",
            ["E0843 `isolation.level` is not for `options`: remove it"],
        ),
        ("brokers: b, topic: x, path: in", ["E0843 a source of format kafka has no `path`: remove it"]),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write(tmp_path: Path, source: str, found: list[str]) -> None:
    said = problems(tmp_path, source)
    assert [text.replace("csv or kv", "csv") for text in said] == [
        text.replace("csv or kv", "csv") for text in found
    ]


def test_a_sink_is_a_topic_and_a_key(tmp_path: Path) -> None:
    (spec,) = load(tmp_path, "brokers: b, topic: x", "brokers: b, topic: out, key: key").sinks
    assert isinstance(spec, TopicSpec)
    assert (spec.topic, spec.key) == ("out", "key")
    assert problems(tmp_path, "brokers: b, topic: x", "brokers: b, topic: out, key: id") == [
        "E0841 `key` cannot be `id`: write match_id or key"
    ]


def test_a_missing_package_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None)
    assert problems(tmp_path, "brokers: b, topic: x") == [
        f"E0683 {what} of format kafka needs the package `confluent_kafka`, which is not installed: "
        "pip install 'spark-cep[kafka]'"
        for what in ("`source`", "a sink")
    ]


def test_without_librdkafka_everything_is_imported_and_other_pipelines_are_read(tmp_path: Path) -> None:
    load(tmp_path, "brokers: b, topic: x")
    code = """
import pkgutil, sys, importlib
sys.modules["confluent_kafka"] = None
import spark_runtime
for found in pkgutil.walk_packages(spark_runtime.__path__, "spark_runtime."):
    importlib.import_module(found.name)
from spark_runtime.pipeline.pipeline_file import load_pipeline
load_pipeline(sys.argv[1])
"""
    file = tmp_path / "p.yaml"
    text = file.read_text().replace("format: kafka, brokers: b, topic: x", "format: json, path: in")
    file.write_text(text.replace("format: kafka, brokers: b, topic: out", "format: json, path: out"))
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_setting_that_nothing_has_is_told_with_those_of_the_format_only(tmp_path: Path) -> None:
    [said] = problems(tmp_path, f"{SINK}, quux: 1")
    assert said.startswith("E0403 `source` has no setting `quux`: ")
    assert "topic_pattern" in said
    assert "idle_after" in said
    assert "slot" not in said  # of postgres
    [said] = problems(tmp_path, SINK, f"{SINK}, quux: 1")
    assert "retract" in said
    assert "partition_by" not in said  # of delta
    [said] = problems(tmp_path, f"{SINK}, slot: x")
    assert said == "E0843 a source of format kafka has no `slot`: remove it"


def test_via_spark_takes_the_settings_of_messages_and_options_of_the_connector(tmp_path: Path) -> None:
    source = (
        "via: spark, brokers: [a, b], topic: [x, y], from: {'x[0]': 5}, on_lost: go_on, "
        "columns: {header.h: id}, max_events_per_trigger: 9, isolation: read_uncommitted, "
        "options: {kafka.security.protocol: SSL, minPartitions: 4}"
    )
    opened = load(tmp_path, source).sources[0].spec.open(CONTEXT)
    assert isinstance(opened, KafkaOfSpark)
    assert opened.options() == {
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "kafka.bootstrap.servers": "a,b",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.security.protocol": "SSL",
        "maxOffsetsPerTrigger": "9",
        "minPartitions": "4",
        "startingOffsets": '{"x": {"0": 5}}',
        "subscribe": "x,y",
    }
    opened = (
        load(tmp_path, "via: spark, brokers: a, topic_pattern: o.*, from: 1970-01-01T00:00:01Z")
        .sources[0]
        .spec.open(CONTEXT)
    )
    assert isinstance(opened, KafkaOfSpark)
    begin = {name: text for name, text in opened.options().items() if name.startswith("s")}
    assert begin == {
        "startingOffsetsByTimestampStrategy": "latest",
        "startingTimestamp": "1000",
        "subscribePattern": "o.*",
    }
    assert problems(tmp_path, f"{SINK}, via: spark, options: {{startingOffsets: latest}}") == [
        "E0843 `startingOffsets` is not for `options`: remove it"
    ]
    assert problems(tmp_path, f"{SINK}, via: spark, columns: {{headers: id}}") == [
        "E0841 a message has no `headers`: write key, topic, partition, offset, timestamp or header.NAME"
    ]
    assert problems(tmp_path, f"{SINK}, via: sparc") == [
        "E0841 `via` cannot be `sparc`: write librdkafka or spark"
    ]


def test_the_jars_of_via_spark_are_looked_for_without_spark(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    source = f"brokers: '127.0.0.1:{server.getsockname()[1]}', topic: t, via: spark"
    opened = load(tmp_path, source).sources[0].spec.open(CONTEXT)
    assert isinstance(opened, KafkaOfSpark)
    with pytest.raises(InputError) as caught:
        opened.check_settings({})
    assert caught.value.code == "E0830"
    assert all(jar in caught.value.args[0] for jar in JARS)
    places = []
    for jar in JARS:
        _, name, version = jar.split(":")
        places.append(tmp_path / f"{name}-{version}.jar")
        places[-1].touch()
    opened.check_settings({"spark.jars": ", ".join(map(str, places))})
    opened.check_settings({"spark.jars.packages": JARS[0]})
    places[2].unlink()
    with pytest.raises(InputError) as caught:
        opened.check_settings({"spark.jars": ",".join(map(str, places))})
    assert JARS[2] in caught.value.args[0]
    assert JARS[1] not in caught.value.args[0]
    server.close()
    with pytest.raises(InputError) as caught:
        opened.check_settings({"spark.jars.packages": JARS[0]})
    assert caught.value.code == "E0850"
