"""Typed expressions: what a predicate or a measure computes, after names and types are settled.

The compiler writes these trees; four readers give them one meaning: `cep.engine.predicates` (columns),
`cep.engine.kernels` (bytecode over a run's registers), `spark_runtime.predicates` (Spark SQL) and the tests'
oracle (one row at a time).

Meaning, in all four: SQL's three-valued logic. An operation that has no result (division by zero, an integer
beyond 64 bits) gives NULL, as Spark's ``try_`` functions do: one bad event must not stop a stream. NaN
equals NaN and is greater than every number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Type(StrEnum):
    """The types of the rule language; a schema's Spark types map onto them (see `cep.schema`)."""

    BOOLEAN = "boolean"
    BIGINT = "bigint"  # int64; every integer type of the schema
    DOUBLE = "double"  # float64; float and double
    STRING = "string"
    TIMESTAMP = "timestamp"  # int64 microseconds since 1970-01-01T00:00Z
    INTERVAL = "interval"  # int64 microseconds
    OPAQUE = "opaque"  # arrays, structs, maps, binary: JSON text that is only passed on


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


ALL_EVENTS = ""
"""The variable of ``COUNT(*)``: every event taken."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What a run holds of the events taken as `variable`, the event under test included.

    `variable` may be a subset: the events taken as any of its members.
    `kind` is FIRST, LAST, COUNT, SUM, AVG, MIN, MAX, STDDEV or, as a whole measure only, ARRAY_AGG: a list
    of values of `type`. `argument` is an expression over the
    columns of one event (no `Aggregate` inside); None only for ``COUNT(v.*)``. `offset` counts from
    the first (FIRST) or back from the last (LAST) event. ``v.x`` is ``LAST(v.x)`` with offset 0.
    The compiler replaces these before anything runs: no evaluator but the oracle sees one.
    """

    kind: str
    variable: str
    argument: Expression | None
    offset: int
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """`function` applied to `args`; see `FUNCTIONS` for the names and their rules."""

    function: str
    args: tuple[Expression, ...]
    type: Type


Expression = Literal | Column | Aggregate | Call

FUNCTIONS: dict[str, str] = {
    # Both sides have one type; the analyzer inserts `double`.
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
    "in": "first argument equals one of the others, which are literals of its type",
    "like": "second argument a string literal: % any text, _ one character, \\ quotes the next",
    "rlike": "second argument a string literal, found anywhere: see `cep.compiler.regular_expressions`",
    "+": "BIGINT, DOUBLE, INTERVAL; TIMESTAMP + INTERVAL",
    "-": "BIGINT, DOUBLE, INTERVAL; TIMESTAMP - INTERVAL; TIMESTAMP - TIMESTAMP gives INTERVAL",
    "*": "BIGINT, DOUBLE",
    "/": "always DOUBLE; by zero gives NULL",
    "%": "BIGINT, DOUBLE; the sign of the dividend, as in Spark; by zero gives NULL",
    "negate": "BIGINT, DOUBLE, INTERVAL",
    "abs": "BIGINT, DOUBLE, INTERVAL",
    "double": "BIGINT to DOUBLE",
    "coalesce": "the first that is not NULL; all of one type",
    "case": "condition, value, condition, value, ..., else; the else is always there",
    "least": "NULLs are skipped, as in Spark; all of one type",
    "greatest": "NULLs are skipped, as in Spark; all of one type",
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
    "right": "STRING, length; not positive: the empty string",
    "concat": "two STRINGs or more",
    "replace": "STRING, what, by what; the empty string is nowhere in it",
    "instr": "STRING, STRING to BIGINT: where the second is in the first, from 1; 0: nowhere",
    "split_part": "STRING, delimiter, BIGINT literal from 1 or back from -1; the empty string: no such part",
    "parse_bigint": "STRING to BIGINT; what is not a number gives NULL",
    "parse_double": "STRING to DOUBLE; what is not a number gives NULL",
    "text": "BIGINT to STRING",
    "round": "DOUBLE, BIGINT literal from 0 to 15: half away from zero, in steps of DOUBLE arithmetic",
    "sign": "DOUBLE to -1.0, 0.0, 1.0 or NaN",
    "exp": "DOUBLE",
    "ln": "DOUBLE; of what is not positive NULL, as in Spark",
    "log2": "DOUBLE; as ln",
    "log10": "DOUBLE; as ln",
    "power": "DOUBLE, DOUBLE; as Java's pow",
    "year": "TIMESTAMP to BIGINT, in UTC as all that follow",
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
    "unix_seconds": "TIMESTAMP to BIGINT, rounded down",
    "unix_millis": "TIMESTAMP to BIGINT, rounded down",
    "unix_micros": "TIMESTAMP to BIGINT",
    "timestamp_seconds": "BIGINT to TIMESTAMP",
    "timestamp_millis": "BIGINT to TIMESTAMP",
    "timestamp_micros": "BIGINT to TIMESTAMP",
}
"""Every function an expression may call, with its types."""

_OF_NULLS = frozenset(("and", "or", "is_null", "is_not_null", "coalesce", "case", "least", "greatest"))


def is_null_strict(function: str) -> bool:
    """Say whether a call of `function` is NULL as soon as one argument is (of ``in``: the first)."""
    return function not in _OF_NULLS


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside `expression`."""
    match expression:
        case Call(args=args):
            return args
        case Aggregate(argument=argument) if argument is not None:
            return (argument,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield `expression` and everything inside it, parents first."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def substitute(expression: Expression, replacements: Mapping[str, Expression]) -> Expression:
    """Return `expression` with some columns, by name, replaced."""
    match expression:
        case Column(name=name):
            return replacements.get(name, expression)
        case Call(function=function, args=args, type=kind):
            return Call(function, tuple(substitute(arg, replacements) for arg in args), kind)
        case _:
            return expression


def is_local(expression: Expression) -> bool:
    """Say whether `expression` reads the event under test only."""
    return not any(isinstance(node, Aggregate) for node in walk(expression))


def column_names(expression: Expression) -> tuple[str, ...]:
    """Return the names of the columns read anywhere in `expression`, sorted."""
    return tuple(sorted({node.name for node in walk(expression) if isinstance(node, Column)}))
