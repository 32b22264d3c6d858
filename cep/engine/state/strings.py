"""Strings as 64-bit codes, which runs of fixed width can store and compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.expression import Type
from cep.schema.arrow_types import ARROW_TYPES

_LARGE = 4096

Cells = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]
"""Arrays that hold codes, and where in them a code stands."""


class TextIndex(Protocol):
    """Strings by their places, as `cep.engine.keys.kept_rows.KeptRows` keeps its keys."""

    @property
    def n_keys(self) -> int:
        """The number of strings."""

    def add(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return the place of each string. New strings get new places."""

    def texts_at(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """Return the strings at `places`; -1: NULL."""


class StringPool:
    """Distinct strings in order of arrival; the code of a string is its place.

    A large pool has an index, as `KeySlots` has: otherwise each batch would hash and copy all strings. The
    index is created when the pool has been searched so often that searching took as long as creating it. It
    then contains the strings.

    `make_index`: creates an empty index; None: the pool never has one.
    """

    def __init__(
        self, values: pa.Array | None = None, make_index: Callable[[], TextIndex] | None = None
    ) -> None:
        self._values = pa.array([], pa.string()) if values is None else values
        self._make_index = make_index
        self._index: TextIndex | None = None
        self._n_searched = 0  # strings that were searched in batches, since the last `keep`
        self._kept = len(self)

    def __len__(self) -> int:
        return len(self._values) if self._index is None else self._index.n_keys

    @property
    def values(self) -> pa.Array:
        """All strings."""
        return self._values if self._index is None else self._index.texts_at(np.arange(len(self)))

    @property
    def is_large(self) -> bool:
        """Whether the pool has grown so much since the last `keep` that another `keep` is worthwhile."""
        return len(self) > _LARGE + 2 * self._kept

    def encode(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the code of each string of `column` (0 for NULL), adding new strings."""
        encoded = column.dictionary_encode()
        dictionary = encoded.dictionary
        if len(dictionary) == 0:
            return np.zeros(len(column), np.int64)
        self._n_searched += len(self)
        codes = self._codes(dictionary) if self._index is None else self._index.add(dictionary)
        result: npt.NDArray[np.int64] = codes[np.asarray(pc.fill_null(encoded.indices, 0))]
        return result

    def _codes(self, texts: pa.Array) -> npt.NDArray[np.int64]:
        n = len(self)
        if self._make_index and n >= _LARGE and n >= len(texts) and self._n_searched > 2 * n:
            self._index = self._make_index()
            self._index.add(self._values)
            self._values = self._values[:0]
            return self._index.add(texts)
        places = pc.index_in(texts, value_set=self._values)
        is_new = np.asarray(pc.is_null(places))
        codes = np.asarray(pc.fill_null(places, 0)).astype(np.int64)
        codes[is_new] = n + np.arange(int(is_new.sum()))
        self._values = pa.concat_arrays([self._values, texts.filter(pa.array(is_new))])
        return codes

    def decode(self, codes: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
        """Return the strings of `codes`, NULL where not `known`."""
        if self._index is not None:
            return self._index.texts_at(np.where(known, codes, -1))
        return self._values.take(pa.array(np.where(known, codes, 0), mask=~known))

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
        used = np.zeros(len(self), np.bool_)
        for values, holds in cells:
            used[values[holds]] = True
        if not used.all():
            moved = np.cumsum(used) - 1
            for values, holds in cells:
                values[holds] = moved[values[holds]]
            self._values, self._index, self._n_searched = self.values.filter(pa.array(used)), None, 0
        self._kept = len(self)
