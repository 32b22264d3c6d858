"""Windows without events, of the keys that a table contains from the window's start to its end (FOR EACH).

    presence.take_in(rows)                       # due versions
    presence.place(slots_of)                     # their keys get slots
    silent = silent_windows(window, presence.stays(n_slots), after_us, until_us)
    presence.settle()

All windows of a step are one list, the grid. The windows of a key are stretches of it, so there is no
separate work for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cep.arrays import I32, I64, Mask
from cep.engine.order.ordering import key_values, numbered
from cep.engine.prepare.columns import whole
from cep.engine.tables.versions import Versions
from cep.engine.windows.kernels.layout import NEVER
from cep.engine.windows.tumbling import window_begins, window_ends
from cep.errors import InputError
from cep.program.program import TIME_COLUMN, Program
from cep.program.tables import VERSION_COLUMN
from cep.program.windows import Frame, Window

SlotsOf = Callable[[pa.Table, pa.Array, I64], I32]
"""Takes rows, their distinct keys, and a row with each; returns the slots of the keys."""

_FOR_EVER_US = np.iinfo(np.int64).max

_MOST_OF_KEY = 1 << 22
"""Windows that may end in one step, of a key."""

_MOST_OF_STEP = 1 << 27
"""Windows without events that there may be in one step, of all keys."""


@dataclass(frozen=True, slots=True)
class Stays:
    """n stretches of time in which keys are in a table, in order for each key.

    `to_us` is when the row was deleted, and beyond all times if it still exists.
    """

    slots: I64  # (n,)
    from_us: I64  # (n,)
    to_us: I64  # (n,)


class Presence:
    """The keys that one table of a program contains, and since when, as of the watermark."""

    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.number = number
        self.since_us = np.zeros(0, np.int64)  # by slot; NEVER: the key is not in the table
        self._rows: pa.Table | None = None
        self._slots = self._times_us = np.zeros(0, np.int64)
        self._is_deleted = np.zeros(0, np.bool_)

    def take_in(self, rows: pa.Table) -> None:
        """Add due versions: prepared rows of any tables."""
        is_own = np.abs(np.asarray(whole(rows.column(VERSION_COLUMN)))) == self.number + 1
        self._rows = rows.filter(pa.array(is_own)).combine_chunks() if is_own.any() else None

    def place(self, slots_of: SlotsOf) -> None:
        """Assign slots to the keys of the added versions."""
        rows, self._rows = self._rows, None
        if rows is None:
            return
        joined = self.program.joins.tables[self.number]
        codes, keys, first_rows, _ = numbered(key_values(rows, self.program.key_columns))
        slots = slots_of(rows, keys, first_rows)
        prepared = dict(joined.values)
        versions = Versions.of(
            pa.array(codes.astype(np.int64)),
            np.asarray(whole(rows.column(TIME_COLUMN))),
            np.asarray(whole(rows.column(VERSION_COLUMN))) < 0,
            rows.select([TIME_COLUMN]),
            tuple(whole(rows.column(prepared[name])) for name in joined.table.tie_break),
            seed=0,
        )
        self._slots = slots[versions.numbers].astype(np.int64)
        self._times_us, self._is_deleted = versions.times_us, versions.is_deleted

    def stays(self, n_slots: int) -> Stays:
        """Return when the keys that are in the table now, or were in it during this step, are in it."""
        self.set_slots(n_slots)
        if not len(self._slots):
            there = np.flatnonzero(self.since_us != NEVER)
            return Stays(there, self.since_us[there], np.full(len(there), _FOR_EVER_US))
        has_new = np.zeros(n_slots, np.bool_)
        has_new[self._slots] = True
        is_there = self.since_us != NEVER
        same, before = np.flatnonzero(is_there & ~has_new), np.flatnonzero(is_there & has_new)
        slots = np.concatenate((before, self._slots))
        times_us = np.concatenate((self.since_us[before], self._times_us))
        is_deleted = np.concatenate((np.zeros(len(before), np.bool_), self._is_deleted))
        order = np.lexsort((times_us, slots))
        slots, times_us, is_deleted = slots[order], times_us[order], is_deleted[order]
        was_there = np.zeros(len(slots), np.bool_)
        was_there[1:] = ~is_deleted[:-1] & (slots[1:] == slots[:-1])
        # For each key, arrivals and departures alternate, starting with an arrival.
        turns = np.flatnonzero(is_deleted == was_there)
        goes = is_deleted[turns]
        to_us = np.full(len(turns), _FOR_EVER_US)
        to_us[:-1][goes[1:]] = times_us[turns[1:][goes[1:]]]
        comes = ~goes
        return Stays(
            np.concatenate((same, slots[turns[comes]])),
            np.concatenate((self.since_us[same], times_us[turns[comes]])),
            np.concatenate((np.full(len(same), _FOR_EVER_US), to_us[comes])),
        )

    def settle(self) -> None:
        """Make the added versions the current ones, as of the watermark."""
        if not len(self._slots):
            return
        stays = self.stays(len(self.since_us))
        is_last = stays.to_us == _FOR_EVER_US
        self.since_us[self._slots] = NEVER
        self.since_us[stays.slots[is_last]] = stays.from_us[is_last]
        self._slots = self._times_us = np.zeros(0, np.int64)
        self._is_deleted = np.zeros(0, np.bool_)

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        if n_slots > len(self.since_us):
            more = np.full(n_slots - len(self.since_us), NEVER, np.int64)
            self.since_us = np.concatenate((self.since_us, more))

    @property
    def first_us(self) -> int | None:
        """The time since which the oldest key is in the table; None: there is no key."""
        there = self.since_us[self.since_us != NEVER]
        return int(there.min()) if len(there) else None


@dataclass(frozen=True, slots=True)
class SilentWindows:
    """Windows that end in a step during stays of keys: for each of n stays a stretch of the grid.

    These include windows with events.
    """

    begins_us: I64  # (m,) the grid: windows in order
    ends_us: I64  # (m,)
    slots: I64  # (n,) in order for each key
    first: I64  # (n,) the place of the first window in the grid
    behind: I64  # (n,) the place after the last one

    def counts(self, n_slots: int) -> I64:
        """Return (n_slots,): how many windows each key has."""
        counts = np.zeros(n_slots, np.int64)
        np.add.at(counts, self.slots, self.behind - self.first)
        return counts

    def without(self, slots: I64, n_slots: int, codes: I64, start_us: I64) -> tuple[I64, I64]:
        """Return the windows of some keys, except those with events.

        Parameters
        ----------
        slots : (k,) int64
            The keys.
        codes, start_us : (e,) int64
            Windows with events: the place of their key in `slots`, and their starts.

        Returns
        -------
        (w,) int64 twice: the place of the key in `slots`, in ascending order, and the place in the grid.
        """
        place_of = np.full(n_slots, -1, np.int64)
        place_of[slots] = np.arange(len(slots))
        places = place_of[self.slots]
        own = np.flatnonzero(places >= 0)
        own = own[np.argsort(places[own], kind="stable")]
        first, n = self.first[own], self.behind[own] - self.first[own]
        windows = np.arange(int(n.sum())) + np.repeat(first - (np.cumsum(n) - n), n)
        keys = np.repeat(places[own], n)
        numbers = keys * len(self.begins_us) + windows  # they rise
        in_grid = np.minimum(np.searchsorted(self.begins_us, start_us), len(self.begins_us) - 1)
        is_in_grid = self.begins_us[in_grid] == start_us
        with_events = (codes * len(self.begins_us) + in_grid)[is_in_grid]
        is_silent = np.ones(len(numbers), np.bool_)
        if len(numbers):
            found = np.minimum(np.searchsorted(numbers, with_events), len(numbers) - 1)
            is_silent[found[numbers[found] == with_events]] = False
        return keys[is_silent], windows[is_silent]


def silent_windows(window: Window, stays: Stays, after_us: int, until_us: int) -> SilentWindows | None:
    """Return the windows in stays that end after `after_us` and at or before `until_us`; None: no window.

    Raises InputError: there are too many windows (E0622).
    """
    if not len(stays.slots):
        return None
    after_us = max(after_us, int(stays.from_us.min()))
    until_us = min(until_us, int(stays.to_us.max()))
    if after_us >= until_us:
        return None
    n_windows = (until_us - after_us) // (window.every_us or window.length)
    if n_windows > _MOST_OF_KEY:
        raise _too_many(n_windows, after_us, until_us)
    begins_us, ends_us = _grid(window, after_us, until_us)
    first = np.searchsorted(begins_us, stays.from_us)
    behind = np.searchsorted(ends_us, stays.to_us, side="right")
    has_some: Mask = behind > first
    if not has_some.any():
        return None
    found = SilentWindows(begins_us, ends_us, stays.slots[has_some], first[has_some], behind[has_some])
    n_windows = int((found.behind - found.first).sum())
    if n_windows > _MOST_OF_STEP:
        raise _too_many(n_windows, after_us, until_us)
    return found


def last_between_ends(windows: Iterable[Window], times_us: I64) -> I64:
    """Return the last of some times in each stretch from one end of a window to the next.

    Some of the times may be late, which depends on the watermark. The first time after it, and the first
    returned time after it, are between the same ends. So either shows which windows end after it.

    Parameters
    ----------
    windows
        Tumbling and hopping windows.
    times_us : (n,) int64
        Microseconds since 1970.

    Returns
    -------
    (m,) int64, rising.
    """
    times_us = np.unique(times_us)
    is_last = np.zeros(len(times_us), np.bool_)
    for window in windows:
        if window.frame is Frame.HOPPING:
            stretches = (times_us - window.length - window.offset_us) // window.every_us
        else:
            stretches = window_begins(window, times_us)
        is_last |= np.append(stretches[1:] != stretches[:-1], True)
    return times_us[is_last]


def next_silent_end_us(window: Window, since_us: int, after_us: int) -> int:
    """Return the end of the first window that ends after `after_us` and starts at or after `since_us`."""
    if window.frame is Frame.HOPPING:
        of_end = (after_us - window.length - window.offset_us) // window.every_us + 1
        of_begin = -((window.offset_us - since_us) // window.every_us)
        return max(of_end, of_begin) * window.every_us + window.offset_us + window.length
    begins_us = window_begins(window, np.array([max(since_us, after_us)]))
    ends_us = window_ends(window, begins_us)
    return int((ends_us if begins_us[0] >= since_us else window_ends(window, ends_us))[0])


def _grid(window: Window, after_us: int, until_us: int) -> tuple[I64, I64]:
    """Return starts and ends of the windows that end after `after_us` and at or before `until_us`."""
    if window.zone:
        return _grid_of_zone(window, after_us, until_us)
    every_us = window.every_us or window.length
    low, high = ((us - window.length - window.offset_us) // every_us for us in (after_us, until_us))
    begins_us = np.arange(low + 1, high + 1) * every_us + window.offset_us
    return begins_us, begins_us + window.length


def _grid_of_zone(window: Window, after_us: int, until_us: int) -> tuple[I64, I64]:
    times_us = np.append(np.arange(after_us, until_us, window.length), until_us)
    begins_us = np.unique(window_begins(window, times_us))
    while True:
        ends_us = window_ends(window, begins_us)
        # Where clocks are changed, a window may be too short to contain one of the times above.
        missing = ends_us[:-1][ends_us[:-1] != begins_us[1:]]
        if not len(missing):
            break
        begins_us = np.unique(np.concatenate((begins_us, missing)))
    ends_here = (ends_us > after_us) & (ends_us <= until_us)
    return begins_us[ends_here], ends_us[ends_here]


def _too_many(n_windows: int, after_us: int, until_us: int) -> InputError:
    after, until = (str(np.datetime64(us, "us")) for us in (after_us, until_us))
    return InputError(
        "E0622",
        f"event time goes from {after} to {until} at once, there are {n_windows:,} windows without events",
        "check whether an event or a version has a wrong time; else write longer windows after WINDOW",
    )
