"""The order in which files of tests are run."""

from __future__ import annotations

from pathlib import Path

import pytest

_BESIDE = ("servers", "spark")
"""Folders whose files are run in turn: tests of servers wait, and those of Spark use all cores."""

_LONGEST = "test_sinks_together.py"
"""It comes first of its folder: at the end, one process would be alone with it for half a minute."""


def mix(items: list[pytest.Item]) -> None:
    """Put the tests of servers among those of Spark: two processes that both wait leave the cores idle."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    by_length = sorted(files, key=lambda path: path.name != _LONGEST)
    folders = [[path for path in by_length if path.parent.name == name] for name in _BESIDE]
    share = {path: (number + 0.5) / len(of) for of in folders for number, path in enumerate(of)}
    mixed = sorted(share, key=lambda path: share[path])
    order: list[Path] = []
    for path in files:
        if path not in share:
            order.append(path)
        else:
            order += mixed
            mixed = []
    items[:] = [item for path in order for item in files[path]]
