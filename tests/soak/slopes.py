"""What grows while a pipeline runs for hours: lines through samples, and a verdict by a bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

Sample = tuple[float, float]
"""Seconds since the start of the soak, and a value."""

SHORTEST_MINUTES = 10
"""Runs that were seen for fewer minutes say nothing about an hour."""

STEADY, GROWS, TOO_SHORT = "steady", "GROWS", "too short"


@dataclass(frozen=True, slots=True)
class Line:
    """The slope that several runs have in common; each run has a level of its own.

    Parameters
    ----------
    slope
        Per hour.
    error
        The standard error of the slope, per hour.
    mean
        Of all samples.
    minutes
        How many minutes of samples there are.
    """

    slope: float
    error: float
    mean: float
    minutes: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that must not grow.

    Parameters
    ----------
    name, unit
        As printed.
    bound
        The largest slope, in units per hour.
    warm_up
        Seconds at the start of a run that do not count; memory fills caches first.
    of_each_run
        Whether a restart sets the value back, as it does with memory. What is on disk stays. A worker is a
        run of its own, from its start to its end.
    """

    name: str
    unit: str
    bound: float
    warm_up: float
    of_each_run: bool = True


def fit(runs: Iterable[Sequence[Sample]]) -> Line | None:
    """Return the line through the samples of runs; None if they are too few for a slope and its error.

    Samples of a minute are replaced by their mean: they follow each other too closely to count as many.
    """
    minutes = [list(_by_minute(run)) for run in runs]
    spread = product = square = 0.0
    for run in minutes:
        if run:
            middle, level = _mean(at for at, _ in run), _mean(value for _, value in run)
            spread += sum((at - middle) ** 2 for at, _ in run)
            product += sum((at - middle) * (value - level) for at, value in run)
            square += sum((value - level) ** 2 for _, value in run)
    values = [value for run in minutes for _, value in run]
    n_free = len(values) - sum(1 for run in minutes if run) - 1
    if n_free < 1 or spread == 0:
        return None
    slope = product / spread
    error = math.sqrt(max(square - slope * product, 0.0) / n_free / spread)
    return Line(slope * 3600, error * 3600, _mean(values), len(values))


def warmed_up(runs: Iterable[Sequence[Sample]], measure: Measure) -> list[list[Sample]]:
    """Return the samples that count: without those of the time in which a run, or the soak, warms up."""
    given = [list(run) for run in runs if run]
    if not measure.of_each_run:
        given = [[sample for run in given for sample in run]] if given else []
    return [[sample for sample in run if sample[0] >= run[0][0] + measure.warm_up] for run in given]


def verdict(line: Line | None, measure: Measure) -> str:
    """Return whether something grows: by more than its bound, even at the lower end of the slope's error."""
    if line is None or line.minutes < SHORTEST_MINUTES:
        return TOO_SHORT
    return GROWS if line.slope - 2 * line.error > measure.bound else STEADY


def _by_minute(run: Sequence[Sample]) -> Iterator[Sample]:
    for _, group in groupby(run, key=lambda sample: sample[0] // 60):
        samples = list(group)
        yield _mean(at for at, _ in samples), _mean(value for _, value in samples)


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return sum(given) / len(given)
