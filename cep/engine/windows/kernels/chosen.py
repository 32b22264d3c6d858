"""MIN, MAX, FIRST_VALUE, LAST_VALUE, LAG, PERCENTILE: the value of one event of the window, or of two.

For PERCENTILE, a tree counts, for each value, how many values of a window do not exceed it (Fenwick, 1994).
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import as_double, bits_of
from cep.engine.windows.kernels.frames import sort_key
from cep.engine.windows.kernels.layout import Frames, KeyedBatch, Ring

# Rows of the room of `percentile_windows`.
_SORT, _ENTRY, _RANK, _TREE, _OTHER_SORT, _OTHER_ENTRY = range(6)
N_ROOM = 6


@kernel
def extreme_windows(
    ring: Ring, batch: KeyedBatch, frames: Frames, queue: I64, function: int, out: I64, known: U8, keys: I64
) -> None:
    """Write the least or the greatest value of each window; among equal values the first.

    Parameters
    ----------
    queue : (2, entries) int64
        Room: entries, and their sort keys.
    function : int
        MIN or MAX.
    out : (n,) int64
        By event, in order; written.
    known : (n,) uint8
        1: no NULL; written.
    """
    is_double, is_max = ring.spec[at.IS_DOUBLE] != 0, function == at.MAX
    block = batch.starts[keys[0]]
    for key in range(keys[0], keys[1]):
        head = tail = 0
        end = frames.bases[key - keys[0]]
        for place in range(batch.starts[key], batch.starts[key + 1]):
            first, last = frames.first[place - block], frames.last[place - block]
            while head < tail and queue[0, head] < first:
                head += 1
            end = max(end, first)
            while end < last:
                if frames.words[end] & 1 != 0:
                    sort = sort_key(frames.values[end], is_double)
                    if is_max:
                        sort = ~sort
                    while head < tail and queue[1, tail - 1] > sort:
                        tail -= 1
                    if head == tail:
                        head = tail = 0
                    queue[0, tail], queue[1, tail] = end, sort
                    tail += 1
                end += 1
            is_known = head < tail
            known[place] = is_known
            out[place] = frames.values[queue[0, head]] if is_known else 0


@kernel
def window_places(
    batch: KeyedBatch, frames: Frames, function: int, n_back: int, out: I64, known: U8, keys: I64
) -> None:
    """Write the value of one event of each window.

    Parameters
    ----------
    function : int
        FIRST_VALUE, LAST_VALUE or LAG.
    n_back : int
        LAG: the value this many events before this one.
    out : (n,) int64
        By event, in order; written.
    known : (n,) uint8
        1: no NULL; written.
    """
    block = batch.starts[keys[0]]
    for place in range(block, batch.starts[keys[1]]):
        first, last = frames.first[place - block], frames.last[place - block]
        entry = first
        if function == at.LAST_VALUE:
            entry = last - 1
        elif function == at.LAG:
            entry = last - frames.own[place - block] - n_back
        is_there = first <= entry < last
        known[place] = is_there and frames.words[entry] & 1 != 0
        out[place] = frames.values[entry] if is_there else 0


@inlined
def _sorted(room: I64, n: int) -> None:
    """Sort the first `n` sort keys and their entries: runs of 1, 2, 4 ... are merged."""
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            middle, end = min(start + width, n), min(start + 2 * width, n)
            left, right = start, middle
            for target in range(start, end):
                if right >= end or (left < middle and room[_SORT, left] <= room[_SORT, right]):
                    source = left
                    left += 1
                else:
                    source = right
                    right += 1
                room[_OTHER_SORT, target], room[_OTHER_ENTRY, target] = (
                    room[_SORT, source],
                    room[_ENTRY, source],
                )
        for target in range(n):
            room[_SORT, target], room[_ENTRY, target] = room[_OTHER_SORT, target], room[_OTHER_ENTRY, target]
        width *= 2


@inlined
def _add(room: I64, n: int, rank: int, step: int) -> None:
    """Count the value of this rank, or stop counting it."""
    node = rank + 1
    while node <= n:
        room[_TREE, node] += step
        node += node & -node


@inlined
def _nth(room: I64, n: int, top: int, number: int) -> int:
    """Return the rank of the value that has `number` counted values before it."""
    node, step = 0, top
    while step > 0:
        if node + step <= n and room[_TREE, node + step] <= number:
            node += step
            number -= room[_TREE, node]
        step >>= 1
    return node


@inlined
def _as_number(value: int, is_double: bool) -> float:
    return as_double(value) if is_double else np.float64(value)


@kernel
def percentile_windows(  # noqa: C901, PLR0912 - what leaves, what comes, what is asked
    ring: Ring, batch: KeyedBatch, frames: Frames, room: I64, part: float, out: I64, known: U8, keys: I64
) -> None:
    """Write the value below which `part` of each window is, interpolated linearly between two values.

    Parameters
    ----------
    room : (N_ROOM, entries + 1) int64
        Overwritten.
    part : float
        From 0 to 1.
    out : (n,) int64
        Doubles by their bits, by event, in order; written.
    known : (n,) uint8
        1: no NULL; written.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
    block = batch.starts[keys[0]]
    for key in range(keys[0], keys[1]):
        base, behind = frames.bases[key - keys[0]], frames.ends[key - keys[0], 1]
        n = 0
        for entry in range(base, behind):
            if frames.words[entry] & 1 != 0:
                room[_SORT, n], room[_ENTRY, n] = sort_key(frames.values[entry], is_double), entry
                n += 1
        _sorted(room, n)
        top = 1
        while 2 * top <= n:
            top *= 2
        for rank in range(n):
            room[_RANK, room[_ENTRY, rank] - base] = rank
            room[_TREE, rank + 1] = 0
        begin = end = base
        n_values = 0
        for place in range(batch.starts[key], batch.starts[key + 1]):
            first, last = frames.first[place - block], frames.last[place - block]
            while begin < first and begin < end:
                if frames.words[begin] & 1 != 0:
                    _add(room, n, room[_RANK, begin - base], -1)
                    n_values -= 1
                begin += 1
            begin = max(begin, first)
            end = max(end, first)
            while end < last:
                if frames.words[end] & 1 != 0:
                    _add(room, n, room[_RANK, end - base], 1)
                    n_values += 1
                end += 1
            known[place] = n_values > 0
            result = 0.0
            if n_values > 0:
                position = part * (n_values - 1)
                lower = int(np.floor(position))
                rank = _nth(room, n, top, lower)
                result = _as_number(frames.values[room[_ENTRY, rank]], is_double)
                if position > lower:
                    above_rank = _nth(room, n, top, lower + 1)
                    if room[_SORT, rank] != room[_SORT, above_rank]:
                        above = _as_number(frames.values[room[_ENTRY, above_rank]], is_double)
                        result = (lower + 1 - position) * result + (position - lower) * above
            out[place] = bits_of(result)
