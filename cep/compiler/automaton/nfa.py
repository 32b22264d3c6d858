"""Pattern -> NFA, from the graph of `cep.compiler.automaton.pattern_graph`.

`_Simplifier` follows the epsilon edges from each take to the next takes (the positions of Glushkov, Russ.
Math. Surv. 16(5), 1961). On the way it collects all absences and exclusions, and the last joint, which
decides. What it collects between two takes makes a `State`.

Time is modelled as in timed automata (Alur and Dill, Theor. Comp. Sci. 126(2), 1994), with clocks that only
such a pattern needs: since the event taken last (`State.gap`), since a group was entered (`TakeEdge.opens`,
`State.limits`), since the last event or the end of the last timed absence (`State.timed_absence`).

Order matters: successors are in order of preference, like the threads of Pike's VM.

Some patterns and their automata follow, most with the automaton that one might write instead. `dump`
compiles a pattern and returns `Nfa.dump`; a test runs these lines. State 0 is the start: every event may
start a run there.

``a -> b``. The run waits in state 1, takes the first B and ends.

>>> dump("a -> b")
0 start   a -> 1
1 next    b -> match

A regular expression would say ``a .* b``, with a loop over any event. Such a run also skips a B that
it could take, so A B1 B2 has two matches. That is a different joint and a different automaton:

>>> dump("a ->> b")
0 start   a -> 1
1 any     b -> match

``a+ b``. One state takes another A or the B. A state for each of them would mean two runs for each A. One
state loses nothing, because no run in a strict state outlives the next event.

>>> dump("a+ b")
0 start   a -> 1
1 strict  a -> 1 | b -> match

With arrows the two remain separate, because they ignore different events: the run in state 1 may not ignore
an A, which the loop can start with, while the run in state 2 has left the loop and ignores it.

>>> dump("a->+ -> b")
0 start   a -> 1, 2
1 next    a -> 1, 2
2 next    b -> match

``a -> !b``. Nothing is taken after the A. The run ends at a B, and is a match when the window closes.

>>> dump("a -> !b")
0 start   a -> 1
1 any     not followed by b; match when the window closes

It is tempting to take any event that is not a B, as ``a [^b]`` does. But then the first event that is not a B
completes the match, and a later B is not seen. This is the absence without an arrow, which concerns only one
event:

>>> dump("a !b")
0 start   a -> 1
1 any     not next b; match after the next event

``(a -> b WITHOUT m) -> c``. An M ends the run in state 1, between two events of the parentheses. Nor is an M
taken as their first event. In state 2 the run has left the parentheses.

>>> dump("(a -> b WITHOUT m) -> c")
0 start   a -> 1
1 next    b -> 2; excludes m
2 next    c -> match

``(a | b)->{2}``. Both branches lead to the same joint, so the run after either of them waits in one state.

>>> dump("(a | b)->{2}")
0 start   a -> 1 | b -> 1
1 next    a -> match | b -> match

It is tempting to give each branch its own state, as Thompson's construction does. But a run that waits for an
A alone ignores a B, and ``->`` must not ignore an event with which the next element can start: the events A1
B A2 would also match as A1 A2. If branches must be separate, because they continue with different joints,
each state therefore names the variables of the others, which it may not ignore:

>>> dump("a -> (b? -> c | d)")
0 start   a -> 1, 2, 3
1 next    b -> 2; never ignores d
2 next    c -> match
3 next    d -> match; never ignores b
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from cep.compiler import ir
from cep.compiler.automaton.pattern_graph import (
    AutomatonTooLargeError,
    Builder,
    Exclusion,
    Graph,
    Joint,
    LookBehind,
    Mark,
    Path,
    TimedAbsence,
    begins,
    reach,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "ACCEPT",
    "MAX_SUCCESSORS",
    "AutomatonTooLargeError",
    "Exclusion",
    "LookBehind",
    "Nfa",
    "State",
    "TakeEdge",
    "TimedAbsenceEdge",
    "build",
]

ACCEPT = -1
"""Successor of a take: the run is complete."""


MAX_SUCCESSORS = 7_500
"""Successors of all takes together. Optional steps in a row multiply: n of them have n * n / 2."""


@dataclass(frozen=True, slots=True)
class TakeEdge:
    """A run that waits in a state may take an event as `variable`; `after` are then its successors.

    Successors are state numbers or `ACCEPT`, most preferred first. `opens` are the groups (of `Nfa.groups`)
    whose first event this is. `look_behinds` name events that must not precede a run. An event
    that one of `exclusions` names is not taken by this edge.
    """

    variable: str
    after: tuple[int, ...]
    opens: tuple[int, ...] = ()
    look_behinds: tuple[LookBehind, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()


@dataclass(frozen=True, slots=True)
class TimedAbsenceEdge:
    """The end of an absence FOR a time: the run continues with `after` without taking an event."""

    period: ir.Window
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What a run does with its next event. `cep.program.program.RuleTables` says what each part means.

    `limits` are the groups whose windows end a run here. Each of `releases` is a variable and a state: an
    event for which the variable holds moves the run to this state, which lacks the exclusions that end then.
    """

    contiguity: ir.Contiguity
    takes: tuple[TakeEdge, ...] = ()
    begins: tuple[str, ...] = ()
    not_followed_by: tuple[str, ...] = ()
    not_next: tuple[str, ...] = ()
    next: int = 0
    closes: bool = False
    accepts_after_ignore: bool = False
    gap: ir.Gap | None = None
    limits: tuple[int, ...] = ()
    timed_absence: TimedAbsenceEdge | None = None
    exclusions: tuple[Exclusion, ...] = ()
    releases: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Nfa:
    """States of one rule; state 0 is the start, from which every event may start a run."""

    states: tuple[State, ...]
    groups: tuple[ir.Group, ...] = ()

    def dump(self) -> str:
        """Return the automaton as text, a line for each state."""
        return "\n".join(_dumped(number, state) for number, state in enumerate(self.states))

    def graph(self) -> nx.MultiDiGraph[int]:
        """Return the automaton as a graph for checks and pictures; the node ``ACCEPT`` is the end."""
        import networkx as nx  # imported here: it takes a tenth of a second to load, and no run needs it

        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(self.states)))
        graph.add_node(ACCEPT)
        for number, state in enumerate(self.states):
            for take in state.takes:
                for successor in take.after:
                    graph.add_edge(number, successor, label=take.variable)
            if state.timed_absence is not None:
                for successor in state.timed_absence.after:
                    graph.add_edge(number, successor, label="time is over")
            if state.closes:
                graph.add_edge(number, ACCEPT, label="window closes")
            if state.accepts_after_ignore:
                graph.add_edge(number, ACCEPT, label="next event")
        return graph


