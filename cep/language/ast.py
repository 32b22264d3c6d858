"""Syntax trees of rules: what the author wrote, with the place of every part.

Equality ignores places: two trees are equal if they mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from cep.errors import Source, Span

# Expressions


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted string, or the value of the `parameter` in its place."""

    text: str
    span: Span = field(compare=False)
    parameter: Name | None = field(default=None, compare=False)


class ParameterValue(int):
    """A number or a duration in microseconds for which a parameter is written; `name` is its place."""

    name: Name

    @classmethod
    def of(cls, value: int, name: Name) -> ParameterValue:
        """Return the declared value of the parameter called `name`."""
        found = cls(value)
        found.name = name
        return found


class Kind(StrEnum):
    """Kinds of constants."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    TEXT = "text"
    TIMESTAMP = "timestamp"  # value: int microseconds since 1970-01-01T00:00Z
    INTERVAL = "interval"  # value: int microseconds


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    kind: Kind
    value: bool | int | float | str | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Column:
    """``x`` or ``v.x``; with a `table`, ``v.table.x``. In ``table.x`` the table is the `variable`."""

    variable: Name | None
    name: Name
    span: Span = field(compare=False)
    table: Name | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """``v.*``, or ``*`` for the events of all variables; only as the argument of COUNT."""

    variable: Name | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """``NAME([DISTINCT] args)``."""

    name: Name
    args: tuple[Expression, ...]
    span: Span = field(compare=False)
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``NOT x``; `operator` is ``-`` or ``not``."""

    operator: str
    operand: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, ``||`` or a comparison; `operator_span` is the place of the sign."""

    operator: str
    left: Expression
    right: Expression
    operator_span: Span = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Junction:
    """``a AND b AND c`` or ``a OR b OR c``: two terms or more; `operator` is ``and`` or ``or``."""

    operator: str
    terms: tuple[Expression, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """``x [NOT] BETWEEN low AND high``."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """``x [NOT] IN (constants)``, or ``x [NOT] IN (v.y)`` with a column of a variable as the only item."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    """``x [NOT] LIKE 'pattern'``; `operator` is LIKE or RLIKE."""

    operand: Expression
    operator: str
    pattern: Text
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Is:
    """``x IS [NOT] NULL | TRUE | FALSE``; `what` is None, True or False."""

    operand: Expression
    what: bool | None
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class When:
    """One ``WHEN condition THEN value``."""

    condition: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE [operand] WHEN ... [ELSE ...] END``."""

    operand: Expression | None
    whens: tuple[When, ...]
    otherwise: Expression | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(x AS type)``; `kind` is the type's name in lower case."""

    operand: Expression
    kind: Name
    span: Span = field(compare=False)


class OverKind(StrEnum):
    """Which earlier events are in a window, as written."""

    LAST = "LAST"
    PREVIOUS = "PREVIOUS"
    TUMBLING = "TUMBLING"
    SESSION = "SESSION"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class Over:
    """The text after OVER.

    `length_us` is its time, or `count` its number of events; ALL has neither. TUMBLING may have `offset_us`
    and `zone`. `step_us` is the time after BY, at `step_span`: only LAST and PREVIOUS with a time may have
    it.
    """

    kind: OverKind
    span: Span = field(compare=False)
    length_us: int | None = None
    count: int | None = None
    offset_us: int | None = None
    zone: Text | None = None
    step_us: int | None = None
    step_span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Windowed:
    """``NAME([DISTINCT] args) [FILTER (WHERE condition)] OVER window``."""

    name: Name
    args: tuple[Expression, ...]
    is_distinct: bool
    condition: Expression | None
    over: Over | None  # None: the window of a window rule
    span: Span = field(compare=False)


Expression = (
    Constant
    | Column
    | Events
    | Function
    | Windowed
    | Unary
    | Binary
    | Junction
    | Between
    | In
    | Like
    | Is
    | Case
    | Cast
)


# Patterns


class Joint(StrEnum):
    """The sign between two steps: none, ``->`` or ``->>``."""

    STRICT = ""
    NEXT = "->"
    ANY = "->>"


@dataclass(frozen=True, slots=True)
class Window:
    """``[<=|<] duration`` after WITHIN or FOR."""

    length_us: int
    inclusive: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class EventWindow:
    """``n EVENTS`` after WITHIN."""

    count: int
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """``[<= d]``, ``[< d]``, ``[>= d]``, ``[> d]`` or, with the sign ``,`` and a `second_us`, ``[d, e]``."""

    sign: str
    first_us: int
    second_us: int | None
    span: Span = field(compare=False)

    @property
    def low_us(self) -> int:
        """The shortest time inside: times are whole microseconds."""
        return self.first_us + (self.sign == ">") if self.sign in (">", ">=", ",") else 0

    @property
    def high_us(self) -> int | None:
        """The longest time inside; None: there is no limit."""
        if self.second_us is not None:
            return self.second_us
        return self.first_us - (self.sign == "<") if self.sign in ("<", "<=") else None


