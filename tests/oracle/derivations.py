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
from tests.oracle.partitions import ROLES

Assignment = tuple[tuple[str, int], ...]
"""(variable, position) of every taken event, oldest first."""

MAX_WAITS = 2000
"""Waits of one rule and key. Loops of `->>` double with each event."""

Instant = tuple[int, int, int]
"""(time, 0, position) of an event or (time, 1, 0) of what time brings: order of happening ("Instants")."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint: its place in the pattern, contiguity, and what the element on its right can begin with."""

    place: tuple[int, ...]
    contiguity: ir.Contiguity
    begins: frozenset[str]
    gap: ir.Gap | None


@dataclass(frozen=True, slots=True)
class Look:
    """An absence before the first event; `past_arrow`: with an arrow between the two."""

    absent: ir.Absent | ir.Silence
    past_arrow: bool


@dataclass(frozen=True, slots=True)
class Inside:
    """A repetition of a group with a window; it was entered when `n_taken` events had been taken."""

    place: tuple[int, ...]
    window: ir.Window | ir.EventWindow
    n_taken: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Variables whose events are not for this wait, unless the loop was closed by `until` before."""

    claims: frozenset[str]
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """What stands in the pattern between the event taken last and the next: the last joint, all absences.

    `fences` are those of loops that were left or are entered, `groups` those around the place that has been
    reached.
    """

    n_taken: int = 0
    joint: Joint | None = None
    bars: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    fences: frozenset[Fence] = frozenset()
    vetoes: frozenset[str] = frozenset()
    groups: tuple[Inside, ...] = ()
    looks: tuple[Look, ...] = ()

    def fenced(self, fence: Fence) -> Link:
        """Return the link with one more fence."""
        return replace(self, fences=self.fences | {fence})

    def past_arrow(self) -> Link:
        """Return the link behind an arrow."""
        return replace(self, looks=tuple(replace(look, past_arrow=True) for look in self.looks))

    def running(self) -> Link:
        """Return the link with those groups only that have taken an event."""
        return replace(self, groups=tuple(group for group in self.groups if group.n_taken < self.n_taken))


@dataclass(frozen=True, slots=True)
class Way:
    """By `link` to an event taken as `variable`, then on with `rest`; without variable: to the end.

    With a `pause` it leads through that timed absence first.
    """

    link: Link
    variable: str | None
    rest: Rest
    pause: ir.Silence | None = None


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
        case ir.Repeat(body=body) | ir.Group(body=body):
            return begins(body)
        case ir.Absent() | ir.Silence():
            return frozenset()  # it is the first only where the pattern begins, and no joint is read there
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
        case ir.Group(body=body, window=window):
            inside = Inside(place, window, link.n_taken)

            def left(reached: Link) -> Iterator[Way]:
                outside = tuple(group for group in reached.groups if group != inside)
                return rest(replace(reached, groups=outside))

            yield from ways(body, (*place, 0), replace(link, groups=(*link.groups, inside)), left)
        case ir.Absent() | ir.Silence():
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

    is_arrow = index > 0 and item.contiguity is not ir.Contiguity.STRICT
    if is_arrow:
        link = link.past_arrow()
    if isinstance(item.node, ir.Absent | ir.Silence) and link.n_taken == 0:  # "Absence at the start"
        yield from onward(replace(link, looks=(*link.looks, Look(item.node, past_arrow=False))))
        return
    if isinstance(item.node, ir.Silence):
        yield Way(link, None, onward, pause=item.node)
        return
    if isinstance(item.node, ir.Absent):
        name = {item.node.variable}
        if item.contiguity is ir.Contiguity.STRICT:
            yield from onward(replace(link, guards=link.guards | name))
        else:
            yield from onward(replace(link, bars=link.bars | name))
        return
    here = (*place, index)
    if index > 0:
        link = replace(link, joint=Joint(here, item.contiguity, begins(item.node), item.gap))
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
        link = replace(link, joint=Joint((*place, -1, *left), node.contiguity, first, None))
        if node.contiguity is not ir.Contiguity.STRICT:
            link = link.past_arrow()
    for number in left:

        def onward(reached: Link, number: int = number) -> Iterator[Way]:
            return _any_order(node, tuple(one for one in left if one != number), place, reached, rest)

        yield from ways(node.parts[number], (*place, number), link, onward)


def _can_be_empty(node: ir.Node) -> bool:
    """Say whether `node` can be gone through without an event: try it."""
    start = Link()
    through = Way(start, None, lambda link: iter(()))
    return any(way.variable is None for way in ways(node, (), start, lambda link: iter((through,))))


def _first_taken(node: ir.Node) -> frozenset[str]:
    """Return the variables the first event of `node` can be taken as."""
    taken = (way.variable for way in ways(node, (), Link(), lambda link: iter(())))
    return frozenset(name for name in taken if name is not None)


def _repetitions(node: ir.Repeat, done: int, place: tuple[int, ...], link: Link, rest: Rest) -> Iterator[Way]:
    """Go through the loop, `done` repetitions lying behind ("Loops")."""
    least = 0 if _can_be_empty(node.body) else node.min

    def more() -> Iterator[Way]:
        entered = link
        if done > 0:
            entered = replace(link, joint=Joint(place, node.contiguity, begins(node.body), node.gap))
            if node.contiguity is not ir.Contiguity.STRICT:
                entered = entered.past_arrow()
            for item in node.behind:  # "Absence": what is absent behind a loop is so between its repetitions
                assert isinstance(item.node, ir.Absent)
                if item.contiguity is not ir.Contiguity.STRICT:
                    entered = replace(entered, bars=entered.bars | {item.node.variable})
                elif done >= least:
                    entered = replace(entered, guards=entered.guards | {item.node.variable})
        if node.until is not None and done > 0:
            entered = entered.fenced(Fence(frozenset({node.until})))
        elif node.until is not None:
            entered = replace(entered, vetoes=entered.vetoes | {node.until})
        return ways(node.body, (*place, 0), entered, after)

    def after(reached: Link) -> Iterator[Way]:
        if reached.n_taken == link.n_taken:
            return  # a repetition without an event is none
        yield from _repetitions(node, done + 1, place, reached, rest)

    def leave() -> Iterator[Way]:
        if node.greed is ir.Greed.POSSESSIVE and node.min != node.max:
            return rest(link.fenced(Fence(_first_taken(node.body), node.until)))
        return rest(link)

    if done < least:
        yield from more()
    elif done == node.max:
        yield from leave()
    elif node.greed is ir.Greed.RELUCTANT:
        yield from leave()
        yield from more()
    else:
        yield from more()
        yield from leave()


@dataclass(frozen=True, slots=True)
class Derivation:
    """A complete reading: what it took, when it became complete, the `match_end` it gives."""

    assignment: Assignment
    instant: Instant
    end_us: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A run waited: it was open after instant i if `since` <= i < `until` (None: for ever).

    While it is open all it can bring is preferred to the derivations from number `preference` on.
    `limit_us` is the time of the limit that ended it, None: no limit did ("Timeouts").
    """

    assignment: Assignment
    since: Instant
    until: Instant | None
    preference: int
    limit_us: int | None = None

    @property
    def start(self) -> int:
        """Position of the first event taken."""
        return self.assignment[0][1]


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """An instant after which a wait is over, and the time it stands for."""

    instant: Instant
    time_us: int


