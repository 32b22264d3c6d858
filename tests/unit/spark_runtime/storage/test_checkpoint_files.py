"""Files of a remote checkpoint; tests/spark/test_remote_checkpoint.py has more."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from cep.errors import InputError
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


class Thrown:
    """An exception of Java."""

    _target_id = "o1"
    _gateway_client = SimpleNamespace(converters=[], send_command=lambda command: "!ysx")

    def __init__(self, name: str, message: str | None) -> None:
        self._name, self._message = name, message

    def getClass(self) -> Any:
        return SimpleNamespace(getSimpleName=lambda: self._name)

    def getMessage(self) -> str | None:
        return self._message


class Refusing:
    """A store that refuses what is written: when a file is created, or when it is complete."""

    def __init__(self, thrown: Thrown, when: str) -> None:
        self.thrown, self.when = thrown, when

    def _step(self, name: str) -> Refusing:
        if name == self.when:
            raise Py4JJavaError("An error occurred while calling o1928.close.", cast("Any", self.thrown))
        return self

    def getScheme(self) -> str:
        return "s3a"

    def create(self, *arguments: object) -> Refusing:
        return self._step("create")

    def createFile(self, place: object) -> Refusing:
        return self._step("create")

    def overwrite(self, *arguments: object) -> Refusing:
        return self

    recursive = opt = build = overwrite

    def write(self, data: bytearray) -> None:
        self._step("write")

    def close(self) -> None:
        self._step("close")

    def delete(self, *arguments: object) -> None:
        self._step("delete")

    def open(self, place: object) -> Any:
        raise Py4JJavaError("it is missing", cast("Any", Thrown("FileNotFoundException", None)))


DENIED = "s3a://b/p/plan/1: Writing Object on plan/1: Access Denied (Service: S3, Status Code: 403)\n at x"


@pytest.mark.parametrize("when", ["create", "write", "close", "delete"])
@pytest.mark.parametrize(
    ("name", "message", "code", "told"),
    [
        (
            "AccessDeniedException",
            DENIED,
            "E0617",
            "Writing Object on plan/1: Access Denied (Service: S3, St",
        ),
        ("AccessControlException", "Permission denied: user=x", "E0617", "Permission denied: user=x"),
        ("IOException", "No space left on device", "E0616", "No space left on device"),
        ("AWSBadRequestException", "s3a://b/p/plan/1: 400", "E0609", ": 400"),
        ("IllegalStateException", None, "E0609", ": IllegalStateException"),
    ],
)
def test_what_cannot_be_written_is_told_with_its_place_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, when: str, name: str, message: str | None, code: str, told: str
) -> None:
    files = HadoopFiles.__new__(HadoopFiles)
    files.root = "s3a://b/p"
    store = Refusing(Thrown(name, message), when)
    monkeypatch.setattr(HadoopFiles, "_place", lambda self, name: (store, name))
    uses: list[Callable[[], object]] = [lambda: files.remove("plan/1")]
    if when != "delete":
        uses = [lambda: files.write("plan/1", "a"), lambda: files.create("plan/1", "a")]
    for use in uses:
        with pytest.raises(InputError) as raised:
            use()
        assert raised.value.code == code
        assert "`s3a://b/p/plan/1`" in raised.value.args[0]
        assert told in raised.value.args[0]
        assert "o1928" not in str(raised.value)