@dataclass(frozen=True, slots=True)
class Step:
    """One event, taken as a variable."""

    variable: Name
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Absence:
    """``!v``, or ``!(v | w)``: neither of them; with a `period`, ``!v FOR d``."""

    variables: tuple[Name, ...]
    span: Span = field(compare=False)
    period: Window | None = None

    @property
    def text(self) -> str:
        """As it is written."""
        names = " | ".join(name.text for name in self.variables)
        return f"!({names})" if len(self.variables) > 1 else f"!{names}"


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a sequence and the joint on its left; that of the first is STRICT and not written."""

    joint: Joint
    pattern: Pattern
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after another; at least two items."""

    items: tuple[Item, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Alternation:
    """``p | q``: at least two branches."""

    branches: tuple[Pattern, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Permutation:
    """All parts, one after another, in any order: ``p & q`` by NEXT, ``PERMUTE(p, q)`` by STRICT joints."""

    parts: tuple[Pattern, ...]
    joint: Joint
    span: Span = field(compare=False)


class Greed(StrEnum):
    """The sign after the bounds: none, ``?`` or ``+``."""

    GREEDY = ""
    RELUCTANT = "?"
    POSSESSIVE = "+"


@dataclass(frozen=True, slots=True)
class Repetition:
    """A quantified pattern: ``?`` is (0, 1), ``*`` (0, None), ``+`` (1, None). `until` closes the loop.

    `distinct` names a column whose value differs for each event that the loop takes.
    """

    body: Pattern
    least: int
    most: int | None
    joint: Joint
    greed: Greed
    quantifier_span: Span = field(compare=False)
    span: Span = field(compare=False)
    gap: Gap | None = None
    until: Expression | None = None
    distinct: Name | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """``(p WITHIN d)``. Parentheses without WITHIN exist only as nesting."""

    body: Pattern
    window: Window | EventWindow
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Anchored:
    """``^ p``: the first event of the match is the first event of the key."""

    body: Pattern
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Without:
    """``(p WITHOUT v)``, or ``(p WITHOUT (v | w))``: no such event from the first event of p to its last."""

    body: Pattern
    variables: tuple[Name, ...]
    span: Span = field(compare=False)


Pattern = Step | Absence | Sequence | Alternation | Permutation | Repetition | Group | Anchored | Without


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns directly inside `pattern`, in the order they are written."""
    match pattern:
        case Step() | Absence():
            return ()
        case Sequence(items=items):
            return tuple(item.pattern for item in items)
        case Alternation(branches=parts) | Permutation(parts=parts):
            return parts
        case Repetition(body=body) | Group(body=body) | Anchored(body=body) | Without(body=body):
            return (body,)
        case _:
            assert_never(pattern)


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield `pattern` and everything inside it, in the order they are written."""
    yield pattern
    for child in children(pattern):
        yield from walk(child)


# Rules


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of a partition key: ``c``, or ``s.c = t.d``; the variable of a bare name is None."""

    columns: tuple[Column, ...]
    span: Span = field(compare=False)

    @property
    def name(self) -> Name:
        """The name of the part in the output: the column that is named first."""
        return self.columns[0].name


@dataclass(frozen=True, slots=True)
class JoinPair:
    """``x``, ``x = table.y`` or the reverse; `right` is None if it is not written."""

    left: Column
    right: Column | None
    span: Span = field(compare=False)


class JoinKind(StrEnum):
    """Which rows of two sides exist without a row of the other side."""

    INNER = "JOIN"  # none
    LEFT = "LEFT JOIN"  # of what precedes
    RIGHT = "RIGHT JOIN"  # of the table
    FULL = "FULL JOIN"  # of both


SHADOW = "shadow"
"""The status of a rule whose matches alert nobody; the other one is `live`, the default."""

OUTER = (JoinKind.RIGHT, JoinKind.FULL)
"""The joins that keep rows of their table without a row of what stands before."""


@dataclass(frozen=True, slots=True)
class Join:
    """``[LEFT | RIGHT | FULL] JOIN table ON pair AND pair ...``; only a view distinguishes the kinds."""

    table: Name
    pairs: tuple[JoinPair, ...]
    span: Span = field(compare=False)
    kind: JoinKind = JoinKind.INNER


@dataclass(frozen=True, slots=True)
class Definition:
    """``v [ON stream] [BY columns] [AS condition]``."""

    variable: Name
    condition: Expression | None
    stream: Name | None = None
    key: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """``name = constant`` after PARAM: a constant with a name, whose value may be replaced."""

    name: Name
    value: Constant


@dataclass(frozen=True, slots=True)
class Let:
    """``name [ON stream] = expression``: a value that each event has."""

    name: Name
    expression: Expression
    stream: Name | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """``expression AS name``."""

    expression: Expression
    name: Name


class Mode(StrEnum):
    """``MATCH EARLIEST``, ``MATCH ALL`` or ``MATCH PREFERRED``."""

    EARLIEST = "EARLIEST"
    ALL = "ALL"
    PREFERRED = "PREFERRED"


class SkipTarget(StrEnum):
    """Where matching continues, as written."""

    PAST_LAST_EVENT = "PAST LAST EVENT"
    TO_NEXT_EVENT = "TO NEXT EVENT"
    TO_FIRST = "TO FIRST"
    TO_LAST = "TO LAST"
    NO_SKIP = "NO SKIP"


@dataclass(frozen=True, slots=True)
class Skip:
    """``AFTER MATCH SKIP ...`` or ``NO SKIP``."""

    target: SkipTarget
    variable: Name | None
    span: Span = field(compare=False)


class Rows(StrEnum):
    """``ONE ROW PER MATCH`` or ``ALL ROWS PER MATCH``."""

    ONE = "ONE ROW"
    ALL = "ALL ROWS"


class Overflow(StrEnum):
    """What happens when a key has too many runs, as written."""

    DROP_OLDEST = "DROP OLDEST"
    DROP_NEWEST = "DROP NEWEST"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Timeout:
    """``ON TIMEOUT``."""

    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Suppression:
    """``SUPPRESS FOR duration``, or ``SUPPRESS AFTER n PER DAY``; `n_per_day` is None without it.

    `span` is the place of the duration or of the number.
    """

    length_us: int
    span: Span = field(compare=False)
    n_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class RunLimit:
    """``MAX RUNS n PER KEY [ON OVERFLOW ...]``; `span` is the place of the number."""

    n_runs: int
    overflow: Overflow | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Report:
    """The clauses about what is reported; None if one was omitted."""

    rows: Rows | None = None
    timeout: Timeout | None = None
    suppression: Suppression | None = None
    limit: RunLimit | None = None


class WindowKind(StrEnum):
    """Which windows a window rule has, as written."""

    TUMBLING = "TUMBLING"
    HOPPING = "HOPPING"
    SESSION = "SESSION"


@dataclass(frozen=True, slots=True)
class Windowing:
    """The clause WINDOW. `length_us` is the length, or the gap of SESSION.

    HOPPING has `every_us`, TUMBLING and HOPPING may have `offset_us`, TUMBLING a `zone`, SESSION `most_us`
    (MAX). `table` is after FOR EACH.
    """

    kind: WindowKind
    length_us: int
    span: Span = field(compare=False)
    every_us: int | None = None
    offset_us: int | None = None
    most_us: int | None = None
    zone: Text | None = None
    table: Name | None = None


@dataclass(frozen=True, slots=True)
class Subset:
    """``u = (a, b)``."""

    name: Name
    members: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; None or empty if a clause was omitted.

    `matches` are the places in `streams` that MATCHES OF precedes: names of rules. A name after the first of
    them is that of a rule or of a stream. A window rule has a `windowing`, and its pattern is a step without
    a name. So is the pattern of a view (`is_view`), whose FROM names a table. Its KEY is in `key`, its SELECT
    in `measures`.
    """

    name: Name
    title: Text | None
    severity: str | None
    tags: tuple[str, ...]
    streams: tuple[Name, ...]
    key: tuple[KeyPart, ...]
    pattern: Pattern
    window: Window | EventWindow | None
    definitions: tuple[Definition, ...]
    measures: tuple[Measure, ...]
    mode: Mode | None
    skip: Skip | None
    source: Source = field(compare=False)
    span: Span = field(compare=False)
    report: Report = Report()
    subsets: tuple[Subset, ...] = ()
    lets: tuple[Let, ...] = ()
    joins: tuple[Join, ...] = ()
    matches: tuple[int, ...] = ()
    windowing: Windowing | None = None
    where: Expression | None = None
    having: Expression | None = None
    is_view: bool = False
    parameters: tuple[Parameter, ...] = ()
    status: str | None = None

    @property
    def is_shadow(self) -> bool:
        """Whether its matches alert nobody."""
        return self.status == SHADOW


def stream_names(rules: Iterable[Rule]) -> list[str]:
    """Return the streams that `rules` name in FROM, each once, without names of rules."""
    rules = tuple(rules)
    known = {rule.name.text for rule in rules}
    return list(
        dict.fromkeys(
            name.text
            for rule in rules
            for number, name in enumerate(rule.streams)
            if number not in rule.matches
            and not (rule.matches and number > rule.matches[0] and name.text in known)
        )
    )
