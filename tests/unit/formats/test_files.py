"""Event files: what is read, what is refused and with which words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cep.counts import Counts
from cep.errors import InputError
from cep.formats.files import Format, find_files, read_events
from cep.formats.intake import count_chunk
from cep.formats.text import csv_lines, json_lines
from cep.schema.stream import DDL_TYPES, Field, Stream
from cep.schema.text_values import column_from_text
from cep.schema.time_values import timestamp_us

STREAM = Stream(
    name="payments",
    fields=(
        Field("id", "bigint"),
        Field("card", "string"),
        Field("ts", "timestamp"),
        Field("amount", "double"),
        Field("approved", "boolean"),
        Field("level", "tinyint"),
    ),
    event_time="ts",
)
GOOD = '{"id":1,"card":"c1","ts":"2024-05-01T10:00:00Z","amount":9.5,"approved":true,"level":3}'
GOOD_US = 1_714_557_600_000_000


def _writes_views() -> bool:
    try:
        pq.write_table(pa.table({"a": pa.array(["a"], pa.string_view())}), pa.BufferOutputStream())
    except pa.ArrowNotImplementedError:
        return False
    return True


WRITES_VIEWS = pytest.mark.skipif(not _writes_views(), reason="this Arrow writes no views to Parquet")


def read(
    path: Path, stream: Stream = STREAM, **options: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    letters: list[dict[str, Any]] = []
    for chunk in read_events(path, stream, **options):
        events += chunk.events.to_pylist()
        letters += chunk.dead_letters.to_pylist()
    return events, letters


def write_lines(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return path


def event(**changes: Any) -> str:
    return json.dumps({**json.loads(GOOD), **changes})


def test_a_json_line_becomes_a_typed_event(tmp_path: Path) -> None:
    events, letters = read(write_lines(tmp_path / "a.json", GOOD))
    assert events == [{"id": 1, "card": "c1", "ts": GOOD_US, "amount": 9.5, "approved": True, "level": 3}]
    assert letters == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "not a JSON object"),
        (GOOD[:-5], "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{" + GOOD + "}", "not a JSON object"),
        (GOOD + GOOD, "not a JSON object"),
        (b'{"card":"\xff"}', "not UTF-8 text"),
        (b"\xff", "not UTF-8 text"),
        (event(id="1"), 'field `id` is not of type bigint: "1"'),
        (event(id=1.5), "field `id` is not of type bigint: 1.5"),
        (event(id=2**63), "field `id` is not of type bigint: 9223372036854775808"),
        (event(id=True), "field `id` is not of type bigint: true"),
        (event(level=128), "field `level` is not of type tinyint: 128"),
        (event(card=5), "field `card` is not of type string: 5"),
        (event(card={"a": [1]}), 'field `card` is not of type string: {"a":[1]}'),
        (event(card="x" * 500)[:-1] + ',"amount":"y"}', 'field `amount` is not of type double: "y"'),
        (event(amount="x" * 500), 'field `amount` is not of type double: "' + "x" * 59 + "..."),
        (event(amount="9.5"), 'field `amount` is not of type double: "9.5"'),
        (event(amount=False), "field `amount` is not of type double: false"),
        (event(approved="true"), 'field `approved` is not of type boolean: "true"'),
        (event(approved=1), "field `approved` is not of type boolean: 1"),
        (
            event(ts=1714557600),
            "field `ts` is not of type timestamp: 1714557600; "
            "for seconds since 1970 declare {type: timestamp, unit: seconds}",
        ),
        (event(ts="yesterday"), 'field `ts` is not of type timestamp: "yesterday"'),
        (event(ts="2024-02-30T00:00:00Z"), 'field `ts` is not of type timestamp: "2024-02-30T00:00:00Z"'),
        (event(id="1", ts="x"), 'field `id` is not of type bigint: "1"'),
        (event(ts=None), "event time `ts` is NULL"),
        (event(ts="9999-12-31T00:00:00Z"), "event time `ts` is outside valid_time"),
        (event(ts="1969-12-31T23:59:59Z"), "event time `ts` is outside valid_time"),
        (event(card=None), "key is NULL: `card`"),
    ],
)
@pytest.mark.parametrize("n_good", [0, 500])
def test_a_bad_json_line_is_a_dead_letter_wherever_it_stands(
    tmp_path: Path, line: str | bytes, reason: str, n_good: int
) -> None:
    path = write_lines(tmp_path / "a.json", *[GOOD] * n_good, line, *[GOOD] * n_good)
    events, letters = read(path, keys=[("card",)])
    raw = line if isinstance(line, str) else line.decode(errors="replace")
    assert letters == [{"reason": reason, "source": str(path), "position": n_good + 1, "raw": raw}]
    assert len(events) == 2 * n_good


def test_missing_fields_are_null_and_unknown_ones_are_not_looked_at(tmp_path: Path) -> None:
    lines = ['{"ts":"2024-05-01","other":[{"deep":1}]}'] * 100
    events, letters = read(write_lines(tmp_path / "a.json", *lines))
    assert letters == []
    assert events[99] == {
        "id": None, "card": None, "ts": 1_714_521_600_000_000, "amount": None, "approved": None, "level": None
    }  # fmt: skip


def test_empty_lines_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n\r\n   \r\n  " + GOOD.encode() + b" \r\nbad")
    events, letters = read(path)
    assert len(events) == 2
    assert [letter["position"] for letter in letters] == [5]


def test_an_event_with_one_whole_key_of_several_is_kept(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.json", event(card=None), event(card=None, id=None))
    events, letters = read(path, keys=[("card",), ("id",)])
    assert len(events) == 1
    assert [letter["reason"] for letter in letters] == ["key is NULL: `card`, `id`"]


@pytest.mark.parametrize("block_bytes", [1, 7, 100, 10_000])
def test_the_size_of_blocks_changes_nothing(tmp_path: Path, block_bytes: int) -> None:
    lines = [event(id=number) if number % 7 else "bad" for number in range(100)]
    path = write_lines(tmp_path / "a.json", *lines)
    events, letters = read(path, block_bytes=block_bytes)
    assert [row["id"] for row in events] == [number for number in range(100) if number % 7]
    assert [letter["position"] for letter in letters] == [number + 1 for number in range(0, 100, 7)]


def test_a_float_is_the_nearest_32_bit_number(tmp_path: Path) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("x", "float")), "ts")
    line = '{"ts":"2024-05-01","x":0.1}'
    for n_lines in (1, 100):
        events, _ = read(write_lines(tmp_path / "a.json", *[line] * n_lines), stream)
        assert events[0]["x"] == 0.10000000149011612


CSV = "id,card,ts,amount,approved,level,note"


def test_a_csv_line_becomes_a_typed_event(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.csv", CSV, '1,"c, ""1""",2024-05-01 10:00:00,9.5,TRUE,3,x', '2,"",2024-05-01,,,,'
    )
    events, letters = read(path)
    assert letters == []
    assert events == [
        {"id": 1, "card": 'c, "1"', "ts": GOOD_US, "amount": 9.5, "approved": True, "level": 3},
        {"id": 2, "card": None, "ts": 1_714_521_600_000_000, "amount": None, "approved": None, "level": None},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,c1,2024-05-01,9.5,true,3", "6 fields where the header has 7"),
        ("1,c1,2024-05-01,9.5,true,3,,", "8 fields where the header has 7"),
        ('1,"c1,2024-05-01,9.5,true,3,', "a quote that does not enclose a whole field"),
        (b"1,\xff,2024-05-01,9.5,true,3,", "not UTF-8 text"),
        ("one,c1,2024-05-01,9.5,true,3,", "field `id` is not of type bigint: one"),
        ("1.0,c1,2024-05-01,9.5,true,3,", "field `id` is not of type bigint: 1.0"),
        (" 1,c1,2024-05-01,9.5,true,3,", "field `id` is not of type bigint:  1"),
        ("0x1F,c1,2024-05-01,9.5,true,3,", "field `id` is not of type bigint: 0x1F"),
        (
            "9223372036854775808,c1,2024-05-01,9.5,true,3,",
            "field `id` is not of type bigint: 9223372036854775808",
        ),
        ("1,c1,2024-05-01,9.5,true,200,", "field `level` is not of type tinyint: 200"),
        ("1,c1,2024-05-01,9-5,true,3,", "field `amount` is not of type double: 9-5"),
        ("1,c1,2024-05-01,9.5,yes,3,", "field `approved` is not of type boolean: yes"),
        ("1,c1,01/05/2024,9.5,true,3,", "field `ts` is not of type timestamp: 01/05/2024"),
        ("1,c1,,9.5,true,3,", "event time `ts` is NULL"),
        ("1,,2024-05-01,9.5,true,3,", "key is NULL: `card`"),
    ],
)
def test_a_bad_csv_line_is_a_dead_letter(tmp_path: Path, line: str | bytes, reason: str) -> None:
    good = "1,c1,2024-05-01T10:00:00Z,9.5,true,3,"
    path = write_lines(tmp_path / "a.csv", CSV, good, line, good)
    events, letters = read(path, keys=[("card",)])
    raw = line if isinstance(line, str) else line.decode(errors="replace")
    assert letters == [{"reason": reason, "source": str(path), "position": 3, "raw": raw}]
    assert len(events) == 2


