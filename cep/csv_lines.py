"""CSV lines -> typed events, and for each line that is not one the reason.

The form is RFC 4180 with a header: comma, double quotes, a doubled quote inside quotes. A record is one
line. An empty field is NULL, quoted or not. Columns that the stream does not declare are not looked at; a
declared column that the header lacks is an error of the whole file. See `cep.text_values` for the accepted
forms.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from cep import dead_letter
from cep.json_lines import Indices, Problem
from cep.schema import Stream
from cep.text_values import column_from_text, event_table_schema

_BOM = b"\xef\xbb\xbf"

# Arrow is lenient with quotes, and one left open takes in the lines that follow.
_FIELD = rb'(?:"(?:[^"]|"")*+"|[^",]*+)'
_QUOTED_FORM = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+")


def parse_header(line: bytes) -> list[str]:
    """Return the column names of a header line; raises ValueError if it is not one."""
    if not line or _reason_for_form(line) is not None:
        raise ValueError(line)
    return next(csv.reader([line.removeprefix(_BOM).decode()], strict=True))


def parse(
    lines: Sequence[bytes], header: list[str], stream: Stream
) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return the events of `lines`, the index of each event's line, and the problems of the other lines.

    Empty lines are neither. `header` has every field of `stream`, each once.
    """
    good: list[bytes] = []
    indices: list[int] = []
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        reason = _reason_for_form(line)
        if reason is not None:
            problems.append((index, reason))
        elif line:
            good.append(line)
            indices.append(index)
    if not good:
        return event_table_schema(stream).empty_table(), np.empty(0, np.int64), problems
    texts, miscounted = _read_arrow(good, len(header))
    reasons: dict[int, str] = dict(miscounted)
    kept = [row for row in range(len(good)) if row not in reasons]
    columns = []
    for field in stream.fields:
        column = texts.column(header.index(field.name))
        values, bad = column_from_text(column, field)
        columns.append(values)
        for at in np.flatnonzero(bad).tolist():
            reasons.setdefault(kept[at], dead_letter.wrong_type(field, column[at].as_py()))
    events = pa.Table.from_arrays(columns, schema=event_table_schema(stream))
    keep = [row not in reasons for row in kept]
    if not all(keep):
        events = events.filter(pa.array(keep))
    problems += [(indices[row], reason) for row, reason in reasons.items()]
    problems.sort()
    return events, np.array([indices[row] for row in kept if row not in reasons], np.int64), problems


def _reason_for_form(line: bytes) -> str | None:
    if b'"' in line and _QUOTED_FORM.fullmatch(line) is None:
        return dead_letter.MISPLACED_QUOTE
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return dead_letter.NOT_UTF8
    return None


def _read_arrow(lines: list[bytes], n_columns: int) -> tuple[pa.RecordBatch, list[Problem]]:
    """Return the fields of `lines` as text, and the lines with another number of fields than `n_columns`."""
    miscounted: list[Problem] = []

    def note(row: pyarrow.csv.InvalidRow) -> str:
        miscounted.append(
            (row.number - 1, dead_letter.wrong_field_count(row.actual_columns, row.expected_columns))
        )
        return "skip"

    block = b"\n".join(lines) + b"\n"
    names = [f"f{at}" for at in range(n_columns)]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block),
        # One thread: only then does Arrow number the rows that it refuses.
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(block) + 1, column_names=names
        ),
        parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=note, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=names), miscounted
