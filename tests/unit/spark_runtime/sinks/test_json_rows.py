"""Rows as JSON: the texts are those that Spark writes into files."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_runtime.sinks.json_rows import json_rows

EVENT = pa.struct([("a", pa.string()), ("t", pa.timestamp("us", "UTC")), ("m", pa.decimal128(5, 2))])


def test_values_of_each_type_are_json() -> None:
    table = pa.table(
        {
            "text": ['a "b"\\\n\x7fé', "plain"],
            "flag": [True, False],
            "number": [2**63 - 1, -(2**63)],
            "double": [949.0, 1e20],
            "time": pa.array([7, -1], pa.timestamp("us", "UTC")),
            "list": [[1.5, None], []],
            "event": pa.array([{"a": "x", "t": 0, "m": None}, {"a": None, "t": None, "m": None}], EVENT),
        }
    )
    first, second = json_rows(table)
    assert json.loads(first) == {
        "text": 'a "b"\\\n\x7fé',
        "flag": True,
        "number": 2**63 - 1,
        "double": 949.0,
        "time": "1970-01-01T00:00:00.000007Z",
        "list": [1.5, None],
        "event": {"a": "x", "t": "1970-01-01T00:00:00.000000Z"},
    }
    assert '"double":949.0,' in first
    assert json.loads(second)["time"] == "1969-12-31T23:59:59.999999Z"
    assert json.loads(second)["event"] == {}


def test_null_is_left_out_and_numbers_that_json_lacks_are_words() -> None:
    nothing = {"a": [None, 1], "b": pa.array([None, None], pa.string()), "c": [float("nan"), float("-inf")]}
    assert list(json_rows(pa.table(nothing))) == ['{"c":"NaN"}', '{"a":1,"c":"-Infinity"}']
    assert list(json_rows(pa.table({"a": pa.array([None], pa.int64())}))) == ["{}"]
    assert list(json_rows(pa.table({"a": pa.array([], pa.int64())}))) == []


def test_a_large_table_is_written_whole() -> None:
    table = pa.table({"n": range(25_001)})
    assert [json.loads(text)["n"] for text in json_rows(table)] == list(range(25_001))
