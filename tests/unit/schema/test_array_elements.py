"""A column may be an element of an array: the same in all formats, and NULL where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.errors import InputError, Source
from cep.formats.files import read_events
from cep.formats.late_events import late_events
from cep.formats.text import json_lines
from cep.formats.text.json import columns
from cep.output.files import write_late
from cep.schema.stream import Stream
from cep.settings.schema_file import parse_streams

SCHEMA = """
      ts: timestamp
      value: {type: double, field: "readings[0].value"}
      second: {type: double, field: "readings[1].value"}
      at: {type: timestamp, unit: seconds, field: "readings[1].at"}
      cell: {type: int, field: "n.grid[1][0]"}
      tag: {type: string, field: "`my.tags`[2]"}
      whole: {type: "array<int>", field: "n.grid[0]"}
"""


def stream_of(schema: str = SCHEMA) -> Stream:
    streams, problems = parse_streams(
        Source("s.yaml", f"streams:\n  s:\n    event_time: ts\n    schema:{schema}")
    )
    assert problems == []
    return streams["s"]


def at(tree: Any, *place: str | int) -> Any:
    """Return the value at a place as somebody would look it up by hand; `...`: it cannot be there."""
    for part in place:
        match tree, part:
            case None, _:
                return None
            case list(), int():
                tree = tree[part] if part < len(tree) else None
            case dict(), str():
                tree = tree.get(part)
            case _:
                return ...
    return tree


def draw(random: Random, depth: int = 0) -> Any:
    if depth < 4 and random.random() < 0.6:
        if random.random() < 0.6:
            return [draw(random, depth + 1) for _ in range(random.randint(0, 3))]
        return {
            name: draw(random, depth + 1)
            for name in random.sample(("value", "at", "x"), random.randint(0, 3))
        }
    return random.choice((None, *(1, 2.5, -0.5) * 5, "a"))


def test_lines_are_read_as_one_would_by_hand() -> None:
    random = Random(3)
    stream = stream_of("""
      ts: timestamp
      value: {type: double, field: "r[0].value"}
      deep: {type: double, field: "r[1][0]"}
      x: {type: double, field: "n.x[2].at[0]"}""")
    places: dict[str, tuple[str | int, ...]] = {
        "value": ("r", 0, "value"),
        "deep": ("r", 1, 0),
        "x": ("n", "x", 2, "at", 0),
    }
    columns.compile_kernel()
    trees = []
    for _ in range(3000):
        likely = [{"value": random.choice((1, None))}, [random.choice((2.5, None, "a"))], draw(random)]
        r = random.choice((likely[: random.randint(0, 3)], draw(random)))
        trees.append({"ts": "2024-05-01", "r": r, "n": {"x": draw(random)}})
    lines = [json.dumps(tree).encode() for tree in trees]
    events, rows, problems = json_lines.parse(lines, stream)
    found = dict(zip(rows.tolist(), events.to_pylist(), strict=True))
    for row, tree in enumerate(trees):
        values = {name: at(tree, *place) for name, place in places.items()}
        if all(value is None or isinstance(value, int | float) for value in values.values()):
            assert {name: found[row][name] for name in places} == values
        else:
            assert row not in found
    assert len(found) + len(problems) == len(trees)
    assert sum(row["deep"] is not None for row in found.values()) > 20


LINES: list[dict[str, Any]] = [
    {
        "ts": "2024-05-01T00:00:00Z",
        "readings": [{"value": 1.5}, {"value": 2.5, "at": 1714557600}],
        "n": {"grid": [[1, 2], [3]]},
        "my.tags": ["a", "b", "c"],
    },
    {"ts": "2024-05-01T00:00:01Z", "readings": [], "n": {"grid": None}, "my.tags": ["a"]},
    {"ts": "2024-05-01T00:00:02Z", "readings": None, "n": None, "my.tags": None},
    {
        "ts": "2024-05-01T00:00:03Z",
        "readings": [None, {"value": 4.5}],
        "n": {"grid": [[], []]},
        "my.tags": [],
    },
]


def expected() -> list[dict[str, Any]]:
    us = 1_714_521_600_000_000
    rows = [
        (us, 1.5, 2.5, 1_714_557_600_000_000, 3, "c", "[1,2]"),
        (us + 10**6, *[None] * 6),
        (us + 2 * 10**6, *[None] * 6),
        (us + 3 * 10**6, None, 4.5, None, None, None, "[]"),
    ]
    names = [field.name for field in stream_of().fields]
    return [dict(zip(names, row, strict=True)) for row in rows]


def read(file: Path, stream: Stream) -> list[dict[str, Any]]:
    chunks = list(read_events(file, stream))
    assert [row for chunk in chunks for row in chunk.dead_letters.to_pylist()] == []
    return [row for chunk in chunks for row in chunk.events.to_pylist()]


def write_parquet(file: Path) -> None:
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us", "UTC")),
            ("readings", pa.list_(pa.struct([("value", pa.float64()), ("at", pa.int64())]))),
            ("n", pa.struct([("grid", pa.list_(pa.list_(pa.int32())))])),
            ("my.tags", pa.list_(pa.string())),
        ]
    )
    rows = [{**line, "ts": 1_714_521_600_000_000 + number * 10**6} for number, line in enumerate(LINES)]
    pq.write_table(pa.Table.from_pylist(rows, schema), file)


def test_parquet_and_json_give_the_same_events(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    write_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.jsonl", stream_of()) == expected()
    assert read(tmp_path / "a.parquet", stream_of()) == expected()
    wrong = stream_of(SCHEMA.replace("value: {type: double", "value: {type: string", 1))
    with pytest.raises(
        InputError, match=r"column `readings\[0\].value` of .* is double, the stream declares string"
    ):
        read(tmp_path / "a.parquet", wrong)
    with pytest.raises(InputError, match=r"has no column `my.tags\[2\].x`"):
        read(tmp_path / "a.parquet", stream_of(SCHEMA.replace("`my.tags`[2]", "`my.tags`[2].x")))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_late_events_are_read_again(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    # A CSV file holds no arrays.
    stream = stream_of(SCHEMA[: SCHEMA.index("      whole")] if suffix == ".csv" else SCHEMA)
    (chunk,) = read_events(tmp_path / "a.jsonl", stream)
    write_late(tmp_path / f"late{suffix}", {stream: late_events(chunk.events, np.zeros(4, np.int64), stream)})
    assert read(tmp_path / f"late{suffix}", stream) == chunk.events.to_pylist()
    if suffix == ".jsonl":
        first = json.loads((tmp_path / "late.jsonl").read_text().splitlines()[0])
        assert first["readings"] == [{"value": 1.5}, {"value": 2.5, "at": 1714557600}]
        assert (first["my.tags"], first["n"]) == ([None, None, "c"], {"grid": [[1, 2], [3]]})


def test_a_csv_file_may_have_a_column_of_this_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,readings[0].value,temp [C]\n2024-05-01,1.5,20\n")
    stream = stream_of(
        """\n      ts: timestamp\n      v: {type: double, field: "readings[0].value"}
      t: {type: double, field: "temp [C]"}"""
    )
    assert read(tmp_path / "a.csv", stream) == [{"ts": 1_714_521_600_000_000, "v": 1.5, "t": 20.0}]


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-05-01","readings":{"0":1}}\n')
    (chunk,) = read_events(tmp_path / "a.jsonl", stream_of())
    [letter] = chunk.dead_letters.to_pylist()
    assert letter["reason"] == 'field `value` is not of type double: {"0":1}'
