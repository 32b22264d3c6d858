"""Files of a remote checkpoint; tests/spark/test_remote_checkpoint.py has more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from spark_runtime.storage.checkpoint_files import HadoopFiles


class Replaced:
    """A file of S3A that is replaced during the first reads: these fail, as the object is another one."""

    def __init__(self, n_changes: int) -> None:
        self.n_changes = n_changes

    def open(self, place: object) -> Replaced:
        return self

    def readAllBytes(self) -> bytes:
        self.n_changes -= 1
        if self.n_changes >= 0:
            changed: Any = SimpleNamespace(_target_id="o1", _gateway_client=SimpleNamespace(converters=[]))
            raise Py4JJavaError("RemoteFileChangedException", changed)
        return b"the new one"

    def close(self) -> None:
        """Do nothing."""


def reader(monkeypatch: pytest.MonkeyPatch, n_changes: int) -> HadoopFiles:
    files = HadoopFiles.__new__(HadoopFiles)
    store = Replaced(n_changes)
    monkeypatch.setattr(HadoopFiles, "_place", lambda self, name: (store, name))
    return files


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader(monkeypatch, 2).read("lease/1") == "the new one"
    with pytest.raises(Py4JJavaError):
        reader(monkeypatch, 3).read("lease/1")
