"""Which events are of use to a rule: those that one which can complete a match follows in time."""

from __future__ import annotations

import numpy as np

from cep.engine.kernels.compiled import kernel
from cep.engine.kernels.order import lowest_bit
from cep.program import I32, I64

# Columns of `rules`: bits that complete a match, length of the window, then where the rule stands in its
# scan: the key, since when an event that completes a match follows in it, the event that was looked at last.
FINAL_MASK, SPAN_US, REACH_CODE, REACH_US, LAST_ROW = range(5)
N_RULE_COLUMNS = 5


@kernel
def look_ahead(
    bits: I64,
    codes: I32,
    times_us: I64,
    rules: I64,
    bit_ptr: I64,
    bit_rule: I32,
    horizon_us: int,
    last: int,
    pair_rule: I32,
    pair_row: I32,
    found: I64,
) -> int:
    """Go back from row `last` and write the pairs of a rule and an event of use to it, the last event first.

    Parameters
    ----------
    bits
        (words, n) predicate bits.
    codes, times_us
        (n,) the number of each event's key, and its time.
    rules
        (rules, `N_RULE_COLUMNS`), see above. LAST_ROW and REACH_CODE begin as -1.
    bit_ptr, bit_rule
        The rules that read a bit, as lists: those of bit b of word w from ``bit_ptr[64 * w + b]`` on.
    horizon_us
        All events up to it are here. What begins so late that its window is open then is of use, too.
    found
        (1,) the number of pairs.

    Returns
    -------
    The row at which there was no more room, -1: done.
    """
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
                for at in range(bit_ptr[64 * word + bit], bit_ptr[64 * word + bit + 1]):
                    rule = bit_rule[at]
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
    """Return the largest number of events of one key that lie within `span_us`."""
    most, first = 0, 0
    for row in range(codes.shape[0]):
        while codes[first] != codes[row] or times_us[first] < times_us[row] - span_us:
            first += 1
        most = max(most, row - first + 1)
    return most


@kernel
def reversed_by_rule(pair_rule: I32, pair_row: I32, starts: I64, rows: I64) -> None:
    """Write the rows of each rule together, the last pair first; `starts` (row pointer) is moved along."""
    for at in range(pair_rule.shape[0] - 1, -1, -1):
        rule = pair_rule[at]
        rows[starts[rule]] = pair_row[at]
        starts[rule] += 1
