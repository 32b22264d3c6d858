"""In correlated predicates, too, an integer that does not fit into 64 bits is NULL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cep.local.find_matches import find_matches
from cep.schema.stream import Field, Stream

STREAMS = {"s": Stream("s", (Field("k", "bigint"), Field("ts", "timestamp"), Field("i", "bigint")), "ts")}


@pytest.mark.parametrize("value", [0, -1, 2**61, 2**62, -(2**62), -(2**62) - 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 * SUM(a.i)", lambda i: 2 * i),
        ("SUM(a.i) * SUM(a.i)", lambda i: i * i),
        ("-1 * SUM(a.i)", lambda i: -i),
        ("SUM(a.i) + SUM(a.i)", lambda i: i + i),
        ("-2 - SUM(a.i)", lambda i: -2 - i),
        ("-SUM(a.i)", lambda i: -i),
        ("ABS(SUM(a.i))", abs),
    ],
)
def test_a_result_beyond_64_bits_is_null(expression: str, result: Callable[[int], int], value: int) -> None:
    rule = f"RULE r FROM s PARTITION BY k PATTERN a WITHIN 1 DAY DEFINE a AS ({expression}) IS NULL"
    is_null = bool(find_matches(rule, STREAMS, [{"k": 1, "ts": 0, "i": value}]))
    assert is_null == (not -(2**63) <= result(value) < 2**63)
