"""Kernels over columns of events and rows of matrices, without runs: order, packing, look-ahead.

These parameters mean the same in every kernel; docstrings of kernels describe only what differs.

Parameters
----------
codes : (n,) int32
    The number of each event's key.
times_us, time_us : (n,) int64
    The time of each event.
data : (bytes,) uint8
    UTF-8.
offsets : (n + 1,) int32
    Where each string starts in `data`.
values : (n,) int64
    The values.
lowest : int
    The lowest value.
valid : (n,) uint8
    0: NULL.
seeds : (n,) uint64
    The hash of each row so far; overwritten.
first_rows : (n,) int64
    The first row of each number; written.
n_bits : int
    The number of predicates.
matrix : (rows, columns) int64
    The cells.
column, first : int
    The index of a column, and that of the first one.
order : (n,) int64
    Rows of `matrix`.
low : (columns,) int64
    The lowest value of each column.
widths : (columns,) int64
    Bytes of each distance.
distances : (BLOCK,) uint64
    Room.
"""
