"""Input that cannot become an event: why, from where, and its text as it came.

One row for each line (or Parquet row) that was refused. The local reader and the Spark sources write the same
columns and the same reasons, so that a search for a reason finds both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from cep.schema import Field, Stream

DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),  # path of the file
        pa.field(
            "position", pa.int64(), nullable=False
        ),  # line of a text file, row of a Parquet file; from 1
        pa.field("raw", pa.string()),  # the line; a Parquet row as JSON
    ]
)
"""Columns of a dead-letter table or file."""

MAX_SHOWN = 60
"""Characters of an offending value that a reason quotes; `raw` has all of it."""

NOT_UTF8 = "not UTF-8 text"
NOT_JSON = "not a JSON object"
MISPLACED_QUOTE = "a quote that does not enclose a whole field on this line"


def wrong_type(field: Field, value: str) -> str:
    """Return the reason for a value that is not of its field's type; `value` as the input has it."""
    shown = value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "..."
    return f"field `{field.name}` is not of type {field.ddl}: {shown}"


def wrong_field_count(given: int, expected: int) -> str:
    """Return the reason for a CSV line with more or fewer fields than the header."""
    return f"{given} fields where the header has {expected}"


def null_event_time(stream: Stream) -> str:
    """Return the reason for an event without a time."""
    return f"event time `{stream.event_time}` is NULL"


def invalid_event_time(stream: Stream) -> str:
    """Return the reason for an event whose time lies outside the stream's bounds."""
    return f"event time `{stream.event_time}` is outside valid_time"


def null_key(keys: Iterable[Sequence[str]]) -> str:
    """Return the reason for an event that has a NULL in the key of every rule."""
    names = dict.fromkeys(name for key in keys for name in key)
    return "key is NULL: " + ", ".join(f"`{name}`" for name in names)


def json_text(value: object) -> str:
    """Return `value` as compact JSON text: how reasons and `raw` show what is not text by itself."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
