"""Types of columns that rules pass on without looking inside: Spark's arrays, structs, maps and binary.

A type is written as Spark writes it: ``array<struct<id:bigint,name:string>>``. The module `opaque_values`
handles the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

INTEGER_BITS: dict[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""DDL integer types and their widths."""

SIMPLE = frozenset((*INTEGER_BITS, "boolean", "float", "double", "string", "timestamp", "date", "binary"))
"""Types that contain no other type."""

MAX_DIGITS = 38
"""Most digits that a decimal has, as in Spark."""

MAX_DEPTH = 10
"""Most levels of types inside each other."""

_WORD = re.compile(r"\s*([^\W\d]\w*|`(?:[^`]|``)+`|[0-9]{1,3}|[<>(),:])\s*")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of a column.

    An array, a map or a struct has `parts`. The fields of a struct have `names`. A decimal has `digits`.
    """

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


@lru_cache(maxsize=1024)
def parse_type(text: str) -> ColumnType | None:
    """Return the type that `text` names, or None if it names no type."""
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
    """Reads a type from words. It raises ValueError or IndexError if the words are not a type."""

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
        is_map = name == "map" and len(parts) == 2 and parts[0].name in ("string", *INTEGER_BITS)
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
