"""Tests that look further than the gate: `make deep-test` runs them.

A test is marked `deep` if it kills whole pipelines at points that `make sweep` covers, too, or does with
another server what a test of the gate does with one (`deep(but=ID)`: all but one of its parameters). A test
that is named on the command line always runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest


def n_cases(n: int) -> int:
    """Return how many random cases to try of `n`: half of them in the gate."""
    return n if os.environ.get("CEP_DEEP") == "all" else (n + 1) // 2


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--deep` keep only the tests that are marked; without it drop them, but those that are named."""
    is_wanted = bool(config.getoption("--deep"))
    named = () if is_wanted else tuple(argument for argument in config.args if "::" in argument)
    dropped = [item for item in items if _is_deep(item) is not is_wanted and not _is_named(item, named)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if _is_deep(item) is is_wanted or _is_named(item, named)]


def _is_named(item: pytest.Item, named: Sequence[str]) -> bool:
    """Return whether an argument of the command line names the test, or its function."""
    of_file = item.nodeid.partition("::")[2]
    for argument in named:
        path, _, name = argument.partition("::")
        is_same_file = Path(path).resolve() == item.path
        if is_same_file and (of_file == name or of_file.startswith((f"{name}[", f"{name}::"))):
            return True
    return False


def _is_deep(item: pytest.Item) -> bool:
    """Return whether the test is marked; with `but=ID` the gate tries the parameter of this id."""
    mark = item.get_closest_marker("deep")
    return mark is not None and not ("but" in mark.kwargs and f"[{mark.kwargs['but']}]" in item.name)
