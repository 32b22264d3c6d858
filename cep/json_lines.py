"""JSON lines -> typed events, and for each line that is not one the reason.

A line holds one object. A number is written as a number, a string and a time as a string; a field that is
missing is NULL; fields that the stream does not declare are not looked at. See `cep.text_values` for the
accepted forms.

Arrow parses whole pieces of a block, but a bad line fails its piece. So a piece that fails is cut until few
lines are left, and those are read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from cep import dead_letter
from cep.expression import Type
from cep.schema import Field, Stream
from cep.text_values import column_from_text, event_table_schema, fit_column, integer_range, timestamp_us

ONE_BY_ONE = 32
"""Lines below which a call into Arrow costs more than reading each line in Python."""

Problem = tuple[int, str]
"""Index of a line and the reason why it is not an event."""

_BOM = b"\xef\xbb\xbf"


def parse(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, list[int], list[Problem]]:
    """Return the events of `lines`, the index of each event's line, and the problems of the other lines.

    Empty lines are neither.
    """
    good: list[bytes] = []
    indices: list[int] = []
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        # This form makes what Arrow reads equal to the lines: an object neither ends early nor spans lines.
        if line[:1] != b"{" or line[-1:] != b"}":
            line = line.removeprefix(_BOM).strip()
            if line[:1] != b"{" or line[-1:] != b"}":
                if line:
                    problems.append((index, _reason_for_text(line)))
                continue
        good.append(line)
        indices.append(index)
    tables, rows, more = _parse_objects(good, 0, len(good), stream)
    problems += [(indices[row], reason) for row, reason in more]
    problems.sort()
    schema = event_table_schema(stream)
    events = pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
    return events, [indices[row] for row in rows], problems


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


def _parse_objects(
    lines: list[bytes], start: int, stop: int, stream: Stream
) -> tuple[list[pa.Table], list[int], list[Problem]]:
    """Return tables, rows and problems of ``lines[start:stop]``; rows are indices of `lines`."""
    if start == stop:
        return [], [], []
    n_lines = stop - start
    if n_lines <= ONE_BY_ONE:
        return _parse_one_by_one(lines, start, stop, stream)
    try:
        table = _read_arrow(b"\n".join(lines[start:stop]), stream)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        table = None
    if table is None or table.num_rows != n_lines:
        tables, rows, problems = [], [], []
        step = max(ONE_BY_ONE, -(-n_lines // 8))
        for at in range(start, stop, step):
            t, r, p = _parse_objects(lines, at, min(at + step, stop), stream)
            tables += t
            rows += r
            problems += p
        return tables, rows, problems
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
    keep = np.ones(n_lines, dtype=bool)
    keep[list(reasons)] = False
    if reasons:
        events = events.filter(pa.array(keep))
    rows = (np.flatnonzero(keep) + start).tolist()
    return [events], rows, [(start + row, reason) for row, reason in reasons.items()]


def _read_arrow(block: bytes, stream: Stream) -> pa.Table:
    str(block, "utf-8")  # Arrow takes any bytes for text
    schema = pa.schema(
        [
            pa.field(field.name, pa.string()) if field.type is Type.TIMESTAMP else typed
            for field, typed in zip(stream.fields, event_table_schema(stream), strict=True)
        ]
    )
    table = pyarrow.json.read_json(
        pa.BufferReader(block),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    return table.select(schema.names).combine_chunks()


def _parse_one_by_one(
    lines: list[bytes], start: int, stop: int, stream: Stream
) -> tuple[list[pa.Table], list[int], list[Problem]]:
    events: list[dict[str, Any]] = []
    rows: list[int] = []
    problems: list[Problem] = []
    for row in range(start, stop):
        try:
            found = parse_line(lines[row].decode(), stream)
        except UnicodeDecodeError:
            found = dead_letter.NOT_UTF8
        if isinstance(found, str):
            problems.append((row, found))
        else:
            events.append(found)
            rows.append(row)
    return [pa.Table.from_pylist(events, schema=event_table_schema(stream))], rows, problems


def _reason_for_text(line: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError:
        return dead_letter.NOT_UTF8
    return dead_letter.NOT_JSON


def _typed(value: object, field: Field) -> object:
    """Return `value`, as JSON gives it, as the field's type, or None if it is not of the type."""
    match field.type, value:
        case Type.BOOLEAN, bool():
            return value
        case Type.STRING, str():
            return value if _is_text(value) else None
        case Type.TIMESTAMP, str():
            return timestamp_us(value)
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
