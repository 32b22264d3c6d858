"""The examples of the pages of sinks do what the pages say."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stdout
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import InputError, RuleError
from scenarios.servers.web import Reply, Request, WebServer, running_web_server
from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.left_out import require
from tests.servers.kafka_broker import free_ports
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import Rabbit
from tests.servers.test_kafka_page import blocks
from tests.servers.test_webhook_sink import CORRECTED, corrected, post
from tests.spark.test_sink_contract import CONTEXT
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


def run_page(folder: Path, page: str, changes: Mapping[str, str] | None = None, number: int = 0) -> None:
    text = blocks(page, "yaml")[number]
    for old, new in (changes or {}).items():
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
    page, database = "docs/connectors/postgres_sink.md", postgres.database()
    place = {"host: localhost, database: shop, user: cep": postgres.yaml(database)}
    run_page(folder, page, place)
    (code,) = blocks(page, "python")
    code = code.replace("postgresql://cep@localhost:5432/shop", postgres.dsn(database))
    assert printed(code, {}) == blocks(page, "text")[0]


def test_a_view_in_postgres(spark: SparkSession, postgres: PostgresServer, folder: Path) -> None:
    page, database = "docs/guides/joins.md", postgres.database()
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
    run_page(folder, "docs/connectors/delta.md")
    (code,) = blocks("docs/connectors/delta.md", "python")
    assert printed(code, {}) == blocks("docs/connectors/delta.md", "text")[0]


def test_rabbitmq(spark: SparkSession, rabbit: Rabbit, folder: Path) -> None:
    page = "docs/connectors/rabbitmq.md"
    making, reading = (code.replace("5672", str(rabbit.port)) for code in blocks(page, "python"))
    names: dict[str, Any] = {}
    exec(making, names)
    run_page(folder, page, {"5672": str(rabbit.port)})
    assert printed(reading, names) == blocks(page, "text")[0]


def test_webhook(spark: SparkSession, folder: Path) -> None:
    page = "docs/connectors/webhook.md"
    (port,) = free_ports(1)
    (code,) = blocks(page, "python")
    shown = StringIO()
    names: dict[str, Any] = {"print": lambda *parts: shown.write(" ".join(parts) + "\n")}
    exec(code.replace("8000", str(port)).replace("server.serve_forever()\n", ""), names)
    server = names["server"]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        run_page(folder, page, {"8000": str(port)})
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert shown.getvalue() == blocks(page, "text")[0]


@pytest.fixture
def web() -> Iterator[WebServer]:
    with running_web_server() as server:
        yield server


def test_a_body_of_ones_own(spark: SparkSession, folder: Path, web: WebServer) -> None:
    page = "docs/connectors/webhook.md"
    example, _, body, *_ = blocks(page, "yaml")
    place = '  - {format: webhook, url: "http://127.0.0.1:8000/alerts"}\n'
    assert place in example
    text = example.replace(place, f"  - format: webhook\n    url: {web.url}\n{body}")
    (folder / "pipeline.yaml").write_text(text)
    run_pipeline(folder / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
    assert [request.body for request in web.requests] == [blocks(page, "json")[0].strip()]
    (folder / "pipeline.yaml").write_text(text.replace("{{card_id}}", "{{card}}"))
    with pytest.raises(RuleError) as raised:
        load_pipeline(folder / "pipeline.yaml")
    assert (
        "help: did you mean `card_id`? "
        "columns: card_id, loss, match_end, match_id, match_start, probed, probes, rule"
    ) in str(raised.value)


def slack(request: Request) -> Reply:
    """Answer as an incoming webhook of Slack does."""
    if request.path != "/services/T0/B0/x":
        return 404, {}, "no_service"
    body = json.loads(request.body)
    if not isinstance(body, dict) or not isinstance(body.get("text"), str) or not body["text"]:
        return 400, {}, "invalid_payload"
    return 200, {}, "ok"


def pagerduty(request: Request) -> Reply:
    """Answer as version 2 of PagerDuty's Events API does."""
    body = json.loads(request.body)
    errors = []
    if body.get("routing_key") != "k" * 32:
        errors.append("routing_key is not valid")
    if body.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        errors.append("event_action is not valid")
    if body.get("event_action") != "trigger" and not body.get("dedup_key"):
        errors.append("dedup_key is missing")
    if not isinstance(body.get("dedup_key", ""), str) or len(body.get("dedup_key", "")) > 255:
        errors.append("dedup_key is not valid")
    if body.get("event_action") == "trigger":
        payload, needed = body.get("payload", {}), ("summary", "source", "severity")
        errors += [f"{name} is missing" for name in needed if not payload.get(name)]
        if payload.get("severity") not in ("critical", "error", "warning", "info"):
            errors.append("severity is not valid")
        if len(payload.get("summary", "")) > 1024 or not isinstance(payload.get("custom_details", {}), dict):
            errors.append("payload is not valid")
    if errors:
        return 400, {}, json.dumps({"status": "invalid event", "errors": errors})
    return 202, {}, json.dumps({"status": "success", "dedup_key": body["dedup_key"]})


