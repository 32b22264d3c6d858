"""The examples of the pages of sinks do what the pages say."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.left_out import require
from tests.servers.kafka_broker import free_ports
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import Rabbit
from tests.servers.test_kafka_page import blocks
from tests.unit.commands.test_tables_page import write_view

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the files of the README."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks("README.md", "json")[0])
    return tmp_path


def run_page(folder: Path, page: str, number: int = 0, **changes: str) -> None:
    text = blocks(page, "yaml")[number]
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


def test_a_view_in_postgres(spark: SparkSession, postgres: PostgresServer, folder: Path) -> None:
    page, database = "docs/joins.md", postgres.database()
    write_view(folder)
    text = blocks(page, "yaml pipeline")[0]
    place = "host: localhost, database: shop, user: cep"
    assert place in text
    (folder / "pipeline.yaml").write_text(text.replace(place, postgres.yaml(database)))
    run_pipeline(folder / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
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


# ---------------------------------------------------------------- docs/current_state.md

STATE = "docs/current_state.md"


@contextmanager
def serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running_redis(folder: Path) -> Iterator[int]:
    """Start a Redis whose data are in `folder`, and end it; yield its port."""
    program = shutil.which("redis-server")
    require(program is not None, "Redis")
    assert program is not None
    (port,) = free_ports(1)
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    settings += ["--dir", str(folder), "--daemonize", "no", "--logfile", str(folder / "redis.log")]
    process = subprocess.Popen([program, *settings], stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def started(code: str, **changes: str) -> dict[str, Any]:
    """Run the code of a server up to where it serves; return its names."""
    names: dict[str, Any] = {}
    code = code.replace("server.serve_forever()\n", "")
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    exec(code, names)
    return names


def test_redis_is_kept_current(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis:
        (port,) = free_ports(1)
        names = started(blocks(STATE, "python")[0], **{"6379": str(redis), "8000": str(port)})
        with closing(names["redis"]), closing(names["answers"]), serving(names["server"]):
            run_page(folder, STATE, **{"8000": str(port)})
            ask, answers = names["ask"], names["answers"]
            assert ask("KEYS", "alert:*") == b"*1\r\n"
            answers.readline()
            key = answers.readline().decode().strip()
            assert f"\n{key}\n" in blocks(STATE, "console")[0]
            # A row that withdraws the match removes it.
            row = json.dumps([{"match_id": key.removeprefix("alert:"), "kind": "retract"}])
            asked = HTTPConnection("127.0.0.1", port)
            asked.request("POST", "/", row)
            assert asked.getresponse().status == 204
            asked.close()
            assert ask("KEYS", "alert:*") == b"*0\r\n"


def test_an_index_is_kept_current_by_bulk_requests(spark: SparkSession, folder: Path) -> None:
    (port,) = free_ports(1)
    names = started(blocks(STATE, "python")[1], **{"9200": str(port)})
    with serving(names["server"]):
        for _ in range(2):  # the second run begins anew, and changes nothing
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            run_page(folder, STATE, number=1, **{"9200": str(port)})
    ((key, document),) = names["index"].items()
    assert f"{key} {document}\n" == blocks(STATE, "text")[0]
