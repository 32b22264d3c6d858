"""Strategies of patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from cep.compiler import ir
from tests.property.strategies.events import COLUMNS, SECOND_US

_JOINTS = st.sampled_from(list(ir.Contiguity))
_ARROWS = st.sampled_from([ir.Contiguity.NEXT, ir.Contiguity.ANY])


@st.composite
def _gaps(draw: st.DrawFn) -> ir.Gap | None:
    """Draw bounds of the time between two events. Mostly there are none."""
    if draw(st.integers(0, 4)):
        return None
    low_us = draw(st.sampled_from([0, 0, 1, SECOND_US, 2 * SECOND_US]))
    more_us = draw(st.sampled_from([None, 0, 2 * SECOND_US, 4 * SECOND_US]))
    if more_us is None:
        return ir.Gap(low_us, None)
    return ir.Gap(low_us, low_us + more_us, inclusive=low_us > 0 or draw(st.booleans()))


@st.composite
def _periods(draw: st.DrawFn) -> ir.Window:
    """Draw the period of a timed absence."""
    return ir.Window(draw(st.sampled_from([1, 2, 2, 3, 5])) * SECOND_US, draw(st.booleans()))


@st.composite
def _group_windows(draw: st.DrawFn) -> ir.Window | ir.EventWindow:
    if draw(st.integers(0, 3)) == 0:
        return ir.EventWindow(draw(st.integers(1, 5)))
    return ir.Window(draw(st.sampled_from([1, 2, 3, 4, 6])) * SECOND_US, draw(st.booleans()))


def _item(draw: st.DrawFn, node: ir.Node) -> ir.Item:
    """Draw the joint of `node`. The joint of a timed absence is always an arrow."""
    if isinstance(node, ir.Absent):
        return ir.Item(draw(_JOINTS), node)
    if isinstance(node, ir.TimedAbsence):
        return ir.Item(draw(_ARROWS), node)
    return ir.Item(draw(_JOINTS), node, draw(_gaps()))


@st.composite
def _absences(draw: st.DrawFn, names: list[str]) -> ir.Absent | ir.TimedAbsence:
    """Draw an absence of one variable, or a timed absence of one or two variables."""
    if draw(st.integers(0, 2)):
        return ir.Absent(draw(st.sampled_from(names)))
    several = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return ir.TimedAbsence(tuple(several), draw(_periods()))


_QUANTIFIERS: list[tuple[int, int | None]] = [
    (0, 1),
    (0, 1),
    (0, None),
    (1, None),
    (1, None),
    (2, 2),
    (1, 2),
    (0, 2),
    (2, 3),
    (2, None),
    (1, 1),
]


@st.composite
def nodes(draw: st.DrawFn, names: list[str], size: int) -> ir.Node:
    """Draw a pattern of about `size` steps."""
    shape = draw(st.integers(0, 8))
    if shape == 7:
        return ir.Group(draw(nodes(names, size)), draw(_group_windows()))
    if shape == 8:
        return draw(_without(names, draw(nodes(names, size))))
    if size <= 1:
        take = ir.Take(draw(st.sampled_from(names)))
        return draw(_repeated(take)) if shape >= 4 else take
    if shape <= 2:
        n_parts = draw(st.integers(2, min(size, 4)))
        return ir.Sequence(tuple(_items(draw, names, size, n_parts)))
    if shape == 3:
        left = draw(st.integers(1, size - 1))
        return ir.Alternation((draw(nodes(names, left)), draw(nodes(names, size - left))))
    if shape == 6:
        parts = [draw(nodes(names, size // 2)) for _ in range(draw(st.sampled_from([2, 2, 3])))]
        return ir.Permutation(tuple(parts), draw(st.sampled_from([ir.Contiguity.STRICT, ir.Contiguity.NEXT])))
    return draw(_repeated(draw(nodes(names, size - 1))))


@st.composite
def _without(draw: st.DrawFn, names: list[str], body: ir.Node) -> ir.Node:
    """Draw a pattern in which some events must be nowhere."""
    others = [name for name in (*names, "m", "n") if name not in taken_variables(body)]
    several = draw(st.lists(st.sampled_from(others), min_size=1, max_size=2, unique=True))
    return ir.Without(body, tuple(several))


def _items(draw: st.DrawFn, names: list[str], size: int, n_parts: int) -> list[ir.Item]:
    items = [ir.Item(draw(_JOINTS), draw(nodes(names, max(1, size // n_parts))))]
    while len(items) < n_parts:
        if draw(st.integers(0, 3)) == 0:
            items.append(_item(draw, draw(_absences(names))))
        else:
            items.append(_item(draw, draw(nodes(names, max(1, size // n_parts)))))
    return items


@st.composite
def _repeated(draw: st.DrawFn, body: ir.Node) -> ir.Node:
    least, most = draw(st.sampled_from(_QUANTIFIERS))
    greed = draw(st.sampled_from([ir.Greed.GREEDY, *ir.Greed]))
    until = None
    if (most is None or most > 1) and draw(st.integers(0, 3)) == 0:
        until = draw(st.sampled_from(["until#1", "until#2"]))
    return ir.Repeat(body, least, most, draw(_JOINTS), greed, draw(_gaps()), until)


def untils_of(node: ir.Node) -> set[str]:
    """Return the variables that close loops of a pattern."""
    match node:
        case ir.Take() | ir.Absent() | ir.TimedAbsence():
            return set()
        case ir.Sequence(items=items):
            return set().union(*(untils_of(item.node) for item in items))
        case ir.Alternation(branches=parts) | ir.Permutation(parts=parts):
            return set().union(*(untils_of(part) for part in parts))
        case ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return untils_of(body)
        case ir.Repeat(body=body, until=until):
            return untils_of(body) | ({until} if until is not None else set())


def variables_of(node: ir.Node) -> set[str]:
    """Return the variables of a pattern."""
    match node:
        case ir.Take(variable=name) | ir.Absent(variable=name):
            return {name}
        case ir.TimedAbsence(variables=names):
            return set(names)
        case ir.Sequence(items=items):
            return set().union(*(variables_of(item.node) for item in items))
        case ir.Alternation(branches=branches):
            return set().union(*(variables_of(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return set().union(*(variables_of(part) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body):
            return variables_of(body)
        case ir.Without(body=body, variables=several):
            return variables_of(body) | set(several)


def taken_variables(node: ir.Node) -> set[str]:
    match node:
        case ir.Take(variable=name):
            return {name}
        case ir.Absent() | ir.TimedAbsence():
            return set()
        case ir.Sequence(items=items):
            return set().union(*(taken_variables(item.node) for item in items))
        case ir.Alternation(branches=branches):
            return set().union(*(taken_variables(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return set().union(*(taken_variables(part) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return taken_variables(body)


@st.composite
def _plain_sequences(draw: st.DrawFn) -> ir.Node:
    """Draw a typical pattern: different steps one after another, with an absence and a loop among them."""
    names = list("abcd"[: draw(st.integers(3, 4))])
    absent = draw(st.sampled_from([None, *names[1:]]))
    items = [ir.Item(draw(_JOINTS), ir.Take(names[0]))]
    for name in names[1:]:
        step: ir.Node = draw(_absences([name])) if name == absent else ir.Take(name)
        if name != absent and draw(st.integers(0, 2)) == 0:
            step = draw(_repeated(step))
        items.append(_item(draw, step))
    return ir.Sequence(tuple(items))


@st.composite
def patterns(draw: st.DrawFn, max_size: int) -> ir.Node:
    """Draw a pattern that takes at least one event."""
    names = list("abcd"[: draw(st.integers(1, 4))])
    if max_size > 2 and draw(st.booleans()):
        pattern = draw(_plain_sequences())
    else:
        pattern = draw(nodes(names, draw(st.integers(1, max_size))))
    if ir.summary(pattern).nullable:
        first = ir.Item(ir.Contiguity.STRICT, ir.Take(draw(st.sampled_from(names))))
        pattern = ir.Sequence((first, ir.Item(draw(_JOINTS), pattern)))
    if draw(st.integers(0, 9)) == 0:
        pattern = _after_absence(draw, names, pattern)
    if draw(st.booleans()):
        pattern = _with_distinct(draw, pattern)
    if draw(st.integers(0, 9)) == 0:
        pattern = ir.Anchored(pattern)
    if draw(st.integers(0, 9)) == 0:
        pattern = draw(_without(names, pattern))
    return pattern


def _with_distinct(draw: st.DrawFn, pattern: ir.Node) -> ir.Node:
    """Draw a value for a loop whose variables stand nowhere else, and that is in no other loop."""
    n_takes = Counter(node.variable for node in ir.walk(pattern) if isinstance(node, ir.Take))

    def is_apart(loop: ir.Repeat) -> bool:
        own = Counter(node.variable for node in ir.walk(loop.body) if isinstance(node, ir.Take))
        return all(own[name] == n_takes[name] for name in own)

    loops = [loop for loop in _outer_loops(pattern) if loop.max != 1 and is_apart(loop)]
    if not loops:
        return pattern
    loop = draw(st.sampled_from(loops))
    column = COLUMNS[draw(st.sampled_from(["i", "i", "t", "s", "d"]))]
    return _replaced(pattern, loop, replace(loop, distinct=column))


def _outer_loops(node: ir.Node) -> Iterator[ir.Repeat]:
    if isinstance(node, ir.Repeat):
        yield node
        if node.max != 1:
            return
    for child in ir.children(node):
        yield from _outer_loops(child)


def _replaced(node: ir.Node, old: ir.Node, new: ir.Node) -> ir.Node:
    if node is old:
        return new
    match node:
        case ir.Sequence(items=items):
            return ir.Sequence(tuple(replace(item, node=_replaced(item.node, old, new)) for item in items))
        case ir.Alternation(branches=parts):
            return ir.Alternation(tuple(_replaced(part, old, new) for part in parts))
        case ir.Permutation(parts=parts):
            return replace(node, parts=tuple(_replaced(part, old, new) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return replace(node, body=_replaced(body, old, new))
        case _:
            return node


def _after_absence(draw: st.DrawFn, names: list[str], pattern: ir.Node) -> ir.Node:
    """Draw one or two absences before the first event, rarely in only one branch."""
    first = ir.Item(ir.Contiguity.STRICT, draw(_absences(names)))
    more = [_item(draw, draw(_absences(names)))] if draw(st.booleans()) else []
    found = ir.Sequence((first, *more, ir.Item(draw(_JOINTS), pattern)))
    return ir.Alternation((found, pattern)) if draw(st.integers(0, 3)) == 0 else found
