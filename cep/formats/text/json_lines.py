"""JSON lines -> typed events, and the reason for each line that is not an event.

A line contains one object. A number is written as a number or as one of `NUMBER_WORDS`, a string or a time as
a string. A missing field is NULL; fields that the stream does not declare are not examined.
`cep.schema.text_values` has the accepted forms. Arrays, structs and maps are written as in JSON, binary
values in base64.

`parse_line` defines the meaning of a line. It is slow, so `parse` passes many lines at once to a kernel
(`cep.formats.text.json`), which reads only plain lines. Arrow reads the rest, all lines of streams that the
kernel does not read, and all lines while it is not compiled. `parse_line` reads what Arrow reads differently
or not at all:

- Arrow reads ``Inf`` and ``-NaN``, which are not JSON, and objects of any depth.
- A bad line fails all lines that Arrow received with it. These are divided at the line that Arrow names, or
  in the middle. Once few lines remain, they are read one by one.
- Values outside the range of their type show in Arrow's columns: their lines are read again for the
  reason.
- Arrow reads no strings as numbers, not even `NUMBER_WORDS`.
- Arrow reads only whole arrays. Lines with a column that is an element are all read one by one.
- Arrow has no maps, and if some counts of a column have fractions, it turns all of them into DOUBLE.

`tests/property/readers.py` compares both with `parse_line`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cep.arrays import Mask
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.dead_letter import MAX_NESTING
from cep.formats.lines import Lines, lines_of_objects
from cep.formats.protocol import Indices, Problem
from cep.formats.text.absent_fields import absent_fields
from cep.formats.text.file_beginnings import (
    HEAD_BYTES,
    begins_with_object,
    refuse_other_contents,
    refuse_other_json,
)
from cep.formats.text.line_format import LineFormat
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.decimals import largest_double
from cep.schema.masks import where_true
from cep.schema.opaque_values import as_double, opaque_text
from cep.schema.stream import Field, Stream
from cep.schema.text_values import (
    NUMBER_WORDS,
    column_from_text,
    event_table_schema,
    fit_column,
    integer_range,
)
from cep.schema.time_values import time_of_number, time_of_text, times_of_numbers

ONE_BY_ONE = 32
"""Lines below which a call into Arrow costs more than reading each line in Python."""

PIECE_LINES = 2048
"""Lines in one call of Arrow. A bad line costs reading the lines before it twice. A call costs as much as
some hundred lines."""

_WORTH_LOADING = 512
"""Lines for which compiled code is looked for on disk and loaded. To load it takes as long as 5,000 lines."""

_SAMPLE, _MANY = 512, 16
"""Lines that tell whether the kernel is of use for so many times as many: in some streams it takes none."""

_Rows = tuple[Sequence[bytes], Indices]
"""Lines and which ones they are."""

_BOM = b"\xef\xbb\xbf"

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_NUMBER = re.compile(rb"Inf(?!inity)|-NaN")


# ---------------------------------------------------------------- a line


def parse_line(line: str, stream: Stream) -> dict[str, Any] | str:
    """Return the typed values of one line, or the reason why it is not an event.

    Timestamps are int microseconds.
    """
    if line.count("{") + line.count("[") > MAX_NESTING and _depth(line.encode()) > MAX_NESTING:
        return dead_letter.TOO_DEEP
    try:
        found = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return dead_letter.NOT_JSON
    if not isinstance(found, dict):
        return dead_letter.NOT_JSON
    values: dict[str, Any] = {}
    for field in stream.fields:
        value = _value_at(found, (*field.place, *field.element))
        typed = None if value is None else _typed(value, field)
        if typed is None and value is not None:
            written = _value_at(verbatim(line), (*field.place, *field.element))
            return dead_letter.wrong_type(field, as_written(written))
        values[field.name] = typed
    return values


def _value_at(tree: dict[str, Any], place: Sequence[str | int]) -> Any:
    """Return the value at `place`, or whatever else than an object or an array is on the path."""
    value: Any = tree
    for part in place:
        if value is None:
            return None
        if not isinstance(value, list if isinstance(part, int) else dict):
            return _NoObject(value)
        inside: Any = value
        value = inside.get(part) if isinstance(part, str) else inside[part] if part < len(inside) else None
    return value


class _NoObject:
    """What is in the place of an object or an array with the value: of no type of a column."""

    def __init__(self, value: object) -> None:
        self.value = value


class _MinusZero(int):
    """The number ``-0``: as a DOUBLE it has a sign."""

    def __float__(self) -> float:
        return -0.0


_MANY_DIGITS = 400
"""Digits of a number that is beyond all types, and infinite as a DOUBLE. Python refuses 5,000 of them."""


_BEYOND: int = 10**_MANY_DIGITS


def _whole_number(text: str) -> int:
    if text == "-0":
        return _MinusZero()
    if len(text) > _MANY_DIGITS:
        return -_BEYOND if text[0] == "-" else _BEYOND
    return int(text)


class _Number(str):
    """A number as written in the line."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_whole_number)
