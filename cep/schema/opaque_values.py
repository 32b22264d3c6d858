"""Values of opaque columns (`cep.schema.column_types`) as JSON text.

The engine holds a value in 64 bits, so it carries a nested value as JSON text, which any other program can
read. The text of a value is the same for each format of files.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from cep.schema.column_types import INTEGER_BITS, ColumnType
from cep.schema.decimals import rounded
from cep.schema.text_values import NUMBER_WORDS, word_of
from cep.schema.time_values import DATE_LENGTH, timestamp_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def opaque_text(value: object, kind: ColumnType, *, is_json: bool = False) -> str:
    """Return the text that stands for a value of an opaque column: JSON, or base64 for a binary value.

    `value` is a value as the JSON reader returns it (`is_json`), or as Arrow converts it to Python. Arrow may
    give a map as a list of pairs. Raises ValueError: the value is not of the type.
    """
    try:
        return _text_of(value, "binary") if kind.name == "binary" else _json_of(value, kind, is_json)
    except (ArithmeticError, TypeError) as error:  # a time after the year 9999; a list without pairs
        raise ValueError(value) from error


def _json_of(value: object, kind: ColumnType, is_json: bool) -> str:
    if value is None:
        return "null"
    match kind.name, value:
        case "array", list():
            return f"[{','.join(_json_of(item, kind.parts[0], is_json) for item in value)}]"
        case "struct", Mapping():
            fields = zip(kind.names, kind.parts, strict=True)
            return _object((name, _json_of(value.get(name), part, is_json)) for name, part in fields)
        case "map", dict() | list() if isinstance(value, dict) or not is_json:
            pairs = value.items() if isinstance(value, dict) else value
            of_key, of_item = kind.parts
            return _object((_key(key, of_key), _json_of(item, of_item, is_json)) for key, item in pairs)
        case "boolean", bool():
            return "true" if value else "false"
        case _, bool():
            pass
        case (("tinyint" | "smallint" | "int" | "bigint"), int()):
            half = 1 << (INTEGER_BITS[kind.name] - 1)
            if -half <= value < half:
                return str(value)
        case (("float" | "double"), int() | float() | str()):
            return _number_text(value, kind.name)
        case "decimal", int() | float() | Decimal():
            exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            if rounded(exact, kind.digits) is not None:
                return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
        case _:
            return json.dumps(_text_of(value, kind.name), ensure_ascii=False)
    raise ValueError(value)


def _number_text(value: int | float | str, name: str) -> str:
    if isinstance(value, str) and value not in NUMBER_WORDS:
        raise ValueError(value)
    number = NUMBER_WORDS[value] if isinstance(value, str) else as_double(value, name)
    if abs(number) < float("inf"):
        return str(np.float32(number)) if name == "float" else json.dumps(number)
    return f'"{word_of(number)}"'


def as_double(value: int | float | Decimal, ddl: str) -> float:
    """Return the nearest DOUBLE, or the nearest 32-bit value if `ddl` is `float`.

    A number beyond the largest one becomes infinite.
    """
    try:
        number = float(value)
    except OverflowError:
        number = float("inf") if value > 0 else float("-inf")
    if ddl == "float":
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    return number


def _text_of(value: object, name: str) -> str:
    match name, value:
        case "binary", bytes():
            return base64.b64encode(value).decode()
        case "binary", str():
            try:
                base64.b64decode(value, validate=True)
            except binascii.Error:
                raise ValueError(value) from None
            return value
        case "string", str():
            value.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
            return value
        case "timestamp", datetime():
            return iso_text(value if value.tzinfo else value.replace(tzinfo=UTC))
        case "timestamp", str():
            us = timestamp_us(value)
            if us is not None:
                return iso_text(_EPOCH + timedelta(microseconds=us))
        case "date", date() if not isinstance(value, datetime):
            return value.isoformat()
        case "date", str() if len(value) == DATE_LENGTH and timestamp_us(value) is not None:
            return value
    raise ValueError(value)


def iso_text(time: datetime) -> str:
    """Return a point in time as JSON text and dead letters write it."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _key(key: object, kind: ColumnType) -> str:
    if kind.name == "string":
        return _text_of(key, "string")
    if isinstance(key, str):
        if not _INTEGER.fullmatch(key):
            raise ValueError(key)
        key = int(key)
    return _json_of(key, kind, is_json=False)


def _object(members: Any) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members) + "}"


def value_of_text(text: str, kind: ColumnType) -> object:
    """Return the value from which `opaque_text` made `text`, in a form that Arrow accepts."""
    # A decimal is read digit by digit, because a float would round it.
    return _value(text if kind.name == "binary" else json.loads(text, parse_float=Decimal), kind)


def _value(value: Any, kind: ColumnType) -> object:
    if value is None:
        return None
    match kind.name:
        case "array":
            return [_value(item, kind.parts[0]) for item in value]
        case "struct":
            fields = zip(kind.names, kind.parts, strict=True)
            return {name: _value(value.get(name), part) for name, part in fields}
        case "map":
            of_key, of_item = kind.parts
            is_number = of_key.name != "string"
            return [(int(key) if is_number else key, _value(item, of_item)) for key, item in value.items()]
        case "binary":
            return base64.b64decode(value)
        case "timestamp":
            return datetime.fromisoformat(value)
        case "date":
            return date.fromisoformat(value)
        case "decimal":
            return rounded(Decimal(value), kind.digits)
        case "float" | "double":
            return float(value)
        case _:
            return value
