"""Spark's exceptions as errors of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cep.errors import CepError
from spark_runtime.pipeline.failures import as_cep_error

PYTHON = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 642, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "sink.py", line 3, in write
    raise ValueError("no such table")
ValueError: no such table
	at org.apache.spark.Somewhere
"""


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("java.io.IOException: No space left on device", "E0616", "no space is left to write"),
        ("java.io.FileNotFoundException: /x/y (Permission denied)", "E0617", "Permission denied"),
        ("mkdir of /mnt/x failed: Read-only file system", "E0617", "Read-only file system"),
        (
            "Concurrent update to the log. Multiple streaming jobs detected for 2",
            "E0711",
            "another run works",
        ),
        (PYTHON, "E0804", "Spark failed: ValueError: no such table"),
        (
            "cep.errors.InputError: error[E0606]: `a.gz` cannot be read: cut\nhelp: repair it\n",
            "E0606",
            "cut",
        ),
        ("assertion failed", "E0804", "assertion failed"),
    ],
)
def test_an_exception_of_spark_is_told_by_its_cause(text: str, code: str, words: str) -> None:
    error = as_cep_error(RuntimeError(text))
    assert error.code == code
    assert words in str(error)
    assert "Traceback" not in str(error)


def test_an_error_of_ours_stays_what_it_is() -> None:
    error = CepError("E0804", "fact")
    assert as_cep_error(error) is error


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/x/alerts/batch=1-0. SQLSTATE: 5\n"
            "Caused by: java.io.IOException: No space left on device",
            "/x/alerts/batch=1-0",
        ),
        ("OSError: [Errno 28] No space left on device: '/x/my alerts/a.json'", "/x/my alerts/a.json"),
        ("java.io.IOException: No space left on device", "a folder of Spark, or the checkpoint"),
        ("/x/y: No space left on device", "/x/y"),
    ],
)
def test_a_full_disk_is_named_where_the_text_names_it(text: str, place: str) -> None:
    assert str(as_cep_error(RuntimeError(text))) == (
        f"error[E0616]: no space is left to write `{place}`: No space left on device\n"
        "help: make room on that disk and run again"
    )


def test_without_a_path_in_the_message_a_full_disk_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("checkpoint", "out", "tmp", "inodes")
    folders = {name: str(tmp_path / name) for name in names}
    free = {"checkpoint": 20_000, "out": 3 << 30, "tmp": 1 << 20, "inodes": 3 << 30}

    def statvfs(path: str) -> os.statvfs_result:
        name = Path(path).name
        if name not in free:
            raise FileNotFoundError
        n_files = 0 if name == "inodes" else 5
        return os.statvfs_result((1, 1, 4 << 30, free[name], free[name], 10, n_files, n_files, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    full = RuntimeError("org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device")

    def said(*of: str) -> str:
        return str(as_cep_error(full, [folders[name] for name in of] + ["/missing"]).args[0])

    assert f"`{folders['checkpoint']}`:" in said("out", "checkpoint")
    assert f"`{folders['checkpoint']}` or `{folders['tmp']}`:" in said(*names[:3])
    assert f"`{folders['inodes']}`:" in said("out", "inodes")
    assert f"`{folders['out']}` or `/missing`:" in said("out")  # it has room again
    named = RuntimeError("java.io.FileNotFoundException: /x/y (No space left on device)")
    assert "`/x/y`:" in str(as_cep_error(named, list(folders.values())).args[0])
