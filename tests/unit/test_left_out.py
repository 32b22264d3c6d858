"""What becomes of a test whose server was not fetched, and that no test starts a server without asking."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_out import require

TESTS = Path(__file__).parents[1]

CONFTEST = """
from tests.left_out import pytest_addoption as pytest_addoption
from tests.left_out import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.left_out import pytest_ignore_collect as pytest_ignore_collect
from tests.left_out import pytest_sessionfinish as pytest_sessionfinish
"""
CASES = """
from pathlib import Path
import pytest
from tests.left_out import require

@pytest.mark.parametrize("number", [1, 2])
def test_of_a_server(number):
    require(Path("server").exists(), "the server")

def test_of_none():
    assert not Path("server").exists()

def test_of_another_system():
    pytest.skip("not Linux")
"""


def pytest_in(folder: Path, *options: str) -> list[str]:
    """Run pytest over the folder; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "CEP_SERVERS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", str(folder), *options, str(folder)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.deep
def test_the_last_line_says_what_was_left_out_and_these_tests_alone_are_run_later(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_cases.py").write_text(CASES)
    *_, summary, last = pytest_in(tmp_path)
    assert "1 passed, 3 skipped" in summary
    assert last == (
        "left out: 2 tests of 1 files, which need servers. "
        "To fetch the servers and run these tests: make test-servers"
    )
    assert "1 passed" in pytest_in(tmp_path, "-k", "none")[-1]  # another run forgets nothing
    (tmp_path / "test_others.py").write_text("raise AssertionError('this file is not read')")
    (tmp_path / "server").touch()
    assert "2 passed" in pytest_in(tmp_path, "--left-out")[-1]
    assert pytest_in(tmp_path, "--left-out")[-1] == "left out: nothing"


def test_without_a_server_a_test_is_skipped_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CEP_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the server is missing; get it with: make servers"):
        require(False, "the server")


def test_where_servers_are_required_a_missing_one_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEP_SERVERS", "required")
    with pytest.raises(pytest.fail.Exception, match="get it with: make servers"):
        require(False, "the server")


STARTERS = [
    path
    for path in sorted([*TESTS.glob("servers/*_server.py"), *TESTS.glob("servers/kafka_*.py")])
    if path.name != "web_server.py"  # its server is Python's own
]
"""The modules that start servers which the set-up does not bring."""


def called(function: ast.FunctionDef) -> set[str]:
    """Return the names of the functions that a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {name.id for name in calls if isinstance(name, ast.Name)}


@pytest.mark.parametrize("module", STARTERS, ids=lambda path: path.stem)
def test_what_starts_a_server_asks_first_whether_it_was_fetched(module: Path) -> None:
    functions = [node for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)]
    starters = [function for function in functions if function.name.startswith("running_")]
    assert starters
    for starter in starters:
        assert {"require", "require_kafka"} & called(starter), starter.name


def test_a_test_starts_servers_only_by_what_asks() -> None:
    for path in set(TESTS.rglob("*.py")) - set(STARTERS):
        source = path.read_text()
        if "scenarios.servers" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scenarios.servers"):
                starters = {alias.name for alias in node.names if alias.name.startswith("running_")}
                assert starters <= {"running_web_server"}, path
