"""Absences behind a loop: they hold between its repetitions as well (docs/semantics.md, "Absence")."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, takewhile

from cep.compiler import ir


def hold_in_loops(node: ir.Node, behind: tuple[ir.Item, ...] = ()) -> ir.Node:
    """Return `node` with each loop knowing the absences directly behind it; `behind` follow `node` itself."""
    match node:
        case ir.Repeat(body=body):
            return replace(node, body=hold_in_loops(body, behind), behind=behind)
        case ir.Alternation(branches=branches):
            return ir.Alternation(tuple(hold_in_loops(branch, behind) for branch in branches))
        case ir.Permutation(parts=parts, contiguity=contiguity):
            return ir.Permutation(tuple(hold_in_loops(part) for part in parts), contiguity)
        case ir.Sequence(items=items):
            return ir.Sequence(
                tuple(
                    replace(item, node=hold_in_loops(item.node, _following(items, number + 1, behind)))
                    for number, item in enumerate(items)
                )
            )
        case ir.Group(body=body, window=window):
            return ir.Group(hold_in_loops(body, behind), window)
        case _:
            return node


def _following(items: tuple[ir.Item, ...], number: int, behind: tuple[ir.Item, ...]) -> tuple[ir.Item, ...]:
    """Return the absences from the item `number` on, up to the first item that takes events."""
    if isinstance(items[number - 1].node, ir.Absent):
        return ()  # no loop to know of them
    found = tuple(takewhile(lambda item: isinstance(item.node, ir.Absent), islice(items, number, None)))
    return (*found, *behind) if number + len(found) == len(items) else found
