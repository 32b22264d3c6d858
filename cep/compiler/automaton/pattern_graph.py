"""Pattern -> graph of epsilon edges: a fragment for each node, built right to left, and the paths through it.

This is Thompson's construction (Comm. ACM 11(6), 1968): each node of the pattern becomes a fragment that ends
in the fragment of what follows. Apart from takes and splits it has marks for what comes between two taken
events: joints, absences, the ends of groups, and what keeps events from a state.

`graph_of` builds the graph of a pattern and returns `Builder.dump`; a test runs these lines. Nodes are
numbered as they are added, which is from the end of the pattern to its start, so the entry is the last one.

>>> graph_of("a -> b")
0 accept
1 take b -> 0
2 joint next -> 1
3 take a -> 2

A loop has one way back and one way out; the preferred one comes first. The joint of the loop is only on the
way back. A joint inside the body would also hold before the first repetition.

>>> graph_of("a+ b")
0 accept
1 take b -> 0
2 joint strict -> 1
3 split -> 5, 2
4 take a -> 3
5 joint strict -> 4

An absence is a mark on the path, not a take of some other event: the run may ignore any number of events
there.

>>> graph_of("a -> !b")
0 accept
1 not followed by b -> 0
2 take a -> 1

A loop with bounds is unrolled. A counter in each run would make the graph smaller, but what a run can do
next would then depend on more than its state.

>>> graph_of("(a | b)->{2}")
0 accept
1 take a -> 0
2 take b -> 0
3 split -> 1, 2
4 joint next -> 3
5 take a -> 4
6 take b -> 4
7 split -> 5, 6
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from cep.compiler import ir

_Part = TypeVar("_Part")

NOT_FIRST = "later event"
"""The variable of all events of a key but the first one; `cep.compiler.automaton.spelled_out` defines it."""

MAX_STEPS = 25_000
"""Epsilon edges followed in one pattern: absences in optional parts multiply the ways without a take."""


class AutomatonTooLargeError(Exception):
    """The pattern has more than `MAX_SUCCESSORS` ways to continue, or more than `MAX_STEPS` lead to them."""


class Mark(StrEnum):
    """Kinds of nodes in the graph of epsilon edges."""

    ACCEPT = "accept"
    TAKE = "take"
    SPLIT = "split"
    JOINT = "joint"
    NOT_FOLLOWED_BY = "not followed by"  # `-> !b`: no such event may be ignored
    NOT_NEXT = "not next"  # ` !b`: the next event is not such an event
    TIMED_ABSENCE = "timed absence"  # `-> !b FOR d`: no such event for that long
    OPEN = "open"  # a group with its own window starts ...
    SHUT = "shut"  # ... and ends
    ENTER = "enter"  # an iteration of a loop whose body may take nothing starts ...
    LEAVE = "leave"  # ... and ends: never both without a take between
    EXCLUSION = "exclusion"  # no such event is taken or ignored until the next event is taken
    TAKE_EXCLUSION = "exclusion of a take"  # the next event is not taken here if it is such an event
    ANCHOR = "anchor"  # the next event, which is the first of the match, is the first of its key
    ENTER_WITHOUT = "begin without"  # a pattern with WITHOUT starts ...
    GAP_WITHOUT = "gap without"  # ... continues between two of its events ...
    LEAVE_WITHOUT = "end without"  # ... and ends


@dataclass(frozen=True, slots=True)
class LookBehind:
    """An absence before the first event: `variable` must not hold for an earlier event.

    If `adjacent`, the event directly before is meant. If not, every event in the `period` before, or in the
    window of the rule.
    """

    variable: str
    period: ir.Window | None
    adjacent: bool


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What keeps an event from a state: an event of `variables` ends it, unless `until` holds or held.

    A possessive loop keeps the events that it can start with from what follows it. UNTIL keeps events from
    its loop. WITHOUT keeps events from its pattern: `without` is the number of the pattern while the path is
    inside it; -1: no such pattern.
    """

    variables: tuple[str, ...]
    until: str | None = None
    without: int = -1


def _exclusion_behind(node: ir.Repeat) -> Exclusion:
    """Return what a possessive loop keeps from what follows it."""
    return Exclusion(tuple(sorted(ir.summary(node.body).first)), node.until)


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint in the graph; `inside` are the groups around it."""

    contiguity: ir.Contiguity
    gap: ir.Gap | None
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimedAbsence:
    """A timed absence in the graph; `inside` are the groups around it."""

    absence: ir.TimedAbsence
    by_arrow: bool
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph: its mark, what the mark is about, and its successors, the preferred first."""

    mark: Mark
    value: Any
    successors: tuple[int, ...]


