"""`cep fmt` writes rule files in the usual layout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PROBLEMS
from cep.commands.options import quiet_option

if TYPE_CHECKING:
    from cep.errors import Diagnostic, Source

_STDIN = Path("-")


@click.command()
@click.argument("paths", metavar="RULES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--check", "is_check", is_flag=True, help="Write nothing; exit code 1 if a file is not in this layout."
)
@click.option("--diff", "shows_changes", is_flag=True, help="Write nothing; print what would change.")
@quiet_option
def fmt(paths: Sequence[Path], is_check: bool, shows_changes: bool, quiet: bool) -> None:
    """Write rule files in the usual layout: files, or all in directories.

    Comments and the meaning of the rules do not change. With - the text is standard input, and goes to
    standard output in the usual layout.
    """
    from cep.errors import RuleError
    from cep.language.layout import laid_out
    from cep.rule_files import rule_sources

    if _STDIN in paths:
        _lay_out_input(is_alone=len(paths) == 1, is_check=is_check, shows_changes=shows_changes)
        return
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


def _lay_out_input(*, is_alone: bool, is_check: bool, shows_changes: bool) -> None:
    """Write standard input in the usual layout to standard output; see the options of the command.

    Raises RuleError: it is too large, has a problem, or is not UTF-8 (E0613).
    """
    from cep.diagnostics.limits import MAX_BYTES
    from cep.errors import Diagnostic, RuleError
    from cep.language.layout import laid_out
    from cep.settings.source_file import source_of

    if not is_alone:
        raise click.UsageError("- is standard input: give no other files with it")
    name = "standard input"
    try:
        source = source_of(name, sys.stdin.buffer.read(MAX_BYTES + 1), MAX_BYTES)
    except UnicodeDecodeError as error:
        says = f"{name} is not UTF-8 text: byte {error.start + 1} begins no character"
        raise RuleError([Diagnostic("E0613", says)]) from None
    text = laid_out(source)
    if shows_changes:
        click.echo(_changes(source, text), nl=False)
    elif not is_check:
        click.echo(text, nl=False)
    if is_check and text != source.text:
        click.echo(f"would change {name}", err=True)
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
    """Replace the text of a file at once; its mode and its line ends stay, and so does a link to it.

    Raises InputError: the file cannot be written. A pipe is not: reading it again would wait forever.
    """
    from cep.errors import InputError
    from cep.write_errors import replacing

    if not file.is_file():
        raise InputError(
            "E0609",
            f"`{file}` cannot be written: it is no regular file",
            "write - for standard input, or --diff to see the changes",
        )
    with replacing(file) as unfinished:
        has_returns = b"\r\n" in file.read_bytes()
        unfinished.write_bytes((text.replace("\n", "\r\n") if has_returns else text).encode())
