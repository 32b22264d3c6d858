"""Options that several verbs have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from cep.diagnostics.diagnostic import Diagnostic, to_json

Command = TypeVar("Command", bound=Callable[..., Any])

quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print no summary and no progress; warnings, errors and what was lost are printed.",
)
progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on standard error. Without this option, only a terminal shows it.",
)
only_option = click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help="Only the rule or view of this name, and the rules whose matches it reads; several times: these.",
)

streams_option = click.option(
    "--streams",
    type=click.Path(path_type=Path),
    help="Streams file; without it, the nearest streams.yaml.",
)


class Amount(click.FloatRange):
    """The type of an option: a number from 0 on that is neither infinite nor NaN."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises UsageError by `fail`."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no amount.", param, ctx)
        return number


def _values(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    if not given:
        return {}
    from cep.language.parameters import assignment

    values = {}
    for text in given:
        found = assignment(text)
        if found is None:
            raise click.BadParameter(f"`{text}` is not NAME=VALUE", context, parameter)
        name, value = found
        values[name] = value
    return values


set_option = click.option(
    "--set",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_values,
    help="Another value of a parameter (PARAM) of the rules, or RULE.NAME=VALUE; several times.",
)
shadow_option = click.option(
    "--shadow",
    metavar="RULE",
    multiple=True,
    help="This rule is a shadow rule, whatever its STATUS: its matches alert nobody; several times: these.",
)
roots_option = click.option(
    "--root",
    "roots",
    metavar="DIR",
    multiple=True,
    help="All paths of the file must be below this folder, or below another --root; also s3a://bucket/folder.",
)
spark_settings_option = click.option(
    "--allow-spark-settings",
    is_flag=True,
    help="Accept all settings under `spark`, even those that can run code.",
)

problems_format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(("table", "json", "junit")),
    default="table",
    help="json: one list of problems. junit: XML for servers of continuous integration.",
)


def show_as(output_format: str, files: Iterable[str], problems: Sequence[Diagnostic]) -> None:
    """Print the problems of files as `json`, one list, or as `junit`, a suite for each file."""
    if output_format == "junit":
        from cep.output.junit import by_file

        click.echo(by_file(files, problems))
    else:
        import json

        click.echo(json.dumps(to_json(problems), ensure_ascii=False, indent=2))


AS_JSON = {"table": False, "json": True}
"""Values of `--format`, and whether each is JSON."""


def table_or_json(help_text: str) -> Callable[[Command], Command]:
    """Return the option `--format` of a verb that writes tables or JSON; `help_text` says which JSON."""
    return click.option(
        "--format", "output_format", type=click.Choice(list(AS_JSON)), default="table", help=help_text
    )


PIPELINE_FILES = frozenset((".yaml", ".yml"))
"""Endings of pipeline files, where rule files may be given, too."""
