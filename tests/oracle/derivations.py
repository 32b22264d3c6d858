"""Derivations: the ways to read a pattern into the events of one key, from one start.

There are two layers. `ways` walks the tree of the pattern, without looking at any event. It yields the ways
from one taken event to the next, most preferred first. `Derivations` follows these ways from event to event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import assert_never

from cep.compiler import ir
from cep.expression import ALL_EVENTS, Expression
from tests.oracle.expressions import Event, evaluate
from tests.oracle.partitions import ROLES

Assignment = tuple[tuple[str, int], ...]
"""(variable, position) of every taken event, oldest first."""

MAX_STATES = 2000
"""Most states of one rule and key. The states of a loop with `->>` double with each event."""

Instant = tuple[int, int, int]
"""(time, 0, position) of an event, or (time, 1, 0) of the end of a time: the order of "Instants"."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint: its place in the pattern, its contiguity, the variables on its right, its gap."""

    place: tuple[int, ...]
    contiguity: ir.Contiguity
    begins: frozenset[str]
    gap: ir.Gap | None


@dataclass(frozen=True, slots=True)
class LookBehind:
    """An absence before the first event. `past_arrow` says whether an arrow is between the two."""

    absent: ir.Absent | ir.TimedAbsence
    past_arrow: bool


@dataclass(frozen=True, slots=True)
class Inside:
    """A repetition of a group with a window. `n_taken` events had been taken when it began."""

    place: tuple[int, ...]
    window: ir.Window | ir.EventWindow
    n_taken: int


