"""Which events and columns cross to the workers: what Spark SQL leaves out matters to no rule."""

import math
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession

from cep.compiler.compile import check_sources
from cep.engine.prepare.predicates import Vectors, evaluate
from cep.errors import Source
from cep.expression import Call, Column, Expression, Literal, Type
from cep.rule_set import RuleSet
from cep.rulebook import compile_texts
from cep.schema.stream import Field, Stream
from spark_runtime.dataflow.relevant import columns_read, may_matter
from spark_runtime.dataflow.schema import spark_schema
from tests.function_calls import EXACT, call, constant
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
PATTERNS = ["a%", "%b", "_", "a\\_c", "b\\%", "%", "", "a_c", "%e_b%", "A\\\\b", "ü", "__"]


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


def rule_set(predicate: Expression) -> RuleSet:
    """A rule of one variable with this predicate."""
    columns = [f"{name}{number}" for name in "pidst" for number in (1, 2)]
    kinds = {"p": "boolean", "i": "bigint", "d": "double", "s": "string", "t": "timestamp"}
    stream = Stream("s", tuple(Field(name, kinds[name[0]]) for name in columns), "t1")
    text = "RULE r FROM s PARTITION BY s1 PATTERN a b->{2} c DEFINE a AS i1 = 1, b AS i1 = 2, c AS i1 = 3"
    (program,) = compile_texts([Source("r", text)], {"s": stream}).rule_set.programs
    (rule,) = program.rules
    rules = (replace(rule, needs_every_event=False),)
    return RuleSet((replace(program, predicates=((predicate,),), rules=rules),))


def truths(spark: SparkSession, rows: pa.Table, conditions: list[SparkColumn]) -> list[list[bool]]:
    """For each condition, in which rows it is TRUE."""
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema))
    found = frame.select(*(each.alias(f"e{number}") for number, each in enumerate(conditions))).collect()
    return [[line[number] is True for line in found] for number in range(len(conditions))]


def truth(predicate: Expression, rows: pa.Table) -> list[bool]:
    return [value is True for value in evaluate(predicate, Vectors(rows)).to_arrow().to_pylist()]


@pytest.mark.parametrize("seed", range(2))
def test_an_event_for_which_a_predicate_is_true_always_crosses(spark: SparkSession, seed: int) -> None:
    rows = random_rows(seed, 300)
    draw = Draw(seed)
    predicates = [draw.of(Type.BOOLEAN, 1 + number % 4) for number in range(240)]
    conditions = [may_matter(rules := rule_set(predicate), rules.only_stream()) for predicate in predicates]
    known = [(of, found) for of, found in zip(predicates, conditions, strict=True) if found is not None]
    assert 40 < len(known) < 200
    n_left_out = 0
    for (predicate, _), passes in zip(known, truths(spark, rows, [each for _, each in known]), strict=True):
        for row, (needed, crosses) in enumerate(zip(truth(predicate, rows), passes, strict=True)):
            assert crosses or not needed, (predicate, rows.slice(row, 1).to_pylist())
            n_left_out += not crosses
    assert n_left_out > 1000


EXACT_ONES = [
    *("i1 = i2", "i1 <> 7", "d1 = d2", "d1 <> d2", "d1 < d2", "d1 >= 0.0", "d1 > 1e300", "s1 = s2"),
    *("s1 < s2", "s1 <= 'ab'", "t1 > t2", "t1 <= t2", "p1 = p2", "p1", "NOT p1", "NOT (i1 = i2 OR p1)"),
    *("i1 > d1", "i1 IS NULL", "s1 IS NOT NULL", "p1 AND (d1 < 2.5 OR s1 = 'a')", "i1 BETWEEN 1 AND 7"),
    *("i1 IN (1, 2, 7)", "d1 IN (0.0, 1.5)", "s1 IN ('a', 'ab')", "NOT (s1 IN ('a', 'ab'))"),
    *("CONTAINS(s1, 'b')", "STARTSWITH(s1, s2)", "ENDSWITH(s1, 'b')", "NOT STARTSWITH(s1, 'a')"),
    *("s1 LIKE 'a%'", "s1 LIKE '%e_b%'", "NOT s1 LIKE '__'", "s1 LIKE '%'"),
]


