"""Columns of Arrow types -> columns of events: which ones fit a declared type, and their values.

For all formats with their own types: Parquet, Avro, Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.expression import Type
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.arrow_values import opaque_column, valid_texts
from cep.schema.column_types import INTEGER_BITS, ColumnType
from cep.schema.stream import Field
from cep.schema.text_values import column_from_text, fit_column
from cep.schema.time_values import times_of_numbers, times_of_timestamps

_CODED = pa.dictionary(pa.int32(), pa.string())
"""What Arrow reads as a dictionary, unless the file says otherwise."""

_DAY_SECONDS = 86_400


def kind_at(schema: pa.Schema | pa.StructType, place: Sequence[str]) -> pa.DataType | None:
    """Return the type of a column, or of a field inside structs; None: there is none, or there are two."""
    inside: Sequence[pa.Field] = list(schema)
    kind = None
    for part in place:
        found = [item.type for item in inside if item.name == part]
        if len(found) != 1:
            return None
        kind = found[0]
        inside = list(kind) if pa.types.is_struct(kind) else []
    return kind


def element_kind(kind: pa.DataType | None, element: Sequence[str | int]) -> pa.DataType | None:
    """Return the type of a value inside an array of type `kind`; None: there is none."""
    for part in element:
        if kind is None:
            return None
        if isinstance(part, str):
            kind = kind_at(kind, (part,)) if pa.types.is_struct(kind) else None
        else:
            kind = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    return kind


def element_of(values: pa.Array, element: Sequence[str | int]) -> pa.Array:
    """Return a value inside each array of a column, NULL where there is none."""
    for part in element:
        if isinstance(part, str):
            values = pc.struct_field(values, [part])
            continue
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        has_it = lengths > part
        known = values.filter(pa.array(has_it))
        at = np.cumsum(has_it) - 1
        values = pc.list_element(known, part).take(pa.array(at, mask=~has_it))
    return values


def python_element(value: Any, element: Sequence[str | int]) -> Any:
    """Return a value inside a Python list, None where there is none."""
    for part in element:
        if value is None:
            return None
        value = value.get(part) if isinstance(part, str) else value[part] if part < len(value) else None
    return value


def without_views(kind: pa.DataType) -> pa.DataType:
    """Return a type with strings and bytes in their usual form: Arrow can do little with their views."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_field_without_views(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(*map(_field_without_views, (kind.key_field, kind.item_field)))
    if pa.types.is_struct(kind):
        return pa.struct(list(map(_field_without_views, kind)))
    return kind


def _field_without_views(field: pa.Field) -> pa.Field:
    return field.with_type(without_views(field.type))


def fits(kind: pa.DataType, field: Field) -> bool:
    """Return whether a column of an Arrow type can be read as a field."""
    kind = without_views(kind)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return True
    match field.type:
        case Type.OPAQUE:
            return _has_type(kind, field.column_type)
        case Type.BOOLEAN:
            return bool(pa.types.is_boolean(kind))
        case Type.BIGINT:
            return bool(pa.types.is_integer(kind) and _integer_width(kind) <= INTEGER_BITS[field.ddl])
        case Type.DOUBLE if field.is_decimal:
            return bool(pa.types.is_decimal(kind))
        case Type.DOUBLE:
            # An integer of 32 bits is a double without loss; Spark widens it, too.
            return bool(
                pa.types.is_floating(kind)
                or pa.types.is_decimal(kind)
                or (pa.types.is_integer(kind) and _integer_width(kind) <= 32)
            )
        case Type.STRING:
            return _is_text(kind)
        case _ if field.ddl == "date":
            return bool(pa.types.is_date(kind) or (field.format and _is_text(kind)))
        case _:
            if field.unit and (pa.types.is_float64(kind) or pa.types.is_integer(kind)):
                return not pa.types.is_integer(kind) or _integer_width(kind) <= 64
            return bool(pa.types.is_timestamp(kind) or (field.format and _is_text(kind)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _has_type(kind: pa.DataType, declared: ColumnType) -> bool:
    """Return whether values of an Arrow type are of an opaque type, or of a part of one."""
    inside: list[pa.DataType] = []
    match declared.name:
        case "binary":
            return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        case "array":
            inside = [kind.value_type] if pa.types.is_list(kind) else []
        case "map":
            inside = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
        case "struct":
            known = [item.name for item in kind] if pa.types.is_struct(kind) else []
            inside = [kind.field(name).type for name in declared.names if known.count(name) == 1]
        case _:
            return fits(kind, Field("", str(declared)))
    return len(inside) == len(declared.parts) and all(map(_has_type, inside, declared.parts))


_WORDS: Mapping[Type, str] = {
    Type.BOOLEAN: "a boolean",
    Type.BIGINT: "an integer",
    Type.DOUBLE: "a floating-point number",
    Type.STRING: "a string",
    Type.TIMESTAMP: "a timestamp",
}


def word_of(field: Field) -> str:
    """Return what a column must be to be read as a field: ``an integer``."""
    if field.type is Type.OPAQUE:
        return field.ddl
    if field.is_decimal:
        return "a decimal"
    word = "a date" if field.ddl == "date" else _WORDS[field.type]
    if field.unit:
        return f"an integer, a double or {word}"
    return f"a string or {word}" if field.format else word


def _integer_width(kind: pa.DataType) -> int:
    """Return how many bits a signed integer needs to hold every value of `kind`."""
    return int(kind.bit_width) + int(pa.types.is_unsigned_integer(kind))


def typed_column(values: pa.Array, field: Field, *, is_coded: bool = False) -> tuple[pa.Array, Mask]:
    """Return a column in the type of its field, and a mask of the values that this type cannot hold.

    `is_coded`: strings that repeat may stay Arrow dictionaries.
    """
    nothing = np.zeros(len(values), dtype=bool)
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), ARROW_TYPES[field.type]), nothing
    if field.type is Type.OPAQUE:
        return opaque_column(values, field.column_type)
    if pa.types.is_dictionary(kind):
        if is_coded and kind == _CODED and not valid_texts(values.dictionary)[1].any():
            return values, nothing
        values, kind = values.dictionary_decode(), kind.value_type
    if _is_text(kind):
        texts, bad = valid_texts(values.cast(pa.string()))
        if field.type is Type.STRING:
            return texts, bad
        typed, no_time = column_from_text(texts, field)
        return typed, bad | no_time
    if field.type is Type.TIMESTAMP:
        return _times(values, field)
    if pa.types.is_decimal(kind):  # by its digits: the nearest DOUBLE, as Spark has it
        values = pc.cast(values, pa.string())
    return fit_column(pc.cast(values, ARROW_TYPES[field.type]), field)


def _times(values: pa.Array, field: Field) -> tuple[pa.Array, Mask]:
    kind = values.type
    if pa.types.is_date32(kind):
        return times_of_numbers(
            pc.multiply(values.view(pa.int32()).cast(pa.int64()), _DAY_SECONDS), "seconds"
        )
    if pa.types.is_date64(kind):
        return times_of_numbers(values.view(pa.int64()), "milliseconds")
    if not pa.types.is_timestamp(kind):
        wide = pa.float64() if pa.types.is_floating(kind) else pa.int64()
        return times_of_numbers(values.cast(wide), field.unit)
    return times_of_timestamps(values, field.zone)