@dataclass(frozen=True, slots=True)
class Nowhere:
    """A repetition of a pattern with WITHOUT. `n_taken` events had been taken when it began."""

    variables: frozenset[str]
    n_taken: int


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Variables whose events end a state, unless an event of `until` released the exclusion before."""

    variables: frozenset[str]
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """The part of the pattern between the event taken last and the next: the last joint, all absences.

    `exclusions` come from loops that were left or entered. `groups` are the groups around the place in the
    pattern that has been reached.
    """

    n_taken: int = 0
    joint: Joint | None = None
    not_followed_by: frozenset[str] = frozenset()
    not_next: frozenset[str] = frozenset()
    exclusions: frozenset[Exclusion] = frozenset()
    take_exclusions: frozenset[str] = frozenset()
    groups: tuple[Inside, ...] = ()
    look_behinds: tuple[LookBehind, ...] = ()
    nowheres: tuple[Nowhere, ...] = ()
    is_anchored: bool = False

    def with_exclusion(self, exclusion: Exclusion) -> Link:
        """Return the link with one more exclusion."""
        return replace(self, exclusions=self.exclusions | {exclusion})

    def past_arrow(self) -> Link:
        """Return the link after an arrow."""
        return replace(
            self,
            look_behinds=tuple(replace(look_behind, past_arrow=True) for look_behind in self.look_behinds),
        )

    def running(self) -> Link:
        """Return the link with only the groups that have taken an event, and all that must be nowhere."""
        begun, fresh = self.forbidden(), self.forbidden_first()
        nowheres = [Nowhere(begun, self.n_taken - 1)] if begun else []
        nowheres += [Nowhere(fresh, self.n_taken)] if fresh else []
        return replace(
            self,
            groups=tuple(group for group in self.groups if group.n_taken < self.n_taken),
            nowheres=tuple(nowheres),
        )

    def forbidden(self) -> frozenset[str]:
        """Return the variables that must hold for no event up to the next one taken ("Nowhere")."""
        begun = [nowhere for nowhere in self.nowheres if nowhere.n_taken < self.n_taken]
        return frozenset().union(*(nowhere.variables for nowhere in begun))

    def forbidden_first(self) -> frozenset[str]:
        """Return the variables that must not hold for the next event taken: it is the first ("Nowhere")."""
        fresh = [nowhere for nowhere in self.nowheres if nowhere.n_taken == self.n_taken]
        return frozenset().union(*(nowhere.variables for nowhere in fresh))


@dataclass(frozen=True, slots=True)
class Way:
    """A way by `link` to an event taken as `variable`, and from there on by `rest`.

    With an `absence` the way leads to a timed absence. With neither it leads to the end of the pattern.
    """

    link: Link
    variable: str | None
    rest: Rest
    absence: ir.TimedAbsence | None = None


Rest = Callable[[Link], Iterator[Way]]


def begins(node: ir.Node) -> frozenset[str]:
    """Return the variables with which `node` can begin ("What an arrow ignores")."""
    match node:
        case ir.Take(variable=variable):
            return frozenset({variable})
        case ir.Sequence(items=items):
            return begins(items[0].node)
        case ir.Alternation(branches=branches):
            return frozenset().union(*(begins(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return frozenset().union(*(begins(part) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return begins(body)
        case ir.Absent() | ir.TimedAbsence():
            return frozenset()  # it can only be first at the start of the pattern, where no joint is read
        case _:
            assert_never(node)


def ways(node: ir.Node, place: tuple[int, ...], link: Link, rest: Rest) -> Iterator[Way]:  # noqa: C901 - a case for each kind of node
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
        case ir.Anchored(body=body):  # "The first event of a key"
            if link.n_taken == 0:
                yield from ways(body, (*place, 0), replace(link, is_anchored=True), rest)
        case ir.Without(body=body, variables=variables):
            nowhere = Nowhere(frozenset(variables), link.n_taken)

            def past(reached: Link) -> Iterator[Way]:
                assert reached.nowheres[-1] == nowhere
                return rest(replace(reached, nowheres=reached.nowheres[:-1]))

            yield from ways(body, (*place, 0), replace(link, nowheres=(*link.nowheres, nowhere)), past)
        case ir.Absent() | ir.TimedAbsence():
            raise AssertionError("an absence is allowed only in a sequence")
        case _:
            assert_never(node)


def _items(
    items: tuple[ir.Item, ...], index: int, place: tuple[int, ...], link: Link, rest: Rest
) -> Iterator[Way]:
    """Walk the items from `index` on. The last joint decides ("Joints"); all absences count ("Absence")."""
    if index == len(items):
        yield from rest(link)
        return
    item = items[index]

    def onward(link: Link) -> Iterator[Way]:
        return _items(items, index + 1, place, link, rest)

    is_arrow = index > 0 and item.contiguity is not ir.Contiguity.STRICT
    if is_arrow:
        link = link.past_arrow()
    if isinstance(item.node, ir.Absent | ir.TimedAbsence) and link.n_taken == 0:  # "Absence at the start"
        yield from onward(
            replace(link, look_behinds=(*link.look_behinds, LookBehind(item.node, past_arrow=False)))
        )
        return
    if isinstance(item.node, ir.TimedAbsence):
        yield Way(link, None, onward, absence=item.node)
        return
    if isinstance(item.node, ir.Absent):
        name = {item.node.variable}
        if item.contiguity is ir.Contiguity.STRICT:
            yield from onward(replace(link, not_next=link.not_next | name))
        else:
            yield from onward(replace(link, not_followed_by=link.not_followed_by | name))
        return
    here = (*place, index)
    if index > 0:
        link = replace(link, joint=Joint(here, item.contiguity, begins(item.node), item.gap))
    yield from ways(item.node, here, link, onward)


def _any_order(
    node: ir.Permutation, left: tuple[int, ...], place: tuple[int, ...], link: Link, rest: Rest
) -> Iterator[Way]:
    """Walk the parts with the numbers `left`. Each of them is first in turn ("Any order")."""
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
    """Return whether there is a way through `node` without an event."""
    start = Link()
    through = Way(start, None, lambda link: iter(()))
    return any(way.variable is None for way in ways(node, (), start, lambda link: iter((through,))))


def _first_taken(node: ir.Node) -> frozenset[str]:
    """Return the variables as which the first event of `node` can be taken."""
    taken = (way.variable for way in ways(node, (), Link(), lambda link: iter(())))
    return frozenset(name for name in taken if name is not None)


def _repetitions(node: ir.Repeat, done: int, place: tuple[int, ...], link: Link, rest: Rest) -> Iterator[Way]:  # noqa: C901 - a case for each quantifier
    """Walk the loop after `done` repetitions ("Loops")."""
    least = 0 if _can_be_empty(node.body) else node.min

    def more() -> Iterator[Way]:
        entered = link
        if done > 0:
            entered = replace(link, joint=Joint(place, node.contiguity, begins(node.body), node.gap))
            if node.contiguity is not ir.Contiguity.STRICT:
                entered = entered.past_arrow()
            for item in node.behind:  # "Absence": an absence behind a loop holds between its repetitions too
                assert isinstance(item.node, ir.Absent)
                if item.contiguity is not ir.Contiguity.STRICT:
                    entered = replace(entered, not_followed_by=entered.not_followed_by | {item.node.variable})
                elif done >= least:
                    entered = replace(entered, not_next=entered.not_next | {item.node.variable})
        if node.until is not None and done > 0:
            entered = entered.with_exclusion(Exclusion(frozenset({node.until})))
        elif node.until is not None:
            entered = replace(entered, take_exclusions=entered.take_exclusions | {node.until})
        return ways(node.body, (*place, 0), entered, after)

    def after(reached: Link) -> Iterator[Way]:
        if reached.n_taken == link.n_taken:
            return  # a repetition without an event does not count
        yield from _repetitions(node, done + 1, place, reached, rest)

    def leave() -> Iterator[Way]:
        if node.greed is ir.Greed.POSSESSIVE and node.min != node.max:
            return rest(link.with_exclusion(Exclusion(_first_taken(node.body), node.until)))
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
    """A complete reading of the pattern: the events taken, the instant it was complete, its `match_end`."""

    assignment: Assignment
    instant: Instant
    end_us: int


@dataclass(frozen=True, slots=True)
class OpenState:
    """A state of a run and the time for which it was open.

    It was open after instant i if `since` <= i < `until`. If `until` is None, it stays open for ever. While
    it is open, each derivation that can come from it is preferred to the derivations from number `preference`
    on. `limit_us` is the time of the limit that ended the state ("Timeouts"), or None if no limit ended it.
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
    """An instant after which a state is closed, and the time that the instant stands for."""

    instant: Instant
    time_us: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The instant at which a state begins, and the time that the instant stands for."""

    instant: Instant
    time_us: int


class TooManyRunsError(Exception):
    """The rule has too many runs in these events to follow each of them."""


def events_by_name(rule: ir.Rule, events: Sequence[Event], assignment: Assignment) -> dict[str, list[Event]]:
    """Return the events taken as each variable, as a member of each subset, and all events ("Subsets")."""
    names = [variable.name for variable in rule.variables] + [subset.name for subset in rule.subsets]
    return {
        name: [events[position] for variable, position in assignment if variable in rule.members(name)]
        for name in (*names, ALL_EVENTS)
    }


class Derivations:
    """All derivations from the start `start` over the ordered events of one key, most preferred first.

    After a call of `all`, `states` holds every state of the runs, for "When a run is open".
    """

    def __init__(self, rule: ir.Rule, times: Sequence[int], events: Sequence[Event], start: int) -> None:
        self.rule = rule
        self.times = times
        self.events = events
        self.start = start
        self.predicates: Mapping[str, ir.Variable] = {variable.name: variable for variable in rule.variables}
        self.distincts = list(_distincts(rule.pattern))
        self.states: list[OpenState] = []
        self._found: dict[tuple[Assignment, Instant], Derivation] = {}

    def _record(
        self, assignment: Assignment, since: Moment, until: Instant | None, limit_us: int | None = None
    ) -> None:
        self.states.append(OpenState(assignment, since.instant, until, len(self._found), limit_us))
        if len(self.states) > MAX_STATES:
            raise TooManyRunsError

    def _record_end(self, assignment: Assignment, since: Moment, limit: Limit | None) -> None:
        """Record a state that a limit ended, perhaps before it began, or that stays open without a limit."""
        if limit is None:
            self._record(assignment, since, None)
        else:
            until = max(limit.instant, since.instant)
            self._record(assignment, since, until, max(limit.time_us, since.time_us))

    def all(self) -> list[Derivation]:
        """Return the derivations. Each pair of assignment and instant is there once."""
        for way in ways(self.rule.pattern, (), Link(), _end):
            assert way.variable is not None, "a pattern takes at least one event"
            if any(self._lies_before(look_behind) for look_behind in way.link.look_behinds):
                continue
            if way.link.is_anchored and self.start > 0:
                continue
            if self._is_excluded((), way.link, self.start) or self._is_take_excluded(
                (), way.link, self.start
            ):
                continue
            if self.holds(way.variable, self.start, ()):  # "Starts": the first event has no joint before it
                for derivation in self._after_take(((way.variable, self.start),), way):
                    self._found.setdefault((derivation.assignment, derivation.instant), derivation)
        return list(self._found.values())

    def holds(self, variable: str, position: int, assignment: Assignment) -> bool:
        """Return whether the event can be taken as `variable`.

        The event must have the role of the variable ("Streams and keys"), and the predicate must be TRUE, not
        NULL ("Predicates").
        """
        role = self.predicates[variable].role
        if role >= 0 and role not in self.events[position][ROLES]:
            return False
        if not self._is_new_to_loop(variable, position, assignment):
            return False
        predicate = self.predicates[variable].predicate
        if predicate is None:
            return True
        taken = self.taken((*assignment, (variable, position)))
        return evaluate(predicate, self.events[position], taken) is True

    def _is_new_to_loop(self, variable: str, position: int, assignment: Assignment) -> bool:
        """Return whether DISTINCT BY lets the loop of the variable take the event ("Distinct loops").

        The variables of such a loop stand nowhere else, and the loop is in no other loop.
        """
        for members, value in self.distincts:
            if variable in members:
                own = _comparable(evaluate(value, self.events[position], {}))
                before = [
                    _comparable(evaluate(value, self.events[at], {}))
                    for name, at in assignment
                    if name in members
                ]
                if own is None or own in before:
                    return False
        return True

    def taken(self, assignment: Assignment) -> dict[str, list[Event]]:
        """Return the events of `assignment` by variable."""
        return events_by_name(self.rule, self.events, assignment)

    def _lies_before(self, look_behind: LookBehind) -> bool:
        """Return whether an event lies before the first one that `look_behind` forbids there.

        Carries out "Absence at the start".
        """
        absent = look_behind.absent
        is_timed = isinstance(absent, ir.TimedAbsence)
        names = absent.variables if isinstance(absent, ir.TimedAbsence) else (absent.variable,)
        within = absent.period if isinstance(absent, ir.TimedAbsence) else self.rule.window
        for position in range(self.start):
            is_adjacent = position == self.start - 1
            if not is_timed and not look_behind.past_arrow and not is_adjacent:
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
        """Return when the window closes that the event at `first` opened ("Window").

        Return None if it counts events and there are not enough of them.
        """
        if isinstance(window, ir.Window):
            begin_us = self.times[first]
            return Limit((begin_us + window.span_us, 1, 0), begin_us + window.length_us)
        last = first + window.count - 1
        return Limit(self.at(last), self.times[last]) if last < len(self.times) else None

    @property
    def close(self) -> Limit | None:
        """The limit at which the rule's window closes: after all events of its last moment ("Window")."""
        return None if self.rule.window is None else self._end_of(self.rule.window, self.start)

    def _limit_of_state(self, assignment: Assignment, link: Link) -> Limit | None:
        """Return the first of all limits of a state, or None if it has no limit ("Limits of a state")."""
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
        """Continue after the event taken last."""
        last = assignment[-1][1]
        moment = Moment(self.at(last), self.times[last])
        return self._onward(assignment, way.rest(_after_event(assignment, way.link)), moment)

    def _onward(self, assignment: Assignment, onward: Iterator[Way], since: Moment) -> Iterator[Derivation]:
        """Continue from a moment with one state after another ("States")."""
        for (variable, absence, link), group in groupby(onward, key=_state_of):
            if absence is not None:
                for way in group:
                    yield from self._absence_state(assignment, way, absence, since)
            elif variable is None:
                yield from self._end_state(assignment, link, since)
            else:
                yield from self._variable_state(assignment, link, list(group), since)

    def _candidates(self, since: Moment, limit: Limit | None) -> Iterator[int]:
        """Yield the positions of the events that happen after `since` and not after `limit`."""
        for position in range(len(self.events)):
            if limit is not None and self.at(position) > limit.instant:
                return
            if self.at(position) > since.instant:
                yield position

    def _is_excluded(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Return whether an exclusion keeps the event from the state ("Possessive loops", "Closed loops")."""
        if any(self.holds(name, position, assignment) for name in link.forbidden()):
            return True
        return any(
            any(self.holds(name, position, assignment) for name in exclusion.variables)
            and not self._is_released(assignment, exclusion, position)
            for exclusion in link.exclusions
        )

    def _is_released(self, assignment: Assignment, exclusion: Exclusion, position: int) -> bool:
        """Return whether the event closes the loop of the exclusion, and so releases the exclusion."""
        return exclusion.until is not None and self.holds(exclusion.until, position, assignment)

    def _is_take_excluded(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Return whether the event closes the loop that it would begin."""
        names = link.take_exclusions | link.forbidden_first()
        return any(self.holds(name, position, assignment) for name in names)

    def _after_releases(self, assignment: Assignment, link: Link, position: int) -> Link:
        """Return `link` without the exclusions that the event releases."""
        kept = {
            exclusion
            for exclusion in link.exclusions
            if not self._is_released(assignment, exclusion, position)
        }
        return replace(link, exclusions=frozenset(kept))

    def _violates_not_next(self, assignment: Assignment, link: Link, position: int, since: Moment) -> bool:
        """Return whether the event is the very next one and a strict absence forbids it ("Absence")."""
        is_next = position == next(self._candidates(since, None))
        return is_next and any(self.holds(name, position, assignment) for name in link.not_next)

    def _is_forbidden(self, assignment: Assignment, link: Link, position: int, since: Moment) -> bool:
        """Return whether the event ends the state, even if the state could take or ignore the event."""
        return self._is_excluded(assignment, link, position) or self._violates_not_next(
            assignment, link, position, since
        )

    def _may_take(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Return whether the gap before the event is long enough ("Gaps")."""
        assert link.joint is not None
        gap = link.joint.gap
        return gap is None or self.times[position] - self.times[assignment[-1][1]] >= gap.low_us

    def _may_ignore(self, assignment: Assignment, link: Link, position: int) -> bool:
        """Return whether the state may ignore the event ("What an arrow ignores", "Absence")."""
        if any(self.holds(name, position, assignment) for name in link.not_followed_by):
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

    def _variable_state(
        self, assignment: Assignment, link: Link, group: list[Way], since: Moment
    ) -> Iterator[Derivation]:
        """Yield the derivations of a state that leads to variables.

        At each event the state takes the event, in the order of its ways, before it ignores the event.
        """
        limit = self._limit_of_state(assignment, link)
        for position in self._candidates(since, limit):
            link = self._after_releases(assignment, link, position)
            if self._is_forbidden(assignment, link, position, since):
                self._record(assignment, since, self.at(position))
                return
            for way in group:
                assert way.variable is not None
                if not self._may_take(assignment, link, position):
                    continue
                if self._is_take_excluded(assignment, link, position):
                    continue
                if self.holds(way.variable, position, assignment):
                    yield from self._after_take((*assignment, (way.variable, position)), way)
            if not self._may_ignore(assignment, link, position):
                self._record(assignment, since, self.at(position))
                return
        self._record_end(assignment, since, limit)

    def _absence_state(
        self, assignment: Assignment, way: Way, absence: ir.TimedAbsence, since: Moment
    ) -> Iterator[Derivation]:
        """Yield the derivations behind a timed absence, which begin when it ends ("Absence for a time")."""
        link = replace(way.link, not_followed_by=way.link.not_followed_by.union(absence.variables))
        period = absence.period
        end = Limit((since.time_us + period.span_us, 1, 0), since.time_us + period.length_us)
        limit = self._limit_of_state(assignment, replace(link, joint=None))
        is_first = limit is None or end.instant <= limit.instant
        lying_between = list(self._candidates(since, end if is_first else limit))
        for position in lying_between:
            link = self._after_releases(assignment, link, position)
            forbidden = self._is_forbidden(assignment, link, position, since)
            if forbidden or any(self.holds(name, position, assignment) for name in link.not_followed_by):
                self._record(assignment, since, self.at(position))
                return
        if not is_first:
            self._record_end(assignment, since, limit)
            return
        self._record(assignment, since, end.instant)
        not_next = way.link.not_next if not lying_between else frozenset()
        onward = way.rest(replace(way.link, joint=None, not_next=not_next, exclusions=link.exclusions))
        yield from self._onward(assignment, onward, Moment(end.instant, end.time_us))

    def _end_state(self, assignment: Assignment, link: Link, since: Moment) -> Iterator[Derivation]:
        """Yield the complete derivation, with an absence at the end only when the absence is certain.

        Carries out "Absence at the end".
        """
        if not link.not_followed_by and not link.not_next:
            yield Derivation(assignment, since.instant, since.time_us)
            return
        close = self.close
        for position in self._candidates(since, close):
            link = self._after_releases(assignment, link, position)
            forbidden = self._is_forbidden(assignment, link, position, since)
            if forbidden or any(self.holds(name, position, assignment) for name in link.not_followed_by):
                self._record(assignment, since, self.at(position))
                return
            if not link.not_followed_by:  # only the very next event was forbidden, and this is another one
                self._record(assignment, since, self.at(position))
                yield Derivation(assignment, self.at(position), self.times[position])
                return
        self._record_end(assignment, since, close)
        decided = not link.not_next or any(True for _ in self._candidates(since, close))
        if close is not None and decided:
            yield Derivation(assignment, close.instant, close.time_us)


def _after_event(assignment: Assignment, link: Link) -> Link:
    """Return the link that begins behind the event taken last."""
    return Link(len(assignment), groups=link.groups, nowheres=link.nowheres)


def _comparable(value: object) -> object:
    """Return something that is equal for equal values: NaN equals NaN."""
    return "NaN of DISTINCT BY" if value != value else value


def _distincts(node: ir.Node) -> Iterator[tuple[frozenset[str], Expression]]:
    """Yield the variables of each loop with DISTINCT BY, and the value in which their events differ."""
    if isinstance(node, ir.Repeat) and node.distinct is not None:
        yield frozenset(_takes(node)), node.distinct
    for child in ir.children(node):
        yield from _distincts(child)


def _takes(node: ir.Node) -> Iterator[str]:
    if isinstance(node, ir.Take):
        yield node.variable
    for child in ir.children(node):
        yield from _takes(child)


def _state_of(way: Way) -> tuple[str | None, ir.TimedAbsence | None, Link]:
    """Return a value that the neighbouring ways of one state share."""
    return ("" if way.variable is not None else None, way.absence, way.link.running())


def _end(link: Link) -> Iterator[Way]:
    yield Way(link, None, lambda link: iter(()))
