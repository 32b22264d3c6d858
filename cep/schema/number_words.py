"""Numbers that JSON does not have: their texts, which all outputs write and all readers read.

A bare ``NaN`` is no JSON: most other systems refuse the whole line. The text ``"NaN"`` is JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NUMBER_WORDS: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Text -> the number that it stands for in a column of numbers."""


def word_of(number: float) -> str:
    """Return the text of a number that is not finite."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def json_text(value: object, **options: Any) -> str:
    """Return a value as JSON, as `json.dumps`, with texts in place of numbers that JSON does not have."""
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
    """Return a column of floating-point numbers as texts with `NUMBER_WORDS`; as it is if all are finite."""
    is_finite = pc.is_finite(column)
    if pc.all(is_finite).as_py() is not False:
        return column
    texts = pc.cast(column, pa.string())
    above = pc.if_else(pc.greater(column, 0.0), "Infinity", "-Infinity")
    words = pc.if_else(pc.is_nan(column), "NaN", above)
    return pc.if_else(is_finite, texts, words)
