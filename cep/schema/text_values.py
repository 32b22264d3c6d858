r"""Values written as text: the accepted forms, and whole columns of them turned into numbers and times.

=========  ==========================================================================================
type       accepted form
=========  ==========================================================================================
integers   ``-?digits``, inside the range of the declared type
doubles    ``-?digits[.digits][e[+-]digits]`` (CSV also ``.5`` and ``5.``), ``NaN``, ``Infinity``,
           ``-Infinity``; an integer is a double
boolean    ``true``, ``false`` (CSV: in any case)
timestamp  ISO 8601, or as the column is declared, see `cep.schema.time_values`
date       ``2024-05-01``, or as the column is declared
=========  ==========================================================================================

The patterns use only syntax that Python, RE2 (Arrow) and Java (Spark) share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.expression import Type
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.column_types import INTEGER_BITS
from cep.schema.decimals import largest_double
from cep.schema.masks import null_where, where_false, where_true
from cep.schema.stream import Field, Stream
from cep.schema.time_values import times_of_numbers, times_of_texts

NUMBER_WORDS: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Text -> the number that it stands for in a column of numbers. JSON does not have these numbers, and other
systems refuse a bare ``NaN``: so all outputs write the texts, and all readers read them."""

INTEGER_PATTERN = r"^-?[0-9]+$"
DOUBLE_PATTERN = r"^(-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
BOOLEAN_PATTERN = r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"


def event_table_schema(stream: Stream) -> pa.Schema:
    """Return the schema of typed events of `stream`. A timestamp is an int64 number of microseconds."""
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.type]) for field in stream.fields])


def integer_range(ddl: str) -> tuple[int, int]:
    """Return the smallest and the largest value of a DDL integer type."""
    half = 1 << (INTEGER_BITS[ddl] - 1)
    return -half, half - 1


def column_from_text(texts: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return the typed column of `texts`, and a mask of the values that are not of the field's type.

    NULL stays NULL. A value that is not of the type is NULL in the column.
    """
    match field.type:
        case Type.STRING | Type.OPAQUE:
            return texts, np.zeros(len(texts), dtype=bool)
        case Type.TIMESTAMP if field.unit:
            return _counts(texts, field.unit)
        case Type.TIMESTAMP:
            return times_of_texts(texts, field)
        case Type.BOOLEAN:
            bad = where_false(pc.match_substring_regex(texts, BOOLEAN_PATTERN))
            return null_where(bad, pc.equal(pc.utf8_lower(texts), "true")), bad
        case Type.DOUBLE:
            values, bad = _doubles(texts)
            values, out_of_range = fit_column(values, field)
            return values, bad | out_of_range
        case _:
            values, bad = _integers(texts)
            values, out_of_range = fit_column(values, field)
            return values, bad | out_of_range


def _integers(texts: pa.Array) -> tuple[pa.Array, Mask]:
    bad = where_false(pc.match_substring_regex(texts, INTEGER_PATTERN))
    # A number of 19 digits may not fit into 64 bits. Arrow would refuse the whole column because of one such
    # number, so long numbers are checked one by one.
    low, high = integer_range("bigint")
    for at in np.flatnonzero(where_true(pc.greater(pc.utf8_length(texts), 18)) & ~bad).tolist():
        text = texts[at].as_py()
        digits = text.lstrip("-").lstrip("0") or "0"
        bad[at] = len(digits) > 19 or not low <= int(digits) * (-1 if text[0] == "-" else 1) <= high
    return pc.cast(null_where(bad, texts), pa.int64()), bad


def _doubles(texts: pa.Array) -> tuple[pa.Array, Mask]:
    bad = where_false(pc.match_substring_regex(texts, DOUBLE_PATTERN))
    # Arrow reads infinity only as `inf`.
    texts = pc.replace_substring(null_where(bad, texts), "Infinity", "inf")
    return pc.cast(texts, pa.float64()), bad


def _counts(texts: pa.Array, unit: str) -> tuple[pa.Array, Mask]:
    """Return the times that count `unit` since 1970, and a mask of the strings that are not times."""
    is_whole = where_true(pc.match_substring_regex(texts, INTEGER_PATTERN))
    wholes, not_whole = _integers(null_where(~is_whole, texts))
    times, bad = times_of_numbers(wholes, unit)
    bad |= not_whole
    if not (is_whole | where_true(pc.is_null(texts))).all():
        numbers, no_number = _doubles(null_where(is_whole, texts))
        others, no_time = times_of_numbers(numbers, unit)
        times, bad = pc.coalesce(times, others), bad | no_number | no_time
    return times, bad


def fit_column(values: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    """Return `values` in the form of the declared type, and a mask of the values that it cannot hold.

    A `float` is rounded to the nearest 32-bit value, as in Spark. A small integer type and a decimal have a
    range.
    """
    nothing = np.zeros(len(values), dtype=bool)
    if field.is_decimal:
        return _within(values, pc.less_equal(pc.abs(values), largest_double(field.digits)))
    if field.ddl == "float":
        return pc.cast(pc.cast(values, pa.float32(), safe=False), pa.float64()), nothing
    if INTEGER_BITS.get(field.ddl, 64) == 64:
        return values, nothing
    low, high = integer_range(field.ddl)
    return _within(values, pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)))


def _within(values: pa.Array, is_within: pa.Array) -> tuple[pa.Array, Mask]:
    outside = where_false(is_within)
    return (null_where(outside, values) if outside.any() else values), outside


# ---------------------------------------------------------------- numbers that JSON does not have


def word_of(number: float) -> str:
    """Return the text of a number that is not finite."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def json_text(value: object, **options: Any) -> str:
    """Return a value as JSON, like `json.dumps`, but with strings in place of numbers that JSON lacks."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_with_words(value), ensure_ascii=False, **options)


def _with_words(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else word_of(value)
        case dict():
            return {name: _with_words(item) for name, item in value.items()}
        case list() | tuple():
            return [_with_words(item) for item in value]
        case _:
            return value


def texts_of_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of floats as strings with `NUMBER_WORDS`; unchanged if all are finite."""
    is_finite = pc.is_finite(column)
    if pc.all(is_finite).as_py() is not False:
        return column
    texts = pc.cast(column, pa.string())
    above = pc.if_else(pc.greater(column, 0.0), "Infinity", "-Infinity")
    words = pc.if_else(pc.is_nan(column), "NaN", above)
    return pc.if_else(is_finite, texts, words)
