"""Each aggregate of the table can be used wherever its types allow, in every evaluator."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cep import find_matches
from cep.compiler.aggregates import AGGREGATES
from cep.compiler.compile import check_sources
from cep.errors import Source
from cep.expression import Type
from cep.program.opcodes import Update
from cep.schema.stream import Field, Stream
from tests.oracle import find_matches as find_matches_slowly

ROOT = Path(__file__).parents[3]
COLUMNS = {"k": "string", "ts": "timestamp", "n": "bigint", "x": "double", "s": "string", "b": "boolean"}
STREAM = Stream("s", tuple(Field(*column) for column in COLUMNS.items()), "ts")
COLUMN_OF = {
    Type.BIGINT: "n",
    Type.DOUBLE: "x",
    Type.STRING: "s",
    Type.BOOLEAN: "b",
    Type.TIMESTAMP: "ts",
    Type.INTERVAL: "(ts - TIMESTAMP '1970-01-01')",
}
ROWS = [
    {
        "k": "k",
        "ts": number * 1_000_000,
        "n": number * number,
        "x": number / 4,
        "s": f"s{number}",
        "b": number > 2,
    }
    for number in range(1, 6)
]


def argument(kind: Type, variable: str) -> str:
    return re.sub(r"\b(n|x|s|b|ts)\b", rf"{variable}.\1", COLUMN_OF[kind])


def plain(value: Any) -> Any:
    """What the oracle has for `value`: points in time are microseconds."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value.timestamp() * 1_000_000) if isinstance(value, datetime) else value


@pytest.mark.parametrize("name", AGGREGATES)
def test_engine_and_oracle_compute_the_same_as_a_measure_and_in_a_condition(name: str) -> None:
    function = AGGREGATES[name]
    kinds = function.takes or tuple(COLUMN_OF)
    measures = ", ".join(f"{name}({argument(kind, 'a')}) AS m_{kind}" for kind in kinds)
    define = ""
    if function.read is not None:
        # Once over what was taken before, once over what the event under test belongs to.
        own = " OR ".join(f"{name}({argument(kind, 'a')}) IS NULL" for kind in kinds)
        other = " AND ".join(f"{name}({argument(kind, 'a')}) IS NOT NULL" for kind in kinds)
        define = f"DEFINE a AS COUNT(a.*) < 3 OR {own}, b AS {other}"
    pattern = "RULE r FROM s PARTITION BY k PATTERN a->+ -> b WITHIN 1 MINUTE"
    text = f"{pattern} {define} MEASURES {measures} MATCH ALL"
    (rule,), problems = check_sources([Source("r", text)], {"s": STREAM})
    assert not [problem for problem in problems if problem.is_error]
    expected = [dict(match.measures) for match in find_matches_slowly(rule, [STREAM], ROWS)]
    assert expected
    names = [f"m_{kind}" for kind in kinds]
    found = [{key: plain(match[key]) for key in names} for match in find_matches(text, {"s": STREAM}, ROWS)]
    assert sorted(map(repr, found)) == sorted(repr(row) for row in expected)


def test_the_kernel_has_a_branch_for_each_update() -> None:
    kernel = (ROOT / "cep/engine/kernels/registers.py").read_text()
    assert set(re.findall(r"\bUpdate\.(\w+)", kernel)) == {update.name for update in Update}


def test_each_aggregate_is_explained() -> None:
    for page in ("docs/language/grammar.md", "docs/language/semantics/conditions.md"):
        text = (ROOT / page).read_text()
        assert [name for name in AGGREGATES if name not in text] == [], page
