"""Spark's exceptions as errors of ours."""

from __future__ import annotations

import pytest

from cep.errors import CepError
from spark_runtime.failures import as_cep_error

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
