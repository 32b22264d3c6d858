"""Columns found by a decoder of messages -> the events of a stream, and the problems."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.errors import InputError
from cep.formats import dead_letter
from cep.formats.protocol import Decoded, Problem
from cep.schema.arrow_columns import typed_column, word_of
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.arrow_values import json_value
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema


class Base64Records(Sequence[bytes]):
    """Messages in the form in which dead letters quote them: base64, computed on demand."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Base64Records: ...
    def __getitem__(self, at: int | slice) -> bytes | Base64Records:
        if isinstance(at, slice):
            return Base64Records(self._records[at])
        return base64.b64encode(self._records[at])

    def __iter__(self) -> Iterator[bytes]:
        return map(base64.b64encode, self._records)


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of messages, or some of them, for a column: each branch of a union gives separate values.

    - `values`: a value for each message, NULL where it has none.
    - `fits`: whether the column can be read from the type of `values`. If it cannot, each value is a problem.
    - `is_typed`: whether `values` have the types of events (`ARROW_TYPES`).
    - `bad`: by the index of a message its value, if no type can represent it.
    """

    values: pa.Array
    fits: bool = True
    is_typed: bool = False
    bad: Mapping[int, str] = dataclasses.field(default_factory=dict)


def events_of(
    stream: Stream,
    found: Mapping[str, Sequence[FieldValues]],
    refused: Mapping[int, str],
    records: Sequence[bytes],
) -> Decoded:
    """Return the events of messages from the columns that were found in them.

    `found`: by column. A column that does not exist is NULL. `refused`: the messages that are not events, by
    index, with their reasons. Their values in `found` do not count.
    """
    n = len(records)
    problems = dict(refused)
    columns = []
    for field in stream.fields:
        values, bad = _column(field, found.get(field.name, ()), n)
        for row in np.flatnonzero(bad).tolist():
            if row not in problems:
                problems[row] = dead_letter.wrong_type(field, _shown(found[field.name], row))
        columns.append(values)
    events = pa.Table.from_arrays(columns, schema=_schema_with_codes(stream, columns))
    indices: I64 = np.arange(n, dtype=np.int64)
    if problems:
        keep = np.ones(n, bool)
        keep[list(problems)] = False
        events, indices = events.filter(pa.array(keep)), indices[keep]
    told: list[Problem] = sorted(problems.items())
    return Decoded(events, indices, told, Base64Records(records), n)


def _schema_with_codes(stream: Stream, columns: Sequence[pa.Array]) -> pa.Schema:
    schema = event_table_schema(stream)
    return pa.schema([pa.field(f.name, column.type) for f, column in zip(schema, columns, strict=True)])


def _column(field: Field, found: Sequence[FieldValues], n: int) -> tuple[pa.Array, Mask]:
    nothing = np.zeros(n, bool)
    if not found:
        return pa.nulls(n, ARROW_TYPES[field.type]), nothing
    typed = [_typed(field, item, nothing) for item in found]
    values, bad = typed[0]
    for more, more_bad in typed[1:]:
        values, bad = pc.coalesce(values, more), bad | more_bad
    return values, bad


def _typed(field: Field, found: FieldValues, nothing: Mask) -> tuple[pa.Array, Mask]:
    if not found.fits:
        values = pa.nulls(len(nothing), ARROW_TYPES[field.type])
        return values, pc.is_valid(found.values).to_numpy(zero_copy_only=False)
    values, bad = (found.values, nothing) if found.is_typed else typed_column(found.values, field)
    if found.bad:
        bad = bad.copy()
        bad[list(found.bad)] = True
    return values, bad


def _shown(found: Sequence[FieldValues], row: int) -> str:
    told = [item.bad[row] for item in found if row in item.bad]
    told += [json_value(item.values[row]) for item in found if item.values[row].is_valid]
    return told[0] if told else "null"


def misfit(stream: Stream, field: Field, given: str, what: str) -> InputError:
    """Return the error for a field of a schema that does not have the type of its column."""
    return InputError(
        "E0891",
        f"field `{field.column}` of {what} is {given}, stream `{stream.name}` declares {field.declared}",
        f"the field must be {word_of(field)} that fits; change the declaration or the schema",
    )


def missing(stream: Stream, fields: Sequence[Field], what: str, known: Sequence[str]) -> InputError:
    """Return the error for columns of a stream that a schema lacks."""
    names = ", ".join(f"`{field.column}`" for field in fields)
    return InputError(
        "E0891",
        f"{what} has no {names}, which stream `{stream.name}` declares",
        f"its fields are {', '.join(known[:20])}; say `path` where a field has another name",
    )
