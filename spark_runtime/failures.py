"""Spark's exceptions -> errors that a user can act on. No trace of the JVM or of a worker gets through."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from cep.errors import CepError, InputError, StateError
from spark_runtime.session import java_log

CODES: dict[str, str] = {
    "E0601": "no such file or directory",
    "E0606": "a file cannot be read",
    "E0702": "the state in a checkpoint cannot be read",
    "E0804": "Spark failed",
}
"""Code -> meaning of what can happen while Spark runs."""

_OURS = re.compile(
    r"cep\.errors\.(?:InputError|StateError|CepError): error\[(E\d{4})\]: (.*?)(?:\nhelp: (.*?))?(?:\n|$)"
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\] ?([^\n]*)")
_FILE = re.compile(r"(?:file|s3a?|hdfs|abfss?|gs)://?\S+?(?=[\s,.;'`]*(?:\s|$))")
_WRAPPERS = ("STREAM_FAILED", "PYTHON_EXCEPTION", "TASK_WRITE_FAILED")


def as_cep_error(error: BaseException) -> CepError:
    """Return what `error` means to a user."""
    if isinstance(error, CepError):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        code, fact, help_text = ours.groups()
        kind = StateError if code.startswith("E07") else InputError
        return kind(code, fact, help_text or "")
    found = [(name, rest) for name, rest in _CONDITION.findall(text) if name not in _WRAPPERS]
    name, rest = found[0] if found else ("", _first_line(text))
    if isinstance(error, PySparkException) and not found:
        name = error.getCondition() or ""
    file = _FILE.search(text)
    where = f"`{file.group(0).strip('`')}`" if file else "a file of the input"
    if name.startswith("PATH_NOT_FOUND"):
        return InputError("E0601", f"there is no file or directory {where}")
    if name.startswith(("FAILED_READ_FILE", "CANNOT_READ_FILE", "MALFORMED", "CANNOT_MERGE_SCHEMA")):
        return InputError("E0606", f"{where} cannot be read: {_first_line(rest)}")
    if "STATE_STORE" in name or "CHECKPOINT" in name or name.startswith("STREAMING_STATEFUL"):
        return StateError(
            "E0702",
            f"the state in the checkpoint cannot be read: {_first_line(rest)}",
            "restore the checkpoint directory, or start with an empty one",
        )
    condition = f" ({name})" if name else ""
    return CepError(
        "E0804", f"Spark failed{condition}: {_first_line(rest)}", f"Java's messages are in {java_log()}"
    )


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    return line if len(line) <= 300 else line[:300] + "..."
