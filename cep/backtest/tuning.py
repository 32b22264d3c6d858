"""Which value of a parameter gives a wanted number of alerts, or a wanted recall.

A grid of values is tried: the declared value, and the quantiles of the column that the rule compares with
the parameter. So does the approximate algorithm of XGBoost propose where to split (Chen and Guestrin, 2016,
section 3.2). A second, finer grid is tried where the goal is first met. No model guesses what a value would
give: each row of the table is a run over all events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from cep.backtest.figures import Figures, figure_cells, table_text
from cep.backtest.sweep import between, candidates, number_of
from cep.language import ast

N_FIRST, N_SECOND = 10, 5
"""Values of the first grid and of the second."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: a number of alerts a day at most, or a recall at least. One of the two is None."""

    alerts_a_day: float | None = None
    recall: float | None = None

    def is_met(self, figures: Figures) -> bool:
        """Return whether the figures of a run are as wanted."""
        if self.alerts_a_day is not None:
            return figures.a_day <= self.alerts_a_day
        return figures.recall is not None and figures.recall >= (self.recall or 0.0)

    def worth(self, figures: Figures) -> tuple[float, ...]:
        """Return what is compared among runs that meet the goal: more is better."""
        if self.alerts_a_day is None:
            return (-figures.a_day, figures.precision or 0.0)
        return (figures.recall or 0.0, figures.precision or 0.0, figures.a_day)


@dataclass(frozen=True, slots=True)
class Tried:
    """A value of a parameter, and the figures of the rule with it."""

    value: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was tried for one parameter, in the order of values, and the best; None: none meets the goal."""

    parameter: str
    declared: str
    tried: tuple[Tried, ...]
    best: Tried | None


def propose(
    parameter: ast.Parameter,
    declared: str,
    seen: pa.ChunkedArray | None,
    run: Callable[[Sequence[str]], Sequence[Figures]],
    goal: Goal,
) -> Proposal:
    """Return the best of the values that are tried.

    Raises InputError: there are no values in between (E0693).

    `declared`: the value that the parameter has now. `seen`: the values of the column that is compared with
    the parameter; None: none is known. `run`: returns the figures of the rule for each of some values.
    """
    values = candidates(parameter.value, seen, N_FIRST)
    tried = [Tried(value, of) for value, of in zip(values, run(values), strict=True)]
    finer = [
        value
        for low, high in pairwise(tried)
        if goal.is_met(low.figures) != goal.is_met(high.figures)
        for value in between(parameter.value, low.value, high.value, seen, N_SECOND)
        if value not in (low.value, high.value)
    ][: 2 * N_SECOND]
    tried += [Tried(value, of) for value, of in zip(finer, run(finer), strict=True)]
    tried.sort(key=lambda one: number_of(parameter.value, one.value))
    met = [one for one in tried if goal.is_met(one.figures)]
    own = number_of(parameter.value, declared)  # of equal values the one that changes least
    best = max(
        met,
        key=lambda one: (goal.worth(one.figures), -abs(number_of(parameter.value, one.value) - own)),
        default=None,
    )
    return Proposal(parameter.name.text, declared, tuple(tried), best)


def proposal_text(proposal: Proposal, goal: Goal) -> str:
    """Return what was tried as a table, and the proposal."""
    rows = [(proposal.parameter, _marked(one, proposal), one.figures) for one in proposal.tried]
    lines = [table_text(*figure_cells(rows)), ""]
    if proposal.best is None:
        lines.append(f"no value of `{proposal.parameter}` gives {_words(goal)}")
    elif proposal.best.value == proposal.declared:
        lines.append(f"keep {proposal.parameter}={proposal.declared}")
    else:
        lines.append(f"proposed: --set {proposal.parameter}={proposal.best.value}")
    return "\n".join(lines)


def _marked(one: Tried, proposal: Proposal) -> str:
    is_best = proposal.best is not None and one.value == proposal.best.value
    marks = [word for word, holds in (("now", one.value == proposal.declared), ("best", is_best)) if holds]
    return f"{one.value} ({', '.join(marks)})" if marks else one.value


def _words(goal: Goal) -> str:
    if goal.alerts_a_day is not None:
        return f"at most {goal.alerts_a_day:g} alerts a day"
    return f"a recall of at least {100 * (goal.recall or 0.0):g}%"
