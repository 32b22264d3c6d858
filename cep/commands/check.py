"""`cep check` reports every problem of rules and streams files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from cep.commands.group import EXIT_PROBLEMS, show
from cep.commands.options import quiet_option, set_option, streams_option
from cep.diagnostics.diagnostic import to_json


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@streams_option
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print the problems as one JSON list.")
@quiet_option
def check(
    paths: Sequence[Path], streams: Path | None, parameters: Mapping[str, str], as_json: bool, quiet: bool
) -> None:
    """Report all problems of all rule files in PATHS (files or directories)."""
    from cep.rulebook import check_rules

    checked = check_rules(paths, streams, parameters)
    n_errors = sum(problem.is_error for problem in checked.problems)
    if as_json:
        import json

        click.echo(json.dumps(to_json(checked.problems), ensure_ascii=False, indent=2))
    else:
        show(checked.problems, err=False)
        found = [_counted(n_errors, "error"), _counted(len(checked.problems) - n_errors, "warning")]
        if not quiet:
            click.echo(
                f"checked {_counted(checked.n_files, 'file')}, {_counted(checked.n_rules, 'rule')}: "
                + (", ".join(filter(None, found)) or "no problems")
            )
            for name, columns in checked.unread.items():
                click.echo(f"no rule reads of `{name}`: {', '.join(columns)}")
    if n_errors:
        click.get_current_context().exit(EXIT_PROBLEMS)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s") if count or noun in ("file", "rule") else ""
