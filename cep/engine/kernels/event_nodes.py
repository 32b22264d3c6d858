"""Compiled loops over the events that runs have taken: a forest of nodes that all runs of a rule share.

A node is an event taken as a variable, and the node before it. Runs that went on in several ways share what
they had taken before, as in the versioned buffer of Agrawal et al., "Efficient Pattern Matching over Event
Streams" (SIGMOD 2008). A run holds its last node, plus 1, in a register; 0: it has taken nothing. A node is
behind its parent in the array, so that one pass compacts it.
"""

from __future__ import annotations

from cep.engine.kernels.compiled import kernel
from cep.engine.kernels.layout import NODE_EVENT, NODE_PARENT, NODE_VARIABLE
from cep.program import I64, U8


@kernel
def mark_nodes(nodes: I64, last: I64, marks: U8) -> None:
    """Mark what can be reached from the nodes in `last` (registers)."""
    for register in last:
        node = register - 1
        while node >= 0 and marks[node] == 0:
            marks[node] = 1
            node = nodes[node, NODE_PARENT]


@kernel
def compact_nodes(nodes: I64, marks: U8, moved: I64) -> int:
    """Keep the marked nodes only; write where each is now to `moved`, return how many there are."""
    kept = 0
    for node in range(marks.shape[0]):
        if marks[node] == 0:
            continue
        parent = nodes[node, NODE_PARENT]
        nodes[kept, NODE_PARENT] = moved[parent] if parent >= 0 else -1
        nodes[kept, NODE_EVENT] = nodes[node, NODE_EVENT]
        nodes[kept, NODE_VARIABLE] = nodes[node, NODE_VARIABLE]
        moved[node] = kept
        kept += 1
    return kept


@kernel
def count_taken(nodes: I64, last: I64, counts: I64) -> None:
    """Write how many events lead to each node in `last` (registers)."""
    for row in range(last.shape[0]):
        node = last[row] - 1
        while node >= 0:
            counts[row] += 1
            node = nodes[node, NODE_PARENT]


@kernel
def list_taken(nodes: I64, last: I64, ends: I64, positions: I64, variables: I64) -> None:
    """Write event and variable of what leads to each node, oldest first; row r's end at ``ends[r]``."""
    for row in range(last.shape[0]):
        node, at = last[row] - 1, ends[row]
        while node >= 0:
            at -= 1
            positions[at] = nodes[node, NODE_EVENT]
            variables[at] = nodes[node, NODE_VARIABLE]
            node = nodes[node, NODE_PARENT]
