"""A cluster of three Kafka brokers, of which a test kills one. Topics have a copy on each."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scenarios.servers.kafka import JARS
from scenarios.servers.process import free_ports, running, wait_until
from spark_runtime.connectors.kafka.connection import patiently
from spark_runtime.sessions.java import find_java
from tests.servers.kafka_broker import Broker, require_kafka

_START_SECONDS = 180

_PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
offsets.topic.num.partitions=3
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=6000
replica.lag.time.max.ms=6000
"""


@dataclass(frozen=True)
class Cluster(Broker):
    """Brokers that run; `address` names all of them."""

    processes: tuple[subprocess.Popen[bytes], ...] = ()

    def make_topic(self, name: str, n_partitions: int = 1, **config: str) -> None:
        """Make a topic with a copy on each broker."""
        from confluent_kafka.admin import NewTopic

        new = NewTopic(name, num_partitions=n_partitions, replication_factor=3, config=config)
        # The client has just learnt the brokers, and gives up the handles that it had for their addresses.
        patiently(lambda: self.admin.create_topics([new])[name].result(30))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition: 0, 1 or 2."""
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions[partition]
        return int(found.leader) - 1

    def kill(self, number: int) -> None:
        """Kill a broker."""
        os.kill(self.processes[number].pid, signal.SIGKILL)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start three brokers whose data are in `folder`, wait until all are there, and end them."""
    require_kafka()
    ports, controllers = free_ports(6)[:3], free_ports(3)
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
    java = [find_java().command, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java += ["-cp", str(JARS / "*")]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    with ExitStack() as stack:
        processes, logs = [], []
        for number, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1):
            place = folder / str(number)
            place.mkdir()
            settings = place / "server.properties"
            values = {"number": number, "voters": voters, "port": port, "controller": controller}
            settings.write_text(_PROPERTIES.format(**values, data=place / "data"))
            command = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
            subprocess.run([*command, "-c", str(settings)], check=True, capture_output=True)
            logs.append(place / "broker.log")
            processes.append(stack.enter_context(running([*java, "kafka.Kafka", str(settings)], logs[-1])))
        address = ",".join(f"127.0.0.1:{port}" for port in ports)
        made = Cluster(address, "", processes=tuple(processes))
        for process, log in zip(processes, logs, strict=True):
            wait_until(lambda: _n_brokers(made) == 3, process, log, _START_SECONDS)
        yield made


def _n_brokers(cluster: Cluster) -> int:
    from confluent_kafka import KafkaException

    try:
        return len(cluster.admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return 0
