"""Arrays, structs, maps and binary: read alike from JSON and Parquet, passed on, never looked into."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.compiler.compile import check_sources, compile_sources
from cep.errors import InputError, Source
from cep.formats.files import read_events
from cep.local.find_matches import find_matches
from cep.local.match_file import match_file
from cep.schema.column_types import MAX_DEPTH, parse_type
from cep.schema.opaque_values import opaque_text
from cep.schema.stream import Field, Stream, canonical_ddl

STREAM = Stream(
    "calls",
    (
        Field("ts", "timestamp"),
        Field("k", "string"),
        Field("tags", "array<string>"),
        Field("body", "struct<id:bigint,at:timestamp,price:decimal(10,2),more:map<string,double>>"),
        Field("raw", "binary"),
        Field("price", "decimal(12,2)"),
    ),
    "ts",
)
TIME = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
BODY = '{"id":7,"at":"2024-01-02T03:04:05.000006Z","price":1.5,"more":{"x":0.5,"y":null}}'


def problems_of(rule: str) -> list[tuple[str, str]]:
    text = f"RULE r FROM calls PARTITION BY k PATTERN a -> b WITHIN 1 HOUR {rule}"
    _, problems = check_sources([Source("test.cep", text)], {"calls": STREAM})
    return [
        (problem.code, text[problem.span.start : problem.span.end]) for problem in problems if problem.span
    ]


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("Array< INT >", "array<int>"),
        ("map<string,array<double>>", "map<string,array<double>>"),
        ("map<bigint, date>", "map<bigint,date>"),
        ("struct<a: int, `b c`: string>", "struct<a:int,`b c`:string>"),
        ("struct<a int, Type timestamp>", "struct<a:int,Type:timestamp>"),
        ("struct<a:decimal(5)>", "struct<a:decimal(5,0)>"),
        ("binary", "binary"),
        ("array<" * MAX_DEPTH + "int" + ">" * MAX_DEPTH, "array<" * MAX_DEPTH + "int" + ">" * MAX_DEPTH),
        ("array<" * (MAX_DEPTH + 1) + "int" + ">" * (MAX_DEPTH + 1), None),
        ("array", None),
        ("array<>", None),
        ("array<int", None),
        ("array<int>>", None),
        ("array<int,int>", None),
        ("array<text>", None),
        ("map<int>", None),
        ("map<double,int>", None),
        ("map<array<int>,int>", None),
        ("struct<>", None),
        ("struct<a:int,a:int>", None),
        ("struct<1:int>", None),
        ("struct<a:int;b:int>", None),
        ("", None),
    ],
)
def test_types_are_read_as_spark_writes_them(text: str, ddl: str | None) -> None:
    assert canonical_ddl(text) == ddl
    assert ddl is None or canonical_ddl(ddl) == ddl


@pytest.mark.parametrize(
    ("value", "ddl", "text"),
    [
        ([1, None], "array<tinyint>", "[1,null]"),
        ([128], "array<tinyint>", None),
        ([1.5], "array<int>", None),
        ([True], "array<int>", None),
        ([1], "array<boolean>", None),
        ({"1": True}, "map<int,boolean>", '{"1":true}'),
        ({"x": True}, "map<int,boolean>", None),
        ([(1, True)], "map<int,boolean>", '{"1":true}'),
        ({"b": "ü", "c": 1}, "struct<a:int,b:string>", '{"a":null,"b":"ü"}'),
        ([{}], "struct<a:int>", None),
        ("x", "array<string>", None),
        ([float("nan"), float("-inf"), 1], "array<double>", '["NaN","-Infinity",1.0]'),
        ([Decimal("1.50")], "array<decimal(3,2)>", "[1.50]"),
        (["2024-01-31"], "array<date>", '["2024-01-31"]'),
        (["2024-01-32"], "array<date>", None),
        (["yesterday"], "array<timestamp>", None),
        (["\ud800"], "array<string>", None),
        (b"\x00\xff", "binary", "AP8="),
        ("AP8=", "binary", "AP8="),
        ("AP8", "binary", None),
    ],
)
def test_values_as_text(value: object, ddl: str, text: str | None) -> None:
    kind = parse_type(ddl)
    assert kind is not None
    if text is None:
        with pytest.raises(ValueError):  # noqa: PT011
            opaque_text(value, kind)
    else:
        assert opaque_text(value, kind) == text


def _json(path: Path) -> Path:
    lines = [
        {"tags": ["x", None], "body": json.loads(BODY), "raw": "AP8=", "price": 0.1},
        {"tags": None, "price": 12345678.91},
        {"tags": [1]},
        {"body": [1]},
    ]
    lines = [{"ts": "2024-01-01", "k": "a", **line} for line in lines]
    path = path / "events.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _parquet(path: Path) -> Path:
    body = pa.struct(
        {
            "more": pa.map_(pa.string(), pa.float64()),
            "id": pa.int32(),
            "price": pa.decimal128(10, 1),
            "at": pa.timestamp("us", tz="UTC"),
            "extra": pa.bool_(),
        }
    )
    value = {"id": 7, "at": TIME, "price": Decimal("1.5"), "more": [("x", 0.5), ("y", None)], "extra": True}
    times = pa.array([datetime.datetime(2024, 1, 1)] * 2, pa.timestamp("us"))
    table = pa.table(
        {
            "ts": times,
            "k": ["a", "a"],
            "tags": pa.array([["x", None], None]),
            "body": pa.array([value, None], body),
            "raw": pa.array([b"\x00\xff", None]),
            "price": pa.array([Decimal("0.10"), Decimal("12345678.91")], pa.decimal128(12, 2)),
        }
    )
    path = path / "events.parquet"
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("write", [_json, _parquet])
def test_every_format_gives_the_same_texts(tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    (chunk,) = read_events(write(tmp_path), STREAM)
    assert chunk.events.column("tags").to_pylist() == ['["x",null]', None]
    assert chunk.events.column("body").to_pylist() == [BODY, None]
    assert chunk.events.column("raw").to_pylist() == ["AP8=", None]
    reasons = [reason.partition(": ")[0] for reason in chunk.dead_letters.column("reason").to_pylist()]
    expected = [f"field `{field.name}` is not of type {field.ddl}" for field in STREAM.fields[2:4]]
    assert reasons == ([] if write is _parquet else [reason.partition(": ")[0] for reason in expected])


def test_csv_cannot_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("ts,k,tags,body,raw,price\n")
    with pytest.raises(InputError, match=r"`tags` is declared array<string>, which a CSV file cannot hold"):
        list(read_events(path, STREAM))


@pytest.mark.parametrize(
    ("column", "values"),
    [("tags", pa.array([[1], [2]])), ("raw", pa.array(["x", "y"])), ("body", pa.array([{"id": 1}, None]))],
)
def test_a_parquet_column_of_another_type_is_refused(tmp_path: Path, column: str, values: pa.Array) -> None:
    path = _parquet(tmp_path)
    table = pq.read_table(path)
    table = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(table, path)
    with pytest.raises(InputError, match=f"column `{column}` of"):
        list(read_events(path, STREAM))


RULE = """
RULE r FROM calls PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE
  a AS tags IS NOT NULL,
  b AS tags IS NULL AND a.raw IS NULL AND FIRST(a.body, 5) IS NULL AND COUNT(a.tags) = 1
