"""FIRST_VALUE, LAST_VALUE and LAG: the value of one event of the window."""

from __future__ import annotations

from cep.arrays import I64, U8
from cep.engine.context.kernels import layout as at
from cep.engine.context.kernels.compiled import kernel
from cep.engine.context.kernels.layout import Batch, Frames


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
