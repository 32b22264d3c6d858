"""An ActiveMQ Artemis for tests: one process on this machine, which answers on 127.0.0.1 only.

It knows the addresses `queue-N` and `topic-N`, and two users; who has no name may do everything else.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scenarios.servers.process import free_ports
from tests.left_out import require

JARS = Path(__file__).parents[2] / ".servers" / "artemis"
USER, PASSWORD = "reader", "the-right-password"
N_ADDRESSES = 20

_PR_SET_PDEATHSIG = 1

_BROKER = """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>cep</name>
  <persistence-enabled>true</persistence-enabled>
  <journal-type>NIO</journal-type>
  <journal-min-files>2</journal-min-files>
  <journal-file-size>1M</journal-file-size>
  <bindings-directory>data/bindings</bindings-directory>
  <journal-directory>data/journal</journal-directory>
  <large-messages-directory>data/large</large-messages-directory>
  <paging-directory>data/paging</paging-directory>
  <jmx-management-enabled>false</jmx-management-enabled>
  <acceptors><acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;securityDomain=activemq</acceptor></acceptors>
  <security-settings><security-setting match="#">
    <permission type="consume" roles="all"/><permission type="send" roles="all"/>
    <permission type="createNonDurableQueue" roles="all"/><permission type="createDurableQueue" roles="all"/>
    <permission type="deleteDurableQueue" roles="all"/><permission type="createAddress" roles="all"/>
    <permission type="browse" roles="all"/>
  </security-setting></security-settings>
  <address-settings><address-setting match="#">
    <auto-create-addresses>false</auto-create-addresses>
    <auto-create-queues>false</auto-create-queues>
    <max-delivery-attempts>-1</max-delivery-attempts>
  </address-setting>
  <address-setting match="topic-#">
    <auto-create-addresses>false</auto-create-addresses>
    <auto-create-queues>true</auto-create-queues>
  </address-setting></address-settings>
  <addresses>{addresses}</addresses>
</core></configuration>
"""

_LOGIN = """\
activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
  org.apache.activemq.jaas.properties.user="users.properties"
  org.apache.activemq.jaas.properties.role="roles.properties";
};
"""


class Sender:
    """A client that sends, and waits for the server to have what it sent."""

    def __init__(self, port: int, address: str) -> None:
        from proton.utils import BlockingConnection

        where = f"amqp://127.0.0.1:{port}"
        self._connection = BlockingConnection(where, timeout=30, user=USER, password=PASSWORD)
        self._sender = self._connection.create_sender(address)

    def __call__(self, values: Sequence[Any], **properties: Any) -> None:
        from proton import Message

        for value in values:
            self._sender.send(Message(body=value, durable=True, **properties))

    def close(self) -> None:
        self._connection.close()


def sent(port: int, address: str, values: Sequence[Any], **properties: Any) -> None:
    """Send messages, and wait until the server has them."""
    with closing(Sender(port, address)) as send:
        send(values, **properties)


@contextmanager
def running_artemis(folder: Path) -> Iterator[int]:
    """Start a server whose data are in `folder`, wait until it answers, and end it."""
    from spark_runtime.sessions.java import find_java

    require(JARS.is_dir() and find_spec("proton") is not None, "ActiveMQ Artemis or its client")
    (port,) = free_ports(1)
    queues = "".join(
        f'<address name="queue-{n}"><anycast><queue name="queue-{n}"/></anycast></address>'
        f'<address name="topic-{n}"><multicast/></address>'
        for n in range(N_ADDRESSES)
    )
    settings = folder / "etc"
    settings.mkdir()
    (settings / "broker.xml").write_text(_BROKER.format(port=port, addresses=queues))
    (settings / "login.config").write_text(_LOGIN)
    (settings / "users.properties").write_text(f"{USER}={PASSWORD}\n")
    (settings / "roles.properties").write_text(f"all={USER}\n")
    log = folder / "output.log"
    command = [find_java().command, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"-Djava.security.auth.login.config={settings / 'login.config'}"]
    command += ["-cp", f"{settings}{os.pathsep}{JARS / '*'}"]
    command += ["org.apache.activemq.artemis.core.server.embedded.Main", str(folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    try:
        _await(port, process, log)
        yield port
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


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    from proton import ProtonException
    from proton.utils import BlockingConnection

    deadline = time.monotonic() + 40
    why = ""
    while time.monotonic() < deadline and process.poll() is None:
        try:
            BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=5, user=USER, password=PASSWORD).close()
            return
        except ProtonException as error:
            why = str(error)
            time.sleep(0.2)
    pytest.fail(f"ActiveMQ Artemis does not start: {why}\n{log.read_text()[-4000:]}")
