"""Compiled loops over the rows of matches, between the kernels that find them and the table of matches."""

from __future__ import annotations

from cep.engine.kernels.compiled import kernel
from cep.engine.kernels.layout import MATCH_END, MATCH_SLOT, MATCH_TIMED_OUT
from cep.program import I64, U8


@kernel
def mark_suppressed(matches: I64, until_us: I64, length_us: int, suppressed: U8) -> int:
    """Mark the matches that end before the time in `until_us` of their key, which others set; count them.

    Rows are in the order in which each key's matches were found. Timeouts are not suppressed.
    """
    count = 0
    for row in range(matches.shape[0]):
        slot = matches[row, MATCH_SLOT]
        if matches[row, MATCH_TIMED_OUT] != 0:
            continue
        if matches[row, MATCH_END] < until_us[slot]:
            suppressed[row] = 1
            count += 1
        else:
            until_us[slot] = matches[row, MATCH_END] + length_us
    return count
