"""Expressions mean the same in Spark SQL and in the engine."""

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cep.compiler.compile import check_sources
from cep.engine.prepare import predicates as local
from cep.errors import Source
from cep.expression import Call, Column, Expression, Literal, Type
from cep.schema.stream import Field, Stream
from spark_runtime.dataflow.predicates import predicate_bits, spark_column
from spark_runtime.dataflow.schema import spark_schema
from tests.function_calls import CLOSE, EXACT, call, constant
from tests.regular_expressions import some_pattern

MAX, MIN = 2**63 - 1, -(2**63)
BOOLEANS = [True, False, None]
INTEGERS = [0, 1, -1, 2, 7, 10**6, 2**53 + 1, MAX, MIN, MIN + 1, None]
DOUBLES = [
    0.0,
    -0.0,
    1.5,
    -2.5,
    3.0,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
    2.0**63,
    -(2.0**63),
    0.1,
    None,
]
TIMES = [
    0,
    -1,
    86_399_999_999,
    951_782_400_000_000,
    1_709_251_199_999_999,
    -62_135_596_800_000_001,
    MAX,
    MIN,
    None,
]
STRINGS = [
    " a b ",
    "-12",
    "1e5",
    ".5",
    "5\n",
    "NaN",
    "9" * 19,
    "",
    "a",
    "ab",
    "b%",
    "a_c",
    "ü",
    "日本",
    "A\\b",
    "line\nbreak",
    "aXc",
    None,
]
VALUES: dict[Type, list[Any]] = {
    Type.BOOLEAN: BOOLEANS,
    Type.BIGINT: INTEGERS,
    Type.DOUBLE: DOUBLES,
    Type.STRING: STRINGS,
    Type.TIMESTAMP: TIMES,
}
NAMES = {Type.BOOLEAN: "p", Type.BIGINT: "i", Type.DOUBLE: "d", Type.STRING: "s", Type.TIMESTAMP: "t"}
PATTERNS = ["a%", "%b", "_", "a\\_c", "b\\%", "%", "", "a_c", "%e\nb%", "A\\\\b", "ü", "__"]


