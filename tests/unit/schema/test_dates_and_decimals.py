"""Columns of type date and decimal: read alike from JSON, CSV and Parquet, as TIMESTAMP and DOUBLE."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.formats.files import read_events
from cep.local.match_file import match_file
from cep.output.rows import json_line, match_rows
from cep.schema.stream import Field, Stream, canonical_ddl

STREAM = Stream(
    "orders",
    (Field("ts", "timestamp"), Field("k", "string"), Field("day", "date"), Field("price", "decimal(20,2)")),
    "ts",
)
DAY_US = 86_400_000_000
PRICES = ["0.10", "12345678901234567.89", "-2.675", "3"]


def _json(path: Path) -> Path:
    lines = [
        f'{{"ts": "2024-01-01", "k": "a", "day": "1970-01-0{n + 1}", "price": {price}}}'
        for n, price in enumerate(PRICES)
    ]
    path = path / "events.jsonl"
    path.write_text("\n".join([*lines, '{"ts": "2024-01-01", "k": "a", "day": "1970-01-01T10:00"}']) + "\n")
    return path


def _csv(path: Path) -> Path:
    lines = [f"2024-01-01,a,1970-01-0{n + 1},{price}" for n, price in enumerate(PRICES)]
    path = path / "events.csv"
    path.write_text("\n".join(["ts,k,day,price", *lines, "2024-01-01,a,1970-01-01T10:00,"]) + "\n")
    return path


def _parquet(path: Path) -> Path:
    path = path / "events.parquet"
    table = pa.table(
        {
            "ts": pa.array([datetime.datetime(2024, 1, 1)] * 4, pa.timestamp("us")),
            "k": ["a"] * 4,
            "day": [datetime.date(1970, 1, n + 1) for n in range(4)],
            "price": pa.array([Decimal(price) for price in PRICES], pa.decimal128(23, 3)),
        }
    )
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("write", [_json, _csv, _parquet])
def test_every_format_gives_the_same_dates_and_prices(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    (chunk,) = read_events(write(tmp_path), STREAM)
    assert chunk.events.column("day").to_pylist() == [0, DAY_US, 2 * DAY_US, 3 * DAY_US]
    assert chunk.events.column("price").to_pylist() == [float(price) for price in PRICES]
    reasons = [] if write is _parquet else ["field `day` is not of type date: "]
    found = [
        reason[: len("field `day` is not of type date: ")]
        for reason in chunk.dead_letters.column("reason").to_pylist()
    ]
    assert found == reasons


RULE = "RULE r FROM orders PARTITION BY k PATTERN a MEASURES ARRAY_AGG(a.day) AS days ALL ROWS PER MATCH"


def test_events_are_reported_with_dates_and_doubles(tmp_path: Path) -> None:
    programs = compile_sources([Source("r", RULE)], {STREAM.name: STREAM}).rule_set
    matches = match_file(programs, _csv(tmp_path)).matches
    events = sorted(matches.column("event").to_pylist(), key=lambda event: event["day"])
    assert [event["day"] for event in events] == [datetime.date(1970, 1, n + 1) for n in range(4)]
    assert [event["price"] for event in events] == [float(price) for price in PRICES]
    midnights = [[datetime.datetime(1970, 1, n + 1, tzinfo=datetime.UTC)] for n in range(4)]
    assert sorted(matches.column("days").to_pylist()) == midnights
    lines = [json_line(row) for row in match_rows(programs, matches)]
    assert sum('"day": "1970-01-01"' in line for line in lines) == 1


def test_a_parquet_timestamp_is_no_date(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    table = pq.read_table(_parquet(tmp_path))
    pq.write_table(table.set_column(2, "day", table.column("ts")), path)
    with pytest.raises(InputError, match="declares date"):
        list(read_events(path, STREAM))


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("DATE", "date"),
        ("Decimal( 12 , 3 )", "decimal(12,3)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal", "decimal(10,0)"),
        ("decimal(39,2)", None),
        ("decimal(2,3)", None),
        ("decimal(0)", None),
    ],
)
def test_types_are_read_as_spark_writes_them(text: str, ddl: str) -> None:
    assert canonical_ddl(text) == ddl
