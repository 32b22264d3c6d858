"""Sources that are behind, silent or read in pieces: a stream has the matches of the batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary

START = datetime(2024, 5, 1, tzinfo=UTC)

STREAMS = """
streams:
  orders:   {event_time: ts, tie_break: [id], lateness: 10 seconds, schema: {id: bigint, shop: string, ts: timestamp, n: bigint}}
  payments: {event_time: ts, tie_break: [id], lateness: 10 seconds, schema: {id: bigint, shop: string, ts: timestamp, n: bigint}}
"""  # noqa: E501

PAID = """
RULE paid FROM orders, payments PARTITION BY shop PATTERN o -> p WITHIN 5 MINUTES
DEFINE o ON orders AS n > 6, p ON payments AS n > 6 MEASURES o.id AS o, p.id AS p

RULE unpaid FROM orders, payments PARTITION BY shop PATTERN o -> !p FOR 3 MINUTES
DEFINE o ON orders AS n = 1, p ON payments AS TRUE MEASURES o.id AS o, o.id AS p
"""

RISING = """
RULE rising FROM orders PARTITION BY shop PATTERN a b+ c WITHIN 10 MINUTES
DEFINE b AS n > a.n, c AS n < a.n MEASURES a.id AS o, c.id AS p
"""


def write_events(file: Path, first_id: int, seconds: Sequence[float], shop: str | None = None) -> None:
    drawn = random.Random(first_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lines:
        for number, second in enumerate(seconds):
            event: dict[str, Any] = {"id": first_id + number, "n": drawn.randrange(10)}
            event |= {
                "ts": (START + timedelta(seconds=second)).isoformat(),
                "shop": shop or drawn.choice("ab"),
            }
            lines.write(json.dumps(event) + "\n")


def run(folder: Path, rules: str, sources: str, more: str) -> tuple[Summary, Counter[tuple[Any, ...]]]:
    (folder / "rules.cep").write_text(rules)
    (folder / "streams.yaml").write_text(STREAMS)
    out = f"out-{len(list(folder.glob('out-*')))}"
    (folder / f"{out}.yaml").write_text(
        f"rules: [rules.cep]\nsources: {sources}\nsinks: [{{format: parquet, path: {out}}}]\n{more}\n"
    )
    summary = run_pipeline(folder / f"{out}.yaml", console=Console(file=StringIO()), quiet=True)
    table = pyarrow.dataset.dataset(folder / out, partitioning=None).to_table(["rule", "match_id", "o", "p"])
    return summary, Counter(tuple(row.values()) for row in table.to_pylist())


BACKLOGS = "[{stream: orders, format: json, path: o, max_files_per_trigger: 1}, {stream: payments, format: json, path: p, max_files_per_trigger: 1}]"  # noqa: E501


def test_backlogs_of_different_density_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    # A file of orders has an hour, a file of payments ten minutes.
    for number in range(2):
        write_events(
            tmp_path / f"o/{number}.json", 1_000 * number, [3600 * number + 30 * s for s in range(120)]
        )
    for number in range(12):
        seconds = [600 * number + 20 * s for s in range(30)]
        write_events(tmp_path / f"p/{number:02}.json", 50_000 + 1_000 * number, seconds)
    in_batch = run(tmp_path, PAID, BACKLOGS, "mode: batch")[1]
    summary, found = run(tmp_path, PAID, BACKLOGS, "checkpoint: ck\nat_end: finish")
    assert (summary.counts.late, found.total() > 30, found) == (0, True, in_batch)


@pytest.mark.parametrize("watermark_per", ["source", "file", "shop"])
def test_files_that_cover_the_same_time_lose_nothing(
    spark: SparkSession, tmp_path: Path, watermark_per: str
) -> None:
    for number in range(5):
        file = tmp_path / f"o/shop{number}.json"
        write_events(file, 1_000 * number, [5 * number + 30 * s for s in range(60)], f"shop{number}")
    source = (
        "[{stream: orders, format: json, path: o, max_files_per_trigger: 1, watermark_per: "
        f"{watermark_per}}}]"
    )
    in_batch = run(tmp_path, RISING, source, "mode: batch")[1]
    summary, found = run(tmp_path, RISING, source, "checkpoint: ck\nat_end: finish")
    assert (summary.counts.late, found.total() > 20, found) == (0, True, in_batch)


def test_the_slow_source_is_named_and_its_events_are_in_time_in_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    sources = BACKLOGS.replace(", max_files_per_trigger: 1", "")
    write_events(tmp_path / "o/0.json", 0, [30.0 * s for s in range(120)])
    write_events(tmp_path / "p/0.json", 50_000, [20.0 * s for s in range(30)])
    more = "checkpoint: ck"
    first, early = run(tmp_path, PAID, sources, more)
    assert first.time is not None
    assert (first.time.holder, first.time.waiting > 0) == ("payments", True)
    assert [part.name for part in first.time.partitions] == ["payments", "orders"]
    assert first.time.partitions[0].behind_us == (119 * 30 - 29 * 20) * 1_000_000
    write_events(tmp_path / "p/1.json", 60_000, [600 + 20.0 * s for s in range(150)])
    (tmp_path / "out-0.yaml").write_text((tmp_path / "out-0.yaml").read_text() + "at_end: finish\n")
    summary = run_pipeline(tmp_path / "out-0.yaml", console=Console(file=StringIO()), quiet=True)
    in_batch = run(tmp_path, PAID, sources, "mode: batch")[1]
    table = pyarrow.dataset.dataset(tmp_path / "out-0", partitioning=None).to_table(
        ["rule", "match_id", "o", "p"]
    )
    found = Counter(tuple(row.values()) for row in table.to_pylist())
    assert (summary.counts.late, 0 < early.total() < found.total(), found) == (0, True, in_batch)


def test_the_fastest_source_decides_where_the_pipeline_says_so(spark: SparkSession, tmp_path: Path) -> None:
    sources = BACKLOGS.replace(", max_files_per_trigger: 1", "")
    write_events(tmp_path / "o/0.json", 0, [30.0 * s for s in range(120)])
    write_events(tmp_path / "p/0.json", 50_000, [20.0 * s for s in range(30)])
    more = "checkpoint: ck\nwatermark: fastest"
    first, _ = run(tmp_path, PAID, sources, more)
    assert first.counts.late == 0
    write_events(tmp_path / "p/1.json", 60_000, [600 + 20.0 * s for s in range(10)])
    again = run_pipeline(tmp_path / "out-0.yaml", console=Console(file=StringIO()), quiet=True)
    assert again.counts.late == 10
