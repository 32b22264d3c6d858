"""Pattern -> NFA: a fragment per node, joined by epsilon edges, then one state per *wait*.

Two steps. `_Builder` is Thompson's construction (Comm. ACM 11(6), 1968) right to left: each node of the
pattern becomes a fragment that ends in the fragment of what follows. Besides takes and splits there are
marks that say what lies between two taken events: joints, bars and guards. `_simplify` follows the
epsilon edges from each take to the next takes (the positions of Glushkov, Russ. Math. Surv. 16(5), 1961)
and gathers on the way the joint that decides (the last one) and the absences (all of them). What is left
is what a run can be waiting for: `State`.

Order is meaning: successors are listed in order of preference, as the threads of Pike's VM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import networkx as nx

from cep.compiler import ir

ACCEPT = -1
"""Successor of a take: the run is complete."""


MAX_SUCCESSORS = 10_000
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
    ENTER = "enter"  # an iteration of a loop whose body may take nothing begins ...
    LEAVE = "leave"  # ... and ends: never both without a take between


@dataclass(frozen=True, slots=True)
class TakeEdge:
    """A run that waits in a state may take an event as `variable`; `after` are its successors then.

    Successors are state numbers or `ACCEPT`, most preferred first.
    """

    variable: str
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What a run waits for. See `cep.program.RuleTables` for the meaning of each part."""

    contiguity: ir.Contiguity
    takes: tuple[TakeEdge, ...]
    begins: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    next: int = 0
    closes: bool = False
    accepts_after_skip: bool = False


@dataclass(frozen=True, slots=True)
class Nfa:
    """States of one rule; state 0 is the start, from which every event may begin a run."""

    states: tuple[State, ...]

    def graph(self) -> nx.MultiDiGraph[int]:
        """Return the automaton as a graph for checks and pictures; the node ``ACCEPT`` is the end."""
        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(self.states)))
        graph.add_node(ACCEPT)
        for number, state in enumerate(self.states):
            for take in state.takes:
                for successor in take.after:
                    graph.add_edge(number, successor, label=take.variable)
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
        case ir.Absent():
            return True
        case ir.Sequence(items=items):
            return all(can_be_empty(item.node) for item in items)
        case ir.Alternation(branches=branches):
            return any(can_be_empty(branch) for branch in branches)
        case ir.Permutation(parts=parts):
            return all(can_be_empty(part) for part in parts)
        case ir.Repeat(body=body, min=least):
            return least == 0 or can_be_empty(body)
        case _:
            assert_never(node)


class _Builder:
    """Grows the graph of epsilon edges. Edges of a split carry `order`."""

    def __init__(self) -> None:
        self.graph: nx.DiGraph[int] = nx.DiGraph()

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
            case ir.Absent(variable=variable):
                return self.add(Mark.BAR, after, value=variable)
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
            if isinstance(item.node, ir.Absent):
                mark = Mark.GUARD if item.contiguity is ir.Contiguity.STRICT else Mark.BAR
                after = self.add(mark, after, value=item.node.variable)
                continue
            after = self.fragment(item.node, after)
            if index > 0:
                after = self.add(Mark.JOINT, after, value=item.contiguity)
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
                entries[left] = self.add(Mark.JOINT, entries[left], value=contiguity)
        return entries[(1 << len(parts)) - 1]

    def _repeat(self, node: ir.Repeat, after: int) -> int:
        hollow = can_be_empty(node.body)
        least = 0 if hollow else node.min

        def iteration(then: int) -> int:
            if not hollow:
                return self.fragment(node.body, then)
            loop = self.graph.number_of_nodes()  # any number of its own
            leave = self.add(Mark.LEAVE, then, value=loop)
            return self.add(Mark.ENTER, self.fragment(node.body, leave), value=loop)

        def choose(more: int) -> int:
            greedy = node.greed is ir.Greed.GREEDY
            return self.add(Mark.SPLIT, *((more, after) if greedy else (after, more)))

        if node.max is None:
            again = self.add(Mark.SPLIT)  # its edges follow: the loop is a cycle
            entry = iteration(again)
            more = self._again(node, entry, may_leave=True)
            ordered = (more, after) if node.greed is ir.Greed.GREEDY else (after, more)
            for order, successor in enumerate(ordered):
                self.graph.add_edge(again, successor, order=order)
            copies = max(least, 1) - 1
        else:
            entry = iteration(after)
            for _ in range(node.max - max(least, 1)):
                entry = iteration(choose(self._again(node, entry, may_leave=True)))
            copies = max(least, 1) - 1
        for _ in range(copies):
            entry = iteration(self._again(node, entry, may_leave=False))
        return choose(entry) if least == 0 else entry

    def _again(self, node: ir.Repeat, entry: int, *, may_leave: bool) -> int:
        """Return the way to one more repetition: its joint, and the absences behind the loop."""
        after = self.add(Mark.JOINT, entry, value=node.contiguity)
        for item in node.behind:
            assert isinstance(item.node, ir.Absent)
            if item.contiguity is not ir.Contiguity.STRICT:
                after = self.add(Mark.BAR, after, value=item.node.variable)
            elif may_leave:
                after = self.add(Mark.GUARD, after, value=item.node.variable)
        return after


