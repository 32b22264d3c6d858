"""CSV as streams declare it: signs, headers, encodings, records of several lines, what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cep.formats.files import Format, text_reader
from cep.formats.protocol import MAX_RECORD_LINES
from cep.formats.text import csv_lines
from cep.formats.text.text_files import lines_as_utf8
from cep.schema.stream import CsvLayout, Field, Stream
from tests.unit.formats.test_files import message, read

STREAM = Stream("s", (Field("ts", "timestamp"), Field("k", "string"), Field("x", "double")), "ts")
DAY_US = 1_714_521_600_000_000


def read_text(
    path: Path, text: str | bytes, stream: Stream = STREAM, **layout: Any
) -> tuple[list[Any], list[Any]]:
    """Return (k, x) of the events and (position, reason, raw) of the dead letters, in blocks of any size."""
    stream = replace(stream, csv=CsvLayout(**layout))
    path = path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = []
    sizes = (1, 3) if len(text) < 500 else (100, 1000)
    for block_bytes in (*sizes, 1 << 20):
        events, letters = read(path, stream, block_bytes=block_bytes)
        found.append(
            (
                [(row["k"], row["x"]) for row in events],
                [(letter["position"], letter["reason"], letter["raw"]) for letter in letters],
            )
        )
    assert found[0] == found[1] == found[2]
    return found[0]


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ('ts;k;x\n2024-05-01;"a;b";1.5\n', {"delimiter": ";"}),
        ("ts\tk\tx\n2024-05-01\ta;b\t1.5\n", {"delimiter": "\t", "quote": ""}),
        ("ts|k|x\n'2024-05-01'|'a;b'|1.5\n", {"delimiter": "|", "quote": "'"}),
        ("ts\x01k\x01x\n2024-05-01\x01a;b\x011.5\n", {"delimiter": "\x01"}),
        ("ts]k]x\n2024-05-01]^a;b^]1.5\n", {"delimiter": "]", "quote": "^"}),
        ("2024-05-01,a;b,1.5\n", {"has_header": False}),
        ("\ufeff2024-05-01,a;b,1.5\n", {"has_header": False}),
        ("1.5,note,2024-05-01,a;b\n", {"has_header": False, "columns": ("x", "other", "ts", "k")}),
        ("ts,k,x\r\n2024-05-01,a;b,1.5\r\n", {}),
        ("\ufeff" + '"ts","k","x"\n2024-05-01,a;b,1.5', {}),
        ('x,"k",ts,k2\n1.5,a;b,2024-05-01,"""\n', {"quote": "'"} | {"quote": ""}),
    ],
)
def test_a_layout_is_read(tmp_path: Path, text: str, layout: dict[str, Any]) -> None:
    if layout.get("quote") == "" and '"k"' in text:
        text = text.replace('"k"', "k")
    assert read_text(tmp_path, text, **layout) == ([("a;b", 1.5)], [])


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("iso8859-1", "Zo\u00eb"),
        ("cp1252", "Zo\u00eb \u20ac"),
        ("utf-16", "Zo\u00eb \u65e5\u672c \U0001f600"),
        ("utf-16-le", "Zo\u00eb"),
        ("utf-16-be", "\ufeffZo\u00eb"),
        ("shift_jis", "\u65e5\u672c\u8868"),
        ("gb18030", "\u65e5\u672c\U0001f600"),
    ],
)
def test_an_encoding_is_read(tmp_path: Path, encoding: str, text: str) -> None:
    text = text.removeprefix("\ufeff")
    data = f"ts,k,x\r\n2024-05-01,{text},1\r\n".encode(encoding)
    assert read_text(tmp_path, data, encoding=encoding) == ([(text, 1.0)], [])


@pytest.mark.parametrize(
    ("encoding", "data", "position", "reason"),
    [
        ("cp1252", b"ts,k,x\n2024-05-01,a\x81b,1\n2024-05-01,c,2\n", 2, "not cp1252 text"),
        ("ascii", "ts,k,x\n2024-05-01,\u00eb,1\n2024-05-01,c,2\n".encode(), 2, "not ascii text"),
        ("shift_jis", b"ts,k,x\n2024-05-01,\x81\xad,1\n2024-05-01,c,2\n", 2, "not shift_jis text"),
        (
            "utf-16",
            "ts,k,x\n2024-05-01,".encode("utf-16") + b"\x00\xd8" + ",1\n2024-05-01,c,2\n".encode("utf-16-le"),
            2,
            "not utf-16 text",
        ),
    ],
)
def test_bytes_that_are_no_characters_are_a_dead_letter(
    tmp_path: Path, encoding: str, data: bytes, position: int, reason: str
) -> None:
    events, letters = read_text(tmp_path, data, encoding=encoding)
    assert events == [("c", 2.0)]
    assert [letter[:2] for letter in letters] == [(position, reason)]
    assert "\ufffd" in letters[0][2]


