"""`cep lint` says what rules lack before they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cep.commands.check import counted
from cep.commands.group import EXIT_PROBLEMS, show
from cep.commands.options import problems_format_option, quiet_option, show_as, streams_option


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@streams_option
@problems_format_option
@quiet_option
def lint(paths: Sequence[Path], streams: Path | None, output_format: str, quiet: bool) -> None:
    """Say what the rules in PATHS lack: tests, a title, bounds, and what costs much.

    A comment in the rule allows a finding: -- lint: allow W0538 because the name says it
    """
    from cep.lint.findings import lint_rules

    linted = lint_rules(paths, streams)
    if output_format != "table":
        show_as(output_format, linted.files, linted.findings)
    else:
        show(linted.findings, err=False)
        if not quiet:
            n_found, n_allowed = len(linted.findings), linted.n_allowed
            found = counted(n_found, "finding") if n_found else "no findings"
            allowed = f", {n_allowed:,} allowed" if n_allowed else ""
            click.echo(
                f"linted {counted(len(linted.files), 'file')}, {counted(linted.n_rules, 'rule')}: "
                f"{found}{allowed}"
            )
    if linted.findings:
        click.get_current_context().exit(EXIT_PROBLEMS)
