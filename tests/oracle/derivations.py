"""Derivations: the ways to read a pattern into the events of one key, from one start.

Two layers. `ways` walks the pattern tree and says, without looking at any event, by which ways one gets from
one taken event to the next, most preferred first. `Derivations` waits for events along these ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import assert_never

from cep.compiler import ir
from cep.expression import ALL_EVENTS
from tests.oracle.expressions import Event, evaluate

Assignment = tuple[tuple[str, int], ...]
"""(variable, position) of every taken event, oldest first."""

MAX_WAITS = 2000
"""Waits of one rule and key. Loops of `->>` double with each event."""

Instant = tuple[int, int, int]
"""(time, 0, position) of an event or (time, 1, 0) of a window's close: order of happening ("Instants")."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint: its place in the pattern, contiguity, and what the element on its right can begin with."""

    place: tuple[int, ...]
    contiguity: ir.Contiguity
    begins: frozenset[str]


@dataclass(frozen=True, slots=True)
class Link:
    """What stands in the pattern between the event taken last and the next: the last joint, all absences."""

    n_taken: int = 0
    joint: Joint | None = None
    bars: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Way:
    """By `link` to an event taken as `variable`, then on with `rest`; without variable: to the end."""

    link: Link
    variable: str | None
    rest: Rest


Rest = Callable[[Link], Iterator[Way]]


