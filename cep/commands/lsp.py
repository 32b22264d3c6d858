"""`cep lsp` is the language server: editors start it and speak to it over standard input and output."""

from __future__ import annotations

import click


@click.command()
@click.option("--stdio", is_flag=True, help="Speak over standard input and output. It is always so.")
@click.option("--lint", "with_lint", is_flag=True, help="Also show what `cep lint` finds.")
def lsp(stdio: bool, with_lint: bool) -> None:
    """Serve an editor: problems while you write, completion, hover, renaming, formatting, tests."""
    from cep.packages import require_package

    require_package("`cep lsp`", "pygls", "lsp")
    from cep.editor.language_server import create

    create(with_lint=with_lint).start_io()
