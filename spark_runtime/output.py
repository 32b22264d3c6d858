"""What the operator gives: rows of several kinds, told apart by the column `_kind`; matches are packed.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import pyarrow as pa

from spark_runtime.layout import TEXT

KIND = "_kind"
"""Column of the operator's output: one of the four below."""

MATCH = "match"  # `_matches`: some matches
LATE = "late"  # `_text`: the late event as JSON (`late_schema`)
DEAD = "dead"  # `_text`: the dead letter as JSON (`cep.dead_letter.DEAD_LETTER_SCHEMA`)
COUNTS = "counts"  # `_text`: what one call added to the counters, as JSON

MATCHES_COLUMN = "_matches"
"""Column of the operator's output: matches (`carried_schema`) as an Arrow record batch without its schema."""

OUTPUT_SCHEMA = pa.schema([(KIND, pa.string()), (TEXT, pa.string()), (MATCHES_COLUMN, pa.binary())])
"""Columns that the operator writes."""

READ = "read"
"""Count of the lines of text that are events or malformed."""

ROWS = "rows"
"""Count of the rows that the matches are."""

MALFORMED = "malformed: "
MATCHES = "matches: "
TIMEOUTS = "timeouts: "
SUPPRESSED = "suppressed: "
DROPPED_RUNS = "dropped runs: "
"""Beginnings of the names of counts; a reason or a rule's name follows."""

MAX_MATCHES = 50_000
"""Matches in a row of output."""


def late_schema(n_streams: int) -> pa.Schema:
    """Return the columns of late events: time, key of the rules they were late for, and the event as JSON."""
    stream = [pa.field("stream", pa.string())] if n_streams > 1 else []
    rest = [
        pa.field("event_time", pa.timestamp("us", "UTC")),
        pa.field("key", pa.string()),
        pa.field("event", pa.string()),
    ]
    return pa.schema([*stream, *rest])


def carried_schema(match_schema: pa.Schema) -> pa.Schema:
    """Return the columns of matches on their way from the operator, each in its `carried_type`."""
    return pa.schema([pa.field(field.name, carried_type(field.type)) for field in match_schema])


def carried_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of `kind` enter the JVM: int64 for times, days for dates.

    Inside lists and events more goes as text (`is_carried_as_text`).
    """
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_carried_inside(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _carried_inside(field.type)) for field in kind])
    return kind


def is_carried_as_text(kind: pa.DataType) -> bool:
    """Say whether values of `kind` inside lists and events enter the JVM as text.

    Spark would have to convert each time, and the code it generates for that reads numbers of an Arrow list
    without asking for NULL.
    """
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _carried_inside(kind: pa.DataType) -> pa.DataType:
    return pa.string() if is_carried_as_text(kind) else carried_type(kind)


def carried(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of matches in its `carried_type`."""
    kind = carried_type(column.type)
    if not pa.types.is_struct(kind):
        return column.cast(kind)
    chunks = [
        pa.StructArray.from_arrays(
            [values.cast(field.type) for values, field in zip(chunk.flatten(), kind, strict=True)],
            fields=list(kind),
            mask=chunk.is_null(),
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, kind)
