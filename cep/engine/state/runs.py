"""The pool of open runs of one rule: how the arrays of the kernels are created, enlarged and compacted.

A run is a row of `runs`, because an event moves few runs and reads most of their fields. Rows that were never
used are untouched zeros, so they take no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.run_lists import link_free, link_runs, list_runs
from cep.engine.state.packing import Packed, nothing, packed
from cep.program.opcodes import SelectionCode, SkipCode
from cep.program.program import RuleProgram


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """The open runs of one rule without the pool: key by key, in the order of each key's list."""

    keys: Packed  # (n_slots, columns of `keys` from N_RUNS on)
    rows: Packed  # (total, columns of `runs` from STATE on)


@dataclass(frozen=True, slots=True)
class RunPool:
    """Open runs of all keys: the arrays `runs`, `keys` and `meta` of `cep.engine.kernels`."""

    runs: I64  # (rows, REGISTER + n_registers); one row is for trying takes
    keys: I64  # (n_slots, HEAD and the columns of `StoredRuns.keys`)
    meta: I64  # (N_META,)
    room: I64 | None = None  # the array that starts with `keys`, if it is longer; new keys need no copy then

    @property
    def total(self) -> int:
        """Number of open runs of all keys."""
        return int(self.keys[:, at.N_RUNS].sum())

    @property
    def n_dropped(self) -> int:
        """Runs dropped at the limit so far."""
        return int(self.meta[at.DROPPED])

    def live_rows(self) -> I64:
        """Return the rows of the open runs, key by key, in order."""
        order = np.empty(self.total, np.int64)
        list_runs(self.runs, self.keys, order)
        return order

    def stored(self) -> StoredRuns:
        """Return the open runs in order."""
        return StoredRuns(
            packed(self.keys, first=at.N_RUNS), packed(self.runs, self.live_rows(), first=at.STATE)
        )

    def with_slots(self, n_slots: int) -> RunPool:
        """Return the same pool with room for `n_slots` keys."""
        n = len(self.keys)
        if n_slots <= n:
            return self
        room = self.keys if self.room is None else self.room
        if n_slots > len(room):
            room = _empty_keys(max(n_slots, n + (n >> 2)), self.keys.shape[1])
            room[:n] = self.keys
        return replace(self, keys=room[:n_slots], room=room)

    def with_keys(self, kept: npt.NDArray[np.bool_]) -> RunPool:
        """Return the pool with only the keys of `kept`; the others have no runs."""
        pool = RunPool(self.runs, self.keys[kept], self.meta)
        if pool.meta[at.USED] < _SPARSE * max(pool.total, _FIRST_CAPACITY):
            return pool
        return make_pool(pool.stored(), 2 * pool.total, pool.meta)

    def without(self, dropped: npt.NDArray[np.bool_]) -> tuple[RunPool, I64]:
        """Return the pool without some runs, which count as dropped, and how many each key loses.

        `dropped` (bool[total]) refers to the runs in the order of `live_rows`.
        """
        slots = np.repeat(np.arange(len(self.keys)), self.keys[:, at.N_RUNS])
        lost = np.bincount(slots[dropped], minlength=len(self.keys))
        keys, meta = self.keys.copy(), self.meta.copy()
        keys[:, at.N_RUNS] -= lost
        meta[at.DROPPED] += int(lost.sum())
        rows = self.live_rows()[~dropped]
        runs = np.zeros((max(2 * len(rows), _FIRST_CAPACITY) + 1, self.runs.shape[1]), np.int64)
        runs[: len(rows)] = self.runs[rows]
        link_runs(runs, keys, meta)
        pool = RunPool(runs, keys, meta)
        pool.link_free(0)
        return pool, lost

    def with_room(self, n_free: int) -> RunPool:
        """Return a pool of the same runs with `n_free` free rows; if it must grow, its size doubles."""
        pool = self
        used = int(self.meta[at.USED])
        if used + n_free > len(self.runs):
            runs = np.zeros((max(2 * len(self.runs), used + n_free), self.runs.shape[1]), np.int64)
            runs[:used] = self.runs[:used]
            pool = replace(self, runs=runs)
        pool.link_free(n_free)
        return pool

    def link_free(self, n_free: int) -> None:
        """Put `n_free` rows that were never used on the free list, if that many exist.

        Other unused rows are left alone, because untouched memory costs nothing.
        """
        link_free(self.runs, self.meta, min(int(self.meta[at.USED]) + max(n_free, _LINKED), len(self.runs)))

    def string_cells(self, register: int) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Return the cells of a register, in place, and which of them hold a value of an open run."""
        holds = np.zeros(len(self.runs), np.bool_)
        rows = self.live_rows()
        holds[rows] = self.runs[rows, at.VALID] >> register & 1 != 0
        return self.runs[:, at.REGISTER + register], holds


_FIRST_CAPACITY = 64

_LINKED = 4096
"""Rows that are put on the free list together."""

_SPARSE = 8
"""When keys are forgotten, a pool with this many times more rows than runs is made anew."""


_FORGOTTEN = np.iinfo(np.int64).min // 2
"""Time and number of a remembered event before there is one."""


def _empty_keys(n_slots: int, width: int) -> I64:
    keys = np.zeros((n_slots, width), np.int64)
    keys[:, at.HEAD] = keys[:, at.TAIL] = at.NONE
    keys[:, at.EARLIEST_US : at.EARLIEST_US + 1] = at.NEVER
    keys[:, at.LAST_MET :] = _FORGOTTEN
    return keys


def n_registers(rule: RuleProgram) -> int:
    """Return the width of the register rows; at least one, so arrays are never empty."""
    return max(len(rule.registers), 1)


def key_width(rule: RuleProgram) -> int:
    """Return the number of columns of a key."""
    return at.LAST_MET + 2 * len(rule.tables.last_variable) if rule.is_timed else at.N_RUNS + 1


def make_pool(stored: StoredRuns, capacity: int, meta: I64 | None = None) -> RunPool:
    """Return a pool of at least `capacity` runs that holds `stored`; counters in `meta` are carried over."""
    total = stored.rows.n_rows
    n_rows = max(capacity, total, _FIRST_CAPACITY) + 1
    runs = np.zeros((n_rows, at.STATE + len(stored.rows.low)), np.int64)
    stored.rows.fill(runs, at.STATE)
    keys = np.zeros((stored.keys.n_rows, at.N_RUNS + len(stored.keys.low)), np.int64)
    stored.keys.fill(keys, at.N_RUNS)
    counters = np.zeros(at.N_META, np.int64) if meta is None else meta.copy()
    if meta is None and total:  # instants continue, because pending matches are ordered by theirs
        counters[at.INSTANT] = _last_instant(runs[:total], stored)
    link_runs(runs, keys, counters)
    pool = RunPool(runs, keys, counters)
    pool.link_free(0)
    return pool


def _last_instant(runs: I64, stored: StoredRuns) -> int:
    """Return the last instant at which a PENDING run completed."""
    if stored.rows.low[0] > at.PENDING:  # the lowest value of the column STATE
        return 0
    is_pending = runs[:, at.STATE] == at.PENDING
    return int(runs[is_pending, runs.shape[1] - at.AT_INSTANT].max())


def no_runs(rule: RuleProgram, n_slots: int = 0) -> StoredRuns:
    """Return the state of a rule before the first event, with room for `n_slots` keys."""
    keys = packed(_empty_keys(n_slots, key_width(rule)), first=at.N_RUNS)
    return StoredRuns(keys, nothing(row_width(rule)))


def holds(rule: RuleProgram) -> bool:
    """Return whether complete runs of the rule can wait for their turn, or for the end of the instant."""
    waits = rule.selection == SelectionCode.ALL and rule.skip != SkipCode.NO_SKIP
    return waits or rule.selection == SelectionCode.PREFERRED or rule.timeouts


def row_width(rule: RuleProgram) -> int:
    """Return the number of 64-bit fields stored for each open run."""
    n_clocks = at.GROUP_CLOCK + len(rule.tables.group_us) if rule.is_timed else 0
    return at.REGISTER - at.STATE + n_registers(rule) + n_clocks + (at.N_HOLDING if holds(rule) else 0)


def new_matches(rule: RuleProgram, capacity: int) -> I64:
    """Return room for `capacity` matches."""
    return np.zeros((capacity, at.MATCH_REGISTER + row_width(rule) - (at.REGISTER - at.STATE)), np.int64)


def new_stack(rule: RuleProgram) -> I64:
    """Return an operand stack that is deep enough for the rule's longest code."""
    return np.zeros(int(np.diff(rule.tables.code_ptr).max(initial=0)) + 2, np.int64)


def fan_out(rule: RuleProgram) -> int:
    """Return the largest number of runs that one run can become at one event, pending timeouts included."""
    tables = rule.tables
    sizes = np.diff(tables.after_ptr)
    takes = sizes[tables.take_after]
    by_take = max(int(takes[a:b].sum()) for a, b in pairwise(tables.take_ptr))
    by_time = int(sizes[tables.state_absence_after[tables.state_absence >= 0]].max(initial=0))
    largest = max(by_take, by_time) + 1
    return 2 * largest if rule.timeouts else largest
