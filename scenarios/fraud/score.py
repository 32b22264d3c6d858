"""Score how well the rules found the planted fraud: ``python -m scenarios.fraud.score MATCHES TRUTH``.

A match and a story meet if they have the same rule and the same card and overlap in time. Recall is the share
of frauds that a match meets. Precision is the share of matches that meet a fraud. A match that meets a near
miss, or no story at all, lowers precision. Honest customers sometimes do what a rule looks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scenarios.fraud.events import I64, Mask
from scenarios.fraud.stories import FRAUD, LOOKALIKE, NEAR_MISS
from scenarios.run_folder import read_matches

MATCH_COLUMNS = ("rule", "card_id", "match_start", "match_end")
"""Columns of a match that the score reads."""


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one rule."""

    rule: str
    planted: int
    found: int
    alerts: int
    alerts_on_fraud: int
    near_misses: int
    near_misses_reported: int
    lookalikes_reported: int

    @property
    def recall(self) -> float:
        """Share of the planted frauds that were found."""
        return self.found / self.planted if self.planted else 1.0

    @property
    def precision(self) -> float:
        """Share of the alerts that are about a planted fraud."""
        return self.alerts_on_fraud / self.alerts if self.alerts else 1.0


def score(matches: pa.Table, truth: pa.Table) -> list[Score]:
    """Return one score for each rule of `truth`, in its order."""
    scores = []
    for rule in truth["rule"].unique().to_pylist():
        alerts = matches.filter(pc.equal(matches["rule"], rule))
        stories = truth.filter(pc.equal(truth["rule"], rule))
        label = np.array(stories["label"].to_pylist())
        alert_idx, story_idx = _meetings(alerts, stories)
        is_met = np.zeros(len(stories), dtype=bool)
        is_met[story_idx] = True
        scores.append(
            Score(
                rule,
                planted=int((label == FRAUD).sum()),
                found=int(is_met[label == FRAUD].sum()),
                alerts=len(alerts),
                alerts_on_fraud=len(np.unique(alert_idx[label[story_idx] == FRAUD])),
                near_misses=int((label == NEAR_MISS).sum()),
                near_misses_reported=int(is_met[label == NEAR_MISS].sum()),
                lookalikes_reported=int(is_met[label == LOOKALIKE].sum()),
            )
        )
    return scores


def _meetings(alerts: pa.Table, stories: pa.Table) -> tuple[I64, I64]:
    """Return the pairs (alert, story) on one card that overlap in time, as row numbers."""
    left = alerts.select(["card_id", "match_start", "match_end"]).append_column(
        "alert", pa.array(np.arange(len(alerts)))
    )
    right = stories.select(["card_id", "start", "end"]).append_column(
        "story", pa.array(np.arange(len(stories)))
    )
    pairs = left.join(right, "card_id", join_type="inner")
    times = {name: _times_us(pairs, name) for name in ("match_start", "match_end", "start", "end")}
    meets: Mask = (times["match_start"] <= times["end"]) & (times["start"] <= times["match_end"])
    return pairs["alert"].to_numpy()[meets], pairs["story"].to_numpy()[meets]


def _times_us(table: pa.Table, name: str) -> I64:
    return np.asarray(table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())


def score_table(scores: list[Score]) -> Table:
    """Return the scores as a table for the terminal."""
    table = Table(title="Planted fraud: what the rules found", box=SIMPLE_HEAD, padding=0, show_edge=False)
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


@click.command(help="Compare MATCHES (Parquet) with the planted TRUTH.")
@click.argument("matches", type=click.Path(path_type=Path, exists=True))
@click.argument("truth", type=click.Path(path_type=Path, exists=True))
def main(matches: Path, truth: Path) -> None:
    """Print the scores."""
    Console().print(score_table(score(read_matches(matches, MATCH_COLUMNS), pq.read_table(truth))))


if __name__ == "__main__":
    main()
