"""Which value of a parameter gives a target number of alerts, or a target recall.

A grid of values is tried: the declared value, and the quantiles of the column that the rule compares with the
parameter. The approximate algorithm of XGBoost proposes splits in the same way (Chen and Guestrin, 2016,
section 3.2). A second, finer grid is tried where the goal is first met. No model estimates the effect of a
value: each row of the table is a run over all events. If no value of the grid meets the goal, values up to
the extremes of the column are tried, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from cep.backtest.figures import Figures, exceeds, figure_cells, table_text
from cep.backtest.sweep import between, beyond, candidates, number_of
from cep.language import ast

N_FIRST, N_SECOND = 10, 5
"""Values of the first grid and of the second."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal: a maximum number of alerts a day, or a minimum recall. One of the two is None."""

    alerts_a_day: float | None = None
    recall: float | None = None

    def is_met(self, figures: Figures) -> bool:
        """Return whether the figures of a run meet the goal."""
        if self.alerts_a_day is not None:
            return not exceeds(figures.a_day, self.alerts_a_day)
        return figures.recall is not None and figures.recall >= (self.recall or 0.0)

    def worth(self, figures: Figures) -> tuple[float, ...]:
        """Return the figures by which runs that meet the goal are compared; more is better.

        With a maximum of alerts, and nothing known about recall and precision, the most alerts are best.
        """
        if self.alerts_a_day is None:
            return (-figures.a_day, figures.precision or 0.0)
        return (figures.recall or 0.0, figures.precision or 0.0, figures.a_day)

    def rank(self, figures: Figures) -> tuple[bool, tuple[float, ...]]:
        """Return the order of all runs: first those that meet the goal, then the nearest to it."""
        if self.is_met(figures):
            return True, self.worth(figures)
        return False, (-figures.a_day,) if self.alerts_a_day is not None else (figures.recall or 0.0,)


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
    run: Callable[[Sequence[str]], Sequence[Figures | None]],
    goal: Goal,
) -> Proposal:
    """Return the best of the values that are tried.

    Raises InputError: there are no values in between (E0693).

    `declared`: the value that the parameter has now. `seen`: the values of the column that is compared with
    the parameter; None: none is known. `run`: returns the figures of the rule for each of some values; None:
    the rule cannot have this value.
    """
    tried = list(_tried(candidates(parameter.value, seen, N_FIRST), run))
    if not any(goal.is_met(one.figures) for one in tried):
        known = {one.value for one in tried}
        tried += _tried([value for value in beyond(parameter.value, seen) if value not in known], run)
        tried.sort(key=lambda one: number_of(parameter.value, one.value))
    finer = [
        value
        for low, high in pairwise(tried)
        if goal.is_met(low.figures) != goal.is_met(high.figures)
        for value in between(parameter.value, low.value, high.value, seen, N_SECOND)
        if value not in (low.value, high.value)
    ][: 2 * N_SECOND]
    tried += _tried(finer, run)
    tried.sort(key=lambda one: number_of(parameter.value, one.value))
    met = [one for one in tried if goal.is_met(one.figures)]
    own = number_of(parameter.value, declared)  # of equal values the one that changes least
    best = max(
        met,
        key=lambda one: (goal.worth(one.figures), -abs(number_of(parameter.value, one.value) - own)),
        default=None,
    )
    return Proposal(parameter.name.text, declared, tuple(tried), best)