MEASURES ARRAY_AGG(a.tags) AS tags, a.body IS NULL AS bare, COUNT(b.tags) AS n ALL ROWS PER MATCH
"""


def test_rules_ask_whether_they_are_null_and_report_them() -> None:
    rows = [
        {"k": "a", "ts": 1, "tags": ["no"], "raw": b""},
        {"k": "a", "ts": 2, "tags": [], "body": {"id": 3}, "price": 0.1},
        {"k": "a", "ts": 3, "tags": None},
    ]
    a, b = find_matches(RULE, {"calls": STREAM}, rows[1:])
    assert (a["tags"], a["bare"], a["n"]) == (["[]"], False, 0)
    assert a["event"]["body"] == '{"id":3,"at":null,"price":null,"more":null}'
    assert (a["event"]["tags"], b["event"]["tags"], b["event"]["raw"]) == ("[]", None, None)
    assert (a["event"]["price"], b["event"]["price"]) == (Decimal("0.10"), None)
    assert find_matches(RULE, {"calls": STREAM}, [rows[0], rows[2]]) == []


def test_files_give_their_events_back(tmp_path: Path) -> None:
    rule = "RULE r FROM calls PARTITION BY k PATTERN a WITHIN 1 HOUR ALL ROWS PER MATCH"
    programs = compile_sources([Source("test.cep", rule)], {"calls": STREAM}).rule_set
    events = [
        match_file(programs, write(tmp_path)).matches.column("event").to_pylist()
        for write in (_json, _parquet)
    ]
    assert events[0] == events[1]
    assert {event["body"]: event["price"] for event in events[0]} == {
        BODY: Decimal("0.10"),
        None: Decimal("12345678.91"),
    }


@pytest.mark.parametrize(
    ("rule", "code", "place"),
    [
        ("DEFINE a AS tags = body", "E0206", "tags"),
        ("DEFINE a AS tags IN ('x')", "E0206", "tags"),
        ("DEFINE a AS COALESCE(raw, 'x') = 'x'", "E0206", "raw"),
        ("DEFINE a AS LENGTH(raw) > 1", "E0206", "raw"),
        ("DEFINE a AS raw LIKE 'x'", "E0206", "raw"),
        ("DEFINE a AS raw || 'x' = 'x'", "E0206", "raw"),
        ("DEFINE a AS tags", "E0206", "tags"),
        ("DEFINE b AS a.tags = tags", "E0206", "a.tags"),
        ("DEFINE b AS CASE WHEN k = 'x' THEN tags END IS NULL", "E0206", "tags"),
        ("MEASURES a.tags AS t", "E0206", "a.tags"),
        ("MEASURES FIRST(a.body) AS t", "E0206", "FIRST(a.body)"),
        ("MEASURES MAX(a.raw) AS t", "E0206", "a.raw"),
        ("MEASURES ARRAY_AGG(LENGTH(a.raw)) AS t", "E0206", "a.raw"),
    ],
)
def test_everything_else_is_refused(rule: str, code: str, place: str) -> None:
    assert problems_of(rule)[0] == (code, place)


def test_they_are_no_keys() -> None:
    text = "RULE r FROM calls PARTITION BY tags PATTERN a WITHIN 1 HOUR"
    _, problems = check_sources([Source("test.cep", text)], {"calls": STREAM})
    assert [problem.code for problem in problems] == ["E0214"]
