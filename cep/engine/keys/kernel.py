"""Rows of a table by their keys: found and added by hashing, their values copied for events.

A key is found in an open-addressed hash table of row numbers (linear probing: Knuth, The Art of Computer
Programming 3, 6.4). The text or number itself is compared, which distinguishes keys with equal hashes.

These parameters mean the same in every kernel; docstrings of kernels describe only what differs.

Parameters
----------
data : (bytes,) uint8
    The strings of keys.
offsets : (m + 1,) int32
    Where each string starts in `data`.
hashes : (m,) int64
    A hash of each string.
records : (capacity, 4) int64
    For each row, what `find_keys` returns for its key; long strings are in `text`.
text : (bytes,) uint8
    Strings of `records`, or of `spans`.
index : (2**k,) int64
    The row at each place, with a part of its hash in the upper bits; -1: none. At least twice as many places
    as rows.
rows : (n,) int64
    Rows; -1: none.
n_rows : int
    The number of rows.
spans : (capacity, 3) int64
    For each row: any value, where its text starts, and its length; below 0: no string.
to : (bytes,) uint8
    Strings, one after another; written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import I32, I64, U8
from cep.jit import compiled
from cep.jit.compiled import inlined
from cep.jit.memory import prefetch
from cep.jit.texts import text_word

kernel = compiled.kernel(compiled.Sources("cep.engine.keys"))

NUMBER, NULL = -1, -2
"""Lengths of keys that are not texts."""

SHORT = 16
"""A text of at most this many bytes is in the record of its key."""

_ROW = (1 << 32) - 1
AHEAD = 128
"""So many keys are looked up together: the processor then waits for their places in memory together."""

_SOON = 32
"""A cell is fetched this many rows ahead."""


@inlined
def _pack(offsets: I32, data: U8, hashes: I64, text: int, keys: I64, key: int) -> None:
    """Write the record of a string key: its hash, two words, and its length.

    The words are the text if it is short, else the place where it starts.
    """
    start, end = offsets[text], offsets[text + 1]
    length = end - start
    keys[key, 0], keys[key, 3] = hashes[text], length
    keys[key, 1], keys[key, 2] = start, 0
    if length <= SHORT:
        keys[key, 1] = np.int64(text_word(data, start, start, end)) if length else 0
        if length > 8:
            keys[key, 2] = np.int64(text_word(data, start, start + 8, end))


@kernel
def pack_keys(offsets: I32, data: U8, hashes: I64, keys: I64) -> None:
    """Write the records of text keys.

    Parameters
    ----------
    keys : (m, 4) int64
        Written: for each key its hash, two words, and the length of the text.
    """
    for key in range(keys.shape[0]):
        _pack(offsets, data, hashes, key, keys, key)


@inlined
def _tag(hashed: int) -> int:
    """Return the part of a hash that the index stores, apart from its place."""
    return hashed >> 32 & 0x7FFF_FFFF


@inlined
def _is_same(keys: I64, key: int, data: U8, records: I64, row: int, text: U8) -> bool:
    """Return whether a key is that of a row."""
    length = keys[key, 3]
    if records[row, 0] != keys[key, 0] or records[row, 3] != length:
        return False
    if length <= SHORT:
        return records[row, 1] == keys[key, 1] and records[row, 2] == keys[key, 2]
    first, start = keys[key, 1], records[row, 1]
    at = 0
    while at < length and data[first + at] == text[start + at]:
        at += 1
    return at == length


@inlined
def _find(keys: I64, own: int, data: U8, records: I64, text: U8, index: I64, rows: I64, first: int) -> None:
    """Find the rows of up to `AHEAD` keys. The first key is at `own`, its row goes to `first`."""
    mask, n = index.shape[0] - 1, min(AHEAD, rows.shape[0] - first)
    for at in range(n):
        prefetch(index, keys[own + at, 0] & mask)
    for at in range(n):
        key = own + at
        place = keys[key, 0] & mask
        entry = index[place]
        while entry >= 0 and entry >> 32 != _tag(keys[key, 0]):
            place = (place + 1) & mask
            entry = index[place]
        rows[first + at] = place if entry >= 0 else -1
        if entry >= 0:
            prefetch(records, entry & _ROW)
    for at in range(n):
        if rows[first + at] >= 0:
            key, place = own + at, rows[first + at]
            entry = index[place]
            while entry >= 0 and not _is_same(keys, key, data, records, entry & _ROW, text):
                place = (place + 1) & mask
                entry = index[place]
            rows[first + at] = entry & _ROW if entry >= 0 and keys[key, 3] != NULL else -1


@kernel
def find_keys(keys: I64, data: U8, records: I64, text: U8, index: I64, rows: I64) -> None:
    """Find the rows of keys.

    Parameters
    ----------
    keys : (m, 4) int64
        For each key its hash, its text (see `pack_keys`), and the length of the text. For a number: the
        number, 0, and the length `NUMBER`. `NULL`: it has no row.
    rows : (m,) int64
        The row of each key, -1: none; written.
    """
    for first in range(0, rows.shape[0], AHEAD):
        _find(keys, first, data, records, text, index, rows, first)


@kernel
def find_texts(
    offsets: I32, data: U8, hashes: I64, room: I64, records: I64, text: U8, index: I64, rows: I64
) -> None:
    """Find the rows of text keys, none of them NULL.

    Parameters
    ----------
    room : (AHEAD, 4) int64
        Overwritten.
    rows : (m,) int64
        The row of each key, -1: none; written.
    """
    for first in range(0, rows.shape[0], AHEAD):
        for at in range(min(AHEAD, rows.shape[0] - first)):
            _pack(offsets, data, hashes, first + at, room, at)
        _find(room, 0, data, records, text, index, rows, first)


@kernel
def add_keys(keys: I64, data: U8, records: I64, text: U8, index: I64, ends: I64, done: int, rows: I64) -> int:
    """Find the rows of keys and add missing ones until there is no room; return how many keys are done.

    Parameters
    ----------
    keys : (m, 4) int64
        See `find_keys`. No key is NULL.
    records : (capacity, 4) int64
        Changed, as are `text`, `index` and `rows`; see `find_keys`.
    ends : (2,) int64
        How many rows there are, and how much of `text` is used; changed.
    done : int
        The number of keys that are done.
    """
    mask = index.shape[0] - 1
    for key in range(done, keys.shape[0]):
        place = keys[key, 0] & mask
        entry = index[place]
        while entry >= 0 and not (
            entry >> 32 == _tag(keys[key, 0]) and _is_same(keys, key, data, records, entry & _ROW, text)
        ):
            place = (place + 1) & mask
            entry = index[place]
        if entry >= 0:
            rows[key] = entry & _ROW
            continue
        new, length = ends[0], keys[key, 3] if keys[key, 3] > SHORT else 0
        if new == records.shape[0] or 2 * new >= mask or ends[1] + length > text.shape[0]:
            return key
        for part in range(4):
            records[new, part] = keys[key, part]
        if length:
            records[new, 1] = ends[1]
            for at in range(length):
                text[ends[1] + at] = data[keys[key, 1] + at]
        ends[0], ends[1] = new + 1, ends[1] + length
        index[place] = _tag(keys[key, 0]) << 32 | new
        rows[key] = new
    return keys.shape[0]


@kernel
def index_rows(records: I64, n_rows: int, index: I64) -> None:
    """Write an index of rows with distinct keys.

    Parameters
    ----------
    index : (2**k,) int64
        All -1; written.
    """
    mask = index.shape[0] - 1
    for row in range(n_rows):
        place = records[row, 0] & mask
        while index[place] >= 0:
            place = (place + 1) & mask
        index[place] = _tag(records[row, 0]) << 32 | row


@kernel
def unpack_keys(records: I64, text: U8, rows: I64, offsets: I64, to: U8) -> None:
    """Write the text keys of some rows, one after another.

    Parameters
    ----------
    offsets : (n + 1,) int64
        Where each string is written, and where the last one ends.
    """
    for place in range(rows.shape[0]):
        row, target = rows[place], offsets[place]
        length, start = records[row, 3], records[row, 1]
        for at in range(length):
            if length > SHORT:
                to[target + at] = text[start + at]
            else:
                to[target + at] = records[row, 1 + (at >> 3)] >> ((at & 7) << 3) & 0xFF


@kernel
def group_versions(
    order: I64, rows: I64, groups: I32, marks: I64, of_version: I32, starts: I64, grouped: I64
) -> int:
    """Sort versions by their rows, in order of the first version of each; return the number of these rows. It
    is a counting sort, which is stable.

    Parameters
    ----------
    order : (m,) int64
        Versions.
    rows : (m,) int64
        The row of each version.
    groups : (capacity,) int32
        The number of each row that has a version, -1: none; all -1; written.
    marks : (capacity / 64 or more,) int64
        Bit r % 64 of word r / 64: whether row r has a version; all 0; written. It is small, so for most
        events the cache shows that nothing is due.
    of_version : (m,) int32
        The number of the row of each version; written.
    starts : (m + 1,) int64
        All 0; written: where the versions of each number start in `grouped`, and where the last ones end.
    grouped : (m,) int64
        The sorted versions; written.
    """
    n = 0
    for place in range(order.shape[0]):
        if place + _SOON < order.shape[0]:
            prefetch(groups, rows[order[place + _SOON]])
        row = rows[order[place]]
        group = groups[row]
        if group < 0:
            group = n
            groups[row] = n
            marks[row >> 6] |= np.int64(1) << (row & 63)
            n += 1
        of_version[order[place]] = group
        starts[group] += 1
    end = 0
    for group in range(n):
        end += starts[group]
        starts[group] = end
    starts[n] = end
    for place in range(order.shape[0] - 1, -1, -1):
        group = of_version[order[place]]
        starts[group] -= 1
        grouped[starts[group]] = order[place]
    return n


class DueVersions(NamedTuple):
    """The versions that are due, by row.

    Attributes
    ----------
    groups : (capacity,) int32
        The number of each row for which versions are due; see `group_versions`.
    marks : (capacity / 64 or more,) int64
        Whether versions are due for a row.
    starts : (rows that have a version + 1,) int64
        Where the versions of each number start.
    time_us : (m,) int64
        Their times, rising for each row.
    order : (m,) int64
        Their numbers in the table that contains them.
    """

    groups: I32
    marks: I64
    starts: I64
    time_us: I64
    order: I64


@kernel
def find_due(
    rows: I64, codes: I32, time_us: I64, event_of: I64, due: DueVersions, places: I64, found: I64
) -> int:
    """Find for each event the latest due version at or before its time, or else its row; return for how many
    events one is due.

    Parameters
    ----------
    rows : (keys,) int64
        The row of each key; -1: none; -2 - r: row r, which is deleted.
    codes : (n,) int32
        The key of each event. Empty: each has its own.
    time_us : (n,) int64
        The times of the events.
    due : DueVersions
        The versions.
    event_of : (n,) int64
        The numbers of the events in `places` and `found`. Empty: they are in this order.
    places : (events,) int64
        Written for the n events: the row of each, -1: none, or a version is due.
    found : (2, n) int64
        Written: the events for which a version is due, and these versions.
    """
    n = 0
    for place in range(time_us.shape[0]):
        found_row = rows[codes[place] if codes.shape[0] else place]
        event = event_of[place] if event_of.shape[0] else place
        places[event] = max(found_row, -1)
        row = found_row if found_row >= -1 else -2 - found_row
        if row < 0 or not due.marks[row >> 6] >> (row & 63) & 1:
            continue
        group = due.groups[row]
        start = due.starts[group]
        low, high = start, due.starts[group + 1]
        while low < high:
            middle = (low + high) >> 1
            if due.time_us[middle] <= time_us[place]:
                low = middle + 1
            else:
                high = middle
        if low > start:
            places[event] = -1
            found[0, n], found[1, n] = event, due.order[low - 1]
            n += 1
    return n


@kernel
def put_cells(values: I64, chosen: I64, rows: I64, cells: I64) -> None:
    """Set new cells for some rows.

    Parameters
    ----------
    values : (n,) int64
        Cells.
    chosen : (m,) int64
        The index into `values` for each row.
    rows : (m,) int64
        The rows.
    cells : (capacity,) int64
        The cell of each row; changed.
    """
    for place in range(rows.shape[0]):
        if place + _SOON < rows.shape[0]:
            prefetch(cells, rows[place + _SOON])
        cells[rows[place]] = values[chosen[place]]


@kernel
def copy_cells(cells: I64, null: U8, rows: I64, to: I64, to_known: U8) -> None:
    """Copy the cells of some rows.

    Parameters
    ----------
    cells : (capacity,) int64
        The cell of each row.
    null : (capacity,) uint8
        1: NULL. Empty: no row has NULL.
    to : (n,) int64
        Written.
    to_known : (n,) uint8
        Written.
    """
    for place in range(rows.shape[0]):
        if place + _SOON < rows.shape[0]:
            prefetch(cells, max(rows[place + _SOON], 0))
        row = rows[place]
        if row < 0:
            to[place], to_known[place] = 0, 0
        else:
            to[place] = cells[row]
            to_known[place] = 1 - null[row] if null.shape[0] else 1


@kernel
def measure_texts(spans: I64, rows: I64, offsets: I64) -> None:
    """Write where the strings of some rows start when they follow each other.

    Parameters
    ----------
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
    """Copy the strings of some rows.

    Parameters
    ----------
    offsets : (n + 1,) int64
        The offsets that `measure_texts` wrote.
    """
    for place in range(rows.shape[0]):
        target = offsets[place]
        n = offsets[place + 1] - target
        if n > 0:
            start = spans[rows[place], 1]
            for at in range(n):
                to[target + at] = text[start + at]
