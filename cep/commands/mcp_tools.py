"""The tools of `cep mcp` as its protocol shows them: names, descriptions, and the schemas of their arguments.

An argument that the schema of a tool does not have is refused: passed over, it would make the answer one to
another question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field

from cep.commands import agent_tools as tools
from cep.commands.agent_tools import MAX_ATTEMPTS, MAX_TEXT, Access, RefusedError, answered
from cep.diagnostics.diagnostic import did_you_mean

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, open_world_hint=False)

_RELATIVE = "; relative to the root"

_Rules = Annotated[
    list[str], Field(min_length=1, description=f"Rule files, or folders with them{_RELATIVE}.")
]
_Inputs = Annotated[
    list[str], Field(min_length=1, description=f"Files of events, FILE or STREAM=FILE{_RELATIVE}.")
]
_Streams = Annotated[
    str, Field(description=f"The streams file{_RELATIVE}. Default: streams.yaml beside the rules.")
]
_File = Annotated[str, Field(description=f"The file{_RELATIVE}.")]
_Text = Annotated[str, Field(max_length=MAX_TEXT)]
_Limit = Annotated[int, Field(ge=0, le=MAX_ATTEMPTS, description="How many attempts to show.")]

_MOST_LETTERS = 200
"""Most characters of what is wrong with an argument, which may be a whole file."""


class _StrictTool(Tool):
    """A tool that refuses what its schema does not allow."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Return the answer. Raises ToolError: an argument is unknown or wrong, or the call is refused."""
        # Some clients write lists and objects as texts.
        refused = self._problem(self.fn_metadata.pre_parse_json(arguments))
        if refused is not None:
            raise ToolError(f"`{self.name}`: {refused}")
        return await super().run(arguments, context, convert_result)

    def _problem(self, arguments: dict[str, Any]) -> str | None:
        known = self.parameters["properties"]
        for name in arguments.keys() - known.keys():
            return f"there is no argument `{name}`: {did_you_mean(name, known, 'arguments')}"
        error = best_match(Draft202012Validator(self.parameters).iter_errors(arguments))
        if error is None:
            return None
        while error.context:  # an argument that may be left out may also be null
            error = error.context[0]
        message = error.message
        if len(message) > _MOST_LETTERS:
            message = f"the value does not fit {error.validator}: {error.validator_value}"
        place = ".".join(map(str, error.absolute_path))
        return f"{place}: {message}" if place else message


def made_tools(access: Access) -> list[Tool]:
    """Return the tools that an agent with this access may use."""
    made: list[Tool] = [_StrictTool.from_function(tool, annotations=_READS) for tool in _reading(access)]
    if access.may_write:
        made += [_StrictTool.from_function(tool, annotations=_WRITES) for tool in _writing(access)]
    for tool in made:
        tool.parameters["additionalProperties"] = False
    return made


def _answered(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of a tool; a refusal is an error of the tool, whose text the agent reads."""
    try:
        return answered(call)
    except RefusedError as error:
        raise ToolError(str(error)) from None


def _reading(access: Access) -> Sequence[Callable[..., Any]]:
    def check(
        rules: _Rules | None = None, streams: _Streams | None = None, text: _Text | None = None
    ) -> dict[str, Any]:
        """Report every problem of rule files or folders, or of a text of rules (needs `streams`).

        Each problem has a code, a place and what to write instead.
        """
        return _answered(lambda: tools.check(access, rules or (), streams, text))

    def explain(
        rules: _Rules, streams: _Streams | None = None, only: list[str] | None = None
    ) -> dict[str, Any]:
        """Say what rules compile to: predicates, automaton, bounds, what a run remembers."""
        return _answered(lambda: tools.explain(access, rules, streams, only or ()))

    def test(rules: _Rules) -> dict[str, Any]:
        """Run the tests beside rule files, or all test files in folders."""
        return _answered(lambda: tools.test(access, rules))

    def why(
        rules: _Rules,
        inputs: _Inputs,
        key: list[str] | None = None,
        rule: str | None = None,
        streams: _Streams | None = None,
        at: str | None = None,
        summary: bool = False,
        limit: _Limit = 3,
    ) -> dict[str, Any]:
        """Say why a rule matched for a key in files of events, or what it missed.

        With `summary`, give no key: the answer names the condition that refuses most events.
        """
        return _answered(
            lambda: tools.why(access, rules, inputs, key or (), rule, streams, at, summary, limit)
        )

    def backtest(
        rules: _Rules,
        inputs: _Inputs,
        streams: _Streams | None = None,
        parameters: dict[str, str] | None = None,
        from_time: str | None = None,
        to_time: str | None = None,
        truth: _File | None = None,
    ) -> dict[str, Any]:
        """Count the alerts of rules over files of events, by rule and day.

        `parameters` replace values of PARAM. `truth` is a file that lists what there is to find. With it, the
        answer also contains precision and recall.
        """
        return _answered(
            lambda: tools.backtest(access, rules, inputs, streams, parameters, from_time, to_time, truth)
        )

    def profile(stream: str, file: _File, streams: _Streams | None = None) -> dict[str, Any]:
        """Say which values, ranges and times the events of a stream in a file have."""
        return _answered(lambda: tools.profile(access, stream, file, streams))

    reading = (check, explain, test, why, backtest)
    return reading if access.may_write else (*reading, profile)


def _writing(access: Access) -> Sequence[Callable[..., Any]]:
    def profile(
        stream: str, file: _File, streams: _Streams | None = None, write: bool = False
    ) -> dict[str, Any]:
        """Say which values, ranges and times the events of a stream have; `write` keeps it for `check`."""
        return _answered(lambda: tools.profile(access, stream, file, streams, write))

    def write_file(path: _File, text: _Text) -> dict[str, Any]:
        """Write a rule file (.cep), a test file (.test.yaml) or streams.yaml, whole."""
        return _answered(lambda: tools.write_file(access, path, text))

    return profile, write_file
