"""Turns Spark's exceptions into errors that a user can act on, without traces of the JVM or of a worker."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from pyspark.errors import PySparkException

from cep.errors import CepError, InputError, StateError
from cep.write_errors import write_error
from spark_runtime.compat.driver import condition_of
from spark_runtime.sessions.local_session import java_log

_OURS = re.compile(
    r"cep\.errors\.(?:InputError|StateError|CepError): error\[(E\d{4})\]: (.*?)(?:\nhelp: (.*?))?(?:\n|$)"
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\] ?([^\n]*)")
_FILE = re.compile(r"(?:file|s3a?|hdfs|abfss?|gs)://?\S+?(?=[\s,.;'`]*(?:\s|$))")
_OF_THE_SYSTEM = (
    ("No space left on device", errno.ENOSPC),
    ("Permission denied", errno.EACCES),
    ("Read-only file system", errno.EROFS),
)
_WRAPPERS = ("STREAM_FAILED", "PYTHON_EXCEPTION", "TASK_WRITE_FAILED")


_FULL_SHARE, _FULL_BYTES = 0.005, 1 << 20
"""A disk with less free space is taken for the full one: unfinished files have already been removed."""


def as_cep_error(error: BaseException, places: Sequence[str] = ()) -> CepError:
    """Return the error that a user sees for `error`. `places` are the folders to which the run writes."""
    if isinstance(error, CepError):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        code, fact, help_text = ours.groups()
        kind = StateError if code.startswith("E07") else InputError
        return kind(code, fact, help_text or "")
    for words, cause in _OF_THE_SYSTEM:
        if words in text:
            # Spark's writers, Java and Python name the place in different ways.
            said = re.search(
                rf"Task failed while writing rows to (?:file:)?(\S*/\S*[^\s.])|(\S*/\S*): {re.escape(words)}"
                rf"|(/\S*) \({re.escape(words)}\)",
                text,
            ) or re.search(rf"{re.escape(words)}: '([^'\n]*/[^'\n]*)'()()", text)
            named = None if said is None else next(filter(None, said.groups()))
            if named is None and cause == errno.ENOSPC:
                named = "` or `".join(_full(places) or places)
            return write_error(
                (named or "a folder of Spark, or the checkpoint").strip("'\""), OSError(cause, words)
            )
    if "Concurrent update to the log" in text:
        return StateError(
            "E0711",
            "another run works on the checkpoint",
            "wait until it ends or end it; a second pipeline needs a checkpoint of its own",
        )
    found = [(name, rest) for name, rest in _CONDITION.findall(text) if name not in _WRAPPERS]
    name, rest = found[0] if found else ("", _first_line(text))
    if isinstance(error, PySparkException) and not found:
        name = condition_of(error)
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
    fact = _python_error(text) or _first_line(rest)
    log = java_log()
    help_text = "" if log is None else f"Java's messages are in {log}"
    return CepError("E0804", f"Spark failed{condition}: {fact}", help_text)


def _full(places: Sequence[str]) -> list[str]:
    """Return the folders whose disk is full, or cannot hold another file."""
    found = []
    for place in places:
        try:
            disk = os.statvfs(place)
        except OSError:
            continue
        free = disk.f_bavail * disk.f_frsize
        has_no_files = disk.f_files > 0 and disk.f_favail == 0
        if free < max(_FULL_BYTES, _FULL_SHARE * disk.f_blocks * disk.f_frsize) or has_no_files:
            found.append(place)
    return found


def _python_error(text: str) -> str:
    """Return the last line of the first Python traceback, which caused the others."""
    _, found, after = text.partition("Traceback (most recent call last):\n")
    if not found:
        return ""
    lines = iter(after.splitlines())
    # Lines of a traceback are indented, except the last.
    return next((_first_line(line) for line in lines if line.strip() and not line.startswith(" ")), "")


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    return line if len(line) <= 300 else line[:300] + "..."
