"""The scores of a scenario as a table for the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cep.backtest.truth import Score


def score_table(title: str, scores: list[Score]) -> Table:
    """Return the scores as a table for the terminal."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("rule", no_wrap=True)
    headings = ("planted", "found", "recall", "alerts", "precision")
    for heading in (*headings, "near\nmisses", "reported", "look-\nalikes"):
        table.add_column(heading, justify="right")
    for row in scores:
        table.add_row(
            row.rule,
            f"{row.planted:,}",
            f"{row.found:,}",
            f"{row.recall:.1%}",
            f"{row.alerts:,}",
            f"{row.precision:.1%}",
            f"{row.near_misses:,}",
            f"{row.near_misses_reported:,}",
            f"{row.lookalikes_reported:,}",
        )
    return table