def _dumped(number: int, state: State) -> str:
    """Return a state in one line: contiguity, takes with their successors, and its other conditions."""
    takes = " | ".join(f"{take.variable} -> {_names(take.after)}" for take in state.takes)
    facts = [takes] if takes else []
    for words, variables in (
        ("never ignores", state.begins),
        ("not followed by", state.not_followed_by),
        ("not next", state.not_next),
        ("excludes", tuple(name for exclusion in state.exclusions for name in exclusion.variables)),
    ):
        if variables:
            facts.append(f"{words} {', '.join(variables)}")
    facts += [f"{name} moves to {_names((target,))}" for name, target in state.releases]
    if number and state.next != number:
        facts.append(f"ignore -> {_names((state.next,))}")
    if state.timed_absence is not None:
        facts.append(f"after its time -> {_names(state.timed_absence.after)}")
    if state.accepts_after_ignore:
        facts.append("match after the next event")
    if state.closes:
        facts.append("match when the window closes")
    kind = "start" if number == 0 else state.contiguity.value
    return f"{number} {kind:<7} {'; '.join(facts)}"


def _names(states: Iterable[int]) -> str:
    return ", ".join("match" if state == ACCEPT else str(state) for state in states)


def build(pattern: ir.Node) -> Nfa:
    """Return the automaton of `pattern`.

    The analyzer has accepted the pattern: its size is bounded, and it takes at least one event. Raises
    AutomatonTooLargeError: there are too many paths through optional parts.
    """
    builder = Builder()
    accept = builder.add(Mark.ACCEPT)
    entry = builder.fragment(pattern, accept)
    return Nfa(_Simplifier(builder.graph).states(entry), tuple(builder.groups))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A state before its successors are known: everything by which two states can differ."""

    state: State
    takes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # nodes, and the groups each opens
    take_exclusions: tuple[Exclusion, ...] = ()  # of the takes
    absence: tuple[int, Path] | None = None  # a timed absence, and what still holds after it


_FoundTake = tuple[int, tuple[int, ...], tuple[LookBehind, ...], tuple[Exclusion, ...]]
"""The node of a take, the groups it opens, its look-behinds and its exclusions."""


class _Simplifier:
    """Gives every distinct candidate one number, in the order in which candidates are met."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.numbers: dict[_Candidate, int] = {}
        self.pending: list[_Candidate] = []
        self.begins: dict[int, tuple[str, ...]] = {}
        self.after: dict[tuple[int, Path], tuple[int, ...]] = {}
        self.by_takes: dict[tuple[object, ...], int] = {}
        self.n_successors = 0

    def states(self, entry: int) -> tuple[State, ...]:
        # Nothing precedes a run, so no joint decides at the start: only the reached takes count.
        starts = dict.fromkeys(
            (node, path.opened, path.look_behinds, _plain(path.exclusions + path.take_exclusions))
            for node, path in reach(self.graph, entry, Path(at_start=True))
            if self.graph.nodes[node].mark is Mark.TAKE
        )
        begin = State(ir.Contiguity.STRICT, self._edges(starts))
        found: dict[int, State] = {0: begin}
        while self.pending:
            candidate = self.pending.pop(0)
            found[self.numbers[candidate]] = self._state(candidate)
        return tuple(found[number] for number in range(len(found)))

    def _edges(self, takes: Iterable[_FoundTake]) -> tuple[TakeEdge, ...]:
        """Return the takes, each once, without those that have more exclusions than another."""
        found: list[TakeEdge] = []
        exclusions_of: dict[TakeEdge, list[tuple[Exclusion, ...]]] = {}
        for node, opens, look_behinds, exclusions in takes:
            variable = self.graph.nodes[node].value
            edge = TakeEdge(variable, self._states_after(node, Path()), opens, look_behinds)
            # A take may be reached on several paths. A path with fewer exclusions takes whatever one with
            # more takes, and leads to the same states, so the other path adds nothing.
            known = exclusions_of.setdefault(edge, [])
            if not any(set(fewer) <= set(exclusions) for fewer in known):
                known.append(exclusions)
                found.append(replace(edge, exclusions=exclusions) if exclusions else edge)
        return tuple(found)

    def _state(self, candidate: _Candidate) -> State:
        following = self.numbers[candidate]
        # "Not next" concerns one event only: a run that ignored this event continues in a state without
        # it.
        state = candidate.state
        if state.not_next and state.contiguity is not ir.Contiguity.STRICT and not state.accepts_after_ignore:
            following = self._number(self._past_not_next(candidate))
        timed_absence = None
        if candidate.absence is not None:
            node, path = candidate.absence
            timed_absence = TimedAbsenceEdge(
                self.graph.nodes[node].value.absence.period, self._states_after(node, path)
            )
        takes = self._edges((node, opens, (), candidate.take_exclusions) for node, opens in candidate.takes)
        untils = dict.fromkeys(
            exclusion.until for exclusion in state.exclusions if exclusion.until is not None
        )
        releases = tuple((until, self._number(_released(candidate, until))) for until in untils)
        return replace(state, takes=takes, next=following, timed_absence=timed_absence, releases=releases)

    def _past_not_next(self, candidate: _Candidate) -> _Candidate:
        absence = None
        if candidate.absence is not None:
            node, path = candidate.absence
            absence = (node, replace(path, not_next=()))
        is_end = not candidate.takes and absence is None
        return replace(candidate, state=replace(candidate.state, not_next=(), closes=is_end), absence=absence)

    def _number(self, candidate: _Candidate) -> int:
        if candidate not in self.numbers:
            self.numbers[candidate] = len(self.numbers) + 1
            self.pending.append(candidate)
            if len(self.numbers) > MAX_SUCCESSORS:
                raise AutomatonTooLargeError
        return self.numbers[candidate]

    def _begins_of(self, joint: int) -> tuple[str, ...]:
        if joint not in self.begins:
            self.begins[joint] = begins(self.graph, joint)
        return self.begins[joint]

    def _states_after(self, node: int, path: Path) -> tuple[int, ...]:
        """Return the successors of a take or a timed absence: neighbors that wait alike share a state."""
        if (node, path) in self.after:
            return self.after[node, path]
        (entry,) = self.graph.nodes[node].successors
        numbers: list[int] = []
        # Only neighbors are merged: a take between two of one kind is preferred to the second of them, and
        # one state for both would change this order.
        groups = groupby(self._reached(entry, path), key=lambda found: self._kind(*found))
        for kind, members in groups:
            nodes = list(members)
            if kind is None:  # an end or a timed absence: each has its own state
                numbers += [self._lone_state(*member) for member in nodes]
            else:
                takes = tuple(dict.fromkeys((node, path.opened) for node, path in nodes))
                if (kind, takes) not in self.by_takes:
                    self.by_takes[kind, takes] = self._wait(nodes[0][1], takes)
                numbers.append(self.by_takes[kind, takes])
        self.after[node, path] = tuple(dict.fromkeys(numbers))
        self.n_successors += len(self.after[node, path])
        if self.n_successors > MAX_SUCCESSORS:
            raise AutomatonTooLargeError
        return self.after[node, path]

    def _reached(self, entry: int, path: Path) -> Iterator[tuple[int, Path]]:
        """Yield what `reach` does. Only a path that continues after a timed absence needs its origin."""
        for node, found in reach(self.graph, entry, path):
            if self.graph.nodes[node].mark is Mark.TIMED_ABSENCE or not (
                found.fresh or any(one.without >= 0 for one in found.exclusions)
            ):
                yield node, found
            else:
                plain, of_take = _plain(found.exclusions), _plain(found.take_exclusions)
                fresh: frozenset[Exclusion] = frozenset()
                yield node, replace(found, exclusions=plain, take_exclusions=of_take, fresh=fresh)

    def _kind(self, node: int, path: Path) -> tuple[object, ...] | None:
        """Return what the takes of one state have in common.

        Strict joints are alike, because no run outlives the next event: what a loop may take again and what
        follows the loop are one state and one run.
        """
        if self.graph.nodes[node].mark is not Mark.TAKE:
            return None
        joint: Joint = self.graph.nodes[path.joint].value
        running = _running(joint.inside, path)
        if joint.contiguity is ir.Contiguity.STRICT:
            return joint.contiguity, joint.gap, path.not_next, path.exclusions, path.take_exclusions, running
        return path.joint, path.not_followed_by, path.not_next, path.exclusions, path.take_exclusions, running

    def _wait(self, path: Path, takes: tuple[tuple[int, tuple[int, ...]], ...]) -> int:
        joint: Joint = self.graph.nodes[path.joint].value
        taken = {self.graph.nodes[node].value for node, _ in takes}
        # An exclusion may keep the takes from an event with which the element can start. Even then the event
        # must not be ignored, so all variables that start the element are named.
        others: tuple[str, ...] = ()
        if joint.contiguity is ir.Contiguity.NEXT:
            others = tuple(
                name for name in self._begins_of(path.joint) if path.take_exclusions or name not in taken
            )
        # A run in a strict state ignores nothing, so an absence has nothing to forbid there.
        not_followed_by = () if joint.contiguity is ir.Contiguity.STRICT else path.not_followed_by
        limits = _running(joint.inside, path)
        state = State(
            joint.contiguity,
            begins=others,
            not_followed_by=not_followed_by,
            not_next=path.not_next,
            gap=joint.gap,
            limits=limits,
            exclusions=path.exclusions,
        )
        return self._number(_Candidate(state, takes, path.take_exclusions))

    def _lone_state(self, node: int, path: Path) -> int:
        state = State(
            ir.Contiguity.ANY,
            not_followed_by=path.not_followed_by,
            not_next=path.not_next,
            exclusions=_plain(path.exclusions),
        )
        if self.graph.nodes[node].mark is Mark.TIMED_ABSENCE:
            absence: TimedAbsence = self.graph.nodes[node].value
            not_followed_by = tuple(dict.fromkeys((*path.not_followed_by, *absence.absence.variables)))
            state = replace(state, not_followed_by=not_followed_by, limits=_running(absence.inside, path))
            return self._number(_Candidate(state, absence=(node, replace(path, joint=-1))))
        if path.not_followed_by:
            # A strict absence waits for the next event.
            return self._number(_Candidate(replace(state, closes=not path.not_next)))
        if path.not_next:
            return self._number(_Candidate(replace(state, accepts_after_ignore=True)))
        return ACCEPT


def _plain(exclusions: tuple[Exclusion, ...]) -> tuple[Exclusion, ...]:
    """Return `exclusions` in the form of a state: without their patterns, each once."""
    if all(exclusion.without < 0 for exclusion in exclusions):
        return exclusions
    return tuple(dict.fromkeys(replace(exclusion, without=-1) for exclusion in exclusions))


def _released(candidate: _Candidate, until: str) -> _Candidate:
    """Return `candidate` after the loops are closed that `until` closes."""

    def kept(exclusions: tuple[Exclusion, ...]) -> tuple[Exclusion, ...]:
        return tuple(exclusion for exclusion in exclusions if exclusion.until != until)

    absence = candidate.absence
    if absence is not None:
        node, path = absence
        absence = (node, replace(path, exclusions=kept(path.exclusions)))
    return replace(
        candidate,
        state=replace(candidate.state, exclusions=kept(candidate.state.exclusions)),
        absence=absence,
    )


def _running(inside: tuple[int, ...], path: Path) -> tuple[int, ...]:
    """Return the groups of `inside` that have taken an event."""
    return tuple(group for group in inside if group not in path.opened)
