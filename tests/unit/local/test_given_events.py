"""Events that a program gives: rows, DataFrames, tables of Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cep.errors import InputError
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream, TableSettings

STREAMS = """\
streams:
  freezers:
    event_time: time
    schema:
      time: {type: timestamp, format: "%d.%m.%Y %H:%M:%S", zone: Europe/Berlin}
      freezer: string
      celsius: double
      n: bigint
"""
RULE = """\
RULE warm
FROM freezers
PARTITION BY freezer
PATTERN a -> b
WITHIN 1 HOUR
DEFINE a AS celsius > 0, b AS celsius > 0
MEASURES b.celsius AS celsius, b.n AS n
"""
START, END = dt.datetime(2024, 5, 1, 6, 0, tzinfo=dt.UTC), dt.datetime(2024, 5, 1, 6, 10, tzinfo=dt.UTC)
"""8 o'clock in Berlin, and ten minutes later."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which has a rule and its streams."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("warm.cep").write_text(RULE)
    return tmp_path


def columns(times: list[Any]) -> dict[str, list[Any]]:
    return {"time": times, "freezer": ["F1", "F1"], "celsius": [1, 2], "n": [3, None]}


def records(times: list[Any]) -> list[dict[str, Any]]:
    named = columns(times)
    return [{name: values[at] for name, values in named.items()} for at in (0, 1)]


