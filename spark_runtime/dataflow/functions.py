"""Functions of strings and of time as Spark SQL; none depends on the session's time zone or on ANSI mode."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from cep.engine.prepare.predicates import Batch, evaluate
from cep.engine.prepare.text_functions import matches_pattern
from cep.expression import Call, Column, Type
from cep.program.opcodes import DATE_PARTS
from cep.schema.text_values import DOUBLE_PATTERN, INTEGER_PATTERN

WORKER_FUNCTIONS = frozenset(("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "distance_km"))
"""Functions that `number_function` computes."""

TIME_FUNCTIONS = frozenset(
    (
        *DATE_PARTS,
        "date_trunc",
        "unix_seconds",
        "unix_millis",
        "unix_micros",
        "timestamp_seconds",
        "timestamp_millis",
        "timestamp_micros",
    )
)
"""Functions that `time_function` writes."""

_DAY_US = 86_400_000_000
_LENGTH_US = {
    "day": _DAY_US,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_INT_MAX = 2**31 - 1


def pattern_search(pattern: str) -> Callable[[SparkColumn], SparkColumn]:
    """Return the search for a regular expression: in the workers, since Spark's own can take forever."""

    def search(texts: pa.Array) -> pa.Array:
        return matches_pattern(texts, pattern)

    # By its annotations: the stubs know only the form that Spark warns of.
    return arrow_udf(search, "boolean")  # type: ignore[call-overload, no-any-return]


def number_function(call: Call) -> Callable[..., SparkColumn]:
    """Return a function of numbers as the engine computes it, in the workers: last bits of Java differ."""
    names = [f"c{number}" for number in range(len(call.args))]
    columns = tuple(Column(name, Type.DOUBLE) for name in names)
    of_columns = Call(call.function, columns, Type.DOUBLE)

    def compute(*values: pa.Array) -> pa.Array:
        return evaluate(of_columns, Batch(pa.table(list(values), names=names))).to_arrow()

    return arrow_udf(compute, "double")  # type: ignore[call-overload, no-any-return]


def time_function(function: str, value: SparkColumn, unit: str) -> SparkColumn:
    """Return a function of `value`: a time in microseconds, or the BIGINT that becomes one."""
    match function:
        case "unix_seconds":
            return floor_div(value, 1_000_000)
        case "unix_millis":
            return floor_div(value, 1_000)
        case "unix_micros" | "timestamp_micros":
            return value
        case "timestamp_seconds":
            return F.try_multiply(value, _bigint(1_000_000))
        case "timestamp_millis":
            return F.try_multiply(value, _bigint(1_000))
        case "hour":
            return floor_div(_within(value, _DAY_US), _LENGTH_US["hour"])
        case "minute":
            return floor_div(_within(value, _LENGTH_US["hour"]), _LENGTH_US["minute"])
        case "second":
            return floor_div(_within(value, _LENGTH_US["minute"]), _LENGTH_US["second"])
        case "date_trunc" if unit in _LENGTH_US:
            return F.try_subtract(value, _within(value, _LENGTH_US[unit]))
        case "date_trunc":
            days = F.unix_date(F.trunc(_date(value), unit)).cast("bigint")
            return F.try_multiply(days, _bigint(_DAY_US))
        case _:
            return F.call_function(function, _date(value)).cast("bigint")


def _bigint(value: int) -> SparkColumn:
    return F.lit(value).cast("bigint")


def _within(value: SparkColumn, length_us: int) -> SparkColumn:
    return F.pmod(value, _bigint(length_us))


def floor_div(value: SparkColumn, by: int) -> SparkColumn:
    """Return the quotient of two BIGINTs, rounded down."""
    towards_zero = F.call_function("div", value, _bigint(by))
    below = (value < 0) & (towards_zero * _bigint(by) != value)
    return F.when(below, towards_zero - 1).otherwise(towards_zero)


def _date(value: SparkColumn) -> SparkColumn:
    return F.date_from_unix_date(floor_div(value, _DAY_US).cast("int"))


def text_function(function: str, args: tuple[SparkColumn, ...]) -> SparkColumn:  # noqa: C901, PLR0912 - a case for each function
    """Return a function of strings."""
    match function:
        case "trim":
            return F.trim(args[0])
        case "ltrim":
            return F.ltrim(args[0])
        case "rtrim":
            return F.rtrim(args[0])
        case "reverse":
            return F.reverse(args[0])
        case "concat":
            return F.concat(*args)
        case "substring":
            return F.substr(args[0], _int(args[1]), _int(args[2]))
        case "right":
            return F.right(args[0], _int(args[1]))
        case "replace":
            return F.replace(*args)
        case "instr":
            return F.call_function("instr", *args).cast("bigint")
        case "split_part":
            return F.split_part(args[0], args[1], _int(args[2]))
        case "parse_bigint":
            return F.when(args[0].rlike(_whole_text(INTEGER_PATTERN)), args[0].try_cast("bigint"))
        case "parse_double":
            return F.when(args[0].rlike(_whole_text(DOUBLE_PATTERN)), args[0].try_cast("double"))
        case "text":
            return args[0].cast("string")
        case unknown:
            raise AssertionError(f"no Spark SQL for {unknown}")


def _int(value: SparkColumn) -> SparkColumn:
    """Positions beyond 32 bits are as far out as those at their limits: no text is as long."""
    limited = F.least(F.greatest(value, _bigint(-_INT_MAX)), _bigint(_INT_MAX))
    return F.when(value.isNotNull(), limited).cast("int")


def _whole_text(pattern: str) -> str:
    r"""In Java `$` holds before a final line end, too; `\z` does not."""
    return pattern.removesuffix("$") + r"\z"
