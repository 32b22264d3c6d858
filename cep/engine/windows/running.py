"""Counts and sums that continue from batch to batch: the work for a batch does not grow with its windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cep.arrays import I64, Mask
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.layout import KeyedBatch
from cep.engine.windows.kernels.panes import MOST_MORE, MOST_TIMES, PaneSums, are_panes, pane_windows
from cep.engine.windows.kernels.sliding import (
    DONE,
    NO_ROOM,
    SCALE,
    SLIDING_WIDTH,
    move_with_room,
    rooms_of,
    slide_to,
    slide_windows,
)
from cep.engine.windows.rings import (
    BLOCK,
    OrderedTable,
    Room,
    StoredRing,
    WindowRing,
    empty_sums,
    in_panes,
    is_sliding,
)
from cep.program.window_functions import Kept
from cep.program.windows import Frame, WindowColumn

_MOST_UNUSED = 2
"""If this many times more rows of entries are used than needed, the entries are moved together."""

_MOST_FREE = 8
"""If there is memory for this many times more entries than needed, most of it is released."""


def ring_of(columns: Sequence[WindowColumn]) -> WindowRing:
    """Return the ring that serves `columns`; `WindowRing` says which are allowed."""
    ring = WindowRing(columns)
    if ring.spec[at.KEPT] == at.PANE_SUMS:
        return PaneRing(columns)
    is_simple = ring.kinds <= {Kept.COUNTS, Kept.SUMS}
    return SlidingRing(columns) if is_simple and is_sliding(ring.window) else ring


class SlidingRing(WindowRing):
    """Counts and sums over a window that events leave one by one: a sum for each key, next to its entries."""

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        super().__init__(columns)
        functions = [column.function.value.number for column in self.columns]
        # The same function may be wanted twice.
        self._row_of = {number: functions.index(number) for number in functions}
        self._rows = np.array(
            [self._row_of.get(number, -1) for number in (at.COUNT, at.SUM, at.AVG)], np.int64
        )
        self._set_keys(np.zeros((0, SLIDING_WIDTH), np.int64))
        self._n_touched = 0  # keys since the last trim; a key counts once for each batch

    def compute(
        self, batch: KeyedBatch, table: OrderedTable, room: Room, *, is_alone: bool = False
    ) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns by row of the table, and add the events to the state."""
        if is_alone:
            return super().compute(batch, table, room, is_alone=True)
        self._n_touched += len(batch.slots)
        reads = self._reads(table, batch)
        shape = len(self.columns), len(batch.time_us)
        # Results that nobody reads are not written, but evaluated with the others: they must be numbers.
        out, known = np.zeros(shape, np.int64), np.zeros(shape, np.uint8)
        progress = np.zeros(2, np.int64)
        ends: I64 | None = None
        while True:
            why = slide_windows(self._ring(), batch, reads, table.wanted, self._rows, out, known, progress)
            if why == DONE:
                break
            if why == NO_ROOM:
                self._make_room(int(progress[1]) + 2 * len(batch.time_us))
                continue
            # The sizes of the later keys are unchanged.
            ends = self._sizes(batch) if ends is None else ends
            first = int(progress[0])
            progress[0] = self._compute_next(batch, reads, room, ends, first, out, known)
            self._keys[batch.slots[first : progress[0]], SCALE] = 0
        room.shrink()
        found = {number: table.by_row(out[row], known[row]) for number, row in self._row_of.items()}
        return {column.name: found[column.function.value.number] for column in self.columns}

    def stored(self) -> StoredRing:
        """Return the state."""
        if self.window.frame is Frame.EVENTS:
            slide_to(self._ring(), at.NEVER)
        return super().stored()

    def expire(self, watermark_us: int) -> None:
        """Release what no event after the watermark can see. For most keys, this happens when they have
        events.
        """
        if 2 * self._n_touched > len(self._keys):
            self._trimmed = max(self._trimmed, self.bound(watermark_us))
            self._n_touched = 0
        super().expire(watermark_us)

    def _move(self, needed: int) -> None:
        # Unused memory takes no room, and memory used for the first time costs more than a move. So the
        # entries stay in their memory if half of it, and not nearly all of it, is free afterwards.
        wanted = rooms_of(self._keys) + needed
        entries = self._entries
        if not 2 * wanted <= len(entries) <= _MOST_FREE * wanted:
            entries = np.empty((3 * wanted, 2), np.int64)
        order = np.argsort(self._keys[:, at.START])
        self._meta[0] = move_with_room(self._keys, order, self._entries, entries)
        self._entries = entries

    def _trim(self) -> None:
        """Drop what is older than the bound."""
        self._trimmed = self._bound
        self._keys[self._keys[:, at.MARK] < self._bound, at.LENGTH] = 0
        if self.window.frame is not Frame.EVENTS:
            slide_to(self._ring(), self._bound)
        self._pack()

    def _pack(self) -> None:
        """Move the entries together if most of the memory is unused or was left by keys that have moved."""
        if self._meta[0] > _MOST_UNUSED * (rooms_of(self._keys) + BLOCK):
            self._move(BLOCK)


