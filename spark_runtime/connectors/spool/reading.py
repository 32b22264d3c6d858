"""How the messages of a spool become events, and how its segments are read."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cep.errors import InputError, StateError
from cep.formats.protocol import FileFormat
from cep.formats.registry import FORMATS
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.arrow_values import texts_of
from cep.schema.stream import Stream
from cep.spool.folder import segment_path
from cep.spool.segments import Block, ReceivedBatch, batch_of, blocks, check_header, is_sound, joined
from spark_runtime.event_time.partitions import PER_SOURCE

HEADER = "header."
METADATA = ("received", "topic", "key", "id", "sender", "number", "headers")
"""What may be a column in addition to the value; also `HEADER` and the name of a header."""

EARLIEST, LATEST = "earliest", "latest"

MOST_MESSAGES = 50_000
MOST_BYTES = 8 << 20
"""Most messages that are decoded together, and most bytes of their values."""


class SpoolRange(NamedTuple):
    """Blocks of a segment between two bytes, and the numbers of their messages, `stop` excluded."""

    segment: int
    start: int
    end: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SpoolReading:
    """How the messages of the spool in `folder` become events of `stream`.

    - `begin`: where a stream starts: `EARLIEST` or `LATEST`.
    - `keys`: keys of the rules: an event with a NULL in each of them is a dead letter.
    - `columns`: the values in addition to the message's value (`METADATA`), by the name of the column.
    - `max_events`: approximate number of messages in a micro-batch: a block is read whole.
    - `reader`: the name under which a stream registers; "": derived from `log`.
    - `goes_on_without`: whether messages that were removed before they were read are counted and skipped.
    - `watermark_per`: what has its own watermark: `PER_SOURCE`, or the events with the same value in a
      column.
    - `log`: the file in which a stream records where it started; "" in a batch.
    """

    stream: Stream
    folder: str
    begin: str = EARLIEST
    value_format: str = "json"
    keys: tuple[tuple[str, ...], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    max_events: int | None = None
    reader: str = ""
    goes_on_without: bool = False
    watermark_per: str = PER_SOURCE
    log: str = ""

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def origin(self, segment: int) -> str:
        """Return the source that dead letters name."""
        return f"{self.path.name}/{segment_path(self.path, segment).name}"

    def message_reader(self) -> MessageReader:
        """Return the reader that decodes values."""
        found = FORMATS.get(self.value_format)
        assert not isinstance(found, FileFormat), self.value_format
        return MessageReader(self.stream, found, self.keys, tuple(self.columns))

    @contextmanager
    def segment(self, segment: int) -> Iterator[mmap.mmap]:
        """Open a segment as bytes.

        Raises FileNotFoundError: it was removed. Raises StateError: it is not a segment.
        """
        path = segment_path(self.path, segment)
        with path.open("rb") as file:
            check_header(file.read(64), segment, path.name)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data

    def portions(self, part: SpoolRange) -> Iterator[Messages]:
        """Yield the messages of a range, some at a time.

        Raises FileNotFoundError: the segment was removed. Raises StateError: it is damaged.
        """
        found: list[ReceivedBatch] = []
        first = following = part.first
        n_messages = n_bytes = 0
        at = part.start
        wanted = self.wanted
        with self.segment(part.segment) as data:
            for block in blocks(data, part.start, min(part.end, len(data))):
                if block.first != following or not is_sound(data, block, part.segment):
                    break
                following += block.n
                if n_messages and (n_messages + block.n > MOST_MESSAGES or n_bytes > MOST_BYTES):
                    yield self._as_messages(part.segment, joined(found), first)
                    found, first, n_messages, n_bytes = [], block.first, 0, 0
                found.append(batch_of(data, block, wanted))
                n_messages += block.n
                n_bytes += block.end - block.start
                at = block.end
            if found:
                yield self._as_messages(part.segment, joined(found), first)
        if at != part.end:
            path = segment_path(self.path, part.segment)
            raise StateError(
                "E0952",
                f"`{path}` is damaged at byte {at:,}",
                "restore the segment, or start with an empty checkpoint directory and `from: latest`",
            )

    @property
    def wanted(self) -> Sequence[str] | None:
        """The needed columns of segments; None: all of them."""
        named = set(self.columns.values())
        return None if "headers" in named else sorted(named - {"received", "number"})

    def _as_messages(self, segment: int, batch: ReceivedBatch, first: int) -> Messages:
        positions = np.arange(first, first + len(batch), dtype=np.int64)  # blocks follow each other
        columns = {name: _column(what, batch, positions) for name, what in self.columns.items()}
        return Messages(self.origin(segment), batch.values, positions, columns)


def _column(
    what: str, batch: ReceivedBatch, positions: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pa.Array:
    """Return metadata of messages: texts, or times in microseconds since 1970."""
    match what:
        case "received":
            return pa.array(batch.received_us, pa.int64())
        case "number":
            return pa.array(positions).cast(pa.string())
        case "headers":
            found = {
                name.removeprefix(HEADER): texts
                for name, texts in batch.columns.items()
                if name.startswith(HEADER)
            }
            rows = zip(*found.values(), strict=True) if found else ([()] * len(batch))
            return texts_of(_object(found, row) for row in rows)
        case _:
            return texts_of(batch.columns.get(what) or [None] * len(batch))


def _object(names: Mapping[str, object], row: Sequence[str | None]) -> str | None:
    """Return the headers of a message as a JSON object."""
    found = {name: text for name, text in zip(names, row, strict=True) if text is not None}
    return json.dumps(found, ensure_ascii=False) if found else None


def removed(reading: SpoolReading, first: int, stop: int) -> InputError:
    """Return the error for messages that were removed before they were read."""
    return InputError(
        "E0953",
        f"`{reading.folder}` begins at message {stop:,} now: {stop - first:,} messages were removed unread",
        "let the spool keep more: --max-bytes, --remove-after; to count them and continue: `on_lost: go_on`",
    )


def first_blocks(data: mmap.mmap, start: int, end: int, most: int) -> list[Block]:
    """Return the first blocks between two bytes, enough for `most` messages."""
    found: list[Block] = []
    n = 0
    for block in blocks(data, start, end):
        found.append(block)
        n += block.n
        if n >= most:
            break
    return found