def test_comparisons_have_the_same_value_in_spark_and_in_the_engine(spark: SparkSession) -> None:
    rules = rule_set(Literal(value=True, type=Type.BOOLEAN))
    names = [f"v{number}" for number in range(len(EXACT_ONES))]
    defines = ", ".join(f"{name} AS {text}" for name, text in zip(names, EXACT_ONES, strict=True))
    text = f"RULE r FROM s PARTITION BY s1 PATTERN {' '.join(names)} DEFINE {defines}"
    (rule,), problems = check_sources([Source("r", text)], {"s": rules.only_stream()})
    assert not any(problem.is_error for problem in problems)
    predicates = [variable.predicate for variable in rule.variables if variable.predicate is not None]
    rows = random_rows(11, 400)
    conditions = []
    for predicate, shown in zip(predicates, EXACT_ONES, strict=True):
        condition = may_matter(rule_set(predicate), rules.only_stream())
        assert condition is not None, shown
        conditions.append(condition)
    for predicate, shown, found in zip(predicates, EXACT_ONES, truths(spark, rows, conditions), strict=True):
        expected = truth(predicate, rows)
        assert any(expected), shown
        assert found == expected, shown


def test_all_events_cross_for_strict_rules_and_where_too_little_is_known(spark: SparkSession) -> None:
    small = Call("<", (Column("i1", Type.BIGINT), Literal(5, Type.BIGINT)), Type.BOOLEAN)
    rules = rule_set(small)
    (program,), stream = rules.programs, rules.only_stream()
    assert may_matter(rules, stream) is not None
    strict = replace(program, rules=tuple(replace(rule, needs_every_event=True) for rule in program.rules))
    assert may_matter(RuleSet((strict,)), stream) is None
    assert may_matter(RuleSet((program, strict)), stream) is None
    root = Call("sqrt", (Column("d1", Type.DOUBLE),), Type.DOUBLE)
    unknown = Call("<", (root, Literal(2.0, Type.DOUBLE)), Type.BOOLEAN)
    assert may_matter(rule_set(unknown), stream) is None
    assert may_matter(rule_set(Call("or", (small, unknown), Type.BOOLEAN)), stream) is None
    both = may_matter(rule_set(Call("and", (small, unknown), Type.BOOLEAN)), stream)
    rows = random_rows(1, 100)
    assert both is not None
    assert truths(spark, rows, [both]) == [truth(small, rows)]
    many = [replace(small, args=(small.args[0], Literal(number, Type.BIGINT))) for number in range(193)]
    words = tuple(tuple(many[start : start + 64]) for start in range(0, 193, 64))
    assert may_matter(RuleSet((replace(program, predicates=words),)), stream) is None


def test_only_columns_that_rules_read_cross() -> None:
    fields = [Field(name, "bigint") for name in ("id", "k", "x", "y", "z", "unused")]
    stream = Stream("s", (*fields, Field("ts", "timestamp")), "ts", tie_break=("id",))

    def read(text: str) -> set[str]:
        rules = compile_texts([Source("r", f"RULE r FROM s PARTITION BY k {text}")], {"s": stream}).rule_set
        return set(columns_read(rules, stream))

    pattern = "PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS x > 1, b AS y > a.x"
    assert read(f"{pattern} MEASURES b.z AS z") == {"id", "ts", "k", "x", "y", "z"}
    assert read(pattern) == {"id", "ts", "k", "x", "y"}
    assert read(f"{pattern} ALL ROWS PER MATCH") == {field.name for field in stream.fields}
