"""`cep rules` lists and copies the rules that come with the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cep.commands.options import AS_JSON, quiet_option


def _library_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from cep.rule_library import library_rules

    names = {name for rule in library_rules() for name in (rule.folder, rule.name, rule.path)}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(begun)]


@click.group()
def rules() -> None:
    """List and copy the rules that come with the package."""


@rules.command(name="list")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(AS_JSON)),
    default="table",
    help="json: an object in each line.",
)
def list_rules(output_format: str) -> None:
    """Show each rule of the library: its name, the streams that it reads, and what it detects."""
    import json

    from cep.rule_library import library_rules

    for rule in library_rules():
        if AS_JSON[output_format]:
            row = {"name": rule.name, "path": rule.path, "streams": rule.streams, "title": rule.title}
            click.echo(json.dumps(row, ensure_ascii=False))
            continue
        click.echo(f"{rule.path} (reads {', '.join(rule.streams)})\n    {rule.title}")


@rules.command(name="copy")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_library_names)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder to copy into, created if it is missing; without it, the current folder.",
)
@quiet_option
def copy_rules(names: Sequence[str], to: Path, quiet: bool) -> None:
    """Copy rules of the library, with the streams files that they need, as a start for your own rules.

    NAME is a rule (card_testing or fraud/card_testing) or a folder of rules (fraud).
    """
    from cep import rule_library

    written, there = rule_library.copy_rules(names, to)
    if quiet:
        return
    for path in written:
        click.echo(f"wrote {path}")
    for path in there:
        click.echo(f"kept {path}: it is the same")
