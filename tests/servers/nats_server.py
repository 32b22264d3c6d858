"""A server of NATS for tests: one process on this machine, which answers on 127.0.0.1 only.

Who gives no name may do everything. The user `reader` may read one stream.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from tests.left_out import require
from tests.servers.kafka_broker import free_ports
from tests.servers.process import running, wait_until

USER, PASSWORD = "reader", "the-right-password"
ALLOWED = "allowed"
"""The one stream that this user may read."""

_CONFIG = """
listen: 127.0.0.1:{port}
{jetstream}
no_auth_user: all
authorization {{
  users = [
    {{user: all, password: all}}
    {{user: {user}, password: "{password}", permissions: {{
      publish: {{allow: ["$JS.API.STREAM.INFO.>", "$JS.API.CONSUMER.*.{allowed}",
                         "$JS.API.CONSUMER.*.{allowed}.>", "$JS.API.CONSUMER.MSG.NEXT.{allowed}.>"]}}
      subscribe: {{allow: "_INBOX.>"}}
    }}}}
  ]
}}
"""
_NUMBERS = count()


def program() -> str | None:
    """Return the server's program, None where it is missing."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


@dataclass(frozen=True)
class NatsServer:
    """A server that runs."""

    address: str

    def stream(self, name: str = "stream", **config: Any) -> str:
        """Make a stream of the subjects `NAME.>`; return its name, which no other test has."""
        name = name if name == ALLOWED else f"{name}-{next(_NUMBERS)}"

        async def make(connection: Any) -> None:
            from nats.js.api import StreamConfig

            await connection.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **config))

        self._with(make)
        return name

    def remake(self, stream: str) -> None:
        """Delete a stream and make it again."""

        async def again(connection: Any) -> None:
            from nats.js.api import StreamConfig

            await connection.jetstream().delete_stream(stream)
            await connection.jetstream().add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))

        self._with(again)

    def send(
        self,
        stream: str,
        values: Sequence[bytes],
        subject: str = "x",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store messages under a subject of a stream."""

        async def publish(connection: Any) -> None:
            js = connection.jetstream()
            for value in values:
                await js.publish_async(f"{stream}.{subject}", value, headers=headers)
            await js.publish_async_completed()

        self._with(publish)

    def forget(self, stream: str, before: int) -> None:
        """Remove the messages before a sequence number, as retention does."""

        async def purge(connection: Any) -> None:
            await connection.jetstream().purge_stream(stream, seq=before)

        self._with(purge)

    def consumers(self, stream: str) -> int:
        """Return how many consumers a stream has."""

        async def ask(connection: Any) -> Any:
            return (await connection.jetstream().stream_info(stream)).state.consumer_count

        found: int = self._with(ask)
        return found

    def _with(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        import nats

        async def connected() -> Any:
            connection = await nats.connect(f"nats://{self.address}")
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(connected())


@contextmanager
def running_nats(folder: Path, *, has_jetstream: bool = True) -> Iterator[NatsServer]:
    """Start a server whose data are in `folder`, wait until it answers, and end it."""
    found = program()
    require(found is not None and find_spec("nats") is not None, "the server of NATS")
    assert found is not None
    (port,) = free_ports(1)
    settings, log = folder / "nats.conf", folder / "nats.log"
    jetstream = f'jetstream {{store_dir: "{folder / "data"}"}}' if has_jetstream else ""
    settings.write_text(
        _CONFIG.format(port=port, jetstream=jetstream, user=USER, password=PASSWORD, allowed=ALLOWED)
    )
    with running([found, "-c", str(settings)], log) as process:
        wait_until(lambda: _listens(port), process, log)
        yield NatsServer(f"127.0.0.1:{port}")


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
