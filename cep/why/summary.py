"""The funnel of a rule over all keys: how many events pass each part of a condition and step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.compiler.automaton.nfa import ACCEPT, Nfa
from cep.compiler.lowering.parts import ConditionPart
from cep.engine.kernels import layout as at
from cep.engine.matching.watched import Watched, WatchedMatcher
from cep.expression import IN_TAKEN, Call, is_local, walk
from cep.local.replay import Replay
from cep.why.conditions import Conditions

MAX_PAUSES = 20_000
"""Events before which the open runs are compared; of more, the first ones."""


@dataclass(frozen=True, slots=True)
class PartCount:
    """A part of a condition.

    Parameters
    ----------
    text
        As it is written in the rule.
    n_true
        The events for which it is TRUE; None: it reads what a run has taken.
    n_alone
        The events that only this part refused while a run waited for them.
    """

    text: str
    n_true: int | None
    n_alone: int


@dataclass(frozen=True, slots=True)
class StepCount:
    """A variable of the pattern.

    Parameters
    ----------
    n_events
        The events of its stream.
    n_candidates
        Those for which all parts hold that the event decides alone.
    n_waited
        The candidates for which a run waited; of a step that begins runs, all.
    n_taken
        The events that runs took.
    n_reached
        The first events of runs that reached the step.
    """

    variable: str
    n_events: int
    n_candidates: int
    n_waited: int
    n_taken: int
    n_reached: int
    parts: tuple[PartCount, ...]


@dataclass(frozen=True, slots=True)
class Funnel:
    """The counts of a rule. `n_examined` of `n_wanted` events were compared with the runs that waited."""

    rule: str
    n_events: int
    n_keys: int
    n_began: int
    n_matches: int
    steps: tuple[StepCount, ...]
    n_examined: int
    n_wanted: int

    @property
    def costs_most(self) -> tuple[str, PartCount] | None:
        """The variable and the part that alone refused most events; a step that begins runs comes last."""
        for begins in (False, True):
            found = [
                (part.n_alone, step.variable, part)
                for number, step in enumerate(self.steps)
                for part in step.parts
                if (number == 0) == begins and part.n_alone
            ]
            if found:
                _, variable, part = max(found, key=lambda item: item[0])
                return variable, part
        return None


def funnel(replay: Replay) -> Funnel:
    """Return the funnel of a rule over all events."""
    counting = _Counting(replay)
    prepared = [replay.events, *replay.versions]

    def run(places: I64) -> tuple[Watched, list[I64]] | None:
        return WatchedMatcher(replay.watched.program, replay.static).pause(prepared, places)

    found = run(np.zeros(0, np.int64))
    if found is not None:  # once to know where runs may wait, and again to see them
        found = run(counting.wanted(found[0]))
    n_matches = len(set(replay.matches.column("match_id").to_pylist()))
    if found is None:
        name = replay.watched.rule.name
        return Funnel(name, 0, 0, n_began=0, n_matches=0, steps=(), n_examined=0, n_wanted=0)
    watched, runs = found
    names = list(replay.watched.program.key_columns)
    variables = watched.nodes[:, at.NODE_VARIABLE]
    roots = _roots(watched.nodes)
    n_began = len(np.unique(watched.nodes[roots[variables >= 0], at.NODE_EVENT]))
    steps = tuple(counting.step(watched, name, runs, roots) for name in counting.variables)
    return Funnel(
        rule=replay.watched.rule.name,
        n_events=len(watched.time_us),
        n_keys=_n_keys(replay.events.select(names)),
        n_began=n_began,
        n_matches=n_matches,
        steps=steps,
        n_examined=len(runs),
        n_wanted=counting.n_wanted,
    )


def _n_keys(keys: pa.Table) -> int:
    """Return how many keys there are. Several columns load Arrow's data sets, which takes long."""
    if keys.num_columns == 1:
        return len(keys.column(0).unique())
    return int(keys.group_by(keys.column_names).aggregate([]).num_rows)


def _roots(nodes: I64) -> I64:
    """Return for each node the first node of its run."""
    parents = nodes[:, at.NODE_PARENT]
    root: I64 = np.where(parents >= 0, parents, np.arange(len(nodes)))
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return root
        root = further


