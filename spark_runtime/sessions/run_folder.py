"""The private folder of a JVM that we start: its log, its temporary files, the blocks of Spark.

The files of an archive of `cep package` are unpacked into such a folder, too.

    <place>/spark-cep-XXXXXXXX/    only the user can read it
        lock        names this machine; held while this process or the JVM lives
        java.log    the output of Java
        ...         files of Java and Spark

A killed process does not remove its folder. The next start does: a lock that can be taken has no holder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cep.errors import SetupError

_PREFIX = "spark-cep-"

KEPT_LOGS = 5
"""How many logs with messages of ended runs are kept; older ones are removed."""

_USUAL_LINE = re.compile(
    r"WARNING: |NOTE: Picked up |Picked up |Setting default log level |To adjust logging level |\s*$"
)
"""Prefixes of the lines that Java always writes when it starts."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """An open folder; `lock` is the file descriptor of its lock."""

    path: Path
    lock: int

    @property
    def log(self) -> Path:
        """The file with Java's messages."""
        return self.path / "java.log"

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)


def places(settings: Mapping[str, str]) -> list[Path]:
    """Return the folders for temporary files: `spark.local.dir`, SPARK_LOCAL_DIRS, or TMPDIR."""
    given = settings.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return [Path(place.strip()).absolute() for place in given.split(",") if place.strip()]


def open_run_folder(place: Path) -> RunFolder:
    """Create and lock a folder in `place`; remove the folders that dead runs have left there.

    Raises SetupError: the folder cannot be created.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        _remove_remains(place)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        raise SetupError(
            "E0808",
            f"no temporary folder can be made in `{place}`: {error.strerror}",
            "name another place: TMPDIR, or the setting spark.local.dir",
        ) from error
    # A lock without a holder would look like that of a dead run.
    unfinished = path / ".lock"
    lock = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, _machine())
        unfinished.rename(path / "lock")
    except OSError:  # this file system has no locks; a folder without a lock is never removed
        unfinished.unlink()
    return RunFolder(path, lock)


def messages_of(log: Path) -> list[str]:
    """Return what Java wrote apart from its usual lines at the start."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if not _USUAL_LINE.match(line)]


def is_quiet(log: Path) -> bool:
    """Return whether Java wrote only its usual lines at the start."""
    return not messages_of(log)


def _remove_remains(place: Path) -> None:
    """Remove the folders in `place` whose owners are dead, except the newest logs with messages."""
    logs = []
    for folder in place.glob(f"{_PREFIX}*"):
        lock = _lock_of(folder)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_quiet(folder / "java.log"):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                _remove_all_but_the_log(folder)
                logs.append(folder)
        except OSError:  # a live run holds it
            continue
        finally:
            os.close(lock)
    for folder in sorted(logs, key=_age)[KEPT_LOGS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _age(folder: Path) -> float:
    try:
        return -(folder / "java.log").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _lock_of(folder: Path) -> int | None:
    """Return the opened lock of a folder of ours, or None if it is not one.

    A folder of another machine, on a shared disk, is not: locks may work only within one machine.
    """
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    if os.pread(lock, 1000, 0) == _machine():
        return lock
    os.close(lock)
    return None


def _machine() -> bytes:
    return socket.gethostname().encode()


def _remove_all_but_the_log(folder: Path) -> None:
    for item in folder.iterdir():
        if item.name in ("java.log", "lock"):
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)
