"""Pipelines that read changes of tables."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import CepError
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.kills.feeds import TableFeed
from tests.kills.pipelines import KilledPipeline
from tests.kills.points import OF_SOURCES
from tests.kills.runs import Kill
from tests.kills.ticks import Tick
from tests.kills.written import sink_of
from tests.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.spark


def pipeline_of(postgres: PostgresServer, folder: Path, source: str = "") -> tuple[KilledPipeline, str]:
    """Return a pipeline over a table that grows, and its database."""
    database = postgres.database()
    log = folder / "checkpoint" / "files" / "ticks.log"
    feed = TableFeed(postgres, database, log, source)
    return KilledPipeline(folder, feed, {"json": sink_of("json", {}, folder)}), database


def insert(postgres: PostgresServer, database: str, ticks: KilledPipeline, n: int) -> None:
    """Put rows into the table, the last one first."""
    ticks.ticks += [Tick(number) for number in range(n)]
    values = ", ".join(f"({tick.number}, '{tick.key}', '{tick.time}')" for tick in reversed(ticks.ticks))
    postgres.run(database, f"INSERT INTO ticks VALUES {values}")


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def test_a_stream_reads_the_copy_and_then_changes_and_gives_the_matches_of_a_local_run(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    ticks, database = pipeline_of(postgres, tmp_path, ", max_events_per_trigger: 20")
    insert(postgres, database, ticks, 100)
    copied = quiet_run(ticks.file)
    assert (copied.counts.events, copied.counts.late, copied.counts.malformed) == (100, 0, 0)
    assert copied.n_batches >= 5
    ticks.send(60)
    postgres.run(database, "DELETE FROM ticks WHERE id = 1")
    ticks.finish()
    more = quiet_run(ticks.file)
    assert (more.counts.events, more.counts.late) == (60, 0)
    assert more.counts.reasons == {"event time `ts` is NULL": 1}
    assert sorted(ticks.rows()["json"]) == sorted(ticks.expected())
    assert not list((tmp_path / "checkpoint" / "files").glob("*.copy"))
    [told] = more.sources
    assert told.startswith(f"ticks: slot cep_{database} ")
    [(behind,)] = postgres.run(
        database,
        "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots "
        f"WHERE slot_name = 'cep_{database}'",
    )
    assert behind < 100_000


def test_a_batch_reads_the_rows_that_are_there_and_needs_no_slot(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    ticks, database = pipeline_of(postgres, tmp_path)
    insert(postgres, database, ticks, 50)
    text = ticks.file.read_text().replace("checkpoint: checkpoint", "mode: batch")
    ticks.file.write_text(text.replace(f", slot: cep_{database}", ""))
    assert quiet_run(ticks.file).counts.events == 50
    assert sorted(ticks.rows()["json"]) == sorted(ticks.expected())
    ticks.file.write_text(text.replace("mode: batch", "checkpoint: c").replace(f", slot: cep_{database}", ""))
    with pytest.raises(CepError) as caught:
        quiet_run(ticks.file)
    assert caught.value.code == "E0843"
    assert (
        postgres.run(database, "SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
    )


@pytest.mark.deep
def test_a_run_that_is_killed_loses_no_change_and_writes_no_match_twice(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    ticks, _ = pipeline_of(postgres, tmp_path, ", max_events_per_trigger: 12")
    ticks.send(24)
    of_source = OF_SOURCES["postgres"]
    for point, nth in (("before the slot is noted", 1), ("after the commit of the source", 2)):
        assert ticks.run(Kill(of_source[point], nth)), point
        ticks.send(24)
    ticks.finish()
    quiet_run(ticks.file)
    assert sorted(ticks.rows()["json"]) == sorted(ticks.expected())
    assert len(ticks.ticks) == 72


def test_two_streams_of_one_database_have_a_slot_each_and_dead_letters_name_table_and_position(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres.database()
    postgres.run(
        database,
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, at text)",
        "CREATE TABLE payments (id bigint PRIMARY KEY, customer text, at timestamptz)",
        "INSERT INTO orders VALUES (1, 'c1', '2024-05-01T10:00:00Z'), (2, 'c1', 'no time')",
        "INSERT INTO payments VALUES (7, 'c1', '2024-05-01T10:01:00Z')",
    )
    (tmp_path / "rules.cep").write_text(
        "RULE paid FROM orders, payments PARTITION BY customer PATTERN o -> p WITHIN 1 HOUR\n"
        "DEFINE o ON orders, p ON payments MEASURES o.id AS ordered, p.id AS paid\n"
    )
    schema = "{id: bigint, customer: string, at: timestamp, op: string}"
    (tmp_path / "streams.yaml").write_text(
        f"streams:\n  orders: {{event_time: at, schema: {schema}}}\n"
        f"  payments: {{event_time: at, schema: {schema}}}\n"
    )
    source = "- {{stream: {0}, format: postgres, {1}, tables: {0}, slot: {2}_{0}, columns: {{op: op}}}}\n"
    sources = "".join(
        source.format(name, postgres.yaml(database), database) for name in ("orders", "payments")
    )
    (tmp_path / "p.yaml").write_text(
        f"rules: [rules.cep]\nsources:\n{sources}sinks: [{{format: json, path: out}}]\n"
        "dead_letter: {format: json, path: dead}\ncheckpoint: c\nat_end: finish\n"
    )
    summary = quiet_run(tmp_path / "p.yaml")
    assert sum(summary.counts.matches.values()) == 1
    [dead] = [line for file in (tmp_path / "dead").rglob("part-*") for line in file.read_text().splitlines()]
    assert json.loads(dead) == {
        "reason": "field `at` is not of type timestamp: no time",
        "source": "public.orders (copy)",
        "position": 2,
        "raw": '{"id":"2","customer":"c1","at":"no time","op":"r"}',
    }
    assert len(summary.sources) == 2
