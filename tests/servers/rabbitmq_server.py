"""A RabbitMQ for tests: one node on this machine, which answers on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.left_out import require
from tests.servers.kafka_broker import free_ports
from tests.servers.process import ended_with_this_process

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

_START_SECONDS = 120
_PR_SET_PDEATHSIG = 1
_NUMBERS = count()
_ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 2:2"


@dataclass(frozen=True)
class Rabbit:
    """A node that runs."""

    port: int
    stream_port: int

    def connection(self) -> Any:
        """Return a connection of the user `guest`."""
        import pika

        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port))

    def queue(self, kind: str = "classic") -> str:
        """Make a queue that lasts; return its name, which no other test has."""
        name = f"queue-{next(_NUMBERS)}"
        connection = self.connection()
        connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        connection.close()
        return name

    def stream(self, **arguments: Any) -> str:
        """Make a stream; return its name, which no other test has."""
        name = f"stream-{next(_NUMBERS)}"
        self._declare(name, **arguments)
        return name

    def remake(self, stream: str) -> None:
        """Delete a stream and make it again."""
        connection = self.connection()
        connection.channel().queue_delete(stream)
        connection.close()
        self._declare(stream)

    def _declare(self, stream: str, **arguments: Any) -> None:
        connection = self.connection()
        connection.channel().queue_declare(
            stream, durable=True, arguments={"x-queue-type": "stream", **arguments}
        )
        connection.close()

    def send(self, stream: str, messages: Sequence[Any]) -> None:
        """Store messages in a stream: bytes as they are, or messages of rstream."""
        import rstream

        async def send() -> None:
            async with rstream.Producer(
                "127.0.0.1", self.stream_port, username="guest", password="guest"
            ) as producer:
                for message in messages:
                    kept = rstream.AMQPMessage(body=message) if isinstance(message, bytes) else message
                    await producer.send_wait(stream, kept)

        asyncio.run(send())

    def n_ready(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        connection = self.connection()
        found = connection.channel().queue_declare(queue, passive=True)
        connection.close()
        return int(found.method.message_count)


@contextmanager
def running_rabbit(folder: Path) -> Iterator[Rabbit]:
    """Start a node whose data are in `folder`, wait until it answers, and end it."""
    installed = SERVER.exists() and all(find_spec(name) is not None for name in ("pika", "rstream"))
    require(installed, "RabbitMQ")
    port, streams, distribution, epmd = free_ports(4)
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.file = false\n"
        f"stream.listeners.tcp.1 = 127.0.0.1:{streams}\n"
        f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {streams}\n"
    )
    (folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_NODENAME": f"cep{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
    }
    log = folder / "output.log"
    epmd_command = shutil.which("epmd")
    assert epmd_command is not None
    # It would start a port mapper that outlives it.
    mapper = subprocess.Popen(
        [epmd_command, "-address", "127.0.0.1", "-port", str(epmd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SERVER)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a group of its own: the script, and the node that it starts
        )
    try:
        with ended_with_this_process(process.pid):
            rabbit = Rabbit(port, streams)
            _await(rabbit, process, log)
            yield rabbit
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        mapper.kill()
        mapper.wait()


def _end_with_parent() -> None:
    """Ask the system to end this process when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await(rabbit: Rabbit, process: subprocess.Popen[bytes], log: Path) -> None:
    import pika.exceptions

    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if re.search(rb"Server startup complete", log.read_bytes()):
            try:
                rabbit.connection().close()
                return
            except (pika.exceptions.AMQPError, OSError):
                pass
        time.sleep(0.2)
    pytest.fail(f"RabbitMQ does not start:\n{log.read_text()[-4000:]}")
