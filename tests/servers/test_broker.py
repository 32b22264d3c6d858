"""The broker that other tests talk to, and what becomes of them where there is none."""

from __future__ import annotations

import pytest

from tests.servers.kafka_broker import Broker, require_servers


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


def test_without_a_server_a_test_is_skipped_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CEP_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="get it with: make servers"):
        require_servers(is_there=False)


def test_where_servers_are_required_a_missing_one_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEP_SERVERS", "required")
    with pytest.raises(pytest.fail.Exception, match="get it with: make servers"):
        require_servers(is_there=False)
