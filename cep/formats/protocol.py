"""Formats of events: bytes -> events, and the reason for each record that is not an event.

There are two kinds of formats. The records of a `RecordFormat` are pieces of bytes, such as the lines of a
file or the messages of a topic. A `FileFormat`, such as Parquet, is read file by file.

Both run where events are read: in the process of a local run, in Spark's workers in a pipeline. Their result
depends only on the bytes and the stream, so a record that is read again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.schema.stream import Stream

if TYPE_CHECKING:
    from cep.formats.chunks import Piece

Indices = npt.NDArray[np.int64]
"""int64[n]: which records."""

Problem = tuple[int, str]
"""Index of a record, and the reason why it is not an event."""


MAX_RECORD_LINES = 100
"""Lines of one record, where a quote may enclose line feeds: a quote that encloses more is misplaced."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding some records.

    A record that is neither an event nor a problem, such as an empty line, does not count.

    - `events`: typed events (`cep.schema.text_values.event_table_schema`), in the order of their records.
    - `indices`: int64[n_events], ascending: the record of each event.
    - `problems`: the records that are not events, by index. Each becomes a dead letter.
    - `records`: the records as dead letters quote them, as many as were given.
    - `n_read`: records from here on are passed again, followed by more: a record that spans several of these
      has not ended yet.
    - `absent`: by column what the records have instead, if they lack its field (`absent_fields`). Empty for
      formats that refuse such records.
    """

    events: pa.Table
    indices: Indices
    problems: Sequence[Problem]
    records: Sequence[bytes]
    n_read: int
    absent: Mapping[str, str] = field(default_factory=dict)


class RecordReader(Protocol):
    """Reads the records of one origin, a file or a partition of a topic, from the first record."""

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """Read the first records of a file; return how many of them are its header.

        Called before `decode`, only for a file; messages have no header. None: more records are needed, and
        the method is called again with more. With `is_last`, the file has no more records, and the method
        must return a number.

        Raises InputError: the whole file does not have this format, or does not belong to the stream.
        """

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """Return the events and the problems of `records`, which are not of the header.

        The meaning of a record does not depend on the records around it, nor on how many are passed at once.
        Any bytes are an event, a problem or nothing; they never raise an exception. `is_last`: no more
        records follow, so all of these are read.
        """


@runtime_checkable
class RecordFormat(Protocol):
    """A format whose records are pieces of bytes. In a file a line feed ends a record if no quote is open."""

    @property
    def name(self) -> str:
        """The name by which it is registered and chosen."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings, in lower case with the dot. An ending for compression may follow."""

    def encoding(self, stream: Stream) -> str:
        """Return the encoding of a file, by its name in Python."""

    def quote(self, stream: Stream) -> str:
        """Return the sign that encloses line feeds within a record; an empty text if nothing does."""

    def reader(self, origin: str, stream: Stream) -> RecordReader:
        """Return a reader for the records of `origin`, which errors name."""


class Unquoted:
    """The common part of each `RecordFormat` whose records are whole, whatever bytes they contain."""

    __slots__ = ()

    def encoding(self, stream: Stream) -> str:
        """Return UTF-8: bytes are read as they are."""
        return "utf-8"

    def quote(self, stream: Stream) -> str:
        """Return an empty text: nothing is quoted."""
        return ""


@runtime_checkable
class CheckedFormat(Protocol):
    """A record format that knows the contents of records beforehand."""

    def check(self, stream: Stream) -> None:
        """Raise InputError if no record can be an event of the stream. On the driver, beforehand."""


@runtime_checkable
class FormatWithColumns(Protocol):
    """A message format that knows more about a record than the values of its columns."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words by which users request such knowledge."""

    def has_word(self, what: str) -> bool:
        """Return whether the format knows a word."""

    def with_columns(self, columns: Mapping[str, str]) -> RecordFormat:
        """Return the format with columns of the stream that are such words, by the name of the column."""


@runtime_checkable
class FileFormat(Protocol):
    """A format of files that are read as a whole."""

    @property
    def name(self) -> str:
        """The name by which it is registered and chosen."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings, in lower case with the dot."""

    @property
    def name_in_spark(self) -> str:
        """The name of Spark's own reader, for file systems that only Spark reaches; empty if it has none."""

    def read(self, file: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
        """Yield the rows of a nonempty file, in bounded pieces with positions from 1.

        Raises InputError: the file cannot be read to its end, or does not belong to the stream. What could be
        read was yielded before.

        `stream`: the stream, without the columns that are in the name of the file. `in_worker`: each core has
        a process that reads files, so start no threads. Strings may be Arrow dictionaries.
        """


AnyFormat = RecordFormat | FileFormat
