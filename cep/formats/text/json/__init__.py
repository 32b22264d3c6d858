"""JSON lines: the meaning of a line, and many lines at once as columns.

These parameters mean the same in every kernel. Docstrings of kernels describe only others.

Parameters
----------
data : (n,) uint8
    The bytes of the lines, and a few more.
at : int
    A place in `data`.
end : int
    The place after the line.
names : Names
    The names of the columns.
name : int
    One of `names`, by its number.
columns : Columns
    The values of the lines.
column : int
    A row of the arrays of `columns`.
row : int
    The event.
is_list : (MAX_SKIPPED_NESTING + 1,) uint8
    Whether each open object or list is a list.
value : int
    The digits before the point as a number.
is_below, is_date : bool
    Whether a minus precedes the number; whether the time is only a day.
texts : (columns, room) uint8
    The strings of columns.
to : int
    A place in a row of `texts`.
"""
