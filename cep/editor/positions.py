"""Places in a text as editors count them: lines from 0, columns in units of UTF-16."""

from __future__ import annotations

import bisect
import re


class Positions:
    """The places of a text. A place beyond the text, or beyond a line, means the end of it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def offset(self, line: int, column: int) -> int:
        """Return the offset in characters of a place."""
        if line >= len(self._starts):
            return len(self._text)
        start = self._starts[line]
        end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
        offset, units = start, 0
        while offset < end and units < column:
            units += _units(self._text[offset])
            offset += 1
        return offset

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset in characters."""
        offset = max(0, min(offset, len(self._text)))
        line = bisect.bisect_right(self._starts, offset) - 1
        return line, sum(map(_units, self._text[self._starts[line] : offset]))


def _units(character: str) -> int:
    return 1 if ord(character) < 0x10000 else 2