def begins(node: ir.Node) -> frozenset[str]:
    """Return the variables with which `node` can begin ("What an arrow skips")."""
    match node:
        case ir.Take(variable=variable):
            return frozenset({variable})
        case ir.Sequence(items=items):
            return begins(items[0].node)
        case ir.Alternation(branches=branches):
            return frozenset().union(*(begins(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return frozenset().union(*(begins(part) for part in parts))
        case ir.Repeat(body=body):
            return begins(body)
        case ir.Absent():
            raise AssertionError("an absence is never the first of a sequence")
        case _:
            assert_never(node)


def ways(node: ir.Node, place: tuple[int, ...], link: Link, rest: Rest) -> Iterator[Way]:
    """Yield the ways through `node` to the next event, most preferred first ("Preference")."""
    match node:
        case ir.Take(variable=variable):
            yield Way(link, variable, rest)
        case ir.Sequence(items=items):
            yield from _items(items, 0, place, link, rest)
        case ir.Alternation(branches=branches):
            for number, branch in enumerate(branches):
                yield from ways(branch, (*place, number), link, rest)
        case ir.Permutation(parts=parts):
            yield from _any_order(node, tuple(range(len(parts))), place, link, rest)
        case ir.Repeat():
            yield from _repetitions(node, 0, place, link, rest)
        case ir.Absent():
            raise AssertionError("an absence stands only in a sequence")
        case _:
            assert_never(node)


def _items(
    items: tuple[ir.Item, ...], index: int, place: tuple[int, ...], link: Link, rest: Rest
) -> Iterator[Way]:
    """Go through the items from `index` on: "Joints" (the last one met decides) and "Absence" (all count)."""
    if index == len(items):
        yield from rest(link)
        return
    item = items[index]

    def onward(link: Link) -> Iterator[Way]:
        return _items(items, index + 1, place, link, rest)

    if isinstance(item.node, ir.Absent):
        name = {item.node.variable}
        if item.contiguity is ir.Contiguity.STRICT:
            yield from onward(replace(link, guards=link.guards | name))
        else:
            yield from onward(replace(link, bars=link.bars | name))
        return
    here = (*place, index)
    if index > 0:
        link = replace(link, joint=Joint(here, item.contiguity, begins(item.node)))
    yield from ways(item.node, here, link, onward)


def _any_order(
    node: ir.Permutation, left: tuple[int, ...], place: tuple[int, ...], link: Link, rest: Rest
) -> Iterator[Way]:
    """Go through the parts numbered `left`, each first in turn ("Any order")."""
    if not left:
        yield from rest(link)
        return
    if len(left) < len(node.parts):
        first = frozenset().union(*(begins(node.parts[number]) for number in left))
        link = replace(link, joint=Joint((*place, -1, *left), node.contiguity, first))
    for number in left:

        def onward(reached: Link, number: int = number) -> Iterator[Way]:
            return _any_order(node, tuple(one for one in left if one != number), place, reached, rest)

        yield from ways(node.parts[number], (*place, number), link, onward)


def _can_be_empty(node: ir.Node) -> bool:
    """Say whether `node` can be gone through without an event: try it."""
    start = Link()
    through = Way(start, None, lambda link: iter(()))
    return any(way.variable is None for way in ways(node, (), start, lambda link: iter((through,))))


def _repetitions(node: ir.Repeat, done: int, place: tuple[int, ...], link: Link, rest: Rest) -> Iterator[Way]:
    """Go through the loop, `done` repetitions lying behind ("Loops")."""
    least = 0 if done == 0 and _can_be_empty(node.body) else node.min

    def more() -> Iterator[Way]:
        entered = link
        if done > 0:
            entered = replace(link, joint=Joint(place, node.contiguity, begins(node.body)))
            for item in node.behind:  # "Absence": what is absent behind a loop is so between its repetitions
                assert isinstance(item.node, ir.Absent)
                if item.contiguity is not ir.Contiguity.STRICT:
                    entered = replace(entered, bars=entered.bars | {item.node.variable})
                elif done >= least:
                    entered = replace(entered, guards=entered.guards | {item.node.variable})
        return ways(node.body, (*place, 0), entered, after)

    def after(reached: Link) -> Iterator[Way]:
        if reached.n_taken == link.n_taken:
            return  # a repetition without an event is none
        yield from _repetitions(hollowed, done + 1, place, reached, rest)

    hollowed = replace(node, min=0) if least == 0 else node
    if done < least:
        yield from more()
    elif done == node.max:
        yield from rest(link)
    elif node.greed is ir.Greed.GREEDY:
        yield from more()
        yield from rest(link)
    else:
        yield from rest(link)
        yield from more()


@dataclass(frozen=True, slots=True)
class Derivation:
    """A complete reading: what it took, when it became complete, the `match_end` it gives."""

    assignment: Assignment
    instant: Instant
    end_us: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A run waited: it was open after instant i if `since` <= i < `until` (None: for ever)."""

    assignment: Assignment
    since: Instant
    until: Instant | None

    @property
    def start(self) -> int:
        """Position of the first event taken."""
        return self.assignment[0][1]


class TooManyRunsError(Exception):
    """This rule has so many runs in these events that following each of them takes too long."""


def events_by_name(rule: ir.Rule, events: Sequence[Event], assignment: Assignment) -> dict[str, list[Event]]:
    """Return the events taken as each variable, as any member of each subset, and all ("Subsets")."""
    names = [variable.name for variable in rule.variables] + [subset.name for subset in rule.subsets]
    return {
        name: [events[position] for variable, position in assignment if variable in rule.members(name)]
        for name in (*names, ALL_EVENTS)
    }


class Derivations:
    """All derivations from the start `start` over the ordered events of one key, most preferred first.

    After `all` has been called, `waits` holds every wait on the way, for "When a run is open".
    """

    def __init__(self, rule: ir.Rule, times: Sequence[int], events: Sequence[Event], start: int) -> None:
        self.rule = rule
        self.times = times
        self.events = events
        self.start = start
        self.predicates: Mapping[str, ir.Variable] = {variable.name: variable for variable in rule.variables}
        self.waits: list[Wait] = []

    def _record(self, assignment: Assignment, until: Instant | None) -> None:
        self.waits.append(Wait(assignment, self.at(assignment[-1][1]), until))
        if len(self.waits) > MAX_WAITS:
            raise TooManyRunsError

    def all(self) -> list[Derivation]:
        """Return the derivations, each assignment and instant once."""
        found: dict[tuple[Assignment, Instant], Derivation] = {}
        for way in ways(self.rule.pattern, (), Link(), _end):
            assert way.variable is not None, "a pattern takes at least one event"
            if self.holds(way.variable, self.start, ()):  # "Starts": no joint is read before the first event
                for derivation in self._onward(((way.variable, self.start),), way.rest):
                    found.setdefault((derivation.assignment, derivation.instant), derivation)
        return list(found.values())

    def holds(self, variable: str, position: int, assignment: Assignment) -> bool:
        """Say whether the event may be taken as `variable` ("Predicates"): is TRUE, not NULL."""
        predicate = self.predicates[variable].predicate
        if predicate is None:
            return True
        taken = self.taken((*assignment, (variable, position)))
        return evaluate(predicate, self.events[position], taken) is True

    def taken(self, assignment: Assignment) -> dict[str, list[Event]]:
        """Return the events by variable."""
        return events_by_name(self.rule, self.events, assignment)

    @property
    def close(self) -> Instant | None:
        """When the window closes: after all events of its last moment ("Window")."""
        window = self.rule.window
        return None if window is None else (self.times[self.start] + window.span_us, 1, 0)

    def at(self, position: int) -> Instant:
        """Return the instant of an event."""
        return (self.times[position], 0, position)

    def _onward(self, assignment: Assignment, rest: Rest) -> Iterator[Derivation]:
        """Go on behind the last taken event: one wait after another ("Waits")."""
        onward = rest(Link(len(assignment)))
        for (is_end, link), group in groupby(onward, key=lambda way: (way.variable is None, way.link)):
            if is_end:
                yield from self._ending(assignment, link)
            else:
                yield from self._wait(assignment, link, list(group))

    def _candidates(self, assignment: Assignment) -> Iterator[int]:
        """Yield the positions behind the last taken event that lie in the window."""
        close = self.close
        for position in range(assignment[-1][1] + 1, len(self.events)):
            if close is not None and self.at(position) > close:
                return
            yield position

    def _is_guarded(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether a strict absence forbids the event: it looks at the very next one ("Absence")."""
        is_next = position == assignment[-1][1] + 1
        return is_next and any(self.holds(name, position, assignment) for name in link.guards)

    def _may_skip(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether the wait may pass over the event ("What an arrow skips", "Absence")."""
        if any(self.holds(name, position, assignment) for name in link.bars):
            return False
        assert link.joint is not None
        match link.joint.contiguity:
            case ir.Contiguity.STRICT:
                return False
            case ir.Contiguity.NEXT:
                return not any(self.holds(name, position, assignment) for name in link.joint.begins)
            case ir.Contiguity.ANY:
                return True
            case _:
                assert_never(link.joint.contiguity)

    def _wait(self, assignment: Assignment, link: Link, group: list[Way]) -> Iterator[Derivation]:
        """Wait by one joint: at each event take, in the order of the ways, before skipping."""
        until = self.close
        for position in self._candidates(assignment):
            if self._is_guarded(assignment, link, position):
                until = self.at(position)
                break
            for way in group:
                assert way.variable is not None
                if self.holds(way.variable, position, assignment):
                    yield from self._onward((*assignment, (way.variable, position)), way.rest)
            if not self._may_skip(assignment, link, position):
                until = self.at(position)
                break
        self._record(assignment, until)

    def _ending(self, assignment: Assignment, link: Link) -> Iterator[Derivation]:
        """Complete the derivation: at once, or when an absence is certain ("Absence at the end")."""
        if not link.bars and not link.guards:
            last = assignment[-1][1]
            yield Derivation(assignment, self.at(last), self.times[last])
            return
        until = self.close
        for position in self._candidates(assignment):
            guarded = self._is_guarded(assignment, link, position)
            if guarded or any(self.holds(name, position, assignment) for name in link.bars):
                self._record(assignment, self.at(position))
                return
            if not link.bars:  # the very next event was not the forbidden one: that is all there is to know
                self._record(assignment, self.at(position))
                yield Derivation(assignment, self.at(position), self.times[position])
                return
        self._record(assignment, until)
        decided = not link.guards or any(True for _ in self._candidates(assignment))
        if until is not None and decided:
            window = self.rule.window
            assert window is not None
            yield Derivation(assignment, until, self.times[self.start] + window.length_us)


def _end(link: Link) -> Iterator[Way]:
    yield Way(link, None, lambda link: iter(()))
