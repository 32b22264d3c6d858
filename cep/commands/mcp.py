"""`cep mcp` serves agents: checks, explanations, tests and answers of `cep why` as tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from cep.commands.agent_tools import Access

_INSTRUCTIONS = (
    "spark-cep finds patterns in events. A rule file (.cep) has rules, streams.yaml beside it declares the "
    "streams, NAME.test.yaml beside it has tests. Call check after each change, test before you say that a "
    "rule works, and why if a rule does not match."
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

    made: MCPServer[Any] = MCPServer(
        "spark-cep", instructions=_INSTRUCTIONS, version=version("spark-cep"), log_level="WARNING"
    )
    _add_reading(made, access)
    if access.may_write:
        _add_writing(made, access)
    return made


def _answered(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of a tool; a refusal is an error of the tool, whose text the agent reads."""
    from mcp.server.mcpserver.exceptions import ToolError

    from cep.commands.agent_tools import RefusedError, answered

    try:
        return answered(call)
    except RefusedError as error:
        raise ToolError(str(error)) from None


def _add_reading(made: MCPServer[Any], access: Access) -> None:
    from mcp.types import ToolAnnotations

    from cep.commands import agent_tools as tools

    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @made.tool(annotations=reads)
    def check(
        rules: list[str] | None = None, streams: str | None = None, text: str | None = None
    ) -> dict[str, Any]:
        """Report every problem of rule files or folders, or of a text of rules (needs `streams`).

        Each problem has a code, a place and what to write instead.
        """
        return _answered(lambda: tools.check(access, rules or [], streams, text))

    @made.tool(annotations=reads)
    def explain(
        rules: list[str], streams: str | None = None, only: list[str] | None = None
    ) -> dict[str, Any]:
        """Say what rules compile to: predicates, automaton, bounds, what a run remembers."""
        return _answered(lambda: tools.explain(access, rules, streams, only or []))

    @made.tool(annotations=reads)
    def test(rules: list[str]) -> dict[str, Any]:
        """Run the tests beside rule files, or all test files in folders."""
        return _answered(lambda: tools.test(access, rules))

    @made.tool(annotations=reads)
    def why(
        rules: list[str],
        inputs: list[str],
        key: list[str] | None = None,
        rule: str | None = None,
        streams: str | None = None,
        at: str | None = None,
        summary: bool = False,
        limit: int = 3,
    ) -> dict[str, Any]:
        """Say why a rule matched for a key in files of events (FILE or STREAM=FILE), or what it missed.

        With `summary`, give no key: the answer names the condition that refuses most events.
        """
        return _answered(
            lambda: tools.why(access, rules, inputs, key or [], rule, streams, at, summary, limit)
        )

    @made.tool(annotations=reads)
    def backtest(
        rules: list[str],
        inputs: list[str],
        streams: str | None = None,
        parameters: dict[str, str] | None = None,
        from_time: str | None = None,
        to_time: str | None = None,
        truth: str | None = None,
    ) -> dict[str, Any]:
        """Count the alerts of rules over files of events, by rule and day.

        `parameters` replace values of PARAM. `truth` is a file of what there is to find: then the answer also
        has precision and recall.
        """
        return _answered(
            lambda: tools.backtest(access, rules, inputs, streams, parameters, from_time, to_time, truth)
        )

    if not access.may_write:

        @made.tool(annotations=reads)
        def profile(stream: str, file: str, streams: str | None = None) -> dict[str, Any]:
            """Say which values, ranges and times the events of a stream in a file have."""
            return _answered(lambda: tools.profile(access, stream, file, streams))


def _add_writing(made: MCPServer[Any], access: Access) -> None:
    from mcp.types import ToolAnnotations

    from cep.commands import agent_tools as tools

    writes = ToolAnnotations(read_only_hint=False, open_world_hint=False)

    @made.tool(annotations=writes)
    def profile(stream: str, file: str, streams: str | None = None, write: bool = False) -> dict[str, Any]:
        """Say which values, ranges and times the events of a stream have; `write` keeps it for `check`."""
        return _answered(lambda: tools.profile(access, stream, file, streams, write))

    @made.tool(annotations=writes)
    def write_file(path: str, text: str) -> dict[str, Any]:
        """Write a rule file (.cep), a test file (.test.yaml) or streams.yaml, whole."""
        return _answered(lambda: tools.write_file(access, path, text))
