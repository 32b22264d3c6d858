"""Topics as a source, without Spark: what is planned and what is read."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.formats.lines import Lines
from cep.formats.payloads.registry import payload_format
from cep.schema.stream import Field
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.librdkafka import SWITCH
from spark_runtime.connectors.kafka.log import KafkaLog
from spark_runtime.connectors.message_logs.log import MessageRange
from spark_runtime.connectors.message_logs.offsets import of_json
from spark_runtime.connectors.message_logs.planner import MessagePlanner
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.sources.protocol import Source, TimedPlanner
from spark_runtime.sources.schema_registry import SchemaRegistry
from tests.servers.kafka_broker import PASSWORD, USER, Broker, free_ports
from tests.servers.messages import START_US, STREAM, Seen, batches, code_of, seen, value, values
from tests.unit.formats.test_avro import record, written
from tests.unit.spark_runtime.sources.registry_server import running_registry


def reading(
    broker: Broker, *topics: str, pattern: str = "", isolation: str = "read_committed", **more: Any
) -> MessageReading:
    log = KafkaLog(Connection(broker.address), topics, pattern, isolation)
    return MessageReading(STREAM, log, **more)


@pytest.fixture(params=["columns", "objects"])
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come as columns, and once more as objects: with the C interface switched off."""
    monkeypatch.setenv(SWITCH, "on" if request.param == "columns" else "off")


@pytest.mark.usefixtures("taken")
def test_json_and_csv_values_are_read_with_dead_letters_by_topic_partition_and_offset(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, [value(1), b"no", value(2)])
    broker.send(topic, [b"3,2024-05-01T00:00:00Z", b"4"], partition=1)
    found = seen(reading(broker, topic))
    assert sorted(found.ids) == [1, 2]
    assert sorted(found.dead) == [
        (f"{topic}[0]@1", "not a JSON object"),
        (f"{topic}[1]@0", "not a JSON object"),
        (f"{topic}[1]@1", "not a JSON object"),
    ]
    found = seen(reading(broker, topic, value_format=payload_format("csv")))
    assert found.ids == [3]
    assert (f"{topic}[1]@1", "1 field where there are columns for 2") in found.dead


def test_values_of_avro_are_read_with_dead_letters_by_topic_partition_and_offset(
    broker: Broker, tmp_path: Path
) -> None:
    schema = record(("id", "long"), ("ts", {"type": "long", "logicalType": "timestamp-micros"}))
    (tmp_path / "s.avsc").write_text(json.dumps(schema))
    topic = broker.topic()
    good = written(schema, [{"id": number, "ts": START_US} for number in range(3)])
    broker.send(topic, [good[0], b"\x80", None, *good[1:]])
    avro = payload_format("avro", {"schema": str(tmp_path / "s.avsc")})
    found = seen(reading(broker, topic, value_format=avro))
    assert found.ids == [0, 1, 2]
    assert found.dead == [(f"{topic}[0]@1", "the message ends within field `id`")]
    framed = broker.topic()
    with running_registry() as registry:
        registry.schemas[70_001] = json.dumps(schema)
        broker.send(framed, [b"\0" + (70_001).to_bytes(4, "big") + one for one in good])
        by_number = payload_format("avro", {}, SchemaRegistry(registry.url))
        assert seen(reading(broker, framed, value_format=by_number)).ids == [0, 1, 2]