@dataclass(frozen=True, slots=True)
class _Path:
    """What was met since the last take. `joint` is a node of the graph; -1: none yet."""

    joint: int = -1
    bars: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    entered: frozenset[int] = frozenset()


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
    return _simplify(builder.graph, entry)


def _successors(graph: nx.DiGraph[int], node: int) -> list[int]:
    """Return the successors of `node`, the least preferred first; found once."""
    found: list[int] | None = graph.nodes[node].get("successors")
    if found is None:
        found = sorted(
            graph.successors(node), key=lambda other: graph.edges[node, other]["order"], reverse=True
        )
        graph.nodes[node]["successors"] = found
    return found


def _reach(graph: nx.DiGraph[int], entry: int) -> Iterator[tuple[int, _Path]]:
    """Yield the takes and accepts that epsilon edges lead to from `entry`, most preferred first.

    Depth first with an explicit stack; a place seen under the same circumstances is not entered again, so
    that ``(a?|b?) (c?|d?) ...`` stays linear and the more preferred way in wins.
    """
    stack = [(entry, _Path())]
    seen: set[tuple[int, _Path]] = set()
    while stack:
        node, path = stack.pop()
        if (node, path) in seen:
            continue
        seen.add((node, path))
        graph.graph["steps"] = graph.graph.get("steps", 0) + 1
        if graph.graph["steps"] > MAX_STEPS:
            raise AutomatonTooLargeError
        mark, value = graph.nodes[node]["mark"], graph.nodes[node]["value"]
        match mark:
            case Mark.ACCEPT | Mark.TAKE:
                yield node, path
                continue
            case Mark.JOINT:
                path = _Path(node, path.bars, path.guards, path.entered)
            case Mark.BAR:
                path = _Path(path.joint, _with(path.bars, value), path.guards, path.entered)
            case Mark.GUARD:
                path = _Path(path.joint, path.bars, _with(path.guards, value), path.entered)
            case Mark.ENTER:
                path = _Path(path.joint, path.bars, path.guards, path.entered | {value})
            case Mark.LEAVE if value in path.entered:
                continue  # an iteration that took nothing is none
        stack.extend((successor, path) for successor in _successors(graph, node))


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _begins(graph: nx.DiGraph[int], joint: int) -> tuple[str, ...]:
    """Return the variables with which the element on the right of `joint` can begin by this joint."""
    return tuple(
        dict.fromkeys(
            graph.nodes[node]["value"]
            for node, path in _reach(graph, joint)
            if path.joint == joint and graph.nodes[node]["mark"] is Mark.TAKE
        )
    )


