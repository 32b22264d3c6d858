"""The compiled loops of windows.

`frames` gives for each event the events in its window, as a range of the kept and new entries of its key. The
ranges of one key only move forward. So the other kernels, one for each kind of function, add the entries that
enter and remove those that leave, and know nothing about frames. Only the entries themselves (or exact sums)
are carried from batch to batch, so a result depends only on the content of its window.

These parameters mean the same in every kernel; docstrings of kernels describe only what differs.

Parameters
----------
ring : Ring
    The state that earlier events left; there is room for all that is kept.
slot : int
    A key: its row of `Ring.keys`.
batch : KeyedBatch
    The events.
frames : Frames
    Their windows.
keys : (2,) int64
    The first key in `frames` and the one after the last.
reads : Reads
    The columns that the window reads.
place : int
    An event, in the order of `batch`.
bound : int
    The least time that remains.
value : int
    A cell.
is_double : bool
    Whether cells have the bits of doubles.
sums : Sums
    The sums of a key.
n : int
    The number of their values.
low, high : int
    The first and the last chunk of `sums.totals`; `high` is negative if all are 0.
scale : int
    The exponent of their lowest bit.
with_squares : bool
    Whether sums of squares are needed.
functions : (columns,) int64
    What each column is: COUNT, SUM, AVG, VARIANCE or STDDEV.
out : (columns, n) int64
    The columns by event, in order; written.
known : (columns, n) uint8
    1: no NULL; written.
"""
