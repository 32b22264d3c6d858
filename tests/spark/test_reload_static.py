"""Rules over a static table that change, or begin, under a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_pipeline import FINISH, quiet_run, read
from tests.spark.test_reload import cep

STREAMS = """
streams:
  tx:
    event_time: ts
    tie_break: [id]
    lateness: 20 seconds
    schema: {id: string, ts: timestamp, card: string, country: string, amount: double}
tables:
  countries: {key: [iso], static: true, schema: {iso: string, risk: string}}
"""
RISKY = """RULE risky FROM tx JOIN countries ON country = countries.iso PARTITION BY card
PATTERN big -> big2 WITHIN 30 MINUTES DEFINE big AS amount > 90, big2 AS amount > 90
MEASURES big.id AS i, big.countries.risk AS risk
"""
LONGER = RISKY.replace("30 MINUTES", "40 MINUTES")
PLAIN = """RULE plain FROM tx PARTITION BY card PATTERN big WITHIN 30 MINUTES
DEFINE big AS amount > 90 MEASURES big.id AS i, big.country AS risk
"""
OF_TABLE = "  - {table: countries, format: csv, path: countries.csv}\n"


def write(folder: Path, rules: str, more: str, checkpoint: str = "ck") -> Path:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "countries.csv").write_text("iso,risk\nDE,low\nFR,high\n")
    (folder / "r.cep").write_text(rules)
    file = folder / "pipeline.yaml"
    file.write_text(
        "streams: streams.yaml\nrules: [r.cep]\n"
        "sources:\n  - {stream: tx, format: json, path: in}\n"
        f"{OF_TABLE if 'JOIN' in rules else ''}"
        "sinks: [{format: json, path: out}]\n"
        f"checkpoint: {checkpoint}\nreload: on change\n"
        f"{more}\n"
    )
    return file


def add(folder: Path, name: str, *events: tuple[str, int, str]) -> None:
    """Add a file of events of (id, minute, country)."""
    rows = [
        {"id": id_, "ts": f"2024-05-01T10:{minute:02}:00", "card": "c1", "country": country, "amount": 100}
        for id_, minute, country in events
    ]
    (folder / "in").mkdir(exist_ok=True)
    (folder / f"in/{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def found(folder: Path) -> list[tuple[str, str, str]]:
    rows = read(folder / "out", "json")
    return sorted((row["i"], row["rule"], row.get("risk", "")) for row in rows)


@pytest.mark.parametrize("state", ["inline", "files"])
@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (RISKY, LONGER, [("a1", "risky", "low"), ("b1", "risky", "high")]),
        (PLAIN, PLAIN + RISKY, [(id_, "plain", of) for id_, of in (("a1", "DE"), ("a2", "FR"), ("a3", "DE"),
                                                                  ("b1", "FR"), ("b2", "DE"))]
         + [("b1", "risky", "high")]),
    ],
    ids=["changed", "added"],
)  # fmt: skip
def test_rules_over_a_static_table_begin_under_a_checkpoint(
    spark: SparkSession, tmp_path: Path, state: str, before: str, now: str, expected: list[tuple[str, ...]]
) -> None:
    add(tmp_path, "a", ("a1", 0, "DE"), ("a2", 1, "FR"), ("a3", 2, "DE"))
    quiet_run(write(tmp_path, before, f"state: {state}"))
    add(tmp_path, "b", ("b1", 30, "FR"), ("b2", 31, "DE"))
    quiet_run(write(tmp_path, now, f"state: {state}\n{FINISH}"))
    assert found(tmp_path) == sorted(expected)


def test_a_savepoint_continues_with_a_changed_rule_over_a_static_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    add(tmp_path, "a", ("a1", 0, "DE"), ("a2", 1, "FR"), ("a3", 2, "DE"))
    quiet_run(write(tmp_path, RISKY, ""))
    cep("savepoint", str(tmp_path / "ck"), str(tmp_path / "sp"))
    file = write(tmp_path, LONGER, FINISH, "ck2")
    cep("restore", str(tmp_path / "sp"), str(tmp_path / "ck2"), "--pipeline", str(file))
    add(tmp_path, "b", ("b1", 30, "FR"), ("b2", 31, "DE"))
    quiet_run(file)
    assert found(tmp_path) == [("a1", "risky", "low"), ("b1", "risky", "high")]
