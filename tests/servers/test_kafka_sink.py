"""Topics as a sink: what a consumer of committed messages sees, whatever has crashed."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cep.errors import CepError, InputError
from cep.rule_set import KIND, REVISION
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.sink_settings import TopicSpec
from spark_runtime.sinks.protocol import Collected, Guarantee, MicroBatch, Rows, TableSink
from spark_runtime.wire.output import DEAD, LATE, MATCH
from tests.servers.kafka_broker import PASSWORD, USER, Broker
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, tell_what_they_have, write

pytestmark = pytest.mark.spark
KINDS = pytest.mark.parametrize("kind", [MATCH, LATE, DEAD])


def opened(broker: Broker, kind: str, topic: str, key: str = "") -> TableSink:
    sink = TopicSpec(Connection(broker.address), topic, key).open(OUTPUTS[kind], CONTEXT)
    sink.check()
    return sink


def there(broker: Broker, kind: str, topic: str) -> list[int]:
    name = "position" if kind == DEAD else "id"
    return sorted(json.loads(message.value())[name] for message in broker.messages(topic))


@KINDS
def test_what_was_committed_is_there(spark: SparkSession, broker: Broker, kind: str) -> None:
    topic = broker.topic()
    sink = opened(broker, kind, topic)
    assert isinstance(sink, TableSink)
    assert sink.guarantee is Guarantee.EXACTLY_ONCE
    for number, ids in enumerate(([1, 2, 3], [], [4])):
        batch = MicroBatch(topic, number)
        sink.begin(batch)
        write(spark, sink, kind, batch, ids)
        sink.commit(batch)
    sink.close()
    assert there(broker, kind, topic) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_micro_batch_that_comes_again_after_a_crash_is_there_once(
    spark: SparkSession, broker: Broker, is_written: bool, is_committed: bool
) -> None:
    topic = broker.topic()
    sink, batch = opened(broker, MATCH, topic), MicroBatch(topic, 1)
    sink.begin(batch)
    if is_written:
        write(spark, sink, MATCH, batch, [1, 2, 3])
    if is_committed:
        sink.commit(batch)
    again = opened(broker, MATCH, topic)  # in a new process
    for number, ids in ((1, [3, 2, 1]), (2, [4])):
        again.begin(MicroBatch(topic, number))
        write(spark, again, MATCH, MicroBatch(topic, number), ids)
        again.commit(MicroBatch(topic, number))
    assert there(broker, MATCH, topic) == [1, 2, 3, 4]


def test_a_micro_batch_that_is_begun_again_in_one_process_is_there_once(
    spark: SparkSession, broker: Broker
) -> None:
    topic = broker.topic()
    sink = opened(broker, DEAD, topic)
    for _ in range(2):
        sink.begin(MicroBatch(topic, 0))
        write(spark, sink, DEAD, MicroBatch(topic, 0), [1, 2])
    sink.commit(MicroBatch(topic, 0))
    assert there(broker, DEAD, topic) == [1, 2]


def test_a_run_that_was_taken_for_dead_can_write_no_more(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic()
    zombie, sink = opened(broker, MATCH, topic), opened(broker, MATCH, topic)
    batch = MicroBatch(topic, 0)
    zombie.begin(batch)
    write(spark, zombie, MATCH, batch, [1])
    sink.begin(batch)
    with pytest.raises(InputError) as caught:
        zombie.commit(batch)
    assert caught.value.code == "E0855"
    write(spark, sink, MATCH, batch, [1])
    sink.commit(batch)
    assert there(broker, MATCH, topic) == [1]


@KINDS
def test_what_it_has_of_a_stream_is_told(spark: SparkSession, broker: Broker, kind: str) -> None:
    topic = broker.topic()
    tell_what_they_have(spark, lambda: opened(broker, kind, topic), kind, topic)


def test_streams_and_outputs_do_not_meet_in_one_topic(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic()
    for run, kind, ids in (("a", LATE, [1]), ("b", LATE, [2]), ("a", MATCH, [3])):
        sink = opened(broker, kind, topic)
        batch = MicroBatch(f"{topic}-{run}", 0)
        sink.begin(batch)
        write(spark, sink, kind, batch, ids)
        sink.commit(batch)
    assert there(broker, LATE, topic) == [1, 2, 3]


def test_each_batch_writes_what_it_finds(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic()
    for _ in range(2):
        sink = opened(broker, MATCH, topic)
        sink.begin(MicroBatch(None, 0))
        write(spark, sink, MATCH, MicroBatch(None, 0), [1])
        sink.commit(MicroBatch(None, 0))
    assert there(broker, MATCH, topic) == [1, 1]


def test_messages_are_the_lines_of_a_json_sink_under_a_key(spark: SparkSession, broker: Broker) -> None:
    found = {}
    for kind, key in (
        (MATCH, ""),
        (MATCH, "match_id"),
        (MATCH, "key"),
        (LATE, ""),
        (LATE, "key"),
        (DEAD, ""),
    ):
        topic = broker.topic()
        sink = opened(broker, kind, topic, key)
        sink.begin(MicroBatch(topic, 0))
        write(spark, sink, kind, MicroBatch(topic, 0), [7])
        sink.commit(MicroBatch(topic, 0))
        (message,) = broker.messages(topic)
        found[kind, key] = message.key(), json.loads(message.value())
    assert {name: key for name, (key, _) in found.items()} == {
        (MATCH, ""): b"m7",
        (MATCH, "match_id"): b"m7",
        (MATCH, "key"): b"k",
        (LATE, ""): None,
        (LATE, "key"): b"k",
        (DEAD, ""): None,
    }
    assert found[MATCH, ""][1] == {
        "rule": "r",
        "k": "k",
        "match_id": "m7",
        "match_start": "1970-01-01T00:00:00.000007Z",
        "match_end": "1970-01-01T00:00:00.000007Z",
        "id": 7,
    }
    assert found[LATE, ""][1] == {
        "id": 7,
        "ts": "1970-01-01T00:00:00.000007Z",
        "k": "k",
        "_late_seconds": 1.0,
    }
    assert found[DEAD, ""][1] == {"reason": "no", "source": "f", "position": 7, "raw": None}


def test_a_match_that_is_withdrawn_is_a_tombstone_behind_its_message(broker: Broker) -> None:
    schema = [("match_id", pa.string()), ("id", pa.int64()), (REVISION, pa.int64()), (KIND, pa.string())]
    output = replace(OUTPUTS[MATCH], schema=pa.schema(schema))
    found = {}
    for has_tombstones in (False, True):
        topic = broker.topic()
        sink = TopicSpec(Connection(broker.address), topic, "", has_tombstones).open(output, CONTEXT)
        rows = [("b", 2, 2, "match"), ("a", 1, 1, "retract"), ("b", 2, 1, "retract")]
        for number, written in enumerate(([("a", 1, 0, "match"), ("b", 2, 0, "match")], rows)):
            batch = MicroBatch(topic, number)
            sink.begin(batch)
            table = pa.table(list(zip(*written, strict=True)), schema=output.schema)
            sink.write_rows(batch, Collected(len(written), Rows(output, [table]), lambda texts: pa.table({})))
            sink.commit(batch)
        sink.close()
        messages = broker.messages(topic)
        found[has_tombstones] = [message.value() is None for message in messages]
        kept = {message.key(): message.value() for message in messages}
    assert found == {False: [False] * 5, True: [False, False, True, True, False]}
    assert kept[b"a"] is None  # what a compacted topic keeps
    assert json.loads(kept[b"b"])["revision"] == 2


def test_tombstones_need_corrections_and_the_key_of_a_match() -> None:
    for kind, key in ((MATCH, ""), (MATCH, "key"), (LATE, "key")):
        with pytest.raises(InputError, match="has `retract") as caught:
            TopicSpec(Connection("b:1"), "t", key, True).open(OUTPUTS[kind], CONTEXT)
        assert caught.value.code == "E0843"


@pytest.mark.parametrize(("kind", "key"), [(LATE, "match_id"), (DEAD, "match_id"), (DEAD, "key")])
def test_a_key_that_the_rows_do_not_have_is_refused(broker: Broker, kind: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(broker, kind, "any", key)
    assert caught.value.code == "E0843"


def test_a_topic_that_cannot_be_written_is_told_before_the_run(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    options = (
        ("sasl.mechanism", "PLAIN"),
        ("sasl.password", "${CEP_TEST_PASSWORD}"),
        ("sasl.username", USER),
        ("security.protocol", "SASL_PLAINTEXT"),
    )

    def code(topic: str) -> str:
        sink = TopicSpec(Connection(broker.sasl_address, options), topic).open(OUTPUTS[DEAD], CONTEXT)
        with pytest.raises(CepError) as caught:
            sink.check()
        return caught.value.code

    broker.allow("seen", only_read=True)
    assert code(broker.topic("seen")) == "E0852"
    assert code(broker.topic("hidden")) == "E0852"
    with pytest.raises(InputError, match="there is no topic `nowhere`"):
        opened(broker, DEAD, "nowhere")