def test_slack(spark: SparkSession, folder: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_HOOK", "T0/B0/x")
    web.answering = slack
    run_page(
        folder, "docs/connectors/webhook.md", {"https://hooks.slack.com": web.url.removesuffix("/hook")}, 3
    )
    [request] = web.requests
    assert json.loads(request.body) == {"text": "*card_testing*: card `c1` lost 949.0"}


def test_pagerduty(
    spark: SparkSession, folder: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGERDUTY_KEY", "k" * 32)
    web.answering = pagerduty
    run_page(folder, "docs/connectors/webhook.md", {"https://events.pagerduty.com/v2/enqueue": web.url}, 4)
    [triggered] = [json.loads(request.body) for request in web.requests]
    assert triggered["payload"]["summary"] == "card_testing: card c1 lost 949.0"
    assert triggered["payload"]["custom_details"]["probes"] == 3
    assert triggered["dedup_key"] == triggered["payload"]["custom_details"]["match_id"]
    assert triggered["payload"]["timestamp"] == "2024-05-01T10:04:00.000000Z"

    # A match that is withdrawn resolves its incident.
    (spec,) = load_pipeline(folder / "pipeline.yaml").sinks
    post(spec.open(CORRECTED, CONTEXT), corrected([(1, 0, "match"), (1, 1, "retract")]))  # type: ignore[arg-type]
    _, first, last = [json.loads(request.body) for request in web.requests]
    assert first["event_action"] == "trigger"
    assert last == {"routing_key": "k" * 32, "event_action": "resolve", "dedup_key": first["dedup_key"]}


def test_what_pagerduty_refuses_is_told_without_the_key(
    spark: SparkSession, folder: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGERDUTY_KEY", "s3cret")
    web.answering = lambda request: (400, {}, f"no such key: {json.loads(request.body)['routing_key']}")
    with pytest.raises(InputError) as raised:
        run_page(
            folder, "docs/connectors/webhook.md", {"https://events.pagerduty.com/v2/enqueue": web.url}, 4
        )
    assert raised.value.code == "E0875"
    assert "no such key: ***" in str(raised.value)


@pytest.mark.parametrize("page", ["postgres_sink", "delta", "webhook", "rabbitmq"])
def test_the_other_settings_of_a_page_are_read(tmp_path: Path, page: str) -> None:
    stream = "schema: {id: bigint, ts: timestamp}"
    (tmp_path / "streams.yaml").write_text(f"streams: {{s: {{event_time: ts, {stream}}}}}")
    (tmp_path / "r.cep").write_text("RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0")
    head = "rules: [r.cep]\nsource: {stream: s, format: json, path: in}\ncheckpoint: c\n"
    (tmp_path / "p.yaml").write_text(head + blocks(f"docs/connectors/{page}.md", "yaml")[1])
    assert len(load_pipeline(tmp_path / "p.yaml").sinks) == 1


# ---------------------------------------------------------------- docs/guides/current_state.md

STATE = "docs/guides/current_state.md"


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
    for old, new in (changes or {}).items():
        assert old in code
        code = code.replace(old, new)
    exec(code, names)
    return names


def test_redis_is_kept_current(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis:
        (port,) = free_ports(1)
        names = started(blocks(STATE, "python")[0], **{"6379": str(redis), "8000": str(port)})
        with closing(names["redis"]), closing(names["answers"]), serving(names["server"]):
            run_page(folder, STATE, {"8000": str(port)})
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
            run_page(folder, STATE, {"9200": str(port)}, number=1)
    ((key, document),) = names["index"].items()
    assert f"{key} {document}\n" == blocks(STATE, "text")[0]
