"""`cep fmt` writes rule files in the usual layout."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PROBLEMS
from cep.commands.options import quiet_option

if TYPE_CHECKING:
    from cep.errors import Diagnostic, Source


@click.command()
@click.argument("paths", metavar="RULES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--check", "is_check", is_flag=True, help="Write nothing; exit code 1 if a file is not in this layout."
)
@click.option("--diff", "shows_changes", is_flag=True, help="Write nothing; print what would change.")
@quiet_option
def fmt(paths: Sequence[Path], is_check: bool, shows_changes: bool, quiet: bool) -> None:
    """Write rule files in the usual layout: files, or all in directories.

    Comments and the meaning of the rules do not change.
    """
    from cep.errors import RuleError
    from cep.language.layout import laid_out
    from cep.rule_files import rule_sources

    sources = rule_sources(paths)
    changed: list[tuple[Source, str]] = []
    problems: list[Diagnostic] = []
    for source in sources:
        try:
            text = laid_out(source)
        except RuleError as error:
            problems += error.diagnostics
            continue
        if text != source.text:
            changed.append((source, text))
    writes = not (is_check or shows_changes)
    for source, text in changed:
        if shows_changes:
            click.echo(_changes(source, text), nl=False)
        if writes:
            _write(Path(source.name), text)
        if is_check or not quiet:
            click.echo(f"{'changed' if writes else 'would change'} {source.name}", err=True)
    if problems:
        raise RuleError(problems)
    if not quiet:
        noun = "file" if len(sources) == 1 else "files"
        shown = "changed" if writes else "would change"
        click.echo(f"{shown} {len(changed):,} of {len(sources):,} {noun}", err=True)
    if is_check and changed:
        click.get_current_context().exit(EXIT_PROBLEMS)


def _changes(source: Source, text: str) -> str:
    lines = unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        source.name,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _write(file: Path, text: str) -> None:
    """Replace the text of a file at once; its mode and its line ends stay, and so does a link to it."""
    from cep.spool.folder import write_whole
    from cep.write_errors import writing

    file = file.resolve()
    with writing(file):
        mode = file.stat().st_mode
        has_returns = b"\r\n" in file.read_bytes()
    write_whole(file, text.replace("\n", "\r\n") if has_returns else text)
    with writing(file):
        file.chmod(mode)
