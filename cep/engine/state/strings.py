"""Strings as 64-bit codes, which runs of fixed width can store and compare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.expression import Type
from cep.schema.arrow_types import ARROW_TYPES

_LARGE = 4096

Cells = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]
"""Arrays that hold codes, and where in them a code stands."""


class StringPool:
    """Distinct strings in order of arrival; the code of a string is its place."""

    def __init__(self, values: pa.Array | None = None) -> None:
        self.values = pa.array([], pa.string()) if values is None else values
        self._kept = len(self.values)

    @property
    def is_large(self) -> bool:
        """Whether the pool has grown so much since the last `keep` that another `keep` is worthwhile."""
        return len(self.values) > _LARGE + 2 * self._kept

    def encode(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the code of each string of `column` (0 for NULL), adding new strings."""
        encoded = column.dictionary_encode()
        dictionary = encoded.dictionary
        if len(dictionary) == 0:
            return np.zeros(len(column), np.int64)
        places = pc.index_in(dictionary, value_set=self.values)
        is_new = np.asarray(pc.is_null(places))
        codes = np.asarray(pc.fill_null(places, 0)).astype(np.int64)
        codes[is_new] = len(self.values) + np.arange(int(is_new.sum()))
        self.values = pa.concat_arrays([self.values, dictionary.filter(pa.array(is_new))])
        result: npt.NDArray[np.int64] = codes[np.asarray(pc.fill_null(encoded.indices, 0))]
        return result

    def decode(self, codes: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
        """Return the strings of `codes`, NULL where not `known`."""
        return self.values.take(pa.array(np.where(known, codes, 0), mask=~known))

    def values_of(self, kind: Type, cells: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
        """Return the values of cells of type `kind`, NULL where not `known`."""
        match kind:
            case Type.STRING:
                return self.decode(cells, known)
            case Type.DOUBLE:
                return pa.array(cells.view(np.float64), mask=~known)
            case _:
                return pa.array(cells, mask=~known).cast(ARROW_TYPES[kind])

    def keep(self, cells: Cells) -> None:
        """Forget the strings that no cell refers to and renumber the cells, in place."""
        used = np.zeros(len(self.values), np.bool_)
        for values, holds in cells:
            used[values[holds]] = True
        if used.all():
            return
        moved = np.cumsum(used) - 1
        for values, holds in cells:
            values[holds] = moved[values[holds]]
        self.values = self.values.filter(pa.array(used))
        self._kept = len(self.values)
