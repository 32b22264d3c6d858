"""JSON lines -> typed events, and for each line that is not one the reason.

A line holds one object. A number is written as a number, a string and a time as a string; a field that is
missing is NULL; fields that the stream does not declare are not looked at. See `cep.text_values` for the
accepted forms. An array, a struct, a map is written as JSON writes it, binary in base64.

Arrow parses many lines at once, but a bad line fails them all. A piece that fails is cut at the line that
Arrow names, or in the middle; where few lines are left, they are read one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from cep import dead_letter
from cep.column_types import opaque_text
from cep.expression import Type
from cep.schema import Field, Stream
from cep.text_values import (
    DATE_LENGTH,
    column_from_text,
    event_table_schema,
    fit_column,
    integer_range,
    timestamp_us,
)

ONE_BY_ONE = 32
"""Lines below which a call into Arrow costs more than reading each line in Python."""

PIECE_LINES = 2048
"""Lines given to Arrow at once: a bad one costs reading those before it twice, a call some hundred lines."""

Indices = npt.NDArray[np.int64]

Problem = tuple[int, str]
"""Index of a line and the reason why it is not an event."""

_BOM = b"\xef\xbb\xbf"


def parse(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return the events of `lines`, the index of each event's line, and the problems of the other lines.

    Empty lines are neither.
    """
    lines, indices, problems = _objects(lines)
    has_trees = any(field.type is Type.OPAQUE for field in stream.fields)  # not for Arrow: it has no maps
    tables: list[pa.Table] = []
    kept: list[Indices] = []
    pieces = [(start, min(start + PIECE_LINES, len(lines))) for start in range(0, len(lines), PIECE_LINES)][
        ::-1
    ]
    while pieces:
        start, stop = pieces.pop()
        if stop - start <= ONE_BY_ONE or has_trees:
            table, rows, found = _parse_one_by_one(lines[start:stop], stream)
        else:
            try:
                table, rows, found = _parse_together(lines[start:stop], stream)
            except _BadLineError as error:
                at = start + error.row
                pieces += [
                    piece for piece in ((at + 1, stop), (at, at + 1), (start, at)) if piece[0] < piece[1]
                ]
                continue
        tables.append(table)
        kept.append(rows + start)
        problems += [(int(indices[start + row]), reason) for row, reason in found]
    problems.sort()
    if not tables:
        return event_table_schema(stream).empty_table(), indices[:0], problems
    return pa.concat_tables(tables).combine_chunks(), indices[np.concatenate(kept)], problems


def parse_line(line: str, stream: Stream) -> dict[str, Any] | str:
    """Return the typed values of one line, or the reason why it is not an event.

    Timestamps are int microseconds.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return dead_letter.NOT_JSON
    if not isinstance(found, dict):
        return dead_letter.NOT_JSON
    values: dict[str, Any] = {}
    for field in stream.fields:
        value = found.get(field.name)
        typed = None if value is None else _typed(value, field)
        if typed is None and value is not None:
            return dead_letter.wrong_type(field, dead_letter.json_text(value))
        values[field.name] = typed
    return values


class _BadLineError(Exception):
    """Some line is not as Arrow wants it: perhaps that of `row`, a place to cut in any case."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def _objects(lines: Sequence[bytes]) -> tuple[Sequence[bytes], Indices, list[Problem]]:
    """Return the lines that may hold an object, their indices, and the problems of the others.

    They begin with ``{`` and end with ``}``: then, if Arrow reads as many objects as there are lines, each
    line holds one. An object can neither end within a line nor go on after it.
    """
    unusual = [index for index, line in enumerate(lines) if line[:1] != b"{" or line[-1:] != b"}"]
    if not unusual:
        return lines, np.arange(len(lines)), []
    result = list(lines)
    dropped, problems = [], []
    for index in unusual:
        line = lines[index].removeprefix(_BOM).strip()
        if line[:1] == b"{" and line[-1:] == b"}":
            result[index] = line
            continue
        dropped.append(index)
        if line:
            problems.append((index, _reason_for_text(line)))
    for index in reversed(dropped):
        del result[index]
    return result, np.delete(np.arange(len(lines)), dropped), problems


def _parse_together(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return the events of `lines`, the row of each, and the problems of the others.

    Raises _BadLineError if Arrow does not read them.
    """
    table = _read_arrow(lines, stream)
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field, column in zip(stream.fields, table.columns, strict=True):
        if field.type is Type.TIMESTAMP:
            values, bad = column_from_text(column, field)
        else:
            values, bad = fit_column(column, field)
        columns.append(values)
        for row in np.flatnonzero(bad).tolist():
            text = dead_letter.json_text(column[row].as_py())
            reasons.setdefault(row, dead_letter.wrong_type(field, text))
    events = pa.Table.from_arrays(columns, schema=event_table_schema(stream))
    rows = np.delete(np.arange(len(lines)), list(reasons)) if reasons else np.arange(len(lines))
    return events.take(pa.array(rows)) if reasons else events, rows, list(reasons.items())


def _read_arrow(lines: Sequence[bytes], stream: Stream) -> pa.RecordBatch:
    """Return the fields of `lines`, times as text."""
    block = b"\n".join(lines)
    schema = pa.schema(
        [
            pa.field(field.name, pa.string()) if field.type is Type.TIMESTAMP else typed
            for field, typed in zip(stream.fields, event_table_schema(stream), strict=True)
        ]
    )
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
        found = re.search(r" in row (\d+)$", str(error))
        row = int(found[1]) if found else len(lines) // 2
        raise _BadLineError(min(row, len(lines) - 1)) from None
    if table.num_rows != len(lines):
        raise _BadLineError(len(lines) // 2)
    columns = [table.column(name).combine_chunks() for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parse_one_by_one(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    events: list[dict[str, Any]] = []
    rows: list[int] = []
    problems: list[Problem] = []
    for row, line in enumerate(lines):
        try:
            found = parse_line(line.decode(), stream)
        except UnicodeDecodeError:
            found = dead_letter.NOT_UTF8
        if isinstance(found, str):
            problems.append((row, found))
        else:
            events.append(found)
            rows.append(row)
    table = pa.Table.from_pylist(events, schema=event_table_schema(stream))
    return table, np.array(rows, np.int64), problems


def _reason_for_text(line: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError:
        return dead_letter.NOT_UTF8
    return dead_letter.NOT_JSON


def _typed(value: object, field: Field) -> object:
    """Return `value`, as JSON gives it, as the field's type, or None if it is not of the type."""
    match field.type, value:
        case Type.OPAQUE, _:
            try:
                return opaque_text(value, field.column_type)
            except ValueError:
                return None
        case Type.BOOLEAN, bool():
            return value
        case Type.STRING, str():
            return value if _is_text(value) else None
        case Type.TIMESTAMP, str():
            return timestamp_us(value) if field.ddl != "date" or len(value) == DATE_LENGTH else None
        case ((Type.BIGINT | Type.DOUBLE), bool()):
            return None
        case Type.BIGINT, int():
            low, high = integer_range(field.ddl)
            return value if low <= value <= high else None
        case Type.DOUBLE, int() | float():
            return _as_double(value, field)
        case _:
            return None


def _as_double(value: int | float, field: Field) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = float("inf") if value > 0 else float("-inf")
    if field.ddl == "float":
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    return number


def _is_text(value: str) -> bool:
    """Say whether `value` has no half of a surrogate pair: JSON can write one, text cannot hold it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
