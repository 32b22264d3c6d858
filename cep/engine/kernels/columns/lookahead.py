"""Which events a rule can use: those that may follow the first event of a match, or may precede, in time, an
event that completes a match.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cep.arrays import I32, I64, U8
from cep.engine.kernels.columns.order import lowest_bit
from cep.engine.kernels.compiled import kernel
from cep.engine.kernels.layout import HEAD, NONE
from cep.jit.memory import prefetch

# Columns of `Readers.scans`: the bits that complete a match, the length of the window, then the progress of
# the scan: the key, the time after which an event that completes a match follows, and the last scanned row.
FINAL_MASK, SPAN_US, REACH_CODE, REACH_US, LAST_ROW = range(5)
N_RULE_COLUMNS = 5

# What a rule can use: the bits of all its variables, and those that begin a run; whether other events matter
# while a run is open, and whether they end all runs.
ANY_MASK, BEGIN_MASK, EVERY_EVENT, IS_STRICT = range(4)
N_USES = 4


class Readers(NamedTuple):
    """The rules that look ahead, and the rules that read each bit."""

    scans: I64  # (rules, N_RULE_COLUMNS), see above; LAST_ROW and REACH_CODE start as -1
    bit_ptr: I64  # (64 * words + 1,) row pointer: where the rules that read a bit start in `bit_rule`
    bit_rule: I32  # (readers,) numbers of rules


class Pairs(NamedTuple):
    """Room for pairs of a rule and an event that it can use."""

    rule: I32  # (capacity,) numbers of rules
    row: I32  # (capacity,) rows of events
    found: I64  # (1,) the number of pairs


_AHEAD = 8
"""So many keys ahead the runs of a key are fetched: they are anywhere."""


@kernel
def mark_used(bits: I64, rows: I64, codes: I32, slots: I32, keys: I64, use: I64, used: U8) -> None:
    """Mark the events that can change something: those that may begin a run, and those that an open run may
    take, or must not ignore.

    Parameters
    ----------
    bits : (n rows,) int64
        Bits of the local predicates of the rule, by row.
    rows : (n,) int64
        The row of each event, in order.
    codes : (n,) int32
        The key of each event.
    slots : (keys,) int32
        The slot of each key; empty: no key has open runs.
    keys : (slots, width) int64
        `Pool.keys` of the rule.
    use : (N_USES,) int64
        What the rule can use; see above.
    used : (n,) uint8
        Set to 1 for these events.
    """
    mask, begin_mask = use[ANY_MASK], use[BEGIN_MASK]
    needs_every_event, is_strict = use[EVERY_EVENT] != 0, use[IS_STRICT] != 0
    before, is_open = -1, False
    for place in range(rows.shape[0]):
        code = int(codes[place])
        if code != before:
            if code + _AHEAD < slots.shape[0]:
                prefetch(keys, int(slots[code + _AHEAD]))
            before, is_open = code, slots.shape[0] > 0 and keys[slots[code], HEAD] != NONE
        word = bits[rows[place]]
        begins, has_bits = word & begin_mask != 0, word & mask != 0
        if begins or (is_open and (has_bits or needs_every_event)):
            used[place] = 1
        is_open = begins or (is_open and (has_bits or not is_strict))


@kernel
def look_ahead(
    bits: I64, codes: I32, times_us: I64, readers: Readers, horizon_us: int, last: int, pairs: Pairs
) -> int:
    """Scan backwards from row `last`; write a pair for each event that can still contribute to a match.
    Return the row at which there was no more room; -1: done.

    Parameters
    ----------
    bits : (words, n) int64
        Bits of the local predicates.
    readers : Readers
        The rules; their scans are advanced.
    horizon_us : int
        All events up to this time have arrived. An event whose window is still open then can be used, too.
    last : int
        The first row.
    pairs : Pairs
        Written, the last event first.
    """
    rules, bit_ptr, bit_rule = readers.scans, readers.bit_ptr, readers.bit_rule
    pair_rule, pair_row, found = pairs.rule, pairs.row, pairs.found
    n_rules = rules.shape[0]
    for row in range(last, -1, -1):
        if pair_rule.shape[0] - found[0] < n_rules:
            return row
        code, time_us = np.int64(codes[row]), times_us[row]
        for word in range(bits.shape[0]):
            left = bits[word, row]
            while left != 0:
                bit = lowest_bit(left)
                left &= left - 1
                for reader in range(bit_ptr[64 * word + bit], bit_ptr[64 * word + bit + 1]):
                    rule = bit_rule[reader]
                    if rules[rule, LAST_ROW] == row:
                        continue  # another of its bits
                    rules[rule, LAST_ROW] = row
                    if bits[word, row] & rules[rule, FINAL_MASK] != 0:
                        rules[rule, REACH_CODE] = code
                        rules[rule, REACH_US] = time_us - rules[rule, SPAN_US]
                    elif (
                        rules[rule, REACH_CODE] != code or rules[rule, REACH_US] > time_us
                    ) and time_us + rules[rule, SPAN_US] <= horizon_us:
                        continue
                    pair_rule[found[0]] = rule
                    pair_row[found[0]] = row
                    found[0] += 1
    return -1


@kernel
def most_in_window(codes: I32, times_us: I64, span_us: int) -> int:
    """Return the largest number of events of one key within `span_us`.

    Parameters
    ----------
    codes : (n,) int32
        The number of each event's key, in order.
    times_us : (n,) int64
        The time of each event, microseconds, in order for each key.
    span_us : int
        The length of the window.
    """
    most, first = 0, 0
    for row in range(codes.shape[0]):
        while codes[first] != codes[row] or times_us[first] < times_us[row] - span_us:
            first += 1
        most = max(most, row - first + 1)
    return most


@kernel
def reversed_by_rule(pair_rule: I32, pair_row: I32, starts: I64, rows: I64) -> None:
    """Write the rows of each rule together, the last pair first.

    Parameters
    ----------
    pair_rule, pair_row : (pairs,) int32
        From `look_ahead`.
    starts : (rules,) int64
        Where the rows of each rule start; advanced.
    rows : (pairs,) int64
        The rows; written.
    """
    for pair in range(pair_rule.shape[0] - 1, -1, -1):
        rule = pair_rule[pair]
        rows[starts[rule]] = pair_row[pair]
        starts[rule] += 1
