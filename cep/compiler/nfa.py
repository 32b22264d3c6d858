"""Pattern -> NFA: a fragment per node, joined by epsilon edges, then one state per *wait*.

Two steps. `_Builder` is Thompson's construction (Comm. ACM 11(6), 1968) right to left: each node of the
pattern becomes a fragment that ends in the fragment of what follows. Besides takes and splits there are
marks that say what lies between two taken events: joints, bars and guards. `_simplify` follows the
epsilon edges from each take to the next takes (the positions of Glushkov, Russ. Math. Surv. 16(5), 1961)
and gathers on the way the joint that decides (the last one) and the absences (all of them). What is left
is what a run can be waiting for: `State`.

Time is in it as in timed automata (Alur and Dill, Theor. Comp. Sci. 126(2), 1994), with clocks that only
such a pattern needs: since the event taken last (`State.gap`), since a group was entered (`TakeEdge.opens`,
`State.limits`), since the last event or the end of the last timed absence (`State.timer`).

Order is meaning: successors are listed in order of preference, as the threads of Pike's VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import TypeVar, assert_never

import networkx as nx

from cep.compiler import ir

_Part = TypeVar("_Part")

ACCEPT = -1
"""Successor of a take: the run is complete."""


MAX_SUCCESSORS = 7_500
"""Successors of all takes together. Optional steps in a row multiply: n of them have n * n / 2."""


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


@dataclass(frozen=True, slots=True)
class TakeEdge:
    """A run that waits in a state may take an event as `variable`; `after` are its successors then.

    Successors are state numbers or `ACCEPT`, most preferred first. `opens` are the groups (of `Nfa.groups`)
    whose first event this is; `looks` say what must not lie before the first event of a run; an event that
    one of `fences` claims is not taken so.
    """

    variable: str
    after: tuple[int, ...]
    opens: tuple[int, ...] = ()
    looks: tuple[Look, ...] = ()
    fences: tuple[Fence, ...] = ()


@dataclass(frozen=True, slots=True)
class Timer:
    """The end of an absence FOR a time: the run goes on with `after` without taking an event."""

    period: ir.Window
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What a run waits for. See `cep.program.RuleTables` for the meaning of each part.

    `limits` are the groups whose windows end the wait. `lifts` lead, at an event for which a variable holds,
    to the state without the fences that this variable is the `until` of.
    """

    contiguity: ir.Contiguity
    takes: tuple[TakeEdge, ...] = ()
    begins: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    next: int = 0
    closes: bool = False
    accepts_after_skip: bool = False
    gap: ir.Gap | None = None
    limits: tuple[int, ...] = ()
    timer: Timer | None = None
    fences: tuple[Fence, ...] = ()
    lifts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Nfa:
    """States of one rule; state 0 is the start, from which every event may begin a run."""

    states: tuple[State, ...]
    groups: tuple[ir.Group, ...] = ()

    def graph(self) -> nx.MultiDiGraph[int]:
        """Return the automaton as a graph for checks and pictures; the node ``ACCEPT`` is the end."""
        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(self.states)))
        graph.add_node(ACCEPT)
        for number, state in enumerate(self.states):
            for take in state.takes:
                for successor in take.after:
                    graph.add_edge(number, successor, label=take.variable)
            if state.timer is not None:
                for successor in state.timer.after:
                    graph.add_edge(number, successor, label="time is over")
            if state.closes:
                graph.add_edge(number, ACCEPT, label="window closes")
            if state.accepts_after_skip:
                graph.add_edge(number, ACCEPT, label="next event")
        return graph


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
class _Joint:
    """A joint in the graph; `inside` are the groups around it."""

    contiguity: ir.Contiguity
    gap: ir.Gap | None
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Pause:
    """A timed absence in the graph; `inside` are the groups around it."""

    silence: ir.Silence
    by_arrow: bool
    inside: tuple[int, ...]


class _Builder:
    """Grows the graph of epsilon edges. Edges of a split carry `order`.

    Groups that say the same share a number and so a clock: one lies never in the other.
    """

    def __init__(self) -> None:
        self.graph: nx.DiGraph[int] = nx.DiGraph()
        self.groups: dict[ir.Group, int] = {}
        self.inside: tuple[int, ...] = ()

    def add(self, mark: Mark, *successors: int, value: object = None) -> int:
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
        return self.add(Mark.JOINT, after, value=_Joint(contiguity, gap, self.inside))

    def _absent(self, node: ir.Absent | ir.Silence, after: int, *, by_arrow: bool) -> int:
        if isinstance(node, ir.Silence):
            return self.add(Mark.TIMER, after, value=_Pause(node, by_arrow, self.inside))
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
class _Path:
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

    def looking(self, variables: tuple[str, ...], period: ir.Window | None, *, by_arrow: bool) -> _Path:
        before = self.past_arrow() if by_arrow else self
        looks = before.looks
        for variable in variables:
            looks = _with(looks, Look(variable, period, adjacent=period is None))
        return replace(before, looks=looks)

    def past_arrow(self) -> _Path:
        """Return the path behind an arrow: what lies before it need not lie right before."""
        looks = tuple(dict.fromkeys(replace(look, adjacent=False) for look in self.looks))
        return self if looks == self.looks else replace(self, looks=looks)


