"""Where the matches of killed pipelines go: each kind of sink, and the rows that it has."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset
from deltalake import DeltaTable

from tests.kills.ticks import Row, row_of


@dataclass(frozen=True)
class MadeSink:
    """A sink.

    Parameters
    ----------
    settings
        Those in a pipeline file.
    rows
        Returns what it has.
    is_once
        Whether it must not have a row twice.
    is_current
        Whether it has of each match, or row of a view, the last one that stands. Else it has all.
    may_repeat
        Whether it has rows twice once an older checkpoint was accepted, though it has them once after kills.
    """

    settings: str
    rows: Callable[[], list[Row]]
    is_once: bool = True
    is_current: bool = False
    may_repeat: bool = False


def files_of(folder: Path) -> list[Path]:
    """Return the files that a reader of a folder sees."""
    return sorted(file for file in folder.rglob("part-*") if "/." not in str(file))


def lines_of(folder: Path) -> list[str]:
    """Return the lines of all files of a folder."""
    return [line for file in files_of(folder) for line in file.read_text().splitlines()]


def in_json(folder: Path) -> list[Row]:
    """Return what files of JSON lines have."""
    return [row_of(json.loads(line)) for line in lines_of(folder)]


def in_csv(folder: Path) -> list[Row]:
    """Return what files of CSV have."""
    found = []
    for file in files_of(folder):
        with file.open(newline="", encoding="utf-8") as lines:
            found += [row_of(row) for row in csv.DictReader(lines)]
    return found


def in_parquet(folder: Path) -> list[Row]:
    """Return what files of Parquet have."""
    files = list(map(str, files_of(folder)))
    if not files:
        return []
    table = pyarrow.dataset.dataset(files, format="parquet", partitioning=None).to_table()
    return list(map(row_of, table.to_pylist()))


def in_delta(folder: Path) -> list[Row]:
    """Return what a Delta table has."""
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    return list(map(row_of, DeltaTable(folder).to_pyarrow_table().to_pylist()))


def in_topic(broker: Any, topic: str) -> list[Row]:
    """Return what a consumer of committed messages sees."""
    return [row_of(json.loads(message.value())) for message in broker.messages(topic)]


def in_table(server: Any, database: str) -> list[Row]:
    """Return what a table of PostgreSQL has."""
    if not server.run(database, "SELECT 1 FROM pg_tables WHERE tablename = 'found'"):
        return []
    return [row_of(row) for (row,) in server.run(database, "SELECT to_jsonb(found) FROM found")]


@dataclass
class TakenQueue:
    """A queue of RabbitMQ, and what was taken from it."""

    rabbit: Any
    queue: str
    taken: list[Row] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Take what is there; return all that was."""
        connection = self.rabbit.connection()
        channel = connection.channel()
        while True:
            method, properties, body = channel.basic_get(self.queue, auto_ack=True)
            if method is None:
                connection.close()
                return list(self.taken)
            found = json.loads(body)
            of_view = f"-r{found['revision']}" if found.get("revision") is not None else ""
            assert properties.message_id == f"{found['match_id']}{of_view}"
            self.taken.append(row_of(found))


def sink_of(name: str, servers: Mapping[str, Any], folder: Path, *, is_current: bool = False) -> MadeSink:
    """Return a new sink of a kind, without rows; PostgreSQL may keep the rows that stand only."""
    place = folder / name
    match name:
        case "json":
            return MadeSink("format: json, path: json", lambda: in_json(place))
        case "parquet":
            return MadeSink("format: parquet, path: parquet", lambda: in_parquet(place))
        case "csv":
            return MadeSink("format: csv, path: csv", lambda: in_csv(place))
        case "delta":
            return MadeSink("format: delta, path: delta", lambda: in_delta(place), may_repeat=True)
        case "kafka":
            broker = servers["kafka"]
            topic = broker.topic("found")
            settings = f'format: kafka, brokers: "{broker.address}", topic: {topic}'
            return MadeSink(settings, lambda: in_topic(broker, topic), may_repeat=True)
        case "postgres":
            server = servers["postgres"]
            database = server.database()
            settings = f"format: postgres, {server.yaml(database)}, table: found"
            settings += ", mode: upsert" if is_current else ""
            return MadeSink(settings, lambda: in_table(server, database), is_current=is_current)
        case "webhook":
            web = servers["web"]
            n_before = len(web.rows)
            settings = f"format: webhook, url: '{web.url}'"
            return MadeSink(settings, lambda: list(map(row_of, web.rows[n_before:])), is_once=False)
        case _:
            rabbit = servers["rabbitmq"]
            queue = TakenQueue(rabbit, rabbit.queue())
            settings = f"format: rabbitmq, host: 127.0.0.1, port: {rabbit.port}, queue: {queue.queue}"
            return MadeSink(settings, queue.rows, is_once=False)
