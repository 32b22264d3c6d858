"""Pattern -> graph of epsilon edges: a fragment per node, built right to left, and the ways through it.

This is Thompson's construction (Comm. ACM 11(6), 1968): each node of the pattern becomes a fragment that ends
in the fragment of what follows. Besides takes and splits there are marks that say what lies between two taken
events: joints, absences, the ends of groups, and what keeps events from a wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar, assert_never

import networkx as nx

from cep.compiler import ir

_Part = TypeVar("_Part")

MAX_STEPS = 25_000
"""Epsilon edges followed in one pattern: absences in optional parts multiply the ways without a take."""


class AutomatonTooLargeError(Exception):
    """The pattern has more than `MAX_SUCCESSORS` ways to go on, or more than `MAX_STEPS` lead to them."""


class Mark(StrEnum):
    """Kinds of nodes in the graph of epsilon edges."""

    ACCEPT = "accept"
    TAKE = "take"
    SPLIT = "split"
    JOINT = "joint"
    BAR = "bar"  # `-> !b`: no such event may be skipped
    GUARD = "guard"  # ` !b`: the next event is not such a one
    TIMER = "timer"  # `-> !b FOR d`: no such event for that long
    OPEN = "open"  # a group with a window of its own begins ...
    SHUT = "shut"  # ... and ends
    ENTER = "enter"  # an iteration of a loop whose body may take nothing begins ...
    LEAVE = "leave"  # ... and ends: never both without a take between
    FENCE = "fence"  # no such event is taken or skipped until the next event is taken
    VETO = "veto"  # the next event is not taken here if it is such a one


@dataclass(frozen=True, slots=True)
class Look:
    """An absence before the first event: `variable` must not hold for an earlier event.

    `adjacent`: for the one right before. Else none may lie in the `period` before, or in the rule's window.
    """

    variable: str
    period: ir.Window | None
    adjacent: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """What keeps an event from a wait: an event of `claims` ends it, unless `until` was true before or is.

    A possessive loop claims what it can begin with from what follows; UNTIL keeps events from its loop.
    """

    claims: tuple[str, ...]
    until: str | None = None


def can_be_empty(node: ir.Node) -> bool:
    """Say whether `node` can be left without taking an event."""
    match node:
        case ir.Take():
            return False
        case ir.Absent() | ir.Silence():
            return True
        case ir.Sequence(items=items):
            return all(can_be_empty(item.node) for item in items)
        case ir.Alternation(branches=branches):
            return any(can_be_empty(branch) for branch in branches)
        case ir.Permutation(parts=parts):
            return all(can_be_empty(part) for part in parts)
        case ir.Repeat(body=body, min=least):
            return least == 0 or can_be_empty(body)
        case ir.Group(body=body):
            return can_be_empty(body)
        case _:
            assert_never(node)


def first_variables(node: ir.Node) -> tuple[str, ...]:
    """Return the variables the first event that `node` takes can be taken as."""
    match node:
        case ir.Take(variable=variable):
            return (variable,)
        case ir.Absent() | ir.Silence():
            return ()
        case ir.Sequence(items=items):
            found: list[str] = []
            for item in items:
                found += first_variables(item.node)
                if not can_be_empty(item.node):
                    break
            return tuple(dict.fromkeys(found))
        case ir.Alternation(branches=parts) | ir.Permutation(parts=parts):
            return tuple(dict.fromkeys(name for part in parts for name in first_variables(part)))
        case ir.Repeat(body=body) | ir.Group(body=body):
            return first_variables(body)
        case _:
            assert_never(node)


def _fence_behind(node: ir.Repeat) -> Fence:
    """Return what a possessive loop claims once it is left."""
    return Fence(tuple(sorted(first_variables(node.body))), node.until)


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint in the graph; `inside` are the groups around it."""

    contiguity: ir.Contiguity
    gap: ir.Gap | None
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """A timed absence in the graph; `inside` are the groups around it."""

    silence: ir.Silence
    by_arrow: bool
    inside: tuple[int, ...]