def build(pattern: ir.Node) -> Nfa:
    """Return the automaton of `pattern`.

    The pattern is one the analyzer let through: its size is bounded and it takes at least one event.

    Raises
    ------
    AutomatonTooLargeError
        There are too many ways through optional parts.
    """
    builder = _Builder()
    accept = builder.add(Mark.ACCEPT)
    entry = builder.fragment(pattern, accept)
    return Nfa(_Simplifier(builder.graph).states(entry), tuple(builder.groups))


def _successors(graph: nx.DiGraph[int], node: int) -> list[int]:
    """Return the successors of `node`, the least preferred first; found once."""
    found: list[int] | None = graph.nodes[node].get("successors")
    if found is None:
        found = sorted(
            graph.successors(node), key=lambda other: graph.edges[node, other]["order"], reverse=True
        )
        graph.nodes[node]["successors"] = found
    return found


def _reach(graph: nx.DiGraph[int], entry: int, path: _Path) -> Iterator[tuple[int, _Path]]:
    """Yield the takes, timers and accepts that epsilon edges lead to from `entry`, most preferred first.

    Depth first with an explicit stack; a place seen under the same circumstances is not entered again, so
    that ``(a?|b?) (c?|d?) ...`` stays linear and the more preferred way in wins.
    """
    stack = [(entry, path)]
    seen: set[tuple[int, _Path]] = set()
    nodes = graph.nodes
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
        attributes = nodes[node]
        mark, value = attributes["mark"], attributes["value"]
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
                path = replace(path, joint=node)
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
        stack.extend((successor, path) for successor in _successors(graph, node))


def _with(parts: tuple[_Part, ...], part: _Part) -> tuple[_Part, ...]:
    return parts if part in parts else (*parts, part)


def _begins(graph: nx.DiGraph[int], joint: int) -> tuple[str, ...]:
    """Return the variables with which the element on the right of `joint` can begin by this joint."""
    return tuple(
        dict.fromkeys(
            graph.nodes[node]["value"]
            for node, path in _reach(graph, joint, _Path())
            if path.joint == joint and graph.nodes[node]["mark"] is Mark.TAKE
        )
    )


@dataclass(frozen=True, slots=True)
class _Wait:
    """A state before its successors are known: what makes it this one and no other."""

    state: State
    takes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # nodes, and the groups each opens
    vetoes: tuple[Fence, ...] = ()  # of the takes
    pause: tuple[int, _Path] | None = None  # a timer, and what holds on beyond it


_FoundTake = tuple[int, tuple[int, ...], tuple[Look, ...], tuple[Fence, ...]]
"""The node of a take, the groups it opens, what must not lie before it, and what fences it off."""


