"""The servers of a shop, with the data that the shop and the pipeline write to them.

A pipeline file finds them by `Shop.placed`. Secrets are only in the environment.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import yaml

from scenarios.payments.events import PLACED, SECOND_US, Login, OrderChange, Payment
from scenarios.servers.kafka import KafkaServer, has_kafka, running_kafka
from scenarios.servers.postgres import PostgresServer, has_postgres, running_postgres_server
from scenarios.servers.process import ServerError
from scenarios.servers.web import Reply, Request, WebServer, running_web_server

DATABASE, USER = "shop", "cep"
N_PARTITIONS = 3
"""Partitions of the topic `logins`."""

_PASSWORD, _TOKEN = "PAYMENTS_PASSWORD", "PAYMENTS_TOKEN"
_MOST_DELAY_US = 20 * SECOND_US
_CHANGES_PER_TRANSACTION = 20

_TABLES = (
    "CREATE TABLE orders (order_id bigint PRIMARY KEY, account text NOT NULL, status text NOT NULL, "
    "amount numeric(10, 2) NOT NULL, changed_at timestamptz NOT NULL)",
    "CREATE TABLE payments (payment_id bigint PRIMARY KEY, order_id bigint NOT NULL, account text NOT NULL, "
    "kind text NOT NULL, amount numeric(10, 2) NOT NULL, paid_at timestamptz NOT NULL)",
)
_PLACE = "INSERT INTO orders VALUES (%s, %s, %s, %s, %s)"
_CHANGE = "UPDATE orders SET status = %s, changed_at = %s WHERE order_id = %s"
_PAY = "INSERT INTO payments VALUES (%s, %s, %s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Shop:
    """The servers, while they run."""

    kafka: KafkaServer
    postgres: PostgresServer
    web: WebServer

    def placed(self, pipeline: Path, out: Path, *, finishes: bool) -> Path:
        """Return a copy of a pipeline file in `out` that has the addresses of these servers.

        `pipeline`: the file; its paths are relative to it. `out`: the folder of the copy and of its
        checkpoint. `finishes`: whether the input is complete when it has been read.
        """
        spec: dict[str, Any] = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
        spec["streams"] = str((pipeline.parent / spec["streams"]).resolve())
        spec["rules"] = [str((pipeline.parent / path).resolve()) for path in spec["rules"]]
        addresses = {
            "host": "127.0.0.1",
            "port": self.postgres.port,
            "brokers": self.kafka.address,
            "url": f"http://127.0.0.1:{self.web.port}/alerts",
        }
        for place in (*spec["sources"], *spec["sinks"], spec["late"], spec["dead_letter"]):
            place |= {name: address for name, address in addresses.items() if name in place}
        spec["checkpoint"] = "checkpoint"
        if finishes:
            spec["at_end"] = "finish"
        copy = out / "pipeline.yaml"
        copy.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        return copy

    def write(self, rng: Random, changes: Iterable[OrderChange | Payment], logins: Sequence[Login]) -> None:
        """Write events to tables and topic, in order except for a few seconds of delay."""
        self._write_rows(_delivered(rng, changes))
        self.send("logins", [(login.account, _json(login)) for login in _delivered(rng, logins)])

    def send(self, topic: str, messages: Iterable[tuple[str, str]]) -> None:
        """Send messages, as pairs of key and value, to a topic."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka.address, "linger.ms": 5, "log_level": 0})
        for key, value in messages:
            while True:
                try:
                    producer.produce(topic, value, key=key)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.1)
        if producer.flush(60):
            raise ServerError(f"the Kafka broker does not take the messages of topic `{topic}`")

    def _write_rows(self, changes: Sequence[OrderChange | Payment]) -> None:
        import psycopg

        password = os.environ[_PASSWORD]
        with psycopg.connect(
            self.postgres.dsn(DATABASE, USER), password=password, autocommit=True
        ) as connection:
            for first in range(0, len(changes), _CHANGES_PER_TRANSACTION):
                with connection.transaction(), connection.pipeline():
                    for change in changes[first : first + _CHANGES_PER_TRANSACTION]:
                        connection.execute(*_statement(change))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the database."""
        return self.postgres.run(DATABASE, statement)

    def in_topic(self, topic: str) -> list[dict[str, Any]]:
        """Return the values of a topic's committed messages."""
        return [json.loads(message.value()) for message in self.kafka.messages(topic)]


def _delivered(rng: Random, events: Iterable[Any]) -> list[Any]:
    """Return events in the order in which the shop's servers get them."""
    delayed = [(event.at_us + rng.randrange(_MOST_DELAY_US), idx, event) for idx, event in enumerate(events)]
    return [event for _, _, event in sorted(delayed, key=lambda found: found[:2])]


def _statement(change: OrderChange | Payment) -> tuple[str, tuple[Any, ...]]:
    at, amount = _time(change.at_us), f"{change.cents // 100}.{change.cents % 100:02}"
    if isinstance(change, Payment):
        return _PAY, (change.payment_id, change.order_id, change.account, change.kind, amount, at)
    if change.status != PLACED:
        return _CHANGE, (change.status, at, change.order_id)
    return _PLACE, (change.order_id, change.account, change.status, amount, at)


def _time(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def _json(login: Login) -> str:
    return json.dumps(
        {
            "login_id": login.login_id,
            "at": _time(login.at_us).isoformat(),
            "account": login.account,
            "success": login.success,
            "address": login.address,
        }
    )


@contextmanager
def running_shop() -> Iterator[Shop]:
    """Start the servers, create tables and topics, and end every process in any case.

    Raises ServerError: a server is missing or does not start.
    """
    for is_there, name in ((has_kafka(), "Kafka"), (has_postgres(), "PostgreSQL")):
        if not is_there:
            raise ServerError(f"the server of {name} is missing; get it with: make servers")
    # Before Spark starts, because its workers then read the environment.
    os.environ |= {_PASSWORD: secrets.token_hex(), _TOKEN: secrets.token_hex()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cep-kafka-")))
        web = stack.enter_context(running_web_server())
        web.answering = _answering(f"Bearer {os.environ[_TOKEN]}")
        postgres = stack.enter_context(running_postgres_server())
        kafka = stack.enter_context(running_kafka(folder))
        password = os.environ[_PASSWORD]
        postgres.run(
            "postgres",
            f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{password}'",
            f"CREATE DATABASE {DATABASE} OWNER {USER}",
        )
        postgres.run(DATABASE, *(f"SET ROLE {USER}; {table}" for table in _TABLES))
        kafka.make_topic("logins", N_PARTITIONS)
        kafka.make_topic("alerts")
        kafka.make_topic("dead_letters")
        yield Shop(kafka, postgres, web)


def _answering(wanted: str) -> Any:
    def answer(request: Request) -> Reply:
        is_known = secrets.compare_digest(request.headers.get("authorization", ""), wanted)
        return (204, {}, "") if is_known else (401, {}, "")

    return answer
