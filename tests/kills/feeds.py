"""Where the events of killed pipelines come from: each kind of source, and what puts events there."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.kills.ticks import Tick
from tests.servers.process import running, wait_until


class Feed(Protocol):
    """A source that gets events."""

    @property
    def settings(self) -> str:
        """The settings of the source in a pipeline file, besides its stream."""
        ...

    def send(self, ticks: list[Tick]) -> None:
        """Put events there, in their order."""
        ...


@dataclass
class FileFeed:
    """A folder of files of JSON lines."""

    folder: Path
    n_files: int = 0
    settings: str = "format: json, path: in, max_files_per_trigger: 2"

    def send(self, ticks: list[Tick]) -> None:
        """Write files of ten events."""
        place = self.folder / "in"
        place.mkdir(exist_ok=True)
        for at in range(0, len(ticks), 10):
            self.n_files += 1
            lines = "".join(f"{tick.text}\n" for tick in ticks[at : at + 10])
            (place / f"{self.n_files:05d}.json").write_text(lines)


@dataclass
class PartitionFeed:
    """A log of messages with two partitions, which get events in turn; `put` stores some in one of them."""

    settings: str
    put: Callable[[int, list[bytes]], None]

    def send(self, ticks: list[Tick]) -> None:
        """Store events in both partitions."""
        for partition in (0, 1):
            self.put(partition, [tick.text.encode() for tick in ticks if tick.number % 2 == partition])


@dataclass
class TableFeed:
    """A table of PostgreSQL: rows that are inserted, and of six events one that updates a row."""

    server: Any
    database: str
    log: Path
    source: str = ""
    settings: str = ""

    def __post_init__(self) -> None:
        self._run("CREATE TABLE ticks (id bigint PRIMARY KEY, k text, ts timestamptz)")
        self.settings = (
            f"format: postgres, {self.server.yaml(self.database)}, tables: ticks, "
            f"slot: cep_{self.database}{self.source}"
        )

    def _run(self, *statements: str) -> None:
        self.server.run(self.database, *statements)

    def send(self, ticks: list[Tick]) -> None:
        """Write events in transactions; a copy has rows as they are then, so before it none is updated."""
        is_copied = self.log.exists()
        for at in range(0, len(ticks), 6):
            rows = ticks[at : at + 6]
            changed = rows.pop() if is_copied and len(rows) == 6 else None
            values = ", ".join(f"({row.number}, '{row.key}', '{row.time}')" for row in rows)
            self._run(f"INSERT INTO ticks VALUES {values}")
            if changed is not None:
                change = f"id = {changed.number}, k = '{changed.key}', ts = '{changed.time}'"
                self._run(f"UPDATE ticks SET {change} WHERE id = {rows[-1].number}")


@dataclass
class SpoolFeed:
    """A spool that takes events over HTTP."""

    folder: Path
    port: int
    settings: str = field(init=False)

    def __post_init__(self) -> None:
        self.settings = f"format: spool, path: '{self.folder}', max_events_per_trigger: 20"

    def send(self, ticks: list[Tick]) -> None:
        """Post events, ten at a time, until they are acknowledged."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        for at in range(0, len(ticks), 10):
            body = "".join(f"{tick.text}\n" for tick in ticks[at : at + 10])
            connection.request("POST", "/", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            assert answer.status == 202, answer.read()
            answer.read()
        connection.close()


@contextmanager
def running_spool(folder: Path) -> Iterator[SpoolFeed]:
    """Start `cep spool http`, with segments that are small and go as soon as they have been read."""
    from tests.servers.kafka_broker import free_ports

    (port,) = free_ports(1)
    command = [sys.executable, "-m", "cep", "spool", "http", "--into", str(folder), "--port", str(port)]
    command += ["--segment-bytes", "4kB", "--keep", "0 seconds", "--quiet"]
    log = folder.parent / "spool.log"
    with running(command, log) as process:
        wait_until(lambda: _answers(port), process, log)
        yield SpoolFeed(folder, port)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def feed_of(name: str, servers: Mapping[str, Any], folder: Path) -> Feed:
    """Return a new source of a kind, without events; a spool is started by `running_spool`."""
    from tests.servers.logs import in_kinesis, in_nats, in_rabbitmq

    match name:
        case "files":
            return FileFeed(folder)
        case "kafka":
            broker = servers["kafka"]
            topic = broker.topic("ticks", 2)
            return PartitionFeed(
                f'format: kafka, brokers: "{broker.address}", topic: {topic}, max_events_per_trigger: 20',
                lambda partition, values: broker.send(topic, values, partition),
            )
        case "postgres":
            server = servers["postgres"]
            log = folder / "checkpoint" / "files" / "ticks.log"
            return TableFeed(server, server.database(), log, ", max_events_per_trigger: 12")
    logs: dict[str, Callable[[Any], Any]] = {
        "nats": in_nats,
        "kinesis": in_kinesis,
        "rabbitmq_stream": in_rabbitmq,
    }
    made = logs[name](servers["rabbitmq" if name == "rabbitmq_stream" else name])
    return PartitionFeed(f"{made.settings}, max_events_per_trigger: 20", made.send)
