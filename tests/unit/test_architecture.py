"""What ARCHITECTURE.md promises and import contracts cannot see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = [path for path in sorted((ROOT / "cep").rglob("*.py")) if path.name not in ("cli.py", "__main__.py")]
SURROUNDINGS = {"os", "platform", "random", "secrets", "socket", "tempfile", "time", "uuid"}


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_reads_no_clock_no_environment_and_no_random_source(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                assert not {name.name.split(".")[0] for name in names} & SURROUNDINGS
            case ast.ImportFrom(module=str(module)):
                assert module.split(".")[0] not in SURROUNDINGS
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "today" | "utcnow"):
                pytest.fail(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Attribute(attr="random" | "environ"):
                pytest.fail(f"line {node.lineno}: {ast.unparse(node)}")


@pytest.mark.parametrize("package", ["cep", "rules", "scenarios", "spark_runtime"])
def test_nothing_executes_or_unpickles_what_it_reads(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="eval" | "exec" | "__import__")):
                    pytest.fail(f"{path}:{node.lineno}: {ast.unparse(node)}")
                case ast.Import(names=names):
                    assert not {name.name for name in names} & {
                        "pickle",
                        "cloudpickle",
                        "marshal",
                        "shelve",
                    }, path