@pytest.mark.usefixtures("taken")
def test_a_stream_begins_where_it_is_told(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(n_partitions=2)
    ms = START_US // 1000
    for number in range(4):
        broker.send(topic, values(number), timestamp=ms + 1000 * number)
    broker.send(topic, values(10, 11), partition=1, timestamp=ms)

    def ids(begin: Any) -> list[int]:
        return sorted(seen(reading(broker, topic, begin=begin)).ids)

    assert ids("earliest") == [0, 1, 2, 3, 10, 11]
    assert ids("latest") == []
    assert ids(START_US + 1_000_001) == [2, 3]
    assert ids({f"{topic}[0]": 3, f"{topic}[1]": 1}) == [3, 11]
    assert ids({f"{topic}[0]": 3}) == [3, 10, 11]  # others are read from their beginning
    assert (
        code_of(lambda: ids({f"{topic}[2]": 0}))
        == f"E0851 there is no partition `{topic}[2]` at `{broker.address}`"
    )

    log = str(tmp_path / "log")
    late = reading(broker, topic, begin="latest", start_file=log)
    assert batches(MessageSource(late).planner(), MessageSource(late)) == []
    broker.send(topic, values(4))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == [[4]]  # the first start counts


def test_offsets_are_json_and_a_range_is_planned_and_read_again_as_it_was(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, values(*range(7)))
    broker.send(topic, values(*range(10, 15)), partition=1)
    source = MessageSource(reading(broker, topic, max_events=4))
    assert isinstance(source, Source)
    assert isinstance(source.planner(), TimedPlanner)
    planner = source.planner()
    planner.stop_at_now()
    start = planner.start()
    end = planner.latest(start)
    broker.send(topic, values(7))
    again: MessageSource = pickle.loads(pickle.dumps(source))
    parts = again.planner().ranges(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    assert parts == planner.ranges(start, end)
    assert sum(part.end - part.start for _, part in parts) == 4
    assert Seen(source).read(parts).ids == Seen(again).read(parts).ids
    found = batches(source.planner(), source)
    assert sorted(chain(*found)) == [*range(8), *range(10, 15)]
    assert [len(ids) for ids in found] == [4, 4, 4, 1]
    assert source.partition(parts[0][1]) == f"{topic}[0]"


def test_a_partition_with_many_messages_is_read_by_several_tasks(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    broker.send(topic, values(*range(25)))
    monkeypatch.setattr("spark_runtime.connectors.message_logs.planner.RANGE_MESSAGES", 10)
    source = MessageSource(reading(broker, topic))
    parts = source.everything()
    assert [(part.start, part.end) for _, part in parts] == [(0, 10), (10, 20), (20, 25)]
    assert Seen(source).read(parts[::-1]).ids == [*range(20, 25), *range(10, 20), *range(10)]


@pytest.mark.usefixtures("taken")
def test_messages_are_decoded_in_portions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    broker.send(topic, values(*range(25)))
    monkeypatch.setattr("spark_runtime.connectors.kafka.fetch.MOST_BYTES", 100)
    monkeypatch.setattr("spark_runtime.connectors.kafka.fetch.TAKEN", 4)
    assert seen(reading(broker, topic)).ids == [*range(25)]


def test_messages_are_the_same_as_columns_and_as_objects(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    random = Random(7)
    sizes = [*range(5), 300, 5_000, 200_000]
    sent = [
        None if random.random() < 0.1 else random.randbytes(random.choice(sizes[: 5 + number // 30]))
        for number in range(100)
    ]
    for number, content in enumerate(sent):
        key = None if number % 7 == 0 else b"k" * random.choice((0, 3, 1_000)) + b"\xff" * (number % 5 == 0)
        commits = None if number % 20 else number % 40 == 0
        more: dict[str, Any] = {"headers": [("h", b"x" * 500)]} if number % 3 == 0 else {}
        broker.send(topic, [content], key=key, commits=commits, **more)
    columns = ("key", "topic", "partition", "offset")
    monkeypatch.setattr("spark_runtime.connectors.kafka.fetch.TAKEN", 17)
    found = []
    for has_columns in (True, False):
        monkeypatch.setenv(SWITCH, "on" if has_columns else "off")
        client = KafkaLog(Connection(broker.address), (topic,)).open()
        (end,) = client.ends([(topic, 0)]).values()
        portions = list(client.read(MessageRange(topic, 0, 3, end - 1), columns))
        client.close()
        assert [isinstance(portion.values, Lines) for portion in portions] == [has_columns] * len(portions)
        nothing = [np.zeros(len(p.values), bool) if p.is_none is None else p.is_none for p in portions]
        pairs = zip(chain.from_iterable(p.values for p in portions), np.concatenate(nothing), strict=True)
        found.append(
            (
                [None if is_none else value for value, is_none in pairs],
                np.concatenate([portion.positions for portion in portions]).tolist(),
                # As bytes: keys that are not UTF-8 are refused only by the reader of the portions.
                [[x for p in portions for x in p.columns[name].cast(pa.binary())] for name in columns],
            )
        )
    assert found[0] == found[1]
    assert set(found[0][0]) >= set(sent[3:99]) - set(sent[0:100:20])
    assert any(key.as_py() == b"\xff" for key in found[0][2][0])


@pytest.mark.usefixtures("taken")
def test_tombstones_are_counted_or_dead_letters(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [value(1), None, None, b""])
    found = seen(reading(broker, topic))
    assert (found.ids, found.dead) == ([1], [(f"{topic}[0]@3", "an empty message")])
    assert found.counts == Counts(tombstones={f"{topic}[0]": 2})
    found = seen(reading(broker, topic, has_dead_tombstones=True))
    reason = "a message without a value (tombstone)"
    assert sorted(found.dead)[:2] == [(f"{topic}[0]@1", reason), (f"{topic}[0]@2", reason)]
    assert found.counts == Counts()


@pytest.mark.usefixtures("taken")
def test_what_was_aborted_or_is_open_is_not_seen(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, values(1))
    broker.send(topic, values(2), commits=False)
    broker.send(topic, values(3), commits=True)
    assert seen(reading(broker, topic)).ids == [1, 3]
    assert seen(reading(broker, topic, isolation="read_uncommitted")).ids == [1, 2, 3]
    from confluent_kafka import Producer

    config = {"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value(4))
    producer.flush(30)
    broker.send(topic, values(5))
    assert seen(reading(broker, topic)).ids == [1, 3]  # 5 lies behind a transaction that is open
    producer.commit_transaction(30)
    assert seen(reading(broker, topic)).ids == [1, 3, 4, 5]


@pytest.mark.usefixtures("taken")
def test_behind_an_aborted_transaction_nothing_waits(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, values(1))
    broker.send(topic, values(2), commits=False)
    broker.send(topic, values(5), partition=1)
    source = MessageSource(reading(broker, topic, max_events=1))
    planner = source.planner()
    planner.stop_at_now()
    ahead = AheadGuard(STREAM.max_ahead_us)
    read = {topic: {"0": [0, 1], "1": [0, 1]}}
    assert planner.unread_after(read, ahead) == {}
    end = planner.latest(read)
    assert of_json(end) == {(topic, 0): (0, 2), (topic, 1): (0, 1)}
    assert Seen(source).read(planner.ranges(read, end)).ids == []
    planner.close(Counts())


def test_a_new_partition_and_a_new_topic_are_read_from_their_beginning(broker: Broker) -> None:
    prefix = broker.topic("growing").replace(".", "")
    now = 0.0
    pattern = f"{prefix}.*"
    planner = MessagePlanner(reading(broker, pattern=pattern, begin="latest"), lambda: now)
    source = MessageSource(reading(broker, pattern=pattern))
    broker.send(prefix, values(1))
    start = planner.start()
    assert planner.latest(start) == start
    broker.grow(prefix, 2)
    broker.send(prefix, values(2), partition=1)
    other = broker.topic(prefix)
    broker.send(other, values(3))
    assert planner.latest(start) == start  # topics are not asked for all the time
    now = 3.0
    end = planner.latest(start)
    assert Seen(source).read(planner.ranges(start, end)).ids == [2, 3]
    planner.close(Counts())


@pytest.mark.usefixtures("taken")
def test_a_worker_reads_a_partition_that_is_newer_than_what_it_knows(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, values(1))
    source = MessageSource(reading(broker, topic))
    assert seen(source.reading).ids == [1]
    broker.grow(topic, 2)
    broker.send(topic, values(2), partition=1)
    assert Seen(source).read([(1, (topic, 1, 0, 1))]).ids == [2]


@pytest.mark.usefixtures("taken")
def test_messages_that_retention_has_removed_fail_the_run_or_are_counted(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, values(*range(6)))
    broker.send(topic, values(10), partition=1)
    what = reading(broker, topic)
    source, goes_on = MessageSource(what), MessageSource(replace(what, goes_on_without=True))
    planner = source.planner()
    planner.stop_at_now()
    planned = planner.ranges(planner.start(), planner.latest(planner.start()))
    broker.forget(topic, 0, 4)

    fact = f"E0854 `{topic}[0]` begins at offset 4 now: 4 messages were removed unread"
    assert code_of(lambda: Seen(source).read(planned)) == fact  # between plan and reading
    start = {topic: {"0": [0, 1], "1": [0, 1]}}
    assert code_of(lambda: source.planner().latest(start)) == fact.replace(": 4", ": 3")
    found = Seen(goes_on).read(planned)
    assert (found.ids, found.counts) == ([4, 5, 10], Counts(lost={f"{topic}[0]": 4}))

    planner = goes_on.planner()
    found = Seen(goes_on).read(planner.ranges(start, planner.latest(start)))
    assert (found.ids, found.counts) == ([4, 5], Counts(lost={f"{topic}[0]": 3}))
    assert seen(what).ids == [4, 5, 10]  # who begins here has lost nothing


@pytest.mark.usefixtures("taken")
def test_a_topic_that_is_another_one_now_is_refused(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, values(1))
    planner = MessageSource(reading(broker, topic)).planner()
    said = code_of(lambda: planner.latest({topic: {"0": [0, 7]}}))
    assert (
        said == f"E0854 `{topic}[0]` ends at offset 1, and was read up to 7: it is not the topic that it was"
    )


def test_columns_come_from_what_is_around_the_value(broker: Broker) -> None:
    topic = broker.topic()
    ms = START_US // 1000
    headers = {"trace": b"t1", "n": b"5"}
    broker.send(topic, [value(1)], key=b"k1", headers=headers, timestamp=ms)
    broker.send(topic, [value(2)], timestamp=ms + 1)
    names = {
        "k": "string",
        "h": "string",
        "t": "string",
        "p": "int",
        "o": "bigint",
        "sent": "timestamp",
        "n": "int",
    }
    stream = replace(STREAM, fields=(*STREAM.fields, *(Field(name, ddl) for name, ddl in names.items())))
    columns = dict(
        zip(names, ("key", "headers", "topic", "partition", "offset", "timestamp", "header.n"), strict=True)
    )
    found = seen(replace(reading(broker, topic), stream=stream, columns=columns))
    first, second = found.rows
    assert {name: first[name] for name in names} == {
        "k": "k1",
        "h": '{"trace": "t1", "n": "5"}',
        "t": topic,
        "p": 0,
        "o": 0,
        "sent": START_US,
        "n": 5,
    }
    assert (second["k"], second["h"], second["n"], second["o"]) == (None, None, None, 1)


def test_partitions_of_unlike_density_advance_together_in_event_time(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, [value(i, i / 10) for i in range(3_000)])  # ten events a second
    broker.send(topic, [value(100_000 + i, i * 10) for i in range(30)], partition=1)  # one in ten seconds
    source = MessageSource(reading(broker, topic, max_events=505))
    planner = source.planner()
    planner.stop_at_now()
    start, ahead = planner.start(), AheadGuard(STREAM.max_ahead_us)
    behind = []
    while (end := planner.latest(start)) != start:
        unread = {name: part.first_us for name, part in planner.unread_after(end, ahead).items()}
        behind.append({name: (us - START_US) / 1e6 for name, us in unread.items() if us is not None})
        spans = planner.spans(start, end, ahead)
        assert all(span.last_us is not None for span in spans.values())
        planner.commit(end)
        start = end
    planner.close(Counts())
    assert len(behind) == 6
    for times in behind[:-1]:
        assert set(times) == {f"s[{topic}[0]]", f"s[{topic}[1]]"}
        assert abs(times[f"s[{topic}[0]]"] - times[f"s[{topic}[1]]"]) < 20
    assert behind[-1] == {}


# ---------------------------------------------------------------- errors before anything runs


def test_without_a_broker_the_error_says_so(broker: Broker) -> None:
    (port,) = free_ports(1)
    nobody = MessageSource(MessageReading(STREAM, KafkaLog(Connection(f"127.0.0.1:{port}"), ("t",))))
    said = code_of(nobody.check)
    assert said.startswith(f"E0850 no broker of Kafka answers at `127.0.0.1:{port}`: ")
    assert "Connection refused" in said


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    assert code_of(MessageSource(reading(broker, "nowhere")).check) == (
        f"E0851 there is no topic `nowhere` at `{broker.address}`"
    )
    assert code_of(MessageSource(reading(broker, pattern="nowhere-.*")).check) == (
        f"E0851 there is no topic of the pattern `nowhere-.*` at `{broker.address}`"
    )


def test_access_is_asked_for_with_secrets_of_the_environment(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (
        ("sasl.mechanism", "PLAIN"),
        ("sasl.password", "${CEP_TEST_PASSWORD}"),
        ("sasl.username", USER),
        ("security.protocol", "SASL_PLAINTEXT"),
    )
    topic, closed = broker.topic("open"), broker.topic("closed")
    broker.allow("open")
    broker.send(topic, values(1))

    def what(topic: str) -> MessageReading:
        return MessageReading(STREAM, KafkaLog(Connection(broker.sasl_address, options), (topic,)))

    monkeypatch.delenv("CEP_TEST_PASSWORD", raising=False)
    assert code_of(MessageSource(what(topic)).check) == (
        "E0853 `sasl.password` needs the variable `CEP_TEST_PASSWORD`, which the environment does not have"
    )
    monkeypatch.setenv("CEP_TEST_PASSWORD", "a-wrong-password")
    said = code_of(MessageSource(what(topic)).check)
    assert said.startswith(f"E0852 `{broker.sasl_address}` refuses access to topic `{topic}`: ")
    assert "a-wrong-password" not in said
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    MessageSource(what(topic)).check()
    assert seen(what(topic)).ids == [1]
    assert code_of(MessageSource(what(closed)).check).startswith(
        f"E0852 `{broker.sasl_address}` refuses access to topic `{closed}`: "
    )
    assert PASSWORD.encode() not in pickle.dumps(MessageSource(what(topic)))
    assert PASSWORD not in repr(what(topic))


def test_an_option_that_librdkafka_refuses_is_told_without_secrets(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    options = (("security.protocol", "${CEP_TEST_PASSWORD}"),)
    said = code_of(
        MessageSource(MessageReading(STREAM, KafkaLog(Connection(broker.address, options), ("t",)))).check
    )
    assert said.startswith("E0853 Kafka's client refuses its settings: ")
    assert PASSWORD not in said
