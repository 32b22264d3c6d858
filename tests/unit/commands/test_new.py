"""`cep new` writes a rule and its tests, which pass `cep check`, `lint`, `fmt --check` and `test`."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cep.commands import new as module
from cep.commands import rule_templates, streams_of_file
from cep.commands.cli import main
from cep.commands.rule_templates import TEMPLATES
from cep.rule_set import MATCH_COLUMNS
from cep.settings.schema_file import load_streams

KINDS = {
    "double": "amount: double, city: string",
    "bigint": "n: bigint, ok: boolean",
    "string": "city: string",
    "boolean": "done: boolean, n: int",
    "decimal": "price: 'decimal(9,2)', city: string",
    # Names that the rule needs itself, words of the language, and names in quotes.
    "taken": "small: double, large: double, probe: string, hit: string, many: string, least: bigint",
    "quoted": "'my value': double, select: string",
}


def cep(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def declare(folder: Path, fields: str, key: str = "card: string") -> None:
    text = "streams:\n  s:\n    event_time: ts\n    tie_break: [id]\n    schema: {id: string, ts: timestamp, "
    (folder / "streams.yaml").write_text(f"{text}{key}, {fields}}}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_passes_all_checks_as_it_is_written(kind: str, tmp_path: Path) -> None:
    declare(tmp_path, KINDS[kind])
    value = {"bigint": ["--value", "n"], "boolean": ["--value", "n"]}.get(kind, [])
    for template in TEMPLATES:
        given = value if template == "first-seen" else []
        result = cep("new", tmp_path / f"rules/{template}.cep", "--template", template, *given)
        assert result.exit_code == 0, result.output
    n = len(TEMPLATES)
    assert cep("check", tmp_path).output.startswith(f"checked {n} files, {n} rules: no problems\n")
    assert cep("lint", tmp_path).output == f"linted {n} files, {n} rules: no findings\n"
    assert cep("fmt", tmp_path, "--check").exit_code == 0
    tested = cep("test", tmp_path).output
    assert tested.endswith(f"{n} files, {2 * n} cases: all passed\n")
    assert tested.count(" taken\n") == n
    for line in tested.splitlines():
        if "transitions: " in line:
            taken, _, of = line.split()[1:4]
            assert taken == of, line


def test_without_a_streams_file_one_is_written_beside_the_rule(tmp_path: Path) -> None:
    for template in TEMPLATES:
        assert cep("new", tmp_path / "mine" / template, "-t", template).exit_code == 0
    assert (tmp_path / "mine/streams.yaml").is_file()
    assert cep("lint", tmp_path).exit_code == 0
    assert "all passed" in cep("test", tmp_path).output


def test_it_says_what_it_wrote_and_the_name_of_the_rule_is_that_of_the_file(tmp_path: Path) -> None:
    declare(tmp_path, KINDS["double"])
    file = tmp_path / "big-spender"
    result = cep("new", file)
    assert result.output == f"wrote {file}.cep\nwrote {file}.test.yaml\n"
    assert "RULE `big-spender`\n" in Path(f"{file}.cep").read_text()
    assert cep("new", tmp_path / "quiet", "--quiet").output == ""


@pytest.mark.parametrize("there", ["r.cep", "r.test.yaml"])
def test_no_file_is_replaced(there: str, tmp_path: Path) -> None:
    declare(tmp_path, KINDS["double"])
    (tmp_path / there).write_text("mine")
    result = cep("new", tmp_path / "r")
    assert result.exit_code == 1
    assert "E0661" in result.output
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([there, "streams.yaml"])
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("name", [".", "..", "/", "n\udcff", "rules/.."])
def test_what_cannot_be_the_name_of_a_rule_is_refused_and_nothing_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declare(tmp_path, "amount: double")
    result = CliRunner().invoke(main, ["new", name])
    assert result.exit_code == 2
    assert "RULE is the name of a rule in UTF-8" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["streams.yaml"]


def test_the_stream_the_key_and_the_value_can_be_chosen(tmp_path: Path) -> None:
    stream = "{event_time: ts, schema: {ts: timestamp, a: string, b: string, x: double, y: double}}"
    (tmp_path / "streams.yaml").write_text(f"streams:\n  s: {stream}\n  t: {stream}\n")
    assert cep("new", tmp_path / "r", "--stream", "t", "--key", "b", "--value", "y").exit_code == 0
    text = (tmp_path / "r.cep").read_text()
    assert "FROM t\nPARTITION BY b\n" in text
    assert "y < small" in text
    assert "all passed" in cep("test", tmp_path).output


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ("x: double", ["--key", "id"]),
        ("x: double, done: boolean", ["--key", "done"]),
        ("x: double, other: timestamp", ["--key", "other"]),
        ("x: double, day: date", ["--key", "day"]),
        ("x: double, n: bigint", ["--key", "n", "--value", "x"]),
        ("x: double, city: string", ["--value", "card"]),
        ("x: double, city: string", ["--value", "id"]),
        ("x: double, at: string", []),
        ("x: double, at: timestamp, after: string, late: boolean", []),
        ("at: double, late: boolean", ["--key", "late"]),
        ("x: double, at: string", ["--key", "at"]),
        ("at: boolean", []),
    ],
)
def test_whatever_is_chosen_is_refused_or_passes(fields: str, options: list[str], tmp_path: Path) -> None:
    declare(tmp_path, fields)
    kinds = [kind for kind in TEMPLATES if kind != "first-seen"]
    for kind in kinds:
        result = cep("new", tmp_path / kind, "-t", kind, *options)
        assert result.exit_code == 0, result.output
    assert ": no problems\n" in cep("check", tmp_path).output
    tested = cep("test", tmp_path).output
    assert tested.endswith(f"{len(kinds)} files, {2 * len(kinds)} cases: all passed\n"), tested


def test_an_event_time_named_at_and_a_key_named_like_a_column_of_matches(tmp_path: Path) -> None:
    schema = "{at: timestamp, RULE: string, card: string, x: double}"
    (tmp_path / "streams.yaml").write_text(f"streams:\n  s: {{event_time: at, schema: {schema}}}\n")
    for kind in TEMPLATES:
        assert cep("new", tmp_path / kind, "-t", kind).exit_code == 0
    assert "PARTITION BY card\n" in (tmp_path / "count.cep").read_text()
    assert ": no problems\n" in cep("check", tmp_path).output
    assert "all passed" in cep("test", tmp_path).output


@pytest.mark.parametrize(
    ("fields", "options", "says"),
    [
        ("x: double", ["--key", "x"], "`x` of stream `s` is DOUBLE: no key\nhelp: choose one: --key"),
        ("x: 'decimal(9,2)'", ["--key", "x"], "`x` of stream `s` is DECIMAL(9,2): no key"),
        ("x: 'array<string>'", ["--key", "x"], "`x` of stream `s` is ARRAY<STRING>: no key"),
        ("x: double", ["--key", "ts"], "`ts` of stream `s` is the time, another one for each event: no key"),
        (
            "x: double",
            ["--key", "id", "--value", "id"],
            "`id` of stream `s` is the value, which is to change",
        ),
        ("rule: string", ["--key", "rule"], "`rule` of stream `s` has the name of a column of every match"),
        ("x: double", ["--stream", "u"], "there is no stream `u`\nhelp: streams: s"),
        ("x: double", ["--key", "cart"], "stream `s` has no column `cart`\nhelp: did you mean `card`?"),
        ("x: double", ["--value", "ts"], "stream `s` has `ts`, timestamp: no condition"),
        ("z: timestamp", [], "stream `s` has no column of numbers, texts or BOOLEAN: no condition"),
        ("x: double", ["-t", "first-seen"], "stream `s` has no column whose values can be known"),
    ],
)
def test_a_stream_without_the_columns_is_refused_and_nothing_is_written(
    fields: str, options: list[str], says: str, tmp_path: Path
) -> None:
    declare(tmp_path, fields)
    result = cep("new", tmp_path / "r", *options)
    assert result.exit_code == 1
    assert f"error[E0662]: {says}" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["streams.yaml"]


def test_a_key_needs_a_column_of_its_own(tmp_path: Path) -> None:
    declare(tmp_path, "x: double", key="z: timestamp")
    assert (
        "has no column of text for the key\nhelp: choose one: --key COLUMN"
        in cep("new", tmp_path / "r").output
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            [],
            "known\nhelp: choose a column of texts or whole numbers: --value COLUMN; not taken: "
            "`id` (tie_break), `card` (the key)\n",
        ),
        (
            ["--value", "card"],
            "for the key\nhelp: choose one: --key COLUMN; not taken: `id` (tie_break), `card` (the value)\n",
        ),
        (["--value", "x"], "the values of `x`, double, cannot be known\n"),
    ],
)
def test_a_refusal_names_the_columns_that_were_passed_over(
    options: list[str], says: str, tmp_path: Path
) -> None:
    declare(tmp_path, "x: double")
    assert says in cep("new", tmp_path / "r", "-t", "first-seen", *options).output


def test_every_template_passes_all_checks_in_the_project_of_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cep("init", tmp_path / "p").exit_code == 0
    monkeypatch.chdir(tmp_path / "p")
    for template in TEMPLATES:
        result = cep("new", f"rules/new_{template}", "--template", template)
        assert result.exit_code == 0, result.output
    n = 1 + len(TEMPLATES)
    assert cep("check", "rules").output.startswith(f"checked {n} files, {n} rules: no problems\n")
    assert cep("lint", "rules").exit_code == 0
    assert cep("test", "rules").output.endswith(f"{n} files, {3 + 2 * len(TEMPLATES)} cases: all passed\n")


def test_the_option_has_every_template() -> None:
    assert tuple(TEMPLATES) == module._TEMPLATES


CSV = """id,card,ts,amount,ok,note,"two words"
1,c1,2026-01-01T10:00:00Z,20,true,,1.5
2,c1,2026-01-01T10:01:00Z,25,false,5,2
3,c2,2026-01-01T10:02:00Z,-7,true,x,
"""
JSON = """{"on": 1, "at": "2026-01-01T10:00:00Z", "card": "c1", "amount": 1, "items": [1]}
no event
{"on": 2, "at": "2026-01-01T10:00:00Z", "card": "c1", "amount": 1.5, "whole": null}
"""


PARQUET = {
    "id": ["a", "b"], "ts": [datetime(2026, 1, 1, tzinfo=UTC)] * 2, "n": pa.array([1, 2], pa.int16()),
    "clock": [time(1), time(2)],
}  # fmt: skip
TYPES = {
    "1 orders.csv": {
        "id": "bigint", "card": "string", "ts": "timestamp", "amount": "bigint", "ok": "boolean",
        "note": "string", "two words": "double",
    },
    "events.jsonl": {
        "on": "bigint", "at": "timestamp", "card": "string", "amount": "double", "whole": "string"
    },
    "e.parquet": {"id": "string", "ts": "timestamp", "n": "bigint"},
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_the_streams_file_has_the_columns_of_a_file_of_events(tmp_path: Path, name: str) -> None:
    file, rule = tmp_path / name, tmp_path / "r.cep"
    if name == "e.parquet":
        pq.write_table(pa.table(PARQUET), file)
    else:
        file.write_text(CSV if name.endswith("csv") else JSON)
    done = cep("new", tmp_path / "r", "--template", "count", "--from", file)
    assert done.exit_code == 0, done.output
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    assert {field.name: field.ddl for field in stream.fields} == TYPES[name]
    text = (tmp_path / "streams.yaml").read_text()
    left_out = {"events.jsonl": "takes time: items", "e.parquet": "a stream has no such type: clock"}.get(
        name
    )
    assert text.count("# Left out") == (left_out is not None)
    assert left_out is None or f"{left_out}\n" in text
    for command in (("check", rule), ("lint", rule), ("test", rule), ("match", rule, "-i", file)):
        done = cep(*command)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("e.csv", "a,b\n1,2\n", "no column of times among a, b"),
        ("e.csv", "", "no events"),
        ("e.json", "{}\n", "`{file}` has no column of times: its events have no fields\n"),
        ("e.json", "[1, 2]\n", "`{file}` has no events: no line at its beginning is a JSON object\n"),
        ("e.json", '[["2026-01-01"]]', "help: write each event as an object on a line of its own\n"),
        ("e.json", "\n\n", "`{file}` has no events\nhelp: name a file with some events"),
        ("e.txt", "a,b\n", "none of the formats"),
        ("e.parquet", "no parquet", "cannot be read"),
    ],
)
def test_a_file_without_usable_events_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    done = cep("new", tmp_path / "r", "--from", tmp_path / name)
    said = said.replace("{file}", str(tmp_path / name))
    assert (done.exit_code, "E0662" in done.output, said in done.output) == (1, True, True), done.output
    assert not (tmp_path / "streams.yaml").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[{"ts": "2026-01-01", "k": "a"}, {"ts": "2026-01-02", "k": "b"}]',
            "is a JSON array, not an object",
        ),
        ('{"ts": "2026-01-01", "k": "a", "x": "' + "y" * 50, "has no events: its first line is too long"),
    ],
)
def test_a_first_line_that_is_not_read_to_its_end_says_what_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(streams_of_file, "_MOST_CHARACTERS", 40)
    (tmp_path / "e.json").write_text(text)
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.json")
    assert (done.exit_code, said in done.output) == (1, True), done.output


@pytest.mark.parametrize(
    ("delimiter", "first", "second", "number", "declared"),
    [
        (";", "31.05.2024 08:00:00", "01.06.2024 08:00:00", "71,5", '"%d.%m.%Y %H:%M:%S"}\n'),
        ("\t", "05/31/2024 08:00", "06/01/2024 08:00", "71.5", '"%m/%d/%Y %H:%M"}\n'),
        ("|", "01/05/2024 08:00:00.25", "02/05/2024 08:00:00.5", "71.5",
         '"%d/%m/%Y %H:%M:%S.%f"}    # or %m/%d/%Y %H:%M:%S.%f\n'),
        (",", "2024/05/31 08:00:00", "2024/06/01 08:00:00", "71.5", '"%Y/%m/%d %H:%M:%S"}\n'),
    ],
)  # fmt: skip
def test_other_delimiters_decimal_commas_and_forms_of_times_are_declared(
    tmp_path: Path, delimiter: str, first: str, second: str, number: str, declared: str
) -> None:
    rows = [("seen at", "machine", "temp"), (first, "m1", number), (second, "m2", "70")]
    (tmp_path / "e.csv").write_text("".join(delimiter.join(row) + "\n" for row in rows))
    done = cep("new", tmp_path / "r", "-t", "threshold", "--from", tmp_path / "e.csv")
    assert done.exit_code == 0, done.output
    assert (
        f'      "seen at": {{type: timestamp, format: {declared}' in (tmp_path / "streams.yaml").read_text()
    )
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    assert [field.ddl for field in stream.fields] == ["timestamp", "string", "double"]
    done = cep("match", tmp_path / "r.cep", "-i", tmp_path / "e.csv")
    assert done.exit_code == 0, done.output
    assert "malformed                0" in done.output


def test_the_only_text_is_the_key_and_a_name_may_be_a_word_of_yaml(tmp_path: Path) -> None:
    (tmp_path / "true.csv").write_text("k,ts\na,2026-01-01T00:00:00Z\nb,2026-01-02T00:00:00Z\n")
    assert cep("new", tmp_path / "r", "-t", "count", "--from", tmp_path / "true.csv").exit_code == 0
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    assert (stream.name, stream.tie_break) == ("true", ())


def test_a_line_without_an_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_of_file, "_MOST_CHARACTERS", len(CSV) + 10)
    (tmp_path / "e.csv").write_text(CSV + "4," + "x" * 1000)
    assert cep("new", tmp_path / "r", "--from", tmp_path / "e.csv").exit_code == 0
    assert "its first 3 rows" in (tmp_path / "streams.yaml").read_text()


def test_a_streams_file_that_exists_is_not_replaced_by_a_file_of_events(tmp_path: Path) -> None:
    declare(tmp_path, "amount: double")
    (tmp_path / "e.csv").write_text(CSV)
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.csv")
    assert done.exit_code == 1
    assert "declares the events already" in done.output


@pytest.mark.parametrize(
    ("here", "written"),
    [(".", "streams.yaml"), ("rules", "rules/streams.yaml"), ("events", "rules/streams.yaml")],
)
def test_the_streams_file_is_above_both_the_rule_and_the_events_but_not_above_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, written: str
) -> None:
    for name in ("rules", "events"):
        (tmp_path / name).mkdir()
    (tmp_path / "events/e.csv").write_text(CSV)
    monkeypatch.chdir(tmp_path / here)
    back = Path(os.path.relpath(tmp_path))
    done = cep("new", back / "rules/r", "--template", "count", "--from", back / "events/e.csv")
    assert done.exit_code == 0, done.output
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("streams.yaml")] == [written]


MESSY = [
    '{"_id": 1, "card": "c1", "ts": "2026-01-01T10:00:00Z", "amount": "7"}',
    '{"_id": 2, "card": 5, "ts": 1767261660, "amount": 1}',
    '{"_id": 3, "card": "c1", "ts": "2026-01-01T10:02:00Z", "amount": 2.5}',
]


def test_of_a_column_with_several_types_the_type_of_most_values_is_declared_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "e.jsonl").write_text("\n".join(MESSY))
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.jsonl")
    assert done.exit_code == 0, done.output
    assert '1 row is no event: field `amount` is not of type double: "7"\n' in done.output
    assert "1 row is no event: field `card` is not of type string: 5\n" in done.output
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    assert {field.name: field.ddl for field in stream.fields} == {
        "id": "bigint", "card": "string", "ts": "timestamp", "amount": "double"
    }  # fmt: skip
    assert stream.fields[0].place == ("_id",)
    done = cep("match", tmp_path / "r.cep", "-i", tmp_path / "e.jsonl")
    assert "malformed                2" in done.output, done.output


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("e.json", b'[{"ts": "2026-01-01"},\n {"ts": "2026-01-01"}]\n', "error[E0640]: "),
        ("e.json", b'{\n "ts": "2026-01-01",\n "a": 1\n}\n', "error[E0641]: "),
        ("e.jsonl", '{"ts": "2026-01-01"}\n'.encode("utf-16"), "error[E0642]: "),
        ("e.jsonl", b'{"ts": "2026-01-01"}\r{"ts": "2026-01-01"}\r', "> {folder}/new.jsonl"),
        ("e.csv", CSV.replace("\n", "\r").encode(), "error[E0642]: "),
        ("e.csv", CSV.replace("note", "ok").encode(), "has column `ok` more than once"),
        ("e.csv", b"ts,a,A\n2026-01-01,1,2\n", "`A` and `a` differ in upper and lower case only"),
    ],
)
def test_a_file_that_cep_match_refuses_is_refused_with_the_same_advice(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    done = cep("new", tmp_path / "r", "--from", tmp_path / name)
    assert done.exit_code == 1, done.output
    assert said.replace("{folder}/", "") in done.output
    assert not (tmp_path / "streams.yaml").exists()


def test_a_name_that_must_be_changed_is_no_other_column_and_a_field_without_a_name_is_left_out(
    tmp_path: Path,
) -> None:
    row = '{"_id": 1, "id": "a", "#ID": "b", "": 2, "card": "c", "_ts": "2026-01-01T10:00:00Z", "x": 0.5}\n'
    (tmp_path / "e.jsonl").write_text(row)
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.jsonl")
    assert done.exit_code == 0, done.output
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    places = {"id_": "_id", "id": "id", "ID__": "#ID", "card": "card", "ts": "_ts", "x": "x"}
    assert {field.name: ".".join(field.place) for field in stream.fields} == places
    assert "all passed" in cep("test", tmp_path).output
    pq.write_table(
        pa.table({"": ["a"], "card": ["c"], "ts": pa.array([0], pa.timestamp("us"))}), tmp_path / "e.parquet"
    )
    (tmp_path / "streams.yaml").unlink()
    done = cep("new", tmp_path / "s", "-t", "count", "--from", tmp_path / "e.parquet")
    assert done.exit_code == 0, done.output


def test_a_csv_file_in_utf_16_is_declared_so(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(CSV.replace(",", "\t"), encoding="utf-16")
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.csv")
    assert done.exit_code == 0, done.output
    assert "    csv: {encoding: utf-16, delimiter: tab}\n" in (tmp_path / "streams.yaml").read_text()
    done = cep("match", tmp_path / "r.cep", "-i", tmp_path / "e.csv")
    assert "events                   3" in done.output, done.output


def test_columns_of_parquet_are_declared_only_with_types_in_which_they_are_read(tmp_path: Path) -> None:
    table = {
        "day": pa.array([date(2026, 1, 1)] * 2), "ts": pa.array([-1, 1500], pa.timestamp("ns")),
        "big": pa.array([1, 2], pa.uint64()), "bits": pa.array([b"a", b"b"]), "none": pa.nulls(2),
        "card": ["c1", "c2"], "n": pa.array([1, 2], pa.uint32()),
    }  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.parquet")
    assert done.exit_code == 0, done.output
    assert "1 row is no event: event time `ts` is outside valid_time\n" in done.output
    (stream,) = load_streams(tmp_path / "streams.yaml").values()
    assert {field.name: field.ddl for field in stream.fields} == {
        "day": "date", "ts": "timestamp", "none": "string", "card": "string", "n": "bigint"
    }  # fmt: skip
    assert stream.event_time == "ts"
    assert cep("match", tmp_path / "r.cep", "-i", tmp_path / "e.parquet").exit_code == 0


def test_columns_that_rules_cannot_compare_are_left_out_with_the_true_reason(tmp_path: Path) -> None:
    nested = pa.struct([("a", pa.int32()), ("tags", pa.list_(pa.string()))])
    table = {
        "ts": pa.array([0, 1], pa.timestamp("us")), "card": ["c1", "c2"], "x": [1.5, 2.5],
        "items": pa.array([[1], [2]]), "meta": pa.array([None, None], nested), "bits": pa.array([b"a", b"b"]),
        "by name": pa.array([[], []], pa.map_(pa.string(), pa.float64())),
        "clock": [time(1), time(2)], "clocks": [[time(1)], []], "line\nfeed": [time(1), time(2)],
    }  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.parquet")
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "streams.yaml").read_text().splitlines()
    assert lines[1:3] == [
        "# Left out, because rules can only test whether they are NULL, and reading them takes time: "
        'items, meta, bits, "by name"',
        '# Left out, because a stream has no such type: clock, clocks, "line\\nfeed"',
    ]
    lines += [
        "      items: array<bigint>",
        "      meta: 'struct<a: int, tags: array<string>>'",
        "      bits: binary",
        "      'by name': 'map<string, double>'",
    ]
    (tmp_path / "streams.yaml").write_text("\n".join(lines))  # a stream has such types
    done = cep("match", tmp_path / "r.cep", "-i", tmp_path / "e.parquet")
    assert "malformed                0" in done.output, done.output


@pytest.mark.parametrize("name", ["e.parquet", "e.csv", "e.jsonl"])
def test_a_column_of_only_nulls_is_neither_the_key_nor_the_value(tmp_path: Path, name: str) -> None:
    if name == "e.parquet":
        times = pa.array([0, 60_000_000], pa.timestamp("us"))
        columns = [pa.nulls(2), times, pa.array(["a", "b"]), pa.array([1.5, 2.5]), pa.nulls(2)]
        pq.write_table(pa.table(columns, names=["none", "ts", "id", "x", "blank"]), tmp_path / name)
    elif name == "e.csv":
        (tmp_path / name).write_text("none,ts,id,x,blank\n,2026-01-01,a,1.5,\n,2026-01-02,b,2.5,\n")
    else:
        row = '{"none": null, "ts": "2026-01-01", "id": "%s", "x": 1.5, "blank": null}\n'
        (tmp_path / name).write_text(row % "a" + row % "b")
    done = cep("new", tmp_path / "r", "--from", tmp_path / name)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.cep").read_text()
    assert "PARTITION BY id\n" in text
    assert "x < small" in text
    assert "malformed                0" in cep("match", tmp_path / "r.cep", "-i", tmp_path / name).output


def test_without_a_column_that_has_values_there_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"ts": "2026-01-01", "x": 1.5, "none": null}\n' * 2)
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.jsonl")
    assert done.exit_code == 1
    assert "for the key\nhelp: choose one: --key COLUMN; not taken: `none` (only NULLs)\n" in done.output


def test_the_only_column_for_the_key_is_no_tie_break(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("ts,id,x,y\n2026-01-01,a,1.5,2.5\n2026-01-02,b,1.5,2.5\n")
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.csv")
    assert done.exit_code == 0, done.output
    assert "PARTITION BY id\n" in (tmp_path / "r.cep").read_text()


def test_columns_named_like_those_of_matches_and_words_of_yaml_do_not_spoil_the_rule(tmp_path: Path) -> None:
    text = "ts,rule,TRUE,NULL\n2026-01-01,r,a,1\n2026-01-02,r,a,2\n"
    (tmp_path / "e.csv").write_text(text)
    assert cep("new", tmp_path / "r", "--from", tmp_path / "e.csv").exit_code == 0
    assert "PARTITION BY `TRUE`\n" in (tmp_path / "r.cep").read_text()
    assert cep("lint", tmp_path).exit_code == 0
    assert "all passed" in cep("test", tmp_path).output


def test_a_whole_number_is_the_value_of_the_rule_and_no_tie_break_if_there_is_no_other(
    tmp_path: Path,
) -> None:
    (tmp_path / "e.csv").write_text("ts,sensor,value\n2026-01-01,s1,1\n2026-01-02,s1,2\n")
    done = cep("new", tmp_path / "r", "--from", tmp_path / "e.csv")
    assert done.exit_code == 0, done.output
    assert "value < small" in (tmp_path / "r.cep").read_text()


def test_without_events_it_loads_neither_arrow_nor_numpy(tmp_path: Path) -> None:
    line = "import sys; from cep.commands.cli import main; main(['new', 'r'], standalone_mode=False)"
    shown = "print([name for name in ('pyarrow', 'numpy') if name in sys.modules])"
    command = [sys.executable, "-c", f"{line}; {shown}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_columns_of_matches_are_those_of_rule_sets() -> None:
    assert {"rule", *MATCH_COLUMNS} == rule_templates._OF_MATCHES
