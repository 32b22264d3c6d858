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
    out : (rows,) int64
        By row of the table; written.
    known : (rows,) uint8
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
        row = batch.rows[place]
        is_there = first <= entry < last
        known[row] = is_there and frames.words[entry] & 1 != 0
        out[row] = frames.values[entry] if is_there else 0