_VERBATIM = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def verbatim(line: str) -> Any:
    """Return the value of a line with numbers as they are written.

    Raises ValueError: the line is not JSON; RecursionError.
    """
    return _VERBATIM.decode(line)


def as_written(value: object) -> str:
    """Return a value that `verbatim` has read as compact JSON."""
    match value:
        case _NoObject():
            return as_written(value.value)
        case _Number():
            return str(value)
        case dict():
            members = (
                f"{json.dumps(name, ensure_ascii=False)}:{as_written(item)}" for name, item in value.items()
            )
            return "{" + ",".join(members) + "}"
        case list():
            return f"[{','.join(map(as_written, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _typed(value: object, field: Field) -> object:
    """Return `value`, as read from JSON, in the field's type, or None if it does not have the type."""
    match field.type, value:
        case Type.OPAQUE, _:
            try:
                return opaque_text(value, field.column_type, is_json=True)
            except ValueError:
                return None
        case Type.BOOLEAN, bool():
            return value
        case Type.STRING, str():
            return value if _is_text(value) else None
        case Type.TIMESTAMP, str() if not field.unit:
            return time_of_text(value, field)
        case ((Type.TIMESTAMP | Type.BIGINT | Type.DOUBLE), bool()):
            return None
        case Type.TIMESTAMP, int() | float() if field.unit:
            return time_of_number(value, field.unit)
        case Type.BIGINT, int():
            low, high = integer_range(field.ddl)
            return int(value) if low <= value <= high else None
        case Type.DOUBLE, int() | float():
            number = as_double(value, field.ddl)
            return None if field.is_decimal and not abs(number) <= largest_double(field.digits) else number
        case Type.DOUBLE, str() if not field.is_decimal:
            return NUMBER_WORDS.get(value)
        case _:
            return None


def _is_text(value: str) -> bool:
    """Return whether `value` has no half of a surrogate pair, which JSON can write but text cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _depth(line: bytes) -> int:
    """Return how deeply the objects and arrays of a line are nested."""
    signs = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    opening = (signs == ord("{")) | (signs == ord("["))
    closing = (signs == ord("}")) | (signs == ord("]"))
    return int(np.cumsum(opening.astype(np.int64) - closing).max(initial=0))


# ---------------------------------------------------------------- many lines


def parse(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return the events of `lines`, the index of each event's line, and the problems of the other lines.

    Empty lines are neither events nor problems.
    """
    columns = _columns_module(len(lines)) if len(lines) > ONE_BY_ONE else None
    plan = columns and columns.plan_of(stream)
    if columns is None or plan is None:
        return parse_otherwise(lines, stream)
    block = lines if isinstance(lines, Lines) else lines_of_objects(lines)
    if len(block) > _MANY * _SAMPLE:
        taken, _, _ = columns.plain_events(block[:_SAMPLE], stream, plan)
        if len(taken) < _SAMPLE // 8:
            return parse_otherwise(lines, stream)
    plain, rows, left = columns.plain_events(block, stream, plan)
    if len(left) == 0:
        return plain, rows, []
    others, at, problems = parse_otherwise(_chosen(lines, left), stream)
    problems = [(int(left[index]), reason) for index, reason in problems]
    return *_merged(plain, rows, others, left[at]), problems


