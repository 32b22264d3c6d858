"""Windowed aggregates: columns that events get from the earlier events of their keys.

    windows = Windows(program.windows)
    columns = windows.compute(order, slots, n_slots, n_rows, cells, bits)

A result depends only on the content of its window, not on how events were divided into batches or on what the
window contained before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cep.arrays import I32, I64, U8, Mask
from cep.engine.kernels.columns.order import count_keys
from cep.engine.order.ordering import OrderedEvents
from cep.engine.prepare.columns import lent
from cep.engine.state.strings import Cells
from cep.engine.windows.kernels.layout import KeyedBatch
from cep.engine.windows.rings import OrderedTable, Room, StoredRing, is_sliding
from cep.engine.windows.running import TotalsRing, ring_of
from cep.program.window_functions import Family
from cep.program.windows import WindowColumn

IS_EVENT = (-1, -1)
"""Place of a predicate that holds for events, and for no other row whose time has a value of the windows."""


def of_events(column: WindowColumn) -> WindowColumn:
    """Return a column in which only events count."""
    return replace(column, within=IS_EVENT) if column.within is None else column


_FEW_KEYS = 2
"""If the results of at most one in this many keys are read, those of the others are not computed."""


def _keys_of(rows: I64 | None, order: OrderedEvents, n_rows: int) -> U8:
    """Return (keys,) uint8: which keys have these rows; empty: there are so many that all results are
    computed.
    """
    if rows is None or _FEW_KEYS * min(len(rows), len(order.keys)) > len(order.keys):
        return np.zeros(0, np.uint8)
    is_row = np.zeros(n_rows, np.bool_)
    is_row[rows] = True
    keys = np.zeros(len(order.keys), np.uint8)
    keys[order.codes[is_row[order.rows]]] = 1
    return keys


class Windows:
    """The windows of a program over the events of any number of keys.

    `columns`: the columns to compute. Columns of one window over one argument share their state.
    """

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        groups: dict[object, list[WindowColumn]] = {}
        for column in columns:
            family = column.function.kept.family
            shared = None if is_sliding(column.window) and family is not Family.SETS else family
            key = (column.window, column.within, column.counts, column.argument, shared)
            groups.setdefault(key, []).append(column)
        self._rings = [ring_of(group) for group in groups.values()]
        self._room = Room()
        self._totals: list[TotalsRing] | None = None
        if all(column.function.kept.family is Family.SUMS for column in columns):
            self._totals = [TotalsRing(group) for group in groups.values()]

    def compute(
        self,
        order: OrderedEvents,
        slots: I32 | None,
        n_slots: int,
        n_rows: int,
        cells: Callable[[str], tuple[I64, Mask | None]],
        bits: Callable[[tuple[int, int]], Mask],
        begins_us: I64 | None = None,
        wanted: I64 | None = None,
    ) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns of a batch of events, and add the events to the state.

        Parameters
        ----------
        order
            The events in order, with times after those of earlier batches.
        slots : (keys of `order`,) int32
            The slot of each key. None: there is no earlier state of any key, and none is kept.
        n_rows
            The number of rows of the table; `order` has all or some of them.
        cells
            Returns a column of the table as int64 cells, and which of them are known; None: all. Booleans
            are 0 or 1, doubles their bits, strings their codes.
        bits
            Returns for which rows a predicate holds, by its word and bit.
        begins_us : (n,) int64
            When the window of each event starts, in order, if windows are whole (`Window.is_whole`).
        wanted : (m,) int64
            The rows whose results are read; those of others may be unknown. None: all are read.

        Returns
        -------
        The cells of each column by row of the table, and which of them are known; None: all. Rows that are
        not in `order` are unknown.
        """
        is_alone = slots is None
        if slots is None:
            slots = np.arange(len(order.keys), dtype=np.int32)
        else:
            self.set_slots(n_slots)
        starts = np.zeros(len(slots) + 1, np.int64)
        count_keys(lent(order.codes), starts)
        batch = KeyedBatch(
            time_us=lent(order.time_us),
            begins_us=np.zeros(0, np.int64) if begins_us is None else begins_us,
            starts=starts,
            slots=slots.astype(np.int64),
        )
        table = OrderedTable(lent(order.rows), n_rows, cells, bits, _keys_of(wanted, order, n_rows))
        found: dict[str, tuple[I64, Mask | None]] = {}
        for ring in self._rings:
            if is_alone:
                found |= ring.compute(batch, table, self._room, is_alone=True)
                ring.clear()
            else:
                found |= ring.add(batch, table, self._room)
        return found

    def settle(self) -> None:
        """Do what the next batch would have to do first. It changes no result."""
        for ring in self._rings:
            ring.settle()

    def totals(
        self,
        bounds: I64,
        n_events: int,
        cells: Callable[[str], tuple[I64, Mask | None]],
        bits: Callable[[tuple[int, int]], Mask],
    ) -> dict[str, tuple[I64, Mask | None]] | None:
        """Return the columns of windows that a batch contains as a whole; None: not all of them are sums.

        The state does not change.

        Parameters
        ----------
        bounds : (m + 1,) int64
            The place of the first event of each window, in order, and that after the last event.
        n_events
            The number of events.
        cells, bits
            As for `compute`, in the order of the events.
        """
        if self._totals is None:
            return None
        table = OrderedTable(np.arange(n_events), n_events, cells, bits)
        found: dict[str, tuple[I64, Mask | None]] = {}
        for ring in self._totals:
            found |= ring.of_windows(bounds, table, self._room)
        return found

    def live(self, n_slots: int, watermark_us: int) -> Mask:
        """Return which keys have state that an event after the watermark can see."""
        self.set_slots(n_slots)
        live = np.zeros(n_slots, np.bool_)
        for ring in self._rings:
            live |= ring.live(watermark_us)
        return live

    def expire(self, watermark_us: int) -> None:
        """Release what no event after the watermark can see."""
        for ring in self._rings:
            ring.expire(watermark_us)

    def close(self, is_open: Mask) -> None:
        """Release the state of keys without an open window; for whole windows."""
        for ring in self._rings:
            ring.close(is_open)

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        for ring in self._rings:
            ring.set_slots(n_slots)

    def keep_slots(self, live: Mask) -> None:
        """Forget the keys that are not in `live`; the others move up."""
        for ring in self._rings:
            ring.keep_slots(live)

    def string_cells(self) -> Cells:
        """Return arrays that hold codes of strings, and where these contain a code."""
        return [ring.string_cells() for ring in self._rings if ring.holds_strings]

    @property
    def n_entries(self) -> int:
        """The number of entries of all windows and keys; each takes 16 bytes."""
        return sum(ring.n_entries for ring in self._rings)

    def stored(self) -> tuple[StoredRing, ...]:
        """Return the state. The codes of strings are those of the matcher's pool."""
        return tuple(ring.stored() for ring in self._rings)

    def restore(self, stored: Sequence[StoredRing], n_slots: int) -> None:
        """Restore what windows with the same column names stored, in any order.

        Raises ValueError: windows like these cannot have stored it.
        """
        by_columns = {frozenset(ring.columns): ring for ring in stored}
        names = [frozenset(column.name for column in ring.columns) for ring in self._rings]
        if len(stored) != len(self._rings) or set(names) != by_columns.keys():
            raise ValueError("other windows were stored")
        for ring, of in zip(self._rings, names, strict=True):
            ring.restore(by_columns[of], n_slots)
