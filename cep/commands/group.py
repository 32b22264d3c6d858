"""The group of all verbs. It turns errors into text and exit codes, and shows the problems of rules."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TextIO

import click

from cep.diagnostics.diagnostic import Diagnostic, in_order, render
from cep.diagnostics.safe_text import for_terminal
from cep.errors import CepError, RuleError

EXIT_PROBLEMS = 1
EXIT_PASSED_OVER = 3
EXIT_STATE_ENDS = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141

MEANING_OF_EXIT = {
    0: "done",
    EXIT_PROBLEMS: "problems in your files",
    click.UsageError.exit_code: "wrong usage",
    EXIT_PASSED_OVER: "done, but not every file was read as it is",
    EXIT_INTERNAL: "a fault of spark-cep",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_UNREAD: "nobody reads the output any more",
}
"""Every exit code, in short; docs/reference/cli.md says more."""


class ErrorReportingGroup(click.Group):
    """A group of commands that shows errors as text, never as a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments that remain for the verb. Raises UsageError: an argument is empty."""
        # None if the shell has closed it. Output that is written then is an error, messages are not.
        if sys.stdout is None:
            sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
        if sys.stderr is None:
            sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        if not ctx.resilient_parsing:  # a shell completes what may be empty
            _refuse_empty(args)
        try:
            return super().parse_args(ctx, args)
        except OSError as error:  # `--version` and `--help` write here
            if not _is_of_output(error):
                raise
            ctx.exit(_without_output(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn errors into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error).update(message=for_terminal(error.message))  # it may name rules
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except RuleError as error:
            click.echo(shown(error.diagnostics, sys.stderr), err=True)
            ctx.exit(EXIT_PROBLEMS)
        except CepError as error:
            tell(str(error), err=True)
            ctx.exit(EXIT_PROBLEMS)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, OSError) and _is_of_output(error):
                ctx.exit(_without_output(error))
            if isinstance(error, FileNotFoundError):
                _blame_current_folder(ctx)
            first_line = (str(error).splitlines() or [""])[0]
            tell(
                f"internal error: {type(error).__name__}: {first_line}\n"
                "This is a fault of spark-cep: please report it, with the output of `cep --debug ...`.",
                err=True,
            )
            ctx.exit(EXIT_INTERNAL)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, which would be a path to the current folder. A key may be an empty text."""
    for before, text in pairwise(["", *arguments]):
        if not text and before != "--key":
            where = f" after `{before}`" if before else ""
            raise click.UsageError(f"an argument{where} is empty: is a variable of the shell not set?")


def _blame_current_folder(ctx: click.Context) -> None:
    """End the command with an error if the current folder was removed."""
    from cep.arguments import require_current_folder

    try:
        require_current_folder()
    except CepError as error:
        tell(str(error), err=True)
        ctx.exit(EXIT_PROBLEMS)


def _is_of_output(error: OSError) -> bool:
    """Return whether the error is one of writing to standard output, as `click.echo` does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is click.echo.__code__


def _without_output(error: OSError) -> int:
    """Return the exit code of a command whose output cannot be written; say why, unless nobody reads it."""
    if error.errno != errno.EPIPE:
        from cep.write_errors import write_error

        click.echo(str(write_error("standard output", error)), err=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is written at the end
    return EXIT_UNREAD if error.errno == errno.EPIPE else EXIT_PROBLEMS


def tell(text: str, *, err: bool = False) -> None:
    """Print a text for people, which names and values of data must not make a command for the terminal."""
    click.echo(for_terminal(text), err=err)


def show(problems: Sequence[Diagnostic], err: bool = True) -> None:
    """Show `problems`, if there are any, and an empty line after them."""
    if problems:
        click.echo(shown(problems, sys.stderr if err else sys.stdout) + "\n", err=err)


def shown(problems: Sequence[Diagnostic], stream: TextIO) -> str:
    """Return problems as text for `stream`. The text has colors if `stream` is a terminal."""
    return render(in_order(problems), color=stream.isatty())
