"""A Kafka broker: one process on this machine, which listens only on 127.0.0.1.

It has two listeners. The plain one allows everything. The other requires a password (SASL). With a
certificate, a third one requires a password and uses TLS.
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scenarios.servers.process import ServerError, free_ports, running, wait_until
from spark_runtime.sessions.java import find_java

JARS = Path(__file__).parents[2] / ".servers" / "kafka"
"""The folder in which `make servers` installs the broker."""

_START_SECONDS = 120
_READ_SECONDS = 180

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}{tls},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}{tls}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
{logins}
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

_LOGINS = """\
listener.name.{door}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required\
{users};
listener.name.{door}.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""

_TLS = """\
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={certificate}
"""


@dataclass(frozen=True)
class KafkaServer:
    """A running broker: the addresses of its listeners, and the ID of its process.

    `address`: the plain listener. `sasl_address`: the listener that requires a password. `tls_address`: the
    listener that uses TLS and requires a password; empty if there is none.
    """

    address: str
    sasl_address: str
    pid: int = 0
    tls_address: str = ""

    @cached_property
    def admin(self) -> Any:
        """A client that manages topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def make_topic(self, name: str, n_partitions: int = 1, **config: str) -> None:
        """Create a topic."""
        from confluent_kafka.admin import NewTopic

        new = NewTopic(name, num_partitions=n_partitions, replication_factor=1, config=config)
        self.admin.create_topics([new])[name].result(30)

    def messages(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """Return the messages of a topic, as a consumer sees them."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "looks-at-all",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        try:
            numbers = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            found, n_open = [], len(numbers)
            deadline = time.monotonic() + _READ_SECONDS
            while n_open:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"topic `{topic}` cannot be read to its end")
                for message in consumer.consume(1000, 0.1):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        n_open -= 1
                    else:
                        raise KafkaException(error)
            return found
        finally:
            consumer.close()


def has_kafka() -> bool:
    """Return whether the broker and its client exist."""
    return JARS.is_dir() and find_spec("confluent_kafka") is not None


@contextmanager
def running_kafka(
    folder: Path, passwords: Mapping[str, str] | None = None, certificate: Path | None = None
) -> Iterator[KafkaServer]:
    """Start a broker whose data are in `folder`, wait until it answers, and finally end it.

    Raises ServerError: it does not start.

    `folder`: an empty folder. `passwords`: the passwords of the users, for the listeners that require one.
    `certificate`: a file with key and certificate, for the TLS listener.
    """
    plain, sasl, tls, controller = free_ports(4)
    known = (passwords or {}).items()
    users = "".join(f' user_{name}="{password}"' for name, password in known)
    doors = ("sasl",) if certificate is None else ("sasl", "tls")
    logins = "".join(_LOGINS.format(door=door, users=users) for door in doors)
    if certificate is not None:
        logins += _TLS.format(certificate=certificate)
    settings = folder / "server.properties"
    ports = {"plain": plain, "sasl": sasl, "controller": controller}
    ports_of_tls = "" if certificate is None else f",TLS://127.0.0.1:{tls}"
    settings.write_text(_PROPERTIES.format(**ports, tls=ports_of_tls, data=folder / "data", logins=logins))
    # It runs too briefly for optimized machine code to pay off.
    java = [find_java().command, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java += ["-cp", str(JARS / "*")]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    scram = [f"--add-scram=SCRAM-SHA-256=[name={name},password={password}]" for name, password in known]
    done = subprocess.run(  # noqa: S603 - our own Java
        [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings), *scram],
        check=False,
        capture_output=True,
        text=True,
        timeout=_START_SECONDS,
    )
    if done.returncode:
        raise ServerError(f"the Kafka broker cannot prepare its folder:\n{done.stderr[-4000:]}")
    log = folder / "broker.log"
    with running([*java, "kafka.Kafka", str(settings)], log) as process:
        address_of_tls = "" if certificate is None else f"127.0.0.1:{tls}"
        server = KafkaServer(f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}", process.pid, address_of_tls)
        wait_until(lambda: _answers(server), process, log, _START_SECONDS)
        yield server


def _answers(server: KafkaServer) -> bool:
    from confluent_kafka import KafkaException

    try:
        server.admin.list_topics(timeout=1)
    except KafkaException:
        return False
    return True