def _chosen(lines: Sequence[bytes], rows: Indices) -> Sequence[bytes]:
    if 2 * len(rows) > len(lines) and isinstance(lines, Lines):
        lines = lines.objects()
    return [lines[row] for row in rows.tolist()]


def _columns_module(n_lines: int) -> ModuleType | None:
    """Return the module of the kernel if the kernel is compiled, and loaded or worth loading."""
    # Imported here: a reader of a few lines need not load numba.
    from cep.formats.text.json import columns

    return columns if columns.is_ready(look_on_disk=n_lines >= _WORTH_LOADING) else None


def _merged(
    events: pa.Table, rows: Indices, others: pa.Table, other_rows: Indices
) -> tuple[pa.Table, Indices]:
    """Return two tables of events as one, with their rows, which ascend in each of them, in order."""
    if len(others) == 0:
        return events, rows
    places = np.searchsorted(rows, other_rows)
    merged = np.insert(rows, places, other_rows)
    cuts = np.flatnonzero(np.diff(places, prepend=-1))  # the first of those between the same two rows
    if len(cuts) > _MOST_CUTS:
        order = np.argsort(np.concatenate([rows, other_rows]), kind="stable")
        return pa.concat_tables([events, others]).combine_chunks().take(pa.array(order)), merged
    parts, start = [], 0
    for cut, end in zip(cuts.tolist(), [*cuts[1:].tolist(), len(others)], strict=True):
        parts += [events.slice(start, places[cut] - start), others.slice(cut, end - cut)]
        start = places[cut]
    return pa.concat_tables([*parts, events.slice(start)]).combine_chunks(), merged


_MOST_CUTS = 64
"""Places at which a table is cut rather than each of its rows moved."""


