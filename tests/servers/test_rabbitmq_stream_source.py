"""Streams of RabbitMQ as a source, without Spark: what is planned and what is read."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.schema.stream import Field
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.connectors.rabbitmq import amqp
from spark_runtime.connectors.rabbitmq.log import RabbitLog
from tests.servers.kafka_broker import free_ports
from tests.servers.messages import START_US, STREAM, Seen, batches, code_of, seen, value, values
from tests.servers.rabbitmq_server import Rabbit


def reading(server: Rabbit, *streams: str, options: Options | None = None, **more: Any) -> MessageReading:
    log = RabbitLog((f"127.0.0.1:{server.stream_port}",), streams, options=options or Options())
    return MessageReading(STREAM, log, **more)


def test_events_and_dead_letters_are_read_by_offset(rabbit: Rabbit) -> None:
    stream, empty = rabbit.stream(), rabbit.stream()
    rabbit.send(stream, [value(1), b"no", value(2), b""])
    found = seen(reading(rabbit, stream, empty))
    assert found.ids == [1, 2]
    assert sorted(found.dead) == [(f"{stream}@1", "not a JSON object"), (f"{stream}@3", "an empty message")]
    assert found.counts == Counts()


def test_a_stream_begins_where_it_is_told(rabbit: Rabbit, tmp_path: Path) -> None:
    stream = rabbit.stream()
    rabbit.send(stream, values(0, 1))
    time.sleep(0.05)  # the server's clock stamps what it stores
    between_us = time.time_ns() // 1000
    time.sleep(0.05)
    rabbit.send(stream, values(2, 3))

    def ids(begin: Any) -> list[int]:
        return seen(reading(rabbit, stream, begin=begin)).ids

    assert ids("earliest") == [0, 1, 2, 3]
    assert ids("latest") == []
    assert ids(between_us) == [2, 3]
    assert ids(between_us + 3_600_000_000) == []
    assert ids(START_US) == [0, 1, 2, 3]
    assert ids({stream: 3}) == [3]
    said = code_of(lambda: ids({"other": 3}))
    assert said == f"E0881 there is no partition `other` at `127.0.0.1:{rabbit.stream_port}`"

    late = reading(rabbit, stream, begin="latest", start_file=str(tmp_path / "log"))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == []
    rabbit.send(stream, values(4))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == [[4]]  # the first start counts


def test_many_messages_are_read_in_portions_and_ranges(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = rabbit.stream()
    rabbit.send(stream, values(*range(250)))
    monkeypatch.setattr("spark_runtime.connectors.message_logs.planner.RANGE_MESSAGES", 100)
    monkeypatch.setattr("spark_runtime.connectors.rabbitmq.log.MOST_MESSAGES", 40)
    source = MessageSource(reading(rabbit, stream))
    parts = source.everything()
    assert [(part.start, part.end) for _, part in parts] == [(0, 100), (100, 200), (200, 250)]
    assert Seen(source).read(parts[::-1]).ids == [*range(200, 250), *range(100, 200), *range(100)]
    monkeypatch.setattr("spark_runtime.connectors.rabbitmq.log.MOST_BYTES", 1_000)
    assert Seen(source).read(parts).ids == [*range(250)]


def test_messages_that_retention_has_removed_fail_the_run_or_are_counted(rabbit: Rabbit) -> None:
    limits = {"x-max-length-bytes": 40_000, "x-stream-max-segment-size-bytes": 10_000}
    stream = rabbit.stream(**limits)
    rabbit.send(stream, values(*range(4)))
    what = reading(rabbit, stream)
    source, goes_on = MessageSource(what), MessageSource(replace(what, goes_on_without=True))
    planner = source.planner()
    planner.stop_at_now()
    planned = planner.ranges(planner.start(), planner.latest(planner.start()))
    planner.close(Counts())
    for begin in range(4, 1_500, 100):  # segments are removed when new ones begin
        rabbit.send(stream, [value(number) + b" " * 400 for number in range(begin, begin + 100)])
    first = seen(what).ids[0]  # who begins here has lost nothing
    assert 4 < first < 1_500

    fact = f"E0884 `{stream}` begins at offset {first:,} now: 4 messages were removed unread"
    assert code_of(lambda: Seen(source).read(planned)).replace(f"{first:,}", "") == fact.replace(
        f"{first:,}", ""
    )
    planner = source.planner()
    assert f"{first - 2:,} messages were removed unread" in code_of(
        lambda: planner.latest({stream: {"0": [0, 2]}})
    )
    planner.close(Counts())
    found = Seen(goes_on).read(planned)
    assert (found.ids, found.counts) == ([], Counts(lost={stream: 4}))


def test_a_stream_that_is_another_one_now_is_refused(rabbit: Rabbit) -> None:
    stream = rabbit.stream()
    rabbit.send(stream, values(1))
    planner = MessageSource(reading(rabbit, stream)).planner()
    said = code_of(lambda: planner.latest({stream: {"0": [0, 7]}}))
    fact = f"E0884 `{stream}` ends at offset 1, and was read up to 7: it is not the stream that it was"
    assert said == fact
    planner.close(Counts())


def test_columns_come_from_what_is_around_the_value(rabbit: Rabbit) -> None:
    import rstream

    stream = rabbit.stream()
    before_ms = time.time_ns() // 1_000_000
    around = {"trace": "t1", "n": 5}
    first = rstream.AMQPMessage(
        body=value(1), application_properties=around, properties=rstream.Properties(message_id="m-1")
    )
    rabbit.send(stream, [first, value(2)])
    names = {"h": "string", "i": "string", "s": "string", "o": "bigint", "sent": "timestamp", "n": "int"}
    wide = replace(STREAM, fields=(*STREAM.fields, *(Field(name, ddl) for name, ddl in names.items())))
    columns = {
        "h": "headers",
        "i": "message_id",
        "s": "stream",
        "o": "offset",
        "sent": "timestamp",
        "n": "header.n",
    }
    what = replace(reading(rabbit, stream, columns=columns), stream=wide)
    one, other = seen(what).rows
    assert before_ms * 1000 <= one["sent"] <= other["sent"] <= time.time_ns() // 1000
    assert {name: one[name] for name in ("h", "i", "s", "o", "n")} == {
        "h": '{"trace": "t1", "n": "5"}',
        "i": "m-1",
        "s": stream,
        "o": 0,
        "n": 5,
    }
    assert (other["h"], other["i"], other["o"], other["n"]) == (None, None, 1, None)


def test_a_value_is_the_body_whatever_sent_it(rabbit: Rabbit) -> None:
    import pika
    import rstream

    stream = rabbit.stream()
    rabbit.send(
        stream, [value(1), rstream.RawMessage(value(2)), rstream.AMQPMessage(value=value(3).decode())]
    )
    connection = rabbit.connection()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", stream, value(4), pika.BasicProperties(headers={"h": "x"}))
    connection.close()
    large = value(5) + b" " * 300
    rabbit.send(stream, [large])
    assert seen(reading(rabbit, stream)).ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("message", [b"", b"\x00", b"\x00S", b"\x00S\xff", b"{}"])
def test_bytes_that_are_no_message_of_amqp_are_a_value_as_they_are(message: bytes) -> None:
    assert amqp.value(message) == message
    assert amqp.headers(message) == {}


# ---------------------------------------------------------------- errors before anything runs


def test_what_is_wrong_is_told_before_anything_runs(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(log: RabbitLog) -> str:
        begun = time.monotonic()
        text = code_of(MessageSource(MessageReading(STREAM, log)).check)
        assert time.monotonic() - begun < 10
        return text

    (port,) = free_ports(1)
    nobody, where = f"127.0.0.1:{port}", f"127.0.0.1:{rabbit.stream_port}"
    assert said(RabbitLog((nobody,), ("s",))).startswith(f"E0880 nothing answers at `{nobody}`: ")
    amqp_port = f"127.0.0.1:{rabbit.port}"
    assert said(RabbitLog((amqp_port,), ("s",))).startswith(
        f"E0880 no stream protocol of RabbitMQ at `{amqp_port}`: "
    )
    assert said(RabbitLog((where,), ("nowhere",))) == f"E0881 there is no stream `nowhere` at `{where}`"
    queue = rabbit.queue()
    assert said(RabbitLog((where,), (queue,))) == f"E0881 there is no stream `{queue}` at `{where}`"
    stream = rabbit.stream()
    said_of_host = said(RabbitLog((where,), (stream,), "/nowhere"))
    assert said_of_host == f"E0882 `{where}` refuses access to stream `{stream}`: VirtualHostAccessFailure"
    options = Options((("username", "guest"), ("password", "${CEP_TEST_PASSWORD}")))
    with_password = RabbitLog((where,), (stream,), options=options)
    monkeypatch.delenv("CEP_TEST_PASSWORD", raising=False)
    assert said(with_password) == (
        "E0853 `password` needs the variable `CEP_TEST_PASSWORD`, which the environment does not have"
    )
    monkeypatch.setenv("CEP_TEST_PASSWORD", "a-wrong-password")
    text = said(with_password)
    assert text == f"E0882 `{where}` refuses access to stream `{stream}`: AuthenticationFailure"
    monkeypatch.setenv("CEP_TEST_PASSWORD", "guest")
    MessageSource(MessageReading(STREAM, with_password)).check()
    MessageSource(MessageReading(STREAM, RabbitLog((nobody, where), (stream,)))).check()  # the second answers