def test_the_largest_and_smallest_integers_are_read_from_csv(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.csv",
        CSV,
        "9223372036854775807,,2024-05-01,,,127,",
        "-9223372036854775808,,2024-05-01,,,-128,",
    )
    events, letters = read(path)
    assert letters == []
    assert [(row["id"], row["level"]) for row in events] == [(2**63 - 1, 127), (-(2**63), -128)]


def test_special_doubles_are_read_from_csv_and_json(tmp_path: Path) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("x", "double")), "ts")
    texts = ["NaN", "Infinity", "-Infinity", "1e400", "5", "-0.5e-3"]
    expected = "[nan, inf, -inf, inf, 5.0, -0.0005]"
    as_csv = write_lines(tmp_path / "a.csv", "x,ts", *[f"{text},2024-05-01" for text in texts])
    as_json = write_lines(tmp_path / "a.json", *[f'{{"x":{text},"ts":"2024-05-01"}}' for text in texts])
    for path in (as_csv, as_json):
        events, letters = read(path, stream)
        assert letters == []
        assert str([row["x"] for row in events]) == expected


def parquet_table(n_rows: int = 1, **columns: pa.Array) -> pa.Table:
    default = {
        "id": pa.array(range(n_rows), pa.int64()),
        "card": pa.array(["c1"] * n_rows),
        "ts": pa.array([GOOD_US] * n_rows, pa.timestamp("us", tz="UTC")),
        "amount": pa.array([9.5] * n_rows),
        "approved": pa.array([True] * n_rows),
        "level": pa.array([3] * n_rows, pa.int8()),
    }
    return pa.table({**default, **columns})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ts", pa.array([GOOD_US * 1000 + 999], pa.timestamp("ns"))),
        ("ts", pa.array([GOOD_US // 1000], pa.timestamp("ms", tz="Europe/Berlin"))),
        ("id", pa.array([0], pa.int16())),
        ("card", pa.array(["c1"]).dictionary_encode()),
        pytest.param("card", pa.array(["c1"], pa.string_view()), marks=WRITES_VIEWS),
        ("amount", pa.array([9.5], pa.float32())),
    ],
)
def test_parquet_types_that_fit_are_read_as_declared(tmp_path: Path, name: str, values: pa.Array) -> None:
    pq.write_table(parquet_table(**{name: values}), tmp_path / "a.parquet")
    events, letters = read(tmp_path / "a.parquet")
    assert letters == []
    assert events == [{"id": 0, "card": "c1", "ts": GOOD_US, "amount": 9.5, "approved": True, "level": 3}]


@WRITES_VIEWS
@pytest.mark.parametrize("in_worker", [False, True])
def test_views_of_strings_and_bytes_are_read_as_strings_and_bytes(tmp_path: Path, in_worker: bool) -> None:
    view = pa.string_view()
    kinds = {
        "text": view,
        "data": pa.binary_view(),
        "tags": pa.list_(view),
        "names": pa.map_(view, view),
        "place": pa.struct([("name", view), ("n", pa.int64())]),
    }
    row = {
        "text": "a", "data": b"\x01", "tags": ["b"], "names": [("c", "d")], "place": {"name": "e", "n": 1},
    }  # fmt: skip
    columns = {name: pa.array([row[name], None], kind) for name, kind in kinds.items()}
    columns["ts"] = pa.array([GOOD_US] * 2, pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    fields = (
        *(Field("ts", "timestamp"), Field("text", "string"), Field("data", "binary")),
        *(Field("tags", "array<string>"), Field("names", "map<string,string>")),
        *(Field("place", "struct<name:string,n:bigint>"), Field("name", "string", path=("place", "name"))),
        Field("tag", "string", path=("tags",), element=(0,)),
    )
    (chunk,) = read_events(tmp_path / "a.parquet", Stream("s", fields, "ts"), in_worker=in_worker)
    assert chunk.dead_letters.to_pylist() == []
    nothing = {field.name: None for field in fields}
    assert chunk.events.to_pylist() == [
        {
            "ts": GOOD_US, "text": "a", "data": "AQ==", "tags": '["b"]', "names": '{"c":"d"}',
            "place": '{"name":"e","n":1}', "name": "e", "tag": "b",
        },
        {**nothing, "ts": GOOD_US},
    ]  # fmt: skip


def test_texts_that_a_parquet_file_repeats_come_as_dictionaries_to_a_worker(tmp_path: Path) -> None:
    cards = pa.array(["c1", None, "c2"] * 1000)
    pq.write_table(parquet_table(3000, card=cards), tmp_path / "a.parquet", row_group_size=700)
    plain = [chunk.events for chunk in read_events(tmp_path / "a.parquet", STREAM)]
    coded = [chunk.events for chunk in read_events(tmp_path / "a.parquet", STREAM, in_worker=True)]
    assert {table.schema.field("card").type for table in coded} == {pa.dictionary(pa.int32(), pa.string())}
    assert [table.to_pylist() for table in coded] == [table.to_pylist() for table in plain]
    assert sum(map(len, coded)) == 3000


def test_texts_that_a_parquet_file_does_not_repeat_come_as_they_are_to_a_worker(tmp_path: Path) -> None:
    cards = pa.array([f"card number {number}" for number in range(3000)])
    pq.write_table(parquet_table(3000, card=cards), tmp_path / "a.parquet")
    (chunk,) = read_events(tmp_path / "a.parquet", STREAM, in_worker=True)
    assert whole_text(chunk.events, "card") == cards.to_pylist()
    assert chunk.events.schema.field("card").type == pa.string()


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["c1"] * 50, pa.large_string()),
        pytest.param(pa.array(["c1"] * 50, pa.string_view()), marks=WRITES_VIEWS),
        pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int8()), pa.array(["c1"])),
    ],
)
def test_texts_of_other_arrow_types_come_as_declared_to_a_worker(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(parquet_table(50, card=values), tmp_path / "a.parquet")
    (chunk,) = read_events(tmp_path / "a.parquet", STREAM, in_worker=True)
    assert whole_text(chunk.events, "card") == ["c1"] * 50
    kind = chunk.events.schema.field("card").type
    assert kind in (pa.string(), pa.dictionary(pa.int32(), pa.string()))


def whole_text(table: pa.Table, name: str) -> list[str | None]:
    found: list[str | None] = table.column(name).to_pylist()
    return found


def test_a_parquet_row_without_a_time_is_a_dead_letter(tmp_path: Path) -> None:
    times = pa.array([GOOD_US, None, GOOD_US], pa.timestamp("us"))
    pq.write_table(parquet_table(3, ts=times), tmp_path / "a.parquet")
    events, letters = read(tmp_path / "a.parquet")
    assert [row["id"] for row in events] == [0, 2]
    assert letters == [
        {
            "reason": "event time `ts` is NULL",
            "source": str(tmp_path / "a.parquet"),
            "position": 2,
            "raw": '{"id":1,"card":"c1","ts":null,"amount":9.5,"approved":true,"level":3}',
        }
    ]


def message(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_missing_path_is_one_clear_error(tmp_path: Path) -> None:
    assert message(tmp_path / "a.json") == "error[E0601]: there is no file or directory `a.json`"


def test_an_empty_file_is_one_clear_error(tmp_path: Path) -> None:
    assert message(write_lines(tmp_path / "a.json")) == "error[E0603]: `a.json` is empty"


def test_a_directory_without_event_files_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in" / "_SUCCESS", "x")
    assert message(tmp_path / "in").startswith(
        "error[E0603]: there are no event files in `in`\nhelp: files of events"
    )


def test_an_unknown_ending_needs_a_format(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.log", GOOD)
    assert message(path) == (
        "error[E0602]: the format of `a.log` cannot be told\nhelp: give the format: json, csv or parquet"
    )
    assert len(read(path, file_format=Format.JSON)[0]) == 1


def test_a_csv_file_without_a_declared_column_is_one_clear_error(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "id,ts,card,level", "1,2024-05-01,c1,3")
    assert message(path) == (
        "error[E0604]: `a.csv` has no columns `amount`, `approved`, which stream `payments` declares\n"
        "help: columns of the file: id, ts, card, level"
    )


def test_a_csv_file_with_a_declared_column_twice_is_one_clear_error(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", CSV + ",id", "1,c1,2024-05-01,9.5,true,3,,2")
    assert message(path) == "error[E0604]: `a.csv` has column `id` more than once"


def test_a_csv_file_that_begins_with_a_broken_line_is_one_clear_error(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", '"id,card', "x")
    assert message(path).startswith("error[E0606]: the first line of `a.csv` is not a CSV header")


def test_a_parquet_file_without_a_declared_column_is_one_clear_error(tmp_path: Path) -> None:
    pq.write_table(parquet_table().drop_columns(["amount"]), tmp_path / "a.parquet")
    assert message(tmp_path / "a.parquet").startswith(
        "error[E0604]: `a.parquet` has no column `amount`, which stream `payments` declares"
    )


@pytest.mark.parametrize(
    ("name", "values", "given"),
    [
        ("ts", pa.array(["2024-05-01"]), "string, the stream declares timestamp"),
        ("card", pa.array([1]), "int64, the stream declares string"),
        ("level", pa.array([1], pa.int64()), "int64, the stream declares tinyint"),
        ("level", pa.array([1], pa.uint8()), "uint8, the stream declares tinyint"),
        ("amount", pa.array([1], pa.int64()), "int64, the stream declares double"),
        ("approved", pa.array([1], pa.int8()), "int8, the stream declares boolean"),
    ],
)
def test_a_parquet_column_of_another_type_is_one_clear_error(
    tmp_path: Path, name: str, values: pa.Array, given: str
) -> None:
    pq.write_table(parquet_table(**{name: values}), tmp_path / "a.parquet")
    first = message(tmp_path / "a.parquet").splitlines()[0]
    assert first == f"error[E0605]: column `{name}` of `a.parquet` is {given}"


def test_a_file_that_is_not_parquet_is_one_clear_error(tmp_path: Path) -> None:
    assert message(write_lines(tmp_path / "a.parquet", GOOD)).startswith(
        "error[E0606]: `a.parquet` cannot be read as Parquet: "
    )


def test_a_damaged_gzip_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress((GOOD + "\n").encode() * 1000)[:60])
    assert message(path).startswith("error[E0606]: `a.json.gz` cannot be read: ")


def test_a_gzipped_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress((GOOD + "\n").encode() * 3))
    assert len(read(path)[0]) == 3


def test_a_directory_is_read_by_file_name_without_hidden_and_empty_files(tmp_path: Path) -> None:
    write_lines(tmp_path / "b.json", event(id=2), "bad")
    write_lines(tmp_path / "a.json", event(id=1))
    write_lines(tmp_path / "empty.json")
    write_lines(tmp_path / "_spark_metadata.json", "bad")
    write_lines(tmp_path / ".b.json.crc", "bad")
    write_lines(tmp_path / "c.json.tmp", "bad")
    events, letters = read(tmp_path)
    assert [row["id"] for row in events] == [1, 2]
    assert [(Path(letter["source"]).name, letter["position"]) for letter in letters] == [("b.json", 2)]


@pytest.mark.parametrize(
    ("path", "file_format", "partial"),
    [
        ("in", None, ["in/b.json.tmp", "in/c.json~"]),
        ("in", "json", ["in/b.json.tmp", "in/c.json~", "in/notes.tmp"]),
        ("in/*", None, ["in/b.json.tmp", "in/c.json~", "in/notes.tmp"]),
        ("in/*.json", None, []),
        ("in/*.tmp", "json", []),  # they are read
        ("*/*.json", None, ["run.tmp/d.json"]),
        ("in/a.json", None, []),
        ("in/b.json.tmp", "json", []),
    ],
)
def test_files_that_seem_incomplete_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, file_format: str | None, partial: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("run.tmp").mkdir()
    for name in ("a.json", "b.json.tmp", "c.json~", "_x.json.tmp", "notes.tmp"):
        write_lines(Path("in", name), event(id=1))
    write_lines(Path("run.tmp/d.json"), event(id=1))
    counts = Counts()
    for chunk in read_events(path, STREAM, file_format):
        counts.add(count_chunk(chunk, STREAM))
    assert list(counts.partial) == partial
    assert counts.events == (2 if path == "in/*.tmp" else 1)


def test_a_link_that_leads_nowhere_is_one_clear_error(tmp_path: Path) -> None:
    for day in ("1", "2"):
        (tmp_path / day).mkdir()
        write_lines(tmp_path / day / "a.json", GOOD)
    lost = tmp_path / "1/b.json"
    lost.symlink_to("/mnt/gone/b.json")
    (tmp_path / "1/.hidden.json").symlink_to("/mnt/gone/b.json")
    (tmp_path / "1/notes.txt").symlink_to("/mnt/gone/notes.txt")
    for path in (tmp_path / "1", tmp_path / "1/*.json", tmp_path / "*/*.json"):
        with pytest.raises(InputError, match=f"`{lost}` is a link to `/mnt/gone/b.json`") as caught:
            find_files(path)
        assert caught.value.code == "E0601"
    lost.unlink()
    assert len(find_files(tmp_path / "*/*.json")[0]) == 2
    lost.symlink_to(tmp_path / "2/a.json")
    assert len(read(tmp_path / "1")[0]) == 2
    (tmp_path / "3").symlink_to("/mnt/gone")  # it may have files of the pattern
    with pytest.raises(InputError, match="3` is a link to `/mnt/gone`"):
        find_files(tmp_path / "*/*.json")


@pytest.mark.parametrize(
    ("log", "kind"),
    [("_delta_log/0.json", "Delta"), (".hoodie/x", "Hudi"), ("metadata/v1.metadata.json", "Iceberg")],
)
def test_the_folder_of_a_table_is_one_clear_error(tmp_path: Path, log: str, kind: str) -> None:
    files = tmp_path / "table/data/day=1"
    files.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), files / "a.parquet")
    assert len(find_files(files)[0]) == 1
    (tmp_path / "table" / log).parent.mkdir()
    (tmp_path / "table" / log).write_text("{}")
    for path in (files, files / "*.parquet", tmp_path / "table/data/{day}/*.parquet"):
        with pytest.raises(InputError, match=f"/table` is a table of {kind}") as caught:
            find_files(path, "parquet")
        assert caught.value.code == "E0606"
        assert f"`detect` and Spark's connector for {kind}" in str(caught.value.help)


def test_a_partition_without_a_value_is_null(tmp_path: Path) -> None:
    line = '{"id":1,"card":"z","ts":"2024-05-01T10:00:00Z"}'
    for card in ("c1", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / f"card={card}" / f"level={card.replace('c1', '7')}"
        folder.mkdir(parents=True)
        write_lines(folder / "a.json", line)
    events, letters = read(tmp_path / "card={card}" / "level={level}" / "*.json")
    assert letters == []
    assert sorted((event["card"], event["level"]) for event in events if event["card"]) == [("c1", 7)]
    assert [event["level"] for event in events if event["card"] is None] == [None]


def test_files_of_two_formats_in_one_directory_need_a_format(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", GOOD)
    write_lines(tmp_path / "a.csv", CSV)
    with pytest.raises(InputError, match="has files of several formats"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", 1_714_521_600_000_000),
        ("2024-05-01T10:00", GOOD_US),
        ("2024-05-01 10:00:00", GOOD_US),
        ("2024-05-01T10:00:00.5Z", GOOD_US + 500_000),
        ("2024-05-01T10:00:00.123456789", GOOD_US + 123_456),
        ("2024-05-01T12:00:00+02:00", GOOD_US),
        ("2024-05-01T12:00:00.000+0200", GOOD_US),
        ("2024-05-01T07:30-02:30", GOOD_US),
        ("2024-05-01 05:00:00-05", GOOD_US),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("0001-01-01", -62_135_596_800_000_000),
        ("2024-05-01T24:00:00", None),
        ("2024-05-01T10:00:60", None),
        ("2023-02-29", None),
        ("2024-5-1", None),
        ("2024-05-01T10", None),
        ("2024-05-01T10:00:00,5", None),
        ("2024-05-01T10:00:00 Z", None),
        ("2024-05-01Z", None),
        ("20240501", None),
        ("2024-05-01T10:00:00.1234567890", None),
        ("\uff12024-05-01", None),
        ("2024-05-01\n", None),
        ("", None),
    ],
)
def test_a_time_is_iso_8601(text: str, expected: int | None) -> None:
    assert timestamp_us(text) == expected
    # The same among other times with and without a zone, and beside NULL.
    texts = pa.array([text, None, "2024-05-01T10:00:00Z", "2024-05-01T10:00:00"])
    values, bad = column_from_text(texts, Field("ts", "timestamp"))
    assert values.to_pylist() == [expected, None, GOOD_US, GOOD_US]
    assert bad.tolist() == [expected is None, False, False, False]


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-200, 200),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01 10:00:00.1234567-03", "2024-02-30"]),
    st.lists(st.integers(), max_size=2),
)
NAMES = [field.name for field in STREAM.fields]