class PaneRing(WindowRing):
    """Counts and sums over a window that moves in steps: a sum for each pane, and that of the window.

    Neither the work for an event nor the work for a batch depends on the number of panes.
    """

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        super().__init__(columns)
        self._functions = np.array([column.function.value.number for column in self.columns], np.int64)
        self._sums = PaneSums(empty_sums(), empty_sums())

    def compute(
        self, batch: KeyedBatch, table: OrderedTable, room: Room, *, is_alone: bool = False
    ) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns by row of the table, and add the events to the state."""
        if is_alone:
            self.set_slots(len(batch.slots))
            batch = batch._replace(slots=np.arange(len(batch.slots)))
        reads = self._reads(table, batch)
        batch = in_panes(self.window, batch)
        shape = len(self.columns), len(batch.time_us)
        out, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
        keys = np.zeros(2, np.int64)
        while True:
            pane_windows(self._ring(), batch, reads, self._sums, self._functions, out, known, keys)
            if keys[0] == len(batch.slots):
                break
            n_entries = int(self._keys[batch.slots[keys[0]], at.LENGTH])
            self._make_room(MOST_TIMES * n_entries + MOST_MORE)
        return {
            column.name: table.by_row(out[number], known[number])
            for number, column in enumerate(self.columns)
        }

    def _trim(self) -> None:
        """Drop keys with no pane within the bound. Other keys drop old panes at their next event."""
        self._trimmed = self._bound
        self._keys[self._keys[:, at.MARK] < self._bound, at.LENGTH] = 0
        self._pack()

    def _are_ours(self, lengths: I64, entries: I64) -> bool:
        return bool(are_panes(np.ascontiguousarray(lengths), entries))


class TotalsRing(WindowRing):
    """Sums over windows that a batch contains as a whole: one result for each window. Nothing is kept."""

    many_kept = math.inf  # each entry is in one window

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        super().__init__(columns)
        self.spec[at.KEPT] = at.WHOLE
        self._adds_up = True

    def of_windows(self, bounds: I64, table: OrderedTable, room: Room) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns by window.

        Parameters
        ----------
        bounds : (m + 1,) int64
            The place of the first event of each window, in order, and that after the last event.
        """
        reads = self._reads(table)
        values, n = reads.values, len(bounds) - 1
        marks = [marks for marks in (reads.counting, reads.known) if not marks.all()]
        if marks:
            counts = np.logical_and.reduce(marks)
            bounds = np.append(0, np.cumsum(counts))[bounds]
            values = values[counts] if len(values) else values
        if self.kinds == {Kept.COUNTS}:
            counted = np.diff(bounds)
            return {column.name: (counted, None) for column in self.columns}
        room.make(len(values), n, n)
        frames = room.frames
        frames.words[: len(values)], frames.values[: len(values)] = 1, values
        frames.bases[:n] = frames.first[:n] = frames.ends[:n, 0] = bounds[:-1]
        frames.last[:n] = frames.ends[:n, 1] = bounds[1:]
        out, known = np.empty((len(self.columns), n), np.int64), np.empty((len(self.columns), n), np.uint8)
        none = np.zeros(0, np.int64)
        batch = KeyedBatch(none, none, np.arange(n + 1), np.zeros(n, np.int64))
        self._compute_sums(batch, room, np.array([0, n]), list(range(len(self.columns))), out, known)
        room.shrink()
        found = {}
        for number, column in enumerate(self.columns):
            is_known = known[number].view(np.bool_)
            found[column.name] = out[number], None if is_known.all() else is_known
        return found