class _Simplifier:
    """Gives every distinct wait a state, once, in the order in which they are met."""

    def __init__(self, graph: nx.DiGraph[int]) -> None:
        self.graph = graph
        self.numbers: dict[_Wait, int] = {}
        self.pending: list[_Wait] = []
        self.begins: dict[int, tuple[str, ...]] = {}
        self.after: dict[tuple[int, _Path], tuple[int, ...]] = {}
        self.n_successors = 0

    def states(self, entry: int) -> tuple[State, ...]:
        starts = dict.fromkeys(
            (node, path.opened, path.looks, path.fences + path.vetoes)
            for node, path in _reach(self.graph, entry, _Path(at_start=True))
            if self.graph.nodes[node]["mark"] is Mark.TAKE
        )
        begin = State(ir.Contiguity.STRICT, self._edges(starts))
        found: dict[int, State] = {0: begin}
        while self.pending:
            wait = self.pending.pop(0)
            found[self.numbers[wait]] = self._state(wait)
        return tuple(found[number] for number in range(len(found)))

    def _edges(self, takes: Iterable[_FoundTake]) -> tuple[TakeEdge, ...]:
        """Return the takes, each once; one behind more fences than another is left out."""
        found: list[TakeEdge] = []
        for node, opens, looks, fences in takes:
            variable = self.graph.nodes[node]["value"]
            edge = TakeEdge(variable, self._waits_after(node, _Path()), opens, looks, fences)
            if not any(
                replace(other, fences=fences) == edge and set(other.fences) <= set(fences) for other in found
            ):
                found.append(edge)
        return tuple(found)

    def _state(self, wait: _Wait) -> State:
        following = self.numbers[wait]
        # A guard looks at one event only.
        state = wait.state
        if state.guards and state.contiguity is not ir.Contiguity.STRICT and not state.accepts_after_skip:
            following = self._number(self._unguarded(wait))
        timer = None
        if wait.pause is not None:
            node, path = wait.pause
            timer = Timer(self.graph.nodes[node]["value"].silence.period, self._waits_after(node, path))
        takes = self._edges((node, opens, (), wait.vetoes) for node, opens in wait.takes)
        untils = dict.fromkeys(fence.until for fence in state.fences if fence.until is not None)
        lifts = tuple((until, self._number(_without_fences(wait, until))) for until in untils)
        return replace(state, takes=takes, next=following, timer=timer, lifts=lifts)

    def _unguarded(self, wait: _Wait) -> _Wait:
        pause = None
        if wait.pause is not None:
            node, path = wait.pause
            pause = (node, replace(path, guards=()))
        is_end = not wait.takes and pause is None
        return replace(wait, state=replace(wait.state, guards=(), closes=is_end), pause=pause)

    def _number(self, wait: _Wait) -> int:
        if wait not in self.numbers:
            self.numbers[wait] = len(self.numbers) + 1
            self.pending.append(wait)
            if len(self.numbers) > MAX_SUCCESSORS:
                raise AutomatonTooLargeError
        return self.numbers[wait]

    def _begins_of(self, joint: int) -> tuple[str, ...]:
        if joint not in self.begins:
            self.begins[joint] = _begins(self.graph, joint)
        return self.begins[joint]

    def _waits_after(self, node: int, path: _Path) -> tuple[int, ...]:
        """Return the successors of a take or timer: neighbours that wait alike share a state."""
        if (node, path) in self.after:
            return self.after[node, path]
        (entry,) = self.graph.successors(node)
        numbers: list[int] = []
        groups = groupby(_reach(self.graph, entry, path), key=lambda found: self._kind(*found))
        for kind, members in groups:
            nodes = list(members)
            if kind is None:  # an end or a timer: each a wait of its own
                numbers += [self._lone_wait(*member) for member in nodes]
            else:
                takes = tuple(dict.fromkeys((node, path.opened) for node, path in nodes))
                numbers.append(self._wait(nodes[0][1], takes))
        self.after[node, path] = tuple(dict.fromkeys(numbers))
        self.n_successors += len(self.after[node, path])
        if self.n_successors > MAX_SUCCESSORS:
            raise AutomatonTooLargeError
        return self.after[node, path]

    def _kind(self, node: int, path: _Path) -> tuple[object, ...] | None:
        """Return what takes of one wait have in common."""
        if self.graph.nodes[node]["mark"] is not Mark.TAKE:
            return None
        inside = self.graph.nodes[path.joint]["value"].inside
        return path.joint, path.bars, path.guards, path.fences, path.vetoes, _running(inside, path)

    def _wait(self, path: _Path, takes: tuple[tuple[int, tuple[int, ...]], ...]) -> int:
        joint: _Joint = self.graph.nodes[path.joint]["value"]
        taken = {self.graph.nodes[node]["value"] for node, _ in takes}
        others: tuple[str, ...] = ()
        if joint.contiguity is ir.Contiguity.NEXT:
            others = tuple(name for name in self._begins_of(path.joint) if path.vetoes or name not in taken)
        bars = () if joint.contiguity is ir.Contiguity.STRICT else path.bars
        limits = _running(joint.inside, path)
        state = State(
            joint.contiguity,
            begins=others,
            bars=bars,
            guards=path.guards,
            gap=joint.gap,
            limits=limits,
            fences=path.fences,
        )
        return self._number(_Wait(state, takes, path.vetoes))

    def _lone_wait(self, node: int, path: _Path) -> int:
        state = State(ir.Contiguity.ANY, bars=path.bars, guards=path.guards, fences=path.fences)
        if self.graph.nodes[node]["mark"] is Mark.TIMER:
            pause: _Pause = self.graph.nodes[node]["value"]
            bars = tuple(dict.fromkeys((*path.bars, *pause.silence.variables)))
            state = replace(state, bars=bars, limits=_running(pause.inside, path))
            return self._number(_Wait(state, pause=(node, replace(path, joint=-1))))
        if path.bars:
            # A strict absence waits for the next event.
            return self._number(_Wait(replace(state, closes=not path.guards)))
        if path.guards:
            return self._number(_Wait(replace(state, accepts_after_skip=True)))
        return ACCEPT


def _without_fences(wait: _Wait, until: str) -> _Wait:
    """Return `wait` after the loops are closed that `until` closes."""

    def kept(fences: tuple[Fence, ...]) -> tuple[Fence, ...]:
        return tuple(fence for fence in fences if fence.until != until)

    pause = wait.pause
    if pause is not None:
        node, path = pause
        pause = (node, replace(path, fences=kept(path.fences)))
    return replace(wait, state=replace(wait.state, fences=kept(wait.state.fences)), pause=pause)


def _running(inside: tuple[int, ...], path: _Path) -> tuple[int, ...]:
    """Return the groups of `inside` that have taken an event."""
    return tuple(group for group in inside if group not in path.opened)
