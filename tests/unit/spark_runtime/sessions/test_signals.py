"""Signals of a run: noted, deferred, ignored, and what follows a closed terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from spark_runtime.sessions import signals
from spark_runtime.sessions.signals import (
    awaited_stop,
    deferred,
    ignore_all,
    interrupt_on_ending,
    own_handler,
)

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(signals, "_SAME_REQUEST_S", 0.01)  # what a context waits at its end
    handlers = {number: signal.getsignal(number) for number in ALL}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if nohup runs the tests
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_sets_the_event_and_handlers_come_back(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with awaited_stop() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) == handler


def test_a_signal_at_once_again_is_the_same_request_and_a_later_one_interrupts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with awaited_stop() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        now += 1.5
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.is_set()


def test_an_interrupt_that_a_shell_lets_be_ignored_in_the_background_stops_a_stream() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with awaited_stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_sighup_stays_ignored_under_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with awaited_stop() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
    interrupt_on_ending()
    signal.raise_signal(signal.SIGHUP)


def start(done: list[str], *numbers: signal.Signals, fails: bool = False) -> None:
    """Start what stands for Java, while signals come."""
    with deferred():
        for number in numbers:
            signal.raise_signal(number)
        if fails:
            raise OSError("Java is gone")
        done.append("started")


def test_a_signal_waits_until_java_has_started() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        start(done, signal.SIGINT)
    assert done == ["started"]
    with awaited_stop() as stop:
        start(done, signal.SIGTERM)
    assert (done, stop.is_set()) == (["started"] * 2, True)


def test_a_signal_that_ended_java_is_not_lost_with_the_error() -> None:
    with awaited_stop() as stop, pytest.raises(OSError, match="Java"):
        start([], signal.SIGTERM, fails=True)
    assert stop.is_set()


def test_java_that_never_starts_can_be_interrupted() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        start(done, *[signal.SIGINT] * (signals._MOST_DEFERRED + 1))
    assert done == []


def test_a_handler_of_its_own_survives_the_start_of_pyspark() -> None:
    with awaited_stop() as stop:
        with own_handler():
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # PySpark sets its own
        signal.raise_signal(signal.SIGINT)
    assert stop.is_set()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for _ in range(2):  # a notebook has the one of its last session
        with own_handler():
            signal.signal(signal.SIGINT, of_pyspark := _handler_of_pyspark())
        assert signal.getsignal(signal.SIGINT) is of_pyspark


def _handler_of_pyspark() -> Callable[[int, object], None]:
    def handler(number: int, frame: object) -> None:
        pass

    handler.__module__ = "pyspark.core.context"
    return handler


@pytest.mark.parametrize("number", ALL)
def test_sigterm_and_a_closed_terminal_interrupt_a_batch(number: signal.Signals) -> None:
    interrupt_on_ending()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    ignore_all()
    signal.raise_signal(number)


def test_after_the_terminal_is_closed_output_is_no_error() -> None:
    # The context waits for a second, here for as long as the second signal takes: a busy machine may be slow.
    code = (
        "import fcntl, os, sys, termios, time\n"
        "from types import SimpleNamespace\n"
        "from spark_runtime.sessions import signals\n"
        "noted, sent = map(int, sys.argv[1:])\n"
        "def sleep(seconds):\n"
        "    os.write(noted, b'%.1f' % seconds)\n"
        "    os.read(sent, 1)\n"
        "signals.time = SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep)\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "with signals.awaited_stop() as stop:\n"
        "    print('ready', flush=True)\n"
        "    while not stop.is_set():\n"
        "        time.sleep(0.01)\n"
        "print('the summary', flush=True)\n"
        "os._exit(7)\n"
    )
    ours, theirs = pty.openpty()
    (is_noted, noted), (sent, send) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(noted), str(sent)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        pass_fds=(noted, sent),
        start_new_session=True,
    )
    for each in (theirs, noted, sent):
        os.close(each)
    said = b""
    while b"ready" not in said:
        said += os.read(ours, 100)
    os.close(ours)  # the terminal is closed: the first signal is the system's
    assert os.read(is_noted, 10) == b"1.0"  # nothing if the context ends at once
    process.send_signal(signal.SIGHUP)  # the shell's
    for each in (send, is_noted):
        os.close(each)
    assert process.wait(60) == 7
