"""Which tests a run chooses: those that look further than the gate only if they are asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deep import choose

FILE = Path(__file__)


def item(name: str, deep: dict[str, str] | None = None, of_class: str = "") -> Any:
    """Return a test of this file; `deep`: the arguments of its mark, None: it has none."""
    mark = None if deep is None else SimpleNamespace(kwargs=deep)
    nodeid = f"tests/unit/{FILE.name}::{of_class}{name}"
    return SimpleNamespace(nodeid=nodeid, name=name, path=FILE, get_closest_marker=lambda _: mark)


ITEMS = [
    item("test_a[1]"),
    item("test_b[1]", {}),
    item("test_b_too", {}, "TestC::"),
    item("test_d[kafka]", {"but": "kafka"}),
    item("test_d[nats]", {"but": "kafka"}),
]


@pytest.mark.parametrize(
    ("deep", "arguments", "chosen"),
    [
        (False, ["tests/unit"], ["test_a[1]", "test_d[kafka]"]),
        (True, ["tests/unit"], ["test_b[1]", "test_b_too", "test_d[nats]"]),
        # What is named runs; the files that are named beside it keep to their own.
        (False, ["tests/unit", "tests/property/test_engine.py::test_a"], ["test_a[1]", "test_d[kafka]"]),
        (False, [f"{FILE}::test_b"], ["test_a[1]", "test_b[1]", "test_d[kafka]"]),
        (False, [f"{FILE}::TestC"], ["test_a[1]", "test_b_too", "test_d[kafka]"]),
        (False, [f"{FILE}::test_d[nats]"], ["test_a[1]", "test_d[kafka]", "test_d[nats]"]),
    ],
)
def test_a_deep_test_runs_if_it_is_asked_for_or_named(
    deep: bool, arguments: list[str], chosen: list[str]
) -> None:
    dropped: list[Any] = []
    config: Any = SimpleNamespace(
        args=arguments,
        getoption=lambda name: deep,
        hook=SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items)),
    )
    items = list(ITEMS)
    choose(config, items)
    assert [one.name for one in items] == chosen
    assert sorted(one.name for one in [*items, *dropped]) == sorted(one.name for one in ITEMS)
