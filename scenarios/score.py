"""Score how well rules found what was planted.

A match and a story meet if they have the same rule and the same subject, such as a card, and overlap in time.
Recall is the share of planted stories that a match meets. Precision is the share of matches that meet one. A
match that meets a near miss, or no story at all, lowers precision, and so does an honest look-alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cep.arrays import I64
from scenarios.delivery import Mask

NEAR_MISS = "near_miss"
LOOKALIKE = "lookalike"
"""The labels of stories that are not to be found. Each other label is of stories that are."""


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one rule."""

    rule: str
    planted: int
    found: int
    alerts: int
    alerts_on_planted: int
    near_misses: int
    near_misses_reported: int
    lookalikes_reported: int

    @property
    def recall(self) -> float:
        """Share of the planted stories that were found."""
        return self.found / self.planted if self.planted else 1.0

    @property
    def precision(self) -> float:
        """Share of the alerts that are about a planted story."""
        return self.alerts_on_planted / self.alerts if self.alerts else 1.0


def score(matches: pa.Table, truth: pa.Table, subject: str) -> list[Score]:
    """Return one score for each rule of `truth`, in its order. Both tables have the column `subject`."""
    scores = []
    for rule in truth["rule"].unique().to_pylist():
        alerts = matches.filter(pc.equal(matches["rule"], rule))
        stories = truth.filter(pc.equal(truth["rule"], rule))
        label = np.array(stories["label"].to_pylist())
        is_planted = (label != NEAR_MISS) & (label != LOOKALIKE)
        alert_idx, story_idx = meetings(alerts, stories, subject)
        is_met = np.zeros(len(stories), dtype=bool)
        is_met[story_idx] = True
        scores.append(
            Score(
                rule,
                planted=int(is_planted.sum()),
                found=int(is_met[is_planted].sum()),
                alerts=len(alerts),
                alerts_on_planted=len(np.unique(alert_idx[is_planted[story_idx]])),
                near_misses=int((label == NEAR_MISS).sum()),
                near_misses_reported=int(is_met[label == NEAR_MISS].sum()),
                lookalikes_reported=int(is_met[label == LOOKALIKE].sum()),
            )
        )
    return scores


def meetings(alerts: pa.Table, stories: pa.Table, subject: str) -> tuple[I64, I64]:
    """Return the pairs (alert, story) with one subject that overlap in time, as row numbers."""
    left = alerts.select([subject, "match_start", "match_end"]).append_column(
        "alert", pa.array(np.arange(len(alerts)))
    )
    right = stories.select([subject, "start", "end"]).append_column(
        "story", pa.array(np.arange(len(stories)))
    )
    pairs = left.join(right, subject, join_type="inner")
    times = {name: _times_us(pairs, name) for name in ("match_start", "match_end", "start", "end")}
    meets: Mask = (times["match_start"] <= times["end"]) & (times["start"] <= times["match_end"])
    return pairs["alert"].to_numpy()[meets], pairs["story"].to_numpy()[meets]


def _times_us(table: pa.Table, name: str) -> I64:
    return np.asarray(table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())


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