class Builder:
    """Grows the graph of epsilon edges. Edges of a split carry `order`.

    Groups that say the same share a number and so a clock: one lies never in the other.
    """

    def __init__(self) -> None:
        self.graph: nx.DiGraph[int] = nx.DiGraph()
        self.groups: dict[ir.Group, int] = {}
        self.inside: tuple[int, ...] = ()

    def add(self, mark: Mark, *successors: int, value: object = None) -> int:
        """Return a new node; the first of `successors` is preferred."""
        node = self.graph.number_of_nodes()
        self.graph.add_node(node, mark=mark, value=value)
        for order, successor in enumerate(dict.fromkeys(successors)):
            self.graph.add_edge(node, successor, order=order)
        return node

    def fragment(self, node: ir.Node, after: int) -> int:
        """Return the entry of a fragment for `node` that goes on in `after`."""
        match node:
            case ir.Take(variable=variable):
                return self.add(Mark.TAKE, after, value=variable)
            case ir.Absent() | ir.Silence():
                return self._absent(node, after, by_arrow=False)
            case ir.Group():
                return self._group(node, after)
            case ir.Sequence(items=items):
                return self._sequence(items, after)
            case ir.Alternation(branches=branches):
                return self.add(Mark.SPLIT, *(self.fragment(branch, after) for branch in branches))
            case ir.Permutation(parts=parts, contiguity=contiguity):
                return self._permutation(parts, contiguity, after)
            case ir.Repeat():
                return self._repeat(node, after)
            case _:
                assert_never(node)

    def _sequence(self, items: tuple[ir.Item, ...], after: int) -> int:
        for index, item in reversed(list(enumerate(items))):
            if isinstance(item.node, ir.Absent | ir.Silence):
                by_arrow = index > 0 and item.contiguity is not ir.Contiguity.STRICT
                after = self._absent(item.node, after, by_arrow=by_arrow)
                continue
            after = self.fragment(item.node, after)
            if index > 0:
                after = self._joint(item.contiguity, item.gap, after)
        return after

    def _permutation(self, parts: tuple[ir.Node, ...], contiguity: ir.Contiguity, after: int) -> int:
        """Orders that agree in what is left share it: n * 2^(n - 1) fragments, not n! sequences."""
        entries = {0: after}  # by the set of parts that are left, a bit for each
        for left in range(1, 1 << len(parts)):
            choices = []
            for number, part in enumerate(parts):
                if left >> number & 1:
                    choices.append(self.fragment(part, entries[left ^ (1 << number)]))
            entries[left] = self.add(Mark.SPLIT, *choices)
            if left != (1 << len(parts)) - 1:
                entries[left] = self._joint(contiguity, None, entries[left])
        return entries[(1 << len(parts)) - 1]

    def _joint(self, contiguity: ir.Contiguity, gap: ir.Gap | None, after: int) -> int:
        return self.add(Mark.JOINT, after, value=Joint(contiguity, gap, self.inside))

    def _absent(self, node: ir.Absent | ir.Silence, after: int, *, by_arrow: bool) -> int:
        if isinstance(node, ir.Silence):
            return self.add(Mark.TIMER, after, value=Pause(node, by_arrow, self.inside))
        return self.add(Mark.BAR if by_arrow else Mark.GUARD, after, value=node.variable)

    def _group(self, node: ir.Group, after: int) -> int:
        around = self.inside
        number = self.groups.setdefault(node, len(self.groups))
        shut = self.add(Mark.SHUT, after, value=number)
        self.inside = (*around, number)
        body = self.fragment(node.body, shut)
        self.inside = around
        return self.add(Mark.OPEN, body, value=number)

    def _repeat(self, node: ir.Repeat, after: int) -> int:
        hollow = can_be_empty(node.body)
        least = 0 if hollow else node.min
        if node.greed is ir.Greed.POSSESSIVE and node.min != node.max:
            after = self.add(Mark.FENCE, after, value=_fence_behind(node))

        def iteration(then: int) -> int:
            if not hollow:
                return self.fragment(node.body, then)
            loop = self.graph.number_of_nodes()  # any number of its own
            leave = self.add(Mark.LEAVE, then, value=loop)
            return self.add(Mark.ENTER, self.fragment(node.body, leave), value=loop)

        def choose(more: int) -> int:
            reluctant = node.greed is ir.Greed.RELUCTANT
            return self.add(Mark.SPLIT, *((after, more) if reluctant else (more, after)))

        if node.max is None:
            again = self.add(Mark.SPLIT)  # its edges follow: the loop is a cycle
            entry = iteration(again)
            more = self._again(node, entry, may_leave=True)
            ordered = (after, more) if node.greed is ir.Greed.RELUCTANT else (more, after)
            for order, successor in enumerate(ordered):
                self.graph.add_edge(again, successor, order=order)
        else:
            entry = iteration(after)
            for _ in range(node.max - max(least, 1)):
                entry = iteration(choose(self._again(node, entry, may_leave=True)))
        for _ in range(max(least, 1) - 1):
            entry = iteration(self._again(node, entry, may_leave=False))
        if node.until is not None:  # a loop that has not begun is not closed
            entry = self.add(Mark.VETO, entry, value=Fence((node.until,)))
        return choose(entry) if least == 0 else entry

    def _again(self, node: ir.Repeat, entry: int, *, may_leave: bool) -> int:
        """Return the way to one more repetition: its joint, the absences behind the loop, its UNTIL."""
        if node.until is not None:
            entry = self.add(Mark.FENCE, entry, value=Fence((node.until,)))
        after = self._joint(node.contiguity, node.gap, entry)
        for item in node.behind:
            assert isinstance(item.node, ir.Absent)
            if item.contiguity is not ir.Contiguity.STRICT:
                after = self.add(Mark.BAR, after, value=item.node.variable)
            elif may_leave:
                after = self.add(Mark.GUARD, after, value=item.node.variable)
        return after


