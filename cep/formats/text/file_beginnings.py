"""Checks from the first bytes of a text file whether it has the expected form."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from cep.errors import InputError
from cep.formats.file_columns import carriage_returns

HEAD_BYTES = 64 << 10
"""Bytes at the beginning of a file that say what it is."""

_CONTENTS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip file", "give its name the ending .gz"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "give its name the ending .zst"),
    (b"BZh91AY&SY", "a bzip2 file", "give its name the ending .bz2"),
    (b"\x04\x22\x4d\x18", "an LZ4 file", "give its name the ending .lz4"),
    (b"\xfd7zXZ\x00", "an xz file", "unpack it: xz is not read"),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"PAR1\x15", "a Parquet file", "give the format: parquet"),
    (b"\xff\xfe", "UTF-16", ""),
    (b"\xfe\xff", "UTF-16", ""),
)
"""First bytes -> what they say, and what to do."""

_ARRAY = re.compile(rb"\s*\[\s*(?:\{|\]\s*\Z|\Z)")
_SPREAD = re.compile(rb'\s*\{[ \t\r]*\n\s*"(?:[^"\\]|\\.)*+"\s*:')
_OLD_LINES = re.compile(rb"\}[ \t]*\r\s*\{")


def refuse_other_contents(file: str, line: bytes, for_utf_16: str = "") -> None:
    """Raise InputError if a file whose first line is `line` is not text in UTF-8.

    `for_utf_16`: what to do about UTF-16; by default, to convert the file.
    """
    for first, word, advice in _CONTENTS:
        if line.startswith(first):
            if not advice:
                advice = for_utf_16 or f"convert it: iconv -f utf-16 -t utf-8 {file} > new.jsonl"
            raise InputError("E0642", f"`{file}` is not UTF-8 text: it begins like {word}", advice)


def begins_with_object(lines: Sequence[bytes]) -> bool:
    """Return whether the first nonempty line is a JSON object."""
    first = next((line for line in lines if line.strip()), b"")
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def refuse_other_json(name: str, lines: Sequence[bytes]) -> None:
    """Raise InputError if a file is JSON, but not an object on each line."""
    head = _head(lines)
    if _ARRAY.match(head):
        raise InputError(
            "E0640",
            f"`{name}` is a JSON array, not an object on each line",
            f"write each object on a line of its own, for example: jq -c '.[]' {name} > new.jsonl",
        )
    if _SPREAD.match(head) or _is_spread(head):
        raise InputError(
            "E0641",
            f"`{name}` has a JSON object over several lines",
            f"write each object on a line of its own, for example: jq -c . {name} > new.jsonl",
        )
    if b"\n" not in head and _OLD_LINES.search(head):
        raise carriage_returns(name)


def _head(lines: Sequence[bytes]) -> bytes:
    """Return the first bytes of a file, or all of them."""
    n_bytes, n_lines = 0, 0
    for line in lines:
        n_bytes += len(line) + 1
        n_lines += 1
        if n_bytes > HEAD_BYTES:
            break
    return b"\n".join(lines[:n_lines])[:HEAD_BYTES]


def _is_spread(head: bytes) -> bool:
    """Return whether the first object spans several lines and ends within `head`."""
    text = head.decode(errors="replace").lstrip()
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "\n" in text[:end]
