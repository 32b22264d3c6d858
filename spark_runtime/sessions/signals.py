"""Ctrl-C, SIGTERM and SIGHUP: an exception within a call to Java would break that connection."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_SAME_REQUEST_S = 1.0
"""A shell that forwards a signal, which its process group has received, does so within these seconds."""

_MOST_DEFERRED = 3
"""Signals that wait for the start of Java; the next one interrupts it, because Java may never start."""


@contextmanager
def awaited_stop() -> Iterator[threading.Event]:
    """Make a signal set the event; one that comes more than a second later interrupts as usual.

    The context does not end within that second: when a terminal is closed, the shell's SIGHUP often follows
    the system's, and would end the program before it says how the run ended.

    SIGHUP stays ignored under ``nohup``. In another thread than the main one, nothing sets the event. The
    main thread may ask ``is_set`` only: while it waits, it may hold the lock that the handler needs.
    """
    noted, first, terminals = threading.Event(), 0.0, _terminals()

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if number == signal.SIGHUP:
            _leave(terminals)
        if not noted.is_set():
            first = time.monotonic()
            noted.set()
        elif time.monotonic() - first > _SAME_REQUEST_S:
            raise KeyboardInterrupt

    with _handled_by(note):
        try:
            yield noted
        finally:
            if noted.is_set():
                time.sleep(max(0.0, first + _SAME_REQUEST_S - time.monotonic()))


@contextmanager
def deferred() -> Iterator[None]:
    """In this context let signals wait for its end, where the first one is raised again.

    If a signal interrupted the start of Java, nobody would end the Java process.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if len(noted) > _MOST_DEFERRED:
            raise KeyboardInterrupt

    try:
        with _handled_by(note):
            yield
    finally:  # even if the signal has ended Java, too
        for number in noted[:1]:
            signal.raise_signal(number)


@contextmanager
def own_handler() -> Iterator[None]:
    """Keep the program's own handler of Ctrl-C, which PySpark replaces when it starts.

    The handler of PySpark cancels all jobs through Py4J, which the interrupted thread may be using.
    """
    before = signal.getsignal(signal.SIGINT)
    yield
    # The handler of an earlier session would cancel the jobs of that session.
    is_own = callable(before) and before is not signal.default_int_handler
    is_own = is_own and "pyspark" not in getattr(before, "__module__", "")
    if is_own and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def interrupt_on_ending() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does; SIGHUP stays ignored under ``nohup``."""
    terminals = _terminals()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave(terminals)
        raise KeyboardInterrupt

    for number in _handled():
        if number != signal.SIGINT:  # Python itself interrupts then
            signal.signal(number, interrupt)


def ignore_all() -> None:
    """Ignore the signals: the process has stopped, and is to end with the exit code that says so."""
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)


def _terminals() -> list[int]:
    """Return which of standard output and standard error are terminals that are still open."""
    return [number for number in (1, 2) if os.isatty(number)]


def _leave(terminals: Sequence[int]) -> None:
    """Write to nothing what would go to a terminal that was closed: an error would hide the end."""
    for number in terminals:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _handled() -> list[signal.Signals]:
    """Return the signals that are handled.

    What a shell starts in the background ignores SIGINT at first; whoever sends it there wants an end.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _ALL if not (is_kept and number == signal.SIGHUP)]


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """In this context let `handler` handle the signals, but not SIGHUP under ``nohup``."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    before = {number: signal.getsignal(number) for number in _handled()}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)
