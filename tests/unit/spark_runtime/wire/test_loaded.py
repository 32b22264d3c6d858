"""What a worker has loaded is excluded from garbage collection, once for each time that it loads modules."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from spark_runtime.wire import loaded


def test_objects_are_frozen_only_after_modules_were_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(len(sys.modules)))
    monkeypatch.setattr(loaded, "_n_modules", 0)
    for _ in range(3):
        loaded.freeze_loaded()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "loaded_later", ModuleType("loaded_later"))
    for _ in range(3):
        loaded.freeze_loaded()
    assert len(frozen) == 2