def test_a_cut_last_character_is_a_dead_letter(tmp_path: Path) -> None:
    data = "ts,k,x\n2024-05-01,c,2\n2024-05-01,c,2".encode("utf-16")[:-1]
    events, letters = read_text(tmp_path, data, encoding="utf-16")
    assert (events, [letter[:2] for letter in letters]) == ([("c", 2.0)], [(3, "not utf-16 text")])


def test_lines_of_an_encoding_that_another_has_split_are_read_alike() -> None:
    lines = [b"2024-05-01,Zo\xeb,1", b"2024-05-01,a\x81b,1"]
    assert lines_as_utf8(lines, "cp1252")[0] == "2024-05-01,Zo\u00eb,1".encode()
    stream = replace(STREAM, csv=CsvLayout(has_header=False, encoding="cp1252"))
    reader = text_reader("x.csv", stream, Format.CSV)
    pieces = reader.read(lines_as_utf8(lines, "cp1252")) + reader.read([], is_last=True)
    assert [row["k"] for piece in pieces for row in piece.events.to_pylist()] == ["Zo\u00eb"]
    assert [problem for piece in pieces for problem in piece.problems] == [(2, "not cp1252 text")]


def test_utf_16_needs_its_mark_and_is_not_read_by_lines(tmp_path: Path) -> None:
    stream = replace(STREAM, csv=CsvLayout(encoding="utf-16"))
    path = tmp_path / "a.csv"
    path.write_bytes("ts,k,x\n".encode("utf-16-le"))
    assert message(path, stream=stream) == (
        "error[E0642]: `a.csv` does not begin with the byte order mark of utf-16\n"
        "help: declare csv: {encoding: utf-16-le}, or utf-16-be, or what else it is"
    )
    with pytest.raises(
        Exception, match=r"E0646.*utf-16 cannot be read from a file system that only Spark knows"
    ):
        lines_as_utf8([b"x"], "utf-16")


# ---------------------------------------------------------------- records over several lines


def test_a_quoted_field_may_have_line_ends_in_it(tmp_path: Path) -> None:
    text = (
        'ts,k,x\n2024-05-01,"one\n\ntwo, ""three""\r\n",1\n2024-05-01,"",2\n2024-05-01,"a\n",3\n'
        '2024-05-01,"b\nc","1\n0"\n2024-05-01,d,4'
    )
    assert read_text(tmp_path, text) == (
        [('one\n\ntwo, "three"\n', 1.0), (None, 2.0), ("a\n", 3.0), ("d", 4.0)],
        [(9, r"field `x` is not of type double: 1\n0", '2024-05-01,"b\nc","1\n0"')],
    )


def test_names_of_columns_may_have_line_ends_in_them(tmp_path: Path) -> None:
    stream = replace(STREAM, fields=(*STREAM.fields[:2], Field("x", "double", path=("x\n(C)",))))
    text = 'ts,k,"x\n(C)"\n2024-05-01,a,1\n2024-05-01,b,bad\n'
    assert read_text(tmp_path, text, stream) == (
        [("a", 1.0)],
        [(4, "field `x` is not of type double: bad", "2024-05-01,b,bad")],
    )


QUOTE = "a quote that does not enclose a whole field"


@pytest.mark.parametrize(
    "broken",
    [
        '2024-05-01,"a,1',
        '2024-05-01,a"b,1',
        '2024-05-01,"a"b,1',
        '2024-05-01,"a" ,1',
        '2024-05-01, "a",1',
        '"2024-05-01,"a",1',
        '"',
        '""""a',
    ],
)
@pytest.mark.parametrize("good", ["2024-05-01,c,2", '2024-05-01,"c",2'])
def test_a_broken_quote_takes_no_line_but_its_own(tmp_path: Path, broken: str, good: str) -> None:
    text = "\n".join(["ts,k,x", good, broken, *[good] * 300, broken, good])
    events, letters = read_text(tmp_path, text) if len(text) < 9000 else ([], [])
    assert events == [("c", 2.0)] * 302
    assert letters == [(3, QUOTE, broken), (304, QUOTE, broken)]


