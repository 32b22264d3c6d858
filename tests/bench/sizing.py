"""A simulator of micro-batches: how long one takes, and how many cores and key groups a load needs.

A micro-batch is a sum of costs. Its processor time is each cost multiplied by how much of it there is. Its
duration is each cost multiplied by how much of it is done one after another: a stage waits for its longest
task, so with one key that has half of all events, more cores do not help. The costs are fitted to processor
times of some micro-batches (`tests.bench.sizes`), and others are then predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

BUSY = 0.7
"""The part of the time between two micro-batches that a stream should need, so that it can catch up."""

RUNS_OF_GROUP = 500_000
"""Open runs of a key group: 10 MB in Spark's state store, of which Java holds several copies."""

MOST_READING_TASKS = 1024
"""`spark_runtime.dataflow.share_reader.TICKS`."""


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a micro-batch.

    Parameters
    ----------
    events
        How many it reads.
    runs
        Open runs that it carries, which Spark's state store contains.
    hot
        The share of the events that have the most frequent key; all other keys are rare.
    """

    events: float
    runs: float = 0
    hot: float = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The cores of all executors, and the key groups."""

    cores: int
    groups: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one core.

    Parameters
    ----------
    batch
        A micro-batch: planning, plan file, commit.
    task
        A task, in the driver, where tasks wait for each other.
    group
        A key group: its task and its state store, without events and runs.
    read
        An event that is read, prepared and packed.
    call
        An event in its key group.
    run
        An open run whose state is read and written.
    """

    batch: float
    task: float
    group: float
    read: float
    call: float
    run: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A micro-batch that was measured: its duration, and its processor time, in seconds."""

    name: str
    load: Load
    layout: Layout
    seconds: float
    cpu_seconds: float


def amounts(load: Load, layout: Layout) -> tuple[float, ...]:
    """Return how much of each of `Costs` is done one after another, in their order."""
    waves = ceil(layout.groups / layout.cores)
    rare = (1 - load.hot) / layout.groups
    longest = max(load.hot + rare, rare * waves)
    return (
        1,
        layout.groups + min(layout.cores, MOST_READING_TASKS),
        waves,
        load.events / min(layout.cores, MOST_READING_TASKS),
        load.events * longest,
        load.runs * waves / layout.groups,
    )


def work(load: Load, layout: Layout) -> tuple[float, ...]:
    """Return how much of each of `Costs` there is, in their order."""
    tasks = layout.groups + min(layout.cores, MOST_READING_TASKS)
    return 1, tasks, layout.groups, load.events, load.events, load.runs


def seconds(costs: Costs, load: Load, layout: Layout) -> float:
    """Return how long a micro-batch takes on a machine that nobody else uses."""
    return _sum(costs, amounts(load, layout))


def cpu_seconds(costs: Costs, load: Load, layout: Layout) -> float:
    """Return the processor time of a micro-batch."""
    return _sum(costs, work(load, layout))


def _sum(costs: Costs, amounts: Sequence[float]) -> float:
    each = (costs.batch, costs.task, costs.group, costs.read, costs.call, costs.run)
    return sum(cost * amount for cost, amount in zip(each, amounts, strict=True))


def fitted(found: Sequence[Measured], task: float, call: float) -> Costs:
    """Return the costs that fit measured processor times best, by relative error.

    No cost is negative: what least squares would make negative counts as nothing.

    Parameters
    ----------
    task, call
        Costs that were measured apart.
    """
    rows = np.array([work(one.load, one.layout) for one in found])
    times = np.array([one.cpu_seconds for one in found])
    rest = times - rows[:, 1] * task - rows[:, 4] * call
    kept = [0, 2, 3, 5]
    costs = np.zeros(rows.shape[1])
    while True:
        solved = np.linalg.lstsq(rows[:, kept] / times[:, None], rest / times, rcond=None)[0]
        if (solved >= 0).all():
            break
        kept.pop(int(np.argmin(solved * rows[:, kept].max(axis=0))))
    costs[kept] = solved
    batch, _, group, read, _, run = map(float, costs)
    return Costs(batch, task, group, read, call, run)


def needed(costs: Costs, events_per_second: float, runs: float, interval_s: float) -> Layout | None:
    """Return the fewest cores, with key groups, that keep pace with a load; None: no number of cores does.

    A micro-batch has the events of an interval, and may take `BUSY` of it.
    """
    load = Load(events_per_second * interval_s, runs)
    cores = 1
    while cores <= 1 << 14:
        layout = Layout(cores, cores * max(1, ceil(runs / RUNS_OF_GROUP / cores)))
        if seconds(costs, load, layout) <= BUSY * interval_s:
            return layout
        cores += max(1, cores // 8)
    return None
