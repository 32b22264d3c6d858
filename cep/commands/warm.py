"""`cep warm` compiles the engine before the first run."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from cep.commands.options import progress_option, quiet_option
from cep.commands.progress_line import ProgressLine, progress_line

TEXT = "compiling the engine: about two minutes of processor time, once after an installation"

LINE_SECONDS = 10.0
"""Where each text is a line of its own, so much later it is said again how far it is."""


@click.command()
@quiet_option
@progress_option
def warm(quiet: bool, progress: bool | None) -> None:
    """Compile the engine for this processor, once after an installation.

    Without this command the first run compiles it. The compiled code is kept beside the package, or in the
    user's cache if nothing can be written beside the package.
    """
    seconds = compile_engine(progress_line(quiet, progress), quiet)
    if not quiet:
        click.echo(f"compiled the engine in {seconds:.0f} s" if seconds else "the engine is compiled already")


def compile_engine(line: ProgressLine, quiet: bool, with_windows: bool = True) -> float:
    """Compile the engine if it is not compiled yet, and return how many seconds it took.

    Parameters
    ----------
    line
        Shows the progress.
    quiet
        Whether nothing is said.
    with_windows
        Whether rules need the kernels of windows. If anything has to be compiled, all of it is.
    """
    from cep.engine.warm import is_warm, warm_up

    if is_warm(with_windows):
        return 0.0
    started = time.perf_counter()
    if not quiet:
        warm_up(CompilingLines(line, time.monotonic).show)
        line.clear()
    else:
        warm_up()
    return time.perf_counter() - started


class CompilingLines:
    """Says that the engine is compiled, and how far it is: a line that changes, or a line now and then.

    Parameters
    ----------
    line
        Where it is said.
    clock
        Seconds, from anywhere on.
    """

    def __init__(self, line: ProgressLine, clock: Callable[[], float]) -> None:
        self._line = line
        self._clock = clock
        self._changes = line.is_shown and line.stream.isatty()
        self._told = clock()
        if self._changes:
            line.show(TEXT)
        else:
            self._say(TEXT)

    def show(self, n_compiled: int, n: int) -> None:
        """Say how many of the kernels are compiled."""
        if self._changes:
            self._line.show(f"{TEXT}: {n_compiled} of {n} kernels")
        elif not self._line.is_silent and self._clock() - self._told >= LINE_SECONDS:
            self._told = self._clock()
            self._say(f"compiling the engine: {n_compiled} of {n} kernels")

    def _say(self, text: str) -> None:
        self._line.stream.write(f"{text}\n")
        self._line.stream.flush()
