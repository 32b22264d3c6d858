"""Values of other protocols become text and JSON, whatever their types are."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from cep.schema.foreign_values import body_of, decimal_of, json_of, text_of, time_of_ms

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
TIME = datetime(2024, 5, 1, 10, tzinfo=UTC)


class Long(int):
    def __repr__(self) -> str:
        return "1L"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("a", "a"),
        (b"k\xc3\xa4se", "käse"),
        (memoryview(b"ab"), "ab"),
        (b"\xff", "\udcff"),
        (True, "true"),
        (False, "false"),
        (Long(1), "1"),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (Decimal("-Infinity"), "-Infinity"),
        ([Decimal("Infinity"), Decimal("NaN")], '["Infinity", "NaN"]'),
        (TIME, "2024-05-01T10:00:00.000000Z"),
        (TIME.replace(tzinfo=None), "2024-05-01T10:00:00.000000Z"),
        (TIME.astimezone(timezone(timedelta(hours=2))), "2024-05-01T10:00:00.000000Z"),
        (ID, str(ID)),
        ([], "[]"),
        ({}, "{}"),
        ([{"n": Long(1), "t": TIME, "q": b"x"}], '[{"n": 1, "t": "2024-05-01T10:00:00.000000Z", "q": "x"}]'),
    ],
)  # fmt: skip
def test_a_header_is_text(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    "value",
    [
        {b"x": 1},
        {ID: {None: [math.inf, math.nan, Decimal("NaN"), Decimal("1E+30"), b"b", ID, TIME]}},
        {1: True, 1.5: None, (1, 2): "t"},
        [b"a", ["b", ()]],
        object(),
        True,
        0,
    ],
)
def test_any_body_is_json_with_strings_as_keys(value: Any) -> None:
    json.loads(body_of(value), parse_constant=lambda word: pytest.fail(word))


def test_a_body_keeps_numbers_and_bytes() -> None:
    assert json_of({b"x": Decimal("0.10"), "n": [1, None, "ä"]}) == '{"x": 0.10, "n": [1, null, "ä"]}'
    assert [body_of(value) for value in (b"\xff", "ä", None)] == [b"\xff", "ä".encode(), b""]
    with pytest.raises(UnicodeDecodeError):
        body_of({"x": b"\xff"}).decode()


def test_a_value_that_is_nested_without_end_is_no_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert json_of(value) == '"nested too deeply"'


def test_types_of_a_protocol_are_converted_wherever_they_are() -> None:
    def known(value: Any) -> Any:
        return time_of_ms(value) if type(value) is Long else value

    assert json_of({Long(0): [Long(1)]}, known) == (
        '{"1970-01-01T00:00:00.000000Z": ["1970-01-01T00:00:00.001000Z"]}'
    )
    assert text_of(Long(10**17), known) == "100000000000000000"


@pytest.mark.parametrize(
    ("content", "number"),
    [
        ("32800005", "5"),
        ("b2800005", "-5"),
        ("31c0000000000005", "5"),
        ("3040000000000000000000000000000f", "15"),
        ("3180000f", "0.15"),
        ("6cb8967f", "9999999"),
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
    ],
)
def test_decimals_of_ieee_754_are_read(content: str, number: str) -> None:
    assert str(decimal_of(bytes.fromhex(content))) == number
