"""`cep warm` compiles the engine before the first run."""

from __future__ import annotations

import time

import click

from cep.commands.options import progress_option, quiet_option
from cep.commands.progress_line import ProgressLine, progress_line


@click.command()
@quiet_option
@progress_option
def warm(quiet: bool, progress: bool | None) -> None:
    """Compile the engine for this processor, once after an installation.

    Without this command the first run compiles it. The compiled code is kept beside the package, or in the
    user's cache if nothing can be written beside the package.
    """
    seconds = compile_engine(progress_line(quiet, progress), quiet=True)
    if not quiet:
        click.echo(f"compiled the engine in {seconds:.0f} s" if seconds else "the engine is compiled already")


def compile_engine(line: ProgressLine, quiet: bool, with_windows: bool = True) -> float:
    """Compile the engine if it is not compiled yet, and return how many seconds it took.

    Parameters
    ----------
    line
        Shows the progress.
    quiet
        Whether nothing is said without such a line.
    with_windows
        Whether rules need the kernels of windows. If anything has to be compiled, all of it is.
    """
    from cep.engine.warm import is_warm, warm_up

    if is_warm(with_windows):
        return 0.0
    started = time.perf_counter()
    text = "compiling the engine: about a minute, once after an installation"
    if not line.is_shown and not quiet:
        click.echo(text, err=True)
    percent = 0

    def show(share: float) -> None:
        nonlocal percent
        percent = max(percent, int(100 * share) // 10 * 10)
        line.show(f"{text}: {percent} %")

    warm_up(show)
    line.clear()
    return time.perf_counter() - started
