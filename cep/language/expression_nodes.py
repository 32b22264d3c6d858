"""Syntax trees of expressions. Use them through `cep.language.ast`, which has the rest of a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cep.errors import Span


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted text."""

    text: str
    span: Span = field(compare=False)


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
