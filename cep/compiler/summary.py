"""What is known about a pattern from its parts: a summary of each node, computed from those of its children.

A pattern is a regular expression over variables. From `nullable`, `first` and `last` Glushkov builds an
automaton without epsilon edges (The abstract theory of automata, Russ. Math. Surv. 16(5), 1961). An absence
takes no event, so it is the empty word.

Syntax trees and typed patterns are summarized alike: `cep.compiler.pattern_shape.summary` and
`cep.compiler.ir.summary` choose one of the functions here for each kind of node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """`nullable`: a run can pass without an event. The names are variables, in the order of the text.

    `first` and `last` are the variables that the first and the last event can be taken as. `taken` are all
    variables that events are taken as.
    """

    nullable: bool
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


EMPTY = Summary(nullable=True)
"""Of what takes no event."""


def of_event(variable: str) -> Summary:
    """Return the summary of one event."""
    return Summary(False, (variable,), (variable,), (variable,))


def in_sequence(parts: Sequence[Summary]) -> Summary:
    """Return the summary of `parts` in sequence."""
    return Summary(
        nullable=all(part.nullable for part in parts),
        first=_union(part.first for part in _up_to_an_event(parts)),
        last=_union(part.last for part in reversed(_up_to_an_event(parts[::-1]))),
        taken=_union(part.taken for part in parts),
    )


def one_of(parts: Sequence[Summary]) -> Summary:
    """Return the summary of one of `parts`."""
    return _united(parts, nullable=any(part.nullable for part in parts))


def in_any_order(parts: Sequence[Summary]) -> Summary:
    """Return the summary of all `parts` in any order: each of them can be the first and the last."""
    return _united(parts, nullable=all(part.nullable for part in parts))


def repeated(part: Summary, least: int) -> Summary:
    """Return the summary of `part`, `least` times or more."""
    return _united([part], nullable=least == 0 or part.nullable)


def _united(parts: Sequence[Summary], *, nullable: bool) -> Summary:
    return Summary(
        nullable,
        first=_union(part.first for part in parts),
        last=_union(part.last for part in parts),
        taken=_union(part.taken for part in parts),
    )


def _up_to_an_event(parts: Sequence[Summary]) -> Sequence[Summary]:
    """Return the parts that can contain the first event: all up to the first that needs an event."""
    for number, part in enumerate(parts):
        if not part.nullable:
            return parts[: number + 1]
    return parts


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))
