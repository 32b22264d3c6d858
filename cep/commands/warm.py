"""`cep warm` compiles the engine before the first run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from cep.commands.options import progress_option, quiet_option
from cep.commands.progress_line import ProgressLine, progress_line

if TYPE_CHECKING:
    from cep.program.program import Program

TEXT = "compiling the engine: up to two minutes of processor time, once after an installation"

LINE_SECONDS = 10.0
"""Where each text is a line of its own, the progress is printed again after this time."""


@click.command()
@quiet_option
@progress_option
def warm(quiet: bool, progress: bool | None) -> None:
    """Compile the engine for this processor, once after an installation.

    Without this command the first run compiles it. The compiled code is kept next to the package, or in the
    user's cache if nothing can be written there.
    """
    seconds = compile_engine(progress_line(quiet, progress), quiet)
    if not quiet:
        click.echo(f"compiled the engine in {seconds:.0f} s" if seconds else "the engine is compiled already")


def compile_engine(line: ProgressLine, quiet: bool, programs: Sequence[Program] | None = None) -> float:
    """Compile the engine if it is not compiled yet, and return how many seconds it took.

    Each core that this process may use compiles a part of it.

    `programs`: compile only what they need; None: everything.
    """
    from cep.engine.warm import is_warm, missing, warm_up

    if is_warm(programs is None or any(program.windows for program in programs)) or not missing(programs):
        return 0.0
    started = time.perf_counter()
    if not quiet:
        warm_up(CompilingLines(line, time.monotonic).show, programs, n_usable_cores())
        line.clear()
    else:
        warm_up(None, programs, n_usable_cores())
    return time.perf_counter() - started


def n_usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CompilingLines:
    """Shows the progress of compiling the engine: a line that changes, or a line from time to time.

    `clock`: returns seconds since some fixed time. `text`: what is being done.
    """

    def __init__(self, line: ProgressLine, clock: Callable[[], float], text: str = TEXT) -> None:
        self._line = line
        self._clock = clock
        self._text = text
        self._changes = line.is_shown and line.stream.isatty()
        self._told = clock()
        if self._changes:
            line.show(text)
        else:
            self._say(text)

    def show(self, n_compiled: int, n: int) -> None:
        """Show how many of the kernels are compiled."""
        if self._changes:
            self._line.show(f"{self._text}: {n_compiled} of {n} kernels")
        elif not self._line.is_silent and self._clock() - self._told >= LINE_SECONDS:
            self._told = self._clock()
            self._say(f"compiling the engine: {n_compiled} of {n} kernels")

    def _say(self, text: str) -> None:
        self._line.stream.write(f"{text}\n")
        self._line.stream.flush()
