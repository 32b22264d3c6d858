"""The example of `docs/connectors/postgres.md` does what the page says."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.servers.postgres_server import PostgresServer
from tests.servers.test_kafka_page import blocks

PAGE = "docs/connectors/postgres.md"
SERVER = "postgresql://postgres@localhost:5432/shop"


@pytest.mark.spark
def test_the_example_gives_the_output_that_the_page_shows(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = postgres.dsn(postgres.database())
    streams, pipeline, _ = blocks(PAGE, "yaml")
    (tmp_path / "streams.yaml").write_text(streams)
    (tmp_path / "raised.cep").write_text(blocks(PAGE, "cep")[0])
    file = tmp_path / "pipeline.yaml"
    file.write_text(pipeline.replace(SERVER, here))
    making, changing, reading = (code.replace(SERVER, here) for code in blocks(PAGE, "python"))
    names: dict[str, Any] = {}
    shown = StringIO()
    exec(making, names)
    for code in (changing, reading):
        run_pipeline(file, console=Console(file=StringIO()), quiet=True)
        with redirect_stdout(shown):
            exec(code, names)
    names["database"].close()
    assert shown.getvalue() == blocks(PAGE, "text")[0]


def test_the_statements_of_the_page_can_be_run(postgres: PostgresServer) -> None:
    database = postgres.database()
    looking, making = blocks(PAGE, "sql")
    select, drop_slot, drop_publication = filter(None, map(str.strip, looking.split(";")))
    postgres.run(database, "CREATE TABLE orders (id bigint PRIMARY KEY)", making)
    postgres.run(database, "SELECT pg_create_logical_replication_slot('cep_orders', 'pgoutput')")
    assert ("cep_orders", "reserved") in [row[:2] for row in postgres.run(database, select)]
    postgres.run(database, drop_slot, drop_publication)


def test_the_settings_of_the_page_for_a_topic_are_read(tmp_path: Path) -> None:
    streams, pipeline, topic = blocks(PAGE, "yaml")
    (tmp_path / "streams.yaml").write_text(streams)
    (tmp_path / "raised.cep").write_text(blocks(PAGE, "cep")[0])
    before, _ = pipeline.split("source:")
    rest = pipeline[pipeline.index("sinks:") :]
    (tmp_path / "p.yaml").write_text(before + topic + rest)
    assert load_pipeline(tmp_path / "p.yaml").sources[0].name == "kafka"
