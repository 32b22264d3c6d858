"""Show the problems of rules and files on a terminal or as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import click

from cep.diagnostics.diagnostic import Diagnostic, in_order, render


def show(problems: Sequence[Diagnostic], err: bool = True) -> None:
    """Show `problems`, if there are any, and an empty line after them."""
    if problems:
        click.echo(shown(problems, sys.stderr if err else sys.stdout) + "\n", err=err)


def shown(problems: Sequence[Diagnostic], stream: TextIO) -> str:
    """Return problems as text for `stream`. The text has colours if `stream` is a terminal."""
    return render(in_order(problems), color=stream.isatty())
