"""Events as kernels read them: in order, a block of them at a time.

A block is put in order and read while it stays in the cache, and the same memory serves all blocks. Ordering
the whole batch at once would take 8 bytes for each field and event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.arrays import I32, I64
from cep.engine.kernels.columns.order import gather
from cep.engine.kernels.layout import IDENTITY, SLOT, TIME_US, VALUE
from cep.engine.order.column_cells import ColumnCells
from cep.engine.order.ordering import OrderedEvents
from cep.engine.prepare.columns import lent
from cep.program.program import Program

BLOCK_ROWS = 1 << 13
"""Events of a block, for each rule of the program: every rule has a call of a kernel for each block."""


@dataclass(frozen=True, slots=True)
class EventBlocks:
    """n events: `cells` and `known` are in the order of their table, the rest in the order of rules."""

    order: OrderedEvents
    slots: I32  # the slot of each key of `order`
    cells: tuple[I64 | None, ...]  # (n,) a column of `Program.columns`; None: the event time
    known: tuple[npt.NDArray[np.bool_] | None, ...]  # (n,) None: no value is NULL

    @property
    def width(self) -> int:
        """Number of fields of an event. Words of known bits are among them only if a value is NULL."""
        has_null = any(known is not None for known in self.known)
        return VALUE + len(self.cells) + ((len(self.cells) + 63) // 64 if has_null else 0)

    def blocks(self, n_rows: int) -> Iterator[tuple[slice, I64]]:
        """Yield the places of `n_rows` events and the matrix of their fields, always in the same memory."""
        n = len(self.order.rows)
        room = np.empty(self.width * min(n_rows, n), np.int64)
        for first in range(0, n, max(n_rows, 1)):
            part = slice(first, min(first + n_rows, n))
            events = room[: self.width * (part.stop - first)].reshape(self.width, -1)
            self._fill(events, part)
            yield part, events

    def _fill(self, events: I64, part: slice) -> None:
        rows = self.order.rows[part]
        events[TIME_US] = self.order.time_us[part]
        events[SLOT] = self.slots[self.order.codes[part]]
        events[IDENTITY] = self.order.identity[part].view(np.int64)
        for number, cells in enumerate(self.cells):
            if cells is None:
                events[VALUE + number] = events[TIME_US]
            else:
                gather(cells, rows, events[VALUE + number])
        words = events[VALUE + len(self.cells) :]
        if len(words) == 0:
            return
        words[:] = 0
        for number, known in enumerate(self.known):
            bit = np.int64(np.uint64(1 << number % 64).astype(np.int64))
            words[number // 64] |= bit if known is None else np.where(known[rows], bit, 0)


def event_blocks(
    program: Program, table: pa.Table, order: OrderedEvents, slots: I32, columns: ColumnCells
) -> EventBlocks:
    """Return the events of `table` in their order."""
    cells: list[I64 | None] = []
    known: list[npt.NDArray[np.bool_] | None] = []
    for name in program.columns:
        if len(program.streams) == 1 and name == program.stream.event_time:
            cells.append(None)
            known.append(None)
            continue
        values, valid = columns.of(table, name)
        cells.append(lent(values))
        known.append(valid)
    return EventBlocks(order, slots, tuple(cells), tuple(known))
