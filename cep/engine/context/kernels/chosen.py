"""MIN, MAX, FIRST_VALUE, LAST_VALUE and LAG: the value of one event of the window."""

from __future__ import annotations

from cep.arrays import I64, U8
from cep.engine.context.kernels import layout as at
from cep.engine.context.kernels.compiled import kernel
from cep.engine.context.kernels.frames import sort_key
from cep.engine.context.kernels.layout import Batch, Frames, Ring


@kernel
def extreme_windows(
    ring: Ring, batch: Batch, frames: Frames, queue: I64, is_max: bool, out: I64, known: U8, keys: I64
) -> None:
    """Write the least or the greatest value of each window; of equal ones the first.

    Parameters
    ----------
    ring : Ring
        Which window.
    batch : Batch
        The events.
    frames : Frames
        Their windows.
    queue : (2, entries) int64
        Room: entries, and their sort keys.
    is_max : bool
        Whether the greatest is asked for.
    out : (n,) int64
        By event, in order; written.
    known : (n,) uint8
        1: no NULL; written.
    keys : (2,) int64
        The first key and the one behind the last.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
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
    batch: Batch, frames: Frames, function: int, n_back: int, out: I64, known: U8, keys: I64
) -> None:
    """Write the value of one event of each window.

    Parameters
    ----------
    batch : Batch
        The events.
    frames : Frames
        Their windows.
    function : int
        FIRST_VALUE, LAST_VALUE or LAG.
    n_back : int
        LAG: the value of so many events before this one.
    out : (n,) int64
        By event, in order; written.
    known : (n,) uint8
        1: no NULL; written.
    keys : (2,) int64
        The first key and the one behind the last.
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
