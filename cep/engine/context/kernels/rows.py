"""Rows of a table by their keys: found and added by hashing, their values copied for events.

A key is found in an open-addressed hash table of row numbers (linear probing: Knuth, The Art of Computer
Programming 3, 6.4). Its own text or number is compared, so keys with equal hashes are told apart.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I32, I64, U8
from cep.engine.context.kernels.compiled import inlined, kernel

NUMBER, NULL = -1, -2
"""Lengths of keys that are no texts."""


@inlined
def _is_same(keys: I64, key: int, data: U8, records: I64, row: int, text: U8) -> bool:
    """Return whether a key is the one of a row; their hashes are the same."""
    length = keys[key, 2]
    if length != records[row, 2]:
        return False
    first, start = keys[key, 1], records[row, 1]
    if length == NUMBER:
        return first == start
    for at in range(length):
        if data[first + at] != text[start + at]:
            return False
    return True


@kernel
def place_keys(
    keys: I64, data: U8, records: I64, text: U8, index: I32, ends: I64, adds: bool, done: int, rows: I64
) -> int:
    """Find the rows of keys; add those that are not there, until there is no room.

    Parameters
    ----------
    keys : (m, 3) int64
        Of each key its hash, where its text begins in `data`, and the length of the text. Of a key that is a
        number: the number, and the length `NUMBER`. `NULL`: it has no row.
    data : (bytes,) uint8
        Texts of `keys`.
    records : (capacity, 3) int64
        The same of each row; its text is in `text`.
    text : (bytes,) uint8
        Texts of `records`.
    index : (2**k,) int32
        The row at each place, -1: none. At least twice as many places as rows.
    ends : (2,) int64
        How many rows there are, and how much of `text` is used; changed.
    adds : bool
        Whether keys are added.
    done : int
        So many keys are done.
    rows : (m,) int64
        The row of each key, -1: none; written.

    Returns
    -------
    How many keys are done; less than m: there is no room for the next one.
    """
    mask = index.shape[0] - 1
    for key in range(done, keys.shape[0]):
        if keys[key, 2] == NULL:
            rows[key] = -1
            continue
        place = keys[key, 0] & mask
        row = index[place]
        while row >= 0 and not (
            records[row, 0] == keys[key, 0] and _is_same(keys, key, data, records, row, text)
        ):
            place = (place + 1) & mask
            row = index[place]
        if row < 0 and adds:
            length = max(keys[key, 2], 0)
            new = ends[0]
            if new == records.shape[0] or 2 * new >= mask or ends[1] + length > text.shape[0]:
                return key
            records[new, 0], records[new, 2] = keys[key, 0], keys[key, 2]
            records[new, 1] = keys[key, 1] if keys[key, 2] == NUMBER else ends[1]
            for at in range(length):
                text[ends[1] + at] = data[keys[key, 1] + at]
            ends[0], ends[1] = new + 1, ends[1] + length
            index[place] = new
            rows[key] = new
        else:
            rows[key] = row
    return keys.shape[0]


@kernel
def index_rows(records: I64, n_rows: int, index: I32) -> None:
    """Write an index of rows, whose keys differ.

    Parameters
    ----------
    records : (capacity, 3) int64
        See `place_keys`.
    n_rows : int
        The number of rows.
    index : (2**k,) int32
        All -1; written.
    """
    mask = index.shape[0] - 1
    for row in range(n_rows):
        place = records[row, 0] & mask
        while index[place] >= 0:
            place = (place + 1) & mask
        index[place] = row


@kernel
def find_due(rows: I64, time_us: I64, first: I32, end: I64, due_us: I64, found: I64) -> None:
    """Find for each event the latest version at or before its time among those that are due.

    Parameters
    ----------
    rows : (n,) int64
        The row of the event's key, -1: none.
    time_us : (n,) int64
        The times of the events.
    first : (capacity,) int32
        The first version of each row that is due, -1: none is.
    end : (m,) int64
        Behind the last version of the row, at its first one.
    due_us : (m,) int64
        The times of the versions, of each row rising.
    found : (n,) int64
        The version, -1: none; written.
    """
    for event in range(rows.shape[0]):
        found[event] = -1
        if rows[event] >= 0 and first[rows[event]] >= 0:
            start = np.int64(first[rows[event]])
            low, high = start, end[start]
            while low < high:
                middle = (low + high) >> 1
                if due_us[middle] <= time_us[event]:
                    low = middle + 1
                else:
                    high = middle
            if low > start:
                found[event] = low - 1


@kernel
def copy_cells(cells: I64, known: U8, rows: I64, to: I64, to_known: U8) -> None:
    """Copy the cells of some rows.

    Parameters
    ----------
    cells : (capacity,) int64
        The cell of each row.
    known : (capacity,) uint8
        0: NULL.
    rows : (n,) int64
        Rows; -1: NULL.
    to : (n,) int64
        Written.
    to_known : (n,) uint8
        Written.
    """
    for place in range(rows.shape[0]):
        row = rows[place]
        if row < 0:
            to[place], to_known[place] = 0, 0
        else:
            to[place], to_known[place] = cells[row], known[row]


@kernel
def measure_texts(spans: I64, rows: I64, offsets: I64) -> None:
    """Write where the text of each of some rows begins if they lie one behind the other.

    Parameters
    ----------
    spans : (capacity, 3) int64
        Of each row: anything, where its text begins, and its length; below 0: it has none.
    rows : (n,) int64
        Rows; -1: none.
    offsets : (n + 1,) int64
        Written.
    """
    offsets[0] = 0
    for place in range(rows.shape[0]):
        length = 0
        if rows[place] >= 0:
            length = max(spans[rows[place], 2], 0)
        offsets[place + 1] = offsets[place] + length


@kernel
def copy_texts(spans: I64, text: U8, rows: I64, offsets: I64, to: U8) -> None:
    """Copy the texts of some rows.

    Parameters
    ----------
    spans : (capacity, 3) int64
        See `measure_texts`.
    text : (bytes,) uint8
        Texts of `spans`.
    rows : (n,) int64
        Rows; -1: none.
    offsets : (n + 1,) int64
        What `measure_texts` wrote.
    to : (bytes,) uint8
        Written.
    """
    for place in range(rows.shape[0]):
        target = offsets[place]
        n = offsets[place + 1] - target
        if n > 0:
            start = spans[rows[place], 1]
            for at in range(n):
                to[target + at] = text[start + at]
