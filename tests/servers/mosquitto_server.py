"""A Mosquitto for tests: one process on this machine, which answers on 127.0.0.1 only."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.left_out import require
from tests.servers.kafka_broker import free_ports

USER, PASSWORD = "reader", "the-right-password"

_PR_SET_PDEATHSIG = 1


def find_mosquitto() -> str | None:
    """Return the command, None if it is missing."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def running_mosquitto(folder: Path) -> Iterator[tuple[int, int]]:
    """Start a broker; yield its port, and another one that asks for a password."""
    command = find_mosquitto()
    require(command is not None and find_spec("paho") is not None, "Mosquitto")
    assert command is not None
    port, closed = free_ports(2)
    passwords = folder / "passwords"
    passwords.write_text(f"{USER}:{PASSWORD}\n")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    passwords.chmod(0o644)
    (folder / "mosquitto.conf").write_text(
        "user root\nper_listener_settings true\npersistence false\nmax_queued_messages 0\n"
        f"listener {port} 127.0.0.1\nallow_anonymous true\n"
        f"listener {closed} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\n"
    )
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [command, "-c", str(folder / "mosquitto.conf")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", closed)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"Mosquitto does not start:\n{log.read_text()}")
                time.sleep(0.05)
        yield port, closed
    finally:
        process.terminate()
        process.wait(30)


def _end_with_parent() -> None:
    """Ask the system to end this process when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
