"""SUPPRESS FOR: until when the matches of each key are not reported."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cep.arrays import I64
from cep.engine.kernels.selection import mark_suppressed
from cep.engine.state.packing import Packed, packed

_NEVER_US = np.iinfo(np.int64).min


def never_suppressed(n_slots: int) -> I64:
    """Return `Suppression.until_us` of keys without a match."""
    return np.full(n_slots, _NEVER_US)


class Suppression:
    """The state of one rule. Without SUPPRESS FOR (`length_us` is 0) it holds nothing.

    Parameters
    ----------
    length_us
        How long after the end of a match no other match of the key is reported.
    until_us
        For each key: the time before which a match that ends is not reported.
    """

    def __init__(self, length_us: int, until_us: I64 | None = None) -> None:
        self.length_us = length_us
        self.until_us = np.zeros(0, np.int64) if until_us is None else until_us
        self.n_suppressed = 0

    def stored(self) -> Packed:
        """Return `until_us`."""
        return packed(self.until_us.reshape(-1, 1))

    def set_slots(self, n_slots: int) -> None:
        """Make room for `n_slots` keys."""
        added = n_slots - len(self.until_us)
        if self.length_us and added > 0:
            self.until_us = np.concatenate((self.until_us, never_suppressed(added)))

    def keep_slots(self, kept: npt.NDArray[np.bool_]) -> None:
        """Forget the keys that are not in `kept`."""
        if self.length_us:
            self.until_us = self.until_us[kept]

    def matters(self, watermark_us: int) -> npt.NDArray[np.bool_] | bool:
        """Return for which keys the state can still suppress a match."""
        return self.until_us > watermark_us if self.length_us else False

    def reported(self, matches: I64) -> I64:
        """Return the rows of `matches` (in the order found) that are reported; count the others."""
        if not self.length_us:
            return matches
        suppressed = np.zeros(len(matches), np.uint8)
        self.n_suppressed += mark_suppressed(matches, self.until_us, self.length_us, suppressed)
        reported: I64 = matches[suppressed == 0]
        return reported