class Draw:
    """Random well-typed expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, kind: Type, depth: int) -> Expression:
        if depth == 0 or self.random.random() < 0.15:
            if self.random.random() < 0.7:
                return Column(f"{NAMES[kind]}{self.random.randint(1, 2)}", kind)
            value = self.random.choice(VALUES[kind])
            return Literal(value, kind)
        found: Expression = getattr(self, kind.value)(depth - 1)
        return found

    def call(self, function: str, result: Type, depth: int, *kinds: Type) -> Call:
        return Call(function, tuple(self.of(kind, depth) for kind in kinds), result)

    def any_of(self, kind: Type, depth: int) -> Expression | None:
        """The functions that every type has, and those of `tests.function_calls`; None: choose another."""
        if self.random.random() < 0.4 and (shapes := [shape for shape in EXACT if shape[1] is kind]):
            shape = self.random.choice(shapes)
            args = [
                self.of(arg, depth) if isinstance(arg, Type) else constant(arg, self.random)
                for arg in shape[2]
            ]
            return call(shape, args)
        match self.random.randrange(8):
            case 0:
                return self.call("coalesce", kind, depth, kind, kind)
            case 1:
                return self.call("case", kind, depth, Type.BOOLEAN, kind, Type.BOOLEAN, kind, kind)
            case 2 if kind is not Type.BOOLEAN:
                return self.call(self.random.choice(["least", "greatest"]), kind, depth, kind, kind, kind)
            case _:
                return None

    def boolean(self, depth: int) -> Expression:
        general = self.any_of(Type.BOOLEAN, depth)
        if general is not None:
            return general
        kind = self.random.choice([Type.BIGINT, Type.DOUBLE, Type.STRING])
        match self.random.randrange(7):
            case 0:
                names = ["and", "or"]
                return self.call(self.random.choice(names), Type.BOOLEAN, depth, *[Type.BOOLEAN] * 3)
            case 1:
                return self.call("not", Type.BOOLEAN, depth, Type.BOOLEAN)
            case 2:
                names = ["is_null", "is_not_null"]
                return self.call(self.random.choice(names), Type.BOOLEAN, depth, kind)
            case 3:
                values = [
                    Literal(self.random.choice(VALUES[kind]), kind) for _ in range(self.random.randint(1, 14))
                ]
                return Call("in", (self.of(kind, depth), *values), Type.BOOLEAN)
            case 4 if self.random.random() < 0.5:
                pattern = Literal(some_pattern(self.random), Type.STRING)
                return Call("rlike", (self.of(Type.STRING, depth), pattern), Type.BOOLEAN)
            case 4:
                pattern = Literal(self.random.choice(PATTERNS), Type.STRING)
                return Call("like", (self.of(Type.STRING, depth), pattern), Type.BOOLEAN)
            case 5:
                names = ["contains", "startswith", "endswith"]
                return self.call(self.random.choice(names), Type.BOOLEAN, depth, Type.STRING, Type.STRING)
            case _:
                names = ["=", "<>", "<", "<=", ">", ">="]
                return self.call(self.random.choice(names), Type.BOOLEAN, depth, kind, kind)

    def bigint(self, depth: int) -> Expression:
        general = self.any_of(Type.BIGINT, depth)
        if general is not None:
            return general
        match self.random.randrange(8):
            case 0:
                return self.call("negate", Type.BIGINT, depth, Type.BIGINT)
            case 1:
                return self.call("abs", Type.BIGINT, depth, Type.BIGINT)
            case 2:
                return self.call(self.random.choice(["floor", "ceil"]), Type.BIGINT, depth, Type.DOUBLE)
            case 3:
                return self.call("length", Type.BIGINT, depth, Type.STRING)
            case _:
                names = ["+", "-", "*", "%"]
                return self.call(self.random.choice(names), Type.BIGINT, depth, Type.BIGINT, Type.BIGINT)

    def double(self, depth: int) -> Expression:
        general = self.any_of(Type.DOUBLE, depth)
        if general is not None:
            return general
        match self.random.randrange(8):
            case 0:
                return self.call("negate", Type.DOUBLE, depth, Type.DOUBLE)
            case 1:
                return self.call("abs", Type.DOUBLE, depth, Type.DOUBLE)
            case 2:
                return self.call("sqrt", Type.DOUBLE, depth, Type.DOUBLE)
            case 3:
                return self.call("double", Type.DOUBLE, depth, Type.BIGINT)
            case _:
                names = ["+", "-", "*", "/", "%"]
                return self.call(self.random.choice(names), Type.DOUBLE, depth, Type.DOUBLE, Type.DOUBLE)

    def timestamp(self, depth: int) -> Expression:
        general = self.any_of(Type.TIMESTAMP, depth)
        return self.of(Type.TIMESTAMP, 0) if general is None else general

    def string(self, depth: int) -> Expression:
        general = self.any_of(Type.STRING, depth)
        if general is not None:
            return general
        return self.call(self.random.choice(["lower", "upper"]), Type.STRING, depth, Type.STRING)


def random_rows(seed: int, n: int) -> pa.Table:
    drawn = random.Random(seed)
    columns = {}
    for kind, name in NAMES.items():
        arrow = {
            Type.BOOLEAN: pa.bool_(),
            Type.BIGINT: pa.int64(),
            Type.DOUBLE: pa.float64(),
            Type.STRING: pa.string(),
            Type.TIMESTAMP: pa.int64(),
        }
        for number in (1, 2):
            columns[f"{name}{number}"] = pa.array([drawn.choice(VALUES[kind]) for _ in range(n)], arrow[kind])
    return pa.table(columns)


def plain(value: Any) -> Any:
    """NaN as something that equals itself; 0.0 and -0.0 are one value."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_have_the_same_value_in_spark_and_in_the_engine(
    spark: SparkSession, seed: int
) -> None:
    rows = random_rows(seed, 300)
    draw = Draw(seed)
    kinds = [Type.BOOLEAN, Type.BIGINT, Type.DOUBLE, Type.STRING]
    expressions = [draw.of(kinds[number % 4], 1 + number % 3) for number in range(120)]
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema))
    found = frame.select(
        *(spark_column(expression).alias(f"e{number}") for number, expression in enumerate(expressions))
    ).collect()
    batch = local.Batch(rows)
    for number, expression in enumerate(expressions):
        expected = local.evaluate(expression, batch).to_arrow().to_pylist()
        for row, (ours, theirs) in enumerate(zip(expected, (line[number] for line in found), strict=True)):
            assert plain(ours) == plain(theirs), (expression, rows.slice(row, 1).to_pylist(), ours, theirs)


