"""Columns that the data have in another form: units, formats, zones, names, nested, names of files."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.formats.ahead import AheadGuard
from cep.formats.files import (
    Format,
    Reading,
    find_files,
    pattern_of,
    read_events,
    read_file,
    text_reader,
    values_in_path,
)
from cep.formats.text import json_lines
from cep.local.match_file import match_file
from cep.schema.stream import CsvLayout, Field, Stream
from cep.settings.schema_file import parse_streams
from tests.unit.formats.test_files import message, read, write_lines

MAY_US = 1_714_557_600_000_000


def stream_of(schema: str, more: str = "") -> Stream:
    """Return a stream of a schema as the streams file has it, of any times together."""
    text = f"streams:\n  s:\n    event_time: ts\n    max_ahead: 36500 days\n    schema: {{{schema}}}\n{more}"
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert problems == []
    return streams["s"]


def columns_of(name: str, found: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[str]]:
    """Return a column of the events, and the reasons of the dead letters."""
    return [row[name] for row in found[0]], [letter["reason"] for letter in found[1]]


# ---------------------------------------------------------------- the streams file


def test_every_setting_of_a_column_is_read() -> None:
    stream = stream_of(
        "ts: {type: timestamp, unit: milliseconds}, "
        "a: {type: timestamp, format: '%d.%m.%Y', zone: Europe/Berlin}, "
        "b: {type: string, field: n.card_id}, c: {type: int, field: '`x.y`.`a``b`'}, "
        "d: {type: 'array<int>', field: z}",
        "    csv: {delimiter: tab, quote: none, header: no, columns: [a, b], encoding: latin-1}\n",
    )
    assert stream.fields == (
        Field("ts", "timestamp", unit="milliseconds"),
        Field("a", "timestamp", format="%d.%m.%Y", zone="Europe/Berlin"),
        Field("b", "string", path=("n", "card_id")),
        Field("c", "int", path=("x.y", "a`b")),
        Field("d", "array<int>", path=("z",)),
    )
    assert stream.csv == CsvLayout("\t", "", False, ("a", "b"), "iso8859-1")


def test_a_schema_may_be_a_text_as_spark_writes_it() -> None:
    text = "streams: {s: {event_time: ts, schema: 'ts TIMESTAMP, `a b` decimal(10, 2), tags: array<string>'}}"
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert problems == []
    assert streams["s"].fields == (
        Field("ts", "timestamp"),
        Field("a b", "decimal(10,2)"),
        Field("tags", "array<string>"),
    )


@pytest.mark.parametrize("word", ["windows-1252", "cp1252", "CP1252"])
def test_an_encoding_has_several_names(word: str) -> None:
    assert stream_of("ts: timestamp", f"    csv: {{encoding: {word}}}\n").csv.encoding == "cp1252"


def test_how_files_are_laid_out_does_not_change_what_stored_state_means() -> None:
    stream = stream_of("ts: timestamp, k: string")
    others = [
        replace(stream, csv=CsvLayout(";")),
        replace(stream, fields=(replace(stream.fields[0], unit="seconds"), stream.fields[1])),
    ]
    rule = Source("r", "RULE r FROM s PARTITION BY k PATTERN a")
    prints = [compile_sources([rule], {"s": one}).programs[0].fingerprint for one in (stream, *others)]
    assert prints[0] == prints[1] != prints[2]


# ---------------------------------------------------------------- units


@pytest.mark.parametrize("n_good", [0, 100])
def test_numbers_of_a_unit_are_times_in_json(tmp_path: Path, n_good: int) -> None:
    stream = stream_of("ts: {type: timestamp, unit: seconds}, k: string")
    good = '{"ts":1714557600,"k":"g"}'
    lines = [
        '{"ts":1714557600.25}',
        '{"ts":1.7145576e9}',
        '{"ts":"1714557600"}',
        '{"ts":true}',
        '{"ts":1e300}',
        '{"ts":NaN}',
        '{"ts":[1]}',
        '{"ts":null}',
        '{"ts":9223372036854775808}',
    ]
    for line in lines:
        path = write_lines(tmp_path / "a.json", *[good] * n_good, line, *[good] * n_good)
        times, reasons = columns_of("ts", read(path, stream))
        expected = {lines[0]: MAY_US + 250_000, lines[1]: MAY_US}.get(line)
        assert times == [MAY_US] * n_good + ([] if expected is None else [expected]) + [MAY_US] * n_good
        value = line[6:-1]
        reason = f"field `ts` is not of type timestamp (unit: seconds): {value}"
        assert reasons == ([] if expected else ["event time `ts` is NULL" if value == "null" else reason])


def test_nanoseconds_stay_exact_beside_numbers_with_fractions(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, unit: nanoseconds}, x: bigint")
    whole = 1_714_557_600_123_456_789
    for n_fractions in (0, 1, 300):
        lines = [f'{{"ts":{whole + 1000 * n},"x":1}}' for n in range(300)] + [
            '{"ts":1500.5,"x":1}'
        ] * n_fractions
        times, reasons = columns_of("ts", read(write_lines(tmp_path / "a.json", *lines), stream))
        assert times == [(whole + 1000 * n) // 1000 for n in range(300)] + [1] * n_fractions
        assert reasons == []


def test_a_wrong_number_beside_a_unit_is_a_dead_letter(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, unit: milliseconds}, x: bigint")
    lines = (
        ['{"ts":1714557600000,"x":1}'] * 200 + ['{"ts":1714557600000,"x":1.5}'] + ['{"ts":1.5,"x":2}'] * 200
    )
    times, reasons = columns_of("ts", read(write_lines(tmp_path / "a.json", *lines), stream))
    assert times == [MAY_US] * 200 + [1500] * 200
    assert reasons == ["field `x` is not of type bigint: 1.5"]


def test_numbers_of_a_unit_are_times_in_csv(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, unit: milliseconds}")
    path = write_lines(
        tmp_path / "a.csv",
        "ts,x",
        "1714557600000,",
        "1714557600000.5,",
        "1.7145576e12,",
        "soon,",
        "NaN,",
        ",",
    )
    times, reasons = columns_of("ts", read(path, stream))
    assert times == [MAY_US, MAY_US + 500, MAY_US]
    prefix = "field `ts` is not of type timestamp (unit: milliseconds): "
    assert reasons == [prefix + "soon", prefix + "NaN", "event time `ts` is NULL"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1_714_557_600_000, None]),
        pa.array([1_714_557_600_000, None], pa.uint64()).cast(pa.int64()),
        pa.array([1_714_557_600_000.0, None]),
        pa.array([MAY_US, None], pa.timestamp("us", tz="UTC")),
    ],
)
def test_numbers_of_a_unit_are_times_in_parquet(tmp_path: Path, values: pa.Array) -> None:
    stream = stream_of("ts: {type: timestamp, unit: milliseconds}")
    pq.write_table(pa.table({"ts": values}), tmp_path / "a.parquet")
    assert columns_of("ts", read(tmp_path / "a.parquet", stream)) == ([MAY_US], ["event time `ts` is NULL"])


def test_a_number_of_parquet_that_is_no_time_is_a_dead_letter(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, unit: seconds}")
    pq.write_table(pa.table({"ts": pa.array([2**60, 0])}), tmp_path / "a.parquet")
    assert columns_of("ts", read(tmp_path / "a.parquet", stream)) == (
        [0],
        ["field `ts` is not of type timestamp (unit: seconds): 1152921504606846976"],
    )


@pytest.mark.parametrize(
    ("form", "values", "given", "word"),
    [
        ("unit: seconds", pa.array(["x"]), "string", "an integer, a double or a timestamp"),
        ("unit: seconds", pa.array([1.0], pa.float32()), "float", "an integer, a double or a timestamp"),
        ("format: '%Y%m%d'", pa.array([20240501]), "int64", "a string or a timestamp"),
        ("zone: UTC", pa.array(["x"]), "string", "a timestamp"),
    ],
)
def test_a_parquet_column_of_another_type_is_one_clear_error(
    tmp_path: Path, form: str, values: pa.Array, given: str, word: str
) -> None:
    stream = stream_of(f"ts: {{type: timestamp, {form}}}")
    pq.write_table(pa.table({"ts": values}), tmp_path / "a.parquet")
    declared = "timestamp" if "zone" in form else f"timestamp ({form.replace(chr(39), '')})"
    assert message(tmp_path / "a.parquet", stream=stream) == (
        f"error[E0605]: column `ts` of `a.parquet` is {given}, the stream declares {declared}\n"
        f"help: the column must be {word} that fits; change the file or the declaration"
    )


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("1714557600", "seconds"),
        ("1714557600.5", "seconds"),
        ("1714557600123", "milliseconds"),
        ("-1714557600123", "milliseconds"),
        ("1714557600123456", "microseconds"),
        ("1714557600123456789", "nanoseconds"),
    ],
)
def test_a_number_without_a_unit_is_a_dead_letter_that_says_what_to_declare(
    tmp_path: Path, value: str, unit: str
) -> None:
    stream = stream_of("ts: timestamp")
    reason = (
        f"field `ts` is not of type timestamp: {value}; "
        f"for {unit} since 1970 declare {{type: timestamp, unit: {unit}}}"
    )
    for path in (
        write_lines(tmp_path / "a.json", f'{{"ts":{value}}}'),
        write_lines(tmp_path / "a.csv", "ts", value),
    ):
        assert columns_of("ts", read(path, stream)) == ([], [reason])


def test_a_small_number_is_not_taken_for_a_time(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "ts", "20240501")
    assert columns_of("ts", read(path, stream_of("ts: timestamp")))[1] == [
        "field `ts` is not of type timestamp: 20240501"
    ]


# ---------------------------------------------------------------- formats and zones

GERMAN = "{type: timestamp, format: '%d.%m.%Y %H:%M', zone: Europe/Berlin}"


@pytest.mark.parametrize("n_copies", [1, 100])
def test_texts_of_a_format_are_times_in_every_file(tmp_path: Path, n_copies: int) -> None:
    stream = stream_of(f"ts: {GERMAN}, k: string")
    texts = ["1.5.2024 12:00", "01.05.2024 12:00"] * n_copies
    as_json = write_lines(
        tmp_path / "a.json", *[json.dumps({"ts": text}) for text in texts], '{"ts":"2024-05-01"}'
    )
    as_csv = write_lines(tmp_path / "a.csv", "ts,k", *[f"{text}," for text in texts], "2024-05-01,")
    pq.write_table(
        pa.table({"ts": [*texts, "2024-05-01"], "k": pa.nulls(2 * n_copies + 1)}), tmp_path / "a.parquet"
    )
    reason = "field `ts` is not of type timestamp (format: %d.%m.%Y %H:%M): "
    expected = [MAY_US] * 2 * n_copies
    assert columns_of("ts", read(as_json, stream)) == (expected, [reason + '"2024-05-01"'])
    assert columns_of("ts", read(as_csv, stream)) == (expected, [reason + "2024-05-01"])
    assert columns_of("ts", read(tmp_path / "a.parquet", stream)) == (expected, [reason + '"2024-05-01"'])


def test_a_format_is_for_texts(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, format: '%Y%m%d'}")
    path = write_lines(tmp_path / "a.json", '{"ts":20240501}')
    assert columns_of("ts", read(path, stream)) == (
        [],
        ["field `ts` is not of type timestamp (format: %Y%m%d): 20240501"],
    )


def test_timestamps_of_parquet_without_a_zone_are_local_times_of_the_declared_one(tmp_path: Path) -> None:
    stream = stream_of("ts: {type: timestamp, zone: Europe/Berlin}")
    for kind, expected in (
        (pa.timestamp("us"), MAY_US - 7_200_000_000),
        (pa.timestamp("us", tz="UTC"), MAY_US),
    ):
        pq.write_table(pa.table({"ts": pa.array([MAY_US], kind)}), tmp_path / "a.parquet")
        assert columns_of("ts", read(tmp_path / "a.parquet", stream)) == ([expected], [])


def test_matches_are_the_same_whatever_form_the_events_have(tmp_path: Path) -> None:
    rule = Source("r", "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN 1 HOUR")
    forms: dict[str, list[Any]] = {
        "timestamp": ["2024-05-01T10:00:00Z", "2024-05-01T10:30:00Z"],
        "{type: timestamp, unit: seconds}": [1_714_557_600, 1_714_559_400.0],
        GERMAN: ["01.05.2024 12:00", "1.5.2024 12:30"],
    }
    found = []
    for form, times in forms.items():
        path = write_lines(tmp_path / "a.json", *[json.dumps({"ts": time, "k": "x"}) for time in times])
        programs = compile_sources([rule], {"s": stream_of(f"ts: {form}, k: string")}).rule_set
        found.append(match_file(programs, path).matches.to_pylist())
    assert len(found[0]) == 1
    assert found[0] == found[1] == found[2]


# ---------------------------------------------------------------- fields

NESTED = (
    "ts: {type: timestamp, field: meta.at}, k: {type: string, field: n.card_id}, "
    "x: {type: double, field: n.more.x}"
)


@pytest.mark.parametrize("n_good", [0, 100])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"meta":{"at":"2024-05-01"},"n":{"card_id":"c","more":{"x":-0,"y":1}}}', ("c", -0.0)),
        ('{"meta":{"at":"2024-05-01"},"n":{"more":null}}', (None, None)),
        ('{"meta":{"at":"2024-05-01"},"n":null}', (None, None)),
        ('{"meta":{"at":"2024-05-01"}}', (None, None)),
        ('{"meta":{"at":"2024-05-01"},"n":{"card_id":"a"},"n":{"card_id":"b"}}', ("b", None)),
        ('{"meta":{"at":"2024-05-01"},"n":{"card_id":"a","card_id":"b"}}', ("b", None)),
        ('{"meta":{"at":"2024-05-01"},"n":5}', "field `k` is not of type string: 5"),
        (
            '{"meta":{"at":"2024-05-01"},"n":[{"card_id":"a"}]}',
            'field `k` is not of type string: [{"card_id":"a"}]',
        ),
        ('{"meta":{"at":"2024-05-01"},"n":{"card_id":{"x":1}}}', 'field `k` is not of type string: {"x":1}'),
        ('{"meta":{"at":"2024-05-01"},"n":{"more":"x"}}', 'field `x` is not of type double: "x"'),
        ('{"meta.at":"2024-05-01"}', "event time `ts` is NULL"),
    ],
)
def test_a_field_inside_objects_is_a_column(tmp_path: Path, n_good: int, line: str, expected: Any) -> None:
    good = '{"n":{"more":{"x":1.5},"card_id":"g"},"meta":{"at":"2024-05-01","by":"me"},"k":"no"}'
    path = write_lines(tmp_path / "a.json", *[good] * n_good, line, *[good] * n_good)
    events, letters = read(path, stream_of(NESTED))
    rows = [(row["k"], row["x"]) for row in events]
    reasons = [letter["reason"] for letter in letters]
    goods = [("g", 1.5)] * n_good
    middle, reason = ([], [expected]) if isinstance(expected, str) else ([expected], [])
    assert (str(rows), reasons) == (str(goods + middle + goods), reason)


def test_a_field_inside_structs_of_parquet_is_a_column(tmp_path: Path) -> None:
    n = pa.array(
        [
            {"card_id": "a", "more": {"x": 1.5}, "other": [1]},
            {"card_id": None, "more": None, "other": None},
            None,
        ]
    )
    at = pa.array([{"at": MAY_US}] * 3, pa.struct({"at": pa.timestamp("us")}))
    table = pa.table({"n": n, "meta": at, "n.card_id": ["no"] * 3, "k": ["no"] * 3})
    pq.write_table(table, tmp_path / "a.parquet")
    for in_worker in (False, True):
        (chunk,) = read_events(tmp_path / "a.parquet", stream_of(NESTED), in_worker=in_worker)
        assert [(row["k"], row["x"], row["ts"]) for row in chunk.events.to_pylist()] == [
            ("a", 1.5, MAY_US),
            (None, None, MAY_US),
            (None, None, MAY_US),
        ]


def test_a_nested_field_that_parquet_does_not_have_is_one_clear_error(tmp_path: Path) -> None:
    table = pa.table({"n": [{"card": "a"}], "meta": [{"at": "x"}]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert message(tmp_path / "a.parquet", stream=stream_of(NESTED)) == (
        "error[E0604]: `a.parquet` has no columns `n.card_id`, `n.more.x`, which stream `s` declares\n"
        "help: columns of the file: n, meta, meta.at"
    )


def test_a_column_may_have_another_name_than_in_the_file(tmp_path: Path) -> None:
    stream = stream_of(
        'ts: {type: timestamp, field: "Time of day"}, id: {type: bigint, field: _id}, '
        "v: {type: int, field: a.b}"
    )
    as_csv = write_lines(tmp_path / "a.csv", "_id,a.b,Time of day,ts", "7,1,2024-05-01,x")
    as_json = write_lines(tmp_path / "a.json", '{"_id":7,"a":{"b":1},"Time of day":"2024-05-01","ts":5}')
    pq.write_table(
        pa.table(
            {
                "_id": [7],
                "a": pa.array([{"b": 1}], pa.struct({"b": pa.int32()})),
                "Time of day": pa.array([0], pa.timestamp("us")),
            }
        ),
        tmp_path / "a.parquet",
    )
    rows = [read(path, stream)[0][0] for path in (as_csv, as_json, tmp_path / "a.parquet")]
    assert [(row["id"], row["v"]) for row in rows] == [(7, 1)] * 3


def test_fields_of_one_place_and_fields_in_each_others_way_are_read(tmp_path: Path) -> None:
    stream = stream_of(
        "ts: timestamp, a: {type: string, field: n.x}, b: {type: string, field: n.x}, n: 'struct<x: string>'"
    )
    other = stream_of("ts: timestamp, a: {type: string, field: n.x}, n: string")
    line = '{"ts":"2024-05-01","n":{"x":"v"}}'
    events, _ = read(write_lines(tmp_path / "a.json", *[line] * 50), stream)
    assert (events[49]["a"], events[49]["b"], events[49]["n"]) == ("v", "v", '{"x":"v"}')
    _, letters = read(write_lines(tmp_path / "a.json", *[line] * 50), other)
    assert letters[49]["reason"] == 'field `n` is not of type string: {"x":"v"}'


def test_many_lines_with_nested_fields_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(NESTED)
    line = b'{"meta":{"at":"2024-05-01"},"n":{"card_id":"c","more":{"x":1,"y":[1,[2]]}}}'
    monkeypatch.delattr(json_lines, "parse_line")
    events, _, _ = json_lines.parse([line] * 5000, stream)
    assert len(events) == 5000


# ---------------------------------------------------------------- decimals for doubles


def test_a_decimal_column_of_parquet_is_a_double(tmp_path: Path) -> None:
    stream = stream_of("ts: timestamp, x: double, y: float")
    prices = [Decimal("0.10"), Decimal("12345678901234567.89"), None]
    table = pa.table(
        {
            "ts": pa.array([0, 0, 0], pa.timestamp("us")),
            "x": pa.array(prices, pa.decimal128(20, 2)),
            "y": pa.array([Decimal("0.1"), Decimal("-2.5"), None], pa.decimal128(5, 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    events, _ = read(tmp_path / "a.parquet", stream)
    assert [row["x"] for row in events] == [0.1, 12345678901234567.89, None]
    assert [row["y"] for row in events] == [0.10000000149011612, -2.5, None]


# ---------------------------------------------------------------- columns from names

METRICS = "ts: timestamp, series: string, day: date, v: double"


def metrics(folder: Path) -> None:
    """Write three series of two days."""
    for day in ("2024-05-01", "2024-05-02"):
        (folder / day).mkdir()
        for series in ("cpu", "disk io"):
            write_lines(folder / day / f"{series}.jsonl", f'{{"ts":"{day}T10:00","v":1,"series":"no"}}')
        write_lines(folder / day / "_tmp.jsonl", "bad")
        write_lines(folder / day / ".x.jsonl", "bad")
        write_lines(folder / day / "notes.txt", "bad")
    (folder / "_old").mkdir()
    write_lines(folder / "_old" / "cpu.jsonl", "bad")


def test_names_in_a_pattern_are_columns(tmp_path: Path) -> None:
    metrics(tmp_path)
    events, letters = read(Path(f"{tmp_path}/{{day}}/{{series}}.jsonl"), stream_of(METRICS))
    day = 86_400_000_000
    assert [(row["day"] // day - 19_844, row["series"], row["v"]) for row in events] == [
        (0, "cpu", 1.0),
        (0, "disk io", 1.0),
        (1, "cpu", 1.0),
        (1, "disk io", 1.0),
    ]
    assert letters == []


@pytest.mark.parametrize(
    "form", ["./{day}/{series}.jsonl", "{day}//{series}.jsonl", "x/../{day}/./{series}.jsonl"]
)
def test_a_pattern_may_be_written_in_several_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    metrics(tmp_path)
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    events = [row for chunk in read_events(form, stream_of(METRICS)) for row in chunk.events.to_pylist()]
    assert [row["series"] for row in events] == ["cpu", "disk io"] * 2


def reading(pattern: str) -> Reading:
    return Reading(in_worker=True, pattern=pattern_of(pattern))


def test_one_file_of_a_pattern_is_read_with_its_columns(tmp_path: Path) -> None:
    metrics(tmp_path)
    pattern = f"{tmp_path}/{{day}}/{{series}}.jsonl"
    files, file_format = find_files(pattern)
    assert (len(files), file_format) == (4, Format.JSON)
    stream = stream_of(METRICS)
    (chunk,) = read_file(files[1], stream, file_format, reading(pattern), AheadGuard(stream.max_ahead_us))
    assert chunk.events.column("series").to_pylist() == ["disk io"]
    named = values_in_path(files[1], stream, reading(pattern).pattern)
    reader = text_reader(files[1], stream, file_format, named)
    pieces = reader.read([b'{"ts":"2024-05-01"}'], is_last=True)
    assert [row["series"] for piece in pieces for row in piece.events.to_pylist()] == ["disk io"]


def test_a_key_from_the_name_of_a_file_counts_as_others_do(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_lines(tmp_path / f"{name}.csv", "ts,v", "2024-05-01,1", "2024-05-02,2")
    stream = stream_of("ts: timestamp, v: double, series: string")
    rule = Source("r", "RULE r FROM s PARTITION BY series PATTERN x -> y WITHIN 2 DAYS")
    programs = compile_sources([rule], {"s": stream}).rule_set
    for as_stream in (False, True):
        result = match_file(programs, f"{tmp_path}/{{series}}.csv", as_stream=as_stream)
        assert sorted(result.matches.column("series").to_pylist()) == (["a", "b"] if not as_stream else ["a"])
        assert result.counts.late == (2 if as_stream else 0)


def test_parquet_files_have_columns_from_their_names(tmp_path: Path) -> None:
    (tmp_path / "day=2024-05-01").mkdir()
    pq.write_table(
        pa.table({"ts": pa.array([0], pa.timestamp("us"))}), tmp_path / "day=2024-05-01" / "p-1.parquet"
    )
    stream = stream_of("ts: timestamp, day: {type: timestamp, format: '%Y-%m-%d', zone: Europe/Berlin}")
    events, _ = read(Path(f"{tmp_path}/day={{day}}/*.parquet"), stream)
    assert events == [{"ts": 0, "day": 1_714_521_600_000_000 - 7_200_000_000}]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (
            "{tag}/{series}.jsonl",
            "error[E0643]: the pattern `{tag}/{series}.jsonl` names `tag`, "
            "which stream `s` does not declare\n"
            "help: columns of the stream: ts, series, day, v",
        ),
        (
            "{day}{series}.jsonl",
            "error[E0643]: the pattern `{day}{series}.jsonl` has two parts side by side\n"
            "help: put a sign between them",
        ),
        (
            "{day}/{day}.jsonl",
            "error[E0643]: the pattern `{day}/{day}.jsonl` has `{day}` twice or without a name\n"
            "help: name each part once",
        ),
        (
            "{}/{series}.jsonl",
            "error[E0643]: the pattern `{}/{series}.jsonl` has `{}` twice or without a name\n"
            "help: name each part once",
        ),
        ("{day}/{series}.csv", "error[E0601]: there is no file of the pattern `{day}/{series}.csv`"),
        (
            "{day}/{v}.jsonl",
            "error[E0644]: `cpu` in the path `2024-05-01/cpu.jsonl` is not of type double, "
            "as `v` is declared\n"
            "help: rename the file, or change the declaration",
        ),
    ],
)
def test_a_pattern_that_does_not_fit_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, text: str
) -> None:
    metrics(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        list(read_events(pattern, stream_of(METRICS)))
    assert str(caught.value) == text


def test_other_patterns_that_do_not_fit_are_clear_errors(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.json", "{}")
    pattern = f"{tmp_path}/{{ts}}.json"
    with pytest.raises(InputError, match=r"E0643.* names every column of stream `s`"):
        list(read_events(pattern, stream_of("ts: timestamp")))
    with pytest.raises(InputError, match=r"E0643.* names `t`, which is array<int>"):
        list(read_events(f"{tmp_path}/{{t}}.json", stream_of("ts: timestamp, t: 'array<int>'")))
    with pytest.raises(InputError, match=r"E0644.* is not of the form"):
        values_in_path(str(path), stream_of("ts: timestamp, k: string"), pattern_of("/data/{k}.json"))


def test_a_file_with_braces_in_its_name_is_itself(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "{k}.json", '{"ts":"2024-05-01","k":"v"}')
    assert columns_of("k", read(path, stream_of("ts: timestamp, k: string"))) == (["v"], [])
