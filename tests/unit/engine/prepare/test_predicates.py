"""Expressions over columns: the corners where SQL, numpy and Arrow would each say something else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.prepare.predicates import Vector, prepare
from cep.errors import Source
from cep.expression import Type
from cep.program.program import bits_column
from tests.unit.engine.events import STREAM, events

BIG = 2**63 - 1


def holds(predicate: str, x: float | None = None, n: int | None = None, s: str | None = None) -> bool:
    """Say whether `predicate` is TRUE for one event."""
    text = f"RULE r FROM events PARTITION BY k PATTERN a b WITHIN 1 SECOND DEFINE a AS {predicate}"
    (program,) = compile_sources([Source("t", text)], {"events": STREAM}).programs
    table: pa.Table = prepare(program, events(("k", 0, "a", x, n, s)))
    return bool(table.column(bits_column(0))[0].as_py() & 1)


@pytest.mark.parametrize(
    "predicate",
    ["x > 1", "x <= 1", "x = 1", "x <> 1", "NOT (x > 1)", "x IN (1, 2)", "NOT x IN (1, 2)", "x > 1 AND TRUE"],
)
def test_nothing_holds_of_null(predicate: str) -> None:
    assert not holds(predicate)


@pytest.mark.parametrize(
    "predicate",
    ["x IS NULL", "x > 1 OR TRUE", "COALESCE(x, 5) = 5", "NOT (x > 1 AND FALSE)", "(x > 1) IS NOT TRUE"],
)
def test_null_has_its_place_in_logic(predicate: str) -> None:
    assert holds(predicate)


def test_nan_is_equal_to_itself_and_the_greatest() -> None:
    nan = float("nan")
    assert holds("x = x", nan)
    assert holds("x > 1e300", nan)
    assert not holds("x < 1", nan)


@pytest.mark.parametrize(
    ("predicate", "n"),
    [
        ("n + 1 > 0", BIG),
        ("n * 2 <> 0", BIG),
        ("n - 1 < 0", -BIG - 1),
        ("-n <> 0", -BIG - 1),
        ("ABS(n) <> 0", -BIG - 1),
        ("n / 0 > 0", 1),
        ("n % 0 = 0", 1),
    ],
)
def test_what_has_no_result_is_null(predicate: str, n: int) -> None:
    assert not holds(predicate, n=n)
    assert not holds(f"NOT ({predicate})", n=n)


def test_remainders_take_the_sign_of_the_dividend() -> None:
    assert holds("n % 3 = -1", n=-7)
    assert holds("n % -3 = 1", n=7)
    assert holds("n % -1 = 0", n=-BIG - 1)


def test_integers_are_compared_whole() -> None:
    assert holds("n = 9007199254740993", n=2**53 + 1)
    assert not holds("n = 9007199254740992", n=2**53 + 1)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a%", "abc", True),
        ("a_c", "abc", True),
        ("a_c", "ac", False),
        (r"a\%", "a%", True),
        (r"a\%", "ab", False),
        ("%b%", "a\nb", True),
        ("a.c", "abc", False),
    ],
)
def test_like(pattern: str, text: str, expected: bool) -> None:
    assert holds(f"s LIKE '{pattern}'", s=text) is expected


def test_case_mapping_is_unicode_s_full_one() -> None:
    assert holds("UPPER(s) = 'STRASSE'", s="straße")
    assert holds("LOWER(s) = 'ας'", s="ΑΣ")


def test_affixes_and_lengths_count_characters() -> None:
    assert holds("LENGTH(s) = 2", s="é€")
    assert holds("STARTSWITH(s, 'é') AND ENDSWITH(s, '€') AND CONTAINS(s, '')", s="é€")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Type.DOUBLE, np.array([1.5, np.nan, -0.0, np.inf])),
        (Type.DOUBLE, np.array([1, 2, 3, 4])),
        (Type.BIGINT, np.array([BIG, -BIG, 0, 7])),
        (Type.TIMESTAMP, np.arange(8)[::2]),
        (Type.BOOLEAN, np.array([True, False, True, False])),
    ],
)
@pytest.mark.parametrize("known", [[True] * 4, [True, False, True, False], [False] * 4])
def test_a_vector_is_an_arrow_array_with_null_where_it_is_unknown(
    kind: Type, values: np.ndarray[tuple[int], np.dtype[np.generic]], known: list[bool]
) -> None:
    found = Vector(values, np.array(known), kind).to_arrow()
    found.validate(full=True)
    assert found.type == {Type.DOUBLE: pa.float64(), Type.BOOLEAN: pa.bool_()}.get(kind, pa.int64())
    assert found.null_count == known.count(False)
    assert (
        found.drop_null().to_numpy(zero_copy_only=False).tobytes()
        == found.type.to_pandas_dtype()(values[known]).tobytes()
    )
