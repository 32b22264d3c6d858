"""Publications and tables that change under a stream: nothing is passed over without a word."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cep.counts import Counts
from spark_runtime.connectors.postgres import publication
from spark_runtime.connectors.postgres.planner import PostgresPlanner
from spark_runtime.connectors.postgres.reading import PostgresReading
from spark_runtime.connectors.postgres.source import PostgresSource
from tests.servers.postgres_shop import Seen, Shop, batches, code_of
from tests.servers.postgres_shop import looks_at_once as looks_at_once
from tests.servers.postgres_shop import shop as shop

LATER = "; changes that were committed meanwhile may not be in the log, and nobody can tell"

CHANGES: dict[str, tuple[Sequence[str], str]] = {
    "dropped": (["DROP PUBLICATION {p}"], "there is no {P} any more"),
    "dropped and made again": (
        ["DROP PUBLICATION {p}", "{insert}", "CREATE PUBLICATION {p} FOR TABLE orders"],
        "{P} was dropped and created again",
    ),
    "renamed": (["ALTER PUBLICATION {p} RENAME TO other"], "there is no {P} any more"),
    "renamed and back": (
        ["ALTER PUBLICATION {p} RENAME TO other", "{insert}", "ALTER PUBLICATION other RENAME TO {p}"],
        "{P} was changed, and perhaps changed back (or it got another owner)",
    ),
    "fewer actions": (
        ["ALTER PUBLICATION {p} SET (publish = 'update')"],
        "`publish` of {P} is `update`, and was `insert, update, delete, truncate`",
    ),
    "fewer actions for a while": (
        [
            "ALTER PUBLICATION {p} SET (publish = 'update')",
            "{insert}",
            "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')",
        ],
        "{P} was changed, and perhaps changed back (or it got another owner)",
    ),
    "no root": (
        ["ALTER PUBLICATION {p} SET (publish_via_partition_root = false)"],
        "`publish_via_partition_root` of {P} is `False`, and was `True`",
    ),
    "fewer rows": (
        ["ALTER PUBLICATION {p} SET TABLE orders WHERE (id < 0)"],
        "{P} sends of table `public.orders` the rows `(id < 0)`, and sent all",
    ),
    "fewer rows for a while": (
        [
            "ALTER PUBLICATION {p} SET TABLE orders WHERE (id < 0)",
            "{insert}",
            "ALTER PUBLICATION {p} SET TABLE orders",
        ],
        "table `public.orders` was taken out of {P} and put in again, or its entry there was changed",
    ),
    "fewer columns": (
        ["ALTER PUBLICATION {p} SET TABLE orders (id, ts)"],
        "{P} sends of table `public.orders` the columns `id, ts`, and sent `id, note, ts`",
    ),
    "table taken out": (
        ["ALTER PUBLICATION {p} DROP TABLE orders"],
        "{P} does not have table `public.orders` any more",
    ),
    "table taken out and put back": (
        ["ALTER PUBLICATION {p} DROP TABLE orders", "{insert}", "ALTER PUBLICATION {p} ADD TABLE orders"],
        "table `public.orders` was taken out of {P} and put in again, or its entry there was changed",
    ),
    "table dropped": (["DROP TABLE orders"], "there is no table `public.orders` any more"),
    "table dropped and made again": (
        ["DROP TABLE orders", "{create}", "{insert}", "ALTER PUBLICATION {p} ADD TABLE orders"],
        "table `public.orders` is another one than it was: it was dropped and created again, or renamed",
    ),
    "another table in its place": (
        ["ALTER TABLE orders RENAME TO old", "{create}", "ALTER PUBLICATION {p} ADD TABLE orders"],
        "table `public.orders` is another one than it was: it was dropped and created again, or renamed",
    ),
    "table renamed": (
        ["ALTER TABLE orders RENAME TO old"],
        "there is no table `public.orders` any more",
    ),
}
"""What is done, and what the run says of it."""

CREATE = "CREATE TABLE orders (id int PRIMARY KEY, note text, ts timestamptz NOT NULL)"
INSERT = "INSERT INTO orders VALUES (50, 'missed', '2024-05-01')"


def change(shop: Shop, statements: Sequence[str]) -> None:
    shop.run(*(text.format(p=shop.slot, insert=INSERT, create=CREATE) for text in statements))


def refused(shop: Shop, what: str) -> str:
    return "E0868 " + what.format(P=f"publication `{shop.slot}`") + LATER


def insert_some(shop: Shop) -> None:
    """Insert rows, if there is a table."""
    if shop.run("SELECT to_regclass('orders')") != [(None,)]:
        shop.insert(1, 2)


@pytest.mark.parametrize("name", CHANGES)
def test_a_publication_that_has_changed_between_two_runs_is_refused_and_the_slot_stays(
    name: str, shop: Shop, tmp_path: Path
) -> None:
    statements, what = CHANGES[name]
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    change(shop, statements)
    insert_some(shop)
    confirmed = shop.confirmed()
    assert code_of(PostgresSource(reading).check) == refused(shop, what)
    assert code_of(lambda: batches(reading, at)) == refused(shop, what)
    assert shop.confirmed() == confirmed


@pytest.mark.parametrize(
    "name",
    [
        "dropped",
        "fewer actions for a while",
        "table taken out and put back",
        "table dropped and made again",
        "table renamed",
    ],
)
def test_a_publication_that_changes_while_a_stream_runs_is_refused_before_anything_behind_it_is_planned(
    name: str, shop: Shop, tmp_path: Path
) -> None:
    statements, what = CHANGES[name]
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    run = PostgresPlanner(reading)
    run.commit(at)
    shop.insert(10)
    end = run.latest(at)
    assert Seen(reading).read(run.ranges(at, end)).changes == [("c", 10, "n")]
    run.commit(end)  # the slot does not forget it yet
    change(shop, statements)
    insert_some(shop)
    confirmed = shop.confirmed()
    assert code_of(lambda: run.latest(end)) == refused(shop, what)
    assert shop.confirmed() == confirmed
    run.close(Counts())


def test_what_does_not_matter_to_the_tables_is_no_change(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.run(
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"ALTER PUBLICATION {shop.slot} ADD TABLE other",
        "ALTER TABLE orders ADD COLUMN more int",
        "ALTER TABLE orders RENAME note TO n",
        "ALTER TABLE orders RENAME n TO note",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE INDEX ON orders (ts)",
        "GRANT SELECT ON orders TO reader",
        "TRUNCATE orders",
        "VACUUM FULL orders",
        "ANALYZE orders",
        "VACUUM (FREEZE) pg_publication",
        "VACUUM (FREEZE) pg_publication_rel",
        "VACUUM FULL pg_publication",
        "VACUUM FULL pg_publication_rel",
        f"ALTER PUBLICATION {shop.slot} DROP TABLE other",
    )
    with psycopg.connect(shop.postgres.dsn(shop.database)) as connection:
        connection.execute(f"ALTER PUBLICATION {shop.slot} DROP TABLE orders")
        connection.rollback()
    shop.insert(1)
    PostgresSource(reading).check()
    found, _ = batches(reading, at)
    assert found[0][-1] == ("c", 1, "n")


def test_a_change_that_is_not_committed_is_waited_for(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1)
    with psycopg.connect(shop.postgres.dsn(shop.database)) as other:
        other.execute("SAVEPOINT s")  # a part of a transaction has a number of its own
        other.execute(f"ALTER PUBLICATION {shop.slot} SET (publish = 'update')")
        monkeypatch.setattr(publication, "WAIT_SECONDS", 0.3)
        assert code_of(lambda: batches(reading, at)) == (
            f"E0868 a transaction that is open changes publication `{shop.slot}`"
        )
        monkeypatch.setattr(publication, "WAIT_SECONDS", 20.0)
        ending = threading.Timer(0.3, other.rollback)
        ending.start()
        assert batches(reading, at)[0] == [[("c", 1, "n")]]
        ending.join()


@pytest.mark.parametrize("how", ["renamed and back", "renamed"])
def test_a_table_that_had_another_name_when_it_was_changed_is_refused(
    how: str, shop: Shop, tmp_path: Path
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.insert(1)
    shop.run("ALTER TABLE orders RENAME TO old", INSERT.replace("orders", "old"))
    shop.run("ALTER TABLE old RENAME TO orders")
    shop.insert(2)
    run = PostgresPlanner(reading)
    end = run.latest(at)
    if how == "renamed":  # when it is planned, and not read
        shop.run("ALTER TABLE orders RENAME TO old")
        what = "there is no table `public.orders` any more"
    else:
        what = "table `public.orders` had the name `public.old` when it was changed"
    assert code_of(lambda: Seen(reading).read(run.ranges(at, end))) == refused(shop, what)


def test_a_truncation_under_another_name_is_refused(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    shop.run("ALTER TABLE orders RENAME TO old", "TRUNCATE old", "ALTER TABLE old RENAME TO orders")
    run = PostgresPlanner(reading)
    parts = run.ranges(at, run.latest(at))
    assert code_of(lambda: Seen(reading).read(parts)).startswith(
        "E0868 table `public.orders` had the name `public.old` "
    )


def test_tables_of_a_schema_and_all_tables_are_told_by_their_identity(shop: Shop, tmp_path: Path) -> None:
    readings: dict[str, tuple[PostgresReading, Any]] = {}
    for name, what in (("a", "TABLES IN SCHEMA public"), ("b", "ALL TABLES")):
        shop.run(f"CREATE PUBLICATION {name} FOR {what}")
        reading = shop.reading(
            tmp_path / name, publication=name, slot=f"{shop.slot}_{name}", log=str(tmp_path / name / "s.log")
        )
        readings[name] = reading, batches(reading)[1]
    shop.insert(1)
    for name, (reading, at) in readings.items():
        found, at = batches(reading, at)
        assert found == [[("c", 1, "n")]]
        readings[name] = reading, at
    (first, first_at), (second, second_at) = readings.values()
    shop.run("ALTER PUBLICATION a DROP TABLES IN SCHEMA public")
    said = "E0868 publication `a` does not have table `public.orders` any more" + LATER
    assert code_of(lambda: batches(first, first_at)) == said
    shop.run("ALTER TABLE orders SET UNLOGGED")
    said = "E0868 table `public.orders` is UNLOGGED, so the log does not have its changes" + LATER
    assert code_of(lambda: batches(second, second_at)) == said
    shop.run("DROP TABLE orders", CREATE)
    said = (
        "E0868 table `public.orders` is another one than it was: it was dropped and created again, or renamed"
    )
    assert code_of(lambda: batches(second, second_at)) == said + LATER


def test_a_partition_that_its_parent_publishes_is_told_when_that_changes(shop: Shop, tmp_path: Path) -> None:
    shop.run(
        "CREATE TABLE parts (id int, note text, ts timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
        f"CREATE PUBLICATION {shop.slot} FOR TABLE parts",
    )
    reading = shop.reading(tmp_path, tables=("public.parts_1",))
    PostgresSource(reading).check()
    _, at = batches(reading)
    insert = "INSERT INTO parts VALUES ({0}, 'p', '2024-05-01')"
    shop.run(insert.format(1))
    found, at = batches(reading, at)
    assert found == [[("c", 1, "p")]]
    shop.run(
        "ALTER TABLE parts DETACH PARTITION parts_1",
        "INSERT INTO parts_1 VALUES (2, 'p', '2024-05-01')",
        "ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES FROM (0) TO (1000)",
        insert.format(3),
    )
    assert code_of(lambda: batches(reading, at)) == (
        f"E0868 table `public.parts_1` was taken out of publication `{shop.slot}` and put in again, "
        f"or its entry there was changed{LATER}"
    )


# ---------------------------------------------------------------- checkpoints


def test_the_checkpoint_of_an_earlier_version_takes_the_publication_over(shop: Shop, tmp_path: Path) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    log = Path(reading.log)
    known = json.loads(log.read_text())
    published = known.pop("published")
    log.write_text(json.dumps(known))
    PostgresSource(reading).check()
    shop.insert(1)
    found, at = batches(reading, at)
    assert found == [[("c", 1, "n")]]
    assert json.loads(log.read_text()) == {**known, "published": published}
    shop.run(f"ALTER PUBLICATION {shop.slot} SET (publish = 'update')")
    assert code_of(lambda: batches(reading, at)).startswith("E0868 `publish` of ")


@pytest.mark.parametrize("statement", ["DROP PUBLICATION {}", "ALTER PUBLICATION {} DROP TABLE orders"])
def test_an_earlier_checkpoint_without_its_publication_is_refused_and_none_is_made(
    statement: str, shop: Shop, tmp_path: Path
) -> None:
    reading = shop.reading(tmp_path)
    _, at = batches(reading)
    log = Path(reading.log)
    log.write_text(json.dumps({**json.loads(log.read_text()), "published": None}))
    shop.run(statement.format(shop.slot))
    assert code_of(PostgresSource(reading).check).startswith("E0868 ")
    assert code_of(lambda: batches(reading, at)).startswith("E0868 ")
    if statement.startswith("DROP"):
        assert shop.run("SELECT FROM pg_publication") == []


def test_without_a_file_of_its_own_the_offset_says_what_the_publication_was(
    shop: Shop, tmp_path: Path
) -> None:
    shop.run(f"CREATE PUBLICATION {shop.slot} FOR TABLE orders")
    shop.run(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    reading = shop.reading(tmp_path, log="", begin="now", creates=False)
    _, at = batches(reading)
    shop.insert(1)
    earlier = {name: value for name, value in at.items() if name != "published"}
    found, at = batches(reading, earlier)  # of an earlier version
    assert found == [[("c", 1, "n")]]
    assert at["published"]["tables"].keys() == {"public.orders"}
    shop.run(f"ALTER PUBLICATION {shop.slot} SET (publish = 'update')")
    shop.insert(2)
    shop.run(f"ALTER PUBLICATION {shop.slot} SET (publish = 'insert, update, delete, truncate')")
    assert code_of(lambda: batches(reading, at)).startswith("E0868 ")


def test_a_publication_that_changes_while_the_first_copy_is_made_is_refused(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Callable[..., Any] = publication.record

    def then_changed(reading: PostgresReading, connection: Any) -> Any:
        found = made(reading, connection)
        shop.run(f"ALTER PUBLICATION {shop.slot} SET TABLE orders WHERE (id < 0)")
        shop.insert(1)
        shop.run(f"ALTER PUBLICATION {shop.slot} SET TABLE orders")
        return found

    reading = shop.reading(tmp_path)
    monkeypatch.setattr(publication, "record", then_changed)
    run = PostgresPlanner(reading)
    start = run.start()
    at = run.latest(start)  # the copy
    shop.insert(2)
    assert code_of(lambda: run.latest(at)).startswith("E0868 table `public.orders` was taken out of ")
    run.close(Counts())
    assert code_of(PostgresSource(replace(reading)).check).startswith("E0868 ")
