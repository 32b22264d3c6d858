"""A match over the nodes of a tree says what to do with each of them. A new kind of node is a type error."""

from __future__ import annotations

import ast as python
from pathlib import Path

import pytest

import cep.expression
from cep.compiler import ir
from cep.language import ast

ROOT = Path(__file__).parents[3]
PATHS = [
    *(path for room in ("compiler", "explain", "language") for path in (ROOT / "cep" / room).rglob("*.py")),
    ROOT / "cep/expression.py",
]
UNIONS = {
    "ast": ast.Pattern | ast.Expression | ast.Window | ast.EventWindow,
    "ir": ir.Node | ir.Window | ir.EventWindow,
    "": cep.expression.Expression,
}
NODES = {(module, node.__name__) for module, union in UNIONS.items() for node in union.__args__}


def classes(pattern: python.pattern) -> set[tuple[str, str]]:
    """The classes that `pattern` asks its subject for."""
    match pattern:
        case python.MatchClass(cls=python.Attribute(value=python.Name(id=module), attr=name)):
            return {(module, name)}
        case python.MatchClass(cls=python.Name(id=name)):
            return {("", name)}
        case python.MatchOr(patterns=patterns):
            return set().union(*map(classes, patterns))
        case python.MatchAs(pattern=python.pattern() as inner):
            return classes(inner)
        case _:
            return set()


def ends_in_assert_never(match: python.Match) -> bool:
    *named, last = match.cases
    is_bare = [python.unparse(case.pattern) == "_" and case.guard is None for case in named]
    subject = python.unparse(match.subject)
    body = [python.unparse(statement) for statement in last.body]
    return not any(is_bare) and python.unparse(last.pattern) == "_" and body == [f"assert_never({subject})"]


def open_matches(text: str, module: str = "") -> list[int]:
    """The lines of matches over nodes that do not end in `assert_never`; names of `module` are bare."""
    found = []
    for node in python.walk(python.parse(text)):
        if isinstance(node, python.Match):
            asked = set().union(*(classes(case.pattern) for case in node.cases))
            own = {(of or module, name) for of, name in asked}
            if (asked | own) & NODES and not ends_in_assert_never(node):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_match_over_nodes_ends_in_assert_never(path: Path) -> None:
    module = {"cep/language/ast.py": "ast", "cep/compiler/ir.py": "ir"}.get(str(path.relative_to(ROOT)), "")
    assert open_matches(path.read_text(), module) == []


@pytest.mark.parametrize(
    ("cases", "is_open"),
    [
        ("case ir.Take():\n  pass\n case _:\n  assert_never(node)", False),
        ("case ir.Take():\n  pass", True),
        ("case ir.Take():\n  pass\n case _:\n  pass", True),
        ("case ir.Take():\n  pass\n case _:\n  assert_never(other)", True),
        ("case ir.Take() | ir.Absent():\n  pass\n case _:\n  return None", True),
        ("case Column(name='x') as found:\n  pass\n case _:\n  return None", True),
        ("case ir.Skip():\n  pass", False),
    ],
)
def test_the_test_finds_a_match_that_is_left_open(cases: str, is_open: bool) -> None:
    assert (open_matches(f"match node:\n {cases}") == [1]) is is_open
