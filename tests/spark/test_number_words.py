"""What a pipeline writes is the stream and the table of the next one, NaN and infinities included."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests import odd_numbers


def run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_a_chain_of_pipelines_loses_no_row(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    streams = odd_numbers.STREAMS.replace(
        "xs: array<double>", "xs: string" if kind == "csv" else "xs: array<double>"
    )
    (tmp_path / "streams.yaml").write_text(streams)
    (tmp_path / "first.cep").write_text(odd_numbers.FIRST)
    (tmp_path / "second.cep").write_text(odd_numbers.SECOND)
    (tmp_path / "events.json").write_text(odd_numbers.lines())
    (tmp_path / "first.yaml").write_text(
        "rules: [first.cep]\nsource: {stream: first, format: json, path: events.json}\n"
        f"sinks: [{{format: {kind}, path: matches}}]\nmode: batch\n"
    )
    (tmp_path / "second.yaml").write_text(
        f"rules: [second.cep]\nsources:\n  - {{stream: second, format: {kind}, path: 'matches/*/part-*'}}\n"
        f"  - {{table: known, format: {kind}, path: 'matches/*/part-*'}}\n"
        "sinks: [{format: json, path: out}]\ndead_letter: {format: json, path: dead}\n"
        "checkpoint: checkpoint\nat_end: finish\n"
    )
    run(tmp_path / "first.yaml")
    summary = run(tmp_path / "second.yaml")
    assert (summary.counts.events, summary.counts.malformed) == (len(odd_numbers.NUMBERS), 0)
    lines = [line for file in (tmp_path / "out").rglob("part-*") for line in file.read_text().splitlines()]
    assert odd_numbers.found(map(json.loads, lines)) == odd_numbers.expected()
