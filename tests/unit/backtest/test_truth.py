"""How well rules found what there was to find: which alerts meet which stories, and which stories count."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cep.backtest.history import Scope
from cep.backtest.sampling import Sample
from cep.backtest.truth import read_truth, score, truth_in
from cep.errors import InputError

TIME = pa.timestamp("us", tz="UTC")


def matches(*rows: tuple[str, str, str | None, int, int]) -> pa.Table:
    """Return matches with rule, symbol, trader, start and end in seconds."""
    names = ("rule", "symbol", "trader", "match_start", "match_end")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    return _timed(table, "match_start", "match_end")


def truth(*rows: tuple[str, str, str, int, int]) -> pa.Table:
    """Return stories with rule, symbol, person, start and end in seconds."""
    names = ("rule", "symbol", "person", "start", "end")
    table = pa.Table.from_pylist([{"label": "fraud", **dict(zip(names, row, strict=True))} for row in rows])
    return _timed(table, "start", "end")


def _timed(table: pa.Table, *names: str) -> pa.Table:
    for name in names:
        number = table.column_names.index(name)
        times = pa.array([value * 1_000_000 for value in table[name].to_pylist()], pa.int64())
        table = table.set_column(number, name, times.cast(TIME))
    return table


SCHEMA = matches(("r", "x", "ann", 0, 5)).schema


def test_an_alert_meets_a_story_if_all_columns_agree() -> None:
    found = matches(("r", "x", "ann", 0, 5), ("r", "x", "bob", 0, 5), ("r", "y", "ann", 20, 25))
    stories = truth(("r", "x", "ann", 3, 9), ("r", "y", "ann", 3, 9))
    same = {"symbol": ["symbol"], "person": ["trader"]}
    (row,) = score(found, stories, same)
    assert (row.planted, row.found, row.alerts, row.alerts_on_planted) == (2, 1, 3, 1)


def test_a_column_that_no_alert_of_a_rule_has_is_not_compared() -> None:
    found = matches(("shape", "x", None, 0, 5), ("r", "x", "ann", 0, 5), ("r", "x", None, 0, 5))
    stories = truth(("shape", "x", "", 3, 9), ("r", "x", "ann", 3, 9))
    shape, rule = score(found, stories, {"symbol": ["symbol"], "person": ["owner", "trader"]})
    assert (shape.found, shape.alerts_on_planted) == (1, 1)
    assert (rule.found, rule.alerts_on_planted) == (1, 1)


def test_a_file_of_csv_without_labels_is_a_truth(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(truth(("r", "x", "ann", 3, 9)).drop(["label"]), tmp_path / "truth.csv")
    stories, same = read_truth(tmp_path / "truth.csv", {"person": ["trader", "owner"]}, SCHEMA)
    assert same == {"symbol": ["symbol"], "person": ["trader"]}
    (row,) = score(matches(("r", "x", "ann", 0, 5)), stories, same)
    assert (row.planted, row.found) == (1, 1)


def test_lines_of_json_are_a_truth(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    path.write_text('{"rule":"r","symbol":"x","start":"1970-01-01T00:00:03Z","end":"1970-01-01T00:00:09Z"}\n')
    stories, same = read_truth(path, {}, SCHEMA)
    (row,) = score(matches(("r", "x", "ann", 0, 5)), stories, same)
    assert row.found == 1


KEYS: list[tuple[pa.DataType, object, str, str]] = [
    (pa.string(), "003", "003", '"003"'),
    (pa.string(), "true", "true", '"true"'),
    (pa.string(), "2024-05-01", "2024-05-01", '"2024-05-01"'),
    (pa.bool_(), True, "True", "true"),
    (pa.int64(), 3, "3", "3"),
    (pa.float64(), 3.0, "3", "3.0"),
    (pa.float64(), 0.1, "0.10", "1e-1"),
    (TIME, datetime.datetime(2024, 5, 1), "2024-05-01", '"2024-05-01T00:00:00.000000Z"'),
    (TIME, datetime.datetime(2024, 5, 1, 8), "2024-05-01T10:00+02", '"2024-05-01 08:00:00.0000009"'),
    (pa.decimal128(10, 2), decimal.Decimal("3.50"), "3.5", "3.5"),
    (pa.date32(), datetime.date(2024, 5, 1), "2024-05-01", '"2024-05-01"'),
]
"""A type of a column of matches, a value, how CSV has it, and how JSON has it."""


@pytest.mark.parametrize(("kind", "value", "in_csv", "in_json"), KEYS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_key_is_read_with_the_type_that_it_has_in_the_matches(
    tmp_path: Path, kind: pa.DataType, value: object, in_csv: str, in_json: str, suffix: str
) -> None:
    path = tmp_path / f"truth.{suffix}"
    times = "1970-01-01T00:00:03Z", "1970-01-01T00:00:09.123456789Z"
    if suffix == "csv":
        path.write_text(f"rule,start,end,symbol\nr,{times[0]},{times[1]},{in_csv}\n")
    elif suffix == "jsonl":
        story = f'"start": "{times[0]}", "end": "{times[1]}", "symbol": {in_json}'
        path.write_text(f'{{"rule": "r", {story}}}\n')
    else:
        known = {"rule": ["r"], "start": [times[0]], "end": [times[1]]}
        pq.write_table(pa.table(known | {"symbol": pa.array([value], kind)}), path)
    found = matches(("r", "x", "ann", 0, 5))
    found = found.set_column(found.column_names.index("symbol"), "symbol", pa.array([value], kind))
    stories, same = read_truth(path, {}, found.schema)
    assert stories.schema.field("symbol").type == kind
    assert stories["end"].cast(pa.int64()).to_pylist() == [9_123_456]
    (row,) = score(found, stories, same)
    assert (row.planted, row.found) == (1, 1)


def test_a_column_of_several_columns_of_matches_is_compared_as_text_if_their_types_differ(
    tmp_path: Path,
) -> None:
    (tmp_path / "truth.csv").write_text("rule,start,end,who\nr,1970-01-01,1970-01-02,7\n")
    found = matches(("r", "x", None, 0, 5)).append_column("owner", pa.array([7]))
    stories, same = read_truth(tmp_path / "truth.csv", {"who": ["trader", "owner"]}, found.schema)
    assert score(found, stories, same)[0].found == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("truth.csv", "rule,start,end,symbol"),
        ("truth.csv", "rule,start,end,symbol,label\n"),
    ],
)
def test_a_truth_without_stories_is_empty(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    stories, same = read_truth(tmp_path / name, {}, SCHEMA)
    assert len(stories) == 0
    assert score(matches(("r", "x", "ann", 0, 5)), stories, same) == []
    assert len(truth_in(stories, ["r"], Scope(from_us=0), same)) == 0


CSV_TIMES = "1970-01-01T00:00:03Z,1970-01-01T00:00:09Z"
JSON_TIMES = '"start": "1970-01-01T00:00:03Z", "end": "1970-01-01T00:00:09Z"'


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.csv", f"rule,start,end,symbol\n,{CSV_TIMES},x\n", "`rule` of `PATH` is NULL in row 1"),
        ("t.csv", f"rule,start,end,symbol\nr,{CSV_TIMES},x\nr,,1970-01-01,x", "`start` .* is NULL in row 2"),
        ("t.csv", "rule,start,end,symbol\nr,1970-01-01,,x", "`end` of `PATH` is NULL in row 1"),
        (
            "t.csv",
            "rule,start,end,symbol\nr,1714521600,1714521601,x",
            "`start` of `PATH` is no time in line 2",
        ),
        ("t.csv", f"rule,start,end,symbol,symbol\nr,{CSV_TIMES},x,x", "has column `symbol` more than once"),
        ("t.csv", f"rule,start,end,end,symbol\nr,{CSV_TIMES},x,x", "has column `end` more than once"),
        ("t.csv", f"rule,start,end,symbol\nr,{CSV_TIMES}\n", "PATH:2: 3 fields where the header has 4"),
        (
            "t.csv",
            f"rule,start,end,count\nr,{CSV_TIMES},1.5\n",
            "`count` of `PATH` is not an integer in line 2",
        ),
        ("t.csv", '"rule', "first line of `PATH` is not a CSV header"),
        ("t.csv", "", "has no column `rule`, `start`, `end`"),
        ("t.jsonl", "", "has no column `rule`, `start`, `end`"),
        ("t.jsonl", f'{{"rule": null, {JSON_TIMES}, "symbol": "x"}}', "`rule` of `PATH` is NULL in row 1"),
        (
            "t.jsonl",
            f'{{"rule": 7, {JSON_TIMES}, "symbol": "x"}}',
            "`rule` of `PATH` is not a string in line 1",
        ),
        (
            "t.jsonl",
            f'{{"rule": "r", {JSON_TIMES}, "symbol": ["x"]}}',
            "`symbol` .* is not a string in line 1",
        ),
        (
            "t.jsonl",
            f'{{"rule": "r", {JSON_TIMES}, "symbol": {{"x": 1}}}}',
            "`symbol` .* is not a string in line 1",
        ),
        (
            "t.jsonl",
            '{"rule": "r", "start": 1714521600, "end": 1714521600, "symbol": "x"}',
            "no time in line 1",
        ),
        ("t.jsonl", f'{{"rule": "r", {JSON_TIMES}, "symbol": "x"}}\n7\n', "PATH:2: not a JSON object"),
        ("t.jsonl", f'[{{"rule": "r", {JSON_TIMES}, "symbol": "x"}}]', "PATH"),
    ],
)
def test_a_value_that_cannot_be_compared_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    schema = SCHEMA.append(pa.field("count", pa.int64()))
    with pytest.raises(InputError, match=says.replace("PATH", str(path))) as caught:
        read_truth(path, {}, schema)
    assert caught.value.code == "E0690"
    assert "declare" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("start", pa.array([1_714_521_600]), "`start` of .* is no time in row 1"),
        ("start", pa.nulls(1), "`start` of .* is NULL in row 1"),
        ("rule", pa.nulls(1), "`rule` of .* is NULL in row 1"),
        ("symbol", pa.array([["x"]]), "`symbol` of .* is not a string in any row"),
    ],
)
def test_a_value_of_parquet_that_cannot_be_compared_is_refused(
    tmp_path: Path, column: str, values: pa.Array, says: str
) -> None:
    stories = truth(("r", "x", "ann", 3, 9))
    stories = stories.set_column(stories.column_names.index(column), column, values)
    pq.write_table(stories, tmp_path / "truth.parquet")
    with pytest.raises(InputError, match=says) as caught:
        read_truth(tmp_path / "truth.parquet", {}, SCHEMA)
    assert caught.value.code == "E0690"


def test_lists_of_matches_are_not_compared(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("amounts", pa.list_(pa.float64())))
    (tmp_path / "truth.csv").write_text(f"rule,start,end,symbol,amounts\nr,{CSV_TIMES},x,many\n")
    assert read_truth(tmp_path / "truth.csv", {}, schema)[1] == {"symbol": ["symbol"]}
    with pytest.raises(InputError, match="the matches have no column `amounts`"):
        read_truth(tmp_path / "truth.csv", {"symbol": ["amounts"]}, schema)


@pytest.mark.parametrize(
    ("table", "same", "says"),
    [
        ({"rule": ["r"], "end": [1]}, {}, "has no column `start`"),
        ({"rule": ["r"], "start": [1], "end": [1], "color": ["red"]}, {}, "no column of"),
        ({"rule": ["r"], "start": [1], "end": [1]}, {"color": ["symbol"]}, "has no column `color`"),
        (
            {"rule": ["r"], "start": [1], "end": [1], "color": ["red"]},
            {"color": ["paint", "hue"]},
            "the matches have no column `paint` or `hue`, which is to be the same as `color`",
        ),
        ({"rule": ["r"], "start": ["soon"], "end": [1], "symbol": ["x"]}, {}, "`start` of"),
    ],
)
def test_a_truth_that_cannot_be_compared_is_refused(
    tmp_path: Path, table: dict[str, list[object]], same: dict[str, list[str]], says: str
) -> None:
    path = tmp_path / "truth.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(InputError, match=says) as caught:
        read_truth(path, same, SCHEMA)
    assert caught.value.code == "E0690"


@pytest.mark.parametrize("name", ["truth.txt", "missing.parquet", "broken.csv"])
def test_a_file_that_is_no_truth_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "truth.txt").write_text("r")
    (tmp_path / "broken.csv").write_bytes(b'a,b\n"')
    with pytest.raises(InputError) as caught:
        read_truth(tmp_path / name, {}, SCHEMA)
    assert caught.value.code == "E0690"


def test_stories_count_if_they_end_in_the_range_and_are_of_a_key_in_the_sample() -> None:
    stories = truth(*(("r", f"s{n}", "ann", n, n) for n in range(100)), ("other", "s1", "ann", 1, 1))
    same = {"symbol": ["symbol"]}
    found = truth_in(stories, ["r"], Scope(from_us=10_000_000, to_us=20_000_000), same)
    assert found["symbol"].to_pylist() == [f"s{n}" for n in range(10, 20)]
    sample = Sample(0.3, {"orders": ("symbol",)}, {"r": ("symbol",)})
    sampled = truth_in(stories, ["r"], Scope(sample=sample), same)
    assert sampled.equals(
        stories.slice(0, 100).filter(pa.array(sample.has(stories.slice(0, 100), ["symbol"])))
    )
    assert 15 < len(sampled) < 45
    with pytest.raises(InputError, match="write --same COLUMN=symbol"):
        truth_in(stories, ["r"], Scope(sample=sample), {"person": ["trader"]})
