"""The events that runs took, for rules that report them (ARRAY_AGG, ALL ROWS PER MATCH)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.arrays import I64
from cep.engine.kernels.event_nodes import compact_nodes, count_taken, list_taken, mark_nodes
from cep.engine.kernels.layout import MATCH_REGISTER, N_NODES, NODE_EVENT, NODE_WIDTH, REGISTER
from cep.engine.state.packing import Packed, packed
from cep.engine.state.runs import RunPool

_FIRST_CAPACITY = 64


class Nodes:
    """The nodes of one rule (`cep.engine.kernels.event_nodes`). Without a register it stays empty.

    Parameters
    ----------
    register
        Which register of a run holds its last node; -1: the rule reports no events.
    stored
        Nodes to begin with.
    """

    def __init__(self, register: int, stored: I64 | None = None) -> None:
        self.register = register
        size = 0 if stored is None else len(stored)
        capacity = 1 if register < 0 else 2 * size + _FIRST_CAPACITY
        self.nodes = np.zeros((capacity, NODE_WIDTH), np.int64)
        if stored is not None and size:
            self.nodes[:size] = stored

    def stored(self, pool: RunPool) -> Packed:
        """Return the nodes in use."""
        return packed(self.nodes[: int(pool.meta[N_NODES])])

    def make_room(self, needed: int, pool: RunPool, found: Sequence[I64]) -> None:
        """Make room for `needed` more: drop nodes that no run and no match in `found` reaches, then grow."""
        if self.register < 0 or len(self.nodes) - pool.meta[N_NODES] >= needed:
            return
        self.compact(pool, found)
        n_nodes = int(pool.meta[N_NODES])
        if len(self.nodes) - n_nodes < needed + n_nodes:  # after this, as many as there are fit in
            grown = np.zeros((2 * (n_nodes + needed), NODE_WIDTH), np.int64)
            grown[:n_nodes] = self.nodes[:n_nodes]
            self.nodes = grown

    def compact(self, pool: RunPool, found: Sequence[I64]) -> None:
        """Drop the nodes that no run and no match in `found` reaches, and renumber the registers."""
        if self.register < 0:
            return
        n_nodes = int(pool.meta[N_NODES])
        rows = pool.live_rows()
        of_runs = pool.runs[rows, REGISTER + self.register]
        of_matches = [part[:, MATCH_REGISTER + self.register] for part in found]
        marks = np.zeros(n_nodes, np.uint8)
        for last in (of_runs, *of_matches):
            mark_nodes(self.nodes, np.ascontiguousarray(last), marks)
        moved = np.zeros(n_nodes, np.int64)
        pool.meta[N_NODES] = compact_nodes(self.nodes, marks, moved)
        pool.runs[rows, REGISTER + self.register] = moved[of_runs - 1] + 1
        for part, last in zip(found, of_matches, strict=True):
            part[:, MATCH_REGISTER + self.register] = moved[last - 1] + 1

    def positions(self, pool: RunPool) -> I64:
        """Return the positions of the events in the nodes."""
        return self.nodes[: int(pool.meta[N_NODES]), NODE_EVENT]

    def taken(self, last: I64) -> Taken:
        """Return the events that lead to each node in `last` (registers)."""
        last = np.ascontiguousarray(last)
        counts = np.zeros(len(last), np.int64)
        count_taken(self.nodes, last, counts)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        positions, variables = np.zeros(total, np.int64), np.zeros(total, np.int64)
        list_taken(self.nodes, last, ends, positions, variables)
        return Taken(counts, positions, variables)


@dataclass(frozen=True, slots=True)
class Taken:
    """The events of matches, one match after the other, oldest first: position and number of the variable."""

    counts: I64  # by match
    positions: I64
    variables: I64

    @property
    def matches(self) -> I64:
        """For each event the number of its match."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def numbers(self) -> I64:
        """For each event its number in its match, from 0."""
        starts = np.cumsum(self.counts) - self.counts
        numbers: I64 = np.arange(len(self.positions)) - np.repeat(starts, self.counts)
        return numbers

    def lists(self, chosen: npt.NDArray[np.bool_], values: pa.Array) -> pa.ListArray:
        """Return a list for each match of `values`, which belong to the events `chosen`."""
        per_match = np.bincount(self.matches[chosen], minlength=len(self.counts))
        offsets = np.concatenate(([0], np.cumsum(per_match))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values)


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """Columns of the events that runs may still report, with their positions, which ascend."""

    positions: I64
    columns: pa.Table

    def with_batch(self, base: int, columns: pa.Table) -> KeptEvents:
        """Return these and the events of a batch, whose positions begin with `base`."""
        positions = np.concatenate((self.positions, base + np.arange(len(columns))))
        return KeptEvents(positions, pa.concat_tables([self.columns, columns]).combine_chunks())

    def only(self, positions: Sequence[I64]) -> KeptEvents:
        """Return the events at some of the positions, each once."""
        wanted = np.unique(np.concatenate([np.zeros(0, np.int64), *positions]))
        return KeptEvents(wanted, self.columns.take(pa.array(self.rows(wanted))))

    def rows(self, positions: I64) -> I64:
        """Return the rows of the events at `positions`."""
        return np.searchsorted(self.positions, positions)
