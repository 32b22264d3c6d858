"""Functions over columns: each has the value the oracle gives, on every combination of awkward values."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cep.engine.prepare.predicates import Vectors, evaluate
from cep.expression import FUNCTIONS, Call, Column, Expression, Type
from cep.schema.arrow_types import ARROW_TYPES
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
        *(253_402_300_799_999_999, -62_135_596_800_000_000, None),  # the years 1 to 9999
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
        found = evaluate(expression, Vectors(table)).to_arrow().to_pylist()
        for value, event in zip(found, table.to_pylist(), strict=True):
            expected = evaluate_slowly(expression, event, {})
            if shape in CLOSE and None not in (value, expected):
                assert math.isclose(value, expected, rel_tol=1e-14) or plain(value) == plain(expected), event
            else:
                assert plain(value) == plain(expected), (expression, event)


PLACES = [
    ((52.5, 13.4, 52.5, 13.4), 0.0),
    ((0.0, 0.0, 90.0, 77.0), 10007.557221017962),  # a quarter of the way around: 6371.0088 * pi / 2
    ((0.0, 0.0, 0.0, 180.0), 20015.114442035925),
    ((90.0, 10.0, -90.0, -120.0), 20015.114442035925),
    ((52.520008, 13.404954, 48.856613, 2.352222), 877.4598998649242),  # Berlin, Paris
    ((-33.8688, 151.2093, 40.7128, -74.006), 15988.77759164934),  # Sydney, New York
    ((0.0, 179.5, 0.0, -179.5), 111.19508023353292),  # one degree, over the date line
    ((0.0, 179.5, 0.0, 180.5), 111.19508023353292),
    ((0.0, 0.0, 0.0, 0.00001), 0.0011119508023353292),  # a metre
    ((90.1, 0.0, 0.0, 0.0), None),
    ((0.0, 0.0, -90.00001, 0.0), None),
    ((math.nan, 0.0, 0.0, 0.0), None),
    ((0.0, math.inf, 0.0, 0.0), None),
    ((0.0, -1e308, 0.0, 1e308), None),
    ((None, 0.0, 0.0, 0.0), None),
    ((0.0, 0.0, 0.0, None), None),
]


@pytest.mark.parametrize(("degrees", "km"), PLACES)
def test_a_distance_is_that_on_a_sphere_of_the_mean_radius(
    degrees: tuple[float | None, ...], km: float | None
) -> None:
    """Expected: the formula carried out with 40 digits."""
    columns = [Column(f"c{at}", Type.DOUBLE) for at in range(4)]
    table = pa.table({f"c{at}": pa.array([value], pa.float64()) for at, value in enumerate(degrees)})
    expression = Call("distance_km", tuple(columns), Type.DOUBLE)
    (found,) = evaluate(expression, Vectors(table)).to_arrow().to_pylist()
    if km is None:
        assert found is None
    else:
        assert math.isclose(found, km, rel_tol=1e-12)
    assert found == evaluate_slowly(expression, table.to_pylist()[0], {})


def test_functions_of_angles_do_not_tell_zeros_apart() -> None:
    zeros = pa.table({"y": pa.array([0.0, -0.0, 0.0, -0.0]), "x": pa.array([-1.0, -1.0, -0.0, -0.0])})
    angle = Call("atan2", (Column("y", Type.DOUBLE), Column("x", Type.DOUBLE)), Type.DOUBLE)
    assert evaluate(angle, Vectors(zeros)).to_arrow().to_pylist() == [math.pi, math.pi, 0.0, 0.0]


def test_every_function_of_text_numbers_and_time_is_compared() -> None:
    names = list(FUNCTIONS)
    new = set(names[names.index("trim") :])
    assert new <= {shape[0] for shape in (*EXACT, *CLOSE)}
