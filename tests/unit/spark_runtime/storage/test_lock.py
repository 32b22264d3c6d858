"""One run at a time on a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cep.errors import StateError
from spark_runtime.storage.lock import locked

HOLD = """
import sys
from spark_runtime.storage.lock import locked

with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""

HAND_ON = """
import subprocess, sys
from spark_runtime.storage.lock import locked

with locked(sys.argv[1]) as descriptor:
    heir = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
    print(heir.pid, flush=True)
    sys.stdin.read()
"""


@contextmanager
def started(code: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the lock, and what it says then."""
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_second_run_is_refused_and_told_who_holds_the_lock(tmp_path: Path) -> None:
    with started(HOLD, tmp_path) as (process, _):
        who = rf"E0711.*another run works on .*: process {process.pid} on "
        with pytest.raises(StateError, match=who), locked(str(tmp_path)):
            pass
        process.communicate(timeout=60)
        with locked(str(tmp_path)):
            pass


def test_the_lock_goes_with_its_holder_however_that_dies(tmp_path: Path) -> None:
    with started(HOLD, tmp_path) as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locked(str(tmp_path)):
            pass


def test_a_run_waits_for_what_a_killed_run_has_left(tmp_path: Path) -> None:
    with started(HAND_ON, tmp_path) as (process, heir):
        process.send_signal(signal.SIGKILL)
        process.wait()
        said: list[str] = []

        def end_it(text: str) -> None:
            said.append(text)
            os.kill(int(heir), signal.SIGKILL)

        with locked(str(tmp_path), end_it):
            assert said == ["waiting for the Java process of the last run, which was killed"]


def test_a_lock_that_was_given_back_is_free_although_another_process_has_it_too(tmp_path: Path) -> None:
    with locked(str(tmp_path)) as descriptor:
        heir = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
    try:
        with locked(str(tmp_path)):
            pass
    finally:
        heir.kill()
        heir.wait()
