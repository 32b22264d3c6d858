"""A table whose changes are read without Spark: what is planned, and what is read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.errors import CepError
from cep.formats.ahead import AheadGuard
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.postgres import planner
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.planner import PostgresPlanner
from spark_runtime.connectors.postgres.reading import PostgresReading
from spark_runtime.connectors.postgres.source import PostgresSource
from tests.servers.postgres_server import PostgresServer

STREAM = Stream(
    "s",
    (
        Field("id", "bigint"),
        Field("note", "string"),
        Field("ts", "timestamp"),
        Field("op", "string"),
        Field("number", "int"),
    ),
    "ts",
)
COLUMNS = {"op": "op", "number": "number"}
AT = "2024-05-01T00:00:{:02}Z"


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LOOK_SECONDS", 0.0)


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[Shop]:
    """Return a database with a table, whose slots are dropped at the end."""
    made = Shop(postgres, postgres.database())
    made.run("CREATE TABLE orders (id int PRIMARY KEY, note text, ts timestamptz NOT NULL)")
    yield made
    made.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        f"WHERE database = '{made.database}' AND NOT active"
    )


class Shop:
    """A database."""

    def __init__(self, postgres: PostgresServer, database: str) -> None:
        self.postgres, self.database = postgres, database
        self.slot = f"cep_{database}"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.postgres.run(self.database, *statements)

    def insert(self, *ids: int, note: str = "n") -> None:
        rows = ", ".join(f"({i}, '{note}', '{AT.format(i % 60)}')" for i in ids)
        self.run(f"INSERT INTO orders VALUES {rows}")

    def connection(self, user: str = "postgres", **more: str) -> Connection:
        parameters = {"host": "127.0.0.1", "port": str(self.postgres.port), "dbname": self.database}
        return Connection(tuple(sorted({**parameters, "user": user, **more}.items())))

    def reading(self, folder: Path, **more: Any) -> PostgresReading:
        known: dict[str, Any] = {
            "stream": STREAM,
            "connection": self.connection(),
            "tables": ("public.orders",),
            "slot": self.slot,
            "publication": self.slot,
            "columns": COLUMNS,
            "log": str(folder / "log" / "s.log"),
        }
        return PostgresReading(**{**known, **more})

    def confirmed(self) -> int:
        [(lsn,)] = self.run(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )
        return int(lsn)


class Seen:
    """What was read of a source."""

    def __init__(self, reading: PostgresReading) -> None:
        self.source = PostgresSource(reading)
        self.rows: list[dict[str, Any]] = []
        self.dead: list[tuple[str, str]] = []
        self.raws: list[str] = []

    def read(self, parts: Sequence[tuple[int, Any]]) -> Seen:
        again: PostgresSource = pickle.loads(pickle.dumps(self.source))  # as in a worker
        for _, part in parts:
            through_json = tuple(json.loads(json.dumps(part)))
            for chunk in again.read(through_json, AheadGuard(STREAM.max_ahead_us), Counts()):
                self.rows += chunk.events.to_pylist()
                for row in chunk.dead_letters.to_pylist():
                    self.dead.append((again.position_text(row["source"], row["position"]), row["reason"]))
                    self.raws.append(row["raw"])
        return self

    @property
    def changes(self) -> list[tuple[str, int, Any]]:
        return [(row["op"], row["id"], row.get("note")) for row in self.rows]


def batches(reading: PostgresReading, start: Any = None) -> tuple[list[list[Any]], Any]:
    """Return the changes of each micro-batch of a run that reads what is there, and where it ends."""
    run = PostgresPlanner(reading)
    if start is not None:
        run.commit(start)
    run.stop_at_now()
    at, found = run.start() if start is None else start, []
    while (end := run.latest(at)) != at:
        found.append(Seen(reading).read(run.ranges(at, end)).changes)
        run.commit(end)
        at = json.loads(json.dumps(end))
    run.close(Counts())
    return found, at


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(CepError) as caught:
        call()
    return f"{caught.value.code} {caught.value.args[0]}"
