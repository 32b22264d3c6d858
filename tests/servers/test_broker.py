"""The broker that other tests talk to, and what becomes of them where there is none."""

from __future__ import annotations

from tests.servers.kafka_broker import Broker


def test_a_message_that_was_sent_can_be_read(broker: Broker) -> None:
    topic = broker.topic(n_partitions=2)
    broker.send(topic, [b"a", None], partition=1)
    assert [(m.partition(), m.offset(), m.value()) for m in broker.messages(topic)] == [
        (1, 0, b"a"),
        (1, 1, None),
    ]


def test_a_transaction_that_was_aborted_is_seen_by_nobody_who_reads_what_is_committed(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [b"no"], commits=False)
    broker.send(topic, [b"yes"], commits=True)
    assert [m.value() for m in broker.messages(topic)] == [b"yes"]
    assert [m.value() for m in broker.messages(topic, "read_uncommitted")] == [b"no", b"yes"]
