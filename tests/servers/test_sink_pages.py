"""The examples of the pages of sinks do what the pages say."""

from __future__ import annotations

import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.servers.kafka_broker import free_ports
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import Rabbit
from tests.servers.test_kafka_page import blocks

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the files of the README."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks("README.md", "json")[0])
    return tmp_path


def run_page(folder: Path, page: str, **changes: str) -> None:
    text = blocks(page, "yaml")[0]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "pipeline.yaml").write_text(text)
    run_pipeline(folder / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)


def printed(code: str, names: dict[str, Any]) -> str:
    shown = StringIO()
    with redirect_stdout(shown):
        exec(code, names)
    return shown.getvalue()


def test_postgres(spark: SparkSession, postgres: PostgresServer, folder: Path) -> None:
    page, database = "docs/postgres_sink.md", postgres.database()
    place = {"host: localhost, database: shop, user: cep": postgres.yaml(database)}
    run_page(folder, page, **place)
    (code,) = blocks(page, "python")
    code = code.replace("postgresql://cep@localhost:5432/shop", postgres.dsn(database))
    assert printed(code, {}) == blocks(page, "text")[0]


def test_delta(spark: SparkSession, folder: Path) -> None:
    run_page(folder, "docs/delta.md")
    (code,) = blocks("docs/delta.md", "python")
    assert printed(code, {}) == blocks("docs/delta.md", "text")[0]


def test_rabbitmq(spark: SparkSession, rabbit: Rabbit, folder: Path) -> None:
    page = "docs/rabbitmq.md"
    making, reading = (code.replace("5672", str(rabbit.port)) for code in blocks(page, "python"))
    names: dict[str, Any] = {}
    exec(making, names)
    run_page(folder, page, **{"5672": str(rabbit.port)})
    assert printed(reading, names) == blocks(page, "text")[0]


def test_webhook(spark: SparkSession, folder: Path) -> None:
    page = "docs/webhook.md"
    (port,) = free_ports(1)
    (code,) = blocks(page, "python")
    shown = StringIO()
    names: dict[str, Any] = {"print": lambda *parts: shown.write(" ".join(parts) + "\n")}
    exec(code.replace("8000", str(port)).replace("server.serve_forever()\n", ""), names)
    server = names["server"]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        run_page(folder, page, **{"8000": str(port)})
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert shown.getvalue() == blocks(page, "text")[0]


@pytest.mark.parametrize("page", ["postgres_sink", "delta", "webhook", "rabbitmq"])
def test_the_other_settings_of_a_page_are_read(tmp_path: Path, page: str) -> None:
    stream = "schema: {id: bigint, ts: timestamp}"
    (tmp_path / "streams.yaml").write_text(f"streams: {{s: {{event_time: ts, {stream}}}}}")
    (tmp_path / "r.cep").write_text("RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0")
    head = "rules: [r.cep]\nsource: {stream: s, format: json, path: in}\ncheckpoint: c\n"
    (tmp_path / "p.yaml").write_text(head + blocks(f"docs/{page}.md", "yaml")[1])
    assert len(load_pipeline(tmp_path / "p.yaml").sinks) == 1
