"""A BIGINT measure beside a DOUBLE one of the same name: DOUBLE in the output, exact for rules over it."""

from __future__ import annotations

from typing import Any

import pytest

from cep.local.find_matches import find_matches
from cep.schema.stream import Field, Stream

STREAMS = {
    "events": Stream(
        "events",
        (Field("k", "string"), Field("g", "string"), Field("at", "timestamp"), Field("n", "bigint")),
        "at",
    )
}
LARGE = 2**53 + 1
"""Not the value of any DOUBLE."""


def rows(n: int | None) -> list[dict[str, Any]]:
    return [{"k": "x", "g": "y", "at": 1_000_000, "n": n}]


def rule(name: str, value: str, key: str = "k") -> str:
    return f"RULE {name} FROM events PARTITION BY {key} PATTERN a DEFINE a AS TRUE MEASURES {value} AS x\n"


@pytest.mark.parametrize("key", ["k", "g"])
@pytest.mark.parametrize("n", [LARGE, -LARGE, 2**63 - 1, -(2**63), None])
def test_a_bigint_becomes_the_nearest_double(n: int | None, key: str) -> None:
    text = rule("whole", "a.n") + rule("fraction", "a.n / 4", key)
    found = {row["rule"]: row["x"] for row in find_matches(text, STREAMS, rows(n))}
    assert found == {"whole": None if n is None else float(n), "fraction": None if n is None else n / 4}


@pytest.mark.parametrize("n", [LARGE, 2**63 - 1])
def test_a_rule_over_it_reads_what_it_was(n: int) -> None:
    over = (
        "RULE over FROM MATCHES OF whole PARTITION BY k PATTERN m"
        f" DEFINE m AS x = {n} MEASURES m.x - {n - 5} AS rest\n"
    )
    text = rule("whole", "a.n") + rule("fraction", "a.n / 4") + over
    found = {row["rule"]: row["rest"] for row in find_matches(text, STREAMS, rows(n))}
    assert found == {"whole": None, "fraction": None, "over": 5}
