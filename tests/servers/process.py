"""Servers of tests: their processes, and what a test does where one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scenarios.servers.process import running, wait_until

__all__ = ["ended_with_this_process", "require", "running", "wait_until"]

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


def require(is_there: bool, what: str, command: str = "make servers") -> None:
    """Skip the test where a server is missing; fail where the environment says that servers are required."""
    if is_there:
        return
    why = f"{what} is missing; get it with: {command}"
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)
