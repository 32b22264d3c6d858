"""Logs that tests make: what they share, so that one test runs over each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_runtime.connectors.message_logs.log import MessageLog
from tests.servers.kafka_broker import Broker
from tests.servers.kinesis_server import KinesisServer
from tests.servers.nats_server import NatsServer
from tests.servers.rabbitmq_server import Rabbit


@dataclass(frozen=True)
class MadeLog:
    """A log with two partitions.

    Parameters
    ----------
    log
        How a source reads it.
    settings
        The settings of a source in a pipeline file, besides its stream.
    send
        Stores values in a partition.
    remake
        Deletes the log and makes it again.
    forget
        Removes the first messages of partition 0, as retention does: so many, or more.
    """

    log: MessageLog
    settings: str
    send: Callable[[int, Sequence[bytes]], None]
    remake: Callable[[], None]
    forget: Callable[[int], None]


def in_kafka(broker: Broker) -> MadeLog:
    """Make a topic with two partitions."""
    from spark_runtime.connectors.kafka.connection import Connection
    from spark_runtime.connectors.kafka.log import KafkaLog

    topic = broker.topic(n_partitions=2)
    return MadeLog(
        KafkaLog(Connection(broker.address), (topic,)),
        f'format: kafka, brokers: "{broker.address}", topic: {topic}',
        lambda partition, values: broker.send(topic, values, partition),
        lambda: broker.remake(topic, 2),
        lambda n: broker.forget(topic, 0, n),
    )


def in_nats(server: NatsServer) -> MadeLog:
    """Make a stream with two subjects."""
    from spark_runtime.connectors.nats.log import NatsLog

    stream = server.stream()
    subjects = (f"{stream}.0", f"{stream}.1")
    settings = f'format: nats, servers: "{server.address}", stream_name: {stream}, subject: {list(subjects)}'
    return MadeLog(
        NatsLog((server.address,), (stream,), subjects),
        settings,
        lambda partition, values: server.send(stream, values, str(partition)),
        lambda: server.remake(stream),
        lambda n: server.forget(stream, n + 1),
    )


def in_kinesis(server: KinesisServer) -> MadeLog:
    """Make a stream with two shards."""
    from spark_runtime.connectors.kinesis.connection import KinesisConnection
    from spark_runtime.connectors.kinesis.log import KinesisLog

    stream = server.stream(2)
    return MadeLog(
        KinesisLog(KinesisConnection(endpoint_url=server.address), (stream,)),
        f'format: kinesis, endpoint_url: "{server.address}", stream_name: {stream}',
        lambda partition, values: server.send(stream, values, partition),
        lambda: server.remake(stream, 2),
        lambda n: server.forget(stream, 0, n + 1),
    )


def in_rabbitmq(server: Rabbit) -> MadeLog:
    """Make two streams, which keep the last 400 kB or so."""
    from spark_runtime.connectors.rabbitmq.log import RabbitLog

    limits = {"x-max-length-bytes": 400_000, "x-stream-max-segment-size-bytes": 50_000}
    streams = (server.stream(**limits), server.stream())
    address = f"127.0.0.1:{server.stream_port}"

    def remake() -> None:
        for stream in streams:
            server.remake(stream)

    return MadeLog(
        RabbitLog((address,), streams),
        f'format: rabbitmq_stream, servers: "{address}", stream_name: {list(streams)}',
        lambda partition, values: server.send(streams[partition], values),
        remake,
        lambda n: server.send(streams[0], [bytes(10_000)] * 60),  # a server removes whole segments
    )
