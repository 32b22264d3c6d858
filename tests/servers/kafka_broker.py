"""A Kafka broker for tests: one process on this machine, which answers on 127.0.0.1 only.

It has two doors. The plain one lets everybody do everything. The other one asks for a password (SASL): the
user `reader` may do what a test allows.
"""

from __future__ import annotations

import base64
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JARS = ROOT / ".servers" / "kafka"
USER, PASSWORD = "reader", "the-right-password"

_START_SECONDS = 120
_PR_SET_PDEATHSIG = 1

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    address: str
    sasl_address: str
    pid: int = 0

    @cached_property
    def admin(self) -> Any:
        """A client that manages topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def topic(self, name: str = "", n_partitions: int = 1, **config: str) -> str:
        """Make a topic; return its name, which no other test has."""
        from confluent_kafka.admin import NewTopic

        name = f"{name or 'topic'}-{next(_NUMBERS)}"
        new = NewTopic(name, num_partitions=n_partitions, replication_factor=1, config=config)
        self.admin.create_topics([new])[name].result(30)
        return name

    def grow(self, topic: str, n_partitions: int) -> None:
        """Let a topic have so many partitions."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, n_partitions)])[topic].result(30)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Remove the messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        asked = TopicPartition(topic, partition, before)
        self.admin.delete_records([asked])[asked].result(30)

    def allow(self, prefix: str, *, only_read: bool = False) -> None:
        """Let the user `reader` read, and write, topics that begin with `prefix`."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        rights = AclBinding(
            ResourceType.TOPIC,
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            AclOperation.READ if only_read else AclOperation.ALL,
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

    def messages(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """Return the messages of a topic, as a consumer sees them."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        numbers = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found, n_open = [], len(numbers)
        deadline = time.monotonic() + 60
        while n_open:
            assert time.monotonic() < deadline
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    n_open -= 1
        consumer.close()
        return found


_NUMBERS = count()


def require_servers(
    is_there: bool, why: str = "the Kafka broker is missing; get it with: make servers"
) -> None:
    """Skip the test where servers are missing; fail where the environment says that they are required."""
    if is_there:
        return
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)


def free_ports(n: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """Start a broker whose data are in `folder`, wait until it answers, and end it."""
    from spark_runtime.sessions.java import find_java

    plain, sasl, controller = free_ports(3)
    settings = folder / "server.properties"
    ports = {"plain": plain, "sasl": sasl, "controller": controller}
    settings.write_text(_PROPERTIES.format(**ports, data=folder / "data", user=USER, password=PASSWORD))
    # It ends soon: no time for the best machine code.
    java = [find_java().command, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java += ["-cp", str(JARS / "*")]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
        check=True,
        capture_output=True,
        timeout=_START_SECONDS,
    )
    log = folder / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    try:
        broker = Broker(f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}", process.pid)
        _await(broker, process, log)
        yield broker
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    """Ask the system to end this process when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await(broker: Broker, process: subprocess.Popen[bytes], log: Path) -> None:
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _START_SECONDS
    admin = broker.admin
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            admin.list_topics(timeout=1)
            return
        except KafkaException:
            pass
    pytest.fail(f"the Kafka broker does not start:\n{log.read_text()[-4000:]}")
