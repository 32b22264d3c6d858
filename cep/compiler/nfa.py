"""Pattern -> NFA: one state per *wait*, from the graph of `cep.compiler.pattern_graph`.

`_Simplifier` follows the epsilon edges from each take to the next takes (the positions of Glushkov, Russ.
Math. Surv. 16(5), 1961) and gathers on the way the joint that decides (the last one), the absences and the
fences (all of them). What is left is what a run can be waiting for: `State`.

Time is in it as in timed automata (Alur and Dill, Theor. Comp. Sci. 126(2), 1994), with clocks that only
such a pattern needs: since the event taken last (`State.gap`), since a group was entered (`TakeEdge.opens`,
`State.limits`), since the last event or the end of the last timed absence (`State.timer`).

Order is meaning: successors are listed in order of preference, as the threads of Pike's VM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

import networkx as nx

from cep.compiler import ir
from cep.compiler.pattern_graph import (
    AutomatonTooLargeError,
    Builder,
    Fence,
    Joint,
    Look,
    Mark,
    Path,
    Pause,
    begins,
    can_be_empty,
    reach,
)

__all__ = [
    "ACCEPT",
    "MAX_SUCCESSORS",
    "AutomatonTooLargeError",
    "Fence",
    "Look",
    "Nfa",
    "State",
    "TakeEdge",
    "Timer",
    "build",
    "can_be_empty",
]

ACCEPT = -1
"""Successor of a take: the run is complete."""


MAX_SUCCESSORS = 7_500
"""Successors of all takes together. Optional steps in a row multiply: n of them have n * n / 2."""


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


def build(pattern: ir.Node) -> Nfa:
    """Return the automaton of `pattern`.

    The pattern is one the analyzer let through: its size is bounded and it takes at least one event.

    Raises
    ------
    AutomatonTooLargeError
        There are too many ways through optional parts.
    """
    builder = Builder()
    accept = builder.add(Mark.ACCEPT)
    entry = builder.fragment(pattern, accept)
    return Nfa(_Simplifier(builder.graph).states(entry), tuple(builder.groups))


@dataclass(frozen=True, slots=True)
class _Wait:
    """A state before its successors are known: what makes it this one and no other."""

    state: State
    takes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # nodes, and the groups each opens
    vetoes: tuple[Fence, ...] = ()  # of the takes
    pause: tuple[int, Path] | None = None  # a timer, and what holds on beyond it


_FoundTake = tuple[int, tuple[int, ...], tuple[Look, ...], tuple[Fence, ...]]
"""The node of a take, the groups it opens, what must not lie before it, and what fences it off."""


class _Simplifier:
    """Gives every distinct wait a state, once, in the order in which they are met."""

    def __init__(self, graph: nx.DiGraph[int]) -> None:
        self.graph = graph
        self.numbers: dict[_Wait, int] = {}
        self.pending: list[_Wait] = []
        self.begins: dict[int, tuple[str, ...]] = {}
        self.after: dict[tuple[int, Path], tuple[int, ...]] = {}
        self.waits: dict[tuple[object, ...], int] = {}
        self.n_successors = 0

    def states(self, entry: int) -> tuple[State, ...]:
        starts = dict.fromkeys(
            (node, path.opened, path.looks, path.fences + path.vetoes)
            for node, path in reach(self.graph, entry, Path(at_start=True))
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
        fences_of: dict[TakeEdge, list[tuple[Fence, ...]]] = {}
        for node, opens, looks, fences in takes:
            variable = self.graph.nodes[node]["value"]
            edge = TakeEdge(variable, self._waits_after(node, Path()), opens, looks)
            known = fences_of.setdefault(edge, [])
            if not any(set(fewer) <= set(fences) for fewer in known):
                known.append(fences)
                found.append(replace(edge, fences=fences) if fences else edge)
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
            self.begins[joint] = begins(self.graph, joint)
        return self.begins[joint]

    def _waits_after(self, node: int, path: Path) -> tuple[int, ...]:
        """Return the successors of a take or timer: neighbours that wait alike share a state."""
        if (node, path) in self.after:
            return self.after[node, path]
        (entry,) = self.graph.successors(node)
        numbers: list[int] = []
        groups = groupby(reach(self.graph, entry, path), key=lambda found: self._kind(*found))
        for kind, members in groups:
            nodes = list(members)
            if kind is None:  # an end or a timer: each a wait of its own
                numbers += [self._lone_wait(*member) for member in nodes]
            else:
                takes = tuple(dict.fromkeys((node, path.opened) for node, path in nodes))
                if (kind, takes) not in self.waits:
                    self.waits[kind, takes] = self._wait(nodes[0][1], takes)
                numbers.append(self.waits[kind, takes])
        self.after[node, path] = tuple(dict.fromkeys(numbers))
        self.n_successors += len(self.after[node, path])
        if self.n_successors > MAX_SUCCESSORS:
            raise AutomatonTooLargeError
        return self.after[node, path]

    def _kind(self, node: int, path: Path) -> tuple[object, ...] | None:
        """Return what takes of one wait have in common.

        Strict joints are alike, for no run outlasts the next event: what a loop may take again and what
        comes after it is one wait, and one run.
        """
        if self.graph.nodes[node]["mark"] is not Mark.TAKE:
            return None
        joint: Joint = self.graph.nodes[path.joint]["value"]
        running = _running(joint.inside, path)
        if joint.contiguity is ir.Contiguity.STRICT:
            return joint.contiguity, joint.gap, path.guards, path.fences, path.vetoes, running
        return path.joint, path.bars, path.guards, path.fences, path.vetoes, running

    def _wait(self, path: Path, takes: tuple[tuple[int, tuple[int, ...]], ...]) -> int:
        joint: Joint = self.graph.nodes[path.joint]["value"]
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

    def _lone_wait(self, node: int, path: Path) -> int:
        state = State(ir.Contiguity.ANY, bars=path.bars, guards=path.guards, fences=path.fences)
        if self.graph.nodes[node]["mark"] is Mark.TIMER:
            pause: Pause = self.graph.nodes[node]["value"]
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


def _running(inside: tuple[int, ...], path: Path) -> tuple[int, ...]:
    """Return the groups of `inside` that have taken an event."""
    return tuple(group for group in inside if group not in path.opened)