@dataclass(slots=True)
class Graph:
    """Nodes by number, and the number of epsilon edges followed so far (`MAX_STEPS`).

    A list, not a graph of networkx: `reach` only needs successors in order, which networkx can only give by
    sorting, and its import took a fifth of the time of `cep check`.
    """

    nodes: list[Node] = field(default_factory=list)
    n_steps: int = 0


class Builder:
    """Builds the graph of epsilon edges.

    Equal groups share a number, and so a clock, because one of them is never inside the other.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.groups: dict[ir.Group, int] = {}
        self.inside: tuple[int, ...] = ()
        self.withouts: dict[ir.Without, int] = {}
        self.inside_withouts: tuple[Exclusion, ...] = ()

    def add(self, mark: Mark, *successors: int, value: object = None) -> int:
        """Return a new node; the first of `successors` is preferred."""
        self.graph.nodes.append(Node(mark, value, tuple(dict.fromkeys(successors))))
        return len(self.graph.nodes) - 1

    def dump(self) -> str:
        """Return the graph as text, a line for each node."""
        return "\n".join(_dumped(number, node) for number, node in enumerate(self.graph.nodes))

    def fragment(self, node: ir.Node, after: int) -> int:
        """Return the entry of a fragment for `node` that continues in `after`."""
        match node:
            case ir.Take(variable=variable):
                return self.add(Mark.TAKE, after, value=variable)
            case ir.Absent() | ir.TimedAbsence():
                return self._absent(node, after, by_arrow=False)
            case ir.Group():
                return self._group(node, after)
            case ir.Anchored(body=body):
                return self.add(Mark.ANCHOR, self.fragment(body, after))
            case ir.Without():
                return self._without(node, after)
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
            if isinstance(item.node, ir.Absent | ir.TimedAbsence):
                by_arrow = index > 0 and item.contiguity is not ir.Contiguity.STRICT
                after = self._absent(item.node, after, by_arrow=by_arrow)
                continue
            # The joint of an absence is not added: the joint of the item after the absence decides.
            after = self.fragment(item.node, after)
            if index > 0:
                after = self._joint(item.contiguity, item.gap, after)
        return after

    def _permutation(self, parts: tuple[ir.Node, ...], contiguity: ir.Contiguity, after: int) -> int:
        """Orders with the same remaining parts share them: n * 2^(n - 1) fragments, not n! sequences."""
        entries = {0: after}  # by the set of remaining parts, one bit for each
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
        return self._gap(self.add(Mark.JOINT, after, value=Joint(contiguity, gap, self.inside)))

    def _gap(self, after: int) -> int:
        """Return the path to `after` with what is forbidden on it, between two events of one pattern."""
        for exclusion in self.inside_withouts:
            after = self.add(Mark.GAP_WITHOUT, after, value=exclusion)
        return after

    def _without(self, node: ir.Without, after: int) -> int:
        # Equal patterns share a number, as groups do: neither is inside the other.
        number = self.withouts.setdefault(node, len(self.withouts))
        exclusion = Exclusion(node.variables, without=number)
        around = self.inside_withouts
        leave = self.add(Mark.LEAVE_WITHOUT, after, value=exclusion)
        self.inside_withouts = (*around, exclusion)
        body = self.fragment(node.body, leave)
        self.inside_withouts = around
        return self.add(Mark.ENTER_WITHOUT, body, value=exclusion)

    def _absent(self, node: ir.Absent | ir.TimedAbsence, after: int, *, by_arrow: bool) -> int:
        if isinstance(node, ir.TimedAbsence):
            absence = TimedAbsence(node, by_arrow, self.inside)
            return self._gap(self.add(Mark.TIMED_ABSENCE, after, value=absence))
        return self.add(Mark.NOT_FOLLOWED_BY if by_arrow else Mark.NOT_NEXT, after, value=node.variable)

    def _group(self, node: ir.Group, after: int) -> int:
        # Equal groups share a number: neither is inside the other, so one clock serves both.
        around = self.inside
        number = self.groups.setdefault(node, len(self.groups))
        shut = self.add(Mark.SHUT, after, value=number)
        self.inside = (*around, number)
        body = self.fragment(node.body, shut)
        self.inside = around
        return self.add(Mark.OPEN, body, value=number)

    def _repeat(self, node: ir.Repeat, after: int) -> int:
        # An iteration that takes nothing does not count. It is marked at both ends, so `reach` omits it.
        # Such a loop can be passed without an event, regardless of its lower bound.
        hollow = ir.summary(node.body).nullable
        least = 0 if hollow else node.min
        if node.greed is ir.Greed.POSSESSIVE and node.min != node.max:
            # After the loop, not in it: there the loop itself takes these events.
            after = self.add(Mark.EXCLUSION, after, value=_exclusion_behind(node))

        def iteration(then: int) -> int:
            if not hollow:
                return self.fragment(node.body, then)
            loop = len(self.graph.nodes)  # any unique number
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
            self.graph.nodes[again] = replace(self.graph.nodes[again], successors=ordered)
        else:
            entry = iteration(after)
            for _ in range(node.max - max(least, 1)):
                entry = iteration(choose(self._again(node, entry, may_leave=True)))
        for _ in range(max(least, 1) - 1):
            entry = iteration(self._again(node, entry, may_leave=False))
        if node.until is not None:  # a loop that has not started is not closed
            entry = self.add(Mark.TAKE_EXCLUSION, entry, value=Exclusion((node.until,)))
        return choose(entry) if least == 0 else entry

    def _again(self, node: ir.Repeat, entry: int, *, may_leave: bool) -> int:
        """Return the path to one more repetition: its joint, the absences after the loop, its UNTIL."""
        if node.until is not None:
            entry = self.add(Mark.EXCLUSION, entry, value=Exclusion((node.until,)))
        after = self._joint(node.contiguity, node.gap, entry)
        for item in node.behind:
            assert isinstance(item.node, ir.Absent)
            if item.contiguity is not ir.Contiguity.STRICT:
                after = self.add(Mark.NOT_FOLLOWED_BY, after, value=item.node.variable)
            elif may_leave:  # otherwise nothing directly follows the loop yet
                after = self.add(Mark.NOT_NEXT, after, value=item.node.variable)
        return after


def _dumped(number: int, node: Node) -> str:
    """Return a node in one line: its mark, what the mark is about, its successors in order of preference."""
    match node.value:
        case None:
            about = ""
        case Joint(contiguity=contiguity):
            about = f" {contiguity.value}"
        case TimedAbsence(absence=absence):
            about = f" {', '.join(absence.variables)}"
        case Exclusion(variables=variables):
            about = f" {', '.join(variables)}"
        case _:
            about = f" {node.value}"
    after = ", ".join(map(str, node.successors))
    return f"{number} {node.mark.value}{about}" + (f" -> {after}" if after else "")


@dataclass(frozen=True, slots=True)
class Path:
    """What the path has met since the last take. `joint` is a node of the graph, or -1 if none was met yet.

    `look_behinds` collects absences until something was taken (`at_start`). `fresh` are the patterns
    with WITHOUT that were entered: none of their events was taken yet.
    """

    joint: int = -1
    not_followed_by: tuple[str, ...] = ()
    not_next: tuple[str, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    take_exclusions: tuple[Exclusion, ...] = ()
    entered: frozenset[int] = frozenset()
    opened: tuple[int, ...] = ()
    at_start: bool = False
    look_behinds: tuple[LookBehind, ...] = ()
    fresh: frozenset[Exclusion] = frozenset()

    def looking(self, variables: tuple[str, ...], period: ir.Window | None, *, by_arrow: bool) -> Path:
        """Return the path after a look-behind: no event has been taken yet."""
        before = self.past_arrow() if by_arrow else self
        look_behinds = before.look_behinds
        for variable in variables:
            look_behinds = _with(look_behinds, LookBehind(variable, period, adjacent=period is None))
        return replace(before, look_behinds=look_behinds)

    def at(self, joint: int) -> Path:
        """Return the path after a joint. (`replace` does the same in twice the time.)"""
        return Path(
            joint=joint,
            not_followed_by=self.not_followed_by,
            not_next=self.not_next,
            exclusions=self.exclusions,
            take_exclusions=self.take_exclusions,
            entered=self.entered,
            opened=self.opened,
            at_start=self.at_start,
            look_behinds=self.look_behinds,
            fresh=self.fresh,
        )

    def excluding(self, exclusion: Exclusion) -> Path:
        """Return the path on which no event of the exclusion is taken or ignored."""
        return replace(self, exclusions=tuple(sorted({*self.exclusions, exclusion}, key=repr)))

    def taking_no(self, exclusion: Exclusion) -> Path:
        """Return the path on which the exclusion does not apply to the next event."""
        return replace(self, take_exclusions=tuple(sorted({*self.take_exclusions, exclusion}, key=repr)))

    def past_without(self, exclusion: Exclusion) -> Path:
        """Return the path after the end of a pattern with WITHOUT."""
        return replace(
            self,
            exclusions=tuple(one for one in self.exclusions if one != exclusion),
            take_exclusions=tuple(one for one in self.take_exclusions if one != exclusion),
            fresh=self.fresh - {exclusion},
        )

    def past_arrow(self) -> Path:
        """Return the path after an arrow: what precedes it need not precede it directly."""
        look_behinds = tuple(
            dict.fromkeys(replace(look_behind, adjacent=False) for look_behind in self.look_behinds)
        )
        return self if look_behinds == self.look_behinds else replace(self, look_behinds=look_behinds)


def reach(graph: Graph, entry: int, path: Path) -> Iterator[tuple[int, Path]]:  # noqa: C901, PLR0912, PLR0915 - a case for each mark
    """Yield the takes, timed absences and accepts that epsilon edges reach from `entry`, the preferred first.

    Depth first with an explicit stack; a place seen under the same circumstances is not entered again. So
    ``(a?|b?) (c?|d?) ...`` stays linear, and the more preferred way in wins.
    """
    stack = [(entry, path)]
    seen: set[tuple[int, Path]] = set()
    while stack:
        place = stack.pop()
        n_seen = len(seen)
        seen.add(place)
        if len(seen) == n_seen:  # seen before; a path is hashed once
            continue
        graph.n_steps += 1
        if graph.n_steps > MAX_STEPS:
            raise AutomatonTooLargeError
        node, path = place
        mark, value = graph.nodes[node].mark, graph.nodes[node].value
        match mark:
            case Mark.ACCEPT | Mark.TAKE:
                yield node, path
                continue
            case Mark.TIMED_ABSENCE if not path.at_start:
                yield node, path
                continue
            case Mark.TIMED_ABSENCE:
                absence = value.absence
                path = path.looking(absence.variables, absence.period, by_arrow=value.by_arrow)
            case Mark.NOT_FOLLOWED_BY | Mark.NOT_NEXT if path.at_start:
                path = path.looking((value,), None, by_arrow=mark is Mark.NOT_FOLLOWED_BY)
            case Mark.JOINT if path.at_start:
                path = path if value.contiguity is ir.Contiguity.STRICT else path.past_arrow()
            case Mark.JOINT:
                path = path.at(node)
            case Mark.NOT_FOLLOWED_BY:
                path = replace(path, not_followed_by=_with(path.not_followed_by, value))
            case Mark.NOT_NEXT:
                path = replace(path, not_next=_with(path.not_next, value))
            case Mark.EXCLUSION:
                path = path.excluding(value)
            case Mark.TAKE_EXCLUSION:
                path = path.taking_no(value)
            case Mark.ANCHOR if path.at_start:
                path = path.taking_no(Exclusion((NOT_FIRST,)))
            case Mark.ANCHOR:
                continue  # an event was taken before, so the next one is not the first
            case Mark.ENTER_WITHOUT:
                path = replace(path.taking_no(value), fresh=path.fresh | {value})
            case Mark.GAP_WITHOUT:
                path = path if value in path.fresh else path.excluding(value)
            case Mark.LEAVE_WITHOUT:
                path = path.past_without(value)
            case Mark.OPEN:
                path = replace(path, opened=_with(path.opened, value))
            case Mark.SHUT:
                path = replace(path, opened=tuple(group for group in path.opened if group != value))
            case Mark.ENTER:
                path = replace(path, entered=path.entered | {value})
            case Mark.LEAVE if value in path.entered:
                continue  # an iteration that took nothing does not count
            case Mark.SPLIT | Mark.LEAVE:
                pass
            case _:
                assert_never(mark)
        stack.extend((successor, path) for successor in reversed(graph.nodes[node].successors))


def _with(parts: tuple[_Part, ...], part: _Part) -> tuple[_Part, ...]:
    return parts if part in parts else (*parts, part)


def begins(graph: Graph, joint: int) -> tuple[str, ...]:
    """Return the variables with which the element on the right of `joint` can start."""
    return tuple(
        dict.fromkeys(
            graph.nodes[node].value
            for node, path in reach(graph, joint, Path())
            if path.joint == joint and graph.nodes[node].mark is Mark.TAKE
        )
    )
