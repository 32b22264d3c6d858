"""Functions of strings over columns: by Arrow where it agrees with Spark, else once for each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.expression import Type
from cep.schema.stream import Field
from cep.schema.text_values import column_from_text

_INT_MAX = 2**31 - 1

Operand = tuple[Any, Mask, Type]
"""Values (strings: an Arrow array), which are known, and their type."""


def apply(function: str, kind: Type, operands: tuple[Operand, ...]) -> tuple[Any, Mask]:
    """Return the values of a function for every row, and which are known."""
    known = np.logical_and.reduce([operand[1] for operand in operands])
    if function in _BY_ARROW:
        values = _BY_ARROW[function](*(operand[0] for operand in operands))
    elif function in ("parse_bigint", "parse_double"):
        ddl = "bigint" if function == "parse_bigint" else "double"
        values = column_from_text(operands[0][0], Field("", ddl))[0]
    elif function == "text":
        values = pa.array(operands[0][0], mask=~known).cast(pa.string())
    else:
        return _by_distinct(_BY_VALUE[function], kind, operands, known), known
    if kind is Type.STRING:
        return values, known
    known = known & np.asarray(pc.is_valid(values))
    return np.asarray(pc.fill_null(values, pa.scalar(0).cast(values.type))), known


def matches_pattern(texts: Any, pattern: str) -> Any:
    """Return, for each string, whether a regular expression is found in it. Spark uses this one, too."""
    return pc.match_substring_regex(texts, pattern)


def _by_distinct(compute: Callable[..., Any], kind: Type, operands: tuple[Operand, ...], known: Mask) -> Any:
    """Compute once for each combination of values: most operands except the first are constants."""
    dictionaries: list[list[Any]] = []
    codes: list[npt.NDArray[np.int64]] = []
    rows = np.zeros(len(known), np.int64)
    for values, _, operand_kind in operands:
        if operand_kind is Type.STRING:
            encoded = values.dictionary_encode()
            dictionary = encoded.dictionary.to_pylist()
            code = np.asarray(pc.fill_null(encoded.indices, 0)).astype(np.int64)
        else:
            distinct, code = np.unique(values, return_inverse=True)
            dictionary = distinct.tolist()
        dictionaries.append(dictionary)
        codes.append(code)
        _, rows = np.unique(rows * max(len(dictionary), 1) + code, return_inverse=True)
    computed: list[Any] = []
    if all(dictionaries) and len(known):
        _, first = np.unique(rows, return_index=True)
        computed = [
            compute(*(dictionary[code[row]] for dictionary, code in zip(dictionaries, codes, strict=True)))
            for row in first.tolist()
        ]
    if kind is Type.STRING:
        if not computed:
            return pa.nulls(len(known), pa.string())
        return pa.array(computed, pa.string()).take(pa.array(rows, mask=~known))
    dtype = np.bool_ if kind is Type.BOOLEAN else np.int64
    return np.array(computed, dtype)[rows] if computed else np.zeros(len(known), dtype)


def _substring(text: str, position: int, length: int) -> str:
    """Substring as in Spark: positions count from 1, 0 is 1, negative ones count from the end.

    Both numbers are cut to 32 bits.
    """
    position, length = (max(-_INT_MAX, min(value, _INT_MAX)) for value in (position, length))
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _split_part(text: str, delimiter: str, number: int) -> str:
    parts = text.split(delimiter) if delimiter else [text]
    if not 1 <= abs(number) <= len(parts):
        return ""
    return parts[number - 1 if number > 0 else number]


_BY_ARROW: Mapping[str, Callable[..., Any]] = {
    "length": lambda text: pc.utf8_length(text).cast(pa.int64()),
    "trim": lambda text: pc.utf8_trim(text, " "),
    "ltrim": lambda text: pc.utf8_ltrim(text, " "),
    "rtrim": lambda text: pc.utf8_rtrim(text, " "),
    "reverse": pc.utf8_reverse,
    "concat": lambda *texts: pc.binary_join_element_wise(*texts, ""),
}

# Python maps case fully, as Unicode defines and Spark does; Arrow maps one character to one.
_BY_VALUE: Mapping[str, Callable[..., Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "contains": lambda text, other: other in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "substring": _substring,
    "right": lambda text, length: text[-length:] if length > 0 else "",
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "instr": lambda text, other: text.find(other) + 1,
    "split_part": _split_part,
}

TEXT_FUNCTIONS = frozenset((*_BY_ARROW, *_BY_VALUE, "parse_bigint", "parse_double", "text"))
"""The functions of `cep.expression.FUNCTIONS` that this module computes."""
