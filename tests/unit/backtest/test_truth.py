"""How well rules found what there was to find: which alerts meet which stories, and which stories count."""

from __future__ import annotations

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
