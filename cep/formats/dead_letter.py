"""Input that cannot become an event: the reason, its origin, and its original text.

One row for each line (or Parquet row) that was refused. The local reader and the Spark sources write the same
columns and the same reasons, so a search for a reason finds both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from cep.diagnostics.safe_text import in_short
from cep.expression import Type
from cep.schema.stream import UNITS, Field, Stream

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

REFUSED_FILE = "the file is refused from here on"

MAX_NESTING = 100
"""Objects and arrays of a JSON line inside each other."""

_COUNT = re.compile(r"-?([0-9]{9,20})(?:\.[0-9]*)?")

_NUMBERS = tuple(
    (re.compile(rf"-?(?:{pattern})"), form)
    for pattern, form in (
        (r"[0-9]{1,3}(,[0-9]{3})+\.[0-9]*|[0-9]{1,3}(,[0-9]{3}){2,}", '{thousands: ","}'),
        (r"[0-9]{1,3}(\.[0-9]{3})+,[0-9]*|[0-9]{1,3}(\.[0-9]{3}){2,}", '{decimal: ",", thousands: "."}'),
        (r"[0-9]{1,3}( [0-9]{3})+,[0-9]*", '{decimal: ",", thousands: " "}'),
        (r"[0-9]{1,3},[0-9]{3}", '{decimal: ","}, or {thousands: ","}'),
        (r"[0-9]*,[0-9]+", '{decimal: ","}'),
    )
)
"""Numbers as CSV files may write them, and the setting that says so."""

NOT_UTF8 = "not UTF-8 text"
NOT_JSON = "not a JSON object"
TOO_DEEP = f"nested more than {MAX_NESTING} levels deep"
MISPLACED_QUOTE = "a quote that does not enclose a whole field"
CARRIAGE_RETURN = "a carriage return outside quotes"
LINE_FEED = "a line feed outside quotes"


def not_encoded(encoding: str) -> str:
    """Return the reason for a line with bytes that are not characters of its encoding."""
    return NOT_UTF8 if encoding == "utf-8" else f"not {encoding} text"


def wrong_type(field: Field, value: str, form: str = "") -> str:
    """Return the reason for a value that is not of its field's type; `value` as in the input.

    `form`: how numbers are written, if the stream declares it (`CsvLayout.number_form`).
    """
    advice = "" if form else _advice(field, value)
    return f"{not_of_type(field, form)}: {in_short(value)}{advice}"


def not_of_type(field: Field, form: str = "") -> str:
    """Return the reason for a value that is not of its field's type, without the value."""
    return f"field `{field.name}` is not of type {field.declared}{form}"


def _advice(field: Field, value: str) -> str:
    """Return what to declare for a number in another form, or for a point in time given as a number.

    Counts have nine digits or more: from the year 1973 on.
    """
    if field.type in (Type.DOUBLE, Type.BIGINT):
        setting = next((form for pattern, form in _NUMBERS if pattern.fullmatch(value)), "")
        return setting and f"; for such numbers declare csv: {setting}"
    found = _COUNT.fullmatch(value)
    if found is None or field.declared != "timestamp":
        return ""
    unit = list(UNITS)[(len(found[1]) - 9) // 3]
    return f"; for {unit} since 1970 declare {{type: timestamp, unit: {unit}}}"


def wrong_field_count(given: int, expected: int, *, has_header: bool = True) -> str:
    """Return the reason for a CSV line with more or fewer fields than the file has columns."""
    fields = "1 field" if given == 1 else f"{given} fields"
    return f"{fields} where {'the header has' if has_header else 'there are columns for'} {expected}"


def null_event_time(stream: Stream) -> str:
    """Return the reason for an event without a time."""
    if stream.device_clock is not None:
        columns = ", ".join(f"`{name}`" for name in stream.device_clock.columns)
        return f"event time `{stream.event_time}` cannot be estimated, a NULL in {columns}"
    return f"event time `{stream.event_time}` is NULL"


def invalid_event_time(stream: Stream) -> str:
    """Return the reason for an event whose time is outside the stream's bounds."""
    return f"event time `{stream.event_time}` is outside valid_time"


def beyond_max_ahead(stream: Stream) -> str:
    """Return the reason for an event whose time is too far from the times around it."""
    return f"event time `{stream.event_time}` is beyond max_ahead"


def beyond_max_behind(stream: Stream) -> str:
    """Return the reason for an event that happened too long before its receipt."""
    return f"event time `{stream.event_time}` is beyond max_behind"


def refused_file(why: str) -> str:
    """Return the reason for the dead letter that represents the rest of a file, from its position on."""
    return f"{REFUSED_FILE}: {why}"


def null_key(keys: Iterable[Sequence[str]]) -> str:
    """Return the reason for an event that has a NULL in the key of every rule."""
    names = dict.fromkeys(name for key in keys for name in key)
    return "key is NULL: " + ", ".join(f"`{name}`" for name in names)


def json_text(value: object) -> str:
    """Return `value` as compact JSON text: how reasons and `raw` show a value that is not text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def printable(name: str) -> str:
    """Return the name of a file with replacements for bytes that are not text."""
    return name.encode(errors="replace").decode()
