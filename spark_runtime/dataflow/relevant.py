"""The rows and columns of a DataFrame that rules need; the others are not sent to the workers.

The workers evaluate predicates (`cep.engine.prepare.predicates`). Spark SQL evaluates a weaker condition: it
is TRUE for each event for which a predicate is TRUE. If a predicate contains more than comparisons, it is
TRUE for other events, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from cep.expression import Call, Column, Expression, Literal, Type
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from spark_runtime.dataflow.schema import quoted

_MOST_PREDICATES = 192
"""Spark rewrites and compiles a plan as a whole: for a thousand predicates that takes many minutes."""

_CALLS: dict[str, Callable[..., SparkColumn]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda *args: reduce(operator.and_, args),
    "or": lambda *args: reduce(operator.or_, args),
    "not": operator.inv,
    "is_null": lambda value: value.isNull(),
    "is_not_null": lambda value: value.isNotNull(),
    "in": lambda value, *others: value.isin(*others),
    "double": lambda value: value.cast("double"),
    "contains": F.contains,
    "startswith": F.startswith,
    "endswith": F.endswith,
}
"""The operators that Spark SQL evaluates exactly as `cep.expression` does, NULLs included."""

_SQL_TYPES: dict[Type, str] = {
    Type.BOOLEAN: "boolean",
    Type.BIGINT: "bigint",
    Type.DOUBLE: "double",
    Type.STRING: "string",
    Type.TIMESTAMP: "bigint",
    Type.INTERVAL: "bigint",
}


def columns_read(rules: RuleSet, stream: Stream) -> frozenset[str]:
    """Return the columns of `stream` that the rules need to prepare its events."""
    found = {stream.event_time}
    for program in rules.programs:
        if stream in program.streams:
            found |= {name for of_stream, name in program.read_columns if of_stream == stream.name}
            sources = (program.source_of(name) for name in program.event_schema.names)
            found |= {source[1].name for source in sources if source is not None and source[0] == stream}
    return frozenset(found)


def may_matter(rules: RuleSet, stream: Stream) -> SparkColumn | None:
    """Return a condition on typed events of `stream` that is TRUE for every event that a rule needs.

    None: any event may be needed, or a plan cannot hold so many predicates.
    """
    programs = [program for program in rules.programs if stream in program.streams]
    if rules.has_silent_windows or any(program.needs_every_event for program in programs):
        return None
    conditions: list[SparkColumn] = []
    for program in programs:
        words = program.local_predicates(stream)
        for predicate in dict.fromkeys(predicate for word in words for predicate in word):
            condition = _implied(predicate, program)
            if condition is None or len(conditions) == _MOST_PREDICATES:
                return None
            conditions.append(condition)
    return reduce(operator.or_, conditions, F.lit(False))


def _implied(predicate: Expression, program: Program) -> SparkColumn | None:
    """Return a condition that is TRUE wherever `predicate` is TRUE; None if none is known."""
    if isinstance(predicate, Call) and predicate.function in ("and", "or"):
        parts = [part for arg in predicate.args if (part := _implied(arg, program)) is not None]
        if not parts or (predicate.function == "or" and len(parts) < len(predicate.args)):
            return None
        return _CALLS[predicate.function](*parts)
    return _exact(predicate, program)


def _exact(expression: Expression, program: Program) -> SparkColumn | None:
    """Return `expression` in Spark SQL, or None if it contains more than comparisons."""
    match expression:
        case Column(name=name):
            source = program.source_of(name)
            return None if source is None else quoted(source[1].name)
        case Literal(value=value, type=kind) if kind in _SQL_TYPES:
            return F.lit(value).cast(_SQL_TYPES[kind])
        case Call(function="like", args=(text, Literal(value=str(pattern)))) if "\\" not in pattern:
            column = _exact(text, program)
            return None if column is None else column.like(pattern)
        case Call(function=function, args=args) if function in _CALLS:
            parts = [part for arg in args if (part := _exact(arg, program)) is not None]
            if len(parts) < len(args):
                return None
            if function == "in" and args[0].type is Type.DOUBLE:
                # Spark finds one of many doubles by a hash set, in which 0.0 and -0.0 differ.
                return reduce(operator.or_, [parts[0] == part for part in parts[1:]])
            return _CALLS[function](*parts)
        case _:
            return None
