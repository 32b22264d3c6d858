"""The example of `docs/connectors/kafka.md` does what the page says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.connectors.kafka.by_spark import JARS
from spark_runtime.connectors.kafka.source_settings import KafkaOfSparkSpec
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.servers.kafka_broker import Broker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_example_gives_the_output_that_the_page_shows(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks("README.md", "json")[0])
    sending, reading = (
        code.replace("localhost:9092", broker.address)
        for code in blocks("docs/connectors/kafka.md", "python")
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(blocks("docs/connectors/kafka.md", "yaml")[0].replace("localhost:9092", broker.address))
    names: dict[str, Any] = {}
    exec(sending, names)
    run_pipeline(file, console=Console(file=StringIO()), quiet=True)
    shown = StringIO()
    with redirect_stdout(shown):
        exec(reading, names)
    names.clear()  # its clients end before the broker does
    assert shown.getvalue() == blocks("docs/connectors/kafka.md", "text")[0]


def test_the_other_settings_of_the_page_are_read(tmp_path: Path) -> None:
    example, columns, sinks, options, tls, via_spark = blocks("docs/connectors/kafka.md", "yaml")
    stream = "schema: {id: bigint, ts: timestamp, card_id: string, received_at: timestamp, trace_id: string}"
    (tmp_path / "streams.yaml").write_text(f"streams: {{transactions: {{event_time: ts, {stream}}}}}")
    (tmp_path / "r.cep").write_text("RULE r FROM transactions PARTITION BY id PATTERN a DEFINE a AS id > 0")
    indented = "".join(f"  {line}\n" for line in (columns + options).splitlines())
    source = f'source:\n  stream: transactions\n  format: kafka\n  brokers: "b:1"\n  topic: t\n{indented}'
    (tmp_path / "p.yaml").write_text(f"rules: [r.cep]\n{source}{sinks}checkpoint: c\n")
    pipeline = load_pipeline(tmp_path / "p.yaml")
    assert pipeline.late is not None
    assert pipeline.dead_letter is not None
    assert isinstance(yaml.safe_load(tls)["options"], dict)
    written = re.search(r"^source: .*$", example, re.MULTILINE)
    assert written is not None
    (tmp_path / "p.yaml").write_text(
        example.replace(written[0], via_spark).replace("card_testing.cep", "r.cep")
    )
    pipeline = load_pipeline(tmp_path / "p.yaml")
    spec = pipeline.sources[0].spec
    assert isinstance(spec, KafkaOfSparkSpec)
    assert spec.place == "transactions via spark"
    jars = dict(pipeline.spark)["spark.jars"].split(",")
    assert [f"{jar.split(':')[1]}-{jar.split(':')[2]}.jar" for jar in JARS] == jars
    assert [jar for jar in JARS if f"`{jar}`" not in (ROOT / "docs/connectors/kafka.md").read_text()] == []
