"""Compiled loops over the events that runs have taken, a forest of nodes that all runs of a rule share.

A node is an event taken as a variable, with a link to the previous node. Runs that split share the nodes
taken before the split, as in the versioned buffer of Agrawal et al., "Efficient Pattern Matching over Event
Streams" (SIGMOD 2008). A register of each run holds the number of its last node, plus 1; 0: the run has taken
nothing. A node comes after its parent in the array, so one pass compacts it.

The values of a *set*, for ``COUNT(DISTINCT v.x)`` and ``x IN (v.y)``, are nodes in the same array: a list of
different values, the last one first. A register of the run counts the values, and the next register holds the
number of the last node, plus 1; 0: no event was taken. NULL has one node, because SQL's IN depends on it. A
list is searched from its end, so the cost of a test grows with the number of different values. A hash table
for each run would be faster to search, but runs are copied whenever they split.
"""

from __future__ import annotations

import numpy as np

from cep.arrays import I64, U8
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, kernel
from cep.engine.kernels.functions import as_f


@inlined
def look_up(nodes: I64, last: int, value: int, is_double: bool) -> int:
    """Return whether `value` is in a set: FOUND, NOT_FOUND or UNKNOWN.

    Parameters
    ----------
    last : int
        The register that leads to the set.
    value : int
        The value, or the bits of a double.
    is_double : bool
        Whether the values are doubles: NaN equals NaN, and 0.0 equals -0.0.
    """
    found = at.NOT_FOUND
    node = last - 1
    while node >= 0 and found != at.FOUND:
        held = nodes[node, at.NODE_EVENT]
        if nodes[node, at.NODE_VARIABLE] == at.NULL_NODE:
            found = at.UNKNOWN
        elif held == value:
            found = at.FOUND
        elif is_double:  # 0.0 equals -0.0, and NaN of any bits equals NaN
            x, y = as_f(held), as_f(value)
            if x == y or (np.isnan(x) and np.isnan(y)):
                found = at.FOUND
        node = nodes[node, at.NODE_PARENT]
    return found


@kernel
def mark_nodes(nodes: I64, last: I64, marks: U8) -> None:
    """Mark the nodes that can be reached from those in `last`.

    Parameters
    ----------
    last : (runs,) int64
        The register with the last node, of each run.
    marks : (nodes,) uint8
        1: reached; written.
    """
    for register in last:
        node = register - 1
        while node >= 0 and marks[node] == 0:
            marks[node] = 1
            node = nodes[node, at.NODE_PARENT]


@kernel
def compact_nodes(nodes: I64, marks: U8, moved: I64) -> int:
    """Move the marked nodes to the front, in order; return their number.

    Parameters
    ----------
    marks : (nodes,) uint8
        1: keep the node.
    moved : (nodes,) int64
        The new row of each node that is kept; written.
    """
    kept = 0
    for node in range(marks.shape[0]):
        if marks[node] == 0:
            continue
        parent = nodes[node, at.NODE_PARENT]
        nodes[kept, at.NODE_PARENT] = moved[parent] if parent >= 0 else -1
        nodes[kept, at.NODE_EVENT] = nodes[node, at.NODE_EVENT]
        nodes[kept, at.NODE_VARIABLE] = nodes[node, at.NODE_VARIABLE]
        moved[node] = kept
        kept += 1
    return kept


@kernel
def count_taken(nodes: I64, last: I64, counts: I64) -> None:
    """Add to `counts` how many events lead to each node in `last`.

    Parameters
    ----------
    last : (runs,) int64
        The register with the last node, of each run.
    counts : (runs,) int64
        Zeros; written.
    """
    for row in range(last.shape[0]):
        node = last[row] - 1
        while node >= 0:
            counts[row] += 1
            node = nodes[node, at.NODE_PARENT]


@kernel
def list_taken(nodes: I64, last: I64, ends: I64, positions: I64, variables: I64) -> None:
    """List the events that lead to each node in `last`, oldest first.

    Parameters
    ----------
    last : (runs,) int64
        The register with the last node, of each run.
    ends : (runs,) int64
        Where the list of each run ends.
    positions, variables : (events,) int64
        Position and variable of each event; written.
    """
    for row in range(last.shape[0]):
        node, entry = last[row] - 1, ends[row]
        while node >= 0:
            entry -= 1
            positions[entry] = nodes[node, at.NODE_EVENT]
            variables[entry] = nodes[node, at.NODE_VARIABLE]
            node = nodes[node, at.NODE_PARENT]
