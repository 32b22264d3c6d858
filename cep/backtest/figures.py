"""The figures of rules over history, and how they are shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cep.backtest.history import Backtest, Scope, day_of
from cep.backtest.truth import Same, Score, score, truth_in
from cep.diagnostics.safe_text import for_cell


@dataclass(frozen=True, slots=True)
class Truth:
    """Stories (`read_truth`), and how matches meet them."""

    stories: pa.Table
    same: Same
    scope: Scope


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one rule; `score` is None if nothing is known about its truth.

    `a_day` is the number of alerts a day that all keys would give.
    """

    rule: str
    alerts: int
    a_day: float
    keys: int
    score: Score | None = None

    @property
    def recall(self) -> float | None:
        """See `Score`; None: it is not known."""
        return self.score.recall if self.score is not None and self.score.planted else None

    @property
    def precision(self) -> float | None:
        """See `Score`; None: it is not known, or there is no alert."""
        return self.score.precision if self.score is not None and self.score.alerts else None

    def as_data(self) -> dict[str, Any]:
        """Return the figures as values that JSON can express."""
        found = {"rule": self.rule, "alerts": self.alerts, "alerts_a_day": self.a_day, "keys": self.keys}
        if self.score is None:
            return found
        of_truth = {name: value for name, value in asdict(self.score).items() if name not in found}
        return found | of_truth | {"recall": self.recall, "precision": self.precision}


def figures_of(found: Backtest, truth: Truth | None = None) -> tuple[Figures, ...]:
    """Return the figures of each rule, those with the most alerts first."""
    scores: dict[str, Score] = {}
    if truth is not None:
        stories = truth_in(truth.stories, found.names, truth.scope, truth.same)
        scores = {one.rule: one for one in score(found.matches, stories, truth.same)}
    alerts = found.alerts
    figures = []
    for rule in found.names:
        of_rule = alerts.filter(pc.equal(alerts["rule"], rule))
        n_keys = len(of_rule["key"].unique())
        figures.append(Figures(rule, len(of_rule), found.a_day(len(of_rule)), n_keys, scores.get(rule)))
    return tuple(sorted(figures, key=lambda one: (-one.alerts, one.rule)))


def figures_text(figures: Sequence[Figures]) -> str:
    """Return the figures as a table; precision and recall only if something is known about the truth."""
    return table_text(*figure_cells([("rule", one.rule, one) for one in figures]))


def figure_cells(
    rows: Sequence[tuple[str, str, Figures]],
) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of figures, each preceded by its own heading and cell."""
    heading = [rows[0][0] if rows else "rule", "alerts", "a day", "keys"]
    cells = [[cell, f"{of.alerts:,}", rate(of.a_day), f"{of.keys:,}"] for _, cell, of in rows]
    if any(of.score is not None for _, _, of in rows):
        heading += ["planted", "found", "recall", "precision", "near misses"]
        for row, (_, _, of) in zip(cells, rows, strict=True):
            known = of.score
            row += ["", "", "", "", ""] if known is None else [f"{known.planted:,}", f"{known.found:,}"]
            if known is not None:
                row += [percent(of.recall), percent(of.precision), f"{known.near_misses_reported:,}"]
    return heading, cells


def table_text(heading: Sequence[str], rows: Iterable[Sequence[str]], n_words: int = 1) -> str:
    """Return cells in columns, the first `n_words` to the left, all others to the right."""
    lines = [list(map(for_cell, line)) for line in (heading, *rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(heading))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < n_words else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def range_text(found: Backtest) -> str:
    """Return what was read: events, days, the share of keys."""
    of_keys = "" if found.share == 1.0 else f", {percent(found.share)} of the keys"
    days = f"{found.days:.1f}".removesuffix(".0")
    text = f"{found.n_events:,} event{'' if found.n_events == 1 else 's'}{of_keys}"
    if found.has_range:
        first, last = day_of(found.from_us), day_of(found.to_us)
        text += f", {first} to {last}, {days} {'day' if days == '1' else 'days'}"
    if found.read and not found.n_events:
        text += f"; the files have events from {day_of(found.read[0])} to {day_of(found.read[1])}"
    return text


def rate(number: float) -> str:
    """Return a rate with at least two digits."""
    if not number:
        return "0"
    if number < 1:
        return f"{number:.2g}"
    return f"{number:,.1f}" if number < 100 else f"{number:,.0f}"


def exceeds(number: float, most: float) -> bool:
    """Return whether a rate, as it is shown, is more than `most`."""
    return float(rate(number).replace(",", "")) > most


def percent(share: float | None) -> str:
    """Return a share as a percentage; empty: the share is unknown."""
    return "" if share is None else f"{100 * share:.3g}%"


def range_data(found: Backtest) -> Mapping[str, Any]:
    """Return what was read, as values that JSON can express."""
    return {
        "events": found.n_events,
        "from": day_of(found.from_us) if found.has_range else None,
        "to": day_of(found.to_us) if found.has_range else None,
        "days": found.days,
        "share_of_keys": found.share,
    }
