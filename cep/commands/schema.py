"""`cep schema` prints the JSON Schema of a kind of YAML file."""

from __future__ import annotations

import click

_NAMES = ("pipeline", "streams", "tests")


@click.command()
@click.argument("name", type=click.Choice(_NAMES))
def schema(name: str) -> None:
    """Print the JSON Schema of pipeline files, streams files or test files, for editors."""
    import json

    from cep.commands.schemas import schema as schema_of

    click.echo(json.dumps(schema_of(name), indent=2, ensure_ascii=False))
