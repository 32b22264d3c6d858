"""When the open runs of a rule end by time, known for blocks of keys, so that no other key is visited."""

from __future__ import annotations

import numpy as np

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.clocks import expire_all, note_deadlines
from cep.engine.kernels.windows import close_all, note_closes
from cep.program.program import RuleProgram

_MANY, _FEW = 8, 128
"""With more events than one for so many keys, and more than a few, all keys are visited once instead."""

_UNKNOWN = np.iinfo(np.int64).min


class Deadlines:
    """For each block of keys, a time before which no run of these keys ends by time.

    `fan_out`: how many runs one run can become.
    """

    def __init__(self, rule: RuleProgram, fan_out: int) -> None:
        self.exist = rule.is_timed or rule.span_us >= 0
        self._is_timed = rule.is_timed
        self._fan_out = fan_out
        self._times = np.zeros(0, np.int64)
        self._are_known = False

    def forget(self) -> None:
        """Compute all times again when they are next needed, because keys have moved."""
        self._are_known = False

    def note(self, pool: at.Pool, events: I64, rows: I64) -> None:
        """Include the runs of the keys that had events: those in columns `rows` of `events`."""
        if not self.exist or not self._are_known:
            return
        if len(rows) > max(len(pool.keys) // _MANY, _FEW):
            self._are_known = False
        else:
            self._note(pool, events[at.SLOT, rows])

    def first(self, pool: at.Pool) -> int:
        """Return the first time at which a run may end by time; `NEVER`: none does."""
        if not self.exist:
            return at.NEVER
        if not self._are_known:
            self._times, self._are_known = np.zeros(0, np.int64), True
            self._note(pool, np.arange(len(pool.keys)))
        while len(self._times):
            block = int(self._times.argmin())
            first = int(self._times[block])
            # An event may have ended the run whose time this was.
            self._times[block] = at.NEVER
            self._note(pool, np.arange(block * at.BLOCK, min((block + 1) * at.BLOCK, len(pool.keys))))
            if self._times[block] == first:
                return first
        return at.NEVER

    def close(self, pool: at.Pool, first: int, bound_us: int) -> int:
        """End the runs up to `bound_us`, from slot `first` on. Return the slot at which room is needed, or
        the number of slots.
        """
        if not self._are_known:
            self._times = np.full(_n_blocks(pool), _UNKNOWN)
            self._are_known = True
        if self._is_timed:
            return int(expire_all(pool, self._times, first, bound_us, self._fan_out))
        return int(close_all(pool, self._times, first, bound_us))

    def _note(self, pool: at.Pool, slots: I64) -> None:
        added = _n_blocks(pool) - len(self._times)
        if added > 0:
            self._times = np.concatenate((self._times, np.full(added, at.NEVER)))
        note = note_deadlines if self._is_timed else note_closes
        note(pool, self._times, slots)


def _n_blocks(pool: at.Pool) -> int:
    return -(-len(pool.keys) // at.BLOCK)
