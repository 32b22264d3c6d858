"""Questions about the shape of a pattern: what is optional, what comes first, and what a run can wait for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import assert_never

from cep.compiler.summary import EMPTY, Summary, in_any_order, in_sequence, of_event, one_of, repeated
from cep.errors import Span
from cep.language import ast


def variable_places(pattern: ast.Pattern) -> dict[str, Span]:
    """Return the variables of `pattern` in order of their first place, with that place."""
    places: dict[str, Span] = {}
    for node in ast.walk(pattern):
        if isinstance(node, ast.Step):
            places.setdefault(node.variable.text, node.variable.span)
        elif isinstance(node, ast.Absence):
            for variable in node.variables:
                places.setdefault(variable.text, variable.span)
    for node in ast.walk(pattern):
        if isinstance(node, ast.Without):
            for variable in node.variables:
                places.setdefault(variable.text, variable.span)
    return places


def variable_names(pattern: ast.Pattern) -> dict[str, None]:
    """Return the variables of `pattern` in order of their first place."""
    return dict.fromkeys(variable_places(pattern))


def summary(pattern: ast.Pattern) -> Summary:
    """Return the summary of `pattern`, from its parts."""
    parts = [summary(child) for child in ast.children(pattern)]
    match pattern:
        case ast.Step(variable=variable):
            return of_event(variable.text)
        case ast.Absence():
            return EMPTY
        case ast.Sequence():
            return in_sequence(parts)
        case ast.Alternation():
            return one_of(parts)
        case ast.Permutation():
            return in_any_order(parts)
        case ast.Repetition(least=least):
            return repeated(parts[0], least)
        case ast.Group() | ast.Anchored() | ast.Without():
            return parts[0]
        case _:
            assert_never(pattern)


def count_positions(pattern: ast.Pattern) -> int:
    """Return the number of positions after loops are unrolled and each rest of a permutation is written."""
    inside = sum(count_positions(child) for child in ast.children(pattern))
    match pattern:
        case ast.Step():
            return 1
        case ast.Absence(variables=variables):
            return len(variables)
        case ast.Sequence() | ast.Alternation() | ast.Group() | ast.Anchored() | ast.Without():
            return inside
        case ast.Permutation(parts=parts):
            return inside << min(len(parts) - 1, 40)
        case ast.Repetition(least=least, most=most):
            return inside * (max(least, 1) if most is None else most)
        case _:
            assert_never(pattern)


def least_events(pattern: ast.Pattern) -> int:
    """Return how many events a match of `pattern` takes at least."""
    inside = [least_events(child) for child in ast.children(pattern)]
    match pattern:
        case ast.Step():
            return 1
        case ast.Absence():
            return 0
        case ast.Alternation():
            return min(inside)
        case ast.Sequence() | ast.Permutation() | ast.Group() | ast.Anchored() | ast.Without():
            return sum(inside)
        case ast.Repetition(least=least):
            return least * inside[0]
        case _:
            assert_never(pattern)


def gaps_of(pattern: ast.Pattern) -> tuple[ast.Gap, ...]:
    """Return the limits on gaps at the joints of `pattern` itself."""
    match pattern:
        case ast.Sequence(items=items):
            return tuple(item.gap for item in items if item.gap is not None)
        case ast.Repetition(gap=gap):
            return () if gap is None else (gap,)
        case ast.Step() | ast.Absence() | ast.Alternation() | ast.Permutation() | ast.Group():
            return ()
        case ast.Anchored() | ast.Without():
            return ()
        case _:
            assert_never(pattern)


def _outer_items(item: ast.Item, *, at_end: bool) -> Iterator[ast.Item]:
    """Yield the steps and absences, each with its joint, that a run can meet before it takes an event.

    `at_end`: instead, those that it can meet after its last event, the last first.
    """
    pattern = item.pattern
    match pattern:
        case ast.Step() | ast.Absence():
            yield item
        case ast.Sequence(items=items):
            for one in reversed(items) if at_end else items:
                yield from _outer_items(one, at_end=at_end)
                if not summary(one.pattern).nullable:
                    break
        case (
            ast.Alternation()
            | ast.Permutation()
            | ast.Repetition()
            | ast.Group()
            | ast.Anchored()
            | ast.Without()
        ):
            for child in ast.children(pattern):
                yield from _outer_items(ast.Item(ast.Joint.STRICT, child), at_end=at_end)
        case _:
            assert_never(pattern)


def closing_absences(pattern: ast.Pattern) -> list[ast.Absence]:
    """Return the absences without a time, entered by an arrow, after which the pattern can end."""
    return [
        item.pattern
        for item in _outer_items(ast.Item(ast.Joint.STRICT, pattern), at_end=True)
        if isinstance(item.pattern, ast.Absence)
        and item.joint is not ast.Joint.STRICT
        and item.pattern.period is None
    ]


def opening_absences(pattern: ast.Pattern) -> list[ast.Absence]:
    """Return the absences that can be met before any event is taken."""
    return [
        item.pattern
        for item in _outer_items(ast.Item(ast.Joint.STRICT, pattern), at_end=False)
        if isinstance(item.pattern, ast.Absence)
    ]


def can_wait_for_ever(pattern: ast.Pattern, undefined: Collection[str]) -> bool:
    """Return whether a run can outlive any number of events.

    In a strict loop it can if the loop contains one of the `undefined` variables, which take any event. If
    not, the next event that does not fit ends the run.
    """
    waits_inside = any(can_wait_for_ever(child, undefined) for child in ast.children(pattern))
    match pattern:
        case ast.Step() | ast.Absence():
            return False
        case ast.Sequence(items=items):
            return waits_inside or any(
                _waits_for_ever(item.joint, item.gap)
                for item in items
                if not (isinstance(item.pattern, ast.Absence) and item.pattern.period is not None)
            )
        case ast.Alternation() | ast.Anchored() | ast.Without():
            return waits_inside
        case ast.Permutation(parts=parts, joint=joint):
            return waits_inside or (joint is not ast.Joint.STRICT and len(parts) > 1)
        case ast.Repetition(body=body, most=most, joint=joint, gap=gap):
            if most is None and joint is ast.Joint.STRICT:
                return waits_inside or not set(summary(body).taken).isdisjoint(undefined)
            return waits_inside or most is None or (most > 1 and _waits_for_ever(joint, gap))
        case ast.Group(body=body):
            # Its window starts at its first event: before that only the joints around it bound the wait.
            return _may_begin_late(body) and waits_inside
        case _:
            assert_never(pattern)


def _waits_for_ever(joint: ast.Joint, gap: ast.Gap | None) -> bool:
    return joint is not ast.Joint.STRICT and (gap is None or gap.high_us is None)


def _may_begin_late(pattern: ast.Pattern) -> bool:
    """Return whether joints inside `pattern` can come before its first event."""
    parts = ast.children(pattern)
    if isinstance(pattern, ast.Sequence):
        parts = parts[:1]
    return any(summary(part).nullable or _may_begin_late(part) for part in parts)


@dataclass(frozen=True, slots=True)
class EventOrder:
    """`taken` and `tested` variables of a pattern; `pairs` (u, v): v can be tested after u was taken."""

    taken: frozenset[str]
    tested: frozenset[str]
    pairs: frozenset[tuple[str, str]]


def event_order(pattern: ast.Pattern) -> EventOrder:
    """Return which variables can be tested after which."""
    parts = [event_order(child) for child in ast.children(pattern)]
    match pattern:
        case ast.Step(variable=variable):
            return EventOrder(frozenset((variable.text,)), frozenset((variable.text,)), frozenset())
        case ast.Absence(variables=variables):
            return EventOrder(frozenset(), frozenset(name.text for name in variables), frozenset())
        case ast.Sequence():
            return _joined(parts, in_sequence=True)
        case ast.Alternation():
            return _joined(parts, in_sequence=False)
        case ast.Permutation():
            pairs = [_joined(pair, in_sequence=True) for pair in permutations(parts, 2)]
            return _joined(pairs or parts, in_sequence=False)
        case ast.Repetition(most=most):
            return parts[0] if most == 1 else _joined([*parts, *parts], in_sequence=True)
        case ast.Group() | ast.Anchored():
            return parts[0]
        case ast.Without(variables=variables):
            names = frozenset(name.text for name in variables)
            pairs_of = {(earlier, name) for earlier in parts[0].taken for name in names}
            return EventOrder(parts[0].taken, parts[0].tested | names, parts[0].pairs | pairs_of)
        case _:
            assert_never(pattern)


def _joined(parts: Sequence[EventOrder], *, in_sequence: bool) -> EventOrder:
    taken: set[str] = set()
    tested: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for part in parts:
        pairs |= part.pairs
        if in_sequence:
            pairs |= {(earlier, later) for earlier in taken for later in part.tested}
        taken |= part.taken
        tested |= part.tested
    return EventOrder(frozenset(taken), frozenset(tested), frozenset(pairs))
