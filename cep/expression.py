"""Typed expressions: the trees of predicates and measures, after their names and types are resolved.

The compiler builds these trees. Three evaluators give them one meaning: `cep.engine.prepare` (columns),
`cep.engine.kernels` (bytecode over the registers of a run) and the tests' oracle (one row at a time).

All three use SQL's three-valued logic. An operation that has no result (division by zero, an integer
beyond 64 bits) gives NULL, as Spark's ``try_`` functions do, because one bad event must not stop a stream.
NaN equals NaN and is greater than every number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never


class Type(StrEnum):
    """The types of the rule language. `cep.schema.stream` maps the Spark types of a schema to them."""

    BOOLEAN = "boolean"
    BIGINT = "bigint"  # int64; every integer type of the schema
    DOUBLE = "double"  # float64; float and double
    STRING = "string"
    TIMESTAMP = "timestamp"  # int64 microseconds since 1970-01-01T00:00Z
    INTERVAL = "interval"  # int64 microseconds
    OPAQUE = "opaque"  # arrays, structs, maps, binary: a JSON text that rules pass on and never read


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. TIMESTAMP and INTERVAL values are int microseconds; None is NULL."""

    value: bool | int | float | str | None
    type: Type


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the event under test, by its name in the stream's schema."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class RegisterRef:
    """The register `number` of a run. The compiler replaces aggregates by registers."""

    number: int
    type: Type


@dataclass(frozen=True, slots=True)
class RoleTest:
    """TRUE if the event under test takes part in the role `number` of its program. Only in predicates."""

    number: int
    type: Type = Type.BOOLEAN


ALL_EVENTS = ""
"""The variable of ``COUNT(*)``. It stands for every event taken."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over the events that a run took as `variable`, including the event under test.

    `variable` may be a subset. Then the aggregate reads the events taken as any member of the subset.
    `kind` is FIRST, LAST, COUNT, SUM, AVG, MIN, MAX, STDDEV, DISTINCT, VALUES or ARRAY_AGG. DISTINCT is
    ``COUNT(DISTINCT v.x)``. ARRAY_AGG is a list of values of `type` and must be a whole measure. VALUES are
    the values as a set, of `type`, and only the second argument of `IN_TAKEN`. `argument` is an expression
    over the columns of one event, with no `Aggregate` inside. It is None only for ``COUNT(v.*)``. `offset`
    counts from the first event (FIRST) or back from the last event (LAST). ``v.x`` is ``LAST(v.x)`` with
    offset 0.
    The compiler replaces aggregates before a rule runs, so only the oracle evaluates them.
    """

    kind: str
    variable: str
    argument: Expression | None
    offset: int
    type: Type


class Frame(IntEnum):
    """How the events of a window are delimited."""

    TIME = 0  # ``LAST d``, ``PREVIOUS d``: at most `Window.length` microseconds before the event
    EVENTS = 1  # ``LAST n EVENTS``, ``PREVIOUS n EVENTS``
    TUMBLING = 2  # since the start of the event's tumbling window
    SESSION = 3  # since the last pause of more than `Window.length` microseconds
    ALL = 4
    HOPPING = 5  # of a window rule: `Window.length` microseconds, starting every `Window.every_us`


@dataclass(frozen=True, slots=True)
class Window:
    """The events of the key in a window: those up to an event that are within its frame.

    - `frame`: the kind.
    - `length`: microseconds of TIME, TUMBLING, HOPPING and SESSION; events of EVENTS; else 0.
    - `previous`: whether the event itself does not count (PREVIOUS). Events after it never do, not even those
      of its instant.
    - `offset_us`: TUMBLING, HOPPING: windows start this long after the multiples of the length, or of
      `every_us`, since 1970.
    - `zone`: TUMBLING: the zone at whose midnights the windows start, if their length is whole days, or whose
      clock shows the multiples, if it is shorter. Empty: UTC.
    - `is_whole`: whether it is the window of a window rule, which has all its events, and values when it
      ends.
    - `every_us`: HOPPING: the microseconds from the start of one window to the next.
    - `most_us`: SESSION of a window rule: a session ends at this length at the latest; 0: whenever it pauses.
    - `step_us`: TIME: the window starts at a multiple of this many microseconds since 1970, the last one that
      is at least `length` before the event; 0: exactly `length` before the event. The length is a multiple of
      it.
    """

    frame: Frame
    length: int = 0
    previous: bool = False
    offset_us: int = 0
    zone: str = ""
    is_whole: bool = False
    every_us: int = 0
    most_us: int = 0
    step_us: int = 0