def _depths(nodes: I64) -> I64:
    """Return for each node how many events its run has taken up to it."""
    parents = nodes[:, at.NODE_PARENT]
    above: I64 = np.where(parents >= 0, parents, np.arange(len(nodes)))
    depth: I64 = (parents >= 0).astype(np.int64)
    while (depth[above] > 0).any():
        depth, above = depth + depth[above], above[above]
    return depth + 1


def _takes_to(automaton: Nfa) -> list[int]:
    """Return for each state how many events a run there has taken at least."""
    found = [0] + [len(automaton.states)] * (len(automaton.states) - 1)
    for _ in automaton.states:
        for number, state in enumerate(automaton.states):
            moves = [(after, 1) for take in state.takes for after in take.after]
            moves += [(after, 0) for after in (state.timed_absence.after if state.timed_absence else ())]
            moves += [(state.next, 0), *((after, 0) for _, after in state.releases)] if number else []
            for after, taken in moves:
                if after != ACCEPT:
                    found[after] = min(found[after], found[number] + taken)
    return found


class _Counting:
    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.automaton = replay.watched.automaton
        taken = [take.variable for state in self.automaton.states for take in state.takes]
        self.begins = {take.variable for take in self.automaton.states[0].takes}
        self.variables = [of.name for of in replay.watched.rule.variables if of.name in taken]
        self.variables.sort(key=lambda name: name not in self.begins)
        self.places = np.zeros(0, np.int64)
        self.n_wanted = 0
        self._local: dict[str, Mask] = {}
        self._conditions: Conditions | None = None

    def wanted(self, watched: Watched) -> I64:
        """Return the events for which all but one of the parts hold that depend only on the event.

        Return only those for which a run may have been waiting.
        """
        conditions = Conditions(self.replay, watched)
        every, wanted = np.arange(len(watched.time_us)), np.zeros(len(watched.time_us), np.bool_)
        for name in self.variables:
            local = [part for part in self.replay.watched.parts[name] if is_local(part.condition.written)]
            of_stream = conditions.has_stream(name, watched.events)
            truths = conditions.truths(name, watched.first_row(), every, local) & of_stream
            self._local[name] = truths
            if name not in self.begins:
                near = (len(local) - truths.sum(axis=0) <= 1) & of_stream
                wanted |= near & self._may_wait(watched, name)
        found = np.flatnonzero(wanted)
        self.n_wanted = len(found)
        self.places = found[:MAX_PAUSES]
        return self.places

    def _may_wait(self, watched: Watched, name: str) -> Mask:
        """Return before which events a run may be open that waits for a variable."""
        nodes, rule = watched.nodes, watched.rule
        states = self.automaton.states
        waiting = [
            number for number, state in enumerate(states) if name in [take.variable for take in state.takes]
        ]
        fewest = min((_takes_to(self.automaton)[number] for number in waiting), default=0)
        is_taken = (nodes[:, at.NODE_VARIABLE] >= 0) & (_depths(nodes) >= fewest)
        chosen = np.flatnonzero(is_taken)
        first = nodes[chosen, at.NODE_EVENT] + 1
        slots, times = watched.fields[at.SLOT], watched.time_us
        ends = np.append(np.flatnonzero(np.diff(slots)) + 1, len(slots))
        last = ends[np.searchsorted(ends, first - 1, "right")]
        if rule.span_us >= 0:
            until_us = times[nodes[_roots(nodes)[chosen], at.NODE_EVENT]] + rule.span_us
            for place, (start, end, time_us) in enumerate(zip(first, last, until_us, strict=True)):
                last[place] = start + np.searchsorted(times[start:end], time_us, "right")
        change = np.zeros(len(slots) + 1, np.int64)
        np.add.at(change, first, 1)
        np.add.at(change, last, -1)
        waits: Mask = np.cumsum(change)[:-1] > 0
        return waits

    def step(self, watched: Watched, name: str, runs: list[I64], roots: I64) -> StepCount:
        conditions = Conditions(self.replay, watched)
        of_stream = conditions.has_stream(name, watched.events)
        truths = self._local[name]
        holds = truths.all(axis=0) & of_stream
        number = watched.rule.variables.index(name)
        takes = watched.nodes[:, at.NODE_VARIABLE] == number
        alone = np.zeros(len(self.replay.watched.parts[name]), np.int64)
        n_waited = int(holds.sum())
        if name in self.begins:
            self._alone_at_start(conditions, name, truths, of_stream, alone)
        else:
            n_waited = self._alone(conditions, name, truths, runs, alone)
        return StepCount(
            name,
            int(of_stream.sum()),
            int(holds.sum()),
            n_waited,
            len(np.unique(watched.nodes[takes, at.NODE_EVENT])),
            len(np.unique(watched.nodes[roots[takes], at.NODE_EVENT])),
            tuple(self._parts(conditions, name, truths, alone)),
        )

    def _parts(self, conditions: Conditions, name: str, truths: Mask, alone: I64) -> Iterator[PartCount]:
        counts = iter(truths.sum(axis=1).tolist())
        for number, part in enumerate(self.replay.watched.parts[name]):
            n_true = next(counts) if is_local(part.condition.written) else None
            yield PartCount(conditions.text_of(name, number), n_true, int(alone[number]))

    def _alone_at_start(
        self, conditions: Conditions, name: str, truths: Mask, of_stream: Mask, alone: I64
    ) -> None:
        """Count the events that only one part kept from beginning a run."""
        parts = self.replay.watched.parts[name]
        local = [number for number, part in enumerate(parts) if is_local(part.condition.written)]
        if len(local) < len(parts):
            return  # a part reads the run: another event decides
        failed = ~truths & of_stream
        only = failed & (failed.sum(axis=0) == 1)
        for place, number in enumerate(local):
            alone[number] += int(only[place].sum())

    def _alone(self, conditions: Conditions, name: str, truths: Mask, runs: list[I64], alone: I64) -> int:
        """Count the events that only one part refused while a run waited; return how many candidates did."""
        parts = self.replay.watched.parts[name]
        local = [number for number, part in enumerate(parts) if is_local(part.condition.written)]
        others = [number for number in range(len(parts)) if number not in local]
        states = [number for number, state in enumerate(self.automaton.states)
                  if name in [take.variable for take in state.takes]]  # fmt: skip
        n_waited = 0
        waits = [rows[np.isin(rows[:, at.STATE], states)] for rows in runs]
        for place, of_runs in zip(
            self.places.tolist(), self._truths(conditions, name, others, waits), strict=True
        ):
            failed = [local[at_part] for at_part in np.flatnonzero(~truths[:, place]).tolist()]
            if of_runs is None or len(failed) > 1:
                continue
            n_waited += not failed
            fewest = of_runs[:, (~of_runs).sum(axis=0).argmin()] if len(others) else np.ones(0, np.bool_)
            failed += [others[at_part] for at_part in np.flatnonzero(~fewest).tolist()]
            if len(failed) == 1:
                alone[failed[0]] += 1
        return n_waited

    def _truths(
        self, conditions: Conditions, name: str, others: list[int], waits: list[I64]
    ) -> Iterator[Mask | None]:
        """Yield for each place which of the parts `others` hold: (parts, runs); None: no run waited."""
        parts = [self.replay.watched.parts[name][number] for number in others]
        sizes = [len(rows) for rows in waits]
        if not sum(sizes):
            yield from (None for _ in sizes)
            return
        evaluate = partial(conditions.truths, name, parts=parts)
        if any(_reads_set(part) for part in parts):
            for place, rows in zip(self.places.tolist(), waits, strict=True):
                each = [evaluate(row, np.array([place])) for row in rows]
                yield np.concatenate(each, axis=1) if each else None
            return
        every = np.concatenate(waits)
        truths = evaluate(every, np.repeat(self.places, sizes))
        ends = np.cumsum(sizes)
        for end, size in zip(ends.tolist(), sizes, strict=True):
            yield truths[:, end - size : end] if size else None


def _reads_set(part: ConditionPart) -> bool:
    return any(isinstance(of, Call) and of.function == IN_TAKEN for of in walk(part.condition.expression))