def _tried(
    values: Sequence[str], run: Callable[[Sequence[str]], Sequence[Figures | None]]
) -> Iterator[Tried]:
    """Yield the values that the rule can have, with their figures."""
    for value, figures in zip(values, run(values), strict=True):
        if figures is not None:
            yield Tried(value, figures)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A parameter that is tuned with others.

    Parameters
    ----------
    declared
        The value that it has now.
    seen
        The values of the column that is compared with it; None: none is known.
    column
        The name of this column; None: none is compared with it.
    """

    parameter: ast.Parameter
    declared: str
    seen: pa.ChunkedArray | None
    column: str | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.parameter.name.text


Values = tuple[tuple[str, str], ...]
"""A value of each parameter, by its name, in the order of the rule."""


@dataclass(frozen=True, slots=True)
class JointProposal:
    """What was tried for several parameters together.

    Parameters
    ----------
    tried
        The figures of each run, in the order in which they were tried; the first is that of the current
        values.
    steps
        The values now, and each change that was better.
    best
        The last of them; None: none meets the goal.
    is_complete
        Whether no change of one parameter is better; False: the budget was spent before.
    """

    tried: Mapping[Values, Figures]
    steps: tuple[Values, ...]
    best: Values | None
    is_complete: bool


class _SpentError(Exception):
    """The budget of runs is spent."""


def propose_together(
    tuned: Sequence[Tuned], run: Callable[[Values], Figures | None], goal: Goal, budget: int
) -> JointProposal:
    """Return the best values of several parameters, by coordinate descent.

    One parameter after another is tuned as by `propose`, while the others keep their best values so far. This
    stops when a round over all parameters changes nothing. The result cannot be improved by changing one
    parameter. Changing two at once may still improve it.

    Parameters
    ----------
    run
        Returns the figures of the rule with these values; None: the rule cannot have them. It can have those
        that it has now.
    budget
        The maximum number of runs, at least 1.

    Raises
    ------
    InputError
        A parameter has no values in between (E0693).
    """
    tried: dict[Values, Figures] = {}
    refused: set[Values] = set()

    def figures_of(values: Values) -> Figures | None:
        if values not in tried and values not in refused:
            if len(tried) == budget:
                raise _SpentError
            figures = run(values)
            if figures is None:
                refused.add(values)
            else:
                tried[values] = figures
        return tried.get(values)

    best: Values = tuple((one.name, one.declared) for one in tuned)
    figures_of(best)
    steps, unchanged, is_complete = [best], 0, True
    try:
        while unchanged < len(tuned):
            for place, one in enumerate(tuned):
                found = propose(
                    one.parameter, best[place][1], one.seen, _of_one(figures_of, best, place), goal
                )
                values = [_with(best, place, one_tried.value) for one_tried in found.tried]
                better = max(values, key=lambda of: goal.rank(tried[of]))
                is_better = goal.rank(tried[better]) > goal.rank(tried[best])
                unchanged = 0 if is_better else unchanged + 1
                if is_better:
                    best = better
                    steps.append(best)
    except _SpentError:
        is_complete = False
        last = max(tried, key=lambda of: goal.rank(tried[of]))
        if goal.rank(tried[last]) > goal.rank(tried[best]):
            best = last
            steps.append(best)
    return JointProposal(tried, tuple(steps), best if goal.is_met(tried[best]) else None, is_complete)


def _of_one(
    figures_of: Callable[[Values], Figures | None], best: Values, place: int
) -> Callable[[Sequence[str]], list[Figures | None]]:
    """Return what runs the rule with values of one parameter, the others as in `best`."""
    return lambda values: [figures_of(_with(best, place, value)) for value in values]


def _with(values: Values, place: int, value: str) -> Values:
    return (*values[:place], (values[place][0], value), *values[place + 1 :])


Names = Mapping[str, str | None]
"""What `--set` calls each parameter (`setting_of`)."""


def changed_settings(changed: Iterable[tuple[str, str]], names: Names) -> list[str]:
    """Return new values of parameters as `--set` takes them, without those that it cannot set alone."""
    return [f"{names[name]}={value}" for name, value in changed if names[name] is not None]


def joint_changes(proposal: JointProposal) -> Values:
    """Return the values that are proposed and differ from those now."""
    return tuple(pair for pair in proposal.best or () if pair not in proposal.steps[0])


def changes(proposal: Proposal) -> Values:
    """Return the value that is proposed, if it differs from the one now."""
    best = proposal.best
    return () if best is None or best.value == proposal.declared else ((proposal.parameter, best.value),)


def _proposed(changed: Values, names: Names) -> Iterator[str]:
    """Yield the lines that say how to change values."""
    settings = changed_settings(changed, names)
    if settings:
        yield "proposed: " + " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
    for name, value in changed:
        if names[name] is None:
            yield f"proposed: {name}={value} in the file of the rule: --set would change other rules, too"


def joint_text(proposal: JointProposal, goal: Goal, names: Names) -> str:
    """Return the steps as a table, and the proposal."""
    shown_names = ", ".join(name for name, _ in proposal.steps[0])
    rows = []
    for number, step in enumerate(proposal.steps):
        marks = [word for word, holds in (("now", number == 0), ("best", step == proposal.best)) if holds]
        shown = ", ".join(value for _, value in step) + (f" ({', '.join(marks)})" if marks else "")
        rows.append((shown_names, shown, proposal.tried[step]))
    lines = [table_text(*figure_cells(rows)), ""]
    if proposal.best is None:
        lines.append(f"no values that were tried give {_words(goal)}")
    elif proposal.best == proposal.steps[0]:
        lines.append(f"keep {', '.join('='.join(pair) for pair in proposal.best)}")
    else:
        lines += _proposed(joint_changes(proposal), names)
    runs = f"{len(proposal.tried):,} run{'' if len(proposal.tried) == 1 else 's'}"
    lines.append(f"{runs}; more were not allowed" if not proposal.is_complete else runs)
    return "\n".join(lines)


def proposal_text(proposal: Proposal, goal: Goal, names: Names) -> str:
    """Return what was tried as a table, and the proposal."""
    rows = [(proposal.parameter, _marked(one, proposal), one.figures) for one in proposal.tried]
    lines = [table_text(*figure_cells(rows)), ""]
    if proposal.best is None:
        lines.append(f"no value of `{proposal.parameter}` that was tried gives {_words(goal)}")
    elif proposal.best.value == proposal.declared:
        lines.append(f"keep {proposal.parameter}={proposal.declared}")
    else:
        lines += _proposed(changes(proposal), names)
    if len(proposal.tried) == 1:
        lines.append(f"no other value of `{proposal.parameter}` could be tried")
    return "\n".join(lines)


def _marked(one: Tried, proposal: Proposal) -> str:
    is_best = proposal.best is not None and one.value == proposal.best.value
    marks = [word for word, holds in (("now", one.value == proposal.declared), ("best", is_best)) if holds]
    return f"{one.value} ({', '.join(marks)})" if marks else one.value


def _words(goal: Goal) -> str:
    if goal.alerts_a_day is not None:
        return f"at most {goal.alerts_a_day:g} alert{'' if goal.alerts_a_day == 1 else 's'} a day"
    return f"a recall of at least {100 * (goal.recall or 0.0):g}%"
