"""The summary of a pattern is the same of its syntax tree and of the typed pattern."""

from __future__ import annotations

import pytest

from cep.compiler import ir
from cep.compiler.analysis.patterns.typed_pattern import typed_pattern
from cep.compiler.pattern_shape import summary
from cep.compiler.summary import Summary
from cep.errors import Source
from cep.language import ast
from cep.language.parser import parse


def tree(pattern: str) -> ast.Pattern:
    rules, problems = parse(Source("t", f"RULE r FROM s PARTITION BY k PATTERN {pattern}"))
    assert not problems
    return rules[0].pattern


@pytest.mark.parametrize(
    ("pattern", "nullable", "first", "last", "taken"),
    [
        ("a", False, "a", "a", "a"),
        ("a b -> c", False, "a", "c", "abc"),
        ("a? b? c d? e?", False, "abc", "cde", "abcde"),
        ("a? b*", True, "ab", "ab", "ab"),
        ("!a -> b -> !c", False, "b", "b", "b"),
        ("a -> !b FOR 5 SECONDS -> c?", False, "a", "ac", "ac"),
        ("a | b c | d?", True, "abd", "acd", "abcd"),
        ("a & b c", False, "ab", "ac", "abc"),
        ("PERMUTE(a?, b?)", True, "ab", "ab", "ab"),
        ("(a b?){2,3} -> c?", False, "a", "abc", "abc"),
        ("((a | b)->+ WITHIN 1 MINUTE) a", False, "ab", "a", "ab"),
    ],
)
def test_a_summary(pattern: str, nullable: bool, first: str, last: str, taken: str) -> None:
    expected = Summary(nullable, tuple(first), tuple(last), tuple(taken))
    assert summary(tree(pattern)) == expected
    assert ir.summary(typed_pattern(tree(pattern), {})) == expected


def test_walks_meet_every_node_in_the_order_it_is_written() -> None:
    pattern = tree("a (b | c)+ -> (d & f)")
    kinds = ["Sequence", "Take", "Repeat", "Alternation", "Take", "Take", "Permutation", "Take", "Take"]
    nodes = list(ir.walk(typed_pattern(pattern, {})))
    assert [type(node).__name__ for node in nodes] == kinds
    assert [node.variable for node in nodes if isinstance(node, ir.Take)] == ["a", "b", "c", "d", "f"]
    names = {"Step": "Take", "Repetition": "Repeat"}
    written = [type(node).__name__ for node in ast.walk(pattern)]
    assert [names.get(name, name) for name in written] == kinds
