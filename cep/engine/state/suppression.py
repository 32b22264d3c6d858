"""SUPPRESS: which matches of a key are not reported because of earlier ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cep.arrays import I64, Mask
from cep.engine.kernels import layout as at
from cep.engine.kernels.selection import mark_suppressed
from cep.engine.state.packing import Packed, packed

_NEVER_US = np.iinfo(np.int64).min

_DAY_US = 86_400_000_000

_COUNT_BITS = 20
"""The lower bits of a number by key, which count; a rule may report up to a million matches a day."""

_COUNT_MASK = (1 << _COUNT_BITS) - 1


def never_suppressed(n_slots: int) -> I64:
    """Return `Suppression.until_us` of keys without a match."""
    return np.full(n_slots, _NEVER_US)


class Suppression:
    """The state of one rule. Without SUPPRESS (`length_us` and `n_per_day` are 0) it holds nothing.

    - `length_us`: how long after the end of a match no other match of the key is reported.
    - `n_per_day`: how many matches of a key that end in one day are reported at most.
    - `until_us`: for each key: the time before which a match that ends is not reported. With `n_per_day`, it
      is a different number: its lower `_COUNT_BITS` say how many matches were reported on the last day with a
      match, and the bits above say which day that is.
    """

    def __init__(self, length_us: int, n_per_day: int = 0, until_us: I64 | None = None) -> None:
        self.length_us = length_us
        self.n_per_day = n_per_day
        self.until_us = np.zeros(0, np.int64) if until_us is None else until_us
        self.n_suppressed = 0

    @property
    def _exists(self) -> bool:
        return bool(self.length_us or self.n_per_day)

    def stored(self) -> Packed:
        """Return `until_us`."""
        return packed(self.until_us.reshape(-1, 1))

    def ends_us(self, slot: int) -> int:
        """Return the time before which a match of a key that ends is not reported, as far as is known now."""
        number = int(self.until_us[slot])
        if not self.n_per_day:
            return number
        day, count = number >> _COUNT_BITS, number & _COUNT_MASK
        return (day + (count >= self.n_per_day)) * _DAY_US

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        added = n_slots - len(self.until_us)
        if self._exists and added > 0:
            self.until_us = np.concatenate((self.until_us, never_suppressed(added)))

    def keep_slots(self, kept: npt.NDArray[np.bool_]) -> None:
        """Forget the keys that are not in `kept`."""
        if self._exists:
            self.until_us = self.until_us[kept]

    def matters(self, watermark_us: int) -> npt.NDArray[np.bool_] | bool:
        """Return the keys for which the state can still suppress a match."""
        if self.n_per_day:
            return (self.until_us >> _COUNT_BITS) >= watermark_us // _DAY_US
        return self.until_us > watermark_us if self.length_us else False

    def reported(self, matches: I64) -> I64:
        """Return the rows of `matches` (in the order found) that are reported; count the others."""
        if not self._exists:
            return matches
        if self.n_per_day:
            suppressed = self._beyond_day(matches)
            self.n_suppressed += int(suppressed.sum())
        else:
            marks = np.zeros(len(matches), np.uint8)
            self.n_suppressed += mark_suppressed(matches, self.until_us, self.length_us, marks)
            suppressed = marks != 0
        reported: I64 = matches[~suppressed]
        return reported

    def _beyond_day(self, matches: I64) -> Mask:
        """Return which matches are one too many on their day, never timeouts; count the others.

        A match that ends on an earlier day than one found before it counts on the later day.
        """
        suppressed = np.zeros(len(matches), np.bool_)
        rows = np.flatnonzero(matches[:, at.MATCH_TIMED_OUT] == 0)
        rows = rows[np.argsort(matches[rows, at.MATCH_SLOT], kind="stable")]
        if not len(rows):
            return suppressed
        slots, first = np.unique(matches[rows, at.MATCH_SLOT], return_index=True)
        number = np.repeat(np.arange(len(slots)), np.diff([*first.tolist(), len(rows)]))
        known_days, known_counts = self.until_us[slots] >> _COUNT_BITS, self.until_us[slots] & _COUNT_MASK
        days = np.maximum(matches[rows, at.MATCH_END] // _DAY_US, known_days[number])
        # The greatest day so far of each key: of all keys together, because a key's number counts more.
        width = np.int64(days.max() - days.min() + 1)
        ranked = np.maximum.accumulate(days - days.min() + number * width)
        begins = np.flatnonzero(np.diff(ranked, prepend=-1))
        in_day = np.arange(len(rows)) - np.repeat(begins, np.diff([*begins.tolist(), len(rows)]))
        days = ranked % width + days.min()
        before = np.where(days == known_days[number], known_counts[number], 0)
        counted = before + in_day
        suppressed[rows] = counted >= self.n_per_day
        last = np.append(first[1:], len(rows)) - 1
        total = np.minimum(counted[last] + 1, self.n_per_day)
        self.until_us[slots] = (days[last] << _COUNT_BITS) | total
        return suppressed
