"""Types of columns that rules pass on without looking inside: Spark's arrays, structs, maps and binary.

Written as Spark writes them (``array<struct<id:bigint,name:string>>``), and their values as JSON text: in an
engine that holds a value in 64 bits, a tree is carried as what any other program can read again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

SIMPLE = frozenset((*_BITS, "boolean", "float", "double", "string", "timestamp", "date", "binary"))
"""Types without parts."""

MAX_DIGITS = 38
"""Of a decimal, as in Spark."""

MAX_DEPTH = 10
"""Types inside each other."""

_WORD = re.compile(r"\s*([^\W\d]\w*|`(?:[^`]|``)+`|[0-9]{1,3}|[<>(),:])\s*")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: `parts` of an array, a map or a struct, whose fields have `names`; `digits` of a decimal."""

    name: str
    parts: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    digits: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.digits:
            return f"{self.name}({','.join(map(str, self.digits))})"
        if not self.parts:
            return self.name
        parts = [str(part) for part in self.parts]
        if self.names:
            parts = [f"{_quoted(name)}:{part}" for name, part in zip(self.names, parts, strict=True)]
        return f"{self.name}<{','.join(parts)}>"


def parse_type(text: str) -> ColumnType | None:
    """Return the type that `text` names, or None."""
    words, at = [], 0
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            return None
        words.append(found[1])
        at = found.end()
    try:
        reader = _Reader(words)
        kind = reader.type(MAX_DEPTH)
        return kind if reader.at == len(words) else None
    except (ValueError, IndexError):
        return None


class _Reader:
    """Reads a type; ValueError or IndexError: there is none."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    def type(self, depth: int) -> ColumnType:
        name = self.take().lower()
        if name in SIMPLE:
            return ColumnType(name)
        if name == "decimal":
            return self.decimal()
        if name not in ("array", "map", "struct") or depth == 0:
            raise ValueError(name)
        self.expect("<")
        parts: list[ColumnType] = []
        names: list[str] = []
        while not parts or self.accept(","):
            if name == "struct":
                names.append(_unquoted(self.take()))
                self.accept(":")
            parts.append(self.type(depth - 1))
        self.expect(">")
        is_map = name == "map" and len(parts) == 2 and parts[0].name in ("string", *_BITS)
        is_struct = name == "struct" and len(set(names)) == len(names)
        if not (is_map or is_struct or (name == "array" and len(parts) == 1)):
            raise ValueError(name)
        return ColumnType(name, tuple(parts), tuple(names))

    def decimal(self) -> ColumnType:
        numbers = [10, 0]
        if self.accept("("):
            numbers[0] = int(self.take())
            if self.accept(","):
                numbers[1] = int(self.take())
            self.expect(")")
        digits, places = numbers
        if not 1 <= digits <= MAX_DIGITS or places > digits:
            raise ValueError(digits)
        return ColumnType("decimal", digits=(digits, places))

    def take(self) -> str:
        self.at += 1
        return self.words[self.at - 1]

    def accept(self, word: str) -> bool:
        if self.words[self.at : self.at + 1] != [word]:
            return False
        self.at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise ValueError(word)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d]\w*", name) else "`" + name.replace("`", "``") + "`"


def _unquoted(word: str) -> str:
    if word.startswith("`"):
        return word[1:-1].replace("``", "`")
    if not re.fullmatch(r"[^\W\d]\w*", word):
        raise ValueError(word)
    return word


# ---------------------------------------------------------------- values


def opaque_text(value: object, kind: ColumnType) -> str:
    """Return the text that stands for a value of an opaque column: JSON, of binary its base64.

    Raises
    ------
    ValueError
        It is not of the type.
    """
    return _text_of(value, "binary") if kind.name == "binary" else json_of(value, kind)


def json_of(value: object, kind: ColumnType) -> str:
    """Return a value as JSON text; `value` is as JSON or as Arrow gives it.

    Raises
    ------
    ValueError
        It is not of the type.
    """
    if value is None:
        return "null"
    match kind.name, value:
        case "array", list():
            return f"[{','.join(json_of(item, kind.parts[0]) for item in value)}]"
        case "struct", Mapping():
            fields = zip(kind.names, kind.parts, strict=True)
            return _object((name, json_of(value.get(name), part)) for name, part in fields)
        case "map", dict() | list():
            pairs = value.items() if isinstance(value, dict) else value
            of_key, of_item = kind.parts
            return _object((_key(key, of_key), json_of(item, of_item)) for key, item in pairs)
        case "boolean", bool():
            return "true" if value else "false"
        case _, bool():
            pass
        case (("tinyint" | "smallint" | "int" | "bigint"), int()):
            half = 1 << (_BITS[kind.name] - 1)
            if -half <= value < half:
                return str(value)
        case (("float" | "double"), int() | float()):
            number = float(value)
            return json.dumps(number) if abs(number) < float("inf") else f'"{_infinite(number)}"'
        case "decimal", int() | float() | Decimal():
            return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
        case _:
            return json.dumps(_text_of(value, kind.name), ensure_ascii=False)
    raise ValueError(value)


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
            value.encode()  # half of a surrogate pair is no text: UnicodeEncodeError is a ValueError
            return value
        case "timestamp", datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case "timestamp", str():
            datetime.fromisoformat(value)
            return value
        case "date", date():
            return value.isoformat()
        case "date", str():
            return date.fromisoformat(value).isoformat()
    raise ValueError(value)


def _key(key: object, kind: ColumnType) -> str:
    if kind.name == "string":
        return _text_of(key, "string")
    return json_of(int(key) if isinstance(key, str) else key, kind)


def _object(members: Any) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members) + "}"


def _infinite(number: float) -> str:
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
