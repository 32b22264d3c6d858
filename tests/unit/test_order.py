"""In which order files of tests are run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.order import mix


@pytest.mark.parametrize(
    ("files", "order"),
    [
        ("e/a servers/a servers/b spark/a spark/b unit/a", "e/a servers/a spark/a servers/b spark/b unit/a"),
        ("servers/a spark/a spark/b spark/c", "spark/a servers/a spark/b spark/c"),
        ("unit/b unit/a", "unit/b unit/a"),
        ("spark/a unit/a servers/a", "servers/a spark/a unit/a"),
        ("servers/a servers/test_sinks_together.py", "servers/test_sinks_together.py servers/a"),
        ("", ""),
    ],
)
def test_tests_that_wait_are_among_those_that_compute(files: str, order: str) -> None:
    items: list[Any] = [SimpleNamespace(path=Path(file), n=n) for file in files.split() for n in range(2)]
    mix(items)
    assert [(str(item.path), item.n) for item in items] == [
        (file, n) for file in order.split() for n in (0, 1)
    ]
