"""Numbers that JSON does not have, through a rule whose matches are the stream and the table of another."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NUMBERS = ("NaN", "Infinity", "-Infinity", "-0.0", "1e308", "-1e308", "5e-324", "0.1", "1.5")

STREAMS = """\
streams:
  first:
    event_time: ts
    schema: {id: string, ts: timestamp, x: double, f: float}
  second:
    event_time: match_start
    schema: {id: string, match_start: timestamp, x: double, f: float, xs: array<double>}
tables:
  known:
    key: id
    static: true
    schema: {id: string, x: double}
"""
FIRST = """
RULE copied FROM first PARTITION BY id PATTERN a
DEFINE a AS id <> 'none' MEASURES a.x AS x, a.f AS f, ARRAY_AGG(a.x) AS xs
"""
SECOND = """
RULE again FROM second JOIN known ON id PARTITION BY id PATTERN a
DEFINE a AS id <> 'none' MEASURES a.x AS x, a.f AS f, a.known.x AS y, a.xs IS NOT NULL AS has_xs
"""


def lines(bare: bool = False) -> str:
    """Return an event of `first` for each of `NUMBERS`; `bare`: as Python's json writes them."""
    written = [text if bare or text not in NUMBERS[:3] else json.dumps(text) for text in NUMBERS]
    return "".join(
        f'{{"id":"{number}","ts":"2024-05-01T10:00:0{number}Z","x":{text},"f":{text}}}\n'
        for number, text in enumerate(written)
    )


def bits(value: float | str) -> bytes:
    """Return the bits of a number, also of one that is written as a text."""
    number = float(value)
    return b"nan" if number != number else struct.pack("<d", number)


def expected(names: Sequence[str] = ("x", "y")) -> dict[str, list[bytes]]:
    """Return the bits of the columns of each event."""
    return {str(at): [bits(text)] * len(names) for at, text in enumerate(NUMBERS)}


def found(rows: Iterable[Mapping[str, Any]], names: Sequence[str] = ("x", "y")) -> dict[str, list[bytes]]:
    """Return what matches have of them, by their key."""
    return {row["id"]: [bits(row[name]) for name in names] for row in rows}
