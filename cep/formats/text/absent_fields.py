"""Declared fields that no record has: their columns are NULL everywhere, which could go unnoticed.

A few records are examined only if a column is NULL in all events that were decoded together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from cep.diagnostics.diagnostic import suggestion
from cep.schema.stream import Field, Stream

N_LOOKED_AT = 10
"""Records that are looked at."""

_MOST_BYTES = 1 << 16
_MOST_NAMES = 10

ROOT: tuple[tuple[str, ...], ...] = ((),)
"""The fields are those of the record itself."""


def absent_fields(
    records: Sequence[bytes], events: pa.Table, stream: Stream, roots: Sequence[tuple[str, ...]] = ROOT
) -> dict[str, str]:
    """Return the columns whose field none of these records has, and what they have instead.

    `records`: JSON objects. `events`: their events, before any is refused. Columns that are missing here
    are not checked. `roots`: where in a record an object with the fields may be.
    """
    n, names = events.num_rows, events.column_names
    known = (field for field in stream.fields if field.name in names)
    empty = [field for field in known if events.column(field.name).null_count == n]
    if not n or not empty:
        return {}
    objects = list(_objects(records, roots))
    if not objects:
        return {}
    absent = (field for field in empty if not any(_has(found, field.place) for found in objects))
    return {field.name: _instead(objects, field) for field in absent}


def _objects(records: Sequence[bytes], roots: Sequence[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    for record in records[:N_LOOKED_AT]:
        try:
            found = json.loads(record) if len(record) <= _MOST_BYTES else None
        except (ValueError, RecursionError):
            continue
        for root in roots:
            inside = _at(found, root)
            if isinstance(inside, dict):
                yield inside


def _at(found: Any, place: Sequence[str]) -> Any:
    for name in place:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _has(found: Any, place: Sequence[str]) -> bool:
    """Return whether an object has a field, or a null on the path to it."""
    for name in place:
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
        if found is None:
            return True
    return True


def _instead(objects: Sequence[dict[str, Any]], field: Field) -> str:
    """Return what to declare instead, if there are names similar to the missing one."""
    place = field.place
    depth, inside = 0, list(objects)
    while more := [
        found for found in (_at(o, place[: depth + 1]) for o in objects) if isinstance(found, dict)
    ]:
        depth, inside = depth + 1, more
    names = list(dict.fromkeys(name for found in inside for name in found))
    wanted = place[depth]

    def whole(name: str) -> str:
        return ".".join((*place[:depth], name, *place[depth + 1 :]))

    for name in names:
        if name.casefold() == wanted.casefold():
            return f"the data have `{name}`: upper and lower case count; declare field: {whole(name)}"
        if name.strip().casefold() == wanted.casefold():
            return f'the data have `{name}`, with blanks; declare field: "{whole(name)}"'
    near = suggestion(wanted, names)
    if near is not None:
        return f"did you mean `{near}`? Declare field: {whole(near)}"
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    others = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
    return f"the data have {shown}{others}"
