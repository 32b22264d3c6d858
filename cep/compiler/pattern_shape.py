"""Questions about the shape of a pattern: what can be left out, what comes first, what can be waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import assert_never

from cep.errors import Span
from cep.language import ast


def walk_pattern(pattern: ast.Pattern) -> Iterator[ast.Pattern]:
    """Yield `pattern` and its parts, in the order they are written."""
    yield pattern
    match pattern:
        case ast.Sequence(items=items):
            for item in items:
                yield from walk_pattern(item.pattern)
        case ast.Alternation(branches=branches):
            for branch in branches:
                yield from walk_pattern(branch)
        case ast.Permutation(parts=parts):
            for part in parts:
                yield from walk_pattern(part)
        case ast.Repetition(body=body) | ast.Group(body=body):
            yield from walk_pattern(body)


def variable_places(pattern: ast.Pattern) -> dict[str, Span]:
    """Return the variables of `pattern` in order of their first place, with that place."""
    places: dict[str, Span] = {}
    for node in walk_pattern(pattern):
        match node:
            case ast.Step(variable=variable):
                places.setdefault(variable.text, variable.span)
            case ast.Absence(variables=variables):
                for variable in variables:
                    places.setdefault(variable.text, variable.span)
    return places


def variable_names(pattern: ast.Pattern) -> dict[str, None]:
    """Return the variables of `pattern` in order of their first place."""
    return dict.fromkeys(variable_places(pattern))


def count_positions(pattern: ast.Pattern) -> int:
    """Return the number of positions once loops are unrolled and each rest of a permutation is written."""
    match pattern:
        case ast.Step():
            return 1
        case ast.Absence(variables=variables):
            return len(variables)
        case ast.Sequence(items=items):
            return sum(count_positions(item.pattern) for item in items)
        case ast.Alternation(branches=branches):
            return sum(count_positions(branch) for branch in branches)
        case ast.Permutation(parts=parts):
            return sum(count_positions(part) for part in parts) << min(len(parts) - 1, 40)
        case ast.Repetition(body=body, least=least, most=most):
            return count_positions(body) * (max(least, 1) if most is None else most)
        case ast.Group(body=body):
            return count_positions(body)
        case _:
            assert_never(pattern)


def can_be_empty(pattern: ast.Pattern) -> bool:
    """Say whether `pattern` can be left without taking an event."""
    match pattern:
        case ast.Step():
            return False
        case ast.Absence():
            return True
        case ast.Sequence(items=items):
            return all(can_be_empty(item.pattern) for item in items)
        case ast.Alternation(branches=branches):
            return any(can_be_empty(branch) for branch in branches)
        case ast.Permutation(parts=parts):
            return all(can_be_empty(part) for part in parts)
        case ast.Repetition(body=body, least=least):
            return least == 0 or can_be_empty(body)
        case ast.Group(body=body):
            return can_be_empty(body)
        case _:
            assert_never(pattern)


def closing_absences(pattern: ast.Pattern) -> list[ast.Absence]:
    """Return the absences without a time, entered by an arrow, after which the pattern can end."""
    match pattern:
        case ast.Sequence(items=items):
            found: list[ast.Absence] = []
            for item in reversed(items):
                if not isinstance(item.pattern, ast.Absence):
                    found += closing_absences(item.pattern)
                elif item.joint is not ast.Joint.STRICT and item.pattern.period is None:
                    found.append(item.pattern)
                if not can_be_empty(item.pattern):
                    break
            return found
        case ast.Alternation(branches=branches):
            return [absence for branch in branches for absence in closing_absences(branch)]
        case ast.Permutation(parts=parts):
            return [absence for part in parts for absence in closing_absences(part)]
        case ast.Repetition(body=body) | ast.Group(body=body):
            return closing_absences(body)
        case _:
            return []


def opening_absences(pattern: ast.Pattern) -> list[ast.Absence]:
    """Return the absences that can be met before any event is taken."""
    match pattern:
        case ast.Absence():
            return [pattern]
        case ast.Sequence(items=items):
            found: list[ast.Absence] = []
            for item in items:
                found += opening_absences(item.pattern)
                if not can_be_empty(item.pattern):
                    break
            return found
        case ast.Alternation(branches=parts) | ast.Permutation(parts=parts):
            return [absence for part in parts for absence in opening_absences(part)]
        case ast.Repetition(body=body) | ast.Group(body=body):
            return opening_absences(body)
        case _:
            return []


def can_wait_for_ever(pattern: ast.Pattern) -> bool:
    """Say whether a run can outlive any number of events."""
    match pattern:
        case ast.Step() | ast.Absence():
            return False
        case ast.Sequence(items=(first, *rest)):
            return can_wait_for_ever(first.pattern) or any(
                _waits_for_ever(item.joint, item.gap) or can_wait_for_ever(item.pattern)
                for item in rest
                if not (isinstance(item.pattern, ast.Absence) and item.pattern.period is not None)
            )
        case ast.Alternation(branches=branches):
            return any(can_wait_for_ever(branch) for branch in branches)
        case ast.Permutation(parts=parts, joint=joint):
            arrows = joint is not ast.Joint.STRICT and len(parts) > 1
            return arrows or any(can_wait_for_ever(part) for part in parts)
        case ast.Repetition(body=body, most=most, joint=joint):
            loops = most is None or (most > 1 and _waits_for_ever(joint, pattern.gap))
            return loops or can_wait_for_ever(body)
        case ast.Group(body=body):
            # Its window runs from its first event: before that only the joints around it bound the wait.
            return _may_begin_late(body) and can_wait_for_ever(body)
        case _:
            raise AssertionError(pattern)


def _waits_for_ever(joint: ast.Joint, gap: ast.Gap | None) -> bool:
    return joint is not ast.Joint.STRICT and (gap is None or gap.high_us is None)


def _may_begin_late(pattern: ast.Pattern) -> bool:
    """Say whether joints inside `pattern` can lie before its first event."""
    match pattern:
        case ast.Sequence(items=(first, *_)):
            return can_be_empty(first.pattern) or _may_begin_late(first.pattern)
        case ast.Alternation(branches=parts) | ast.Permutation(parts=parts):
            return any(can_be_empty(part) or _may_begin_late(part) for part in parts)
        case ast.Repetition(body=body) | ast.Group(body=body):
            return can_be_empty(body) or _may_begin_late(body)
        case _:
            return False


def taken_variables(pattern: ast.Pattern) -> dict[str, None]:
    """Return the variables events are taken as, in order."""
    match pattern:
        case ast.Step(variable=variable):
            return {variable.text: None}
        case ast.Absence():
            return {}
        case ast.Sequence(items=items):
            return _merged(taken_variables(item.pattern) for item in items)
        case ast.Alternation(branches=branches):
            return _merged(taken_variables(branch) for branch in branches)
        case ast.Permutation(parts=parts):
            return _merged(taken_variables(part) for part in parts)
        case ast.Repetition(body=body) | ast.Group(body=body):
            return taken_variables(body)
        case _:
            assert_never(pattern)


def _merged(parts: Iterable[dict[str, None]]) -> dict[str, None]:
    return {name: None for part in parts for name in part}


def first_variables(pattern: ast.Pattern) -> set[str]:
    """Return the variables the first event of a match can be taken as."""
    match pattern:
        case ast.Step(variable=variable):
            return {variable.text}
        case ast.Absence():
            return set()
        case ast.Sequence(items=items):
            found: set[str] = set()
            for item in items:
                found |= first_variables(item.pattern)
                if not can_be_empty(item.pattern):
                    break
            return found
        case ast.Alternation(branches=branches):
            return set().union(*(first_variables(branch) for branch in branches))
        case ast.Permutation(parts=parts):
            return set().union(*(first_variables(part) for part in parts))
        case ast.Repetition(body=body) | ast.Group(body=body):
            return first_variables(body)
        case _:
            assert_never(pattern)


@dataclass(frozen=True, slots=True)
class EventOrder:
    """`taken` and `tested` variables of a pattern; `pairs` (u, v): v can be tested after u was taken."""

    taken: frozenset[str]
    tested: frozenset[str]
    pairs: frozenset[tuple[str, str]]


def event_order(pattern: ast.Pattern) -> EventOrder:
    """Return which variables can be tested after which."""
    match pattern:
        case ast.Step(variable=variable):
            return EventOrder(frozenset((variable.text,)), frozenset((variable.text,)), frozenset())
        case ast.Absence(variables=variables):
            return EventOrder(frozenset(), frozenset(name.text for name in variables), frozenset())
        case ast.Sequence(items=items):
            return _joined([event_order(item.pattern) for item in items], in_sequence=True)
        case ast.Alternation(branches=branches):
            return _joined([event_order(branch) for branch in branches], in_sequence=False)
        case ast.Permutation(parts=parts):
            orders = [event_order(part) for part in parts]
            return _joined(
                [_joined(pair, in_sequence=True) for pair in permutations(orders, 2)] or orders,
                in_sequence=False,
            )
        case ast.Repetition(body=body, most=most):
            once = event_order(body)
            return once if most == 1 else _joined([once, once], in_sequence=True)
        case ast.Group(body=body):
            return event_order(body)
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
