"""A format in which each line is a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cep.formats.protocol import Decoded, Indices, Problem, Unquoted
from cep.formats.text.file_beginnings import refuse_other_contents
from cep.schema.stream import Stream

Parse = Callable[[Sequence[bytes], Stream], tuple[pa.Table, Indices, list[Problem]]]
"""Lines -> events, the index of each event's line, the lines that are not events; see `Decoded`."""

Absent = Callable[[Sequence[bytes], pa.Table, Stream], Mapping[str, str]]
"""Lines, their events -> see `Decoded.absent`."""

Begin = Callable[[str, Sequence[bytes], bool], int | None]
"""File, its first lines, whether there are no more -> see `RecordReader.begin`."""


def none_absent(lines: Sequence[bytes], events: pa.Table, stream: Stream) -> Mapping[str, str]:
    """Return an empty mapping: nothing is known to be absent."""
    return {}


def no_header(file: str, lines: Sequence[bytes], is_last: bool) -> int | None:
    """Return 0 for a file of lines; raises InputError if it is not text in UTF-8."""
    refuse_other_contents(file, lines[0])
    return 0


@dataclass(frozen=True, slots=True)
class LineFormat(Unquoted):
    """A `RecordFormat` whose records are complete lines in UTF-8; it only needs `parse`."""

    name: str
    suffixes: tuple[str, ...]
    parse: Parse
    begin: Begin = no_header
    absent: Absent = none_absent

    def reader(self, origin: str, stream: Stream) -> LineReader:
        """Return a reader of the lines of `origin`."""
        return LineReader(self, origin, stream)


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads lines; it remembers nothing from one call to the next."""

    line_format: LineFormat
    origin: str
    stream: Stream

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """See `RecordReader.begin`."""
        return self.line_format.begin(self.origin, records, is_last)

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """See `RecordReader.decode`."""
        events, indices, problems = self.line_format.parse(records, self.stream)
        absent = self.line_format.absent(records, events, self.stream)
        return Decoded(events, indices, problems, records, len(records), absent)
