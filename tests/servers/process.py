"""A process of a server: started, and ended by its id, whatever happens."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 20


def require(is_there: bool, what: str, command: str = "make servers") -> None:
    """Skip the test where a server is missing; fail where the environment says that servers are required."""
    if is_there:
        return
    why = f"{what} is missing; get it with: {command}"
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose output goes to `log`, and end it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(
    answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60
) -> None:
    """Wait until a server answers; fail with what it wrote if it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if answers():
            return
        time.sleep(0.05)
    pytest.fail(f"the server does not start:\n{log.read_text(errors='replace')[-4000:]}")


def _end_with_parent() -> None:
    """Ask the system to end this process when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
