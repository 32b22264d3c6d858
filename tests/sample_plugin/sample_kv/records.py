"""Lines of ``key=value``, separated by blanks: a format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cep.formats.dead_letter import NOT_UTF8, wrong_type
from cep.formats.protocol import Indices, Problem
from cep.formats.text.line_format import LineFormat
from cep.schema.stream import Stream
from cep.schema.text_values import column_from_text, event_table_schema


def parse(lines: Sequence[bytes], stream: Stream) -> tuple[pa.Table, Indices, list[Problem]]:
    """Return the events of lines, the index of each event's line, and the lines that are no events."""
    found: list[tuple[int, dict[str, str]]] = []
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        pairs = [pair.partition(b"=") for pair in line.split()]
        try:
            values = {name.decode(): value.decode() for name, _, value in pairs}
        except UnicodeDecodeError:
            problems.append((index, NOT_UTF8))
            continue
        if not all(sign for _, sign, _ in pairs):
            problems.append((index, "not key=value"))
        elif values:
            found.append((index, values))
    columns, is_event = [], np.ones(len(found), np.bool_)
    for field in stream.fields:
        texts = [values.get(field.column) for _, values in found]
        column, bad = column_from_text(pa.array(texts, pa.string()), field)
        columns.append(column)
        wrong = np.flatnonzero(bad & is_event).tolist()
        problems += [(found[row][0], wrong_type(field, str(texts[row]))) for row in wrong]
        is_event &= ~bad
    events = pa.Table.from_arrays(columns, schema=event_table_schema(stream))
    indices = np.array([index for index, _ in found], np.int64)
    return events.filter(pa.array(is_event)), indices[is_event], sorted(problems)


KEY_VALUE = LineFormat("kv", (".kv",), parse)
