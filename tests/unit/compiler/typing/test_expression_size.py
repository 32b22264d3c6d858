"""The size of an expression is counted without writing it out."""

from __future__ import annotations

import pytest

from cep.compiler.typing.expression_size import written_out
from cep.errors import Source
from cep.language import ast
from cep.language.parser import parse


def condition(text: str) -> ast.Expression:
    rules, problems = parse(Source("test.cep", f"RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS {text}"))
    assert not problems
    found = rules[0].definitions[0].condition
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x", 1),
        ("x + y > 1", 5),
        ("x BETWEEN 1 AND 2", 7),
        ("x IN (1, 2, 3)", 10),
        ("CASE WHEN x THEN 1 ELSE 2 END", 4),
        ("CASE x WHEN 1 THEN 2 WHEN 3 THEN 4 END", 9),
    ],
)
def test_what_is_written_briefly_is_counted_in_full(text, size):
    assert written_out(condition(text)) == size


def test_nested_cases_are_counted_at_once_however_deep():
    text = "x"
    for _ in range(60):  # 2 ** 60 operations: counted in 60 steps, not one by one
        text = f"CASE {text} WHEN 1 THEN 1 WHEN 2 THEN 2 END"
    assert written_out(condition(text)) > 2**60
