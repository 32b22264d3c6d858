"""A server process, which is started, and in any case ended by its id."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 20


class ServerError(Exception):
    """A server is missing, or does not start; the text says what to do, or what the server wrote."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The signal that asks a process to end; the one that kills it if it does not or this process dies."""

    asks: signal.Signals = signal.SIGTERM
    forces: signal.Signals = signal.SIGKILL


def free_ports(n: int) -> list[int]:
    """Return free ports of 127.0.0.1."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    user: str | None = None,
    folder: Path | None = None,
    ending: Ending = Ending(),
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose output goes to `log`, and end it.

    The process has its own session, so Ctrl-C on the terminal does not reach it: the server's users stop
    first. On Linux, the system ends it if this process is killed.

    - `command`: the program and its arguments.
    - `log`: the file of its output.
    - `environment`: environment variables in addition to those of this process.
    - `user`: the user as whom it runs; None: the user of this process.
    """
    process = None

    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ending.forces)

    try:
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - programs of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                user=user,
                cwd=folder,
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
            )
        yield process
    finally:
        if process is not None:
            process.send_signal(ending.asks)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:  # also after a second Ctrl-C
                if process.poll() is None:
                    process.send_signal(ending.forces)
                    process.wait()


def wait_until(
    answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60
) -> None:
    """Wait until a server answers.

    Raises ServerError: it has ended, or does not answer in this time. The text contains the end of its
    output.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if answers():
            return
        time.sleep(0.05)
    raise ServerError(f"the server does not start:\n{log.read_text(errors='replace')[-4000:]}")