def parse_otherwise(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return what `parse` returns, without the kernel."""
    is_for_arrow = _arrow_schema(stream, pa.int64()) is not None
    has_fractions = False
    tables: list[pa.Table] = []
    kept: list[Indices] = []
    problems: list[Problem] = []
    lines = lines.objects() if isinstance(lines, Lines) else lines
    indices = np.arange(len(lines))
    pieces: list[_Rows] = [
        (lines[start : start + PIECE_LINES], indices[start : start + PIECE_LINES])
        for start in reversed(range(0, len(lines), PIECE_LINES))
    ]
    while pieces:
        piece, rows = pieces.pop()
        block = b"\n".join(piece)
        if not _are_in_braces(block):
            piece, rows, found = _objects(piece, rows)
            problems += found
            block = b"\n".join(piece)
        if len(piece) <= ONE_BY_ONE or not is_for_arrow:
            table, rows, found = _parse_one_by_one(piece, rows, stream)
            problems += found
        else:
            try:
                table, is_event, has_fractions = _parse_together(block, piece, stream, has_fractions)
            except _BadLineError as error:
                pieces += _cut(piece, rows, error.row)
                continue
            if not is_event.all():
                # Few: for their reasons, or because only `parse_line` reads them correctly.
                pieces += _one_by_one(piece, rows, np.flatnonzero(~is_event))
                table, rows = table.filter(pa.array(is_event)), rows[is_event]
        tables.append(table)
        kept.append(rows)
    problems.sort()
    if not tables:
        return event_table_schema(stream).empty_table(), indices[:0], problems
    events, rows = pa.concat_tables(tables).combine_chunks(), np.concatenate(kept)
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows)
        events, rows = events.take(pa.array(order)), rows[order]
    return events, rows, problems


class _BadLineError(Exception):
    """Arrow cannot read a line, perhaps line `row`. The lines are divided there in any case."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _FractionError(Exception):
    """A number with a fraction or an exponent where Arrow expected whole numbers."""


def _cut(lines: Sequence[bytes], indices: Indices, at: int) -> list[_Rows]:
    """Return the lines after, at and before a line, in this order, without empty parts."""
    parts = (slice(at + 1, None), slice(at, at + 1), slice(0, at))
    return [(lines[part], indices[part]) for part in parts if len(indices[part])]


def _one_by_one(lines: Sequence[bytes], indices: Indices, chosen: npt.NDArray[np.intp]) -> list[_Rows]:
    """Return the `chosen` lines in portions that Arrow does not read."""
    parts = [chosen[start : start + ONE_BY_ONE] for start in range(0, len(chosen), ONE_BY_ONE)]
    return [([lines[row] for row in part.tolist()], indices[part]) for part in parts]


def _objects(lines: Sequence[bytes], indices: Indices) -> tuple[Sequence[bytes], Indices, list[Problem]]:
    """Return the lines that may hold an object, their indices, and the problems of the others.

    They start with ``{`` and end with ``}``: if Arrow then reads as many objects as lines, each line contains
    one. An object can neither end within a line nor continue after it.
    """
    objects: list[bytes] = []
    rows: list[int] = []
    problems: list[Problem] = []
    for row, whole in enumerate(lines):
        line = whole.removeprefix(_BOM).strip()
        if line[:1] == b"{" and line[-1:] == b"}":
            objects.append(line)
            rows.append(row)
        elif line:
            problems.append((int(indices[row]), _reason_for_text(line)))
    return objects, indices[np.array(rows, np.intp)], problems


def _are_in_braces(block: bytes) -> bool:
    """Return whether each line of `block` starts with ``{`` and ends with ``}``."""
    signs = np.frombuffer(block, np.uint8)
    if len(signs) == 0:
        return False
    ends = np.flatnonzero(signs == ord("\n"))
    firsts = signs[np.minimum(ends + 1, len(signs) - 1)]
    lasts = signs[ends - 1]
    return bool(
        (signs[0] == ord("{") and signs[-1] == ord("}"))
        and (firsts == ord("{")).all()
        and (lasts == ord("}")).all()
    )


def _parse_together(
    block: bytes, lines: Sequence[bytes], stream: Stream, has_fractions: bool
) -> tuple[pa.Table, Mask, bool]:
    """Return the events of `lines`, which lines are events, and whether counts of a unit have fractions.

    The other lines must be read one by one. `has_fractions`: whether earlier lines had some. Raises
    _BadLineError if Arrow cannot read the lines.
    """
    odd = _odd_lines(block, lines)
    if odd:
        # An object without fields keeps their positions.
        lines = list(lines)
        for row in odd:
            lines[row] = b"{}"
        block = b"\n".join(lines)
    table, has_fractions = _read_arrow(block, len(lines), stream, has_fractions)
    is_event = np.ones(len(lines), dtype=bool)
    is_event[odd] = False
    columns: list[pa.Array] = []
    for field in stream.fields:
        values = _column(table, field)
        if field.unit:
            is_event &= ~_inexact(values)
            values, bad = times_of_numbers(values, field.unit)
        elif field.type is Type.TIMESTAMP:
            values, bad = column_from_text(values, field)
        else:
            values, bad = fit_column(values, field)
        columns.append(values)
        is_event &= ~bad
    return pa.Table.from_arrays(columns, schema=event_table_schema(stream)), is_event, has_fractions


def _odd_lines(block: bytes, lines: Sequence[bytes]) -> list[int]:
    """Return the lines that Arrow would read but JSON does not allow, and those nested too deeply."""
    odd: list[int] = []
    # Finding one character is many times faster than finding three.
    if (b"I" in block and b"Inf" in block) or (b"N" in block and b"-NaN" in block):
        odd += [
            row
            for row, line in enumerate(lines)
            if (b"Inf" in line or b"-NaN" in line) and _NO_NUMBER.search(_TEXT.sub(b"", line))
        ]
    signs = np.frombuffer(block, np.uint8)
    n_opened = np.count_nonzero((signs | 0x20) == ord("{"))  # 0x20 is between [ and {
    if n_opened - len(lines) >= MAX_NESTING:
        odd += [
            row
            for row, line in enumerate(lines)
            if line.count(b"{") + line.count(b"[") > MAX_NESTING and _depth(line) > MAX_NESTING
        ]
    return odd


@lru_cache(maxsize=64)
def _arrow_schema(stream: Stream, number: pa.DataType) -> pa.Schema | None:
    """Return Arrow's schema for lines, counts of a unit as `number`; None: it cannot read them (maps)."""
    tree: dict[str, Any] = {}
    for field in stream.fields:
        if field.type is Type.OPAQUE or field.element:
            return None
        kind = number if field.unit else ARROW_TYPES[field.type]
        if field.type is Type.TIMESTAMP and not field.unit:
            kind = pa.string()
        inside = tree
        for name in field.place[:-1]:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                return None
        if inside.setdefault(field.place[-1], kind) != kind:
            return None
    return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in tree.items()])


