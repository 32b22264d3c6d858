"""Numbers in the form of a CSV file -> in the form of all other readers: ``1.234,5`` -> ``1234.5``."""

from __future__ import annotations

import re
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.expression import Type
from cep.schema.masks import null_where, where_false
from cep.schema.stream import CsvLayout, Field


def usual_numbers(texts: pa.Array, field: Field, layout: CsvLayout) -> tuple[pa.Array, Mask | None]:
    """Return the texts of a column with numbers as `column_from_text` reads them.

    Returns
    -------
    pa.Array
        The texts, NULL for a number whose form is not that of the layout.
    bool[n] or None
        The rows with such numbers; None: there are none.
    """
    is_number = field.type in (Type.DOUBLE, Type.BIGINT) or bool(field.unit)
    if not is_number or not layout.number_form:
        return texts, None
    is_whole = field.type is Type.BIGINT
    bad = where_false(pc.match_substring_regex(texts, _pattern(layout.decimal, layout.thousands, is_whole)))
    texts = null_where(bad, texts)
    if layout.thousands:
        texts = pc.replace_substring(texts, layout.thousands, "")
    return pc.replace_substring(texts, layout.decimal, "."), bad


@cache
def _pattern(decimal: str, thousands: str, is_whole: bool) -> str:
    point = re.escape(decimal)
    grouped = f"|[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+" if thousands else ""
    whole = f"(?:[0-9]+{grouped})"
    if is_whole:
        return f"^-?{whole}$"
    digits = f"(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)"
    return f"^(?:-?{digits}(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
