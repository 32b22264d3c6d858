"""The Kafka broker of tests. The user `reader` of its doors with a password may do what a test allows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from scenarios.servers.kafka import JARS, KafkaServer, running_kafka
from scenarios.servers.process import free_ports
from tests.left_out import require

__all__ = ["JARS", "PASSWORD", "USER", "Broker", "free_ports", "require_kafka", "running_broker"]

USER, PASSWORD = "reader", "the-right-password"

_NUMBERS = count()


class Broker(KafkaServer):
    """A broker that runs."""

    def topic(self, name: str = "", n_partitions: int = 1, **config: str) -> str:
        """Make a topic; return its name, which no other test has."""
        name = f"{name or 'topic'}-{next(_NUMBERS)}"
        self.make_topic(name, n_partitions, **config)
        return name

    def grow(self, topic: str, n_partitions: int) -> None:
        """Let a topic have so many partitions."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, n_partitions)])[topic].result(30)

    def remake(self, topic: str, n_partitions: int = 1) -> None:
        """Delete a topic and make it again."""
        from confluent_kafka import KafkaException

        self.admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.make_topic(topic, n_partitions)
                return
            except KafkaException:  # it is still being deleted
                if time.monotonic() > deadline:
                    raise

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Remove the messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        asked = TopicPartition(topic, partition, before)
        self.admin.delete_records([asked])[asked].result(30)

    def allow(self, prefix: str, *, only_read: bool = False) -> None:
        """Let the user `reader` read, and write, topics that begin with `prefix`."""
        self._allow("TOPIC", prefix, "READ" if only_read else "ALL")

    def allow_transactions(self) -> None:
        """Let the user `reader` write as a sink does: groups and transactions of its names."""
        self._allow("GROUP", "cep-", "READ")
        self._allow("TRANSACTIONAL_ID", "cep-", "ALL")

    def _allow(self, kind: str, prefix: str, operation: str) -> None:
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        rights = AclBinding(
            ResourceType[kind],
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for result in self.admin.create_acls([rights]).values():
            result.result(30)

    def send(
        self,
        topic: str,
        values: Sequence[Any],
        partition: int = 0,
        *,
        commits: bool | None = None,
        **more: Any,
    ) -> None:
        """Send messages; `commits` says whether they are in a transaction, and how it ends."""
        from confluent_kafka import Producer

        config = {"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 0}
        if commits is not None:
            config["transactional.id"] = str(uuid.uuid4())
        producer = Producer(config)
        if commits is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, partition=partition, **more)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        if commits is not None:
            (producer.commit_transaction if commits else producer.abort_transaction)(30)


def require_kafka() -> None:
    """Leave the test out where the broker or its client is missing."""
    require(JARS.is_dir() and find_spec("confluent_kafka") is not None, "the Kafka broker")


@contextmanager
def running_broker(folder: Path, certificate: Path | None = None) -> Iterator[Broker]:
    """Start a broker whose data are in `folder`, wait until it answers, and end it."""
    require_kafka()
    with running_kafka(folder, {USER: PASSWORD}, certificate) as server:
        yield Broker(server.address, server.sasl_address, server.pid, server.tls_address)
