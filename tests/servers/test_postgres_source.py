"""Changes of tables as a source, without Spark: what is planned and what is read."""

from __future__ import annotations

import json
import pickle
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cep.counts import Counts
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.connectors.postgres import first_copy, server
from spark_runtime.connectors.postgres.planner import PostgresPlanner
from spark_runtime.connectors.postgres.source import PostgresSource
from spark_runtime.sources.protocol import Source
from tests.servers.kafka_broker import free_ports
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer, running_postgres
from tests.servers.postgres_shop import AT, COLUMNS, STREAM, Seen, Shop, batches, code_of
from tests.servers.postgres_shop import looks_at_once as looks_at_once
from tests.servers.postgres_shop import shop as shop

# ---------------------------------------------------------------- copy and log


def test_rows_that_are_there_are_copied_and_then_changes_are_read_in_whole_transactions(
    shop: Shop, tmp_path: Path
) -> None:
    shop.insert(1, 2, 3)
    reading = shop.reading(tmp_path, max_events=2)
    assert isinstance(PostgresSource(reading), Source)
    PostgresSource(reading).check()
    found, at = batches(reading)
    assert found == [[("r", 1, "n"), ("r", 2, "n")], [("r", 3, "n")]]
    shop.insert(4, 5, 6)  # one transaction
    shop.run("UPDATE orders SET note = 'new' WHERE id = 4", "DELETE FROM orders WHERE id = 1")
    shop.insert(7)
    found, at = batches(reading, at)
    assert found == [
        [("c", 4, "n"), ("c", 5, "n"), ("c", 6, "n")],
        [("u", 4, "new")],
        [("c", 7, "n")],
    ]
    assert batches(reading, at) == ([], at)


