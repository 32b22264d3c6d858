"""The rows of a table by their keys, changed in place.

    rows = KeptRows(kind_of_key, kinds_of_columns)
    places = rows.add(keys)              # also adds new keys
    rows.change(places, is_deleted, columns, chosen)
    column = rows.values(name, places)

Looking up a key or changing its row takes the same time for any number of rows: the keys are in a hash table,
and the values in columns (`cep.engine.keys.kernel`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, U8, Mask
from cep.engine.keys.kernel import (
    AHEAD,
    NULL,
    NUMBER,
    SHORT,
    add_keys,
    copy_cells,
    copy_texts,
    find_keys,
    find_texts,
    index_rows,
    measure_texts,
    pack_keys,
    put_cells,
    unpack_keys,
)
from cep.engine.order.ordering import hash_column, text_buffers, text_hashes
from cep.engine.prepare.columns import lent
from cep.engine.prepare.predicates import Vector, from_arrow, is_all
from cep.expression import Type
from cep.jit.memory import in_lines
from cep.schema.arrow_types import ARROW_TYPES

_Item = TypeVar("_Item", bound=np.generic)
_FEW = 64
"""So many rows that are not there, and texts that no row has, are kept beside as many as are needed."""

_NO_BYTES = np.zeros(1, np.uint8)
"""Read only: what is written to has bytes of its own."""


class KeptRows:
    """The rows of a table. `types`: the columns that are kept, by name."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self.types = dict(types)
        self._set_empty()

    def _set_empty(self) -> None:
        self.n_rows = 0  # that exist
        self._kind = pa.string()  # of the keys
        self._ends = np.zeros(2, np.int64)
        self._records = np.zeros((0, 4), np.int64)
        self._text = np.zeros(1, np.uint8)
        self._index = np.full(2, -1, np.int64)
        self._is_there = np.zeros(0, np.bool_)
        self._columns = {name: _column_of(kind) for name, kind in self.types.items()}

    @property
    def capacity(self) -> int:
        """The number of places."""
        return len(self._records)

    @property
    def n_keys(self) -> int:
        """The number of keys, with or without a row."""
        return int(self._ends[0])

    @property
    def n_bytes(self) -> int:
        """The bytes that are kept."""
        own = (self._records, self._text, self._index, self._is_there)
        return sum(array.nbytes for array in own) + sum(column.n_bytes for column in self._columns.values())

    def find(self, keys: pa.Array, hashes: I64 | None = None) -> I64:
        """Return (n,) int64: the place of each of `keys`, strings or int64; -1: none.

        Pass their `key_hashes` if they are known.
        """
        places = np.empty(len(keys), np.int64)
        if not pa.types.is_string(keys.type) or keys.null_count:
            hashed, data = _hashed(keys, hashes)
            find_keys(hashed, data, self._records, self._text, self._index, places)
        elif len(keys):
            offsets, data = text_buffers(keys)
            hashes = key_hashes(keys) if hashes is None else hashes
            room = np.empty((AHEAD, 4), np.int64)
            find_texts(offsets, data, hashes, room, self._records, self._text, self._index, places)
        return places

    def that_are_there(self, places: I64) -> I64:
        """Return `places`, with -1 for places without a row."""
        return np.maximum(self.marked(places), -1)

    def marked(self, places: I64) -> I64:
        """Return `places`, with -2 - p for a place p without a row."""
        if self.n_rows == self._ends[0]:  # none was deleted
            return places
        return np.where((places < 0) | self._is_there[places], places, -2 - places)

    def add(self, keys: pa.Array, hashes: I64 | None = None) -> I64:
        """Return (n,) int64: the place of each of `keys`. New keys get new places, still without rows."""
        if not self._ends[0]:
            self._kind = keys.type
        hashes = key_hashes(keys) if hashes is None else hashes
        places = self.find(keys, hashes)
        missing = np.flatnonzero(places < 0)
        if len(missing):
            hashed, data = _hashed(keys.take(pa.array(missing)), hashes[missing])
            new = np.empty(len(missing), np.int64)
            done = 0
            while done < len(new):
                done = add_keys(hashed, data, self._records, self._text, self._index, self._ends, done, new)
                if done < len(new):
                    lengths = hashed[done:, 3]
                    self._make_room(len(new) - done, int(lengths[lengths > SHORT].sum()))
            places[missing] = new
        return places

    def _make_room(self, n_more: int, n_texts: int) -> None:
        """Make room for at least one more row, if possible for as many as wanted."""
        n, used = self._ends.tolist()
        if n == self.capacity:
            size = max(n + (n_more if n == 0 else 0), n + n // 2, 64)
            records = in_lines(size, 4)
            records[:n] = self._records
            self._records = records
            self._is_there = _longer(self._is_there, size)
            for column in self._columns.values():
                column.make_room(size)
        if used + n_texts > len(self._text):
            self._text = _longer(self._text, max(used + n_texts, used + used // 4))
        if 2 * self.capacity >= len(self._index) - 1:
            self._index = np.full(1 << (2 * self.capacity + 1).bit_length(), -1, np.int64)
            index_rows(self._records, n, self._index)

    def change(self, places: I64, is_deleted: Mask, values: Mapping[str, pa.Array], chosen: I64) -> None:
        """Set rows to versions, one for each of `places`.

        Parameters
        ----------
        places : (m,) int64
            The rows that change, without duplicates.
        is_deleted : (m,) bool
            Which of them are deleted from now on.
        values
            (n,) Columns of versions.
        chosen : (m,) int64
            The version of each row.
        """
        if self.n_rows < self._ends[0] or is_deleted.any():  # otherwise they exist, before and after
            self.n_rows += int((~is_deleted).sum()) - int(self._is_there[places].sum())
            self._is_there[places] = ~is_deleted
        for name, column in self._columns.items():
            column.change(places, values[name], chosen)
        if self._ends[0] > _FEW + 2 * self.n_rows:
            self.keep(self.keys(), {name: self.values(name, self.places()) for name in self.types})

    def keep(self, keys: pa.Array, values: Mapping[str, pa.Array]) -> None:
        """Store these rows and no others. Raises ValueError: a key occurs twice."""
        self._set_empty()
        places = self.add(keys)
        if self._ends[0] < len(keys):
            raise ValueError("a key occurs twice")
        all_of_them = np.arange(len(keys))
        self.n_rows = len(keys)
        self._is_there[places] = True
        for name, column in self._columns.items():
            column.change(places, values[name], all_of_them)

    def places(self) -> I64:
        """Return the places of all rows, in the order in which their keys arrived."""
        return np.flatnonzero(self._is_there[: self._ends[0]])

    def keys(self) -> pa.Array:
        """Return the keys of all rows."""
        places = self.places()
        if not pa.types.is_string(self._kind):
            return pa.array(self._records[places, 1])
        return self.texts_at(places)

    def texts_at(self, places: I64) -> pa.Array:
        """Return the keys at `places`, (n,) int64, if keys are strings; -1: NULL."""
        known = places >= 0
        rows = np.where(known, places, 0)
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.where(known, self._records[rows, 3], 0), out=offsets[1:])
        data = np.empty(max(int(offsets[-1]), 1), np.uint8)
        unpack_keys(self._records, self._text, rows[known], offsets[:-1][known], data)
        return _text_array(known, offsets, data)

    def values(self, name: str, places: I64) -> pa.Array:
        """Return a column of the existing rows at `places`, (n,) int64; -1: NULL."""
        return self._columns[name].values(places)

    def cells(self, name: str, places: I64) -> Vector | None:
        """Return the same as a writable vector; None: the column has strings."""
        column = self._columns[name]
        return None if isinstance(column, _Texts) else column.cells(places)


class _Cells:
    """A column of values of 64 bits."""

    def __init__(self, kind: Type) -> None:
        self.kind = kind
        self._cells = np.zeros(0, np.int64)
        self._null = np.zeros(0, np.uint8)
        self._has_null = False  # or had

    @property
    def n_bytes(self) -> int:
        return self._cells.nbytes + self._null.nbytes

    def make_room(self, size: int) -> None:
        self._cells, self._null = _longer(self._cells, size), _longer(self._null, size)

    def change(self, places: I64, values: pa.Array, chosen: I64) -> None:
        vector = from_arrow(values, self.kind)
        put_cells(lent(_as_cells(vector)), chosen, places, self._cells)
        if self._has_null or not is_all(vector.known):
            self._has_null = True
            self._null[places] = ~vector.known[chosen]

    def cells(self, places: I64) -> Vector:
        cells, known = np.empty(len(places), np.int64), np.empty(len(places), np.uint8)
        copy_cells(self._cells, self._null[: None if self._has_null else 0], places, cells, known)
        typed = cells
        if self.kind is Type.DOUBLE:
            typed = cells.view(np.float64)
        elif self.kind is Type.BOOLEAN:
            typed = cells.astype(np.bool_)
        return Vector(typed, known.view(np.bool_), self.kind)

    def values(self, places: I64) -> pa.Array:
        return self.cells(places).to_arrow()


class _Texts:
    """A column of strings: those of all versions one after another, until most are no longer needed."""

    def __init__(self) -> None:
        self._spans = np.zeros((0, 3), np.int64)
        self._text = np.zeros(1, np.uint8)
        self._used = 0
        self._needed = 0  # at most this much of `_text` belongs to rows

    @property
    def n_bytes(self) -> int:
        return self._spans.nbytes + self._text.nbytes

    def make_room(self, size: int) -> None:
        self._spans = _longer(self._spans, size)

    def change(self, places: I64, values: pa.Array, chosen: I64) -> None:
        starts, lengths, data = _parts_of(values.take(pa.array(chosen)))
        before = np.maximum(self._spans[places, 2], 0).sum()
        n = int(starts[-1] + max(lengths[-1], 0)) if len(starts) else 0
        if self._used + n > len(self._text):
            self._text = _longer(self._text, max(self._used + n, self._used + self._used // 2))
        self._text[self._used : self._used + n] = data[:n]
        self._spans[places, 1] = starts + self._used
        self._spans[places, 2] = lengths
        self._used += n
        self._needed += int(np.maximum(lengths, 0).sum()) - int(before)
        if self._used > 16 * _FEW + 2 * self._needed:
            self._move_together()

    def _move_together(self) -> None:
        offsets = np.empty(len(self._spans) + 1, np.int64)
        rows = np.arange(len(self._spans))
        measure_texts(self._spans, rows, offsets)
        text = np.empty(max(int(offsets[-1]), 1), np.uint8)
        copy_texts(self._spans, self._text, rows, offsets, text)
        self._spans[:, 1] = offsets[:-1]
        self._text, self._used = text, int(offsets[-1])

    def values(self, places: I64) -> pa.Array:
        return _texts(self._spans, self._text, places)


def _column_of(kind: Type) -> _Cells | _Texts:
    return _Texts() if pa.types.is_string(ARROW_TYPES[kind]) else _Cells(kind)


def _as_cells(vector: Vector) -> I64:
    if vector.type is Type.DOUBLE:
        return np.ascontiguousarray(vector.values).view(np.int64)
    return np.asarray(vector.values, np.int64)


def _hashed(keys: pa.Array, hashes: I64 | None = None) -> tuple[I64, U8]:
    """Return keys as `find_keys` takes them: (n, 4) int64, and the bytes of their strings."""
    hashed, data = np.empty((len(keys), 4), np.int64), _NO_BYTES
    if not len(keys):
        return hashed, data
    hashes = key_hashes(keys) if hashes is None else hashes
    if pa.types.is_string(keys.type):
        offsets, data = text_buffers(keys)
        pack_keys(offsets, data, hashes, hashed)
    else:
        hashed[:, 0] = hashes
        hashed[:, 1] = np.asarray(pc.fill_null(keys, 0) if keys.null_count else keys)
        hashed[:, 2], hashed[:, 3] = 0, NUMBER
    if keys.null_count:
        hashed[np.asarray(pc.is_null(keys)), 3] = NULL
    return hashed, data


def _parts_of(texts: pa.Array) -> tuple[I64, I64, U8]:
    """Return where each string starts, its length (-1: NULL), and the bytes of all."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), _NO_BYTES
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(bounds)
    if texts.null_count:
        lengths[np.asarray(pc.is_null(texts))] = -1
    is_some = data is not None and data.size
    return bounds[:-1], lengths, lent(np.frombuffer(data, np.uint8)) if is_some else _NO_BYTES


def _texts(spans: I64, text: U8, places: I64) -> pa.Array:
    """Return the strings of rows; NULL for -1, and where a span has no string."""
    n = len(places)
    if not len(spans):
        return pa.nulls(n, pa.string())
    offsets = np.empty(n + 1, np.int64)
    measure_texts(spans, places, offsets)
    data = np.empty(max(int(offsets[-1]), 1), np.uint8)
    copy_texts(spans, text, places, offsets, data)
    known = (places >= 0) & (spans[places, 2] >= 0)
    return _text_array(known, offsets, data)


def _text_array(known: Mask, offsets: I64, data: U8) -> pa.Array:
    parts = (np.packbits(known, bitorder="little"), offsets.astype(np.int32), data)
    return pa.Array.from_buffers(pa.string(), len(known), [pa.py_buffer(part) for part in parts])


def _longer(array: npt.NDArray[_Item], size: int) -> npt.NDArray[_Item]:
    """Return the array, extended with zeros to `size` rows."""
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def key_hashes(keys: pa.Array) -> I64:
    """Return (n,) int64: a hash of each key, a string or an int64; equal keys have equal hashes."""
    if pa.types.is_string(keys.type):
        return text_hashes(keys)
    hashes = np.zeros(len(keys), np.uint64)
    hash_column(keys, hashes)
    return hashes.view(np.int64)
