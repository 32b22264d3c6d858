"""Which matches have different values from before, although their ids are the same.

A `match_id` is a function of the rule, the key, the events taken and the time. So are the values of most
rules. But an event may have values from elsewhere: windowed values (including PREV), columns of joined
tables, and the measures of a match that is read as an event. The id of a window only identifies the window.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.prepare.columns import whole
from cep.program.match_stream import MatchStream
from cep.program.program import Program

_OF_ID = frozenset(("rule", "match_id", "match_start", "match_end"))
"""Columns that are equal where ids are."""


def may_differ(programs: Iterable[Program]) -> tuple[str, ...]:
    """Return the rules of which two rows with the same `match_id` may have different values."""
    return tuple(
        rule.name
        for program in programs
        for rule in program.rules
        if program.windows
        or program.joins.columns
        or rule.windowed is not None
        or any(isinstance(stream, MatchStream) for stream in program.streams)
    )


def changed_ids(old: pa.Table, new: pa.Table, of_old: I64, of_new: I64, n_ids: int) -> Mask:
    """Return which ids have equally many rows in both tables, but different values.

    The rows of an id are compared in order, wherever they are in the tables.

    Parameters
    ----------
    old, new
        Rows of matches; `old` may have more columns.
    of_old, of_new : (n,) int64
        The number of the id of each row.
    """
    n_old, n_new = (np.bincount(of, minlength=n_ids) for of in (of_old, of_new))
    as_many = n_old == n_new
    rows_old, rows_new = (_by_id(of, as_many) for of in (of_old, of_new))
    differs = np.zeros(len(rows_old), np.bool_)
    for name in new.column_names:
        if name not in _OF_ID:
            then, now = _at(old.column(name), rows_old), _at(new.column(name), rows_new)
            differs |= ~_same(then, now)
    changed = np.zeros(n_ids, np.bool_)
    changed[of_old[rows_old[differs]]] = True
    return changed


def _by_id(of: I64, chosen: Mask) -> I64:
    """Return the rows of the chosen ids, by id, in the order of each id's rows."""
    rows = np.flatnonzero(chosen[of])
    return rows[np.argsort(of[rows], kind="stable")]


def _at(column: pa.ChunkedArray, rows: I64) -> pa.Array:
    return whole(column).take(pa.array(rows))


def _same(then: pa.Array, now: pa.Array) -> Mask:
    """Return where two arrays of one type and length are equal; NULL equals NULL, NaN equals NaN."""
    known, known_now = (np.asarray(pc.is_valid(array)) for array in (then, now))
    same: Mask = known == known_now
    both = known & known_now
    if pa.types.is_struct(then.type):
        for number in range(then.type.num_fields):
            parts = (pc.struct_field(array, [number]) for array in (then, now))
            same &= ~both | _same(*parts)
    elif pa.types.is_list(then.type):
        same[both] = _same_lists(then.filter(pa.array(both)), now.filter(pa.array(both)))
    elif pa.types.is_floating(then.type):
        bits = [_bits(array) for array in (then, now)]
        same &= ~both | (bits[0] == bits[1])
    else:
        same &= np.asarray(pc.fill_null(pc.equal(then, now), True))
    return same


def _same_lists(then: pa.Array, now: pa.Array) -> Mask:
    """Return where two arrays of lists, none of them NULL, have the same list."""
    lengths = [np.asarray(pc.list_value_length(array)) for array in (then, now)]
    same: Mask = lengths[0] == lengths[1]
    alike = pa.array(same)
    values = [pc.list_flatten(array.filter(alike)) for array in (then, now)]
    of_list = np.repeat(np.flatnonzero(same), lengths[0][same])
    same[of_list[~_same(*values)]] = False
    return same


def _bits(numbers: pa.Array) -> I64:
    """Return the bits of numbers: 0.0 differs from -0.0, and all NaN are equal."""
    values = np.asarray(pc.fill_null(numbers.cast(pa.float64()), 0.0))
    bits: I64 = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return bits