def _arrow_type(tree: Any) -> pa.DataType:
    if not isinstance(tree, dict):
        return tree
    return pa.struct([pa.field(name, _arrow_type(kind)) for name, kind in tree.items()])


def _read_arrow(
    block: bytes, n_lines: int, stream: Stream, has_fractions: bool
) -> tuple[pa.RecordBatch, bool]:
    """Return columns, times as text, counts of a unit as numbers, and whether these have fractions."""
    has_counts = any(field.unit for field in stream.fields)
    if not (has_counts and has_fractions):
        with suppress(_FractionError):
            return _read_as(block, n_lines, _arrow_schema(stream, pa.int64()), has_counts), False
    table = _read_as(block, n_lines, _arrow_schema(stream, pa.float64()), False)
    counts = [_column(table, field) for field in stream.fields if field.unit]
    if has_fractions and any(_inexact(values).any() for values in counts):
        with suppress(_FractionError):
            return _read_as(block, n_lines, _arrow_schema(stream, pa.int64()), True), False
    return table, True


def _column(table: pa.RecordBatch, field: Field) -> pa.Array:
    values = table.column(field.place[0])
    return pc.struct_field(values, list(field.place[1:])) if len(field.place) > 1 else values


def _inexact(values: pa.Array) -> Mask:
    """Return where `values` may be whole numbers that no DOUBLE holds."""
    if not pa.types.is_floating(values.type):
        return np.zeros(len(values), dtype=bool)
    return where_true(pc.greater_equal(pc.abs(values), 2.0**53))


def _read_as(block: bytes, n_lines: int, schema: pa.Schema | None, has_counts: bool) -> pa.RecordBatch:
    assert schema is not None
    try:
        str(block, "utf-8")  # Arrow takes any bytes for text
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except UnicodeDecodeError as error:
        raise _BadLineError(block.count(b"\n", 0, error.start)) from None
    except pa.ArrowInvalid as error:
        if has_counts and "to int64" in str(error):
            raise _FractionError from None
        found = re.search(r" in row (\d+)$", str(error))
        row = int(found[1]) if found else n_lines // 2
        raise _BadLineError(min(row, n_lines - 1)) from None
    if table.num_rows != n_lines:
        raise _BadLineError(n_lines // 2)
    columns = [table.column(name).combine_chunks() for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parse_one_by_one(
    lines: Sequence[bytes], indices: Indices, stream: Stream
) -> tuple[pa.Table, Indices, list[Problem]]:
    events: list[dict[str, Any]] = []
    kept: list[int] = []
    problems: list[Problem] = []
    for index, line in zip(indices.tolist(), lines, strict=True):
        try:
            found = parse_line(line.decode(), stream)
        except UnicodeDecodeError:
            found = dead_letter.NOT_UTF8
        if isinstance(found, str):
            problems.append((index, found))
        else:
            events.append(found)
            kept.append(index)
    table = pa.Table.from_pylist(events, schema=event_table_schema(stream))
    return table, np.array(kept, np.int64), problems


def _reason_for_text(line: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError:
        return dead_letter.NOT_UTF8
    return dead_letter.NOT_JSON


# ---------------------------------------------------------------- the format


def _begin(file: str, lines: Sequence[bytes], is_last: bool) -> int | None:
    """Return 0 for a file of JSON lines, None if too little of it is known; see `RecordReader.begin`."""
    refuse_other_contents(file, lines[0])
    if not begins_with_object(lines):
        if sum(map(len, lines)) < HEAD_BYTES and not is_last:
            return None
        refuse_other_json(file, lines)
    return 0


JSON_LINES = LineFormat("json", (".json", ".jsonl", ".ndjson"), parse, _begin, absent_fields)