@dataclass(frozen=True, slots=True)
class Windowed:
    """A value over the events of the key in a window before the event under test: ``AVG(x) OVER LAST d``.

    `function` is the name of a `cep.program.windows.Function`. `argument` and `condition` (FILTER) are
    expressions over the columns of one event, with nothing windowed inside. `argument` is None only for
    ``COUNT(*)``. `parameter` is the n of LAG and the part of PERCENTILE. `stream` is the stream of the
    events; empty if the rule reads only one.
    """

    function: str
    argument: Expression | None
    condition: Expression | None
    window: Window
    parameter: float
    stream: str
    type: Type


@dataclass(frozen=True, slots=True)
class Joined:
    """A column of the version of a table that is valid at the event under test: ``customers.segment``.

    `keys` are the columns of the event that are the key of the version, in the order of the table's key.
    `order` is the table's key in the order of the rule's key; None: every key needs the table. NULL where no
    version is valid. In a view a key may be a column of another table, and `is_before` means the version that
    was valid directly before the event's time.
    """

    table: str
    keys: tuple[Column | Joined, ...]
    column: str
    order: tuple[str, ...] | None
    type: Type
    is_before: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`function` applied to `args`. `FUNCTIONS` lists the functions."""

    function: str
    args: tuple[Expression, ...]
    type: Type


Expression = Literal | Column | RegisterRef | RoleTest | Aggregate | Windowed | Joined | Call

FUNCTIONS: dict[str, str] = {
    # Both sides have the same type, because the analyzer inserts `double` where it is needed.
    "=": "equal; any type",
    "<>": "not equal; any type",
    "<": "less; any type but boolean",
    "<=": "less or equal; any type but boolean",
    ">": "greater; any type but boolean",
    ">=": "greater or equal; any type but boolean",
    "and": "SQL AND of two or more",
    "or": "SQL OR of two or more",
    "not": "SQL NOT",
    "is_null": "never NULL itself",
    "is_not_null": "never NULL itself",
    "in": "the first argument equals one of the others, which are literals of its type",
    "like": "second argument a string literal: % any text, _ one character, \\ quotes the next",
    "rlike": "second argument a string literal, found anywhere: see `regular_expressions`",
    "+": "BIGINT, DOUBLE, INTERVAL; TIMESTAMP + INTERVAL",
    "-": "BIGINT, DOUBLE, INTERVAL; TIMESTAMP - INTERVAL; TIMESTAMP - TIMESTAMP gives INTERVAL",
    "*": "BIGINT, DOUBLE",
    "/": "always DOUBLE; by zero gives NULL",
    "%": "BIGINT, DOUBLE; the sign of the dividend, as in Spark; by zero gives NULL",
    "negate": "BIGINT, DOUBLE, INTERVAL",
    "abs": "BIGINT, DOUBLE, INTERVAL",
    "double": "BIGINT to DOUBLE",
    "coalesce": "the first argument that is not NULL; all arguments have one type",
    "case": "condition, value, condition, value, ..., else; the else is always there",
    "least": "the smallest argument that is not NULL, as in Spark; all arguments have one type",
    "greatest": "the largest argument that is not NULL, as in Spark; all arguments have one type",
    "floor": "DOUBLE to BIGINT",
    "ceil": "DOUBLE to BIGINT",
    "sqrt": "DOUBLE; of a negative number gives NaN, as in Spark",
    "lower": "STRING",
    "upper": "STRING",
    "length": "STRING to BIGINT, in characters",
    "contains": "STRING, STRING to BOOLEAN",
    "startswith": "STRING, STRING to BOOLEAN",
    "endswith": "STRING, STRING to BOOLEAN",
    "trim": "STRING without the blanks at both ends",
    "ltrim": "STRING without the blanks at its beginning",
    "rtrim": "STRING without the blanks at its end",
    "reverse": "STRING",
    "substring": "STRING, position from 1 or back from -1, length",
    "right": "STRING, length; the empty string if the length is not positive",
    "concat": "two STRINGs or more",
    "replace": "STRING, old text, new text; an empty old text replaces nothing",
    "instr": "STRING, STRING to BIGINT: place of the second in the first, from 1; 0 if it is not there",
    "split_part": "STRING, delimiter, BIGINT literal from 1 or back from -1; no such part: the empty string",
    "parse_bigint": "STRING to BIGINT; a text that is not a number gives NULL",
    "parse_double": "STRING to DOUBLE; a text that is not a number gives NULL",
    "text": "BIGINT to STRING",
    "round": "DOUBLE, BIGINT literal from 0 to 15: half away from zero, in steps of DOUBLE arithmetic",
    "sign": "DOUBLE to -1.0, 0.0, 1.0 or NaN",
    "exp": "DOUBLE",
    "ln": "DOUBLE; NULL if the argument is not positive, as in Spark",
    "log2": "DOUBLE; as ln",
    "log10": "DOUBLE; as ln",
    "power": "DOUBLE, DOUBLE; as Java's pow",
    "sin": "DOUBLE",
    "cos": "DOUBLE",
    "tan": "DOUBLE",
    "asin": "DOUBLE; NaN beyond -1 and 1, as in Spark",
    "acos": "DOUBLE; as asin",
    "atan": "DOUBLE",
    "atan2": "DOUBLE, DOUBLE: y, x; -0.0 is 0.0, as in Spark",
    "distance_km": "four DOUBLEs, degrees: latitude and longitude of two places; an impossible place: NULL",
    "year": "TIMESTAMP to BIGINT, in UTC like the functions below",
    "quarter": "TIMESTAMP to BIGINT",
    "month": "TIMESTAMP to BIGINT",
    "day": "TIMESTAMP to BIGINT, of the month",
    "dayofweek": "TIMESTAMP to BIGINT, Sunday is 1",
    "weekday": "TIMESTAMP to BIGINT, Monday is 0",
    "dayofyear": "TIMESTAMP to BIGINT",
    "hour": "TIMESTAMP to BIGINT",
    "minute": "TIMESTAMP to BIGINT",
    "second": "TIMESTAMP to BIGINT",
    "date_trunc": "STRING literal (a unit in lower case), TIMESTAMP to TIMESTAMP",
    "from_utc_timestamp": "TIMESTAMP, STRING literal (a zone): what the zone's clocks show at that time",
    "to_utc_timestamp": "TIMESTAMP, STRING literal (a zone): the first time at which its clocks show that",
    "unix_seconds": "TIMESTAMP to BIGINT, rounded down",
    "unix_millis": "TIMESTAMP to BIGINT, rounded down",
    "unix_micros": "TIMESTAMP to BIGINT",
    "timestamp_seconds": "BIGINT to TIMESTAMP; NULL outside the years 1 to 9999, as with + and -",
    "timestamp_millis": "BIGINT to TIMESTAMP",
    "timestamp_micros": "BIGINT to TIMESTAMP",
}
"""Every function that an expression may call, with its types and rules."""

IN_TAKEN = "in_taken"
"""The function of ``x IN (v.y)``: as SQL's IN over the values of the events taken.

