"""Functions over columns: each has the value the oracle gives, on every combination of awkward values."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cep.engine.predicates import Batch, evaluate
from cep.expression import FUNCTIONS, Column, Expression, Type
from cep.program import ARROW_TYPES
from tests.function_calls import CLOSE, EXACT, Shape, call, constant
from tests.oracle.expressions import evaluate as evaluate_slowly

DAY_US = 86_400_000_000
VALUES: dict[Type, list[Any]] = {
    Type.STRING: [
        "",
        "a",
        " ab a ",
        "aXbaXa",
        "日本語",
        "ßtraße",
        "-12",
        "1e5",
        "9" * 19,
        "NaN",
        ".5",
        "5\n",
        None,
    ],
    Type.BIGINT: [0, 1, -1, 2, 7, 9_300_000_000_000, 2**63 - 1, -(2**63), None],
    Type.DOUBLE: [
        *(0.0, -0.0, 0.5, 1.5, -2.5, 2.675, 0.49999999999999994, 1e300, -1e300, 1.0, -1.0, 3.0),
        *(math.inf, -math.inf, math.nan, 2.0**52 + 1, 5e-324, None),
    ],
    Type.TIMESTAMP: [
        *(0, -1, 1, DAY_US - 1, DAY_US, 951_782_400_000_000, 1_709_251_199_999_999, 1_704_067_200_000_000),
        *(253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63), None),
    ],
}


def plain(value: Any) -> Any:
    return "NaN" if value != value else value


@pytest.mark.parametrize("shape", [*EXACT, *CLOSE], ids=lambda shape: f"{shape[0]}{len(shape[2])}")
def test_a_function_has_the_value_that_the_oracle_gives(shape: Shape) -> None:
    rows = list(itertools.product(*(VALUES[kind] for kind in shape[2] if isinstance(kind, Type))))
    Random(1).shuffle(rows)
    rows = rows[:800]
    kinds = [kind for kind in shape[2] if isinstance(kind, Type)]
    table = pa.table(
        {f"c{at}": pa.array([row[at] for row in rows], ARROW_TYPES[kind]) for at, kind in enumerate(kinds)}
    )
    for seed in range(8):
        args: list[Expression] = []
        for kind in shape[2]:
            n_columns = sum(isinstance(arg, Column) for arg in args)
            args.append(
                Column(f"c{n_columns}", kind) if isinstance(kind, Type) else constant(kind, Random(seed))
            )
        expression = call(shape, args)
        found = evaluate(expression, Batch(table)).to_arrow().to_pylist()
        for value, event in zip(found, table.to_pylist(), strict=True):
            expected = evaluate_slowly(expression, event, {})
            if shape in CLOSE and None not in (value, expected):
                assert math.isclose(value, expected, rel_tol=1e-14) or plain(value) == plain(expected), event
            else:
                assert plain(value) == plain(expected), (expression, event)


def test_every_function_of_text_numbers_and_time_is_compared() -> None:
    names = list(FUNCTIONS)
    new = set(names[names.index("trim") :])
    assert new <= {shape[0] for shape in (*EXACT, *CLOSE)}
