"""Numbers of CSV files with other signs: all that are in the declared form, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from cep.formats.text import csv_lines
from cep.schema.stream import CsvLayout, Field, Stream
from tests.unit.formats.test_csv_lines import read_text

FIELDS = (
    Field("x", "double"),
    Field("n", "int"),
    Field("d", "decimal(12,2)"),
    Field("t", "timestamp", "seconds"),
)
LAYOUTS = [
    CsvLayout(";", decimal=",", thousands="."),
    CsvLayout(";", decimal=","),
    CsvLayout(";", thousands="'"),
    CsvLayout(",", decimal=",", thousands=" "),
    CsvLayout(";", decimal="^", thousands="\u202f"),
    CsvLayout(";", thousands=","),
]


def number(text: str, layout: CsvLayout, *, is_whole: bool) -> float | None:
    """Return what a text is, sign by sign."""
    if text in ("NaN", "Infinity", "-Infinity") and not is_whole:
        return float(text)
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    mantissa, mark, exponent = text.replace("E", "e").partition("e")
    whole, point, fraction = mantissa.partition(layout.decimal)
    if is_whole and (mark or point):
        return None
    if mark and not re.fullmatch("[+-]?[0-9]+", exponent):
        return None
    groups = whole.split(layout.thousands) if layout.thousands else [whole]
    if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or any(len(group) != 3 for group in groups[1:])):
        return None
    digits = "".join(groups)
    if (
        not (digits or fraction)
        or not re.fullmatch("[0-9]*", digits + fraction)
        or (len(groups) > 1 and not digits)
    ):
        return None
    return sign * float(f"{digits or 0}.{fraction or 0}e{exponent or 0}")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.number_form)
def test_a_number_is_one_in_the_declared_form_only(layout: CsvLayout) -> None:
    random = Random(7)
    signs = "0123456789" * 2 + "-e" + (layout.decimal + layout.thousands) * 4 + ".,"
    texts = [
        "NaN",
        "-Infinity",
        "1e308",
        "-0",
        *("".join(random.choices(signs, k=random.randint(1, 9))) for _ in range(4000)),
    ]
    texts += [f"{random.randint(0, 10**8):,}".replace(",", layout.thousands) for _ in range(500)]
    for name, is_whole in (("x", False), ("n", True)):
        stream = Stream("s", tuple(field for field in FIELDS if field.name == name), "x", csv=layout)
        lines = [f'"{text}"'.encode() for text in texts]
        found = csv_lines.read(lines, [name], stream)
        values: dict[int, float] = dict(
            zip(found.indices.tolist(), found.events.column(0).to_pylist(), strict=True)
        )
        expected = {row: number(text, layout, is_whole=is_whole) for row, text in enumerate(texts)}
        if is_whole:
            expected = {
                row: None if value is None or abs(value) >= 2**31 else value
                for row, value in expected.items()
            }
        assert {row for row, value in expected.items() if value is not None} == values.keys()
        wrong = [
            texts[row]
            for row, value in values.items()
            if repr(float(value)) != repr(float(expected[row] or 0)) and value
        ]
        assert wrong == []
        assert len(values) > 500
        for row, reason in found.problems:
            assert reason.startswith(
                f"field `{name}` is not of type {stream.fields[0].declared}{layout.number_form}: "
            )
            assert texts[row].encode("unicode_escape").decode() in reason


def test_all_columns_of_numbers_have_the_signs() -> None:
    stream = Stream("s", FIELDS, "t", csv=LAYOUTS[0])
    found = csv_lines.read([b"1.234,5;1.000;12,25;1.714.557.600,5"], ["x", "n", "d", "t"], stream)
    assert found.problems == []
    assert found.events.to_pylist() == [{"x": 1234.5, "n": 1000, "d": 12.25, "t": 1_714_557_600_500_000}]
    assert found.events.column("n").type == pa.int64()


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("120,5", '{decimal: ","}'),
        ("1,234", '{decimal: ","}, or {thousands: ","}'),
        ("1.234,5", '{decimal: ",", thousands: "."}'),
        ("-1.234.567", '{decimal: ",", thousands: "."}'),
        ("1,234.50", '{thousands: ","}'),
        ("1 234,5", '{decimal: ",", thousands: " "}'),
        ("1,2,3", ""),
    ],
)
def test_a_reason_says_which_setting_a_number_needs(tmp_path: Path, text: str, setting: str) -> None:
    _, [(_, reason, _)] = read_text(tmp_path, f"ts;k;x\n2024-05-01;a;{text}\n", delimiter=";")
    advice = f"; for such numbers declare csv: {setting}" if setting else ""
    assert reason == f"field `x` is not of type double: {text}{advice}"
