"""The typed pattern: the meaning of a rule, with names resolved and without sugar or text.

`cep.compiler.analysis.analyze` writes it, `cep.compiler.automaton.nfa` and the tests' oracle read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from cep.compiler.summary import EMPTY, Summary, in_any_order, in_sequence, of_event, one_of, repeated
from cep.errors import Source, Span
from cep.expression import ALL_EVENTS, Expression
from cep.expression import Window as ValueWindow
from cep.program.match_stream import MatchStream
from cep.program.views import ChangeStream
from cep.schema.stream import Role, Stream


class Contiguity(StrEnum):
    """What may come between the previously taken event and an element."""

    STRICT = "strict"  # nothing
    NEXT = "next"  # `->`  events with which the element cannot start (skip till next match)
    ANY = "any"  # `->>` any events (skip till any match)


class Greed(StrEnum):
    """Whether a loop prefers more (greedy) or fewer (reluctant) repetitions.

    A possessive loop prefers more and gives nothing back: what follows it never takes an event that it could
    start with.
    """

    GREEDY = "greedy"
    RELUCTANT = "reluctant"
    POSSESSIVE = "possessive"


@dataclass(frozen=True, slots=True)
class Take:
    """One event, taken as `variable`."""

    variable: str


@dataclass(frozen=True, slots=True)
class Absent:
    """No event for which `variable` holds; takes no event.

    Occurs only inside a `Sequence`, and is its first item only where the pattern starts.
    """

    variable: str


@dataclass(frozen=True, slots=True)
class TimedAbsence:
    """No event for which any of `variables` holds, for a `period`; what follows starts at its end.

    Occurs where an `Absent` can, after an arrow.
    """

    variables: tuple[str, ...]
    period: Window


@dataclass(frozen=True, slots=True)
class Item:
    """A node of a sequence and the joint on its left. The joint of the first item is not read."""

    contiguity: Contiguity
    node: Node
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """Items one after another; at least two."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the branches, the earlier preferred; at least two."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Permutation:
    """All parts, one after another, in any order, with `contiguity` between; at least two."""

    parts: tuple[Node, ...]
    contiguity: Contiguity


@dataclass(frozen=True, slots=True)
class Repeat:
    """`body` from `min` to `max` times (None: no limit), with `contiguity` between repetitions.

    `behind` are the absences that directly follow: they hold between the repetitions, too.
    No event is taken as the variable `until`. An event for which it holds closes the loop. Each event
    that the loop takes has a value of `distinct`, not NULL, that no event before it in the loop has.
    """

    body: Node
    min: int
    max: int | None
    contiguity: Contiguity
    greed: Greed
    gap: Gap | None = None
    until: str | None = None
    behind: tuple[Item, ...] = ()
    distinct: Expression | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`body`, its events within `window` of each other; in a loop each repetition has its own window."""

    body: Node
    window: Window | EventWindow


@dataclass(frozen=True, slots=True)
class Anchored:
    """`body`, at the start of the pattern: a match starts with the first event of the key."""

    body: Node


@dataclass(frozen=True, slots=True)
class Without:
    """`body`, with no event for which one of `variables` holds from its first event to its last.

    The events taken are among them. The time of a timed absence at the end of `body` belongs to it, too.
    """

    body: Node
    variables: tuple[str, ...]


Node = (
    Take | Absent | TimedAbsence | Sequence | Alternation | Permutation | Repeat | Group | Anchored | Without
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly inside `node`, in order."""
    match node:
        case Take() | Absent() | TimedAbsence():
            return ()
        case Sequence(items=items):
            return tuple(item.node for item in items)
        case Alternation(branches=parts) | Permutation(parts=parts):
            return parts
        case Repeat(body=body) | Group(body=body) | Anchored(body=body) | Without(body=body):
            return (body,)
        case _:
            assert_never(node)


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all nodes inside it, in order."""
    yield node
    for child in children(node):
        yield from walk(child)


def summary(node: Node) -> Summary:
    """Return the summary of `node`, from its parts."""
    parts = [summary(child) for child in children(node)]
    match node:
        case Take(variable=variable):
            return of_event(variable)
        case Absent() | TimedAbsence():
            return EMPTY
        case Sequence():
            return in_sequence(parts)
        case Alternation():
            return one_of(parts)
        case Permutation():
            return in_any_order(parts)
        case Repeat(min=least):
            return repeated(parts[0], least)
        case Group() | Anchored() | Without():
            return parts[0]
        case _:
            assert_never(node)


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in the pattern, and when an event may be taken as it; None: always.

    `role` is the role that an event must have, by its number in the rule; -1: any role. A variable that
    `closes` is the condition of an UNTIL, and no event is ever taken as it.
    """

    name: str
    predicate: Expression | None
    role: int = -1
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """A named value reported with each match."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Window:
    """Bound from the first to the last event of a match, in microseconds of event time."""

    length_us: int
    inclusive: bool

    @property
    def span_us(self) -> int:
        """The largest distance still inside: times are whole microseconds."""
        return self.length_us if self.inclusive else self.length_us - 1


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Bound on the events of the key, taken or not, from the first to the last event of a match."""

    count: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Bounds of the time from one taken event to the next, both inside; None: no upper bound.

    An upper bound that is not `inclusive` was written one microsecond larger.
    """

    low_us: int
    high_us: int | None
    inclusive: bool = True

    @property
    def limit_us(self) -> int | None:
        """The upper bound as it was written."""
        return None if self.high_us is None else self.high_us + (not self.inclusive)


class Selection(StrEnum):
    """Which matches are reported."""

    EARLIEST = "earliest"
    ALL = "all"
    PREFERRED = "preferred"


class SkipKind(StrEnum):
    """Where matching resumes after a match."""

    PAST_LAST = "past last event"
    TO_NEXT = "to next event"
    TO_FIRST = "to first"
    TO_LAST = "to last"
    NO_SKIP = "no skip"


@dataclass(frozen=True, slots=True)
class Skip:
    """After-match skip; `variable` only for TO_FIRST and TO_LAST."""

    kind: SkipKind
    variable: str | None = None
    members: tuple[str, ...] = ()  # of `variable`, where it is a subset


@dataclass(frozen=True, slots=True)
class Subset:
    """A name for the events taken as any of `members`, which are variables of the pattern."""

    name: str
    members: tuple[str, ...]


class Overflow(StrEnum):
    """What happens when a key has too many runs."""

    DROP_OLDEST = "drop oldest"
    DROP_NEWEST = "drop newest"
    FAIL = "fail"


DEFAULT_MAX_RUNS = 10_000
"""Open runs of one rule and key, where the rule does not say."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported in addition to the measures, and how many runs a key may have."""

    timeouts: bool = False
    suppress_us: int = 0  # how long after a match no match of the same key is reported; 0: all are
    n_per_day: int = 0  # how many matches of a key and a day are reported at most; 0: all are
    max_runs: int = DEFAULT_MAX_RUNS
    overflow: Overflow = Overflow.DROP_OLDEST
    all_rows: bool = False  # a row for each event of a match; otherwise one row for the match


