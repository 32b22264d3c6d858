"""librdkafka writes no line of its own on standard error; what a client says is an error of ours.

As a program this module is the process whose standard error is looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from spark_runtime.connectors.kafka.connection import Client, Connection
from spark_runtime.connectors.kafka.log import KafkaClient, KafkaLog
from spark_runtime.connectors.message_logs.log import MessageRange
from tests.servers.kafka_broker import require_kafka, running_broker

_TRANSPORT = -195
_SECONDS = 60.0
_ROOT = Path(__file__).parents[2]


def test_neither_a_fenced_producer_nor_a_broker_that_dies_writes_on_standard_error(tmp_path: Path) -> None:
    require_kafka()
    with running_broker(tmp_path) as broker:
        topic = broker.topic()
        broker.send(topic, [b"1", b"2"])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.test_kafka_quiet", broker.address, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert process.stdout is not None
        fenced = process.stdout.readline()
        read = process.stdout.readline()
        os.kill(broker.pid, signal.SIGKILL)
        said, errors = process.communicate("the broker is dead\n", timeout=2 * _SECONDS)
    assert (errors, process.returncode) == ("", 0)
    assert fenced == (
        f"E0855 another run of this pipeline writes to topic `{topic}`, and has taken over (twice: True)\n"
    )
    assert read == "2 messages, 1 peeked\n"
    assert said == "all have noticed\n"


def _fenced(connection: Connection, topic: str) -> tuple[str, Client]:
    """Return what a producer says whose name another one has taken, and that other one."""
    from confluent_kafka import KafkaException, Producer

    first = Client(Producer, connection, {"transactional.id": topic})
    first.client.init_transactions(_SECONDS)
    first.client.begin_transaction()
    second = Client(Producer, connection, {"transactional.id": topic})
    second.client.init_transactions(_SECONDS)
    said: list[str] = []
    deadline = time.monotonic() + _SECONDS
    while len(said) < 2 and time.monotonic() < deadline:
        try:
            first.client.produce(topic, b"x")  # it fails once the broker has refused the one before
        except KafkaException as error:
            told = first.error(error, f"topic `{topic}`")
            said.append(f"{told.code} {told.args[0]}")
    return f"{said[0]} (twice: {said[0] == said[-1]})", second


def _read(client: KafkaClient, topic: str) -> str:
    client.incarnations({topic: ""})
    n = sum(len(portion.values) for portion in client.read(MessageRange(topic, 0, 0, 2), ()))
    client.read(MessageRange(topic, 0, 0, 2), ("timestamp",))
    return f"{n} messages, {len(client.peek({(topic, 0): (0, 2)}, ()))} peeked"


def _main(address: str, topic: str) -> None:
    connection = Connection(address, (("log_level", "7"),))
    said, producer = _fenced(connection, topic)
    print(said, flush=True)
    client = KafkaLog(connection, (topic,)).open()
    print(_read(client, topic), flush=True)
    sys.stdin.readline()
    assert client._admin is not None
    assert client._peeking is not None
    waiting = [producer, client._admin, client._peeking]
    deadline = time.monotonic() + _SECONDS
    while waiting and time.monotonic() < deadline:
        for one in waiting:
            one.client.poll(0.05)
        waiting = [one for one in waiting if _TRANSPORT not in one.noted.errors]
    client.close()
    print("all have noticed" if not waiting else f"{len(waiting)} have not noticed")


if __name__ == "__main__":
    _main(*sys.argv[1:])
