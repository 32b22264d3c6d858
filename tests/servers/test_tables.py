"""Tables that rules join, from servers: the log of a database, a compacted topic."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import CepError
from cep.local.match_file import match_file
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.servers.kafka_broker import Broker
from tests.servers.postgres_server import PostgresServer
from tests.spark import test_views as views

pytestmark = pytest.mark.spark

RULE = """
RULE above FROM payments JOIN customers ON card PARTITION BY card PATTERN a
DEFINE a AS amount > COALESCE(customers.cap, 100)
MEASURES a.id AS id, a.customers.cap AS cap
"""


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def found(folder: Path) -> dict[int, float | None]:
    """Return the cap that each payment above its cap was compared with."""
    rows = [json.loads(line) for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return {row["id"]: row.get("cap") for row in rows}


def test_a_table_of_postgres_is_joined_as_it_was_when_each_payment_was_committed(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres.database()
    postgres.run(
        database,
        "CREATE TABLE customers (card text PRIMARY KEY, cap numeric(10, 2))",
        "CREATE TABLE payments (id bigint PRIMARY KEY, card text, amount float8)",
        "INSERT INTO customers VALUES ('known', 10)",
    )
    (tmp_path / "rules.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(
        "streams:\n"
        "  payments: {event_time: at, tie_break: [lsn], schema: {id: bigint, card: string, amount: double, "
        "at: timestamp, lsn: bigint}}\n"
        "tables:\n"
        "  customers: {key: [card], event_time: at, tie_break: [lsn], op: op, "
        "schema: {card: string, cap: 'decimal(10,2)', op: string, at: timestamp, lsn: bigint}}\n"
    )
    settings = postgres.yaml(database)

    def pipeline(more: str = "") -> Path:
        file = tmp_path / "p.yaml"
        file.write_text(
            "rules: [rules.cep]\nsources:\n"
            f"  - {{stream: payments, format: postgres, {settings}, tables: payments, slot: {database}_p, "
            "columns: {commit_time: at, lsn: lsn}}\n"
            f"  - {{table: customers, format: postgres, {settings}, tables: customers, slot: {database}_c, "
            "columns: {op: op, commit_time: at, lsn: lsn}}\n"
            f"sinks: [{{format: json, path: out}}]\ncheckpoint: checkpoint\n{more}"
        )
        return file

    assert quiet_run(pipeline()).counts.versions == {"customers": 1}  # the copy, and the slots
    for number, statement in enumerate(
        [
            "INSERT INTO customers VALUES ('new', 20)",
            "UPDATE customers SET cap = 50 WHERE card = 'known'",
            "DELETE FROM customers WHERE card = 'new'",
            "INSERT INTO customers VALUES ('new', 5)",
        ]
    ):
        postgres.run(database, f"INSERT INTO payments VALUES ({10 * number}, 'known', 40)")
        postgres.run(database, f"INSERT INTO payments VALUES ({10 * number + 1}, 'new', 30)")
        postgres.run(database, statement)
    postgres.run(database, "INSERT INTO payments VALUES (90, 'new', 30)")
    summary = quiet_run(pipeline("at_end: finish\n"))
    assert (summary.counts.late, summary.counts.malformed) == (0, 0)
    # Of `known` the cap is 10, then 50; `new` is not there, then 20, gone, and 5.
    assert found(tmp_path / "out") == {0: 10.0, 10: 10.0, 11: 20.0, 21: 20.0, 90: 5.0}


def test_messages_without_a_value_delete_rows_of_a_compacted_topic(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    start = datetime(2024, 5, 1, tzinfo=UTC)
    topic = broker.topic("customers", 1, **{"cleanup.policy": "compact"})

    def send(second: float, key: str, cap: float | None) -> None:
        value = None if cap is None else json.dumps({"op": "u", "cap": cap}).encode()
        at = int((start + timedelta(seconds=second)).timestamp() * 1000)
        broker.send(topic, [value], key=key.encode(), timestamp=at)

    send(0, "c1", 10)
    send(20, "c1", None)
    send(40, "c1", 60)
    send(50, "c2", None)  # never was there
    (tmp_path / "payments").mkdir()
    payments = [
        {"id": second, "card": "c1", "amount": 50.0, "ts": (start + timedelta(seconds=second)).isoformat()}
        for second in (-5, 5, 15, 25, 35, 45)
    ]
    (tmp_path / "payments/p.json").write_text("".join(json.dumps(row) + "\n" for row in payments))
    (tmp_path / "rules.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(
        "streams:\n"
        "  payments: {event_time: ts, schema: {id: bigint, card: string, amount: double, ts: timestamp}}\n"
        "tables:\n"
        "  customers: {key: [card], event_time: at, op: op, "
        "schema: {card: string, cap: double, op: string, at: timestamp}}\n"
    )
    file = tmp_path / "p.yaml"
    source = (
        f"table: customers, format: kafka, brokers: '{broker.address}', topic: {topic}, tombstones: delete"
    )
    text = (
        "rules: [rules.cep]\nsources:\n  - {stream: payments, format: json, path: payments}\n"
        f"  - {{{source}, columns: {{key: card, timestamp: at}}}}\n"
        "sinks: [{format: json, path: out}]\ncheckpoint: checkpoint\nat_end: finish\n"
    )
    file.write_text(text)
    summary = quiet_run(file)
    assert (summary.counts.events, summary.counts.malformed, summary.counts.tombstones) == (6, 0, {})
    assert summary.counts.versions == {"customers": 4}
    assert found(tmp_path / "out") == {5: 10.0, 15: 10.0}
    file.write_text(text.replace("key: card, ", "").replace("checkpoint: c", "checkpoint: other"))
    with pytest.raises(CepError) as caught:
        quiet_run(file)
    assert caught.value.code == "E0843"


def test_a_compacted_topic_has_the_rows_of_a_view_under_its_key_and_is_a_table_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic("owned", 2, **{"cleanup.policy": "compact"})
    rules, _ = views.compiled(tmp_path)
    paths = views.written(tmp_path, views.drawn(5, 60), 1)
    last = {
        row["account"]: row
        for row in match_file(rules, {name: str(path) for name, path in paths.items()}).matches.to_pylist()
        if row["rule"] == "owned"
    }
    assert {row["kind"] for row in last.values()} == {"match", "retract"}
    file = tmp_path / "pipeline.yaml"
    sink = f"{{format: kafka, brokers: '{broker.address}', topic: {topic}, key: key, retract: tombstone}}"
    sources = "".join(f"  - {{table: {name}, format: json, path: {name}}}\n" for name in views.NAMES)
    file.write_text(f"rules: [rules.cep]\nonly: [owned]\nsources:\n{sources}sinks: [{sink}]\nmode: batch\n")
    quiet_run(file)
    messages = broker.messages(topic)
    assert {message.key().decode() for message in messages} == set(last)
    kept = {message.key().decode(): message.value() for message in messages}  # as compaction does
    assert {key for key, value in kept.items() if value is not None} == {
        key for key, row in last.items() if row["kind"] == "match"
    }
    (tmp_path / "copy.cep").write_text("VIEW copied KEY account FROM owned SELECT name, balance, cap")
    file.write_text(
        "tables:\n  owned: {key: [account], event_time: sent, tie_break: [number], op: kind, schema: "
        "{account: string, sent: timestamp, number: bigint, kind: string, name: string, balance: double, "
        "cap: bigint}}\n"
        f"rules: [copy.cep]\nsources:\n  - {{table: owned, format: kafka, brokers: '{broker.address}', "
        f"topic: {topic}, tombstones: delete, columns: {{key: account, timestamp: sent, offset: number}}}}\n"
        "sinks: [{format: json, path: copied}]\nmode: batch\n"
    )
    summary = quiet_run(file)
    assert summary.counts.malformed == 0
    parts = [part.read_text() for part in (tmp_path / "copied").rglob("part-*")]
    rows = [json.loads(line) for part in parts for line in part.splitlines()]
    copied = {row["account"]: row for row in sorted(rows, key=lambda row: row["revision"])}
    names = ("name", "balance", "cap")
    assert {
        key: [row.get(name) for name in names] for key, row in copied.items() if row["kind"] == "match"
    } == {key: [row[name] for name in names] for key, row in last.items() if row["kind"] == "match"}


def test_rows_of_rules_beside_a_view_have_its_columns_in_a_table_and_a_topic(
    spark: SparkSession, broker: Broker, postgres: PostgresServer, tmp_path: Path
) -> None:
    rules, _, paths = views.with_payments(tmp_path, 6)
    rows = match_file(rules, {name: str(path) for name, path in paths.items()}).matches.to_pylist()
    columns = ("rule", "match_id", "revision", "kind")
    expected = sorted([row[name] for name in columns] for row in rows)
    topic, database = broker.topic("beside"), postgres.database()
    sinks = (
        f"  - {{format: postgres, {postgres.yaml(database)}, table: beside}}\n"
        f"  - {{format: kafka, brokers: '{broker.address}', topic: {topic}}}\n"
    )
    text = views.OF_PAYMENTS.replace("sinks:\n", f"sinks:\n{sinks}")
    (tmp_path / "pipeline.yaml").write_text(text)
    quiet_run(tmp_path / "pipeline.yaml")
    found = postgres.run(database, f"SELECT {', '.join(columns)} FROM beside")
    assert sorted(map(list, found)) == expected
    sent = (json.loads(message.value()) for message in broker.messages(topic))
    assert sorted([row[name] for name in columns] for row in sent) == expected
