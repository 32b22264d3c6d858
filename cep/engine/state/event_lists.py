"""What runs have taken: events, for rules that report them, and sets of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.event_nodes import compact_nodes, count_taken, list_taken, mark_nodes
from cep.engine.state.packing import Packed, packed
from cep.engine.state.runs import RunPool
from cep.engine.state.strings import Cells
from cep.expression import Type
from cep.program.opcodes import Update
from cep.program.program import RuleProgram

_FIRST_CAPACITY = 64


def nodes_of_sets(rule: RuleProgram) -> int:
    """Return the largest number of values that a take adds to sets (`cep.engine.kernels.event_nodes`)."""
    is_of_set = rule.tables.update_op == Update.DISTINCT
    ends = np.concatenate(([0], np.cumsum(is_of_set)))
    return int(np.diff(ends[rule.tables.update_ptr]).max(initial=0))


class Nodes:
    """The nodes of one rule (`cep.engine.kernels.event_nodes`). Without a register it stays empty.

    `rule`: says which registers of a run lead to nodes, and how many nodes a take adds.
    """

    def __init__(self, rule: RuleProgram, stored: I64 | None = None) -> None:
        self.register = rule.node_register
        self._sets = {number: of.values for number, of in enumerate(rule.registers) if of.values is not None}
        self._registers = [*self._sets, *([self.register] if self.register >= 0 else [])]
        self._per_take = nodes_of_sets(rule) + (self.register >= 0)
        size = 0 if stored is None else len(stored)
        capacity = 1 if not self._registers else 2 * size + _FIRST_CAPACITY
        self.nodes = np.zeros((capacity, at.NODE_WIDTH), np.int64)
        if stored is not None and size:
            self.nodes[:size] = stored

    def stored(self, pool: RunPool) -> Packed:
        """Return the nodes in use."""
        return packed(self.nodes[: int(pool.meta[at.N_NODES])])

    def make_room(self, needed: int, pool: RunPool, found: Sequence[I64]) -> None:
        """Make room for `needed` takes: drop nodes that no run and no match in `found` reaches, then grow."""
        needed *= self._per_take
        if not self._registers or len(self.nodes) - pool.meta[at.N_NODES] >= needed:
            return
        self.compact(pool, found)
        n_nodes = int(pool.meta[at.N_NODES])
        if len(self.nodes) - n_nodes < needed + n_nodes:  # afterwards, as many as exist fit in
            grown = np.zeros((2 * (n_nodes + needed), at.NODE_WIDTH), np.int64)
            grown[:n_nodes] = self.nodes[:n_nodes]
            self.nodes = grown

    def compact(self, pool: RunPool, found: Sequence[I64]) -> None:
        """Drop the nodes that no run and no match in `found` reaches, and renumber the registers.

        Only the sizes of the sets of a match are needed.
        """
        n_nodes = int(pool.meta[at.N_NODES])
        if not self._registers or n_nodes == 0:
            return
        rows = pool.live_rows()
        of_runs = [pool.runs[rows, at.REGISTER + register] for register in self._registers]
        of_matches = (
            [part[:, at.MATCH_REGISTER + self.register] for part in found] if self.register >= 0 else []
        )
        marks = np.zeros(n_nodes, np.uint8)
        for last in (*of_runs, *of_matches):
            mark_nodes(self.nodes, np.ascontiguousarray(last), marks)
        moved = np.zeros(n_nodes + 1, np.int64)  # by node + 1; for 0, which is not a node, it is 0
        pool.meta[at.N_NODES] = compact_nodes(self.nodes, marks, moved[:-1])
        moved[1:] = moved[:-1] + 1
        moved[0] = 0
        for register, last in zip(self._registers, of_runs, strict=True):
            pool.runs[rows, at.REGISTER + register] = moved[last]
        for part, last in zip(found, of_matches, strict=False):
            part[:, at.MATCH_REGISTER + self.register] = moved[last]

    def positions(self, pool: RunPool) -> I64:
        """Return the positions of the events in the nodes."""
        nodes = self.nodes[: int(pool.meta[at.N_NODES])]
        positions: I64 = nodes[nodes[:, at.NODE_VARIABLE] >= 0, at.NODE_EVENT]
        return positions

    def string_cells(self, pool: RunPool) -> Cells:
        """Return the cells of sets of strings, in place, after dropping what no run reaches."""
        if not self._sets:
            return []
        self.compact(pool, ())
        of_strings = [
            at.FIRST_SET - (number - 1) for number, kind in self._sets.items() if kind is Type.STRING
        ]
        nodes = self.nodes[: int(pool.meta[at.N_NODES])]
        return [(nodes[:, at.NODE_EVENT], np.isin(nodes[:, at.NODE_VARIABLE], of_strings))]

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
    """The events of matches, one match after another, oldest first: position and number of the variable."""

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
    """Columns of the events that runs may still report, with their ascending positions."""

    positions: I64
    columns: pa.Table

    def with_batch(self, base: int, columns: pa.Table) -> KeptEvents:
        """Return these and the events of a batch, whose positions start at `base`."""
        positions = np.concatenate((self.positions, base + np.arange(len(columns))))
        return KeptEvents(positions, pa.concat_tables([self.columns, columns]).combine_chunks())

    def only(self, positions: Sequence[I64]) -> KeptEvents:
        """Return the events at some of the positions, each once."""
        wanted = np.unique(np.concatenate([np.zeros(0, np.int64), *positions]))
        return KeptEvents(wanted, self.columns.take(pa.array(self.rows(wanted))))

    def rows(self, positions: I64) -> I64:
        """Return the rows of the events at `positions`."""
        return np.searchsorted(self.positions, positions)