class Capsule:
    """A table of a library that is not installed here."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


GIVEN: list[Callable[[list[Any]], Any]] = [
    records,
    lambda times: iter(records(times)),
    lambda times: pd.DataFrame(columns(times)),
    lambda times: pd.DataFrame(columns(times)).set_index("time"),
    lambda times: pd.DataFrame(columns(times)).to_dict("records"),
    lambda times: pa.table(columns(times)),
    lambda times: Capsule(pa.table(columns(times))),
    lambda times: pd.DataFrame(columns(times) | {"other": [1, 2]}).astype({"freezer": "category"}),
]
TEXTS = ["01.05.2024 08:00:00", "01.05.2024 08:10:00"]
LOCAL = [dt.datetime(2024, 5, 1, 8, 0), dt.datetime(2024, 5, 1, 8, 10)]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("times", [TEXTS, LOCAL, [START, END]], ids=["texts", "local", "zoned"])
def test_rows_and_tables_have_the_same_matches(
    folder: Path, given: Callable[[list[Any]], Any], times: list[Any]
) -> None:
    for rules, streams in (
        ("warm.cep", "streams.yaml"),
        (Path("warm.cep"), Path("streams.yaml")),
        (RULE, "streams.yaml"),
        ("warm.cep", None),
        (load_rules("warm.cep"), None),
    ):
        (match,) = find_matches(rules, streams, given(times))
        assert (match["match_start"], match["match_end"]) == (START, END)
        assert (match["freezer"], match["celsius"], match["n"]) == ("F1", 2.0, None)


def test_matches_come_as_a_table_if_asked(folder: Path) -> None:
    found = find_matches("warm.cep", "streams.yaml", pd.DataFrame(columns(TEXTS)), as_table=True)
    assert found.column_names == ["rule", "freezer", "match_id", "match_start", "match_end", "celsius", "n"]
    assert found.schema.field("match_start").type == pa.timestamp("us", "UTC")
    frame = found.to_pandas()
    assert list(frame["celsius"]) == [2.0]
    none = find_matches("warm.cep", "streams.yaml", [], as_table=True)
    assert (none.num_rows, none.schema) == (0, found.schema)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (records(["2024-05-01T08:00:00Z", TEXTS[1]]),
         "column `time` is timestamp (format: %d.%m.%Y %H:%M:%S), and '2024-05-01T08:00:00Z' in row 0 is not"
         "\n"
         "help: give a text such as '31.05.2024 18:30:00', or a datetime; rows are counted from 0"),
        (pd.DataFrame(columns([TEXTS[0], "2024-05-01"])),
         'column `time` is timestamp (format: %d.%m.%Y %H:%M:%S), and "2024-05-01" in row 1 is not\n'
         "help: give a text such as '31.05.2024 18:30:00', or a datetime; rows are counted from 0"),
        (pd.DataFrame(columns(TEXTS)).assign(celsius=["1", "2"]),
         "column `celsius` is double, the table has string\n"
         "help: give a floating-point number; rows are counted from 0"),
        (pd.DataFrame(columns(TEXTS)).assign(n=[3, 1.5]),
         "column `n` is bigint, and 1.5 in row 1 is not\nhelp: give an integer; rows are counted from 0"),
        (pd.DataFrame(columns(TEXTS)).rename(columns={"celsius": "Celsius"}),
         "the table given for `freezers` has no column `celsius`\n"
         "help: did you mean `Celsius`? columns of the table: Celsius, freezer, n, time"),
        (pd.DataFrame(columns([TEXTS[0], None])),
         "row 1 of `freezers` has no event time: `time` is NULL\n"
         "help: rows are counted from 0; each event has a time"),
        (records([TEXTS[0], float("nan")]),
         "row 1 of `freezers` has no event time: `time` is NULL\n"
         "help: rows are counted from 0; each event has a time"),
        ("events.jsonl",
         "the events of `freezers` are of type str\n"
         "help: give a list of dictionaries, a DataFrame or an Arrow table; match_file reads files"),
        (5, "the events of `freezers` are of type int\n"
         "help: give a list of dictionaries, a DataFrame or an Arrow table; match_file reads files"),
        ([[1, 2]], "row 0 of `freezers` is of type list, not a dictionary\n"
         "help: write a row as {'card': 'c1', 'amount': 5.0}"),
        ({"freezer": []}, "no rule reads stream freezer\nhelp: give rows by name: freezers"),
    ],
)  # fmt: skip
def test_an_error_says_the_column_the_row_and_what_to_give(folder: Path, rows: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        find_matches("warm.cep", "streams.yaml", rows)
    assert isinstance(raised.value, ValueError)
    assert str(raised.value) == f"error[E0832]: {message}"


def test_microseconds_with_a_fraction_are_refused() -> None:
    fact = r"column `ts` is timestamp, and 1714557600.75 in row 0 is not"
    with pytest.raises(InputError, match=fact):
        event_table(S, [{"ts": 1714557600.75, "x": 1}])


def test_a_table_of_mixed_values_is_refused_with_the_column() -> None:
    with pytest.raises(InputError, match=r"the table given for `s` cannot be read: .*column x"):
        event_table(S, pd.DataFrame({"ts": [0, 1], "x": [1, "a"]}))


S = Stream("s", (Field("ts", "timestamp"), Field("x", "double")), event_time="ts")


def times_of(rows: Any, **form: Any) -> list[int | None]:
    field = replace(S.fields[0], **form)
    found: list[int | None] = (
        event_table(replace(S, fields=(field, S.fields[1])), rows).column("ts").to_pylist()
    )
    return found


def test_times_without_a_zone_need_a_declared_one() -> None:
    for rows, shown in (
        ([{"ts": 0}, {"ts": LOCAL[0]}], "2024-05-01 08:00:00 has no time zone: column `ts`, row 1"),
        (
            pd.DataFrame({"ts": [None, LOCAL[0]], "x": 1.0}),
            "2024-05-01 08:00:00 has no time zone: column `ts`, row 1",
        ),
        (
            pa.table({"ts": LOCAL, "x": [1.0, 2.0]}),
            "2024-05-01 08:00:00 has no time zone: column `ts`, row 0",
        ),
    ):
        with pytest.raises(InputError) as raised:
            times_of(rows)
        assert shown in str(raised.value)
        assert "ts: {type: timestamp, zone: Europe/Berlin}" in raised.value.help
    start_us = int(START.timestamp() * 1_000_000)
    for rows in (
        [{"ts": LOCAL[0]}],
        [{"ts": np.datetime64("2024-05-01T08:00:00")}],
        pa.table({"ts": LOCAL[:1], "x": [1.0]}),
    ):
        assert times_of(rows, zone="Europe/Berlin") == [start_us]


def test_a_local_time_is_read_as_text_and_as_datetime_alike_when_clocks_are_set() -> None:
    for hour, minute in ((1, 30), (2, 30), (3, 30)):
        for day in ("2024-03-31", "2024-10-27"):
            text = f"{day}T{hour:02}:{minute:02}:00"
            (expected,) = times_of([{"ts": text}], zone="Europe/Berlin")
            local = dt.datetime.fromisoformat(text)
            assert times_of([{"ts": local}], zone="Europe/Berlin") == [expected]
            assert times_of(pd.DataFrame({"ts": [local], "x": 1.0}), zone="Europe/Berlin") == [expected]


def test_a_number_is_a_time_in_the_unit_of_its_column() -> None:
    for rows in ([{"ts": 5}], pa.table({"ts": [5], "x": [1.0]})):
        assert times_of(rows) == [5]
        assert times_of(rows, unit="milliseconds") == [5_000]
    assert times_of([{"ts": 1.5}], unit="seconds") == [1_500_000]
    assert times_of([{"ts": "5"}], unit="seconds") == [5_000_000]
    with pytest.raises(
        InputError, match=r"and 1e\+30 in row 0 is not\nhelp: give a number of seconds since 1970"
    ):
        times_of([{"ts": 1e30}], unit="seconds")


def test_values_of_numpy_and_decimals_are_taken() -> None:
    stream = replace(S, fields=(*S.fields, Field("n", "int"), Field("s", "string"), Field("day", "date")))
    rows = [
        {
            "ts": np.int64(0),
            "x": np.float32(1.5),
            "n": np.int32(7),
            "s": float("nan"),
            "day": dt.date(1970, 1, 2),
        },
        {"ts": 1, "x": Decimal("2.5"), "n": None, "s": "a", "day": "1970-01-03"},
    ]
    expected = {"ts": [0, 1], "x": [1.5, 2.5], "n": [7, None], "s": [None, "a"]}
    found = event_table(stream, rows).to_pydict()
    assert found == expected | {"day": [86_400_000_000, 172_800_000_000]}
    table = pa.table({**expected, "day": [dt.date(1970, 1, 2), dt.date(1970, 1, 3)]})
    assert event_table(stream, table).to_pydict() == found


@pytest.mark.parametrize("time", ["1960-01-01", "9999-01-01", "0001-01-01"])
def test_a_time_that_other_runs_refuse_is_refused_unless_it_is_declared_valid(time: str) -> None:
    stream = Stream("t", (Field("ts", "timestamp"), Field("k", "string")), event_time="ts")
    rule = "RULE r FROM t PARTITION BY k PATTERN a DEFINE a AS k = 'x'"
    rows = [{"ts": "2024-05-01", "k": "x"}, {"ts": time, "k": "x"}]
    with pytest.raises(ValueError, match="row 1 of `t`: event time `ts` is outside valid_time"):
        find_matches(rule, stream, rows)
    wide = replace(stream, min_valid_us=-(1 << 62), max_valid_us=1 << 62)
    assert len(find_matches(rule, wide, rows)) == 2  # and a row may be ahead by any time


def test_a_version_of_a_table_that_other_runs_refuse_is_refused() -> None:
    table = Stream(
        "keys",
        (Field("ts", "timestamp"), Field("k", "string"), Field("op", "string")),
        event_time="ts",
        table=TableSettings(("k",), op="op"),
    )
    with pytest.raises(ValueError, match='row 1 of `keys`: no such `op`: "mend"'):
        event_table(table, [{"ts": 0, "k": "x", "op": "insert"}, {"ts": 1, "k": "x", "op": "mend"}])


ANY = Stream(
    "t",
    (Field("ts", "timestamp"), Field("s", "string"), Field("n", "bigint"), Field("x", "double")),
    event_time="ts",
)


@pytest.mark.parametrize("column", ["s", "n", "x"])
@pytest.mark.parametrize("missing", [pd.NA, pd.NaT, np.datetime64("NaT"), None])
def test_what_stands_for_null_is_null_in_a_dictionary(column: str, missing: object) -> None:
    assert event_table(ANY, [{"ts": 0, column: missing}]).column(column).to_pylist() == [None]


@pytest.mark.parametrize(
    ("value", "column"), [(True, "x"), (np.True_, "x"), (True, "n"), (np.ones(2), "s"), (np.ones(0), "n")]
)
def test_a_boolean_is_no_number_and_an_array_no_value(value: object, column: str) -> None:
    with pytest.raises(InputError, match=f"column `{column}` is .* in row 0 is not"):
        event_table(ANY, [{"ts": 0, column: value}])


def test_a_column_that_a_table_has_twice_is_named() -> None:
    double = pa.table([[0], ["a"], [1], [1.0], [2.0]], names=["ts", "s", "n", "x", "x"])
    with pytest.raises(InputError, match="has column `x` more than once"):
        event_table(ANY, double)


def test_a_column_of_a_table_may_have_its_name_in_the_data() -> None:
    stream = replace(S, fields=(S.fields[0], replace(S.fields[1], path=("Betrag EUR",))))
    assert event_table(stream, pa.table({"ts": [0], "Betrag EUR": [5]})).to_pydict() == {
        "ts": [0],
        "x": [5.0],
    }
    nested = replace(S, fields=(S.fields[0], replace(S.fields[1], path=("a", "x"))))
    for given in (pa.table({"ts": [0], "a": [{"x": 5.0}]}), pa.table({"ts": [0], "a.x": [5.0]})):
        assert event_table(nested, given).to_pydict() == {"ts": [0], "x": [5.0]}


def test_a_column_of_a_table_may_be_an_element_of_an_array() -> None:
    stream = replace(S, fields=(S.fields[0], replace(S.fields[1], path=("a",), element=(1, "x"))))
    rows = [[{"x": 1.0}, {"x": 2.0}], [{"x": 3.0}]]
    for given in (pa.table({"ts": [0, 1], "a": rows}), pa.table({"ts": [0, 1], "x": [2.0, None]})):
        assert event_table(stream, given).to_pydict() == {"ts": [0, 1], "x": [2.0, None]}
    with pytest.raises(InputError, match="has no column `x`"):
        event_table(stream, pa.table({"ts": [0], "a": [5.0]}))
    named = replace(S, fields=(S.fields[0], replace(S.fields[1], element=(0,))))
    assert event_table(named, pa.table({"ts": [0], "x": [[5.0, 6.0]]})).to_pydict() == {"ts": [0], "x": [5.0]}


TYPED = Stream(
    "t",
    (
        Field("k", "string"),
        Field("ts", "timestamp"),
        Field("f", "float"),
        Field("i", "tinyint"),
        Field("c", "decimal(5,2)"),
        Field("n", "bigint"),
        Field("d", "date"),
        Field("at", "timestamp", zone="Europe/Berlin"),
    ),
    event_time="ts",
)
TYPED_RULE = "RULE r FROM t PARTITION BY k PATTERN a DEFINE a AS f > 0.1 OR i > 127 OR c > 999"


def test_a_value_of_a_dictionary_has_the_declared_type() -> None:
    assert len(find_matches(TYPED_RULE, TYPED, [{"k": "x", "ts": 0, "f": 0.1}])) == 1  # 32 bits
    row = {
        "ts": 0,
        "c": Decimal("999.994"),
        "n": Decimal(5),
        "f": 2**53 + 1,
        "d": np.datetime64("2024-05-01"),
    }
    (found,) = event_table(TYPED, [row]).select(["c", "n", "f", "d"]).to_pylist()
    assert found == {"c": 999.994, "n": 5, "f": 2.0**53, "d": 1_714_521_600_000_000}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", 128),
        ("c", 1000),
        ("c", Decimal("Infinity")),
        ("c", float("nan")),
        ("c", Decimal("sNaN")),
        ("n", Decimal("5.5")),
        ("k", b"x"),
        ("k", bytearray(b"x")),
        ("at", 1 << 62),
        ("at", True),
        ("at", Decimal("Infinity")),
        ("at", Decimal("1E+1000000")),
        ("at", Decimal("1.5")),
        ("n", Decimal("Infinity")),
        ("n", Decimal("1E+1000000")),
        ("d", 19_844),
        ("d", 19_844.0),
        ("d", dt.datetime(2024, 5, 1, 10)),
        ("d", dt.datetime(2024, 5, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        ("d", pd.Timestamp("2024-05-01T10:00")),
    ],
)
def test_a_value_of_a_dictionary_that_its_type_does_not_hold_is_refused(column: str, value: object) -> None:
    with pytest.raises(InputError, match=f"E0832.*column `{column}` is .* in row 1 is not"):
        event_table(TYPED, [{"ts": 0}, {"ts": 0, column: value}])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 36_000_000], pa.timestamp("us")),
        pa.array([0, 36_000], pa.timestamp("ms", tz="UTC")),
        pa.array([0, 36_000], pa.date64()),
        pa.array([19_844, 19_845]),
    ],
    ids=str,
)
def test_a_time_of_day_in_a_table_is_no_date(values: pa.Array) -> None:
    stream = replace(S, fields=(S.fields[0], Field("x", "date")))
    with pytest.raises(InputError, match="column `x` is date"):
        event_table(stream, pa.table({"ts": [0, 0], "x": values}))


def test_a_datetime64_at_midnight_is_a_date() -> None:
    stream = replace(S, fields=(S.fields[0], Field("x", "date")))
    days = pd.DataFrame({"ts": [0], "x": pd.to_datetime(["2024-05-01"])})
    assert event_table(stream, days).to_pydict() == {"ts": [0], "x": [1_714_521_600_000_000]}


def test_a_number_that_is_no_time_is_refused_in_a_table() -> None:
    for values in (pa.array([1 << 62]), pa.array([1 << 63], pa.uint64())):
        with pytest.raises(InputError, match="column `ts` is timestamp"):
            event_table(S, pa.table({"ts": values, "x": [1.0]}))


def test_a_row_whose_key_is_null_belongs_to_no_key() -> None:
    both = "RULE a FROM t PARTITION BY k PATTERN a DEFINE a AS n = 1\n"
    both += "RULE b FROM t PARTITION BY i PATTERN a DEFINE a AS n = 1"
    rows = [{"k": "x", "i": 1, "ts": 0, "n": 1}, {"ts": 0, "i": 1, "n": 1}, {"ts": 0, "n": 1}]
    assert [match["rule"] for match in find_matches(both, TYPED, rows)] == ["a", "b", "b"]


def test_fold_says_which_of_two_hours_a_datetime_is_in() -> None:
    local = dt.datetime(2024, 10, 27, 2, 30)
    (first,), (second,) = (times_of([{"ts": local.replace(fold=at)}], zone="Europe/Berlin") for at in (0, 1))
    assert (first, second) == (1_729_989_000_000_000, 1_729_992_600_000_000)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_a_dictionary_of_texts_is_a_column_of_strings(kind: pa.DataType) -> None:
    def texts(words: list[str], codes: list[int | None]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint8()), pa.array(words).cast(kind))

    chunks = pa.chunked_array([texts(["a", "b"], [1, None]), texts(["c"], [0])])
    table = pa.table({"ts": [0, 1, 2], "s": chunks, "n": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    assert event_table(ANY, table).column("s").to_pylist() == ["b", None, "c"]


def test_other_columns_of_a_frame_may_have_any_values() -> None:
    frame = pd.DataFrame({"ts": [0], "s": ["a"], "n": [1], "x": [1.0]}, index=pd.Index([object()], name="z"))
    others = pd.DataFrame(
        [[object(), 1 + 2j, 1, 2, 3]], columns=["mixed", "complex", "same", "same", 5], index=frame.index
    )
    assert event_table(ANY, pd.concat([frame, others], axis=1)).to_pydict() == {
        "ts": [0],
        "s": ["a"],
        "n": [1],
        "x": [1.0],
    }
    indexed = frame.set_index("ts")
    assert event_table(ANY, indexed).column("ts").to_pylist() == [0]
    with pytest.raises(InputError, match=r"has no column `s`\nhelp: .*columns of the table: n, ts, word, x"):
        event_table(ANY, frame.rename(columns={"s": "word"}))
