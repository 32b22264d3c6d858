"""The list of tests that do not run with Spark Connect names tests that exist."""

import ast
from pathlib import Path

from tests.spark.conftest import NOT_REMOTE

FOLDER = Path(__file__).parents[2] / "spark"


def test_each_test_that_is_left_out_exists() -> None:
    files = {path.name: ast.parse(path.read_text()) for path in FOLDER.glob("test_*.py")}
    functions = {
        node.name for tree in files.values() for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    assert [name for name in NOT_REMOTE if name not in functions | files.keys() and name[0] != "["] == []
