"""Where the event times of a file start and end, judging by a few of its events.

The driver needs this to plan: unread input holds the watermark back at its first event, and the input of a
micro-batch advances the watermark at least to its last events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Piece, checked, with_columns, without
from cep.formats.files import Reading, values_in_path
from cep.formats.protocol import FileFormat
from cep.formats.registry import FORMATS
from cep.formats.text.text_files import TextReader, line_blocks
from cep.schema.stream import Stream
from spark_runtime.event_time.partitions import NO_SPAN, TimeSpan

PEEK_BYTES = 32 << 10
"""Bytes of a text file that are read at either end."""

PEEK_EVENTS = 64
"""How many events at either end determine where the times start and end."""

PEEK_PIECES = 16
"""Most pieces that are read of a file without random access; the end of a longer one is unknown."""


def time_span(
    name: str,
    bounds: tuple[int, int],
    stream: Stream,
    file_format: str,
    reading: Reading,
    ahead: AheadGuard,
    *,
    is_plain: bool,
) -> TimeSpan:
    """Return the time span of bytes `bounds` of a file; `is_plain`: it is uncompressed text.

    A file that cannot be read has no time span: its reader reports the problem. If event times are estimated,
    the end is unknown, because it depends on earlier records.
    """
    try:
        found = FORMATS.get(file_format)
        named = values_in_path(name, stream, reading.pattern)
        if isinstance(found, FileFormat):
            span = _of_file(name, stream, found, named, reading, ahead)
        else:
            reader = TextReader(name, stream, found, named)
            span = _of_text(reader, bounds, stream, reading, ahead, is_plain=is_plain)
        return span if stream.device_clock is None else span._replace(last_us=None)
    except (InputError, OSError, pa.ArrowException):
        return NO_SPAN


def _of_text(
    reader: TextReader,
    bounds: tuple[int, int],
    stream: Stream,
    reading: Reading,
    ahead: AheadGuard,
    *,
    is_plain: bool,
) -> TimeSpan:
    start, end = bounds
    name = reader.name
    head = _lines(name, reader.encoding, (0, min(end, PEEK_BYTES)) if is_plain else None)
    # Without the last line, which may be incomplete.
    pieces = reader.read(head[:-1] if not is_plain or end > PEEK_BYTES else head)
    if start > 0:
        lines = _lines(name, reader.encoding, (start, min(end, start + PEEK_BYTES)))
        pieces = reader.read(lines[:-1] if end > start + PEEK_BYTES else lines)
    first = _times(pieces, stream, reading, ahead)[:PEEK_EVENTS]
    first_us = _earliest(first)
    if not is_plain:
        return TimeSpan(first_us, None)
    begin = max(start, end - PEEK_BYTES)
    if begin > 0:
        pieces = reader.read(
            _lines(name, reader.encoding, (begin, end))[1 if begin > start else 0 :], is_last=True
        )
    last = _times(pieces, stream, reading, ahead)[-PEEK_EVENTS:]
    return TimeSpan(first_us, _earliest(last))


def _lines(name: str, encoding: str, bounds: tuple[int, int] | None) -> Sequence[bytes]:
    return next(line_blocks(name, PEEK_BYTES, encoding, bounds), [])


def _of_file(
    name: str,
    stream: Stream,
    file_format: FileFormat,
    named: Mapping[str, pa.Scalar],
    reading: Reading,
    ahead: AheadGuard,
) -> TimeSpan:
    """Return the span of a file without random access; only event times, of a limited number, are read."""
    names = {stream.event_time, *(() if stream.device_clock is None else stream.device_clock.columns)}
    only = replace(
        stream, fields=tuple(f for f in stream.fields if f.name in names), tie_break=(), table=None
    )
    of_time = {column: value for column, value in named.items() if column in names}
    whole = replace(reading, keys=(), pattern=None)
    first = last = np.zeros(0, np.int64)
    for number, piece in enumerate(file_format.read(name, without(only, of_time), in_worker=True)):
        if number == PEEK_PIECES:
            return TimeSpan(_earliest(first), None)
        found = _times([with_columns(piece, only, of_time)], only, whole, ahead)
        first = found if number == 0 else first
        last = found if len(found) else last
    return TimeSpan(_earliest(first), _earliest(last[-PEEK_EVENTS:]))


def _earliest(times_us: I64) -> int | None:
    return int(times_us.min()) if len(times_us) else None


def _times(pieces: Iterable[Piece], stream: Stream, reading: Reading, ahead: AheadGuard) -> I64:
    """Return the times of the events in `pieces`, int64[n] in microseconds since 1970, in order."""
    guard = ahead.copy()
    found = [
        checked(piece, stream, reading.keys, guard).events.column(stream.event_time).to_numpy()
        for piece in pieces
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