def test_predicate_bits_fill_all_64_bits_of_a_word(spark: SparkSession) -> None:
    predicates = tuple(
        Call("=", (Column("i1", Type.BIGINT), Literal(number, Type.BIGINT)), Type.BOOLEAN)
        for number in range(64)
    )
    rows = pa.table({"i1": pa.array([*range(64), None], pa.int64())})
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema))
    found = [row[0] for row in frame.select(predicate_bits(predicates)).collect()]
    batch = local.Batch(rows)
    bits = local.predicate_words((tuple(predicates),), batch)[0]
    assert found == bits.tolist()
    assert found[63] == MIN


def test_every_function_has_the_same_value_in_spark_and_in_the_engine(spark: SparkSession) -> None:
    """Each with columns for arguments, whatever the session's time zone."""
    rows = random_rows(7, 400)
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema))
    drawn = random.Random(3)
    expressions = []
    for shape in (*EXACT, *CLOSE):
        for _ in range(1 if all(isinstance(arg, Type) for arg in shape[2]) else 4):
            args: list[Expression] = [
                Column(f"{NAMES[arg]}{1 + at % 2}", arg) if isinstance(arg, Type) else constant(arg, drawn)
                for at, arg in enumerate(shape[2])
            ]
            expressions.append((call(shape, args), shape in CLOSE))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        found = frame.select(
            *(spark_column(each).alias(f"e{number}") for number, (each, _) in enumerate(expressions))
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    batch = local.Batch(rows)
    for number, (expression, is_close) in enumerate(expressions):
        expected = local.evaluate(expression, batch).to_arrow().to_pylist()
        for row, (ours, theirs) in enumerate(zip(expected, (line[number] for line in found), strict=True)):
            if (
                is_close
                and ours is not None
                and theirs is not None
                and math.isclose(ours, theirs, rel_tol=1e-14)
            ):
                continue
            assert plain(ours) == plain(theirs), (expression, rows.slice(row, 1).to_pylist(), ours, theirs)


WRITTEN = [
    *("(t1 - t2) * i1", "i1 * (t1 - t2)", "(t1 - t2) * d1", "d1 * 90 MINUTES", "(t1 - t2) / i1"),
    *("(t1 - t2) / d1", "1 HOUR / i2", "(t1 - t2) / (t2 - t1)", "(t1 - t2) / 1 HOUR", "-(t1 - t2) * 0.5"),
    *("RADIANS(i1)", "DEGREES(d1)", "d1 * PI()", "SIN(RADIANS(i1)) + COS(d1)", "ATAN2(d1, i1)"),
    *("DISTANCE_KM(i1, d1, 48.85, 2.35)", "DISTANCE_KM(45, d1, -i1, d2) / ((t1 - t2) / 1 HOUR)"),
]


def test_expressions_as_written_have_the_same_value_in_spark_and_in_the_engine(spark: SparkSession) -> None:
    fields = [Field("k", "string"), Field("ts", "timestamp")]
    fields += [
        Field(f"{name}{n}", kind) for name, kind in (("t", "timestamp"), ("i", "bigint")) for n in (1, 2)
    ]
    fields += [Field("d1", "double"), Field("d2", "double")]
    conditions = ", ".join(f"v{n} AS ({text}) IS NOT NULL" for n, text in enumerate(WRITTEN))
    pattern = " ".join(f"v{n}" for n in range(len(WRITTEN)))
    text = f"RULE r FROM s PARTITION BY k PATTERN {pattern} DEFINE {conditions}"
    (rule,), problems = check_sources([Source("r", text)], {"s": Stream("s", tuple(fields), "ts")})
    assert not problems
    expressions = [variable.predicate.args[0] for variable in rule.variables]  # type: ignore[union-attr]
    rows = random_rows(11, 400)
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema))
    found = frame.select(
        *(spark_column(expression).alias(f"e{number}") for number, expression in enumerate(expressions))
    ).collect()
    batch = local.Batch(rows)
    for number, expression in enumerate(expressions):
        expected = local.evaluate(expression, batch).to_arrow().to_pylist()
        assert any(value is not None for value in expected), WRITTEN[number]
        for row, (ours, theirs) in enumerate(zip(expected, (line[number] for line in found), strict=True)):
            assert plain(ours) == plain(theirs), (WRITTEN[number], rows.slice(row, 1).to_pylist())
