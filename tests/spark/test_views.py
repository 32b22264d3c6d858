"""Views: a batch and a stream report the changes of a local run, with the same ids."""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.local.match_file import match_file
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.settings.schema_file import load_streams
from spark_runtime import detect, run_pipeline
from tests.spark.events import comparable, spark_rows
from tests.spark.test_tables import in_json, read

STREAMS = """
tables:
  accounts:
    key: [account]
    event_time: at
    tie_break: [n]
    op: op
    lateness: 10 seconds
    schema: {n: bigint, account: string, at: timestamp, op: string, customer: string, balance: double}
  limits:
    key: [account]
    event_time: at
    tie_break: [n]
    op: op
    lateness: 10 seconds
    schema: {n: bigint, account: string, at: timestamp, op: string, cap: bigint}
  customers:
    key: [customer]
    replicated: true
    event_time: at
    tie_break: [n]
    op: op
    lateness: 10 seconds
    schema: {n: bigint, customer: string, at: timestamp, op: string, name: string}
"""
RULES = """
VIEW owned
KEY account
FROM accounts
JOIN customers ON customer
LEFT JOIN limits ON account
WHERE accounts.balance > 0
SELECT accounts.account, customers.name, accounts.balance, limits.cap AS cap

VIEW limited
KEY account
FROM limits
FULL JOIN accounts ON account
SELECT cap, accounts.balance > limits.cap AS is_over
"""
PIPELINE = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {table: accounts, format: json, path: accounts, max_files_per_trigger: 1}
  - {table: limits, format: json, path: limits, max_files_per_trigger: 1}
  - {table: customers, format: json, path: customers, max_files_per_trigger: 1}
sinks: [{format: parquet, path: out/rows}]
checkpoint: out/checkpoint
at_end: finish
"""
START = datetime(2024, 5, 1, tzinfo=UTC)
NAMES = ("accounts", "limits", "customers")
VIEWS = ("owned", "limited")

WITH_PAYMENTS = f"""streams:
  payments:
    event_time: at
    tie_break: [n]
    lateness: 10 seconds
    schema: {{n: bigint, account: string, at: timestamp}}
{STREAMS.lstrip()}"""
BESIDE = f"""{RULES}
RULE paid FROM payments PARTITION BY account PATTERN a DEFINE a AS n % 3 = 0 MEASURES a.n AS n

RULE joined FROM payments PARTITION BY account JOIN accounts ON account
PATTERN a DEFINE a AS accounts.balance > 0 MEASURES a.accounts.balance AS paid_of

RULE changed FROM MATCHES OF owned PARTITION BY account
PATTERN a DEFINE a AS balance > 6 MEASURES a.balance AS now

RULE unseen STATUS shadow FROM payments PARTITION BY account PATTERN a DEFINE a AS n % 5 = 0
"""
"""Rules that run together with views: their rows have a revision and a kind, too."""
OF_PAYMENTS = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {stream: payments, format: json, path: payments}
  - {table: accounts, format: json, path: accounts}
  - {table: limits, format: json, path: limits}
  - {table: customers, format: json, path: customers}
sinks:
  - {format: parquet, path: out/rows}
  - {format: json, path: out/lines}
  - {format: csv, path: out/table}
shadow: {format: parquet, path: out/shadow}
checkpoint: out/checkpoint
at_end: finish
"""

Rows = dict[str, list[dict[str, Any]]]


