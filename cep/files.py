"""Files of events -> typed tables, in bounded pieces, with everything that was refused.

JSON lines, CSV and Parquet; one file or a directory of them; text plain or gzipped, or from standard input.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep import csv_lines, dead_letter, json_lines
from cep.column_types import ColumnType, opaque_text
from cep.dead_letter import DEAD_LETTER_SCHEMA
from cep.errors import InputError
from cep.expression import Type
from cep.program import ARROW_TYPES
from cep.schema import Field, Stream
from cep.text_values import INTEGER_BITS, Mask, fit_column

CODES: dict[str, str] = {
    "E0601": "no such file or directory",
    "E0602": "the format of the input cannot be told",
    "E0603": "there is nothing in the input",
    "E0604": "a declared column is missing",
    "E0605": "a column of another type than declared",
    "E0606": "a file cannot be read",
    "E0607": "a stream that the rules read has no input",
    "E0608": "the format of an output file cannot be told",
    "E0609": "a file cannot be written",
    "E0610": "no rule reads the stream that was chosen",
    "E0615": "rules of different streams give a column different types",
}
"""Code -> meaning of what can be wrong with files of events as a whole; a bad line is a dead letter."""

STDIN = "-"

BLOCK_BYTES = 8 << 20
"""Bytes of text that are looked at together."""

BLOCK_ROWS = 100_000
"""Rows of Parquet that are looked at together."""


class Format(StrEnum):
    """Formats of event files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


SUFFIXES: dict[str, Format] = {
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}
"""File name ending -> format; ``.gz`` may follow the text formats."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events in the order they came, and the dead letters (`DEAD_LETTER_SCHEMA`) met among them.

    `events` has the columns of `cep.text_values.event_table_schema`; texts may be dictionaries of them.
    """

    events: pa.Table
    dead_letters: pa.Table


def read_events(
    path: str | Path,
    stream: Stream,
    file_format: Format | None = None,
    *,
    keys: Iterable[Sequence[str]] = (),
    block_bytes: int = BLOCK_BYTES,
    in_worker: bool = False,
) -> Iterator[Chunk]:
    """Yield the events of `path`, file after file by name, as events of `stream`.

    An event is a dead letter if its time is NULL or out of bounds, or if each of `keys` has a NULL in it.
    `in_worker`: texts that a Parquet file repeats come as Arrow dictionaries, and Arrow starts no threads:
    there is a process for each core.
    Raises InputError for what is wrong with a file as a whole.
    """
    keys = tuple(keys)
    files, file_format = find_files(path, file_format)
    for name in files:
        match file_format:
            case Format.PARQUET:
                pieces = _read_parquet(name, stream, in_worker=in_worker)
            case Format.JSON | Format.CSV:
                pieces = _read_text(name, stream, file_format, block_bytes)
        for piece in pieces:
            yield checked(piece, stream, keys)


def find_files(path: str | Path, file_format: Format | None = None) -> tuple[list[str], Format]:
    """Return the files of `path` by name, and their format."""
    if str(path) == STDIN:
        if file_format is None:
            raise InputError(
                "E0602", "the format of standard input cannot be told", "give --format json or csv"
            )
        if file_format is Format.PARQUET:
            raise InputError("E0606", "Parquet cannot be read from standard input", "give the file's name")
        return [STDIN], file_format
    path = Path(path)
    if not path.exists():
        raise InputError("E0601", f"there is no file or directory `{path}`")
    if not path.is_dir():
        return _files_of_one_format([path], path, file_format)
    # Spark, too, passes over names with these beginnings: markers and files that are being written.
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] not in "._")
    if file_format is None:
        files = [file for file in files if _format_of(file) is not None]
    if not files:
        raise InputError(
            "E0603",
            f"there are no event files in `{path}`",
            f"files of events end in {', '.join(SUFFIXES)}; directories inside it are not searched",
        )
    return _files_of_one_format(files, path, file_format)