It stands only in conditions, and its second argument is an `Aggregate` of the kind VALUES. So no evaluator of
single events knows it.
"""

_OF_NULLS = frozenset(
    (IN_TAKEN, "and", "or", "is_null", "is_not_null", "coalesce", "case", "least", "greatest")
)


def is_null_strict(function: str) -> bool:
    """Return whether a call of `function` is NULL if one argument is NULL. ``in``: the first argument."""
    return function not in _OF_NULLS


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct subexpressions of `expression`."""
    match expression:
        case Call(args=args):
            return args
        case Aggregate(argument=argument):
            return () if argument is None else (argument,)
        case Windowed(argument=argument, condition=condition):
            return tuple(part for part in (argument, condition) if part is not None)
        case Joined(keys=keys):
            return keys
        case Literal() | Column() | RegisterRef() | RoleTest():
            return ()
        case _:
            assert_never(expression)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield `expression` and all expressions inside it, parents first."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def rebuild(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return `expression` with `change` applied to each part that is not a call. An aggregate,
    windowed or not, is one part, and so is a joined column.
    """
    if isinstance(expression, Call):
        args = tuple(rebuild(arg, change) for arg in expression.args)
        return Call(expression.function, args, expression.type)
    return change(expression)


def is_local(expression: Expression) -> bool:
    """Return whether `expression` reads only the event under test."""
    return not any(isinstance(node, Aggregate) for node in walk(expression))


def is_windowed(expression: Expression) -> bool:
    """Return whether `expression` reads a window, so it has a value only once events are in order."""
    return any(isinstance(node, Windowed) for node in walk(expression))


def is_joined(expression: Expression) -> bool:
    """Return whether `expression` reads a table, so it has a value only once events are in order."""
    return any(isinstance(node, Joined) for node in walk(expression))


def column_names(expression: Expression) -> tuple[str, ...]:
    """Return the names of the columns read anywhere in `expression`, sorted."""
    return tuple(sorted({node.name for node in walk(expression) if isinstance(node, Column)}))
