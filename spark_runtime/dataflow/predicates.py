"""Expressions as Spark SQL: predicate bits and derived columns, computed in the JVM before the shuffle.

It means the same as `cep.engine.prepare`, to the last NULL. A test compares the two on random rows.
"""

from __future__ import annotations

from functools import reduce
from typing import assert_never

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from cep.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Windowed,
)
from spark_runtime.dataflow.functions import (
    TIME_FUNCTIONS,
    WORKER_FUNCTIONS,
    number_function,
    pattern_search,
    text_function,
    time_function,
)
from spark_runtime.dataflow.schema import quoted

_SQL_TYPES: dict[Type, str] = {
    Type.BOOLEAN: "boolean",
    Type.BIGINT: "bigint",
    Type.DOUBLE: "double",
    Type.STRING: "string",
    Type.TIMESTAMP: "bigint",
    Type.INTERVAL: "bigint",
    Type.OPAQUE: "string",
}

_TWO_63 = 2.0**63


def spark_column(expression: Expression) -> SparkColumn:
    """Return `expression` over the columns of typed events (see `schema.typed_events`)."""
    match expression:
        case Column(name=name):
            return quoted(name)
        case Literal(value=value, type=kind):
            return F.lit(value).cast(_SQL_TYPES[kind])
        case Call():
            return _call(expression)
        case Aggregate() | Windowed() | Joined() | RegisterRef() | RoleTest():
            raise AssertionError("runs and windows are not known here, tests of roles are replaced before")
        case _:
            assert_never(expression)


def predicate_bits(predicates: tuple[Expression, ...]) -> SparkColumn:
    """Return a bigint with bit b set where predicate b is TRUE."""
    bits = [
        F.when(spark_column(predicate), F.lit(_signed(1 << number))).otherwise(F.lit(0)).cast("bigint")
        for number, predicate in enumerate(predicates)
    ]
    return reduce(lambda a, b: a.bitwiseOR(b), bits, F.lit(0).cast("bigint"))


def _signed(word: int) -> int:
    """Return the 64 bits of `word` as the integer that Spark's bigint reads in them."""
    return word - (1 << 64) if word >> 63 else word


def _call(call: Call) -> SparkColumn:  # noqa: C901, PLR0912, PLR0915 - a case for each function
    args = tuple(spark_column(arg) for arg in call.args)
    is_float = call.args[0].type is Type.DOUBLE
    match call.function:
        case "=":
            return args[0] == args[1]
        case "<>":
            return args[0] != args[1]
        case "<":
            return args[0] < args[1]
        case "<=":
            return args[0] <= args[1]
        case ">":
            return args[0] > args[1]
        case ">=":
            return args[0] >= args[1]
        case "and":
            return reduce(lambda a, b: a & b, args)
        case "or":
            return reduce(lambda a, b: a | b, args)
        case "not":
            return ~args[0]
        case "is_null":
            return args[0].isNull()
        case "is_not_null":
            return args[0].isNotNull()
        case "in" if is_float:
            # Spark looks many doubles up in a hash set, where 0.0 and -0.0 differ.
            return reduce(lambda a, b: a | b, [args[0] == value for value in args[1:]])
        case "in":
            return args[0].isin(*args[1:])
        case "like":
            pattern = call.args[1]
            assert isinstance(pattern, Literal)
            return args[0].like(_like_pattern(str(pattern.value)))
        case "rlike":
            pattern = call.args[1]
            assert isinstance(pattern, Literal)
            return pattern_search(str(pattern.value))(args[0])
        case "+":
            return args[0] + args[1] if is_float else F.try_add(args[0], args[1])
        case "-":
            return args[0] - args[1] if is_float else F.try_subtract(args[0], args[1])
        case "*":
            return args[0] * args[1] if is_float else F.try_multiply(args[0], args[1])
        case "/":
            return F.try_divide(args[0], args[1])
        case "%":
            return F.try_mod(args[0], args[1])
        case "negate":
            return -args[0] if is_float else F.try_subtract(F.lit(0).cast("bigint"), args[0])
        case "abs" if is_float:
            return F.abs(args[0])
        case "abs":
            return F.when(args[0] < 0, F.try_subtract(F.lit(0).cast("bigint"), args[0])).otherwise(args[0])
        case "double":
            return args[0].cast("double")
        case "coalesce":
            return F.coalesce(*args)
        case "case":
            return _case(args)
        case "least":
            return F.least(*args) if len(args) > 1 else args[0]
        case "greatest":
            return F.greatest(*args) if len(args) > 1 else args[0]
        case "floor" | "ceil":
            # Spark's own result saturates where 64 bits do not suffice, and NaN gives 0.
            rounded = F.floor(args[0]) if call.function == "floor" else F.ceil(args[0])
            return F.when((args[0] >= F.lit(-_TWO_63)) & (args[0] < F.lit(_TWO_63)), rounded)
        case "sqrt":
            return F.sqrt(args[0])
        case "lower":
            return F.lower(args[0])
        case "upper":
            return F.upper(args[0])
        case "length":
            return F.length(args[0]).cast("bigint")
        case "contains":
            return F.contains(args[0], args[1])
        case "startswith":
            return F.startswith(args[0], args[1])
        case "endswith":
            return F.endswith(args[0], args[1])
        case "round":
            places = call.args[1]
            assert isinstance(places, Literal)
            return _rounded(args[0], F.lit(10.0 ** int(places.value or 0)))
        case "sign" | "exp" | "ln" | "log2" | "log10" | "power":
            return _of_numbers(call.function, args)
        case name if name in WORKER_FUNCTIONS:
            return number_function(call)(*args)
        case name if name in TIME_FUNCTIONS:
            unit = call.args[0].value if isinstance(call.args[0], Literal) else None
            return time_function(name, args[-1], str(unit))
        case _:
            return text_function(call.function, args)


def _of_numbers(function: str, args: tuple[SparkColumn, ...]) -> SparkColumn:
    match function:
        case "sign":
            return F.signum(args[0])
        case "exp":
            return F.exp(args[0])
        case "ln":
            return F.log(args[0])
        case "log2":
            return F.log2(args[0])
        case "log10":
            return F.log10(args[0])
        case _:
            return F.pow(args[0], args[1])


def _rounded(value: SparkColumn, power: SparkColumn) -> SparkColumn:
    """Round in steps of DOUBLE arithmetic: Spark's own ROUND goes by the number's decimal digits."""
    scaled = F.abs(value) * power
    whole = F.floor(scaled)
    up = F.when(scaled - whole >= 0.5, whole + 1).otherwise(whole) / power
    rounded = F.when(value < 0, -up).otherwise(up)
    return F.when(scaled < F.lit(2.0**52), rounded).otherwise(value)


def _case(args: tuple[SparkColumn, ...]) -> SparkColumn:
    chain = F.when(args[0], args[1])
    for at in range(2, len(args) - 1, 2):
        chain = chain.when(args[at], args[at + 1])
    return chain.otherwise(args[-1])


def _like_pattern(pattern: str) -> str:
    r"""Return `pattern` with only those characters quoted that Spark lets one quote: % _ \."""
    result = []
    characters = iter(pattern)
    for character in characters:
        if character != "\\":
            result.append(character)
            continue
        quoted_character = next(characters, "\\")
        result.append("\\" + quoted_character if quoted_character in "%_\\" else quoted_character)
    return "".join(result)
