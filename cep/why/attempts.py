"""What the runs of a key did: the events that each took, how long it lived, and what ended it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.compiler.automaton.nfa import ACCEPT, Nfa
from cep.engine.kernels import layout as at
from cep.engine.matching.match_batch import match_ids
from cep.engine.matching.watched import Moment, Watched
from cep.program.program import name_hash

Chain = int
"""Stands for the events that a run took, as variables, in order. Runs that took the same have one number."""

NOTHING: Chain = -1
"""The chain of a run that has taken nothing."""


@dataclass
class Life:
    """The lives of the runs of one chain: their state after each moment that changed them.

    `ended` is the number of the moment at which the last of them ended; None: they are open at the end.
    """

    begun: int
    history: list[tuple[int, I64]] = field(default_factory=list)
    ended: int | None = None

    @property
    def rows(self) -> I64:
        """The rows of the runs when they were last open."""
        return self.history[-1][1]


class Lives:
    """The chains of a watched rule, and their lives."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.parents: list[Chain] = []
        self.taken: list[tuple[int, int]] = []  # (variable, place of the event)
        self._of_node = self._chains()
        self.has_child = set(self.parents)
        self.lives: dict[Chain, Life] = {}
        self.matched: set[Chain] = set()
        self.timed_out: set[Chain] = set()
        self._open: set[Chain] = set()
        for number, moment in enumerate(watched.moments):
            self._live(number, moment)

    def steps(self, chain: Chain) -> list[tuple[int, int]]:
        """Return variable and place of the events of a chain, in order."""
        found: list[tuple[int, int]] = []
        while chain != NOTHING:
            found.append(self.taken[chain])
            chain = self.parents[chain]
        return found[::-1]

    def of(self, registers: I64) -> list[Chain]:
        """Return the chains of runs or matches from their registers that lead to nodes."""
        return [self._of_node[node - 1] if node else NOTHING for node in registers.tolist()]

    def leaves(self) -> list[Chain]:
        """Return the chains that no run continued, without those of matches."""
        return [
            chain
            for chain in range(len(self.taken))
            if chain not in self.has_child and chain not in self.matched
        ]

    def _chains(self) -> list[Chain]:
        known: dict[tuple[Chain, int, int], Chain] = {}
        of_node: list[Chain] = []
        for parent, event, variable in self.watched.nodes.tolist():
            if variable < 0:  # a value of a set
                of_node.append(NOTHING)
                continue
            step = (of_node[parent] if parent >= 0 else NOTHING, event, variable)
            if step not in known:
                known[step] = len(self.taken)
                self.parents.append(step[0])
                self.taken.append((variable, event))
            of_node.append(known[step])
        return of_node

    def _live(self, number: int, moment: Moment) -> None:
        register = self.watched.rule.node_register
        ends = self.of(moment.matches[:, at.MATCH_REGISTER + register])
        for chain, is_timeout in zip(ends, moment.matches[:, at.MATCH_TIMED_OUT].tolist(), strict=True):
            (self.timed_out if is_timeout else self.matched).add(chain)
        if number and moment.rows is self.watched.moments[number - 1].rows:
            return
        rows_of: dict[Chain, list[int]] = defaultdict(list)
        for place, chain in enumerate(self.of(moment.rows[:, at.REGISTER + register])):
            rows_of[chain].append(place)
        for chain, places in rows_of.items():
            life = self.lives.setdefault(chain, Life(number))
            rows = moment.rows[places]
            if not life.history or not np.array_equal(life.history[-1][1], rows):
                life.history.append((number, rows))
        for chain in self._open - rows_of.keys():
            self.lives[chain].ended = number
        self._open = set(rows_of)

    def ids(self, rule_name: str, keys: list[pa.Array]) -> Iterator[tuple[str, int, int, bool, Chain]]:
        """Yield, for each match in the order found: id, start, end, whether it is a timeout, and chain.

        Parameters
        ----------
        keys
            The values of the key columns, one each.
        """
        hashes = np.array([name_hash(rule_name)], np.uint64)
        for moment in self.watched.moments:
            n = len(moment.matches)
            if not n:
                continue
            columns = [column.take(pa.array(np.zeros(n, np.int64))) for column in keys]
            ids = match_ids(np.repeat(hashes, n), columns, moment.matches).to_pylist()
            chains = self.of(moment.matches[:, at.MATCH_REGISTER + self.watched.rule.node_register])
            starts, ends = (
                moment.matches[:, at.MATCH_START].tolist(),
                moment.matches[:, at.MATCH_END].tolist(),
            )
            outcomes = moment.matches[:, at.MATCH_TIMED_OUT].astype(np.bool_).tolist()
            yield from zip(ids, starts, ends, outcomes, chains, strict=True)


def distances(automaton: Nfa) -> Mapping[int, int]:
    """Return, for each state, the minimum number of events that a run there still needs."""
    far = len(automaton.states) + 1
    found = dict.fromkeys(range(len(automaton.states)), far) | {ACCEPT: 0, at.PENDING: 0}
    changed = True
    while changed:
        changed = False
        for number, state in enumerate(automaton.states):
            ways = [1 + found[after] for take in state.takes for after in take.after]
            ways += [found[after] for after in state.timed_absence.after] if state.timed_absence else []
            ways += [0] if state.closes or state.accepts_after_ignore else []
            best = min(ways, default=far)
            if best < found[number]:
                found[number], changed = best, True
    return found
