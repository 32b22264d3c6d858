"""Typed rules -> typed rules with explicit absences: a loop gets the absences that follow it.

An absence after a loop holds between its repetitions as well (docs/language/semantics/absence.md).
The automaton is built fragment by fragment, and the fragment of a loop does not see what follows the loop.
So each loop receives the absences after it before anything is built.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, takewhile
from typing import assert_never

from cep.compiler import ir


def rewrite(rule: ir.Rule) -> ir.Rule:
    """Return `rule` with a pattern from which an automaton can be built."""
    return replace(rule, pattern=repeat_absences(rule.pattern))


def repeat_absences(node: ir.Node, behind: tuple[ir.Item, ...] = ()) -> ir.Node:
    """Return `node`, each loop in it with the absences directly after it; `behind` follow `node` itself."""
    match node:
        case ir.Take() | ir.Absent() | ir.TimedAbsence():
            return node
        case ir.Repeat(body=body):
            return replace(node, body=repeat_absences(body, behind), behind=behind)
        case ir.Alternation(branches=branches):
            return ir.Alternation(tuple(repeat_absences(branch, behind) for branch in branches))
        case ir.Permutation(parts=parts, contiguity=contiguity):
            return ir.Permutation(tuple(repeat_absences(part) for part in parts), contiguity)
        case ir.Sequence(items=items):
            return ir.Sequence(
                tuple(
                    replace(item, node=repeat_absences(item.node, _following(items, number + 1, behind)))
                    for number, item in enumerate(items)
                )
            )
        case ir.Group(body=body, window=window):
            return ir.Group(repeat_absences(body, behind), window)
        case ir.Anchored(body=body):
            return ir.Anchored(repeat_absences(body, behind))
        case ir.Without(body=body, variables=variables):
            return ir.Without(repeat_absences(body, behind), variables)
        case _:
            assert_never(node)


def _following(items: tuple[ir.Item, ...], number: int, behind: tuple[ir.Item, ...]) -> tuple[ir.Item, ...]:
    """Return the absences from the item `number` on, up to the first item that takes events."""
    if isinstance(items[number - 1].node, ir.Absent):
        return ()  # an absence has no repetitions
    found = tuple(takewhile(lambda item: isinstance(item.node, ir.Absent), islice(items, number, None)))
    return (*found, *behind) if number + len(found) == len(items) else found