@dataclass(frozen=True, slots=True)
class Moment:
    """From where a wait begins: an instant, and the time it stands for."""

    instant: Instant
    time_us: int


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
        self._found: dict[tuple[Assignment, Instant], Derivation] = {}

    def _record(
        self, assignment: Assignment, since: Moment, until: Instant | None, limit_us: int | None = None
    ) -> None:
        self.waits.append(Wait(assignment, since.instant, until, len(self._found), limit_us))
        if len(self.waits) > MAX_WAITS:
            raise TooManyRunsError

    def _record_end(self, assignment: Assignment, since: Moment, limit: Limit | None) -> None:
        """A limit ended the wait, perhaps before it began; without one it goes on for ever."""
        if limit is None:
            self._record(assignment, since, None)
        else:
            until = max(limit.instant, since.instant)
            self._record(assignment, since, until, max(limit.time_us, since.time_us))

    def all(self) -> list[Derivation]:
        """Return the derivations, each assignment and instant once."""
        for way in ways(self.rule.pattern, (), Link(), _end):
            assert way.variable is not None, "a pattern takes at least one event"
            if any(self._lies_before(look) for look in way.link.looks):
                continue
            if self._is_fenced((), way.link, self.start) or self._is_vetoed((), way.link, self.start):
                continue
            if self.holds(way.variable, self.start, ()):  # "Starts": no joint is read before the first event
                for derivation in self._after_take(((way.variable, self.start),), way):
                    self._found.setdefault((derivation.assignment, derivation.instant), derivation)
        return list(self._found.values())

    def holds(self, variable: str, position: int, assignment: Assignment) -> bool:
        """Say whether the event may be taken as `variable`: it has its role ("Streams and keys"), and the
        predicate is TRUE, not NULL ("Predicates").
        """
        role = self.predicates[variable].role
        if role >= 0 and role not in self.events[position][ROLES]:
            return False
        predicate = self.predicates[variable].predicate
        if predicate is None:
            return True
        taken = self.taken((*assignment, (variable, position)))
        return evaluate(predicate, self.events[position], taken) is True

    def taken(self, assignment: Assignment) -> dict[str, list[Event]]:
        """Return the events by variable."""
        return events_by_name(self.rule, self.events, assignment)

    def _lies_before(self, look: Look) -> bool:
        """Say whether an event that must not lie before the first one does ("Absence at the start")."""
        absent = look.absent
        is_silence = isinstance(absent, ir.Silence)
        names = absent.variables if isinstance(absent, ir.Silence) else (absent.variable,)
        within = absent.period if isinstance(absent, ir.Silence) else self.rule.window
        for position in range(self.start):
            is_adjacent = position == self.start - 1
            if not is_silence and not look.past_arrow and not is_adjacent:
                continue
            if isinstance(within, ir.EventWindow):
                is_inside = self.start - position <= within.count - 1
            else:
                assert within is not None
                is_inside = self.times[self.start] - self.times[position] <= within.span_us
            if is_inside and any(self.holds(name, position, ()) for name in names):
                return True
        return False

    def _end_of(self, window: ir.Window | ir.EventWindow, first: int) -> Limit | None:
        """Return when a window closes that the event at `first` opened ("Window"); None: not in sight."""
        if isinstance(window, ir.Window):
            begin_us = self.times[first]
            return Limit((begin_us + window.span_us, 1, 0), begin_us + window.length_us)
        last = first + window.count - 1
        return Limit(self.at(last), self.times[last]) if last < len(self.times) else None

    @property
    def close(self) -> Limit | None:
        """When the window closes: after all events of its last moment ("Window")."""
        return None if self.rule.window is None else self._end_of(self.rule.window, self.start)

    def _end_of_wait(self, assignment: Assignment, link: Link) -> Limit | None:
        """Return the first of all limits of a wait, None: it has none ("Limits of a wait")."""
        groups = link.running().groups
        ends = [self.close, *(self._end_of(group.window, assignment[group.n_taken][1]) for group in groups)]
        gap = None if link.joint is None else link.joint.gap
        if gap is not None and gap.high_us is not None and gap.limit_us is not None:
            last_us = self.times[assignment[-1][1]]
            ends.append(Limit((last_us + gap.high_us, 1, 0), last_us + gap.limit_us))
        return min((end for end in ends if end is not None), default=None)

    def at(self, position: int) -> Instant:
        """Return the instant of an event."""
        return (self.times[position], 0, position)

    def _after_take(self, assignment: Assignment, way: Way) -> Iterator[Derivation]:
        """Go on behind an event just taken."""
        last = assignment[-1][1]
        moment = Moment(self.at(last), self.times[last])
        return self._onward(assignment, way.rest(Link(len(assignment), groups=way.link.groups)), moment)

    def _onward(self, assignment: Assignment, onward: Iterator[Way], since: Moment) -> Iterator[Derivation]:
        """Go on from a moment: one wait after another ("Waits")."""
        for (variable, pause, link), group in groupby(onward, key=_wait_of):
            if pause is not None:
                for way in group:
                    yield from self._pause(assignment, way, pause, since)
            elif variable is None:
                yield from self._ending(assignment, link, since)
            else:
                yield from self._wait(assignment, link, list(group), since)

    def _candidates(self, since: Moment, limit: Limit | None) -> Iterator[int]:
        """Yield the positions of the events that happen after an instant and not after a limit."""
        for position in range(len(self.events)):
            if limit is not None and self.at(position) > limit.instant:
                return
            if self.at(position) > since.instant:
                yield position

    def _is_fenced(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether a fence keeps the event off ("Possessive loops", "Closed loops")."""
        return any(
            any(self.holds(name, position, assignment) for name in fence.claims)
            and not self._is_lifted(assignment, fence, position)
            for fence in link.fences
        )

    def _is_lifted(self, assignment: Assignment, fence: Fence, position: int) -> bool:
        """Say whether the event closes the loop that the fence is of."""
        return fence.until is not None and self.holds(fence.until, position, assignment)

    def _is_vetoed(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether the event would begin a loop that it closes."""
        return any(self.holds(name, position, assignment) for name in link.vetoes)

    def _after_lifts(self, assignment: Assignment, link: Link, position: int) -> Link:
        """Return `link` without the fences of loops that the event closes."""
        kept = {fence for fence in link.fences if not self._is_lifted(assignment, fence, position)}
        return replace(link, fences=frozenset(kept))

    def _is_guarded(self, assignment: Assignment, link: Link, position: int, since: Moment) -> bool:
        """Say whether a strict absence forbids the event: it looks at the very next one ("Absence")."""
        is_next = position == next(self._candidates(since, None))
        return is_next and any(self.holds(name, position, assignment) for name in link.guards)

    def _is_forbidden(self, assignment: Assignment, link: Link, position: int, since: Moment) -> bool:
        """Say whether the wait ends with the event, whatever it could do with it."""
        return self._is_fenced(assignment, link, position) or self._is_guarded(
            assignment, link, position, since
        )

    def _may_take(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether the gap before the event is long enough ("Gaps")."""
        assert link.joint is not None
        gap = link.joint.gap
        return gap is None or self.times[position] - self.times[assignment[-1][1]] >= gap.low_us

    def _may_skip(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Say whether the wait may pass over the event ("What an arrow skips", "Absence")."""
        if any(self.holds(name, position, assignment) for name in link.bars):
            return False
        assert link.joint is not None
        match link.joint.contiguity:
            case ir.Contiguity.STRICT:
                return False
            case ir.Contiguity.NEXT:
                could_be_taken = any(self.holds(name, position, assignment) for name in link.joint.begins)
                return not (could_be_taken and self._may_take(assignment, link, position))
            case ir.Contiguity.ANY:
                return True
            case _:
                assert_never(link.joint.contiguity)

    def _wait(
        self, assignment: Assignment, link: Link, group: list[Way], since: Moment
    ) -> Iterator[Derivation]:
        """Wait by one joint: at each event take, in the order of the ways, before skipping."""
        limit = self._end_of_wait(assignment, link)
        for position in self._candidates(since, limit):
            link = self._after_lifts(assignment, link, position)
            if self._is_forbidden(assignment, link, position, since):
                self._record(assignment, since, self.at(position))
                return
            for way in group:
                assert way.variable is not None
                if not self._may_take(assignment, link, position):
                    continue
                if self._is_vetoed(assignment, link, position):
                    continue
                if self.holds(way.variable, position, assignment):
                    yield from self._after_take((*assignment, (way.variable, position)), way)
            if not self._may_skip(assignment, link, position):
                self._record(assignment, since, self.at(position))
                return
        self._record_end(assignment, since, limit)

    def _pause(
        self, assignment: Assignment, way: Way, silence: ir.Silence, since: Moment
    ) -> Iterator[Derivation]:
        """Wait until a timed absence is certain, then go on ("Absence for a time")."""
        link = replace(way.link, bars=way.link.bars.union(silence.variables))
        period = silence.period
        end = Limit((since.time_us + period.span_us, 1, 0), since.time_us + period.length_us)
        limit = self._end_of_wait(assignment, replace(link, joint=None))
        is_first = limit is None or end.instant <= limit.instant
        lying_between = list(self._candidates(since, end if is_first else limit))
        for position in lying_between:
            link = self._after_lifts(assignment, link, position)
            forbidden = self._is_forbidden(assignment, link, position, since)
            if forbidden or any(self.holds(name, position, assignment) for name in link.bars):
                self._record(assignment, since, self.at(position))
                return
        if not is_first:
            self._record_end(assignment, since, limit)
            return
        self._record(assignment, since, end.instant)
        guards = way.link.guards if not lying_between else frozenset()
        onward = way.rest(replace(way.link, joint=None, guards=guards, fences=link.fences))
        yield from self._onward(assignment, onward, Moment(end.instant, end.time_us))

    def _ending(self, assignment: Assignment, link: Link, since: Moment) -> Iterator[Derivation]:
        """Complete the derivation: at once, or when an absence is certain ("Absence at the end")."""
        if not link.bars and not link.guards:
            yield Derivation(assignment, since.instant, since.time_us)
            return
        close = self.close
        for position in self._candidates(since, close):
            link = self._after_lifts(assignment, link, position)
            forbidden = self._is_forbidden(assignment, link, position, since)
            if forbidden or any(self.holds(name, position, assignment) for name in link.bars):
                self._record(assignment, since, self.at(position))
                return
            if not link.bars:  # the very next event was not the forbidden one: that is all there is to know
                self._record(assignment, since, self.at(position))
                yield Derivation(assignment, self.at(position), self.times[position])
                return
        self._record_end(assignment, since, close)
        decided = not link.guards or any(True for _ in self._candidates(since, close))
        if close is not None and decided:
            yield Derivation(assignment, close.instant, close.time_us)


def _wait_of(way: Way) -> tuple[str | None, ir.Silence | None, Link]:
    """Return what neighbouring ways of one wait share."""
    return ("" if way.variable is not None else None, way.pause, way.link.running())


def _end(link: Link) -> Iterator[Way]:
    yield Way(link, None, lambda link: iter(()))
