"""What a format of events is: bytes -> events, and for each record that is no event the reason.

There are two kinds of formats. The records of a `RecordFormat` are pieces of bytes, such as the lines of a
file or the messages of a topic. A `FileFormat`, such as Parquet, is read file by file.

Both run where events are read: in the process of a local run, in Spark's workers in a pipeline. What they
give depends on the bytes and on the stream only, so a record that is read again gives the same.
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
    """What some records are.

    A record that is neither an event nor a problem, such as an empty line, counts as nothing.

    Parameters
    ----------
    events
        Typed events (`cep.schema.text_values.event_table_schema`), in the order of their records.
    indices
        int64[n_events], growing: the record of each event.
    problems
        The records that are not events, by index. Each becomes a dead letter.
    records
        The records as dead letters quote them, as many as were given.
    n_read
        Records from here on are given again, with more after them: a record that goes over several of them
        has not ended yet.
    absent
        By column what the records have instead, where they lack its field (`absent_fields`). Formats that
        refuse such records have none.
    """

    events: pa.Table
    indices: Indices
    problems: Sequence[Problem]
    records: Sequence[bytes]
    n_read: int
    absent: Mapping[str, str] = field(default_factory=dict)


class RecordReader(Protocol):
    """Reads the records of one origin, a file or a partition of a topic, from the first one on."""

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """Read the first records of a file; return how many of them are its header.

        Called before `decode`, for a file only; messages have no header. `is_last`: the file has no more.

        Returns
        -------
        int or None
            None: more records are needed to say so. Then it is called again with more. With `is_last` it must
            return a number.

        Raises
        ------
        InputError
            The file as a whole is not of this format, or not of the stream.
        """
        ...

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """Return the events and the problems of `records`, which are not of the header.

        What a record means does not depend on the records around it, nor on how many are given at once. Bytes
        of any kind are an event, a problem or nothing; no exception leaves this. `is_last`: no more records
        come, so all of them are read.
        """
        ...


@runtime_checkable
class RecordFormat(Protocol):
    """A format whose records are pieces of bytes. In a file a line feed ends a record if no quote is open."""

    @property
    def name(self) -> str:
        """The name by which it is registered and chosen."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings, in lower case with the dot. An ending for compression may follow."""
        ...

    def encoding(self, stream: Stream) -> str:
        """Return the encoding of a file, by its name in Python."""
        ...

    def quote(self, stream: Stream) -> str:
        """Return the sign that encloses line feeds within a record; an empty text if nothing does."""
        ...

    def reader(self, origin: str, stream: Stream) -> RecordReader:
        """Return a reader for the records of `origin`, which errors name."""
        ...


class Unquoted:
    """What every `RecordFormat` has whose records are whole, whatever bytes are in them."""

    __slots__ = ()

    def encoding(self, stream: Stream) -> str:
        """Return UTF-8: bytes are taken as they are."""
        return "utf-8"

    def quote(self, stream: Stream) -> str:
        """Return an empty text: nothing is quoted."""
        return ""


@runtime_checkable
class CheckedFormat(Protocol):
    """A format of records that knows beforehand what they have."""

    def check(self, stream: Stream) -> None:
        """Raise InputError if no record can be an event of the stream. On the driver, beforehand."""
        ...


@runtime_checkable
class FormatWithColumns(Protocol):
    """A format of messages that can say something about a record apart from the values of its columns."""

    @property
    def words(self) -> tuple[str, ...]:
        """What it can say, as a user may write it."""
        ...

    def has_word(self, what: str) -> bool:
        """Return whether it can say this."""
        ...

    def with_columns(self, columns: Mapping[str, str]) -> RecordFormat:
        """Return the format with columns of the stream that are such words, by the name of the column."""
        ...


@runtime_checkable
class FileFormat(Protocol):
    """A format of files that are read as wholes."""

    @property
    def name(self) -> str:
        """The name by which it is registered and chosen."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings, in lower case with the dot."""
        ...

    @property
    def name_in_spark(self) -> str:
        """The name of Spark's own reader, for file systems that only Spark reaches; empty if it has none."""
        ...

    def read(self, file: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
        """Yield the rows of a file that has at least a byte, in bounded pieces with positions from 1.

        Parameters
        ----------
        stream
            The stream, without the columns that are in the name of the file.
        in_worker
            A process for each core reads files: start no threads. Texts may be Arrow dictionaries.

        Raises
        ------
        InputError
            The file cannot be read to its end, or is not of the stream. What could be read has come before.
        """
        ...


AnyFormat = RecordFormat | FileFormat
