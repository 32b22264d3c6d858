"""Each function of the table has a line in every evaluator, and the names in rules lead to the table."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.typing.functions import FUNCTION_NAMES, SIGNATURES, SYNONYMS
from cep.engine.prepare.predicates import Vectors, evaluate
from cep.expression import FUNCTIONS, Column, Expression, Type
from cep.schema.arrow_types import ARROW_TYPES
from tests.function_calls import CLOSE, EXACT, Shape, call, constant
from tests.oracle.expressions import evaluate as evaluate_slowly

B, N, D, T = Type.BOOLEAN, Type.BIGINT, Type.DOUBLE, Type.STRING
OPERATORS: tuple[Shape, ...] = (
    *[(sign, B, (N, N)) for sign in ("=", "<>", "<", "<=", ">", ">=")],
    *[(word, B, (B, B)) for word in ("and", "or")],
    *[(word, B, (B,)) for word in ("not", "is_null", "is_not_null")],
    ("in", B, (N, (1, 2), (3, -7))),
    ("like", B, (T, ("a%", "%b_"))),
    ("rlike", B, (T, ("^a", "b+"))),
    *[(sign, N, (N, N)) for sign in ("+", "-", "*", "%")],
    ("/", D, (D, D)),
    *[(name, N, (N,)) for name in ("negate", "abs")],
    ("double", D, (N,)),
    *[(name, N, (N, N)) for name in ("coalesce", "least", "greatest")],
    ("case", N, (B, N, N)),
    *[(name, N, (D,)) for name in ("floor", "ceil")],
    ("sqrt", D, (D,)),
    *[(name, T, (T,)) for name in ("lower", "upper")],
    ("length", N, (T,)),
    *[(name, B, (T, T)) for name in ("contains", "startswith", "endswith")],
)
VALUES: dict[Type, list[Any]] = {
    B: [True, False, None, True],
    N: [1, -7, None, 3],
    D: [0.5, -2.25, None, 40.0],
    T: ["a", "abb", None, "-1"],
    Type.TIMESTAMP: [0, 1_700_000_000_000_001, None, -1],
}


def arguments(shape: Shape, random: Random) -> tuple[list[Expression], dict[str, pa.Array]]:
    """Return arguments for a call of `shape`, and the columns that they read."""
    args: list[Expression] = []
    columns: dict[str, pa.Array] = {}
    for number, kind in enumerate(shape[2]):
        if isinstance(kind, tuple):
            args.append(constant(kind, random))
            continue
        values = VALUES[kind][number:] + VALUES[kind][:number]
        columns[f"c{number}"] = pa.array(values, ARROW_TYPES[kind])
        args.append(Column(f"c{number}", kind))
    return args, columns


def is_same(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-12) or (found != found and expected != expected)
    return bool(found == expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_engine_and_oracle_compute_each_function(name: str) -> None:
    shapes = [shape for shape in (*OPERATORS, *EXACT, *CLOSE) if shape[0] == name]
    assert shapes, "no call of it is drawn"
    for shape in shapes:
        args, columns = arguments(shape, Random(1))
        expression, table = call(shape, args), pa.table(columns)
        found = evaluate(expression, Vectors(table)).to_arrow().to_pylist()
        expected = [evaluate_slowly(expression, row, {}) for row in table.to_pylist()]
        assert all(map(is_same, found, expected)), (shape, found, expected)


def test_every_name_of_a_function_leads_to_the_table() -> None:
    assert {signature.function for signature in SIGNATURES.values()} <= FUNCTIONS.keys()
    assert set(SYNONYMS.values()) <= set(FUNCTION_NAMES)
    assert all(FUNCTIONS.values()), "each has a line that says what it takes and gives"
