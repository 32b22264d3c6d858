"""Columns as 64-bit cells, which kernels read; strings become numbers of a pool."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.prepare.columns import lent, whole
from cep.engine.prepare.predicates import Vector, all_rows, from_arrow, is_all
from cep.engine.state.strings import StringPool
from cep.expression import Type
from cep.program.program import Program

Column = tuple[I64, Mask | None]
"""int64[n], and which of the n are known; None: all."""


class ColumnCells:
    """The columns of one batch as cells. Each column is converted once, although windows and runs may both
    read it.

    Numbering the strings takes longer than the windows themselves.

    `program`: defines the types. `strings`: strings by number; new ones are added.
    """

    def __init__(self, program: Program, strings: StringPool) -> None:
        self.strings = strings
        self._program = program
        self._made: dict[str, Column] = {}

    def of(self, table: pa.Table, name: str) -> Column:
        """Return a column; `table` may have gained columns since the last call, and no others."""
        if name not in self._made:
            self._made[name] = cells_of(whole(table.column(name)), self._program.type_of(name), self.strings)
        return self._made[name]

    def note(self, columns: Mapping[str, Column]) -> None:
        """Keep columns that were computed as cells."""
        self._made |= columns


def cells_of(column: pa.Array, kind: Type, strings: StringPool) -> Column:
    """Return the values of a column as 64-bit cells, and which are known; None: all are."""
    if kind is Type.STRING:
        known = np.asarray(pc.is_valid(column))
        return strings.encode(column), None if known.all() else known
    vector = from_arrow(column, kind)
    values = vector.values
    cells = values.view(np.int64) if kind is Type.DOUBLE else np.ascontiguousarray(values, np.int64)
    return lent(cells), None if is_all(vector.known) else np.asarray(vector.known)


def arrow_of(values: I64, known: Mask | None, kind: Type, strings: StringPool) -> pa.Array:
    """Return cells as an Arrow column."""
    if kind is Type.STRING:
        return strings.decode(values, np.ones(len(values), np.bool_) if known is None else known)
    typed = values
    if kind is Type.DOUBLE:
        typed = values.view(np.float64)
    elif kind is Type.BOOLEAN:
        typed = values.astype(np.bool_)
    return Vector(typed, all_rows(len(values)) if known is None else known, kind).to_arrow()