class _Simplifier:
    """Gives every distinct wait a state, once, in the order in which they are met."""

    def __init__(self, graph: nx.DiGraph[int]) -> None:
        self.graph = graph
        self.numbers: dict[object, int] = {}
        self.pending: list[tuple[int, tuple[int, ...], State]] = []
        self.begins: dict[int, tuple[str, ...]] = {}
        self.after: dict[int, tuple[int, ...]] = {}
        self.n_successors = 0

    def number(self, takes: tuple[int, ...], state: State) -> int:
        key = (takes, state)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers) + 1
            self.pending.append((self.numbers[key], takes, state))
        return self.numbers[key]

    def begins_of(self, joint: int) -> tuple[str, ...]:
        if joint not in self.begins:
            self.begins[joint] = _begins(self.graph, joint)
        return self.begins[joint]

    def waits_after(self, take: int) -> tuple[int, ...]:
        """Return the successors of `take`: neighbours in preference that wait alike share a state."""
        if take in self.after:
            return self.after[take]
        (entry,) = self.graph.successors(take)
        groups: list[tuple[_Path | None, list[int]]] = []
        for node, reached in _reach(self.graph, entry):
            path = _Path(reached.joint, reached.bars, reached.guards)
            if self.graph.nodes[node]["mark"] is Mark.ACCEPT:
                groups.append((path, []))
            elif groups and groups[-1][0] == path and groups[-1][1]:
                groups[-1][1].append(node)
            else:
                groups.append((path, [node]))
        numbers = [self._wait(path, tuple(takes)) for path, takes in groups if path is not None]
        self.after[take] = tuple(dict.fromkeys(numbers))
        self.n_successors += len(self.after[take])
        if self.n_successors > MAX_SUCCESSORS:
            raise AutomatonTooLargeError
        return self.after[take]

    def _wait(self, path: _Path, takes: tuple[int, ...]) -> int:
        if not takes:
            return self._ending(path)
        contiguity = self.graph.nodes[path.joint]["value"]
        taken = {self.graph.nodes[take]["value"] for take in takes}
        others: tuple[str, ...] = ()
        if contiguity is ir.Contiguity.NEXT:
            others = tuple(name for name in self.begins_of(path.joint) if name not in taken)
        strict = contiguity is ir.Contiguity.STRICT
        state = State(contiguity, (), others, () if strict else path.bars, path.guards)
        return self.number(takes, state)

    def _ending(self, path: _Path) -> int:
        if path.bars:
            closes = not path.guards  # a strict absence waits for the next event
            return self.number((), State(ir.Contiguity.ANY, (), (), path.bars, path.guards, closes=closes))
        if path.guards:
            return self.number((), State(ir.Contiguity.ANY, (), (), (), path.guards, accepts_after_skip=True))
        return ACCEPT


def _simplify(graph: nx.DiGraph[int], entry: int) -> Nfa:
    simplifier = _Simplifier(graph)
    starts = tuple(
        dict.fromkeys(node for node, _ in _reach(graph, entry) if graph.nodes[node]["mark"] is Mark.TAKE)
    )

    def edges(takes: tuple[int, ...]) -> tuple[TakeEdge, ...]:
        return tuple(
            dict.fromkeys(
                TakeEdge(graph.nodes[take]["value"], simplifier.waits_after(take)) for take in takes
            )
        )

    states: dict[int, State] = {0: State(ir.Contiguity.STRICT, edges(starts))}
    while simplifier.pending:
        number, takes, state = simplifier.pending.pop(0)
        following = number
        if state.guards and state.contiguity is not ir.Contiguity.STRICT:  # a guard looks at one event only
            unguarded = State(state.contiguity, (), state.begins, state.bars, (), closes=not takes)
            following = number if state.accepts_after_skip else simplifier.number(takes, unguarded)
        states[number] = State(
            state.contiguity,
            edges(takes),
            state.begins,
            state.bars,
            state.guards,
            following,
            state.closes,
            state.accepts_after_skip,
        )
    return Nfa(tuple(states[number] for number in range(len(states))))
