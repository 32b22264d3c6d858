"""`cep check` reports every problem of rules and streams files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from cep.commands.group import EXIT_PROBLEMS, show
from cep.commands.options import problems_format_option, quiet_option, set_option, show_as, streams_option


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@streams_option
@set_option
@problems_format_option
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@quiet_option
def check(
    paths: Sequence[Path],
    streams: Path | None,
    parameters: Mapping[str, str],
    output_format: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Report all problems of all rule files in PATHS (files or directories)."""
    from cep.rulebook import check_rules

    checked = check_rules(paths, streams, parameters)
    n_errors = sum(problem.is_error for problem in checked.problems)
    if as_json or output_format != "table":
        show_as("json" if as_json else output_format, checked.files, checked.problems)
    else:
        show(checked.problems, err=False)
        found = [counted(n_errors, "error"), counted(len(checked.problems) - n_errors, "warning")]
        if not quiet:
            click.echo(
                f"checked {counted(checked.n_files, 'file')}, {counted(checked.n_rules, 'rule')}: "
                + (", ".join(filter(None, found)) or "no problems")
            )
            for name, columns in checked.unread.items():
                click.echo(f"no rule reads of `{name}`: {', '.join(columns)}")
    if n_errors:
        click.get_current_context().exit(EXIT_PROBLEMS)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun; "" if there are no problems."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s") if count or noun in ("file", "rule") else ""
