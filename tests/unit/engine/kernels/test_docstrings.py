"""Every parameter of a public kernel is described, with the shape and type that its annotation promises."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import cep

DECORATORS = {"kernel", "inlined", "outlined"}
ITEMS = {"I32": "int32", "I64": "int64", "U64": "uint64", "U8": "uint8"}
NUMBERS = {"int", "float", "bool", "np.uint64"}

Described = dict[str, str]


def described(docstring: str) -> Described:
    """Return the parameters of a docstring in the style of numpydoc, with their types."""
    _, _, section = inspect.cleandoc(docstring).partition("Parameters\n----------\n")
    section = section.partition("\n\n")[0]
    found: Described = {}
    for names, kind in re.findall(r"^(\w[\w, ]*) : (.+)\n    \S", section, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), kind)
    return found


def problems(function: ast.FunctionDef, shared: Described) -> list[str]:
    """Return what is wrong with the description of a kernel's parameters."""
    own = described(ast.get_docstring(function) or "")
    taken = {parameter.arg: ast.unparse(parameter.annotation) for parameter in function.args.args}  # type: ignore[arg-type]
    # The signature of a function of plain numbers says it all.
    is_arithmetic = set(taken.values()) <= NUMBERS
    found = [f"{name} is no parameter" for name in own if name not in taken]
    for name, annotation in taken.items():
        kind = own.get(name) or (None if is_arithmetic else shared.get(name))
        if kind is None:
            found += [] if is_arithmetic else [f"{name} is not described"]
        elif annotation in ITEMS:
            if not re.fullmatch(rf"\([^()]+,?( \w+)*\) {ITEMS[annotation]}", kind):
                found.append(f"{name} is `{kind}`, not `(shape) {ITEMS[annotation]}`")
        elif kind != annotation:
            found.append(f"{name} is `{kind}`, not `{annotation}`")
    return found


def functions(source: str) -> list[ast.FunctionDef]:
    """Return the public kernels of a module and their public parts."""
    return [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and any(isinstance(mark, ast.Name) and mark.id in DECORATORS for mark in node.decorator_list)
    ]


def returns_something(function: ast.FunctionDef) -> bool:
    """Return whether a kernel has a result."""
    return function.returns is None or ast.unparse(function.returns) != "None"


def says_result(docstring: str) -> bool:
    """Return whether the first paragraph of a docstring, or a section of it, says what is returned."""
    first = docstring.partition("\n\n")[0]
    return re.search(r"\breturns?\b", first, re.IGNORECASE) is not None or "Returns\n-------\n" in docstring


ROOT = Path(str(cep.__file__)).parent


@cache
def shared_by(path: Path) -> Described:
    """Return the parameters that the docstrings of a module and of the packages above it describe for all."""
    found: Described = {}
    for folder in reversed([folder for folder in path.parents if folder.is_relative_to(ROOT)]):
        found |= described(ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "")
    return found | described(ast.get_docstring(ast.parse(path.read_text())) or "")


PUBLIC = [
    pytest.param(function, shared_by(path), id=f"{path.stem}.{function.name}")
    for path in sorted(ROOT.rglob("*.py"))
    if re.search(rf"^@({'|'.join(DECORATORS)})\b", text := path.read_text(), re.MULTILINE)
    for function in functions(text)
]


def test_all_kernels_are_looked_at() -> None:
    assert len(PUBLIC) > 200
    shared = shared_by(ROOT / "engine/kernels/columns/order.py")
    assert {"pool", "event", "rule", "runs", "slot", "fan_out", "codes"} <= shared.keys()


@pytest.mark.parametrize(("function", "shared"), PUBLIC)
def test_every_parameter_is_described(function: ast.FunctionDef, shared: Described) -> None:
    assert problems(function, shared) == []


@pytest.mark.parametrize(("function", "shared"), PUBLIC)
def test_what_is_returned_is_said(function: ast.FunctionDef, shared: Described) -> None:
    assert not returns_something(function) or says_result(ast.get_docstring(function) or "")


@pytest.mark.parametrize(
    ("docstring", "is_said"),
    [
        ("Return the sum.", True),
        ("Add a value; return\nhow many.", True),
        ("Take a run.\n\nIt returns.", False),
        ("Sort.\n\nReturns\n-------\nThe number.", True),
        ("Sort.", False),
    ],
)
def test_a_result_that_is_not_said_is_found(docstring: str, is_said: bool) -> None:
    assert says_result(docstring) == is_said


@pytest.mark.parametrize(("function", "shared"), PUBLIC)
def test_at_most_eight_parameters(function: ast.FunctionDef, shared: Described) -> None:
    assert len(function.args.args) <= 8


@pytest.mark.parametrize(
    ("docstring", "said"),
    [
        ("Sort.", ["values is not described", "n is not described"]),
        ("values : int64\n    x.\nn : int\n    y.", ["values is `int64`, not `(shape) int64`"]),
        ("values : (n,) int32\n    x.\nn : int\n    y.", ["values is `(n,) int32`, not `(shape) int64`"]),
        ("values : (n, 2) int64\n    x.\nn : float\n    y.", ["n is `float`, not `int`"]),
        ("values : (n,) int64\n    x.\nn, m : int\n    y.", ["m is no parameter"]),
        ("values : (n,) int64\n    x.\nn : int\n    y.", []),
    ],
)
def test_what_is_missing_or_wrong_is_found(docstring: str, said: list[str]) -> None:
    text = f"Parameters\n----------\n{docstring}"
    source = f"@kernel\ndef sort(values: I64, n: int) -> None:\n    {text!r}\n"
    [function] = functions(source)
    assert problems(function, {}) == said
