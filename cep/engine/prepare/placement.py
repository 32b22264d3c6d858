"""From the events of one stream to the partitions that they belong to, for programs with several roles.

An event of `connections` in one partition by ``dst_host`` and in another by ``src_host`` becomes two rows; if
both columns are equal, it is one row in both roles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.engine.prepare.columns import whole
from cep.program.program import STREAM_COLUMN, Program, role_column
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Role, Stream


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of events in partitions: `rows[i]` is the event of row i. The events keep their order."""

    table: pa.Table
    rows: npt.NDArray[np.int64]


def place_events(program: Program, table: pa.Table, stream: Stream) -> Placed:
    """Return the events of `stream`, once for every partition for which they have a key.

    The columns are those of the stream, named as in the program, then the key, the roles of an event in its
    partition, and with several streams the number of the stream.
    """
    table = table.rename_columns([program.column_of(stream, name) for name in table.column_names])
    roles = program.roles_of(stream)
    keys = {number: _key(program, table, stream, role) for number, role in roles.items()}
    known = {number: _all([pc.is_valid(part) for part in key]) for number, key in keys.items()}
    pieces = []
    taken: dict[int, Mask] = {}
    for number, key in keys.items():
        same = {
            other: _all([pc.equal(a, b) for a, b in zip(key, keys[other], strict=True)])
            for other in keys
            if other != number
        }
        # An event that has the same key in an earlier role already has its row.
        is_new = known[number].copy()
        for earlier in taken:
            is_new &= ~same[earlier]
        taken[number] = is_new
        has_role = {other: same.get(other, known[number])[is_new] for other in keys}
        pieces.append((np.flatnonzero(is_new), number, has_role))
    rows = np.concatenate([piece[0] for piece in pieces]) if pieces else np.zeros(0, np.int64)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    result = table.take(pa.array(rows))
    for part, name in enumerate(program.key_columns):
        columns = [keys[number][part].take(pa.array(placed)) for placed, number, _ in pieces]
        kind = ARROW_TYPES[program.type_of(name)]
        values = pa.concat_arrays(columns) if columns else pa.nulls(0, kind)
        result = result.append_column(name, values.cast(kind).take(pa.array(order)))
    for role in range(len(program.roles)):
        has = [has_role[role] if role in has_role else np.zeros(len(at), bool) for at, _, has_role in pieces]
        flags = np.concatenate(has)[order] if has else np.zeros(0, bool)
        result = result.append_column(role_column(role), pa.array(flags))
    if len(program.streams) > 1:
        index = program.streams.index(stream)
        result = result.append_column(STREAM_COLUMN, pa.array(np.full(len(rows), index, np.int64)))
    return Placed(result, rows)


def _key(program: Program, table: pa.Table, stream: Stream, role: Role) -> list[pa.Array]:
    columns = [table.column(program.column_of(stream, name)) for name in role.key]
    return [whole(column) for column in columns]


def _all(conditions: list[pa.Array]) -> Mask:
    """Return where all conditions are TRUE. NULL does not count as TRUE."""
    columns = [np.asarray(pc.fill_null(condition, False)) for condition in conditions]
    return np.asarray(np.logical_and.reduce(columns))