def test_a_delete_without_its_old_row_has_only_the_key_so_its_time_is_missing(
    shop: Shop, tmp_path: Path
) -> None:
    shop.insert(1, 2)
    stream = replace(STREAM, fields=(*STREAM.fields[:2], Field("ts", "timestamp"), *STREAM.fields[3:]))
    reading = shop.reading(tmp_path, stream=stream)
    _, at = batches(reading)
    shop.run("DELETE FROM orders WHERE id = 1", "ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.run("DELETE FROM orders WHERE id = 2")
    run = PostgresPlanner(reading)
    seen = Seen(reading).read(run.ranges(at, run.latest(at)))
    assert seen.changes == [("d", 2, "n")]
    [(place, reason)] = seen.dead
    assert place.startswith("public.orders@0/")
    assert reason == "event time `ts` is NULL"
    assert json.loads(seen.raws[0]) == {"id": "1", "note": None, "ts": None, "op": "d"}


def test_the_time_of_the_commit_can_be_the_event_time_and_old_values_are_columns(
    shop: Shop, tmp_path: Path
) -> None:
    names = {
        "at": ("timestamp", "commit_time"),
        "op": ("string", "op"),
        "lsn": ("bigint", "lsn"),
        "place": ("string", "lsn"),
        "name": ("string", "table"),
        "xid": ("bigint", "transaction"),
        "number": ("int", "number"),
        "was": ("string", "before.note"),
        "was_id": ("int", "before.id"),
    }
    fields = (Field("id", "int"), *(Field(name, ddl) for name, (ddl, _) in names.items()))
    columns = {name: what for name, (_, what) in names.items()}
    stream = Stream("s", fields, "at")
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.insert(1)
    reading = shop.reading(tmp_path, stream=stream, columns=columns)
    before = datetime.now(UTC)
    _, at = batches(reading)
    with psycopg.connect(shop.postgres.dsn(shop.database)) as connection:
        connection.execute("INSERT INTO orders VALUES (2, 'two', now())")
        connection.execute("UPDATE orders SET note = 'zwei', id = 3 WHERE id = 2")
        connection.execute("DELETE FROM orders WHERE id = 3")
    run = PostgresPlanner(reading)
    start, end = run.start(), run.latest(at)
    rows = Seen(reading).read(run.ranges(at, end)).rows
    assert [(row["op"], row["id"], row["was_id"], row["was"], row["number"]) for row in rows] == [
        ("c", 2, None, None, 0),
        ("u", 3, 2, "two", 1),
        ("d", 3, 3, "zwei", 2),
    ]
    assert len({(row["at"], row["xid"]) for row in rows}) == 1
    after_us = int(datetime.now(UTC).timestamp() * 1e6)
    assert int(before.timestamp() * 1e6) - 1_000_000 < rows[0]["at"] <= after_us
    assert start["lsn"] <= rows[0]["lsn"] < rows[1]["lsn"] < rows[2]["lsn"] < end["lsn"]
    assert rows[0]["place"] == f"0/{rows[0]['lsn']:X}"
    assert rows[0]["name"] == "public.orders"
    copied = Seen(reading)
    copied.read(copied.source.everything())
    assert [(row["op"], row["was"], row["xid"], row["number"]) for row in copied.rows] == [
        ("r", None, None, 1)
    ]


def test_the_key_before_an_update_is_known_without_the_old_row_and_other_columns_are_refused(
    shop: Shop, tmp_path: Path
) -> None:
    stream = replace(STREAM, fields=(*STREAM.fields, Field("was", "int")))
    reading = shop.reading(tmp_path, stream=stream, columns={**COLUMNS, "was": "before.id"})
    PostgresSource(reading).check()
    _, at = batches(reading)
    shop.insert(1)
    shop.run("UPDATE orders SET note = 'x' WHERE id = 1", "UPDATE orders SET id = 2 WHERE id = 1")
    run = PostgresPlanner(reading)
    rows = Seen(reading).read(run.ranges(at, run.latest(at))).rows
    assert [(row["op"], row["id"], row["was"]) for row in rows] == [("c", 1, None), ("u", 1, 1), ("u", 2, 1)]
    bad = replace(reading, columns={**COLUMNS, "was": "before.note"})
    assert code_of(PostgresSource(bad).check) == (
        "E0866 the log has no `before.note`: of old rows of `public.orders` it has the key only"
    )
    # The identity may change later.
    seen = Seen(bad).read(run.ranges(at, run.latest(at)))
    assert {reason for _, reason in seen.dead} == {
        "the old value of column `note` is not in the log: say ALTER TABLE ... REPLICA IDENTITY FULL"
    }


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_in_a_table_an_update_of_the_key_deletes_the_old_row(
    shop: Shop, tmp_path: Path, identity: str
) -> None:
    shop.run(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    table = TableSettings(("id",), TableKind.CHANGELOG, "op")
    fields = (*STREAM.fields[:2], Field("at", "timestamp"), *STREAM.fields[3:])
    stream = replace(STREAM, fields=fields, event_time="at", table=table)
    reading = shop.reading(tmp_path, stream=stream, columns={**COLUMNS, "at": "commit_time"})
    shop.insert(1, 2)
    found, at = batches(reading)
    assert found == [[("r", 1, "n"), ("r", 2, "n")]]
    shop.run(
        "UPDATE orders SET id = 11, note = 'x' WHERE id = 1", "UPDATE orders SET note = 'y' WHERE id = 2"
    )
    run = PostgresPlanner(reading)
    parts = run.ranges(at, run.latest(at))
    old = "n" if identity == "FULL" else None
    changes = [("d", 1, old), ("c", 11, "x"), ("u", 2, "y")]
    seen = Seen(reading).read(parts)
    assert seen.changes == changes
    assert [row["number"] for row in seen.rows] == [0, 1, 0]
    assert Seen(reading).read(parts).rows == seen.rows


def test_a_change_while_the_copy_is_made_is_either_in_it_or_in_the_log(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    written = []

    def write() -> None:
        number = 0
        while not stopped.is_set():
            shop.insert(number)
            written.append(number)
            number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        while len(written) < 20:
            pass
        reading = shop.reading(tmp_path)
        n_before = len(written)
        copied, at = batches(reading)
        n_between = len(written)
        while len(written) < n_between + 20:
            pass
    finally:
        stopped.set()
        writing.join()
    more, _ = batches(reading, at)
    found = [row for batch in (*copied, *more) for row in batch]
    assert [number for _, number, _ in found] == written
    assert {op for op, _, _ in found} == {"r", "c"}
    assert sum(op == "r" for op, _, _ in found) >= n_before - 1


def test_a_copy_that_was_not_completed_is_made_again(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.insert(1)
    reading = shop.reading(tmp_path)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(first_copy, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            PostgresPlanner(reading).start()
    shop.insert(2)  # it is in the log of the first slot
    found, _ = batches(reading)
    assert found == [[("r", 1, "n"), ("r", 2, "n")]]


def test_a_run_that_is_stopped_while_it_copies_lets_go_of_the_server(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.insert(1, 2, 3)
    reading = shop.reading(tmp_path, max_events=1)
    run = PostgresPlanner(reading)
    written = first_copy.onto_disk

    def stop(file: Path) -> None:
        written(file)
        run.close(Counts())  # as another thread does

    with monkeypatch.context() as planted:
        planted.setattr(first_copy, "onto_disk", stop)
        with pytest.raises(first_copy.CopyStoppedError):
            run.start()
    assert run._connection() is not None  # a new one: the other is closed
    run.close(Counts())
    assert [row for batch in batches(reading)[0] for row in batch] == [("r", n, "n") for n in (1, 2, 3)]


def test_a_copy_comes_in_the_order_of_event_time(shop: Shop, tmp_path: Path) -> None:
    shop.insert(30, 10, 20)
    found, _ = batches(shop.reading(tmp_path))
    assert [number for _, number, _ in found[0]] == [10, 20, 30]


def test_values_of_a_copy_are_those_of_the_log(shop: Shop, tmp_path: Path) -> None:
    types = {
        "id": "int",
        "small": "smallint",
        "flag": "boolean",
        "price": "decimal(10,2)",
        "ratio": "double",
        "note": "string",
        "day": "date",
        "ts": "timestamp",
        "local_time": "timestamp",
        "info": "struct<a:int,b:array<string>>",
        "raw": "binary",
        "code": "string",
    }
    shop.run(
        "CREATE TYPE mood AS ENUM ('ok', 'bad')",
        "CREATE TABLE things (id int PRIMARY KEY, small int2, flag bool, price numeric(10,2), ratio float8, "
        "note text, day date, ts timestamptz, local_time timestamp, info jsonb, raw bytea, code mood)",
    )
    rows = (
        "(1, 2, true, 12.50, 1e300, 'a,\"b\"\nc', '2024-05-01', '2024-05-01 12:00:00.123456+02', "
        "'2024-05-01 12:00', '{\"b\": [\"x\"], \"a\": 1}', '\\x00ff', 'ok'), "
        "(2, NULL, false, NULL, 'NaN', '', NULL, '2024-05-01', NULL, NULL, '\\x', NULL), "
        "(3, NULL, NULL, -0.01, '-Infinity', E'\\\\N', NULL, '2024-05-02', NULL, '{}', NULL, 'bad')"
    )
    stream = Stream("s", tuple(Field(name, ddl) for name, ddl in types.items()), "ts")
    reading = shop.reading(tmp_path, stream=stream, columns={}, tables=("public.things",))
    shop.run(f"INSERT INTO things VALUES {rows}")
    run = PostgresPlanner(reading)
    at = run.latest(run.start())
    copied = Seen(reading).read(run.ranges(run.start(), at))
    shop.run("DELETE FROM things", f"INSERT INTO things VALUES {rows}")
    end = run.latest(at)
    logged = Seen(reading).read(run.ranges(at, end))
    assert copied.dead == []
    assert len(copied.rows) == 3
    for seen in (logged, copied):
        seen.rows.sort(key=lambda row: row["id"])
    assert repr(logged.rows) == repr(copied.rows)
    first = copied.rows[0]
    assert first | {"ts": 0, "local_time": 0, "day": 0} == {
        "id": 1,
        "small": 2,
        "flag": True,
        "price": 12.5,
        "ratio": 1e300,
        "note": 'a,"b"\nc',
        "day": 0,
        "ts": 0,
        "local_time": 0,
        "info": '{"a":1,"b":["x"]}',
        "raw": "AP8=",
        "code": "ok",
    }
    assert datetime.fromtimestamp(first["ts"] / 1e6, UTC) == datetime(2024, 5, 1, 10, 0, 0, 123456, UTC)
    assert datetime.fromtimestamp(first["local_time"] / 1e6, UTC) == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert (copied.rows[1]["note"], copied.rows[1]["raw"], copied.rows[1]["flag"]) == ("", "", False)
    assert (copied.rows[2]["note"], copied.rows[2]["flag"]) == ("\\N", None)
    assert len(logged.dead) == 3  # deletes: the log has their key, and no event time


def test_what_is_not_of_its_type_is_a_dead_letter_with_table_and_lsn(shop: Shop, tmp_path: Path) -> None:
    stream = replace(STREAM, fields=(STREAM.fields[0], Field("note", "int"), *STREAM.fields[2:]))
    shop.insert(1, note="one")
    reading = shop.reading(tmp_path, stream=stream)
    run = PostgresPlanner(reading)
    at = run.latest(run.start())
    assert Seen(reading).read(run.ranges(run.start(), at)).dead == [
        ("public.orders (copy):1", "field `note` is not of type int: one")
    ]
    shop.run(f"INSERT INTO orders VALUES (2, 'two', '{AT.format(2)}'), (3, '3', '{AT.format(3)}')")
    shop.run("TRUNCATE orders")
    seen = Seen(reading).read(run.ranges(at, run.latest(at)))
    assert seen.changes == [("c", 3, 3)]
    assert [reason for _, reason in seen.dead] == [
        "field `note` is not of type int: two",
        "TRUNCATE has removed all rows, and the log does not name them",
    ]
    assert all(place.startswith("public.orders@0/") for place, _ in seen.dead)


def test_a_large_value_that_was_not_changed_does_not_become_null(shop: Shop, tmp_path: Path) -> None:
    shop.run("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    large = "x" * 10_000
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1, note=large)
    shop.run(f"UPDATE orders SET ts = '{AT.format(5)}'")
    run = PostgresPlanner(reading)
    end = run.latest(at)
    seen = Seen(reading).read(run.ranges(at, end))
    assert seen.changes == [("c", 1, large)]
    assert [reason for _, reason in seen.dead] == [
        "column `note` is large and unchanged, so not in the log: say ALTER TABLE ... REPLICA IDENTITY FULL"
    ]
    nulls = Seen(replace(reading, nulls_unchanged=True)).read(run.ranges(at, end))
    assert nulls.changes == [("c", 1, large), ("u", 1, None)]
    without = replace(STREAM, fields=(STREAM.fields[0], *STREAM.fields[2:]))
    assert len(Seen(replace(reading, stream=without)).read(run.ranges(at, end)).rows) == 2
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL", f"UPDATE orders SET ts = '{AT.format(6)}'")
    assert Seen(reading).read(run.ranges(end, run.latest(end))).changes == [("u", 1, large)]


def test_a_column_is_added_while_the_log_is_read_and_one_that_is_dropped_is_told(
    shop: Shop, tmp_path: Path
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1)
    shop.run("ALTER TABLE orders ADD more int", "ALTER TABLE orders RENAME note TO old_note")
    shop.run(
        "ALTER TABLE orders ADD note text DEFAULT 'd'",
        f"INSERT INTO orders VALUES (2, 'x', '{AT.format(2)}')",
    )
    found, at = batches(reading, at)
    assert found == [[("c", 1, "n"), ("c", 2, "d")]]
    shop.run("ALTER TABLE orders DROP note", f"INSERT INTO orders VALUES (3, 'x', '{AT.format(2)}')")
    assert code_of(lambda: batches(reading, at)) == (
        "E0862 table `public.orders` has no column `note`, which stream `s` wants as `note`"
    )


def test_several_tables_are_one_stream_and_others_in_the_publication_are_not(
    shop: Shop, tmp_path: Path
) -> None:
    shop.run(
        "CREATE SCHEMA eu",
        'CREATE TABLE eu."Orders" (ts timestamptz, id int PRIMARY KEY, note text)',
        "CREATE TABLE other (id int PRIMARY KEY, note text, ts timestamptz)",
        "CREATE TABLE parts (id int, note text, ts timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
        f"CREATE PUBLICATION {shop.slot} FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    fields = (*STREAM.fields, Field("name", "string"))
    reading = shop.reading(
        tmp_path,
        tables=("public.orders", "eu.Orders", "public.parts"),
        stream=replace(STREAM, fields=fields),
        columns={**COLUMNS, "name": "table"},
    )
    PostgresSource(reading).check()

    def write(number: int) -> None:
        shop.insert(number)
        shop.run(f"INSERT INTO eu.\"Orders\" VALUES ('{AT.format(number + 1)}', {number + 1}, 'eu')")
        shop.run(f"INSERT INTO parts VALUES ({number + 2}, 'part', '{AT.format(number + 2)}')")
        shop.run(f"INSERT INTO other VALUES ({number}, 'n', '{AT.format(1)}')")

    write(1)
    run = PostgresPlanner(reading)
    at = run.latest(run.start())
    copied = Seen(reading).read(run.ranges(run.start(), at)).rows
    write(11)
    logged = Seen(reading).read(run.ranges(at, run.latest(at))).rows
    names = ["public.orders", "eu.Orders", "public.parts"]
    assert [(row["id"], row["name"]) for row in copied] == list(zip((1, 2, 3), names, strict=True))
    assert [(row["id"], row["name"]) for row in logged] == list(zip((11, 12, 13), names, strict=True))


def test_a_condition_of_the_publication_holds_for_the_copy_too(shop: Shop, tmp_path: Path) -> None:
    shop.run(f"CREATE PUBLICATION {shop.slot} FOR TABLE orders WHERE (id > 1) WITH (publish = 'insert')")
    shop.insert(1, 2)
    reading = shop.reading(tmp_path)
    PostgresSource(reading).check()
    found, at = batches(reading)
    shop.insert(0, 3)
    more, _ = batches(reading, at)
    assert [found, more] == [[[("r", 2, "n")]], [[("c", 3, "n")]]]


def test_a_transaction_of_many_portions_comes_whole(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FEW_ROWS", 3)
    monkeypatch.setattr(server, "_PORTION_BYTES", 500)
    reading = shop.reading(tmp_path, max_events=5)
    _, at = batches(reading)
    shop.insert(*range(40))
    shop.insert(50)
    run = PostgresPlanner(reading)
    end = run.latest(at)
    rows = Seen(reading).read(run.ranges(at, end)).rows
    assert [(row["id"], row["number"]) for row in rows] == [(i, i) for i in range(40)]
    bounded = replace(reading, max_events=None, max_bytes=200)
    assert [len(found) for found in batches(bounded, at)[0]] == [40, 1]


# ---------------------------------------------------------------- the slot


def test_the_slot_forgets_a_micro_batch_when_the_next_one_is_planned_and_a_range_is_read_again(
    shop: Shop, tmp_path: Path
) -> None:
    reading = shop.reading(tmp_path, begin="now")
    _, start = batches(reading)
    shop.insert(1)
    run = PostgresPlanner(reading)
    end = run.latest(start)
    parts = run.ranges(start, end)
    assert Seen(reading).read(parts).changes == [("c", 1, "n")]
    run.commit(end)  # Spark may still die before it has written that down, and repeat the micro-batch
    assert shop.confirmed() <= start["lsn"]
    assert Seen(reading).read(parts).changes == [("c", 1, "n")]
    assert run.latest(end) == end
    assert shop.confirmed() >= end["lsn"]
    assert code_of(lambda: Seen(reading).read(parts)).startswith("E0865 ")  # never an empty answer
    run.close(Counts())


def test_a_slot_of_a_quiet_table_follows_the_log_of_others(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.run(
        "CREATE TABLE noise (v text)",
        "INSERT INTO noise SELECT repeat('x', 100) FROM generate_series(1, 9999)",
    )
    shop.run("CHECKPOINT")
    before = shop.confirmed()
    run = PostgresPlanner(reading)
    run.commit(at)
    assert run.latest(at) == at
    assert shop.confirmed() > before + 500_000
    told = re.fullmatch(
        rf"slot {shop.slot} is ([\d,]+) bytes behind and keeps ([\d,]+) bytes of the log", run.status()
    )
    assert told is not None
    behind, kept = (int(number.replace(",", "")) for number in told.groups())
    assert kept >= behind > 500_000  # as they were seen before
    run.close(Counts())
    shop.insert(1)
    assert batches(reading, at)[0] == [[("c", 1, "n")]]  # nobody else has read it: the checkpoint says so


def test_what_somebody_else_has_read_is_not_passed_over_in_silence(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1)
    get = f"pg_logical_slot_get_binary_changes('{shop.slot}', NULL, NULL, 'proto_version', '1', "
    shop.run(f"SELECT 1 FROM {get}'publication_names', '{shop.slot}')")
    assert code_of(lambda: batches(reading, at)).startswith(
        f"E0865 slot `{shop.slot}` does not have changes any more that were not read: somebody has read it "
    )


def test_a_slot_that_is_gone_or_not_ours_is_told(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path / "a")
    other = shop.reading(tmp_path / "b")
    _, at = batches(reading)
    message = f"E0864 slot `{shop.slot}` is there, and this checkpoint has not made it"
    assert code_of(lambda: PostgresPlanner(other).start()) == message
    begun = replace(other, creates=False, begin="now")
    shop.insert(1)
    assert batches(begun)[0] == [[("c", 1, "n")]]
    shop.run(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    gone = f"E0865 slot `{shop.slot}` does not have changes any more that were not read: "
    gone += "it is not there any more"
    assert code_of(PostgresSource(reading).check) == gone
    assert code_of(lambda: batches(reading, at)) == gone
    shop.run(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    assert code_of(lambda: batches(reading, at)).startswith("E0865 ")
    shop.run(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    shop.run(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'test_decoding')")
    assert code_of(PostgresSource(reading).check) == (
        f"E0864 slot `{shop.slot}` has the plug-in test_decoding, and not pgoutput"
    )


def test_another_database_is_not_taken_for_the_one_that_was_read(
    shop: Shop, postgres: PostgresServer, tmp_path: Path
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    elsewhere = Shop(postgres, postgres.database())
    elsewhere.run("CREATE TABLE orders (id int PRIMARY KEY, note text, ts timestamptz)")
    moved = replace(reading, connection=elsewhere.connection())
    assert code_of(lambda: PostgresPlanner(moved).start()).startswith("E0865 ")
    assert code_of(PostgresSource(moved).check) == f"E0864 slot `{shop.slot}` is of another database"
    assert batches(reading, at) == ([], at)


def test_a_slot_that_another_reader_holds_is_waited_for(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1)
    held = psycopg.connect(shop.postgres.dsn(shop.database), autocommit=True, replication="database")
    held.pgconn.send_query(
        f"START_REPLICATION SLOT {shop.slot} LOGICAL 0/0 "
        f"(proto_version '1', publication_names '{shop.slot}')".encode()
    )
    while not shop.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.slot}' AND active"):
        pass
    monkeypatch.setattr(server, "BUSY_SECONDS", 0.3)
    assert code_of(lambda: batches(reading, at)).startswith(f"E0864 slot `{shop.slot}` is in use: ")
    monkeypatch.setattr(server, "BUSY_SECONDS", 20.0)
    ending = threading.Timer(0.3, held.close)
    ending.start()
    assert batches(reading, at)[0] == [[("c", 1, "n")]]
    ending.join()


# ---------------------------------------------------------------- errors before anything runs


def test_what_is_not_there_is_told_before_anything_runs(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading(tmp_path)
    address = f"`127.0.0.1:{shop.postgres.port}/{shop.database}`"

    def found(**more: Any) -> str:
        return code_of(PostgresSource(replace(reading, **more)).check)

    [port] = free_ports(1)
    nobody = shop.connection(port=str(port))
    assert found(connection=nobody).startswith(
        f"E0860 no server of PostgreSQL answers at `127.0.0.1:{port}/{shop.database}`: "
    )
    assert found(connection=shop.connection(dbname="nowhere")).startswith("E0860 ")
    assert found(tables=("public.none",)) == f"E0862 there is no table `public.none` at {address}"
    stream = replace(STREAM, fields=(*STREAM.fields, Field("more", "int")))
    assert found(stream=stream) == (
        "E0862 table `public.orders` has no column `more`, which stream `s` wants as `more`"
    )
    assert found(creates=False, begin="now") == (f"E0862 there is no publication `{shop.slot}` at {address}")
    shop.run("CREATE TABLE plain (id int, note text, ts timestamptz)", "CREATE PUBLICATION p FOR TABLE plain")
    assert found(creates=False, begin="now", publication="p") == (
        "E0862 publication `p` does not have table `public.orders`"
    )
    assert found(tables=("public.plain",)) == (
        "E0866 table `public.plain` has no primary key: once it is published, the server refuses "
        "each UPDATE and DELETE of it"
    )
    shop.run("ALTER PUBLICATION p SET TABLE orders (id, ts)")
    assert found(publication="p") == (
        "E0862 publication `p` does not have column `note` of table `public.orders`"
    )
    shop.run("ALTER PUBLICATION p SET TABLE orders")
    assert found(publication="p", creates=False, begin="now") == (
        f"E0864 there is no slot `{shop.slot}` at {address}"
    )
    PostgresSource(replace(reading, publication="p")).check()
    assert found(log="").startswith("E0843 `from: copy` keeps the copy in the checkpoint")


def test_access_that_is_refused_is_told_without_the_password(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = shop.connection(USER, password="${CEP_TEST_PASSWORD}")
    reading = shop.reading(tmp_path, connection=secret)
    monkeypatch.delenv("CEP_TEST_PASSWORD", raising=False)
    assert code_of(PostgresSource(reading).check) == (
        "E0853 `password` needs the variable `CEP_TEST_PASSWORD`, which the environment does not have"
    )
    monkeypatch.setenv("CEP_TEST_PASSWORD", "wrong-password")
    message = code_of(PostgresSource(reading).check)
    assert message.startswith("E0861 ")
    assert "wrong-password" not in message
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    assert code_of(PostgresSource(reading).check) == (
        f"E0861 `127.0.0.1:{shop.postgres.port}/{shop.database}` refuses access to table `public.orders`"
    )
    shop.run(f"GRANT SELECT ON orders TO {USER}", f"ALTER ROLE {USER} NOREPLICATION")
    assert code_of(PostgresSource(reading).check) == (
        f"E0861 `127.0.0.1:{shop.postgres.port}/{shop.database}` refuses access to its log: "
        "the user may not replicate"
    )
    shop.run(f"ALTER ROLE {USER} REPLICATION", f"GRANT CREATE ON DATABASE {shop.database} TO {USER}")
    PostgresSource(reading).check()
    assert code_of(lambda: PostgresPlanner(reading).start()).startswith("E0861 ")  # only an owner publishes
    shop.run(f"CREATE PUBLICATION {shop.slot} FOR TABLE orders")
    shop.insert(1)
    assert batches(reading)[0] == [[("r", 1, "n")]]
    assert PASSWORD not in repr(reading)
    assert PASSWORD.encode() not in pickle.dumps(reading)


def test_a_server_whose_log_has_no_changes_or_has_lost_them_is_told(tmp_path: Path) -> None:
    with running_postgres(wal_level="replica") as plain:
        shop = Shop(plain, plain.database())
        shop.run("CREATE TABLE orders (id int PRIMARY KEY, note text, ts timestamptz)")
        assert code_of(PostgresSource(shop.reading(tmp_path)).check) == (
            f"E0863 `127.0.0.1:{plain.port}/{shop.database}` has wal_level replica, "
            "so its log has no changes of rows"
        )
    small = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with running_postgres(max_replication_slots="1", **small) as server_:
        shop = Shop(server_, server_.database())
        shop.run("CREATE TABLE orders (id int PRIMARY KEY, note text, ts timestamptz)")
        reading = shop.reading(tmp_path)
        _, at = batches(reading)
        second = replace(reading, slot="second", log=str(tmp_path / "other.log"))
        assert code_of(PostgresSource(second).check) == (
            f"E0863 `127.0.0.1:{server_.port}/{shop.database}` has 1 replication slots, and may have 1"
        )
        for _ in range(4):
            shop.run("SELECT pg_switch_wal()", "CREATE TABLE t (v int)", "DROP TABLE t")
        shop.run("CHECKPOINT")
        lost = (
            f"E0865 slot `{shop.slot}` does not have changes any more that were not read: "
            "the server has removed them (wal_status is lost)"
        )
        assert code_of(PostgresSource(reading).check) == lost
        assert code_of(lambda: batches(reading, at)) == lost
