"""The examples of the pages of logs do what the pages say."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.servers.kinesis_server import KinesisServer
from tests.servers.nats_server import NatsServer
from tests.servers.rabbitmq_server import Rabbit

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def require_shown(page: str, folder: Path, at: Callable[[str], str]) -> None:
    """Run the example of a page; `at` puts the addresses of the server that runs in the place of its own."""
    (folder / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (folder / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (folder / "events.jsonl").write_text(blocks("README.md", "json")[0])
    sending, reading = (at(code) for code in blocks(page, "python"))
    file = folder / "pipeline.yaml"
    file.write_text(at(blocks(page, "yaml")[0]))
    names: dict[str, Any] = {}
    exec(sending, names)
    run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    shown = StringIO()
    with redirect_stdout(shown):
        exec(reading, names)
    assert shown.getvalue() == blocks(page, "text")[0]


def test_the_example_of_nats_gives_the_output_that_the_page_shows(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page, address = "docs/connectors/nats.md", nats_server.address
    require_shown(page, tmp_path, lambda text: text.replace("localhost:4222", address))


def test_the_example_of_kinesis_gives_the_output_that_the_page_shows(
    spark: SparkSession, kinesis_server: KinesisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = kinesis_server.address
    page = "docs/connectors/kinesis.md"
    require_shown(page, tmp_path, lambda text: text.replace("http://localhost:5000", address))


def test_the_example_of_rabbitmq_gives_the_output_that_the_page_shows(
    spark: SparkSession, rabbit: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def at(text: str) -> str:
        sent = text.replace('"localhost", 5552', f'"127.0.0.1", {rabbit.stream_port}')
        return sent.replace("localhost:5552", f"127.0.0.1:{rabbit.stream_port}")

    require_shown("docs/connectors/rabbitmq_streams.md", tmp_path, at)


def test_the_settings_of_the_common_page_are_read(tmp_path: Path) -> None:
    (columns,) = blocks("docs/connectors/message_sources.md", "yaml")
    stream = "schema: {id: bigint, ts: timestamp, received_at: timestamp, trace_id: string}"
    (tmp_path / "streams.yaml").write_text(f"streams: {{s: {{event_time: ts, {stream}}}}}")
    (tmp_path / "r.cep").write_text("RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0")
    source = f'source:\n  stream: s\n  format: nats\n  servers: "a:1"\n  stream_name: S\n  {columns}'
    sinks = "sinks: [{format: console}]\nmode: batch\n"
    (tmp_path / "p.yaml").write_text(f"rules: [r.cep]\n{source}{sinks}")
    load_pipeline(tmp_path / "p.yaml")
