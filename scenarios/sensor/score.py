"""Score of the rules: labelled windows with an alert inside, and alerts outside all windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich.table import Table

from scenarios.sensor.series import Window

MATCH_COLUMNS = ("rule", "series", "match_end")
"""Columns of a match that the score reads."""

ALL_RULES = "all rules"


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one rule, or of all rules together."""

    rule: str
    windows: int
    windows_hit: int
    alerts: int
    alerts_outside: int


def score(matches: pa.Table, windows: Sequence[Window]) -> list[Score]:
    """Return a score for each rule that matched, and a score for all rules together.

    The time of an alert is the end of its match, because the match is known only then.
    """
    time = pa.timestamp("us", tz="UTC")
    ends = matches["match_end"].cast(time).cast(pa.int64()).to_pylist()
    alerts = list(zip(matches["rule"].to_pylist(), matches["series"].to_pylist(), ends, strict=True))
    of_series: dict[str, list[Window]] = {}
    for window in windows:
        of_series.setdefault(window.series, []).append(window)
    hits: dict[str, set[Window]] = {}
    n_alerts: dict[str, int] = {}
    n_outside: dict[str, int] = {}
    for rule, series, end_us in alerts:
        hit = [window for window in of_series.get(series, []) if window.start_us <= end_us <= window.end_us]
        for name in (rule, ALL_RULES):
            hits.setdefault(name, set()).update(hit)
            n_alerts[name] = n_alerts.get(name, 0) + 1
            n_outside[name] = n_outside.get(name, 0) + (not hit)
    rules = [*sorted(name for name in n_alerts if name != ALL_RULES), ALL_RULES]
    return [
        Score(rule, len(windows), len(hits.get(rule, ())), n_alerts.get(rule, 0), n_outside.get(rule, 0))
        for rule in rules
    ]


def score_table(scores: Sequence[Score]) -> Table:
    """Return the scores as a table for the terminal."""
    table = Table(title="Labelled windows and alerts")
    table.add_column("rule", no_wrap=True)
    for heading in ("windows", "hit", "alerts", "outside every window"):
        table.add_column(heading, justify="right")
    for row in scores:
        if row.rule == ALL_RULES:
            table.add_section()
        numbers = (row.windows, row.windows_hit, row.alerts, row.alerts_outside)
        table.add_row(row.rule, *(f"{number:,}" for number in numbers))
    return table
