"""The size of an expression is counted without writing it out."""

from __future__ import annotations

import pytest

from cep.compiler.compile import check_sources
from cep.compiler.typing.expression_size import written_out
from cep.errors import Source
from cep.language import ast
from cep.language.parser import parse
from cep.schema.stream import Field, Stream


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
def test_what_is_written_briefly_is_counted_in_full(text: str, size: int) -> None:
    assert written_out(condition(text)) == size


def test_nested_cases_are_counted_at_once_however_deep() -> None:
    text = "x"
    for _ in range(60):  # 2 ** 60 operations: counted in 60 steps, not one by one
        text = f"CASE {text} WHEN 1 THEN 1 WHEN 2 THEN 2 END"
    assert written_out(condition(text)) > 2**60


def test_a_name_of_let_counts_as_what_it_stands_for() -> None:
    assert written_out(condition("u + a.u > x"), {"u": 100}) == 203


def test_names_of_let_that_double_each_other_are_refused_at_once() -> None:
    lets = ", ".join(["v0 = x", *(f"v{n + 1} = v{n} + v{n}" for n in range(30))])  # 2 ** 30 operations
    text = f"RULE r FROM s PARTITION BY k PATTERN a b LET {lets} DEFINE a AS v30 > 1, b AS v12 + v12 > 2"
    stream = Stream("s", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "bigint")), "ts")
    _, problems = check_sources([Source("test.cep", text)], {"s": stream})
    assert {problem.code for problem in problems} == {"E0913"}  # what reads a refused one is no second error
    first = problems[0]
    assert first.span is not None
    assert text[first.span.start : first.span.end] == "v12 + v12"


def test_a_condition_of_until_is_bounded_too() -> None:
    until = "x"
    for _ in range(12):
        until = f"CASE {until} WHEN 1 THEN 1 WHEN 2 THEN 2 END"
    text = f"RULE r FROM s PARTITION BY k PATTERN a->+ UNTIL ({until} = 1) -> b"
    stream = Stream("s", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "bigint")), "ts")
    _, problems = check_sources([Source("test.cep", text)], {"s": stream})
    assert "E0913" in {problem.code for problem in problems}
