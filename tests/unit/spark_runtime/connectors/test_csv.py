"""Files of CSV that sinks write: quotes, NULL, and what has no field of its own in CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_runtime.connectors.files.writers import CsvWriter
from spark_runtime.sinks.protocol import Output, Rows
from spark_runtime.wire.output import MATCH, Matches, carried, carried_schema


def lines_of(file: Path, table: pa.Table) -> str:
    """Return what a file of the rows has."""
    matches = Matches(carried_schema(table.schema))
    matches.append(pa.Table.from_arrays([carried(c) for c in table.columns], schema=matches.schema))
    CsvWriter().write(file, Rows(Output(MATCH, table.schema), matches))
    return file.read_bytes().decode()


def test_a_field_has_quotes_where_it_needs_them_and_null_is_nothing(tmp_path: Path) -> None:
    table = pa.table(
        {
            'say "a"': pa.array(["x", 'q"u', "a,b", " s", "", None, "l\nf", "=SUM(A1)"], pa.string()),
            "time": pa.array([7, *[None] * 7], pa.timestamp("us", "UTC")),
            "number": [1.5, float("nan"), None, 1e300, 0.1, 2.0, 3.0, float("-inf")],
        }
    )
    assert lines_of(tmp_path / "f.csv", table).splitlines(keepends=True) == [
        '"say ""a""",time,number\n',
        "x,1970-01-01T00:00:00.000007Z,1.5\n",
        '"q""u",,NaN\n',
        '"a,b",,\n',
        '" s",,1e+300\n',
        '"",,0.1\n',
        ",,2.0\n",
        '"l\n',
        'f",,3.0\n',
        "=SUM(A1),,-Infinity\n",  # a formula stays what it is
    ]


def test_lists_and_events_are_texts_of_json(tmp_path: Path) -> None:
    event = pa.struct([("a", pa.string()), ("n", pa.int64())])
    table = pa.table(
        {"list": [[1.5, None], []], "events": pa.array([[{"a": "x", "n": None}], None], pa.list_(event))}
    )
    assert lines_of(tmp_path / "f.csv", table) == 'list,events\n"[1.5,null]","[{""a"":""x""}]"\n[],\n'


def test_a_file_without_rows_has_the_names(tmp_path: Path) -> None:
    CsvWriter().write(tmp_path / "f.csv", Rows(Output(MATCH, pa.schema([("a", pa.string())])), ()))
    assert (tmp_path / "f.csv").read_text() == "a\n"


@given(st.lists(st.tuples(st.text(alphabet='a,"\n\r \t=+é', min_size=0), st.text()), min_size=1))
def test_any_text_is_read_as_it_was(rows: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f.csv"
        columns = list(zip(*rows, strict=True))
        lines_of(
            file, pa.table({"a": pa.array(columns[0], pa.string()), "b": pa.array(columns[1], pa.string())})
        )
        with file.open(newline="", encoding="utf-8") as lines:
            assert list(csv.reader(lines))[1:] == [list(row) for row in rows]
