"""`cep mcp` serves agents: checks, explanations, tests and answers of `cep why` as tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from cep.commands.agent_tools import Access

_INSTRUCTIONS = (
    "spark-cep finds patterns in events. A rule file (.cep) has rules, streams.yaml beside it declares the "
    "streams, NAME.test.yaml beside it has tests. Call check after each change, test before you say that a "
    "rule works, and why if a rule does not match. Relative paths are relative to the root of the server."
)


@click.command()
@click.option(
    "--root",
    "roots",
    metavar="DIR",
    multiple=True,
    help="Agents may name files below this folder, or below another --root. Default: the current folder.",
)
@click.option(
    "--allow-write", is_flag=True, help="Agents may write rule, streams and test files, and profiles."
)
def mcp(roots: Sequence[str], allow_write: bool) -> None:
    """Serve an agent over standard input and output, using the Model Context Protocol. It reads only."""
    from cep.commands.agent_tools import Access
    from cep.packages import require_package
    from cep.settings.roots import root_of

    require_package("`cep mcp`", "mcp", "mcp")
    server(Access(tuple(root_of(root) for root in roots or (".",)), allow_write)).run("stdio")


def server(access: Access) -> MCPServer[Any]:
    """Return a server with the tools, ready to run."""
    from importlib.metadata import version

    from mcp.server import MCPServer

    from cep.commands.mcp_tools import made_tools

    return MCPServer(
        "spark-cep",
        instructions=_INSTRUCTIONS,
        version=version("spark-cep"),
        tools=made_tools(access),
        log_level="WARNING",
    )
