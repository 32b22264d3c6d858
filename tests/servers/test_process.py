"""Servers end with the tests, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_TESTS = """
import subprocess, sys, time
from tests.servers.process import ended_with_this_process

server = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True, stdout=subprocess.DEVNULL)
with ended_with_this_process(server.pid):
    print(server.pid, flush=True)
    time.sleep(600)
"""


def test_a_server_that_a_script_starts_ends_when_the_tests_are_killed() -> None:
    tests = subprocess.Popen([sys.executable, "-c", _TESTS], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    group = int(tests.stdout.readline())
    assert alive(group)
    tests.send_signal(signal.SIGKILL)
    tests.wait()
    tests.stdout.close()
    while alive(group):  # the limit of all tests is the limit
        pass


def alive(group: int) -> bool:
    """Return whether a group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
