r"""Values written as text: the accepted forms, and whole columns of them turned into numbers and times.

=========  ==========================================================================================
type       accepted form
=========  ==========================================================================================
integers   ``-?digits``, inside the range of the declared type
doubles    ``-?digits[.digits][e[+-]digits]`` (CSV also ``.5`` and ``5.``), ``NaN``, ``Infinity``,
           ``-Infinity``; an integer is a double
boolean    ``true``, ``false`` (CSV: in any case)
timestamp  ISO 8601: ``2024-05-01``, ``2024-05-01T10:00``, ``2024-05-01 10:00:00.123456``, each with a time
           also with ``Z``, ``+02``, ``+0200`` or ``+02:00``. Without a zone: UTC. Digits past the
           microsecond are cut off
date       ``2024-05-01``
=========  ==========================================================================================

The patterns are written in the part of the syntax that Python, RE2 (Arrow) and Java (Spark) share.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.expression import Type
from cep.program import ARROW_TYPES
from cep.schema import Field, Stream

INTEGER_PATTERN = r"^-?[0-9]+$"
DOUBLE_PATTERN = r"^(-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
BOOLEAN_PATTERN = r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"
ZONE_PATTERN = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
TIMESTAMP_PATTERN = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)

DATE_LENGTH = 10
"""Characters of a date."""

INTEGER_BITS: dict[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""DDL integer types and their widths."""

Mask = npt.NDArray[np.bool_]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:(Z)|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)


def event_table_schema(stream: Stream) -> pa.Schema:
    """Return the schema of typed events of `stream`: fields by name, timestamps as int64 us."""
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.type]) for field in stream.fields])


def integer_range(ddl: str) -> tuple[int, int]:
    """Return the smallest and the largest value of a DDL integer type."""
    half = 1 << (INTEGER_BITS[ddl] - 1)
    return -half, half - 1


def timestamp_us(text: str) -> int | None:
    """Return the microseconds since 1970 of one ISO 8601 time, or None if `text` is not one."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None or not text.isascii():
        return None
    year, month, day, hour, minute, second, fraction, _z, sign, zone_hours, zone_minutes = found.groups()
    offset = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    try:
        time = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=timezone(-offset if sign == "-" else offset),
        )
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(microseconds=1)


def column_from_text(texts: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return the typed column of `texts` and which of its values are not of the field's type.

    NULL stays NULL. A value that is not of the type is NULL in the column.
    """
    match field.type:
        case Type.STRING:
            return texts, np.zeros(len(texts), dtype=bool)
        case Type.TIMESTAMP if field.ddl == "date":
            no_date = _mask(pc.not_equal(pc.utf8_length(texts), DATE_LENGTH))
            values, bad = _timestamps(_null_where_bad(texts, no_date)[0])
            return values, bad | no_date
        case Type.TIMESTAMP:
            return _timestamps(texts)
        case Type.BOOLEAN:
            well_formed = pc.match_substring_regex(texts, BOOLEAN_PATTERN)
            values = pc.equal(pc.utf8_lower(texts), "true")
            return _null_where_bad(values, _is_false(well_formed))
        case Type.DOUBLE:
            bad = _is_false(pc.match_substring_regex(texts, DOUBLE_PATTERN))
            values = _cast_text(_null_where_bad(texts, bad)[0], pa.float64())
            return fit_column(values, field)[0], bad
        case _:
            bad = _is_false(pc.match_substring_regex(texts, INTEGER_PATTERN))
            # 19 digits may pass 64 bits: Arrow refuses the whole column, so those are looked at one by one.
            low, high = integer_range("bigint")
            for at in np.flatnonzero(_mask(pc.greater(pc.utf8_length(texts), 18)) & ~bad):
                bad[at] = not low <= int(texts[int(at)].as_py()) <= high
            values, out_of_range = fit_column(_cast_text(_null_where_bad(texts, bad)[0], pa.int64()), field)
            return values, bad | out_of_range


def fit_column(values: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return `values` as the declared type holds them, and which of them it cannot hold.

    A `float` has the nearest 32-bit value (as Spark reads it); small integers have a range.
    """
    if field.ddl == "float":
        return pc.cast(pc.cast(values, pa.float32(), safe=False), pa.float64()), np.zeros(
            len(values), dtype=bool
        )
    if INTEGER_BITS.get(field.ddl, 64) == 64:
        return values, np.zeros(len(values), dtype=bool)
    low, high = integer_range(field.ddl)
    outside = _mask(pc.or_(pc.less(values, low), pc.greater(values, high)))
    return _null_where_bad(values, outside)


def _timestamps(texts: pa.Array) -> tuple[pa.Array, Mask]:
    bad = _is_false(pc.match_substring_regex(texts, TIMESTAMP_PATTERN))
    texts = _null_where_bad(texts, bad)[0]
    if _mask(pc.match_substring_regex(texts, r"\.[0-9]{7}")).any():
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = _mask(
        pc.and_(
            # A zone pattern must not mistake the last part of a date for an offset.
            pc.greater(pc.utf8_length(texts), DATE_LENGTH),
            pc.match_substring_regex(texts, ZONE_PATTERN),
        )
    )
    try:
        values = _times_with_and_without_zone(texts, zoned)
    except pa.ArrowInvalid:
        # Right in form but no such day or hour: Arrow does not say which value, so each is read by itself.
        parsed = [None if text is None else timestamp_us(text) for text in texts.to_pylist()]
        values = pa.array(parsed, pa.int64())
        bad |= _mask(pc.and_(pc.is_null(values), pc.is_valid(texts)))
    return values, bad


def _times_with_and_without_zone(texts: pa.Array, zoned: Mask) -> pa.Array:
    local = pa.timestamp("us")
    universal = pa.timestamp("us", tz="UTC")
    if not zoned.any():
        return pc.cast(pc.cast(texts, local), pa.int64())
    if (zoned | _mask(pc.is_null(texts))).all():
        return pc.cast(pc.cast(texts, universal), pa.int64())
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.cast(pc.cast(pc.if_else(pa.array(zoned), texts, nothing), universal), pa.int64())
    without = pc.cast(pc.cast(pc.if_else(pa.array(zoned), nothing, texts), local), pa.int64())
    return pc.coalesce(with_zone, without)


def _cast_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.float64():
        # Arrow writes infinity as `inf` only.
        texts = pc.replace_substring(texts, "Infinity", "inf")
    return pc.cast(texts, kind)


def _null_where_bad(values: pa.Array, bad: Mask) -> tuple[pa.Array, Mask]:
    if bad.any():
        values = pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)
    return values, bad


def _mask(flags: Any) -> Mask:
    """Return a numpy mask: TRUE, with NULL as False."""
    return np.asarray(pc.fill_null(flags, fill_value=False).to_numpy(zero_copy_only=False), dtype=bool)


def _is_false(flags: Any) -> Mask:
    """Return a numpy mask: FALSE, with NULL as False."""
    return _mask(pc.invert(flags))
