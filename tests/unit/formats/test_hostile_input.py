"""Nothing that a file has in it raises: it is an event, a dead letter, or one error about the file."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.files import Format, Reading, read_events, read_file
from cep.formats.text import json_lines
from cep.schema.stream import Field, Stream
from tests.unit.formats.test_files import CSV, GOOD, STREAM, message, read, write_lines

TREES = Stream(
    "trees",
    (
        Field("ts", "timestamp"),
        Field("m", "map<string,bigint>"),
        Field("d", "array<double>"),
        Field("i", "map<int,double>"),
        Field("c", "array<decimal(10,2)>"),
        Field("t", "array<timestamp>"),
    ),
    "ts",
)
TIME = '"ts":"2024-05-01"'


def lines_alone_and_among_good_ones(line: str, stream: Stream, good: str) -> tuple[Any, str]:
    """Return the event of a line or None, and the reason why there is none, after writing the dead letter."""
    found = []
    for n in (0, 60):
        lines = [good.encode()] * n + [line.encode()] + [good.encode()] * n
        events, rows, problems = json_lines.parse(lines, stream)
        at = rows.tolist()
        event = events.slice(at.index(n), 1).to_pylist()[0] if n in at else None
        found.append((str(event), str(dict(problems).get(n, ""))))
        assert len(problems) + len(events) == len(lines)
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ('"m":{"a":1}', None),
        ('"m":[1]', "field `m` is not of type map<string,bigint>: [1]"),
        ('"m":[["a",2]]', 'field `m` is not of type map<string,bigint>: [["a",2]]'),
        ('"m":[]', "field `m` is not of type map<string,bigint>: []"),
        ('"i":{"1_0":1}', 'field `i` is not of type map<int,double>: {"1_0":1}'),
        ('"i":{"\u0663":1}', 'field `i` is not of type map<int,double>: {"\u0663":1}'),
        (f'"d":[1{"0" * 400}]', None),
        (f'"d":[1{"0" * 5000}]', None),
        ('"c":[1e400]', "field `c` is not of type array<decimal(10,2)>: [1e400]"),
        ('"c":[NaN]', "field `c` is not of type array<decimal(10,2)>: [NaN]"),
        (f'"c":[{"9" * 5000}]', f"field `c` is not of type array<decimal(10,2)>: [{'9' * 59}..."),
        (
            '"t":["9999-12-31T23:59-23:59"]',
            'field `t` is not of type array<timestamp>: ["9999-12-31T23:59-23:59"]',
        ),
        ('"t":["20240501"]', 'field `t` is not of type array<timestamp>: ["20240501"]'),
        ('"t":["2024-05-01T10:00+02"]', None),
        ('"t":["\\ud800"]', 'field `t` is not of type array<timestamp>: ["\\ud800"]'),
        ('"m":{"\\ud800":1}', 'field `m` is not of type map<string,bigint>: {"\\ud800":1}'),
    ],
)
def test_a_value_that_is_not_of_an_opaque_type_is_a_dead_letter(member: str, reason: str | None) -> None:
    _, found = lines_alone_and_among_good_ones(f"{{{TIME},{member}}}", TREES, f"{{{TIME}}}")
    assert found == (reason or "")


def test_numbers_of_many_digits_in_an_array_are_infinite(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.json", f'{{{TIME},"d":[1{"0" * 400},-1{"0" * 5000},-0,1e400]}}')
    events, letters = read(path, TREES)
    assert (events[0]["d"], letters) == ('["Infinity","-Infinity",-0.0,"Infinity"]', [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"amount":Inf}', "not a JSON object"),
        ('{"amount":-Inf}', "not a JSON object"),
        ('{"amount":-NaN}', "not a JSON object"),
        ('{"other":[Inf]}', "not a JSON object"),
        ('{"other":"Inf"}', {}),
        ('{"card":"-NaN, Inf"}', {"card": "-NaN, Inf"}),
        ('{"amount":-Infinity}', {"amount": float("-inf")}),
        ('{"amount":-0}', {"amount": -0.0}),
        ('{"id":-0}', {"id": 0}),
        (f'{{"amount":{"9" * 5000}}}', {"amount": float("inf")}),
        (f'{{"amount":-{"9" * 5000}}}', {"amount": float("-inf")}),
        (f'{{"other":{"9" * 5000}}}', {}),
        (f'{{"id":{"9" * 5000}}}', f"field `id` is not of type bigint: {'9' * 60}..."),
        ('{"id":1.50}', "field `id` is not of type bigint: 1.50"),
        ('{"id":1e2}', "field `id` is not of type bigint: 1e2"),
        (f'{{"other":{"[" * 99}{"]" * 99}}}', {}),
        (f'{{"other":{"[" * 100}{"]" * 100}}}', "nested more than 100 levels deep"),
        (f'{{"other":{"[" * 3000}{"]" * 3000}}}', "nested more than 100 levels deep"),
        (f'{{"other":{"[" * 200_000}}}', "nested more than 100 levels deep"),
        (f'{{"other":"{"[" * 3000}"}}', {}),
        ('{"ts":"0000-01-01"}', 'field `ts` is not of type timestamp: "0000-01-01"'),
        ('{"ts":"2023-02-29"}', 'field `ts` is not of type timestamp: "2023-02-29"'),
        ('{"card":"\\ud800"}', 'field `card` is not of type string: "\\ud800"'),
        ('{"card":"\\ud83d\\ude00"}', {"card": "\U0001f600"}),
        ('{"id":"\\udc00"}', 'field `id` is not of type bigint: "\\udc00"'),
        ('{"other":"\\ud800"}', {}),
        ('{"\\ud800":1}', {}),
        ('{"card":"a\\u0000b"}', {"card": "a\0b"}),
        ('{"card":"a\0b"}', "not a JSON object"),
        ("{}\0{}", "not a JSON object"),
        ("{}{}", "not a JSON object"),
        ('{"amount":1,"amount":null}', {}),
        ('{"amount":"x","\\u0061mount":2}', {"amount": 2.0}),
        ('{"card":"\x7f"}', {"card": "\x7f"}),
        ('{"id":"\x1b[31m\u202e\x9b"}', 'field `id` is not of type bigint: "\\x1b[31m\\u202e\\x9b"'),
        ('{"id":"a\\tb"}', 'field `id` is not of type bigint: "a\\tb"'),
    ],
)
def test_a_line_means_the_same_alone_and_among_good_ones(line: str, expected: Any) -> None:
    if "\x1b" in line:  # JSON has no such signs but in escapes
        line = line.replace("\x1b", "\\u001b")
        expected = expected.replace("\\x1b", "\\u001b")
    event, reason = lines_alone_and_among_good_ones(line, STREAM, GOOD)
    if isinstance(expected, str):
        assert (event, reason) == ("None", expected)
    else:
        nothing = {field.name: None for field in STREAM.fields}
        assert (event, reason) == (str({**nothing, **expected}), "")


def test_a_line_with_nul_does_not_hide_that_another_has_two_objects() -> None:
    # If NUL were the end of all, these were as many objects as lines.
    lines = [GOOD.encode()] * 60 + [b"{}{}", b"{}\0{}", GOOD.encode()]
    events, rows, problems = json_lines.parse(lines, STREAM)
    assert (rows.tolist(), [row["id"] for row in events.to_pylist()]) == ([*range(60), 62], [1] * 61)
    assert problems == [(60, "not a JSON object"), (61, "not a JSON object")]


def test_dead_letters_of_anything_can_be_written_and_read(tmp_path: Path) -> None:
    lines: list[str | bytes] = [
        '{"card":"\\ud800"}',
        b'{"card":"\xff\xed\xa0\x80"}',
        '{"\\ud800":5,"id":{"\\udfff":["\\ud800"]}}',
        "\x1b[31m\x00",
        "x" * 100_000,
    ]
    path = write_lines(tmp_path / "a.json", GOOD, *lines)
    (chunk,) = read_events(path, STREAM)
    assert len(chunk.dead_letters) == 5
    rows = chunk.dead_letters.to_pylist()
    assert [json.loads(json.dumps(row, ensure_ascii=False).encode()) for row in rows] == rows
    file = io.BytesIO()
    pq.write_table(chunk.dead_letters, file)
    assert pq.read_table(io.BytesIO(file.getvalue())) == chunk.dead_letters
    assert rows[0]["raw"] == '{"card":"\\ud800"}'


def test_a_csv_value_that_cannot_be_printed_is_shown_with_escapes(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.csv", CSV, '"\x1b[2J\xa05",c1,2024-05-01,1,true,1,', '"1\n2",c1,2024-05-01,1,true,1,'
    )
    _, letters = read(path)
    assert [letter["reason"] for letter in letters] == [
        r"field `id` is not of type bigint: \x1b[2J\xa05",
        r"field `id` is not of type bigint: 1\n2",
    ]
    assert letters[1]["raw"] == '"1\n2",c1,2024-05-01,1,true,1,'


# ---------------------------------------------------------------- Parquet


def invalid_text(n: int = 1) -> pa.Array:
    """Return strings of which the second is not UTF-8."""
    raw = pa.array([b"c1", b"\xff\xfe", b"c2", None] * n)
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def parquet(
    path: Path, stream: Stream, n_rows: int = 4, /, **columns: pa.Array
) -> tuple[list[Any], list[Any]]:
    """Write a table with event times and these columns, and read it, here and as in a worker."""
    table = pa.table({"ts": pa.array([1_714_557_600_000_000] * n_rows, pa.timestamp("us")), **columns})
    pq.write_table(table, path / "a.parquet")
    found = read(path / "a.parquet", stream)
    coded = list(read_events(path / "a.parquet", stream, in_worker=True))
    assert str([row for chunk in coded for row in chunk.events.to_pylist()]) == str(found[0])
    assert [row for chunk in coded for row in chunk.dead_letters.to_pylist()] == found[1]
    return found


@pytest.mark.parametrize("n_copies", [1, 100])
def test_text_of_parquet_that_is_not_utf_8_is_a_dead_letter(tmp_path: Path, n_copies: int) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("card", "string")), "ts")
    events, letters = parquet(tmp_path, stream, 4 * n_copies, card=invalid_text(n_copies))
    assert [row["card"] for row in events] == ["c1", "c2", None] * n_copies
    assert len(letters) == n_copies
    assert letters[0] == {
        "reason": 'field `card` is not of type string: "\ufffd\ufffd"',
        "source": str(tmp_path / "a.parquet"),
        "position": 2,
        "raw": '{"ts":"2024-05-01T10:00:00.000000","card":"\ufffd\ufffd"}',
    }


def test_texts_that_are_utf_8_only_together_are_dead_letters(tmp_path: Path) -> None:
    raw = pa.array([b"\xc3", b"\xa9"])
    halves = pa.Array.from_buffers(pa.string(), 2, raw.buffers(), 0)
    stream = Stream("s", (Field("ts", "timestamp"), Field("card", "string")), "ts")
    assert [len(part) for part in parquet(tmp_path, stream, 2, card=halves)] == [0, 2]


def test_text_inside_a_struct_that_is_not_utf_8_is_a_dead_letter(tmp_path: Path) -> None:
    struct = pa.StructArray.from_arrays([invalid_text()], names=["x"])
    stream = Stream("s", (Field("ts", "timestamp"), Field("n", "struct<x:string>")), "ts")
    events, letters = parquet(tmp_path, stream, n=struct)
    assert [row["n"] for row in events] == ['{"x":"c1"}', '{"x":"c2"}', '{"x":null}']
    assert [letter["reason"] for letter in letters] == [
        'field `n` is not of type struct<x:string>: {"x":"\ufffd\ufffd"}'
    ]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("ms"), 2**62, None),
        (pa.timestamp("ms"), -(2**62), None),
        (pa.timestamp("ms", tz="UTC"), 1_714_557_600_123, 1_714_557_600_123_000),
        (pa.timestamp("us"), 2**62, None),
        (pa.timestamp("us"), 253_402_300_799_999_999, 253_402_300_799_999_999),
        (pa.timestamp("us"), 253_402_300_800_000_000, None),
        (pa.timestamp("us"), -62_135_596_800_000_001, None),
        (pa.timestamp("ns"), 2**62, 2**62 // 1000),
        (pa.timestamp("ns"), -1, -1),
        (pa.timestamp("s"), 253_402_300_799, 253_402_300_799_000_000),
        (pa.timestamp("s"), 253_402_300_800, None),
    ],
)
def test_a_time_of_parquet_of_no_year_from_1_to_9999_is_a_dead_letter(
    tmp_path: Path, kind: pa.DataType, value: int, expected: int | None
) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("at", "timestamp")), "ts")
    column = pa.array([value, None], pa.int64()).view(kind)
    table = pa.table({"ts": pa.array([0, 0], pa.timestamp("us")), "at": column})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, version="2.6", use_deprecated_int96_timestamps=False)
    stored = pq.read_schema(file).field("at").type
    events, letters = read(file, stream)
    assert stored.unit in ("ms", "us", "ns")
    assert [row["at"] for row in events] == ([] if expected is None else [expected]) + [None]
    assert [letter["reason"].partition(":")[0] for letter in letters] == (
        ["field `at` is not of type timestamp"] if expected is None else []
    )


def test_days_of_parquet_that_no_calendar_has_are_dead_letters(tmp_path: Path) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("day", "date")), "ts")
    days = pa.array([2**31 - 1, -(2**31), 19_844, None], pa.int32()).view(pa.date32())
    events, letters = parquet(tmp_path, stream, day=days)
    assert [row["day"] for row in events] == [19_844 * 86_400_000_000, None]
    assert len(letters) == 2


def test_old_timestamps_of_twelve_bytes_are_read_beyond_the_range_of_nanoseconds(tmp_path: Path) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("at", "timestamp")), "ts")
    times = pa.array([253_402_214_400_000_000, -62_135_596_800_000_000], pa.timestamp("us"))
    table = pa.table({"ts": pa.array([0, 0], pa.timestamp("us")), "at": times})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    events, _ = read(tmp_path / "a.parquet", stream)
    assert [row["at"] for row in events] == [253_402_214_400_000_000, -62_135_596_800_000_000]


def test_times_inside_a_struct_do_not_depend_on_the_time_zone_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    kinds = [
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", tz="UTC"),
    ]
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        stream = Stream("s", (Field("ts", "timestamp"), Field("n", "struct<at:timestamp>")), "ts")
        for kind in kinds:
            value = 1_714_557_600_123_456 * (1000 if kind.unit == "ns" else 1) + (kind.unit == "ns")
            at = pa.array([value], pa.int64()).view(kind)
            struct = pa.StructArray.from_arrays([at], names=["at"])
            events, _ = parquet(tmp_path, stream, 1, n=struct)
            assert events[0]["n"] == '{"at":"2024-05-01T10:00:00.123456Z"}'
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_changed_byte_of_a_page_with_a_checksum_is_found(tmp_path: Path) -> None:
    table = pa.table(
        {"ts": pa.array([0] * 1000, pa.timestamp("us")), "x": pa.array([float(n) for n in range(1000)])}
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.index(pa.array([500.0]).buffers()[1].to_pybytes()[:8])
    data[at] ^= 1
    path.write_bytes(bytes(data))
    stream = Stream("s", (Field("ts", "timestamp"), Field("x", "double")), "ts")
    with pytest.raises(InputError, match=r"cannot be read as Parquet: .*CRC"):
        read(path, stream)


def test_a_parquet_column_of_nothing_is_null(tmp_path: Path) -> None:
    stream = Stream("s", (Field("ts", "timestamp"), Field("x", "double"), Field("n", "array<int>")), "ts")
    events, _ = parquet(tmp_path, stream, 1, x=pa.nulls(1), n=pa.nulls(1))
    assert events == [{"ts": 1_714_557_600_000_000, "x": None, "n": None}]


# ---------------------------------------------------------------- whole files


@pytest.mark.parametrize(
    "text",
    [
        "[\n" + GOOD + "\n]",
        "[" + GOOD + "," + GOOD + "]",
        "  [ {\n",
        "[]",
        "[\n]\n",
        "\ufeff[\n{",
        "[" + GOOD + "\n",
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_json_array_is_one_clear_error(tmp_path: Path, text: str, block_bytes: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert message(path, block_bytes=block_bytes) == (
        "error[E0640]: `a.json` is a JSON array, not an object on each line\n"
        "help: write each object on a line of its own, for example: jq -c '.[]' a.json > new.jsonl"
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(json.loads(GOOD), indent=2),
        json.dumps({"records": [json.loads(GOOD)] * 9000}, indent=1),
        '{ "id": 1,\n  "card": "c1",\n"ts": "2024-05-01" }\n' + GOOD,
        '\n\n{\r\n\t"id" : 1\r\n}',
        '{"id":\n1}',
    ],
)
@pytest.mark.parametrize("block_bytes", [1000, 1 << 20])
def test_json_over_several_lines_is_one_clear_error(tmp_path: Path, text: str, block_bytes: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert message(path, block_bytes=block_bytes) == (
        "error[E0641]: `a.json` has a JSON object over several lines\n"
        "help: write each object on a line of its own, for example: jq -c . a.json > new.jsonl"
    )


@pytest.mark.parametrize("first", ["{", "[INFO] started", "[1]", '{"id":1,', "", '{"id":}', "[[1]]"])
def test_a_bad_first_line_is_a_dead_letter_as_others_are(tmp_path: Path, first: str) -> None:
    path = write_lines(tmp_path / "a.json", first, GOOD, GOOD)
    events, letters = read(path)
    assert (len(events), [letter["position"] for letter in letters]) == (2, [1] if first else [])


@pytest.mark.parametrize(
    ("data", "word", "advice"),
    [
        (gzip.compress(b"x", mtime=0), "a gzip file", "give its name the ending .gz"),
        (
            bytes(pa.compress(b"x", codec="zstd", asbytes=True)),
            "a Zstandard file",
            "give its name the ending .zst",
        ),
        (b"PK\x03\x04", "a zip archive", "unpack it"),
        (b"PAR1\x15\x04....PAR1", "a Parquet file", "give the format: parquet"),
        (GOOD.encode("utf-16"), "UTF-16", "convert it: iconv -f utf-16 -t utf-8 a.json > new.jsonl"),
    ],
)
def test_a_file_of_other_contents_is_one_clear_error(
    tmp_path: Path, data: bytes, word: str, advice: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert message(path) == f"error[E0642]: `a.json` is not UTF-8 text: it begins like {word}\nhelp: {advice}"


@pytest.mark.parametrize(("name", "first"), [("a.json", ""), ("a.csv", CSV + "\r")])
def test_lines_that_end_in_carriage_returns_are_one_clear_error(
    tmp_path: Path, name: str, first: str
) -> None:
    path = tmp_path / name
    path.write_text(first + (GOOD + "\r") * 2)
    assert message(path) == (
        f"error[E0642]: the lines of `{name}` end in carriage returns without line feeds\n"
        f"help: convert them, for example: tr '\\r' '\\n' < {name} > new{path.suffix}"
    )


def test_a_line_without_end_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cep.formats.text.text_files.MAX_LINE_BYTES", 1 << 20)
    path = write_lines(tmp_path / "a.json", GOOD, "x" * (1 << 20))
    assert [len(part) for part in read(path, block_bytes=1 << 16)] == [1, 1]
    write_lines(path, GOOD, "x" * (1 << 20) + "y")
    assert message(path, block_bytes=1 << 16) == (
        "error[E0645]: line 2 of `a.json` is longer than 1 MiB\nhelp: is it a text file?"
    )


@pytest.mark.parametrize("codec", ["gzip", "bz2", "zstd", "lz4"])
def test_packed_text_is_read(tmp_path: Path, codec: str) -> None:
    ending = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}[codec]
    path = tmp_path / f"a.jsonl{ending}"
    with pa.CompressedOutputStream(str(path), codec) as file:
        file.write((GOOD + "\n").encode() * 3)
    path.write_bytes(path.read_bytes() * 2)  # as two files put together
    assert len(read(path)[0]) == 6


def test_what_comes_before_the_cut_of_a_packed_file_is_read(tmp_path: Path) -> None:
    lines = [
        json.dumps({**json.loads(GOOD), "id": number, "card": str(number**5)}) for number in range(30_000)
    ]
    data = gzip.compress("\n".join(lines).encode())
    path = tmp_path / "a.json.gz"
    path.write_bytes(data[: len(data) * 2 // 3])
    ids: list[int] = []
    chunks = read_events(path, STREAM)
    ids += next(chunks).events.column("id").to_pylist()
    with pytest.raises(InputError) as caught:
        next(chunks)
    assert ids == list(range(len(ids)))
    assert len(ids) > 15_000
    # The last line is cut, the block with it was given whole.
    assert str(caught.value).startswith(f"error[E0606]: `{path}` cannot be read behind line {len(ids):,}: ")


def test_an_empty_file_beside_others_is_passed_over_and_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", GOOD)
    write_lines(tmp_path / "b.json")
    write_lines(tmp_path / "c.json")
    chunks = list(read_events(tmp_path, STREAM))
    assert [(Path(chunk.source).name, chunk.is_empty, len(chunk.events)) for chunk in chunks] == [
        ("a.json", False, 1),
        ("b.json", True, 0),
        ("c.json", True, 0),
    ]


@pytest.mark.parametrize("kind", Format)
def test_an_empty_file_of_many_is_no_error(tmp_path: Path, kind: Format) -> None:
    path = write_lines(tmp_path / "a")
    (chunk,) = read_file(str(path), STREAM, kind, Reading(in_worker=True), AheadGuard(STREAM.max_ahead_us))
    assert (chunk.is_empty, len(chunk.events), len(chunk.dead_letters)) == (True, 0, 0)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "a.json", GOOD)
    (tmp_path / "in" / "b.json").symlink_to(tmp_path / "a.json")
    assert len(read(tmp_path / "in")[0]) == 1
    (tmp_path / "in" / "gone.json").symlink_to(tmp_path / "no.json")
    with pytest.raises(InputError, match="which does not exist"):
        read(tmp_path / "in")


def test_a_name_that_is_not_utf_8_is_one_clear_error(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.json"
    try:
        Path(os.fsdecode(name)).write_text(GOOD)
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert (
        str(caught.value)
        == f"error[E0606]: the name of `{tmp_path}/\\xff.json` is not UTF-8\nhelp: rename the file"
    )


def test_a_path_that_cannot_be_is_one_clear_error() -> None:
    with pytest.raises(InputError, match=r"E0606.* cannot be read: File name too long"):
        list(read_events("x" * 5000 + ".json", STREAM))
    with pytest.raises(InputError, match=r"E0601.* there is no file or directory"):
        list(read_events("a\0b.json", STREAM))


def test_a_csv_header_longer_than_python_reads_is_one_clear_error(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", '"' + "x" * 200_000 + '"', "1")
    assert message(path).startswith("error[E0606]: the first line of `a.csv` is not a CSV header")


def test_columns_whose_names_are_not_utf_8_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"abcdefgh": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe"))
    assert message(path).startswith("error[E0606]: `a.parquet` cannot be read as Parquet: ")


DIRECTIONS: tuple[Callable[[bytes], bytes], ...] = (gzip.compress, lambda data: data)


@pytest.mark.parametrize("pack", DIRECTIONS)
def test_the_last_line_needs_no_line_feed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("a.json.gz" if pack is gzip.compress else "a.json")
    path.write_bytes(pack((GOOD + "\r\n" + GOOD + "\r").encode()))
    assert len(read(path, file_format=Format.JSON)[0]) == 2
