"""The score card: each rule with the reasons to keep, tune or retire it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.backtest.figures import exceeds, percent, rate, table_text
from cep.backtest.history import DAY_US, Backtest


class Advice(StrEnum):
    """What to do with a rule."""

    KEEP = "keep"
    TUNE = "tune"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The figures from which a rule should be tuned or retired.

    - `a_day`: more alerts a day are too many.
    - `noise`: a larger share of repeated alerts is too large.
    - `confirmed`: a smaller share of confirmed alerts is too small; below a tenth of it the rule is worth
      nothing.
    - `verdicts`: with fewer verdicts, the share of confirmed alerts is not used.
    - `silent_days`: this many days without an alert are too many.
    """

    a_day: float = 50.0
    noise: float = 0.5
    confirmed: float = 0.3
    verdicts: int = 10
    silent_days: float = 30.0


@dataclass(frozen=True, slots=True)
class Card:
    """A rule on the score card.

    - `noise`: the share of alerts that repeat an alert of their key on the same day.
    - `tests`: cases of its test file.
    - `changed`: the date of its last change; empty: not known.
    - `verdicts`, `confirmed`: alerts with a verdict, and those of them that are confirmed.
    - `advice`: None: no event was read, so nothing is known.
    """

    rule: str
    alerts: int
    a_day: float
    noise: float
    tests: int
    changed: str
    verdicts: int
    confirmed: int
    advice: Advice | None
    reason: str

    def as_data(self) -> dict[str, Any]:
        """Return the row as values that JSON can express."""
        return asdict(self) | {"advice": self.advice and str(self.advice)}


def score_card(
    found: Backtest,
    tests: Mapping[str, int],
    changed: Mapping[str, str],
    verdicts: Mapping[str, bool],
    thresholds: Thresholds,
) -> tuple[Card, ...]:
    """Return a row for each rule: those to retire first, then those to tune.

    `tests` and `changed`: by rule: the number of its cases, the date of its last change. `verdicts`: by
    match_id: whether an alert is confirmed.
    """
    alerts = found.alerts
    cards = []
    for rule in (of.name for of in found.rules.rules if not of.is_view):  # nobody judges the rows of a view
        of_rule = alerts.filter(pc.equal(alerts["rule"], rule))
        judged = [verdicts[one] for one in of_rule["match_id"].to_pylist() if one in verdicts]
        noise, a_day, n_confirmed = noise_of(of_rule), found.a_day(len(of_rule)), sum(judged)
        advice, reason = _advice(found, len(of_rule), noise, judged, thresholds)
        if not tests.get(rule):
            reason = f"{reason}; no tests" if reason else "no tests"
        cards.append(
            Card(
                rule=rule,
                alerts=len(of_rule),
                a_day=a_day,
                noise=noise,
                tests=tests.get(rule, 0),
                changed=changed.get(rule, ""),
                verdicts=len(judged),
                confirmed=n_confirmed,
                advice=advice,
                reason=reason,
            )
        )
    order = [Advice.RETIRE, Advice.TUNE, Advice.KEEP, None]
    return tuple(sorted(cards, key=lambda card: (order.index(card.advice), -card.alerts, card.rule)))


def noise_of(alerts: pa.Table) -> float:
    """Return the share of alerts that repeat an alert of their key on the same day."""
    if not len(alerts):
        return 0.0
    days = pa.array(alerts["end_us"].to_numpy() // DAY_US)
    first = pa.table({"key": alerts["key"], "day": days}).group_by(["key", "day"]).aggregate([])
    return 1.0 - len(first) / len(alerts)


def _advice(
    found: Backtest, n_alerts: int, noise: float, judged: Sequence[bool], thresholds: Thresholds
) -> tuple[Advice | None, str]:
    """Return what to do, and why; the first reason of the hardest advice counts."""
    share = float(np.mean(judged)) if len(judged) >= max(thresholds.verdicts, 1) else None
    days, a_day = found.days, found.a_day(n_alerts)
    if not n_alerts and not found.n_events:
        return None, "no events, so no advice"
    if not n_alerts and days >= thresholds.silent_days:
        return Advice.RETIRE, f"no alert in {days:.0f} days"
    if share is not None and share < thresholds.confirmed / 10:
        return Advice.RETIRE, f"{percent(share)} of {len(judged)} verdicts confirm it"
    if share is not None and share < thresholds.confirmed:
        return Advice.TUNE, f"{percent(share)} of {len(judged)} verdicts confirm it"
    if exceeds(a_day, thresholds.a_day):
        return Advice.TUNE, f"{rate(a_day)} alerts a day"
    if noise > thresholds.noise:
        return Advice.TUNE, f"{percent(noise)} of its alerts are repeats"
    return Advice.KEEP, "" if n_alerts else f"no alert in {days:.3g} days, too few to say more"


def card_text(cards: Sequence[Card]) -> str:
    """Return the score card as a table."""
    heading = ["rule", "alerts", "a day", "noise", "tests", "changed", "confirmed", "advice"]
    rows = [
        [
            card.rule,
            f"{card.alerts:,}",
            rate(card.a_day),
            percent(card.noise),
            f"{card.tests}",
            card.changed,
            f"{card.confirmed} of {card.verdicts}" if card.verdicts else "",
            card.advice or "",
        ]
        for card in cards
    ]
    lines = table_text(heading, rows).split("\n")
    reasons = ["", *(card.reason for card in cards)]
    width = max(map(len, lines))
    shown = zip(lines, reasons, strict=True)
    return "\n".join(f"{line:<{width}}  {reason}".rstrip() for line, reason in shown)
