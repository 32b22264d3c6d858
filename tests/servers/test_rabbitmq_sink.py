"""RabbitMQ as a sink: what is in its queues."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from cep.errors import InputError
from spark_runtime.connectors.rabbitmq.connection import Address
from spark_runtime.connectors.rabbitmq.sink_settings import RabbitSpec
from spark_runtime.sinks.protocol import Guarantee, MicroBatch, TableSink
from spark_runtime.wire.output import DEAD, LATE, MATCH
from tests.servers.gate import gate_to
from tests.servers.rabbitmq_server import Rabbit
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, collected, tell_what_they_have

KINDS = pytest.mark.parametrize("kind", [MATCH, LATE, DEAD])


def opened(rabbit: Rabbit, kind: str, queue: str, exchange: str = "", **more: Any) -> TableSink:
    address = replace(Address("127.0.0.1", rabbit.port), **more)
    sink = RabbitSpec(address, exchange, queue).open(OUTPUTS[kind], CONTEXT)
    sink.check()
    return sink


def put(sink: TableSink, kind: str, *batches: list[int]) -> None:
    with closing(sink):
        for number, ids in enumerate(batches):
            sink.begin(MicroBatch("run", number))
            sink.write_rows(MicroBatch("run", number), collected(kind, ids))
            sink.commit(MicroBatch("run", number))


def messages(rabbit: Rabbit, queue: str) -> list[tuple[Any, Any]]:
    """Take all messages out of a queue: properties and row of each."""
    found: list[tuple[Any, Any]] = []
    connection = rabbit.connection()
    channel = connection.channel()
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            connection.close()
            return found
        found.append((properties, json.loads(body)))


@KINDS
def test_it_cannot_tell_what_it_has(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue()
    tell_what_they_have(None, lambda: opened(rabbit, kind, queue), kind)


@KINDS
@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_each_row_is_a_message_that_lasts(rabbit: Rabbit, kind: str, type_: str) -> None:
    queue = rabbit.queue(type_)
    sink = opened(rabbit, kind, queue)
    assert isinstance(sink, TableSink)
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
    put(sink, kind, [1, 2, 3], [], [4])
    found = messages(rabbit, queue)
    name = "position" if kind == DEAD else "id"
    assert sorted(row[name] for _, row in found) == [1, 2, 3, 4]
    assert {properties.delivery_mode for properties, _ in found} == {2}
    assert {properties.content_type for properties, _ in found} == {"application/json"}
    assert {properties.type for properties, _ in found} == {kind}
    ids = {properties.message_id for properties, _ in found}
    assert len(ids) == 4
    if kind == MATCH:
        assert ids == {"m1", "m2", "m3", "m4"}


@KINDS
def test_a_micro_batch_that_comes_again_has_the_same_message_ids(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue()
    for ids in ([1, 2, 3], [3, 1, 2]):
        put(opened(rabbit, kind, queue), kind, ids)
    found = Counter((properties.message_id, str(row)) for properties, row in messages(rabbit, queue))
    assert sorted(found.values()) == [2, 2, 2]


def test_an_exchange_passes_messages_on(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    connection = rabbit.connection()
    channel = connection.channel()
    channel.exchange_declare("alerts", "topic")
    channel.queue_bind(queue, "alerts", "fraud.#")
    connection.close()
    put(opened(rabbit, MATCH, "fraud.cards", "alerts"), MATCH, [1])
    assert [row["id"] for _, row in messages(rabbit, queue)] == [1]
    with pytest.raises(InputError) as caught:
        put(opened(rabbit, MATCH, "other", "alerts"), MATCH, [1])
    assert (caught.value.code, caught.value.args[0]) == (
        "E0878",
        f"a message to exchange `alerts` of `127.0.0.1:{rabbit.port}` reaches no queue, "
        "its routing key is `other`",
    )


def test_a_queue_that_is_full_ends_the_run(rabbit: Rabbit) -> None:
    connection = rabbit.connection()
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    connection.channel().queue_declare("full", durable=True, arguments=limits)
    connection.close()
    with pytest.raises(InputError) as caught:
        put(opened(rabbit, MATCH, "full"), MATCH, [1, 2, 3])
    assert caught.value.code == "E0879"
    assert "does not take a message to queue `full`" in caught.value.args[0]


def test_what_is_wrong_is_told_before_the_run(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    def code(queue: str, exchange: str = "", **more: Any) -> str:
        with pytest.raises(InputError) as caught:
            opened(rabbit, MATCH, queue, exchange, **more)
        assert "s3cret" not in str(caught.value)
        return caught.value.code

    monkeypatch.setenv("CEP_TEST_PASSWORD", "s3cret")
    queue = rabbit.queue()
    assert code("nowhere") == "E0878"
    assert code("any", "nowhere") == "E0878"
    assert code(queue, password="${CEP_TEST_PASSWORD}") == "E0877"
    assert code(queue, password="${CEP_TEST_NOTHING}") == "E0853"
    assert code(queue, virtual_host="nowhere") == "E0877"
    assert code(queue, has_tls=True) == "E0876"
    with gate_to(rabbit.port) as gate:
        gate.shut()
        assert code(queue, port=gate.port) == "E0876"
    assert "s3cret" not in repr(Address("h", password="s3cret"))


def test_who_may_not_write_is_told(rabbit: Rabbit) -> None:
    connection = rabbit.connection()
    connection.channel().exchange_declare("inner", "topic", internal=True)  # clients may not write it
    connection.close()
    with pytest.raises(InputError) as caught:
        put(opened(rabbit, MATCH, "k", "inner"), MATCH, [1])
    assert caught.value.code == "E0877"


def test_a_broker_that_is_started_anew_between_two_micro_batches_is_written(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    with gate_to(rabbit.port) as gate, closing(opened(rabbit, MATCH, queue, port=gate.port)) as sink:
        sink.begin(MicroBatch("run", 0))
        sink.write_rows(MicroBatch("run", 0), collected(MATCH, [1]))
        gate.shut()
        with pytest.raises(InputError, match="E0876"):
            sink.begin(MicroBatch("run", 1))
        gate.open()
        sink.begin(MicroBatch("run", 1))
        sink.write_rows(MicroBatch("run", 1), collected(MATCH, [2]))
        gate.shut()
        with pytest.raises(InputError, match="E0876"):
            sink.write_rows(MicroBatch("run", 1), collected(MATCH, [3]))
    assert [row["id"] for _, row in messages(rabbit, queue)] == [1, 2]