@given(
    st.lists(
        st.dictionaries(st.sampled_from([*NAMES, "other"]), JSON_VALUES).map(
            lambda values: json.dumps(values).encode()
        )
        | st.binary(max_size=20).filter(lambda line: not set(line) & set(b"\r\n")),
        min_size=1,
        max_size=8,
    )
)
def test_arrow_and_the_line_reader_agree_on_every_line(lines: list[bytes]) -> None:
    one_by_one = json_lines.parse(lines, STREAM)
    n_copies = json_lines.ONE_BY_ONE + 1
    for index, line in enumerate(lines):
        events, rows, problems = json_lines.parse([line] * n_copies, STREAM)
        alone = [problem for at, problem in one_by_one[2] if at == index]
        assert [problem for _, problem in problems] == alone * n_copies
        if len(rows):
            at = one_by_one[1].tolist().index(index)
            assert str(events.to_pylist()) == str(one_by_one[0].slice(at, 1).to_pylist() * n_copies)


@given(st.lists(st.text(alphabet='a",1.', max_size=12).map(str.encode), max_size=6))
def test_every_csv_line_is_an_event_or_a_dead_letter_or_empty(lines: list[bytes]) -> None:
    parsed = csv_lines.read(lines, NAMES, STREAM)
    assert len(parsed.events) == len(parsed.indices)
    seen = sorted([*parsed.indices.tolist(), *(index for index, _ in parsed.problems)])
    assert seen == [index for index, line in enumerate(parsed.records) if line]
    # A record of several lines stands on its first one.
    assert [line for line in b"\n".join(parsed.records).split(b"\n") if line] == [
        line for line in lines if line
    ]


def test_every_declared_type_can_be_read_from_text() -> None:
    texts = {"boolean": "true", "string": "x", "timestamp": "2024-05-01", "date": "2024-05-01"}
    for ddl in DDL_TYPES:
        values, bad = column_from_text(pa.array([texts.get(ddl, "1"), None]), Field("x", ddl))
        assert not bad.any()
        assert values.is_valid().to_pylist() == [True, False]
