"""One run at a time on a checkpoint: a lock that the operating system releases when its holder dies.

The holders are the run's process and its JVM, which may continue for some seconds after the process was
killed: its last writes must not collide with those of the next run.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cep.errors import StateError
from cep.write_errors import writing

WAIT_SECONDS = 30.0
"""How many seconds a run waits for the JVM of a killed run."""

_POLL_SECONDS = 0.2


@contextmanager
def locked(checkpoint: str, say: Callable[[str], None] = lambda text: None) -> Iterator[int]:
    """Hold the lock of the checkpoint at a local path; yield its file descriptor.

    Raises StateError: another run holds it.

    `say`: called with one sentence if the run must wait for the lock.
    """
    file = Path(checkpoint) / "lock"
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(descriptor, checkpoint, say)
        os.truncate(descriptor, 0)
        about = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        try:
            yield descriptor
        finally:
            # The JVM holds it, too, and may be kept for the next run of this process.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, checkpoint: str, say: Callable[[str], None]) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    has_said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            about = _holder(descriptor)
            if not _is_dead(about) or time.monotonic() > give_up:
                raise StateError(
                    "E0711",
                    f"another run works on the checkpoint `{checkpoint}`{_who(about)}",
                    "wait until it ends or end it; a second pipeline needs a checkpoint of its own",
                ) from None
            if not has_said:
                say("waiting for the Java process of the last run, which was killed")
                has_said = True
            time.sleep(_POLL_SECONDS)


def _holder(descriptor: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(about: dict[str, object]) -> bool:
    """Return whether the holder ran on this machine and has ended."""
    pid = about.get("pid")
    if about.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _who(about: dict[str, object]) -> str:
    if not about:
        return ""
    return f": process {about.get('pid')} on {about.get('host')}, since {about.get('since')}"
