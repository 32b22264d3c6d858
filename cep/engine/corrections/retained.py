"""What a `Corrector` retains, and its bytes.

Layout, little endian: magic ``SCEC``, format version (u16), program fingerprint (16 bytes), CRC-32 of the
rest (u32), then sections, each with its length (u64). A table is its number of rows, then a section of Arrow
IPC. It is read only when needed; a call without late events does not need it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from cep.errors import StateError

MAGIC = b"SCEC"
VERSION = 1
_HEADER = struct.Struct("<4sH16sI")
_LENGTH = struct.Struct("<Q")

Part: TypeAlias = bytes | memoryview | pa.Buffer


class RetainedTable:
    """A table, or its bytes until it is read.

    Parameters
    ----------
    table, data
        One of the two.
    """

    __slots__ = ("_data", "_table", "n_rows")

    def __init__(self, n_rows: int, table: pa.Table | None = None, data: Part | None = None) -> None:
        self.n_rows = n_rows
        self._table = table
        self._data = data

    @classmethod
    def of(cls, table: pa.Table) -> RetainedTable:
        """Return `table`, retained."""
        return cls(table.num_rows, table)

    def table(self) -> pa.Table:
        """Return the table."""
        if self._table is None:
            self._table = pa.ipc.open_stream(pa.py_buffer(self._data)).read_all()
        return self._table

    def data(self) -> Part:
        """Return the bytes."""
        if self._data is None:
            assert self._table is not None
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_stream(sink, self._table.schema, options=options) as writer:
                writer.write_table(self._table.combine_chunks())
            self._data = sink.getvalue()
        return self._data


def tables_of(retained: Iterable[RetainedTable], schema: pa.Schema) -> pa.Table:
    """Return all rows as one table."""
    return pa.concat_tables([schema.empty_table(), *(item.table() for item in retained)])


@dataclass(frozen=True, slots=True)
class Warm:
    """The past with which new rules begin: earlier saved states do not contain it.

    `rules`: their names. `states`: by the number of a program the snapshot of a matcher that has read it.
    """

    rules: tuple[str, ...]
    states: Mapping[int, Part]


@dataclass(slots=True)
class Segment:
    """A stretch of event time: the state of a matcher at its start, its events, and the reported rows."""

    start_us: int
    save: Part  # `Matcher.snapshot` at `start_us`; no event waits in it
    events: list[RetainedTable] = field(default_factory=list)  # later than `start_us`, in order of arrival
    rows: list[RetainedTable] = field(default_factory=list)  # reported and not withdrawn
    has_other_measures: bool = False  # some rows are of a rule whose measures have changed since
    warm: Warm | None = None  # what rules know that begin with it; `save` has it

    @property
    def size(self) -> int:
        """Number of events and rows."""
        return sum(item.n_rows for item in self.events) + sum(item.n_rows for item in self.rows)


Section: TypeAlias = Part | RetainedTable | Sequence[int]


def write_sections(fingerprint: bytes, sections: Iterable[Section]) -> bytes:
    """Return a header, followed by bytes, tables and lists of 64-bit integers."""
    body: list[Part] = []
    for section in sections:
        if isinstance(section, RetainedTable):
            parts: list[Part] = [_LENGTH.pack(section.n_rows), section.data()]
        elif isinstance(section, bytes | memoryview | pa.Buffer):
            parts = [section]
        else:
            parts = [struct.pack(f"<{len(section)}q", *section)]
        body += [_LENGTH.pack(sum(memoryview(part).nbytes for part in parts)), *parts]
    checksum = 0
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return b"".join([_HEADER.pack(MAGIC, VERSION, fingerprint, checksum), *body])


@dataclass(slots=True)
class Retained:
    """What a snapshot of a `Corrector` contains.

    Parameters
    ----------
    numbers
        The first revision; the events, late events, and those that came too late for a correction; then the
        retracted matches of each rule.
    front
        The evaluator that continues as if no event were late.
    waiting
        The events that are not evaluated yet.
    withdrawn
        Matches that may be found again.
    final_us
        For each rule the event time up to which its rows do not change; empty: those of all rules may.
    """

    numbers: list[int]
    front: Part
    waiting: RetainedTable
    withdrawn: RetainedTable
    segments: list[Segment]
    final_us: Sequence[int] = ()

    def encode(self, fingerprint: bytes) -> bytes:
        """Return the contents as bytes."""
        first, *counts = self.numbers
        sections: list[Section] = [
            [first, len(self.segments), *counts], self.front, self.waiting, self.withdrawn
        ]  # fmt: skip
        for segment in self.segments:
            warm = segment.warm
            marks = [segment.has_other_measures, *(() if warm is None else warm.states)]
            marks = marks if any(marks) or warm is not None else []
            sections.append([segment.start_us, len(segment.events), len(segment.rows), *marks])
            sections += [segment.save, *segment.events, *segment.rows]
            if warm is not None:
                sections += ["\0".join(warm.rules).encode(), *warm.states.values()]
        if self.final_us:
            sections.append(self.final_us)
        return write_sections(fingerprint, sections)

    @classmethod
    def decode(cls, data: bytes | memoryview, fingerprint: bytes) -> Retained:
        """Return what `encode` wrote. Raises StateError, see `SectionReader`."""
        reader = SectionReader(data, fingerprint)
        first, n_segments, *counts = reader.numbers()
        found = cls([first, *counts], reader.part(), reader.table(), reader.table(), [])
        for _ in range(n_segments):
            start_us, n_events, n_rows, *marks = reader.numbers()
            segment = Segment(start_us, reader.part(), has_other_measures=any(marks[:1]))
            segment.events = [reader.table() for _ in range(n_events)]
            segment.rows = [reader.table() for _ in range(n_rows)]
            if marks[1:]:
                names = bytes(reader.part()).decode().split("\0")
                segment.warm = Warm(tuple(names), {number: reader.part() for number in marks[1:]})
            found.segments.append(segment)
        if not reader.is_at_end:
            found.final_us = reader.numbers()
        return found


def other_kind(*, is_corrected: bool) -> StateError:
    """Return the error for state with corrections in a run without them, or vice versa."""
    how, remedy = (
        ("with", "set `correct within` again") if is_corrected else ("without", "leave out `correct within`")
    )
    return StateError(
        "E0649",
        f"the stored state was written {how} corrections",
        f"{remedy}, or start from a new checkpoint",
    )


def without_warm(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments since rules last began with a past. What was saved before lacks these rules."""
    first = max((number for number, segment in enumerate(segments) if segment.warm), default=0)
    return [replace(segments[first], warm=None), *segments[first + 1 :]]


