"""Expected matches, compared with those that were found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import yaml

from cep.output.rows import json_line
from cep.rule_tests.cases import Case, Expected
from cep.rule_tests.delivery import Row
from cep.rule_tests.events import relative_us
from cep.schema.text_values import NUMBER_WORDS
from cep.schema.time_literals import parse_timestamp, print_duration, time_for_people
from cep.settings.yaml_document import Document, is_null

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOSE = 1e-9
"""How much two numbers with a fraction may differ, as a part of the larger one."""


def expected_value(document: Document, node: yaml.Node, kind: pa.DataType, name: str, start_us: int) -> Any:
    """Return the value of a node in the form of a match; times are in microseconds. Report wrong values."""
    if is_null(node):
        return None
    if pa.types.is_list(kind) and isinstance(node, yaml.SequenceNode):
        return [expected_value(document, item, kind.value_type, name, start_us) for item in node.value]
    if pa.types.is_struct(kind) and isinstance(node, yaml.MappingNode):
        fields = {field.name: field.type for field in kind}
        found = document.settings(node, f"`{name}`", fields) or {}
        return {
            part: expected_value(document, value, fields[part], f"{name}.{part}", start_us)
            for part, value in found.items()
        }
    value = _scalar(node.value, kind, start_us) if isinstance(node, yaml.ScalarNode) else None
    if value is None:
        word, sample = _word(kind)
        title = f"`{name}` of a match is {word}"
        document.problem("E0673", title, node, f"not {word}", f"write for example: {name}: {sample}")
    return value


def _scalar(text: str, kind: pa.DataType, start_us: int) -> Any:
    """Return the value that a text stands for; None: it stands for none."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.casefold())
    if pa.types.is_timestamp(kind):
        after_us = relative_us(text)
        time_us = parse_timestamp(text) if after_us is None else start_us + after_us
        return None if time_us is None or time_for_people(time_us) is None else time_us
    try:
        return int(text) if pa.types.is_integer(kind) else NUMBER_WORDS.get(text, float(text))
    except ValueError:
        return relative_us(text) if pa.types.is_integer(kind) else None


def _word(kind: pa.DataType) -> tuple[str, str]:
    """Return what a type is called, and how a value of it is written."""
    if pa.types.is_boolean(kind):
        return "true or false", "true"
    if pa.types.is_timestamp(kind):
        return "a time", "4 minutes (after `start`), or 2024-05-01T10:00:00Z"
    if pa.types.is_integer(kind):
        return "a whole number or a duration", "3, or 4 minutes"
    return ("a number", "4.5") if pa.types.is_floating(kind) else ("a list or a mapping", "[1, 2]")


def compared(case: Case, rows: Sequence[Row]) -> tuple[list[tuple[Expected, str]], list[Row]]:
    """Return the missing expected matches, each with what differs, and the rows that are not expected.

    Each row may be at most one of the expected matches. As many as possible are found.
    """
    taken: dict[int, int] = {}  # row -> expected match

    def assign(number: int, seen: set[int]) -> bool:
        """Find a row for an expected match; move others where that helps (Kuhn, Nav. Res. Log. 2, 1955)."""
        for place, row in enumerate(rows):
            if place in seen or differences(case.expected[number], row):
                continue
            seen.add(place)
            if place not in taken or assign(taken[place], seen):
                taken[place] = number
                return True
        return False

    missing = [number for number in range(len(case.expected)) if not assign(number, set())]
    others = [row for place, row in enumerate(rows) if place not in taken]
    return [(case.expected[number], _nearest(case.expected[number], others)) for number in missing], others


def differences(expected: Expected, row: Row) -> list[str]:
    """Return the columns in which a row is not what is expected."""
    return [name for name, value in expected.values.items() if not _agrees(value, row.get(name))]


def _agrees(expected: Any, found: Any) -> bool:
    if isinstance(found, datetime):
        found = (found - _EPOCH) // timedelta(microseconds=1)
    match expected:
        case list():
            return (
                isinstance(found, list) and len(found) == len(expected) and all(map(_agrees, expected, found))
            )
        case dict():
            return isinstance(found, Mapping) and all(
                _agrees(value, found.get(name)) for name, value in expected.items()
            )
        case float() if isinstance(found, float):
            both_nan = expected != expected and found != found
            return both_nan or math.isclose(expected, found, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(expected == found) and isinstance(expected, bool) == isinstance(found, bool)


def _nearest(expected: Expected, others: Sequence[Row]) -> str:
    """Return how the nearest row differs."""
    if not others:
        return "not found"
    row = min(others, key=lambda row: len(differences(expected, row)))
    said = (
        f"{name} is {_shown(row.get(name), expected.values[name])}" for name in differences(expected, row)
    )
    return f"the nearest match differs: {', '.join(said)}"


def _shown(found: Any, expected: Any) -> str:
    """Return a value as a test file has it, with the expected one if it is written in another form there."""
    if isinstance(found, datetime):
        found_us = (found - _EPOCH) // timedelta(microseconds=1)
        apart = found_us - expected if isinstance(expected, int) else 0
        said = (
            f", {print_duration(abs(apart)).lower()} {'later' if apart > 0 else 'earlier'}" if apart else ""
        )
        return f"{time_for_people(found_us)}{said}"
    text = json_line([found])[1:-1]
    return f"{text} ({type_word(found)})" if str(found) == str(expected) else text


def type_word(value: object) -> str:
    """Return what a value is called if its text does not show it."""
    return "a text" if isinstance(value, str) else "NULL" if value is None else type(value).__name__


def shown_row(row: Row, names: Sequence[str]) -> str:
    """Return a match as an item of `expect`, without its id and, if only one rule is compared, without it."""
    left_out = {"match_id"} | ({"rule"} if len(names) == 1 else set())
    return json_line({name: value for name, value in row.items() if name not in left_out})
