"""Servers of tests: their processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from scenarios.servers.process import running, wait_until

__all__ = ["ended_with_this_process", "running", "wait_until"]

_WATCH = """
import os, signal, sys
sys.stdin.read()  # ends with the process that holds the other end, however it ends
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


@contextmanager
def ended_with_this_process(group: int) -> Iterator[None]:
    """Let a group of processes end when this process is killed.

    `running` asks the system for that. But a server that a script starts is not told: the system ends the
    script only.
    """
    watcher = subprocess.Popen(
        [sys.executable, "-c", _WATCH, str(group)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        assert watcher.stdin is not None
        watcher.stdin.close()