def _files_of_one_format(
    files: list[Path], path: Path, file_format: Format | None
) -> tuple[list[str], Format]:
    if file_format is None:
        formats = {_format_of(file) for file in files}
        found = formats.pop()
        if formats or found is None:
            fact = (
                f"`{path}` has files of several formats"
                if formats
                else f"the format of `{path}` cannot be told"
            )
            raise InputError("E0602", fact, "give the format: json, csv or parquet")
        file_format = found
    full = [file for file in files if file.stat().st_size > 0]
    if not full:
        raise InputError("E0603", f"`{path}` is empty")
    return [str(file) for file in full], file_format


def _format_of(file: Path) -> Format | None:
    name = file.name.lower().removesuffix(".gz")
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


@dataclass(frozen=True, slots=True)
class Piece:
    """Events with the place of each: `positions[i]` is the line or row of event i, `raw(i)` its text."""

    source: str
    events: pa.Table
    positions: json_lines.Indices
    lines: Sequence[bytes]  # of a text file; empty for Parquet
    first_line: int
    problems: Sequence[tuple[int, str]]  # line, reason

    def raw_of_line(self, line: int) -> str:
        """Return the text of a line, whatever its bytes."""
        return self.lines[line - self.first_line].decode(errors="replace")

    def raws_of_events(self, rows: json_lines.Indices) -> list[str]:
        """Return the text of each event's line, or a Parquet row as JSON."""
        if self.lines:
            return [self.raw_of_line(line) for line in self.positions[rows].tolist()]
        return [dead_letter.json_text(row) for row in self.events.take(pa.array(rows)).to_pylist()]


def checked(piece: Piece, stream: Stream, keys: Sequence[Sequence[str]]) -> Chunk:
    """Return the piece as a chunk, with events that no rule can use among the dead letters."""
    letters = [(line, reason, piece.raw_of_line(line)) for line, reason in piece.problems]
    events = piece.events
    usable = np.ones(len(events), dtype=bool)
    for bad, reason in _unusable(events, stream, keys):
        rows = np.flatnonzero(bad & usable)
        if len(rows):
            positions = piece.positions[rows].tolist()
            letters += zip(positions, itertools.repeat(reason), piece.raws_of_events(rows))
        usable &= ~bad
    if not usable.all():
        events = events.filter(pa.array(usable))
    letters.sort()
    columns = [
        [reason for _, reason, _ in letters],
        [piece.source] * len(letters),
        [position for position, _, _ in letters],
        [raw for _, _, raw in letters],
    ]
    return Chunk(events, pa.table(columns, schema=DEAD_LETTER_SCHEMA))


def _unusable(events: pa.Table, stream: Stream, keys: Sequence[Sequence[str]]) -> Iterator[tuple[Mask, str]]:
    times = events.column(stream.event_time)
    yield pc.is_null(times).to_numpy(), dead_letter.null_event_time(stream)
    outside = pc.or_(pc.less(times, stream.min_valid_us), pc.greater_equal(times, stream.max_valid_us))
    yield pc.fill_null(outside, fill_value=False).to_numpy(), dead_letter.invalid_event_time(stream)
    if keys:
        without_key = np.ones(len(events), dtype=bool)
        for key in keys:
            is_null = [pc.is_null(events.column(name)).to_numpy() for name in key]
            without_key &= np.logical_or.reduce(is_null)
        yield without_key, dead_letter.null_key(keys)


def _read_text(name: str, stream: Stream, file_format: Format, block_bytes: int) -> Iterator[Piece]:
    header: list[str] | None = None
    with _opened(name) as file:
        for first_line, lines in _line_blocks(file, block_bytes):
            if file_format is Format.JSON:
                events, indices, problems = json_lines.parse(lines, stream)
            else:
                if header is None:
                    header = csv_header(name, lines[0], stream)
                    lines[0] = b""
                events, indices, problems = csv_lines.parse(lines, header, stream)
            yield Piece(
                name,
                events,
                indices + first_line,
                lines,
                first_line,
                [(index + first_line, reason) for index, reason in problems],
            )


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    """Open a text file for reading bytes; errors on the way are InputError."""
    try:
        if name == STDIN:
            yield sys.stdin.buffer
        else:
            with pa.input_stream(name, compression="detect") as file:
                yield file
    except OSError as error:
        raise InputError("E0606", f"`{name}` cannot be read: {_first_line(error)}") from error


