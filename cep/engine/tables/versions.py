"""Versions of the rows of a table, sorted by key and time, and the search for the one valid at a time.

    versions = Versions.of(keys, times_us, is_deleted, values, seed)
    rows = versions.rows_at(sought, times_us)      # for all events at once

Keys are found by a 64-bit number (`KeyNumbers`): for integers the value itself, for strings a hash. The
versions of a key are next to each other, so the one valid at a time is found by bisection, for all events
together: an as-of merge of two streams without a Python step for each event or key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I32, I64, Mask
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.order.ordering import hash_column


class SameNumberError(Exception):
    """Two keys have the same number. Another seed avoids this."""


def key_numbers(keys: pa.Array, seed: int) -> I64:
    """Return (n,) int64: a number for each key; equal keys have equal numbers, integers their own."""
    if pa.types.is_string(keys.type):
        hashes = np.full(len(keys), seed, np.uint64)
        hash_column(keys, hashes)
        return hashes.view(np.int64)
    return np.asarray(keys.cast(pa.int64()))


@dataclass(frozen=True, slots=True)
class Sought:
    """The keys of n events.

    Parameters
    ----------
    keys
        The distinct keys, in the order of `numbers`.
    numbers : (n_keys,) int64
        Their numbers, in ascending order.
    codes : (n,) int64
        Which of the keys an event has; -1: one that is NULL.
    """

    keys: pa.Array
    numbers: I64
    codes: I64

    @property
    def has_same_numbers(self) -> bool:
        """Whether two of the keys have one number."""
        return bool((self.numbers[1:] == self.numbers[:-1]).any())

    @classmethod
    def of(cls, keys: pa.Array, seed: int) -> Sought:
        """Return the `keys` of events, NULL among them."""
        encoded = keys.dictionary_encode()
        codes = np.asarray(pc.fill_null(encoded.indices, -1)).astype(np.int64)
        return cls.of_codes(encoded.dictionary, codes, seed)

    @classmethod
    def of_codes(cls, keys: pa.Array, codes: I32 | I64, seed: int) -> Sought:
        """Return the distinct `keys`, and which of them each event has; -1: none."""
        numbers = key_numbers(keys, seed)
        order = np.argsort(numbers)  # near numbers are near in memory, too: a faster search
        places = np.empty(len(order) + 1, np.int64)
        places[order] = np.arange(len(order))
        places[-1] = -1
        return cls(keys.take(pa.array(order)), numbers[order], places[codes])


@dataclass(frozen=True, slots=True)
class Versions:
    """n versions in the order of key numbers, then of time; one for each key and time.

    Parameters
    ----------
    numbers : (n,) int64
        The number of each key.
    times_us : (n,) int64
        The time from which a version is valid.
    is_deleted : (n,) bool
        Whether the row is deleted from then on.
    values
        (n rows) The columns that rules read, by their names in the table.
    """

    keys: pa.Array
    numbers: I64
    times_us: I64
    is_deleted: Mask
    values: pa.Table
    has_one_each: bool = False

    @classmethod
    def of(
        cls,
        keys: pa.Array,
        times_us: I64,
        is_deleted: Mask,
        values: pa.Table,
        ties: tuple[pa.Array, ...],
        seed: int,
    ) -> Versions:
        """Return versions given in the order in which they arrived.

        Among versions of one key and time the last counts: by `ties` (NULL first), then by arrival. Raises
        SameNumberError: two keys have one number.
        """
        numbers = key_numbers(keys, seed)
        order = np.lexsort((times_us, numbers))
        sorted_numbers, sorted_us = numbers[order], times_us[order]
        is_same_key = sorted_numbers[1:] == sorted_numbers[:-1]
        is_same = is_same_key & (sorted_us[1:] == sorted_us[:-1])
        if ties and is_same.any():
            order = by_ties(order, is_same, ties)
        sorted_keys = keys.take(pa.array(order))
        _check_distinct(sorted_keys, is_same_key)
        is_last = np.append(~is_same, True)[: len(order)]
        order = order[is_last]
        return cls(
            sorted_keys.filter(pa.array(is_last)),
            sorted_numbers[is_last],
            sorted_us[is_last],
            is_deleted[order],
            values.take(pa.array(order)).combine_chunks(),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def rows_at(self, sought: Sought, times_us: I64) -> I64:
        """Return for each event the row of the version of its key that was valid at its time; -1: none.

        Parameters
        ----------
        sought
            The keys of n events.
        times_us : (n,) int64
            Their times. A version of the same time is valid.

        Returns
        -------
        (n,) int64
        """
        first, end = self._bounds(sought)
        rows = np.full(len(sought.codes), -1, np.int64)
        has_some = np.append(end > first, False)  # NULL keys have none
        places = np.flatnonzero(has_some[sought.codes])
        codes, times_us = sought.codes[places], times_us[places]
        start = first[codes]
        low, high = start, end[codes]
        for _ in range(int((end - first).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            is_valid = (middle < high) & (self.times_us[np.minimum(middle, len(self) - 1)] <= times_us)
            low = np.where(is_valid, middle + 1, low)
            high = np.where(is_valid, high, middle)
        rows[places] = np.where(low > start, low - 1, -1)
        return rows

    def _bounds(self, sought: Sought) -> tuple[I64, I64]:
        """Return (n_keys,) int64 twice: the first row with each of the distinct keys, and the end of its
        rows.

        Both are equal for a missing key.
        """
        n_keys = len(sought.numbers)
        first, end = np.zeros(n_keys, np.int64), np.zeros(n_keys, np.int64)
        if len(self) < n_keys and not sought.has_same_numbers:  # the few are sought among the many
            is_first = np.append(True, self.numbers[1:] != self.numbers[:-1])[: len(self)]
            starts = np.flatnonzero(is_first)
            numbers = self.numbers[starts]
            places = np.minimum(np.searchsorted(sought.numbers, numbers), n_keys - 1)
            is_there = sought.numbers[places] == numbers
            places = places[is_there]
            first[places] = starts[is_there]
            end[places] = np.append(starts[1:], len(self))[is_there]
        elif n_keys and len(self):
            first = np.searchsorted(self.numbers, sought.numbers, "left")
            if self.has_one_each:
                end[:] = first
                end += self.numbers[np.minimum(first, len(self) - 1)] == sought.numbers
            else:
                end = np.searchsorted(self.numbers, sought.numbers, "right")
            places = np.flatnonzero(end > first)
        else:
            return first, end
        if pa.types.is_string(self.keys.type) and len(places):  # another key may have the number
            own = self.keys.take(pa.array(first[places]))
            is_other = ~np.asarray(pc.equal(own, sought.keys.take(pa.array(places))))
            end[places[is_other]] = first[places[is_other]]
        return first, end

    def last_of_each(self) -> Versions:
        """Return the last version of each key, with a time before all events."""
        is_last = np.append(self.numbers[1:] != self.numbers[:-1], True)[: len(self)]
        found = self._only(is_last)
        return replace(found, times_us=np.full(len(found), START_OF_TIME_US), has_one_each=True)

    def _only(self, chosen: Mask) -> Versions:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return Versions(
            self.keys.filter(mask),
            self.numbers[chosen],
            self.times_us[chosen],
            self.is_deleted[chosen],
            self.values.filter(mask).combine_chunks(),
            self.has_one_each,
        )


def _check_distinct(keys: pa.Array, is_same: Mask) -> None:
    """Raise SameNumberError if adjacent keys differ although their numbers are equal."""
    if pa.types.is_string(keys.type) and is_same.any():
        places = np.flatnonzero(is_same)
        same = pc.equal(keys.take(pa.array(places)), keys.take(pa.array(places + 1)))
        if not pc.all(same).as_py():
            raise SameNumberError


def by_ties(order: I64, is_same: Mask, ties: tuple[pa.Array, ...]) -> I64:
    """Return `order` with the versions of one key and time in the order of `ties`, NULL first."""
    tied = np.append(is_same, False)
    tied[1:] |= is_same
    places = np.flatnonzero(tied)
    group = np.cumsum(np.append(True, ~is_same))[places]
    columns: dict[str, object] = {"group": group}
    for number, tie in enumerate(ties):
        column = tie.take(pa.array(order[places]))
        columns[f"known{number}"] = pc.is_valid(column)
        columns[f"tie{number}"] = column
    columns["arrival"] = order[places]
    by = pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns])
    result = order.copy()
    result[places] = order[places][np.asarray(by)]
    return result