@dataclass(frozen=True, slots=True)
class Path:
    """What was met since the last take. `joint` is a node of the graph; -1: none yet.

    `looks` gathers absences as long as nothing was taken at all (`at_start`).
    """

    joint: int = -1
    bars: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    fences: tuple[Fence, ...] = ()
    vetoes: tuple[Fence, ...] = ()
    entered: frozenset[int] = frozenset()
    opened: tuple[int, ...] = ()
    at_start: bool = False
    looks: tuple[Look, ...] = ()

    def looking(self, variables: tuple[str, ...], period: ir.Window | None, *, by_arrow: bool) -> Path:
        """Return the path behind an absence that looks back: nothing was taken so far."""
        before = self.past_arrow() if by_arrow else self
        looks = before.looks
        for variable in variables:
            looks = _with(looks, Look(variable, period, adjacent=period is None))
        return replace(before, looks=looks)

    def at(self, joint: int) -> Path:
        """Return the path behind a joint. (`replace` does the same in twice the time.)"""
        return Path(
            joint, self.bars, self.guards, self.fences, self.vetoes, self.entered, self.opened, self.at_start,
            self.looks,
        )  # fmt: skip

    def past_arrow(self) -> Path:
        """Return the path behind an arrow: what lies before it need not lie right before."""
        looks = tuple(dict.fromkeys(replace(look, adjacent=False) for look in self.looks))
        return self if looks == self.looks else replace(self, looks=looks)


_Facts = tuple[Mark, Any, tuple[int, ...]]


def _facts(graph: nx.DiGraph[int], node: int) -> _Facts:
    """Return mark, value and successors of `node`, the least preferred first; found once."""
    known: dict[int, _Facts] = graph.graph.setdefault("facts", {})
    found = known.get(node)
    if found is None:
        attributes = graph.nodes[node]
        successors = sorted(
            graph.successors(node), key=lambda other: graph.edges[node, other]["order"], reverse=True
        )
        found = known[node] = (attributes["mark"], attributes["value"], tuple(successors))
    return found


def reach(graph: nx.DiGraph[int], entry: int, path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the takes, timers and accepts that epsilon edges lead to from `entry`, most preferred first.

    Depth first with an explicit stack; a place seen under the same circumstances is not entered again, so
    that ``(a?|b?) (c?|d?) ...`` stays linear and the more preferred way in wins.
    """
    stack = [(entry, path)]
    seen: set[tuple[int, Path]] = set()
    while stack:
        place = stack.pop()
        n_seen = len(seen)
        seen.add(place)
        if len(seen) == n_seen:  # seen before; a path is hashed once
            continue
        graph.graph["steps"] = graph.graph.get("steps", 0) + 1
        if graph.graph["steps"] > MAX_STEPS:
            raise AutomatonTooLargeError
        node, path = place
        mark, value, successors = _facts(graph, node)
        match mark:
            case Mark.ACCEPT | Mark.TAKE:
                yield node, path
                continue
            case Mark.TIMER if not path.at_start:
                yield node, path
                continue
            case Mark.TIMER:
                silence = value.silence
                path = path.looking(silence.variables, silence.period, by_arrow=value.by_arrow)
            case Mark.BAR | Mark.GUARD if path.at_start:
                path = path.looking((value,), None, by_arrow=mark is Mark.BAR)
            case Mark.JOINT if path.at_start:
                path = path if value.contiguity is ir.Contiguity.STRICT else path.past_arrow()
            case Mark.JOINT:
                path = path.at(node)
            case Mark.BAR:
                path = replace(path, bars=_with(path.bars, value))
            case Mark.GUARD:
                path = replace(path, guards=_with(path.guards, value))
            case Mark.FENCE:
                path = replace(path, fences=tuple(sorted({*path.fences, value}, key=repr)))
            case Mark.VETO:
                path = replace(path, vetoes=tuple(sorted({*path.vetoes, value}, key=repr)))
            case Mark.OPEN:
                path = replace(path, opened=_with(path.opened, value))
            case Mark.SHUT:
                path = replace(path, opened=tuple(group for group in path.opened if group != value))
            case Mark.ENTER:
                path = replace(path, entered=path.entered | {value})
            case Mark.LEAVE if value in path.entered:
                continue  # an iteration that took nothing is none
        stack.extend((successor, path) for successor in successors)


def _with(parts: tuple[_Part, ...], part: _Part) -> tuple[_Part, ...]:
    return parts if part in parts else (*parts, part)


def begins(graph: nx.DiGraph[int], joint: int) -> tuple[str, ...]:
    """Return the variables with which the element on the right of `joint` can begin by this joint."""
    return tuple(
        dict.fromkeys(
            graph.nodes[node]["value"]
            for node, path in reach(graph, joint, Path())
            if path.joint == joint and graph.nodes[node]["mark"] is Mark.TAKE
        )
    )