def test_a_record_has_at_most_100_lines(tmp_path: Path) -> None:
    def text(n_lines: int) -> str:
        return 'ts,k,x\n2024-05-01,"' + "a\n" * (n_lines - 1) + '",1\n2024-05-01,c,2\n'

    events, letters = read_text(tmp_path, text(MAX_RECORD_LINES))
    assert (events, letters) == ([("a\n" * 99, 1.0), ("c", 2.0)], [])
    events, letters = read_text(tmp_path, text(MAX_RECORD_LINES + 1))
    assert events == [("c", 2.0)]
    assert letters[0] == (2, QUOTE, '2024-05-01,"a')
    assert letters[1] == (3, "1 field where the header has 3", "a")
    assert letters[-1] == (102, QUOTE, '",1')
    assert len(letters) == 101


def test_a_carriage_return_is_part_of_a_quoted_field_only(tmp_path: Path) -> None:
    text = 'ts,k,x\n2024-05-01,"a\rb",1\n2024-05-01,a\rb,1\n2024-05-01,c\r,1\n2024-05-01,d,1\r\n'
    assert read_text(tmp_path, text) == (
        [("a\rb", 1.0), ("d", 1.0)],
        [
            (3, "a carriage return outside quotes", "2024-05-01,a\rb,1"),
            (4, "a carriage return outside quotes", "2024-05-01,c\r,1"),
        ],
    )


def test_a_byte_order_mark_is_dropped_at_the_beginning_of_the_file_only(tmp_path: Path) -> None:
    text = "\ufeffts,k,x\n2024-05-01,\ufeffa,1\n\ufeff2024-05-01,b,1\n"
    assert read_text(tmp_path, text) == (
        [("\ufeffa", 1.0)],
        [(3, r"field `ts` is not of type timestamp: \ufeff2024-05-01", "\ufeff2024-05-01,b,1")],
    )


@given(
    st.lists(st.text(alphabet='a",\n\r;\x00\ufeff', max_size=6), min_size=3, max_size=3).map(tuple)
    | st.just(("", "", "")),
    st.sampled_from([CsvLayout(), CsvLayout(delimiter=";"), CsvLayout(quote="a")]),
)
def test_what_is_quoted_right_comes_back(cells: tuple[str, ...], layout: CsvLayout) -> None:
    stream = Stream("s", tuple(Field(name, "string") for name in "abc"), "a", csv=layout)
    quote = layout.quote
    text = layout.delimiter.join(quote + cell.replace(quote, quote * 2) + quote for cell in cells)
    parsed = csv_lines.read(text.encode().split(b"\n"), list("abc"), stream)
    assert (parsed.events.to_pylist(), parsed.problems) == (
        [dict(zip("abc", (cell or None for cell in cells), strict=True))],
        [],
    )


# ---------------------------------------------------------------- words where it does not fit


@pytest.mark.parametrize(
    ("header", "advice"),
    [
        (
            "ts;k;x",
            "the first line is one column, `ts;k;x`: if `;` separate its fields, "
            'declare csv: {delimiter: ";"}',
        ),
        (
            "ts\tk\tx",
            "the first line is one column, `ts\tk\tx`: if tabs separate its fields, "
            "declare csv: {delimiter: tab}",
        ),
        ("TS,k,x", "the file has `TS`: upper and lower case count; declare field: TS for it"),
        ("ts, k,x", 'the file has ` k`, with blanks: remove them, or declare field: " k" for it'),
        ("a,b", "columns of the file: a, b"),
        ("2024-05-01", "columns of the file: 2024-05-01"),
    ],
)
def test_a_header_that_does_not_fit_is_one_clear_error_with_what_to_declare(
    tmp_path: Path, header: str, advice: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(header + "\n")
    text = message(path, stream=STREAM)
    assert text.startswith("error[E0604]: `a.csv` has no column")
    assert text.endswith(f"\nhelp: {advice}")


def test_the_first_line_of_a_file_without_header_needs_no_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"2024-05-01,a,1\n')
    assert message(path, stream=STREAM) == (
        "error[E0606]: the first line of `a.csv` is not a CSV header\n"
        "help: the first line must name the columns; without them declare csv: {header: false}"
    )
    stream = replace(STREAM, csv=CsvLayout(has_header=False))
    path.write_text("2024-05-01,a\n2024-05-01,a,1\n")
    events, letters = read(path, stream)
    assert events == [{"ts": DAY_US, "k": "a", "x": 1.0}]
    assert [letter["reason"] for letter in letters] == ["2 fields where there are columns for 3"]