def _line_blocks(file: Any, block_bytes: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield whole lines, about `block_bytes` at a time, with the number of the first."""
    first_line = 1
    pending: list[bytes] = []
    while data := file.read(block_bytes):
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            pending.append(data)
            continue
        lines = b"".join([*pending, data[:cut]]).splitlines()
        pending = [data[cut:]]
        yield first_line, lines
        first_line += len(lines)
    if any(pending):
        yield first_line, b"".join(pending).splitlines()


def csv_header(name: str, line: bytes, stream: Stream) -> list[str]:
    """Return the columns that the first line of a CSV file names, after checking them against `stream`."""
    try:
        header = csv_lines.parse_header(line)
    except ValueError:
        raise InputError(
            "E0606",
            f"the first line of `{name}` is not a CSV header",
            "the first line must name the columns",
        ) from None
    _require_columns(name, header, stream)
    for field in stream.fields:
        if field.type is Type.OPAQUE:
            raise InputError(
                "E0605",
                f"column `{field.name}` is declared {field.ddl}, which a CSV file cannot hold",
                "declare it as string, or give the events as JSON lines or Parquet",
            )
    return header


def _require_columns(name: str, columns: Sequence[str], stream: Stream) -> None:
    missing = [f"`{field.name}`" for field in stream.fields if columns.count(field.name) == 0]
    if missing:
        word = "column" if len(missing) == 1 else "columns"
        raise InputError(
            "E0604",
            f"`{name}` has no {word} {', '.join(missing)}, which stream `{stream.name}` declares",
            f"columns of the file: {', '.join(columns)}",
        )
    double = [f"`{field.name}`" for field in stream.fields if columns.count(field.name) > 1]
    if double:
        raise InputError("E0604", f"`{name}` has column {', '.join(double)} more than once")


def _read_parquet(name: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
    import pyarrow.parquet as pq

    names = [field.name for field in stream.fields]
    try:
        metadata = pq.read_metadata(name) if in_worker else None
        coded = [] if metadata is None else _repeating_texts(metadata, stream)
        # Without `pre_buffer` Arrow asks for a few kilobytes at a time: a third slower. With it, it holds
        # what is asked for: a row group, not the whole file.
        with pq.ParquetFile(name, metadata=metadata, read_dictionary=coded, pre_buffer=True) as file:
            columns = file.schema_arrow
            _require_columns(name, columns.names, stream)
            for field in stream.fields:
                _require_type(name, field, columns.field(field.name).type)
            position = 1
            for group in range(file.num_row_groups):
                batches = file.iter_batches(
                    batch_size=BLOCK_ROWS, row_groups=[group], columns=names, use_threads=not in_worker
                )
                for batch in batches:
                    yield _parquet_piece(name, batch, stream, position, coded)
                    position += batch.num_rows
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError("E0606", f"`{name}` cannot be read as Parquet: {_first_line(error)}") from error


def _repeating_texts(metadata: Any, stream: Stream) -> list[str]:
    """Return the columns of texts whose values a file repeats: few bytes for each."""
    if metadata.num_row_groups == 0:
        return []
    group = metadata.row_group(0)
    sizes = {}
    for number in range(group.num_columns):
        column = group.column(number)
        sizes[column.path_in_schema] = column.total_uncompressed_size / max(column.num_values, 1)
    texts = [field.name for field in stream.fields if field.type is Type.STRING]
    return [name for name in texts if sizes.get(name, _REPEATING_BYTES) < _REPEATING_BYTES]


_REPEATING_BYTES = 8

_CODED = pa.dictionary(pa.int32(), pa.string())
"""What Arrow reads as a dictionary, unless the file says otherwise."""


def _parquet_piece(
    name: str, batch: pa.RecordBatch, stream: Stream, first_row: int, coded: Sequence[str]
) -> Piece:
    columns = []
    for field in stream.fields:
        values = batch.column(field.name)
        if field.type is Type.OPAQUE:
            values = _opaque(values, field.column_type)
        elif field.name not in coded or values.type != _CODED:
            # Every value fits: the file's type does.
            values = fit_column(_plain(values, ARROW_TYPES[field.type]), field)[0]
        columns.append(values)
    positions = np.arange(first_row, first_row + batch.num_rows, dtype=np.int64)
    return Piece(
        name, pa.table(columns, names=[field.name for field in stream.fields]), positions, (), first_row, ()
    )


_PARQUET_TYPES: Mapping[Type, str] = {
    Type.BOOLEAN: "boolean",
    Type.BIGINT: "an integer",
    Type.DOUBLE: "a floating-point number",
    Type.STRING: "a string",
    Type.TIMESTAMP: "a timestamp",
}


def _require_type(name: str, field: Field, kind: pa.DataType) -> None:
    if not _fits(kind, field):
        raise InputError(
            "E0605",
            f"column `{field.name}` of `{name}` is {kind}, the stream declares {field.ddl}",
            f"the column must be {_word_of(field)} that fits; change the file or the declaration",
        )


def _fits(kind: pa.DataType, field: Field) -> bool:
    """Say whether a column of an Arrow type can be read as a field."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    match field.type:
        case Type.OPAQUE:
            return _has_type(kind, field.column_type)
        case Type.BOOLEAN:
            return bool(pa.types.is_boolean(kind))
        case Type.BIGINT:
            return bool(pa.types.is_integer(kind) and _integer_width(kind) <= INTEGER_BITS[field.ddl])
        case Type.DOUBLE if field.is_decimal:
            return bool(pa.types.is_decimal(kind))
        case Type.DOUBLE:
            # An integer of 32 bits is a double without loss; Spark widens it, too.
            return bool(
                pa.types.is_floating(kind) or (pa.types.is_integer(kind) and _integer_width(kind) <= 32)
            )
        case Type.STRING:
            return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
        case _:
            return bool(pa.types.is_date(kind) if field.ddl == "date" else pa.types.is_timestamp(kind))


def _has_type(kind: pa.DataType, declared: ColumnType) -> bool:
    """Say whether values of an Arrow type are of an opaque type, or of a part of one."""
    inside: list[pa.DataType] = []
    match declared.name:
        case "binary":
            return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        case "array":
            inside = [kind.value_type] if pa.types.is_list(kind) else []
        case "map":
            inside = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
        case "struct":
            known = [item.name for item in kind] if pa.types.is_struct(kind) else []
            inside = [kind.field(name).type for name in declared.names if known.count(name) == 1]
        case _:
            return _fits(kind, Field("", str(declared)))
    return len(inside) == len(declared.parts) and all(map(_has_type, inside, declared.parts))


def _word_of(field: Field) -> str:
    if field.type is Type.OPAQUE:
        return field.ddl
    if field.is_decimal:
        return "a decimal"
    return "a date" if field.ddl == "date" else _PARQUET_TYPES[field.type]


def _integer_width(kind: pa.DataType) -> int:
    """Return how many bits a signed integer needs to hold every value of `kind`."""
    return int(kind.bit_width) + int(pa.types.is_unsigned_integer(kind))


def _opaque(values: pa.Array, kind: ColumnType) -> pa.Array:
    texts = [None if value is None else opaque_text(value, kind) for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(values.type):  # by its digits: the nearest DOUBLE, as Spark has it
        values = pc.cast(values, pa.string())
    if pa.types.is_date(values.type):
        values = pc.cast(values, pa.timestamp("us"))
    if pa.types.is_timestamp(values.type):
        # Without a zone: UTC. Nanoseconds are cut to microseconds.
        values = pc.cast(values, pa.timestamp("us", tz=values.type.tz), safe=False)
    return pc.cast(values, kind)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
