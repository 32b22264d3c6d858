"""Known keys, each with the number of its slot.

    keys = KeySlots(names, columns)
    slots = keys.place(table, keys_of_batch, first_rows, hashes)   # new keys get the next ones
    keys.keep(live)                                                # the others move up

How a key is found depends on how many keys are known. If fewer keys are known than a batch contains, a table
of the smaller side is built each time. This is usual without windows, where most keys are forgotten after
each batch. If more are known, an index of them is kept from batch to batch. Building it takes as long as
several batches without it. So it is built once that much time has been lost, and again after keys have moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cep.arrays import I32, I64, Mask
from cep.engine.order.ordering import key_values, places_in
from cep.engine.prepare.columns import whole

if TYPE_CHECKING:
    from cep.engine.keys.kept_rows import KeptRows

_MANY = 4096
"""An index is made only for this many keys or more, because its kernels must be loaded."""


class KeySlots:
    """The keys that a matcher knows. `columns`: (n,) The columns of the initially known keys, by slot."""

    def __init__(self, names: tuple[str, ...], columns: Sequence[pa.Array]) -> None:
        self.names = names
        self.columns = list(columns)
        self._index: KeptRows | None = None  # the place of a key is its slot
        self._n_searched = 0  # known keys that were looked up in batches since they moved

    def __len__(self) -> int:
        return len(self.columns[0])

    def place(self, table: pa.Table, of_batch: pa.Array, first_rows: I64, hashes: I64 | None = None) -> I32:
        """Return the slot of each key of a batch; unknown keys get new slots.

        Parameters
        ----------
        of_batch
            (m,) Their distinct keys (`key_values`).
        first_rows : (m,) int64
            A row of `table` with each key.
        hashes : (m,) int64
            Their hashes (`text_hashes`), if they are known.
        """
        n = len(self)
        if not n:
            slots, is_new = np.arange(len(of_batch), dtype=np.int32), None
        else:
            slots, is_new = self._slots(of_batch, hashes)
        self._append(table, of_batch, first_rows, is_new)
        return slots

    def _slots(self, of_batch: pa.Array, hashes: I64 | None) -> tuple[I32, Mask]:
        """Return the slot of each key, and which of them are new."""
        n = len(self)
        index = self._index_for(of_batch)
        if index is not None:
            slots = index.add(of_batch, hashes).astype(np.int32)
            return slots, slots >= n
        self._n_searched += n
        slots = places_in(of_batch, self._values())
        is_new = slots < 0
        slots[is_new] = n + np.arange(int(is_new.sum()), dtype=np.int32)
        return slots, is_new

    def _append(self, table: pa.Table, of_batch: pa.Array, first_rows: I64, is_new: Mask | None) -> None:
        """Append the new keys; None: all are new."""
        if is_new is not None and not is_new.any():
            return
        is_all = is_new is None or is_new.all()
        if len(self.names) == 1:  # the values are the keys: they need not be looked up by their rows
            new = [of_batch if is_all else of_batch.filter(pa.array(is_new))]
        else:
            rows = pa.array(first_rows if is_all else first_rows[is_new])
            new = [whole(table.column(name)).take(rows) for name in self.names]
        if len(self):
            new = [pa.concat_arrays(both) for both in zip(self.columns, new, strict=True)]
        self.columns = new

    def _values(self) -> pa.Array:
        return key_values(pa.table(self.columns, self.names), self.names)

    def _index_for(self, of_batch: pa.Array) -> KeptRows | None:
        """Return the index of known keys, if it exists or is worth building."""
        n = len(self)
        if self._index is None and n >= _MANY and n >= len(of_batch) and self._n_searched >= n:
            if of_batch.type not in (pa.string(), pa.int64()):
                return None
            self._index = make_index()
            self._index.add(self._values())
        return self._index

    def keep(self, live: Mask) -> None:
        """Forget the keys that are not in `live`, (n,) bool; the others move up."""
        self.columns = [column.filter(pa.array(live)) for column in self.columns]
        self._index, self._n_searched = None, 0


def make_index() -> KeptRows:
    """Return an empty index of keys or strings."""
    from cep.engine.keys.kept_rows import KeptRows  # its kernels: most programs do not need them

    return KeptRows({})
