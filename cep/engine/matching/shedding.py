"""Which open runs and waiting events are dropped when there are more than a limit of all keys allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.program.program import STREAM_COLUMN, TIME_COLUMN, Program

if TYPE_CHECKING:
    from cep.engine.matching.matcher import Matcher

MOST_KEYS = 10
"""How many keys are named for each rule: those that lose most."""


@dataclass(frozen=True, slots=True)
class DropOrder:
    """What is dropped first: the oldest, or the `newest`, of the rules with the lowest rank."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """How much was dropped, by rule, and by rule and key (``r: k = c7``) for those that lose most."""

    by_rule: dict[str, int] = field(default_factory=dict)
    by_key: dict[str, int] = field(default_factory=dict)


def dropped_first(
    n: int, ranks: I64, times_us: I64, ties: Sequence[I64] = (), *, newest: bool = False
) -> Mask:
    """Return which `n` of m things are dropped (bool[m]).

    The lowest of `ranks` (int64[m]) are dropped first; within a rank, the earliest of `times_us` (int64[m]),
    or the latest if `newest`. `ties` (each int64[m]) decide between equal times, the last one first, as in
    `numpy.lexsort`; after that, the place decides.
    """
    dropped = np.zeros(len(times_us), np.bool_)
    for rank in np.unique(ranks).tolist():
        of_rank = np.flatnonzero(ranks == rank)
        if n >= len(of_rank):
            dropped[of_rank] = True
            n -= len(of_rank)
        elif n:
            times = -times_us[of_rank] if newest else times_us[of_rank]
            bound = np.partition(times, n - 1)[n - 1]
            sure, tied = of_rank[times < bound], of_rank[times == bound]
            if ties:
                tied = tied[np.lexsort([part[tied] for part in ties])]
            dropped[sure] = True
            dropped[(tied[::-1] if newest else tied)[: n - len(sure)]] = True
            n = 0
    return dropped


def shed_runs(matchers: Sequence[Matcher], most: int, order: DropOrder) -> Dropped:
    """Drop the open runs of all keys of all matchers beyond `most`, as if they had never started.

    The choice depends only on the runs, not on the order of rules and keys in memory.
    """
    excess = sum(matcher.n_open_runs for matcher in matchers) - most
    if excess <= 0:
        return Dropped()
    # Ordered by name: the order of rules may change with a restart, and the records are then repeated.
    of_rules = sorted((rule.name, matcher) for matcher in matchers for rule in matcher.program.rules)
    parts = [matcher.started(name) for name, matcher in of_rules]
    sizes = [len(starts_us) for starts_us, _ in parts]
    ranks = np.repeat([order.ranks.get(name, 0) for name, _ in of_rules], sizes).astype(np.int64)
    starts_us, positions = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    ties = positions, np.repeat(np.arange(len(sizes)), sizes)
    marked = dropped_first(excess, ranks, starts_us, ties, newest=order.newest)
    found = Dropped()
    for (name, matcher), part in zip(of_rules, np.split(marked, np.cumsum(sizes)[:-1]), strict=True):
        if part.any():
            found.by_rule[name] = int(part.sum())
            of_keys = matcher.drop_runs(name, part, MOST_KEYS)
            found.by_key.update({f"{name}: {key}": n for key, n in of_keys.items()})
    return found


@dataclass(frozen=True, slots=True)
class DroppedEvents:
    """Events that were dropped while they waited: by stream their number, first and last time; by key."""

    by_stream: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    by_key: dict[str, int] = field(default_factory=dict)


def shed_waiting(matchers: Sequence[Matcher], most: int, order: DropOrder) -> DroppedEvents:
    """Drop the waiting events of all keys of all matchers beyond `most`, as if they had never come.

    An event that several programs read waits in each of them. Its rank is that of the most important rule of
    the program.
    """
    in_order = sorted(matchers, key=lambda matcher: matcher.program.rules[0].name)
    times = [matcher.waiting_us() for matcher in in_order]
    sizes = list(map(len, times))
    found = DroppedEvents()
    if sum(sizes) <= most:
        return found
    of_programs = [max(order.ranks.get(r.name, 0) for r in each.program.rules) for each in in_order]
    ranks = np.repeat(np.array(of_programs, np.int64), sizes)
    marked = dropped_first(sum(sizes) - most, ranks, np.concatenate(times), newest=order.newest)
    for matcher, part in zip(in_order, np.split(marked, np.cumsum(sizes)[:-1]), strict=True):
        if part.any():
            _count(matcher.program, matcher.drop_waiting(part), found)
    return found


def _count(program: Program, events: pa.Table, found: DroppedEvents) -> None:
    """Add dropped events of a program to what is found."""
    times_us = np.asarray(events.column(TIME_COLUMN))
    several = STREAM_COLUMN in events.column_names
    of = np.asarray(events.column(STREAM_COLUMN)) if several else np.zeros(len(times_us), np.int64)
    for number, stream in enumerate(program.streams):
        mine = times_us[of == number]
        if len(mine):
            known = found.by_stream.get(stream.name, (0, mine[0], mine[0]))
            bounds = min(known[1], mine.min()), max(known[2], mine.max())
            found.by_stream[stream.name] = known[0] + len(mine), int(bounds[0]), int(bounds[1])
    names = list(program.key_columns)
    numbers = events.select(names).group_by(names).aggregate([([], "count_all")])
    for row in numbers.sort_by([("count_all", "descending")]).slice(0, MOST_KEYS).to_pylist():
        key = ", ".join(f"{name} = {row[of]}" for name, of in zip(program.key, names, strict=True))
        found.by_key[f"{program.rules[0].name}: {key}"] = row["count_all"]