@dataclass(frozen=True, slots=True)
class Windowing:
    """What makes a rule a window rule: a row at each window's end where `having` is TRUE (None: always).

    `where` says which events count; None: all. Values over a window are `cep.expression.Windowed`, whose
    conditions include `where`. With FOR EACH the keys of `table` also have windows without events;
    `table_key` is its key in the order of the rule's key.
    """

    window: ValueWindow
    where: Expression | None = None
    having: Expression | None = None
    table: Stream | None = None
    table_key: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[Stream, ...]:
        """The table after FOR EACH, if there is one."""
        return () if self.table is None else (self.table,)


class JoinKind(StrEnum):
    """Which rows of two sides a view has without a row of the other side."""

    INNER = "inner"  # none
    LEFT = "left"  # of what precedes
    RIGHT = "right"  # of the table
    FULL = "full"  # of both


@dataclass(frozen=True, slots=True)
class Viewing:
    """What makes a rule a view: a row for each change of a row of a join.

    - `changes`: the stream of the rule.
    - `kinds`: the joined tables in the order in which they are written, with how they are joined.
    - `where`: which rows exist; None: all.
    - `selected`: what a row has.
    """

    changes: ChangeStream
    kinds: tuple[tuple[str, JoinKind], ...] = ()
    where: Expression | None = None
    selected: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a rule is written, for problems that are found later."""

    source: Source
    name: Span
    pattern: Span


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, ready to become an automaton. `variables` holds every variable of the pattern once.

    `key` contains the names of the key in the output, and `roles` the source of its values; without roles,
    they come from the columns with these names in the only stream. With several streams, the names of columns
    are `cep.schema.stream.qualified`. `matches` are those of `streams` that are the matches of rules.
    """

    name: str
    title: str
    severity: str
    tags: tuple[str, ...]
    streams: tuple[str, ...]
    key: tuple[str, ...]
    pattern: Node
    window: Window | EventWindow | None
    variables: tuple[Variable, ...]
    measures: tuple[Measure, ...]
    selection: Selection
    skip: Skip
    report: Report = Report()
    origin: Origin | None = field(default=None, compare=False, repr=False)
    roles: tuple[Role, ...] = ()
    subsets: tuple[Subset, ...] = ()
    tables: tuple[Stream, ...] = ()  # that it joins
    matches: tuple[MatchStream, ...] = ()
    windowing: Windowing | None = None  # then the pattern is a single event
    is_shadow: bool = False  # its matches alert nobody
    viewing: Viewing | None = None  # then the pattern is a single event that has changed the row

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All conditions and values: of variables, of measures, of a window rule, of loops."""
        windowing = self.windowing
        found = [variable.predicate for variable in self.variables]
        found += [measure.expression for measure in self.measures]
        found += [] if windowing is None else [windowing.where, windowing.having]
        found += [node.distinct for node in walk(self.pattern) if isinstance(node, Repeat)]
        return tuple(expression for expression in found if expression is not None)

    def members(self, name: str) -> tuple[str, ...]:
        """Return the variables of the pattern whose events `name` stands for; ALL_EVENTS: all of them."""
        if name == ALL_EVENTS:
            return tuple(variable.name for variable in self.variables if not variable.closes)
        return next((subset.members for subset in self.subsets if subset.name == name), (name,))
