"""docs/operate/guarantees.md says what the code says, and cites tests that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spark_runtime.connectors.console.sink import ConsoleSink
from spark_runtime.connectors.delta.sink import DeltaSink
from spark_runtime.connectors.files.sink import FolderSink
from spark_runtime.connectors.kafka.sink import TopicSink
from spark_runtime.connectors.postgres.sink import PostgresSink
from spark_runtime.connectors.rabbitmq.sink import RabbitSink
from spark_runtime.connectors.webhook.sink import WebhookSink
from spark_runtime.sinks.registry import SINKS
from spark_runtime.sources.registry import SOURCES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operate" / "guarantees.md").read_text()
CODE: dict[str, Any] = {
    "json": FolderSink,
    "parquet": FolderSink,
    "csv": FolderSink,
    "kafka": TopicSink,
    "postgres": PostgresSink,
    "delta": DeltaSink,
    "webhook": WebhookSink,
    "rabbitmq": RabbitSink,
    "console": ConsoleSink,
}


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def test_each_sink_has_the_guarantee_that_its_code_has() -> None:
    told = {name: row[1] for row in rows("Sinks") for name in named(row[0])}
    assert told == {name: str(sink.guarantee) for name, sink in CODE.items()}
    assert told.keys() == set(SINKS.built_in)


def test_each_source_is_told_of() -> None:
    told = {name for row in rows("Sources") for name in named(row[0])}
    assert told == set(SOURCES.built_in)


def test_the_tests_that_are_cited_are_there() -> None:
    cited = re.findall(r"`(tests/[a-z_0-9/]+\.py)`", PAGE)
    assert len(cited) > 8
    assert [path for path in cited if not (ROOT / path).exists()] == []
