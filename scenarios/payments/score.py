"""Scores the alerts: where they arrived, and which planted stories the rules found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from scenarios.payments.stories import PLOTS, Story


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as it arrived somewhere; `key` is an account or the number of an order."""

    match_id: str
    rule: str
    key: str


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one rule."""

    rule: str
    planted: int
    found: int
    near_misses: int
    near_misses_reported: int
    others: int

    @property
    def is_perfect(self) -> bool:
        """Whether the rule found everything that was planted, once, and nothing else."""
        return self.found == self.planted and not self.near_misses_reported and not self.others


def alert_of(rule: str, match_id: str, order_id: int | None, account: str | None) -> Alert:
    """Return an alert from columns of a match."""
    return Alert(match_id, rule, str(order_id if account is None else account))


def score(alerts: Sequence[Alert], stories: Sequence[Story]) -> list[Score]:
    """Return a score for each rule. `others`: alerts beyond one for each story, or about no story."""
    scores = []
    for rule in PLOTS:
        reported = [alert.key for alert in alerts if alert.rule == rule]
        planted = {story.key for story in stories if story.rule == rule and story.is_planted}
        near = {story.key for story in stories if story.rule == rule and not story.is_planted}
        met = {*reported} & (planted | near)
        scores.append(
            Score(
                rule,
                planted=len(planted),
                found=len({*reported} & planted),
                near_misses=len(near),
                near_misses_reported=len({*reported} & near),
                others=len(reported) - len(met),
            )
        )
    return scores


def score_table(scores: Sequence[Score]) -> Table:
    """Return the scores as a table for the terminal."""
    table = _table("What the rules found", ("planted", "found", "near misses", "reported", "others"))
    for row in scores:
        numbers = (row.planted, row.found, row.near_misses, row.near_misses_reported, row.others)
        table.add_row(row.rule, *(f"{number:,}" for number in numbers))
    return table


def arrivals_table(places: Mapping[str, Sequence[Alert]]) -> Table:
    """Return the number of alerts of each rule at each place, as a table for the terminal."""
    table = _table("What arrived where", tuple(places))
    counts = [Counter(alert.rule for alert in alerts) for alerts in places.values()]
    for rule in PLOTS:
        table.add_row(rule, *(f"{count[rule]:,}" for count in counts))
    table.add_section()
    table.add_row("all rules", *(f"{count.total():,}" for count in counts))
    return table


def do_agree(places: Mapping[str, Sequence[Alert]]) -> bool:
    """Return whether all places contain the same alerts, each exactly once."""
    first, *others = (sorted(alerts, key=lambda alert: alert.match_id) for alerts in places.values())
    is_once = len({alert.match_id for alert in first}) == len(first)
    return is_once and all(other == first for other in others)


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False)
    table.add_column("rule", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