def drawn(seed: int, n: int) -> Rows:
    """Return versions in order of arrival: out of order by less than the lateness."""
    rng = random.Random(seed)

    def version(number: int, keys: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
        op = rng.choice(["c", "u", "u", "u", "d"])
        at = START + timedelta(seconds=rng.randrange(n))
        return {"n": number, **keys, "at": at, "op": op, **(dict.fromkeys(values) if op == "d" else values)}

    def account() -> dict[str, str]:
        return {"account": f"a{rng.randrange(12)}"}

    def customer() -> str:
        return f"c{rng.randrange(5)}"

    rows = {
        "accounts": [
            version(k, account(), {"customer": customer(), "balance": rng.choice([-1.0, 5.0, 9.0])})
            for k in range(n)
        ],
        "limits": [version(k, account(), {"cap": rng.choice([3, 7, None])}) for k in range(n)],
        "customers": [
            version(k, {"customer": customer()}, {"name": rng.choice(["Ann", "Bob", None])})
            for k in range(n // 3)
        ],
    }
    return {
        name: sorted(found, key=lambda row: row["at"] + timedelta(seconds=rng.uniform(0, 9)))
        for name, found in rows.items()
    }


def written(folder: Path, rows: Rows, n_files: int) -> dict[str, Path]:
    """Write each table as files in order of arrival; return where they are."""
    for name, found in rows.items():
        (folder / name).mkdir(parents=True)
        size = -(-len(found) // n_files)
        for number in range(n_files):
            file = folder / name / f"part-{number:03}.json"
            file.write_text(
                "".join(in_json(row) + "\n" for row in found[number * size : (number + 1) * size])
            )
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return {name: folder / name for name in rows}


def compiled(folder: Path, streams: str = STREAMS, rules: str = RULES) -> tuple[RuleSet, dict[str, Stream]]:
    (folder / "streams.yaml").write_text(streams)
    (folder / "rules.cep").write_text(rules)
    loaded = load_streams(folder / "streams.yaml")
    return compile_sources([Source("rules", rules)], loaded).rule_set, loaded


def ddl(stream: Stream) -> str:
    return ", ".join(f"{field.name} {field.ddl}" for field in stream.fields)


def expected_rows(rules: RuleSet, paths: Mapping[str, Path]) -> list[Any]:
    rows = match_file(rules, {name: str(path) for name, path in paths.items()}).matches.to_pylist()
    assert {(row["rule"], row["kind"]) for row in rows if row["rule"] in VIEWS} == {
        (rule, kind) for rule in VIEWS for kind in ("match", "retract")
    }
    return comparable(rows)


def test_a_batch_of_dataframes_reports_what_a_local_run_does(spark: SparkSession, tmp_path: Path) -> None:
    rules, streams = compiled(tmp_path)
    paths = written(tmp_path, drawn(1, 90), 3)
    expected = expected_rows(rules, paths)
    batch = {
        name: spark.read.schema(ddl(streams[name])).json(str(paths[name])).repartition(3) for name in NAMES
    }
    many = f"{RULES}\nVIEW other KEY account FROM accounts SELECT balance"
    found = detect(batch, many, streams=streams, only=["owned", "limited"])
    assert comparable(spark_rows(found)) == expected


def test_a_stream_of_a_pipeline_reports_what_a_local_run_does(spark: SparkSession, tmp_path: Path) -> None:
    rules, _ = compiled(tmp_path)
    paths = written(tmp_path, drawn(2, 90), 3)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    summary = run_pipeline(tmp_path / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
    assert summary.counts.late == 0
    assert comparable(read(tmp_path / "out/rows")) == expected_rows(rules, paths)


def with_payments(folder: Path, seed: int) -> tuple[RuleSet, dict[str, Stream], dict[str, Path]]:
    rules, streams = compiled(folder, WITH_PAYMENTS, BESIDE)
    payments: list[dict[str, Any]] = [
        {"n": n, "account": f"a{n % 12}", "at": START + timedelta(seconds=n)} for n in range(90)
    ]
    return rules, streams, written(folder, {**drawn(seed, 90), "payments": payments}, 1)


@pytest.mark.parametrize("is_stream", [True, False])
def test_rows_of_rules_beside_a_view_have_its_columns_in_each_sink(
    spark: SparkSession, tmp_path: Path, is_stream: bool
) -> None:
    rules, _, paths = with_payments(tmp_path, 3)
    found = match_file(rules, {name: str(path) for name, path in paths.items()})
    expected = found.matches.to_pylist()
    assert {row["rule"] for row in expected} == {*VIEWS, "paid", "joined", "changed"}
    text = OF_PAYMENTS if is_stream else OF_PAYMENTS.replace("at_end: finish", "mode: batch")
    (tmp_path / "pipeline.yaml").write_text(text)
    run_pipeline(tmp_path / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)
    out = tmp_path / "out"
    assert comparable(read(out / "rows")) == comparable(expected)
    assert comparable(read(out / "shadow")) == comparable(found.shadow.to_pylist())
    columns = ("rule", "match_id", "revision", "kind")
    keys = sorted([str(row[name]) for name in columns] for row in expected)
    of_lines = [json.loads(line) for line in _text(out / "lines").splitlines()]
    assert sorted([str(row[name]) for name in columns] for row in of_lines) == keys
    of_table = csv.DictReader(StringIO(_text(out / "table")))
    assert sorted([row[name] for name in columns] for row in of_table if row["rule"] != "rule") == keys


def test_detect_gives_rules_beside_a_view_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    rules, streams, paths = with_payments(tmp_path, 4)
    expected = match_file(rules, {name: str(path) for name, path in paths.items()}).matches.to_pylist()
    batch = {name: spark.read.schema(ddl(streams[name])).json(str(path)) for name, path in paths.items()}
    assert comparable(spark_rows(detect(batch, BESIDE, streams=streams))) == comparable(expected)


def _text(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted(folder.rglob("part-*")))
