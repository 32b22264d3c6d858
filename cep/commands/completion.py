"""`cep completion` prints a script with which a shell completes commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes `cep` commands.

    For bash: add `eval "$(cep completion bash)"` to ~/.bashrc.
    """
    script = get_completion_class(shell)
    assert script is not None
    main = click.get_current_context().find_root().command
    click.echo(script(main, {}, "cep", "_CEP_COMPLETE").source())
