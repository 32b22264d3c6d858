"""A decimal that its type cannot hold is refused by each reader; all others are written wherever it goes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.formats.files import read_events
from cep.formats.late_events import as_declared, late_events
from cep.formats.text import json_lines
from cep.local.match_file import match_file
from cep.output.files import write_late
from cep.output.rows import json_line, match_rows
from cep.schema.decimals import decimal_of, largest_double, rounded
from cep.schema.stream import Field, Stream

TYPES = [(5, 2), (5, 0), (3, 3), (15, 2), (16, 2), (20, 4), (38, 10), (38, 0), (38, 38), (1, 0)]


def stream_of(ddl: str) -> Stream:
    return Stream("s", (Field("ts", "timestamp"), Field("k", "string"), Field("n", ddl)), "ts")


def read(path: Path, stream: Stream) -> tuple[list[Any], list[str]]:
    (chunk,) = read_events(path, stream)
    return chunk.events.column("n").to_pylist(), chunk.dead_letters.column("reason").to_pylist()


def json_file(path: Path, numbers: list[str]) -> Path:
    path = path / "events.jsonl"
    path.write_text("".join(f'{{"ts": "2024-01-01", "k": "a", "n": {n}}}\n' for n in numbers))
    return path


def csv_file(path: Path, numbers: list[str]) -> Path:
    path = path / "events.csv"
    path.write_text("ts,k,n\n" + "".join(f"2024-01-01,a,{n}\n" for n in numbers))
    return path


@pytest.mark.parametrize("digits", TYPES)
def test_the_largest_double_is_the_last_that_a_decimal_represents(digits: tuple[int, int]) -> None:
    largest = Decimal(f"{'9' * digits[0]}e-{digits[1]}")
    greatest = largest_double(digits)
    for sign in (1, -1):
        found = decimal_of(sign * greatest, digits)
        assert found is not None
        assert found.copy_abs() <= largest
        assert pa.array([found], pa.decimal128(*digits))[0].as_py() == found
        assert decimal_of(sign * math.nextafter(greatest, math.inf), digits) is None
    assert decimal_of(float(largest), digits) is not None
    assert rounded(largest, digits) == largest
    for odd in (math.nan, math.inf, -math.inf):
        assert decimal_of(odd, digits) is None
    for far in (Decimal("1e400"), Decimal("NaN"), Decimal("-Infinity"), Decimal(10**400)):
        assert rounded(far, digits) is None
    assert decimal_of(-0.0, digits) == 0


@pytest.mark.parametrize("write", [json_file, csv_file])
@pytest.mark.parametrize("n", [1, 40])
def test_a_number_with_too_many_digits_before_the_point_is_a_dead_letter(
    tmp_path: Path, write: Callable[[Path, list[str]], Path], n: int
) -> None:
    words = ["NaN", "-Infinity"]
    texts = [json.dumps(word) for word in words] if write is json_file else words
    bad = ["99999", "-1000", "999.996", "1e400", "123456789012345678901234567890", *texts]
    good = ["999.99", "-999.99", "1.23456", "-0", "0.001"]
    stream = stream_of("decimal(5,2)")
    events, reasons = read(write(tmp_path, [*bad, *good] * n), stream)
    assert events == [float(number) for number in good] * n
    assert reasons == [f"field `n` is not of type decimal(5,2): {number}" for number in bad] * n


def test_lines_alone_are_refused_for_the_same_reason() -> None:
    stream = stream_of("decimal(5,2)")
    for text in ("99999", "1e400", '"NaN"'):
        found = json_lines.parse_line(f'{{"ts":"2024-01-01","n":{text}}}', stream)
        assert found == f"field `n` is not of type decimal(5,2): {text}"


def test_a_wider_decimal_of_parquet_is_read_if_its_value_fits(tmp_path: Path) -> None:
    values = [Decimal("99999.5"), Decimal("1.5"), None]
    table = pa.table(
        {
            "ts": pa.array([0, 0, 0], pa.timestamp("us", tz="UTC")),
            "k": ["a"] * 3,
            "n": pa.array(values, pa.decimal128(20, 4)),
        }
    )
    pq.write_table(table, tmp_path / "events.parquet")
    events, reasons = read(tmp_path / "events.parquet", stream_of("decimal(5,2)"))
    assert events == [1.5, None]
    assert [reason.partition(":")[0] for reason in reasons] == ["field `n` is not of type decimal(5,2)"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("digits", TYPES)
def test_what_a_reader_takes_is_in_late_events_and_is_read_again(
    tmp_path: Path, suffix: str, digits: tuple[int, int]
) -> None:
    stream = stream_of("decimal({},{})".format(*digits))
    largest = f"{'9' * digits[0]}e-{digits[1]}"
    given, dead = read(json_file(tmp_path, [largest, f"-{largest}", "0", "null"]), stream)
    assert dead == []
    (chunk,) = read_events(tmp_path / "events.jsonl", stream)
    late = late_events(chunk.events, np.zeros(len(given), np.int64), stream)
    write_late(tmp_path / f"late{suffix}", {stream: late})
    assert read(tmp_path / f"late{suffix}", stream) == (given, [])


def test_the_event_of_a_match_has_each_decimal_that_a_reader_takes(tmp_path: Path) -> None:
    rule = "RULE r FROM s PARTITION BY k PATTERN a MEASURES a.n AS n ALL ROWS PER MATCH"
    stream = stream_of("decimal(5,2)")
    rules = compile_sources([Source("r", rule)], {"s": stream}).rule_set
    result = match_file(rules, json_file(tmp_path, ["99999", "999.99", "-999.9949", "1.23456", "null"]))
    rows = [json.loads(json_line(row)) for row in match_rows(rules, result.matches)]
    found = sorted([(row["n"], row["event"]["n"]) for row in rows], key=str)
    assert found == [(-999.9949, "-999.99"), (1.23456, "1.23"), (999.99, "999.99"), (None, None)]
    assert result.dead_letters.column("reason").to_pylist() == [
        "field `n` is not of type decimal(5,2): 99999"
    ]


@pytest.mark.parametrize("ddl", ["array<decimal(5,2)>", "struct<x:decimal(5,2)>", "map<string,decimal(5,2)>"])
def test_a_decimal_inside_a_value_that_does_not_fit_is_a_dead_letter(tmp_path: Path, ddl: str) -> None:
    def value(number: str) -> str:
        return f"[{number}]" if ddl[0] == "a" else f'{{"x":{number}}}'

    bad = ["99999", "-1000", "999.996", "1e30", "1e400"]
    good = ["999.99", "1.23456", "-999.99", "null"]
    stream = stream_of(ddl)
    events, reasons = read(json_file(tmp_path, [value(number) for number in [*bad, *good]]), stream)
    assert events == [value(number) for number in good]
    assert reasons == [f"field `n` is not of type {ddl}: {value(number)}" for number in bad]
    (chunk,) = read_events(tmp_path / "events.jsonl", stream)
    late = as_declared(late_events(chunk.events, np.zeros(4, np.int64), stream), stream)
    assert len(late) == len(good)


@pytest.mark.parametrize("digits", TYPES)
def test_a_decimal_inside_a_value_that_fits_is_in_late_events(
    tmp_path: Path, digits: tuple[int, int]
) -> None:
    largest = Decimal(f"{'9' * digits[0]}e-{digits[1]}")
    stream = stream_of("array<decimal({},{})>".format(*digits))
    pq.write_table(
        pa.table(
            {
                "ts": pa.array([0], pa.timestamp("us", tz="UTC")),
                "k": ["a"],
                "n": pa.array([[largest]], pa.list_(pa.decimal128(*digits))),
            }
        ),
        tmp_path / "events.parquet",
    )
    (chunk,) = read_events(tmp_path / "events.parquet", stream)
    late = as_declared(late_events(chunk.events, np.zeros(1, np.int64), stream), stream)
    assert late.column("n").to_pylist() == [[largest]]