class SectionReader:
    """Reads what `write_sections` wrote, in its order.

    Raises StateError: not of a `Corrector` (E0649), damaged (E0702), of an unknown format (E0703), of other
    rules (E0701).
    """

    def __init__(self, data: bytes | memoryview, fingerprint: bytes) -> None:
        if len(data) < _HEADER.size or bytes(data[:4]) != MAGIC:
            raise other_kind(is_corrected=False)
        _, version, written_by, checksum = _HEADER.unpack_from(data)
        if version != VERSION:
            raise StateError(
                "E0703",
                f"the stored state for corrections has format {version}, this version reads {VERSION}",
                "continue with the version of spark-cep that wrote it, or start from a new checkpoint",
            )
        if written_by != fingerprint:
            raise StateError(
                "E0701",
                "the stored state was written by other rules than those that run now, or for columns in "
                "another order",
                "restore the rules and the streams as they were, or start from a new checkpoint",
            )
        self._body = memoryview(data)[_HEADER.size :]
        self._at = 0
        if zlib.crc32(self._body) != checksum:
            raise StateError("E0702", "the snapshot is damaged: its checksum does not fit")

    @property
    def is_at_end(self) -> bool:
        """Whether no section follows."""
        return self._at == len(self._body)

    def part(self) -> memoryview:
        """Return the next section."""
        (length,) = _LENGTH.unpack_from(self._body, self._at)
        start = self._at + _LENGTH.size
        self._at = start + length
        return self._body[start : self._at]

    def table(self) -> RetainedTable:
        """Return the next section, a table."""
        part = self.part()
        (n_rows,) = _LENGTH.unpack_from(part)
        return RetainedTable(n_rows, data=part[_LENGTH.size :])

    def numbers(self) -> list[int]:
        """Return the next section, 64-bit integers."""
        part = self.part()
        return list(struct.unpack(f"<{len(part) // 8}q", part))
