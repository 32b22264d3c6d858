"""Which matches of a key are reported ("Suppression")."""

from __future__ import annotations

from collections.abc import Sequence

from cep.compiler import ir

_DAY_US = 24 * 3600 * 1_000_000


def not_suppressed(report: ir.Report, ends_us: Sequence[int]) -> list[int]:
    """Return the numbers of the matches that are reported; `ends_us` are those of all, in the order found."""
    reported: list[int] = []
    days: list[int] = []
    for number, end_us in enumerate(ends_us):
        if report.suppress_us and reported and end_us < ends_us[reported[-1]] + report.suppress_us:
            continue
        day = max([end_us // _DAY_US, *days[-1:]])
        if report.n_per_day and days.count(day) == report.n_per_day:
            continue
        reported.append(number)
        days.append(day)
    return reported
