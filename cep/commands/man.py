"""`cep man` prints the manual page, which is made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import click

from cep.commands.group import MEANING_OF_EXIT


@click.command()
def man() -> None:
    """Print the manual page of all commands, for man(1).

    Such as: cep man > ~/.local/share/man/man1/cep.1
    """
    context = click.get_current_context().find_root()
    click.echo("\n".join(_page(context)))


def _page(context: click.Context) -> Iterator[str]:
    main = context.command
    yield f'.TH CEP 1 "" "spark-cep {version("spark-cep")}" "User Commands"'
    yield ".SH NAME"
    yield f"cep \\- {_text((main.help or '').splitlines()[0])}"
    yield ".SH SYNOPSIS"
    yield "\\fBcep\\fR [OPTIONS] COMMAND [ARGS]..."
    yield ".SH COMMANDS"
    yield from _of(main, click.Context(main, info_name="cep"))
    yield ".SH EXIT STATUS"
    for code, meaning in MEANING_OF_EXIT.items():
        yield f".TP\n\\fB{code}\\fR\n{_text(meaning)}"


def _of(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the sections of a command that has no commands, or of all in it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _of(inner, click.Context(inner, info_name=name, parent=context))
        return
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f".SS {_text(usage)}"
    for paragraph in (command.help or "").split("\n\n"):
        yield f"{_text(' '.join(paragraph.split()))}\n.PP"
    for parameter in command.params:
        shown = parameter.get_help_record(context)
        if shown is not None and shown[1]:
            yield f".TP\n\\fB{_text(shown[0])}\\fR\n{_text(' '.join(shown[1].split()))}"
    if command.epilog:
        yield f".PP\n{_text(command.epilog)}"


def _text(text: str) -> str:
    """Return a text of which troff reads no character as a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
