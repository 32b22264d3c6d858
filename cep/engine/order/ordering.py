"""From unordered events to the order in which rules see them: by key, event time, tie breakers, arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I32, I64, U8, U64
from cep.engine.kernels.columns.order import (
    count_keys,
    gather,
    group_by_key,
    hash_bytes,
    hash_texts,
    hash_values,
    list_codes,
    mark_same,
    number_keys,
    number_texts,
    sort_digits,
)
from cep.engine.prepare.columns import lent, whole
from cep.program.program import COUNTED_COLUMN, STREAM_COLUMN, TIME_COLUMN, Program, name_hash


@dataclass(frozen=True, slots=True)
class OrderedEvents:
    """n events in order. `codes` number the keys of this batch from 0; `keys` are their distinct values."""

    rows: I64  # (n,) row of the table
    codes: I32  # (n,)
    time_us: I64  # (n,)
    identity: U64  # (n,) a hash of (time, tie breakers, ordinal among equals); empty for window rules
    keys: pa.Array  # (n_keys,) one value for each key: the key itself, or its columns joined
    first_rows: I64  # (n_keys,) a row of the table with that key
    n_duplicates: tuple[int, ...]  # of each stream
    row_codes: I32 | None = None  # the key of each row of the table, (rows of the table,); None: not known
    hashes: I64 | None = None  # (n_keys,) the hash of each key (`text_hashes`); None: not known

    def only(self, places: I64) -> tuple[OrderedEvents, I32]:
        """Return some of the events, in order, and the former numbers of their keys."""
        codes = self.codes[places]
        is_first = np.ones(len(codes), np.bool_)
        is_first[1:] = codes[1:] != codes[:-1]
        known = codes[is_first]
        found = OrderedEvents(
            rows=self.rows[places],
            codes=(np.cumsum(is_first) - 1).astype(np.int32),
            time_us=self.time_us[places],
            identity=self.identity[places],
            keys=self.keys.take(pa.array(known)),
            first_rows=self.first_rows[known],
            n_duplicates=self.n_duplicates,
            hashes=None if self.hashes is None else self.hashes[known],
        )
        return found, known


def key_values(table: pa.Table, key: tuple[str, ...]) -> pa.Array:
    """Return one value for each row; two values are equal if, and only if, all key columns are.

    Several columns are joined as text, each with its length before it, so ('a', 'bc') and ('ab', 'c') differ.
    """
    columns = [whole(table.column(name)) for name in key]
    if len(columns) == 1:
        return columns[0]
    parts = []
    for column in columns:
        text = column.cast(pa.string())
        parts += [pc.binary_length(text).cast(pa.string()), text]
    return pc.binary_join_element_wise(*parts, ":")


def places_in(keys: pa.Array, known: pa.Array) -> I32:
    """Return where in `known` each of `keys` is; -1: nowhere. Neither has duplicates.

    The shorter one is hashed, and the other is looked up in it: hashing ten million keys takes 2.7 s, and
    looking them up in a small table takes a tenth of that.
    """
    if len(keys) > len(known):
        found = pc.index_in(keys, value_set=known) if len(known) else pa.nulls(len(keys), pa.int32())
        return np.asarray(pc.fill_null(found, -1)).copy()
    places = np.full(len(keys), -1, np.int32)
    found = pc.index_in(known, value_set=keys)
    places[np.asarray(found.drop_null())] = np.flatnonzero(np.asarray(pc.is_valid(found)))
    return places


def order_events(program: Program, table: pa.Table) -> OrderedEvents:
    """Order the prepared events of `table`. Repeated deliveries of streams with `deduplicate` are omitted."""
    codes, keys, first_rows, hashes = numbered(key_values(table, program.key_columns))
    time_us = lent(np.asarray(whole(table.column(TIME_COLUMN))))
    rows, ordered_codes = _by_time_and_key(codes, time_us, len(keys))
    ordered_us = np.empty_like(time_us)
    gather(time_us, rows, ordered_us)
    is_same = np.empty(len(rows), np.uint8)
    any_same = mark_same(ordered_codes, ordered_us, is_same) > 0
    same = is_same.view(np.bool_)
    n_duplicates = (0,) * len(program.streams)
    ties = program.tie_columns
    if ties and any_same:
        equal, rows = _break_ties(table, ties, same, rows)
        if equal.any() and any(stream.deduplicate for stream in program.streams):
            copies, n_duplicates = _copies(program, table, rows, equal)
            rows, ordered_codes, ordered_us = rows[~copies], ordered_codes[~copies], ordered_us[~copies]
            equal = equal[~copies]
    else:
        equal = same
    identity = np.zeros(0, np.uint64)
    if not program.has_window_rules:
        identity = _identities(program, table, rows, ordered_us, equal)
    return OrderedEvents(
        rows=rows,
        codes=ordered_codes,
        time_us=ordered_us,
        identity=identity,
        keys=keys,
        first_rows=first_rows,
        n_duplicates=n_duplicates,
        row_codes=codes,
        hashes=hashes,
    )


_MAX_SPREAD = 4
"""Integer keys are numbered through a table if it has at most this many places for each event."""


def numbered(keys: pa.Array) -> tuple[I32, pa.Array, I64, I64 | None]:
    """Return the number of each row's key, the distinct keys, and the first row and the hash of each.

    The hashes are those of `text_hashes`; None: they were not needed.
    """
    codes = np.empty(len(keys), np.int32)
    if pa.types.is_int64(keys.type) and len(keys):
        bounds = pc.min_max(keys)
        lowest, spread = bounds["min"].as_py(), bounds["max"].as_py() - bounds["min"].as_py() + 1
        if spread <= _MAX_SPREAD * len(keys):
            first_rows = np.empty(min(spread, len(keys)), np.int64)
            places = np.full(spread, -1, np.int32)
            n_keys = number_keys(lent(np.asarray(keys)), lowest, codes, first_rows, places)
            first_rows = first_rows[:n_keys]
            return codes, keys.take(pa.array(first_rows)), first_rows, None
    if pa.types.is_string(keys.type) and len(keys) and not keys.null_count:
        first_rows = np.empty(len(keys), np.int64)
        index = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int64)
        hashes = np.empty(len(keys), np.uint64)
        n_keys = number_texts(*text_buffers(keys), codes, first_rows, index, hashes)
        first_rows = first_rows[:n_keys].copy()
        distinct = keys if n_keys == len(keys) else keys.take(pa.array(first_rows))
        return codes, distinct, first_rows, hashes[:n_keys].view(np.int64)
    encoded = keys.dictionary_encode()
    codes[:] = np.asarray(encoded.indices)
    first_rows = np.empty(len(encoded.dictionary), np.int64)
    first_rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, encoded.dictionary, first_rows, None


def _by_time_and_key(codes: I32, time_us: I64, n_keys: int) -> tuple[I64, I32]:
    """Order by time, then group by counting, without comparing keys. Return rows and codes in order."""
    rows = order_by_time(time_us)
    starts = np.zeros(n_keys + 1, np.int64)
    count_keys(codes, starts)
    grouped = np.empty_like(rows)
    group_by_key(codes, rows, starts, grouped)  # moves each start to the next one
    ordered = np.empty_like(codes)
    list_codes(starts[:-1], ordered)
    return grouped, ordered


def order_by_time(time_us: I64) -> I64:
    """Return the rows in order of time, then of their number.

    Numbers that contain time and row are sorted digit by digit. This is about 90 times as fast as sorting
    rows by their times. Time and row together must fit into 63 bits.
    """
    if is_sorted(time_us):
        return np.arange(len(time_us))
    first_us = int(time_us.min())
    row_bits = len(time_us).bit_length()
    n_bits = (int(time_us.max()) - first_us).bit_length() + row_bits
    if n_bits > 63:
        return np.argsort(time_us, kind="stable")
    packed = time_us - first_us
    packed <<= row_bits
    packed |= np.arange(len(packed))
    other = np.empty_like(packed)
    counts = np.empty(_DIGIT, np.int64)
    rows = other if sort_digits(packed, other, counts, row_bits, n_bits) else packed
    rows &= (1 << row_bits) - 1
    return rows


_DIGIT = 1 << 11
"""Values of a digit: with more of them, the table no longer fits in the cache; with fewer, there are more
digits.
"""


def is_sorted(values: I64) -> bool:
    """Return whether no value is less than the previous one."""
    return bool((values[1:] >= values[:-1]).all())


def _same_as_previous(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    same = np.zeros(len(columns[0]), np.bool_)
    same[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    return same


def _break_ties(
    table: pa.Table, ties: tuple[str, ...], same: npt.NDArray[np.bool_], rows: I64
) -> tuple[npt.NDArray[np.bool_], I64]:
    """Order the events of equal key and time by the tie breakers, NULL first.

    Return which events equal the previous one in key, time and all tie breakers, and the rows in order.
    Only tied events are compared, so a costly column of strings is rarely read.
    """
    tied = same.copy()
    tied[:-1] |= same[1:]
    places = np.flatnonzero(tied)
    group = np.cumsum(~same)[places]
    columns = {"group": group}
    for number, name in enumerate(ties):
        column = whole(table.column(name)).take(rows[places])
        columns[f"known{number}"] = pc.is_valid(column)  # False sorts first, and so does NULL
        columns[f"tie{number}"] = column
    candidates = pa.table(columns)
    order = np.asarray(pc.sort_indices(candidates, [(name, "ascending") for name in columns]))
    rows = rows.copy()
    rows[places] = rows[places][order]
    candidates = candidates.take(order)
    codes = [np.asarray(whole(column).dictionary_encode("encode").indices) for column in candidates.columns]
    equal = np.zeros(len(rows), np.bool_)
    equal[places] = _same_as_previous(*codes)
    return equal, rows


def _copies(
    program: Program, table: pa.Table, rows: I64, equal: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], tuple[int, ...]]:
    """Return which events are repeated deliveries, and how many each stream has.

    An event in several partitions is counted in one of them.
    """
    counted = np.ones(len(rows), np.bool_)
    if program.repeats_events:
        counted = whole(table.column(COUNTED_COLUMN)).to_numpy(zero_copy_only=False)[rows]
    if len(program.streams) == 1:
        return equal, (int((equal & counted).sum()),)
    stream = np.asarray(whole(table.column(STREAM_COLUMN)))[rows]
    copies = equal & np.array([stream.deduplicate for stream in program.streams])[stream]
    n_copies = np.bincount(stream[copies & counted], minlength=len(program.streams))
    return copies, tuple(n_copies.tolist())


def _identities(
    program: Program, table: pa.Table, rows: I64, time_us: I64, equal: npt.NDArray[np.bool_]
) -> U64:
    identity = np.zeros(len(rows), np.uint64)
    all_valid = np.ones(len(rows), np.uint8)
    hash_values(time_us, all_valid, identity)
    for name in program.tie_columns:
        column = whole(table.column(name)).take(rows)
        if name == STREAM_COLUMN:  # by name: its number may change
            names = np.array([name_hash(stream.name) for stream in program.streams], np.uint64)
            hash_values(names.view(np.int64)[np.asarray(column)], all_valid, identity)
        else:
            hash_column(column, identity)
    if equal.any():  # the ordinal distinguishes equals
        index = np.arange(len(rows))
        ordinal = index - np.maximum.accumulate(np.where(equal, 0, index))
        others = identity[equal]  # the first keeps its identity, with or without equals
        hash_values(ordinal[equal], all_valid[equal], others)
        identity[equal] = others
    return identity


def text_buffers(column: pa.Array) -> tuple[I32, U8]:
    """Return where each string of an Arrow array starts, and the strings."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return lent(starts), lent(np.frombuffer(data if data is not None and data.size else b"\0", np.uint8))


def text_hashes(texts: pa.Array) -> I64:
    """Return (n,) int64: a hash of each string, any value for NULL. Do not store them."""
    hashes = np.empty(len(texts), np.uint64)
    if len(texts):
        hash_texts(*text_buffers(texts), hashes)
    return hashes.view(np.int64)


def hash_column(column: pa.Array, seeds: U64) -> None:
    """Mix the values of an Arrow column of `cep.program.program.ARROW_TYPES` into `seeds`, in place."""
    valid = np.asarray(pc.is_valid(column)).astype(np.uint8)
    if pa.types.is_string(column.type):
        hash_bytes(*text_buffers(column), valid, seeds)
        return
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64:
        values = np.where(values == 0.0, 0.0, values).view(np.int64)  # -0.0 is 0.0
    hash_values(values.astype(np.int64), valid, seeds)  # a copy: kernels are compiled for writable arrays
