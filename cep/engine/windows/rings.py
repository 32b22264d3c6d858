"""One window over one argument: the state that earlier events left, and what is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cep.arrays import I64, U8, Mask
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.kernels.columns.order import gather
from cep.engine.order.ordering import is_sorted
from cep.engine.prepare.columns import lent
from cep.engine.state.packing import Packed, packed
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.chosen import N_ROOM, extreme_windows, percentile_windows, window_places
from cep.engine.windows.kernels.frames import frame_events
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Reads, Ring, Sums
from cep.engine.windows.kernels.prefixes import MOST_OF_HALVES, spread_by_prefixes, sum_by_prefixes
from cep.engine.windows.kernels.sets import set_windows
from cep.engine.windows.kernels.storage import (
    gather_marks,
    list_entries,
    move_entries,
    scatter,
    scatter_marks,
    trim_entries,
)
from cep.engine.windows.kernels.sums import CHUNKS, OF_SQUARES, OF_TOTALS, sum_windows
from cep.engine.windows.tumbling import window_begins
from cep.expression import Type
from cep.jit.memory import in_lines
from cep.program.window_functions import Family, Function, Kept, Parameter
from cep.program.windows import Frame, Window, WindowColumn

_FRAMES = {
    Frame.TIME: at.TIME,
    Frame.EVENTS: at.EVENTS,
    Frame.TUMBLING: at.TUMBLING,
    Frame.SESSION: at.SESSION,
    Frame.ALL: at.ALL,
    Frame.HOPPING: at.TIME,
}
_ORDER = {Kept.COUNTS: 0, Kept.SUMS: 0, Kept.SQUARES: 1}
_SUMMED = {Kept.SUMS: at.VALUES, Kept.SQUARES: at.SQUARES}

BLOCK = 1 << 15
"""Entries and events that are looked at together: they stay in the cache."""

_MOST_ROOM = 1 << 20
"""Entries for which room is kept from batch to batch."""

_TRIMS = 4
"""How often a key that has no events is trimmed in the length of a window."""

_FURTHEST = 1 << 61

_FEW_KNOWN = 8
"""If at most one in this many values is known, only the known ones are written to their rows."""


def is_sliding(window: Window) -> bool:
    """Return whether events leave the window one by one. Other windows end as a whole, by panes, or never."""
    return window.frame in (Frame.TIME, Frame.EVENTS, Frame.HOPPING) and window.step_us == 0


def empty_sums() -> Sums:
    """Return room for the sums of a key."""
    return Sums(
        totals=np.zeros(at.N_TOTALS, np.int64),
        squares=np.zeros(at.N_SQUARES, np.int64),
        digits=np.zeros(at.N_SQUARES, np.int64),
        product=np.zeros(at.N_SQUARES, np.int64),
        special=np.zeros(3, np.int64),
    )


def in_panes(window: Window, batch: KeyedBatch) -> KeyedBatch:
    """Return a batch whose events have the start times of their panes, if the window moves in steps.

    The window of such an event is as long as written: from the start of one pane to the start of another.
    """
    if not window.step_us:
        return batch
    panes = Window(Frame.TUMBLING, window.step_us)
    return batch._replace(time_us=window_begins(panes, batch.time_us))


class Room:
    """Scratch memory of kernels, reused from block to block."""

    def __init__(self) -> None:
        self._n_entries = self._n_events = self._n_keys = 0
        self.make(0, 0, 0)
        self.sums = empty_sums()

    def make(self, n_entries: int, n_events: int, n_keys: int) -> None:
        """Make room for this many entries, events and keys of a block."""
        if n_entries > self._n_entries or n_events > self._n_events or n_keys > self._n_keys:
            self._n_entries = max(n_entries, 2 * BLOCK)
            self._n_events, self._n_keys = max(n_events, 2 * BLOCK), max(n_keys, 2 * BLOCK)
            self.frames = Frames(
                words=np.empty(self._n_entries, np.int64),
                values=np.empty(self._n_entries, np.int64),
                bases=np.empty(self._n_keys, np.int64),
                first=np.empty(self._n_events, np.int64),
                last=np.empty(self._n_events, np.int64),
                own=np.empty(max(self._n_events, self._n_entries), np.uint8),
                ends=np.empty((self._n_keys, 2), np.int64),
            )
            self._more: dict[tuple[int, ...], I64] = {}

    def more(self, *shape: int) -> I64:
        """Return additional room; calls with the same shape return the same room."""
        if shape not in self._more:
            self._more[shape] = np.empty(shape, np.int64)
        return self._more[shape]

    @property
    def n_entries(self) -> int:
        """The number of entries of a block for which there is room."""
        return self._n_entries

    def shrink(self) -> None:
        """Release the room of a key that had very many entries."""
        if max(self._n_entries, self._n_events, self._n_keys) > _MOST_ROOM:
            self._n_entries = self._n_events = self._n_keys = 0
            self.make(0, 0, 0)


_ALL = np.zeros(0, np.uint8)


class OrderedTable:
    """Columns and predicates of a batch, in the order of its events; each is sorted once.

    Parameters
    ----------
    rows : (n,) int64
        The row of each event.
    cells, bits
        As for `Windows.compute`.
    wanted : (keys,) uint8
        1: the results of the events of a key are read; others may be unknown. Empty: all are read.
    """

    def __init__(
        self,
        rows: I64,
        n_rows: int,
        cells: Callable[[str], tuple[I64, Mask | None]],
        bits: Callable[[tuple[int, int]], Mask],
        wanted: U8 = _ALL,
    ) -> None:
        self.wanted = wanted
        self._rows, self._n_rows = rows, n_rows
        self._cells, self._bits = cells, bits
        self._columns: dict[str, tuple[I64, Mask | None]] = {}
        self._ordered: dict[str, I64] = {}
        self._marks: dict[object, U8] = {}
        self._is_ordered = len(rows) == n_rows and is_sorted(rows)

    def cells(self, name: str) -> tuple[I64, U8]:
        """Return the cells of a column, and which are known; empty: all."""
        if name not in self._ordered:
            values = lent(self._column(name)[0])
            ordered = values
            if not self._is_ordered:
                ordered = np.empty(len(self._rows), np.int64)
                gather(values, self._rows, ordered)
            self._ordered[name] = ordered
        return self._ordered[name], self.known(name)

    def known(self, name: str) -> U8:
        """Return which values of a column are known; empty: all."""
        known = self._column(name)[1]
        return np.zeros(0, np.uint8) if known is None else self._in_order(name, known)

    def bits(self, place: tuple[int, int]) -> U8:
        """Return the events for which a predicate holds."""
        return self._marks[place] if place in self._marks else self._in_order(place, self._bits(place))

    def _column(self, name: str) -> tuple[I64, Mask | None]:
        if name not in self._columns:
            self._columns[name] = self._cells(name)
        return self._columns[name]

    def _in_order(self, of: object, mask: Mask) -> U8:
        if of not in self._marks:
            marks = lent(np.ascontiguousarray(mask).view(np.uint8))
            ordered = marks
            if not self._is_ordered:
                ordered = np.empty(len(self._rows), np.uint8)
                gather_marks(marks, self._rows, ordered)
            self._marks[of] = ordered
        return self._marks[of]

    def by_row(self, values: I64, known: U8) -> tuple[I64, Mask | None]:
        """Return an ordered column by row of the table, and which values are known; None: all."""
        n_known = np.count_nonzero(known)
        all_known = n_known == len(known)
        if self._is_ordered:
            return values, None if all_known else known.view(np.bool_)
        of_rows = np.zeros(self._n_rows, np.int64)
        if _FEW_KNOWN * n_known < len(known):
            places = np.flatnonzero(known.view(np.bool_))
            rows, is_row = self._rows[places], np.zeros(self._n_rows, np.bool_)
            of_rows[rows], is_row[rows] = values[places], True
            return of_rows, is_row
        scatter(values, self._rows, of_rows)
        if all_known and len(self._rows) == self._n_rows:
            return of_rows, None
        is_known = np.zeros(self._n_rows, np.uint8)
        scatter_marks(known, self._rows, is_known)
        return of_rows, is_known.view(np.bool_)


@dataclass(frozen=True, slots=True)
class StoredRing:
    """The compact state of one window. It serves the columns of these names."""

    columns: tuple[str, ...]
    keys: Packed  # (slots, 2) the number of entries, the mark
    entries: Packed  # (entries, 2) key by key
    begins: Packed | None = None  # (1, 1) the time after which the window sees events; None: it sees all


class WindowRing:
    """The columns that one ring serves.

    `columns`: at least one; all have the same window, `within`, `counts` and argument, and one family unless
    the window keeps all of its events.
    """

    many_kept: ClassVar[float] = 4
    """With this many entries for each new event, sums of all prefixes cost more than they save."""

    def __init__(self, columns: Sequence[WindowColumn]) -> None:
        self.columns = tuple(
            sorted(columns, key=lambda column: _ORDER.get(column.function.value.kept, len(_ORDER)))
        )
        one = self.columns[0]
        self.window = one.window
        self.kinds = {column.function.value.kept for column in self.columns}
        families = {kind.value.family for kind in self.kinds}
        self.is_set = families == {Family.SETS}
        self.argument = one.argument
        self.reads_values = self.kinds != {Kept.COUNTS}
        self.holds_strings = one.argument_type is Type.STRING and self.reads_values
        kept, n_last = at.WHOLE, 0
        has_first = Kept.FIRST in self.kinds
        if families == {Family.SUMS} and not is_sliding(self.window):
            kept = at.SUMS
        elif families == {Family.EXTREMES} and not is_sliding(self.window):
            kept = at.EXTREMES
        elif families == {Family.PLACES} and not (is_sliding(self.window) and has_first):
            kept = at.LAST
            n_last = max(
                1 if column.function.value.parameter is not Parameter.EVENTS else int(column.parameter)
                for column in self.columns
            )
        if self.window.step_us:
            firsts = at.PANE_FIRSTS if has_first else at.LAST
            of_panes = {at.SUMS: at.PANE_SUMS, at.EXTREMES: at.PANE_EXTREMES, at.LAST: firsts}
            kept = of_panes.get(kept, kept)
        self._counts_entries = self.kinds == {Kept.COUNTS} and kept == at.WHOLE
        self._adds_up = Family.PLACES not in families and (
            kept == at.WHOLE or (kept == at.SUMS and Kept.SQUARES not in self.kinds)
        )
        self.spec = np.zeros(at.N_SPEC, np.int64)
        # The start of a whole window is given. The values of a hopping window are those at its last instant.
        self._is_given = self.window.is_whole and not is_sliding(self.window)
        is_hopping = self.window.frame is Frame.HOPPING
        self.spec[at.FRAME] = at.TUMBLING if self._is_given else _FRAMES[self.window.frame]
        self.spec[at.SPAN] = min(self.window.length, _FURTHEST) - is_hopping
        self.spec[at.PREVIOUS] = self.window.previous
        self.spec[at.KEPT] = kept
        self.spec[at.N_LAST] = n_last
        self.spec[at.WITH_FIRST] = has_first
        self.spec[at.IS_DOUBLE] = one.argument_type is Type.DOUBLE
        self.spec[at.SUMMED] = max(_SUMMED.get(kind, at.NO_VALUES) for kind in self.kinds)
        self.spec[at.WITH_NULL] = Family.PLACES in families
        self._first_mark = 0 if self.window.frame is Frame.EVENTS else at.NEVER
        self.begins_us = START_OF_TIME_US  # it sees later events; the watermark has not reached it
        self._bound = self._trimmed = at.NEVER
        self._keys = self._room_of_keys = np.zeros((0, at.KEY_WIDTH), np.int64)
        self._entries = np.zeros((0, 2), np.int64)
        self._meta = np.zeros(1, np.int64)
        self._used = 0  # rows of entries by the events of the last batch

    # ------------------------------------------------------------ events

    def add(self, batch: KeyedBatch, table: OrderedTable, room: Room) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns by row of the table as `compute` does, and note how much room the batch used."""
        self._used = -int(self._meta[0])
        found = self.compute(batch, table, room)
        self._used += int(self._meta[0])
        return found

    def settle(self) -> None:
        """Make room for another batch like the last one, in memory that was used before."""
        needed = self._used + (self._used >> 1)
        if needed > 0:
            self._make_room(needed)
            self._entries[self._meta[0] : self._meta[0] + needed] = 0
        self._used = 0

    def compute(
        self, batch: KeyedBatch, table: OrderedTable, room: Room, *, is_alone: bool = False
    ) -> dict[str, tuple[I64, Mask | None]]:
        """Return the columns by row of the table, and add the events to the state.

        `batch`: the events in order. There is a slot for each of its keys. `is_alone`: there is no earlier
        state, and none is kept. Then there are only slots for the keys of a block.
        """
        reads = self._reads(table, batch)
        if self.window.frame is Frame.TUMBLING and not self._is_given:
            batch = batch._replace(begins_us=window_begins(self.window, batch.time_us))
        batch = in_panes(self.window, batch)
        n = len(batch.time_us)
        n_out = 2 if self.is_set else len(self.columns)
        out, known = np.empty((n_out, n), np.int64), np.empty((n_out, n), np.uint8)
        ends = np.cumsum(np.diff(batch.starts) + 1) if is_alone else self._sizes(batch)
        first = 0
        while first < len(ends):
            first = self._compute_next(batch, reads, room, ends, first, out, known, is_alone=is_alone)
        room.shrink()
        found = {}
        for number, column in enumerate(self.columns):
            row = int(column.function is Function.SEEN) if self.is_set else number
            found[column.name] = table.by_row(out[row], known[row])
        return found

    def _sizes(self, batch: KeyedBatch) -> I64:
        """Return (keys,) int64: the number of new and kept entries of a batch, up to each key."""
        return np.cumsum(np.diff(batch.starts) + self._keys[batch.slots, at.LENGTH] + 1)

    def _compute_next(
        self,
        batch: KeyedBatch,
        reads: Reads,
        room: Room,
        ends: I64,
        first: int,
        out: I64,
        known: U8,
        *,
        is_alone: bool = False,
    ) -> int:
        """Compute the columns of some keys, from `first` on; return the next one. `ends`: see `_sizes`."""
        done = int(ends[first - 1]) if first else 0
        behind = max(int(np.searchsorted(ends, done + BLOCK, side="right")), first + 1)
        n_entries = int(ends[behind - 1]) - done
        n_events = int(batch.starts[behind] - batch.starts[first])
        room.make(n_entries, n_events, behind - first)
        if is_alone:
            self.clear()
            self.set_slots(behind - first)
            batch.slots[first:behind] = np.arange(behind - first)
        if self.spec[at.KEPT] != at.SUMS:
            self._make_room(n_entries + (n_entries >> 1) + 1)
        self._compute_block(batch, reads, room, first, behind, out, known)
        return behind

    def _reads(self, table: OrderedTable, batch: KeyedBatch | None = None) -> Reads:
        one = self.columns[0]
        none = np.zeros(0, np.uint8)
        values, known = np.zeros(0, np.int64), none
        if one.argument is not None:
            values, known = (
                table.cells(one.argument) if self.reads_values else (values, table.known(one.argument))
            )
        within = none if one.within is None else table.bits(one.within)
        counting = within
        if one.counts is not None:
            counting = table.bits(one.counts)
            if len(within):
                counting = counting & within
        if batch is not None and self.begins_us > START_OF_TIME_US:
            seen = (batch.time_us > self.begins_us).view(np.uint8)
            within, counting = (of & seen if len(of) else seen for of in (within, counting))
        counts_all = self.window.frame in (Frame.EVENTS, Frame.SESSION)
        return Reads(values, within if counts_all else none, counting, known)

    def _ring(self) -> Ring:
        return Ring(self.spec, self._keys, self._entries, self._meta)

    def _compute_block(
        self, batch: KeyedBatch, reads: Reads, room: Room, first: int, behind: int, out: I64, known: U8
    ) -> None:
        frames, keys = room.frames, np.array([first, behind], np.int64)
        if self.is_set:
            table = room.more(1 << (2 * room.n_entries).bit_length())
            set_windows(self._ring(), batch, reads, frames, table, out, known, keys)
            return
        frame_events(self._ring(), batch, reads, frames, first, behind)
        sums = [
            number for number, column in enumerate(self.columns) if column.function.kept.family is Family.SUMS
        ]
        if self._counts_entries:
            start, end = batch.starts[first], batch.starts[behind]
            n = end - start
            np.subtract(frames.last[:n], frames.first[:n], out=out[0, start:end])
            out[1:, start:end] = out[0, start:end]
            known[:, start:end] = 1
        elif sums:
            self._compute_sums(batch, room, keys, sums, out, known)
        for number, column in enumerate(self.columns):
            to, function = (out[number], known[number]), column.function.value.number
            match column.function.kept.family:
                case Family.EXTREMES:
                    queue = room.more(2, room.n_entries)
                    extreme_windows(self._ring(), batch, frames, queue, function, *to, keys)
                case Family.PLACES:
                    window_places(batch, frames, function, int(column.parameter), *to, keys)
                case Family.VALUES:
                    places = room.more(N_ROOM, room.n_entries + 1)
                    part = float(column.parameter)
                    percentile_windows(self._ring(), batch, frames, places, part, *to, keys)

    def _compute_sums(
        self, batch: KeyedBatch, room: Room, keys: I64, numbers: list[int], out: I64, known: U8
    ) -> None:
        # They come first: COUNT, SUM and AVG, then the functions of squares.
        functions = np.array([self.columns[number].function.value.number for number in numbers], np.int64)
        of_sums, of_known = out[: len(numbers)], known[: len(numbers)]
        first, behind = keys.tolist()
        n_entries, n_events = (
            room.frames.ends[behind - first - 1, 1],
            batch.starts[behind] - batch.starts[first],
        )
        if self._adds_up and n_entries < self.many_kept * n_events:
            of_keys = batch._replace(starts=batch.starts[first : behind + 1], slots=batch.slots[first:behind])
            if self.spec[at.KEPT] == at.SUMS:
                self._make_room((behind - first) * MOST_OF_HALVES)
            n_sums = int((functions < at.VARIANCE).sum())
            if n_sums and sum_by_prefixes(
                self._ring(),
                of_keys,
                room.frames,
                room.sums,
                functions[:n_sums],
                of_sums[:n_sums],
                of_known[:n_sums],
                room.more(room.n_entries + 1, 2),
            ):
                functions, of_sums, of_known = functions[n_sums:], of_sums[n_sums:], of_known[n_sums:]
            if len(functions) and functions[0] >= at.VARIANCE:
                prefixes = room.more(room.n_entries + 1, 5)
                if spread_by_prefixes(
                    self._ring(), of_keys, room.frames, functions, of_sums, of_known, prefixes
                ):
                    return
            if not len(functions):
                return
        done = first
        while True:
            part = np.array([first, done, behind], np.int64)
            done = sum_windows(
                self._ring(), batch, room.frames, room.sums, functions, of_sums, of_known, part
            )
            if done == behind:
                return
            self._make_room(_ROOM_OF_SUMS)

    def _make_room(self, needed: int) -> None:
        """Make room for this many entries after the last one."""
        if self._meta[0] + needed > len(self._entries):
            before = int(self._meta[0])
            self._move(needed)
            self._used += before - int(self._meta[0])

    def _move(self, needed: int) -> None:
        """Compact the entries, with room for this many more and for later ones."""
        entries = np.empty((2 * (self.n_entries + needed), 2), np.int64)
        self._meta[0] = move_entries(self._keys, self._entries, entries)
        self._entries = entries

    # ------------------------------------------------------------ keys

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        n = len(self._keys)
        if n_slots > n:
            if n_slots > len(self._room_of_keys):
                self._set_keys(self._keys, max(n_slots, n + (n >> 1)))
            self._keys = self._room_of_keys[:n_slots]
            self._keys[n:] = 0
            self._keys[n:, at.MARK] = self._first_mark

    def keep_slots(self, live: Mask) -> None:
        """Forget the keys that are not in `live`."""
        self._set_keys(self._keys[live])

    def clear(self) -> None:
        """Forget all keys."""
        self._set_keys(self._keys[:0])
        self._meta[0] = 0

    def _set_keys(self, keys: I64, n_slots: int = 0) -> None:
        """Set the keys; there is room for `n_slots`."""
        self._room_of_keys = in_lines(max(n_slots, len(keys)), keys.shape[1])
        self._room_of_keys[: len(keys)] = keys
        self._keys = self._room_of_keys[: len(keys)]

    def bound(self, watermark_us: int) -> int:
        """Return the least mark of a key, or time of an entry, that an event after the watermark can see."""
        if self._is_given:
            return at.NEVER  # such keys are closed
        match self.window.frame:
            case Frame.TIME | Frame.SESSION | Frame.HOPPING:
                first_us = watermark_us + 1
                if self.window.step_us:
                    first_us -= first_us % self.window.step_us
                return max(first_us - int(self.spec[at.SPAN]), at.NEVER)
            case Frame.TUMBLING:
                if not _FIRST_US < watermark_us < _LAST_US:
                    return at.NEVER if watermark_us < 0 else _LAST_US
                return int(window_begins(self.window, np.array([watermark_us + 1], np.int64))[0])
            case _:
                return at.NEVER

    def live(self, watermark_us: int) -> Mask:
        """Return which keys have state that an event after the watermark can see."""
        live: Mask = (self._keys[:, at.LENGTH] > 0) & (self._keys[:, at.MARK] >= self.bound(watermark_us))
        return live

    def expire(self, watermark_us: int) -> None:
        """Release what no event after the watermark can see. Entries are removed only occasionally."""
        if self.begins_us <= watermark_us:
            self.begins_us = START_OF_TIME_US
        self._bound = max(self._bound, self.bound(watermark_us))
        if self._bound - self._trimmed > self.window.length // _TRIMS:
            self._trim()

    def _trim(self) -> None:
        """Drop what is older than the bound."""
        self._trimmed = self._bound
        self._keys[self._keys[:, at.MARK] < self._bound, at.LENGTH] = 0
        if self.window.frame in (Frame.TIME, Frame.HOPPING):
            trim_entries(self._keys, self._entries, self._bound)
        self._pack()

    def close(self, is_open: Mask) -> None:
        """Release the state of keys that are not open."""
        self.set_slots(len(is_open))
        self._keys[~is_open, at.LENGTH] = 0
        self._pack()

    def _pack(self) -> None:
        """Compact the entries if few remain."""
        if self._meta[0] > _SPARSE * (int(self._keys[:, at.LENGTH].sum()) + BLOCK):
            self._move(BLOCK)

    # ------------------------------------------------------------ snapshots

    def stored(self) -> StoredRing:
        """Return the state."""
        if self.window.frame not in (Frame.EVENTS, Frame.ALL):
            self._trim()
        lengths = self._keys[:, at.LENGTH]
        order = np.empty(int(lengths.sum()), np.int64)
        list_entries(self._keys, order)
        keys = np.zeros((len(self._keys), 2), np.int64)
        holds = lengths > 0
        keys[:, 0] = lengths
        # The mark of a key without entries does not matter.
        keys[:, 1] = np.where(
            holds, self._keys[:, at.MARK], self._keys[holds, at.MARK].min(initial=at.NEVER * -1)
        )
        names = tuple(column.name for column in self.columns)
        begins = None if self.begins_us == START_OF_TIME_US else packed(np.array([[self.begins_us]]))
        return StoredRing(names, packed(keys), packed(self._entries, order), begins)

    def restore(self, stored: StoredRing, n_slots: int) -> None:
        """Restore what was stored. Raises ValueError: this window cannot have stored it."""
        if (stored.keys.n_rows, len(stored.keys.low), len(stored.entries.low)) != (n_slots, 2, 2):
            raise ValueError("the entries of a window do not fit its keys")
        keys = stored.keys.matrix()
        lengths = keys[:, 0]
        if (lengths < 0).any() or int(lengths.sum()) != stored.entries.n_rows:
            raise ValueError("the entries of a window do not fit its keys")
        entries = stored.entries.matrix()
        if not self._are_ours(lengths, entries):
            raise ValueError("what a window holds are no sums")
        if stored.begins is not None:
            self.begins_us = int(stored.begins.matrix()[0, 0])
        self._set_keys(np.zeros((n_slots, self._keys.shape[1]), np.int64))
        self._keys[:, at.LENGTH] = self._keys[:, at.CAPACITY] = lengths
        self._keys[:, at.START] = np.cumsum(lengths) - lengths
        self._keys[:, at.MARK] = np.where(lengths > 0, keys[:, 1], self._first_mark)
        self._entries = entries
        self._meta[0] = len(entries)

    def _are_ours(self, lengths: I64, entries: I64) -> bool:
        """Return whether the entries of all keys can be read."""
        return self.spec[at.KEPT] != at.SUMS or _are_sums(entries)

    def string_cells(self) -> tuple[I64, Mask]:
        """Return the cells of the entries, in place, and which of them hold the code of a string."""
        order = np.empty(int(self._keys[:, at.LENGTH].sum()), np.int64)
        list_entries(self._keys, order)
        used = self._entries[: int(self._meta[0])]
        holds = np.zeros(len(used), np.bool_)
        holds[order] = used[order, at.WORD] & 1 != 0
        return used[:, at.VALUE], holds

    @property
    def n_entries(self) -> int:
        """The number of entries of all keys; each takes 16 bytes."""
        return int(self._keys[:, at.LENGTH].sum())


_SPARSE = 4
"""If keys were given this many times more rows than they have entries, the entries are moved together."""

_ROOM_OF_SUMS = 4 * (at.N_TOTALS + at.N_SQUARES) + 4096
_FIRST_US, _LAST_US = -62_000_000_000_000_000, 253_400_000_000_000_000
"""Times of years that zones know."""


def _are_sums(entries: I64) -> bool:
    words, values = entries[:, at.WORD], entries[:, at.VALUE]
    chunks = values[words == CHUNKS]
    is_chunk = (words >= OF_TOTALS) & (words < OF_TOTALS + at.N_TOTALS)
    is_square = (words >= OF_SQUARES) & (words < OF_SQUARES + at.N_SQUARES)
    return bool(
        ((words >= 0) & (words < 5) | is_chunk | is_square).all()
        and ((chunks & 255 < at.N_TOTALS - 2) & (chunks >> 8 <= chunks & 255) & (chunks >= 0)).all()
    )
