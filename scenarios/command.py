"""The command of a scenario: generate events, run the pipeline, compare the alerts with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from cep.commands.group import EXIT_INTERRUPTED, ErrorReportingGroup
from cep.commands.run import compile_for
from scenarios.run_folder import clear_results, place_pipeline

_FORMATS = click.Choice(["json", "parquet"])


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a command generates and runs.

    `generate` takes the number of events, the seed, the format and the folder, and returns the manifest.
    `report` takes the folder and returns what the command prints at the end.
    """

    what: str  # "card events with planted fraud"
    pipeline: Path
    out: str
    events: int
    min_events: int
    generate: Callable[[int, int, str, Path], dict[str, Any]]
    report: Callable[[Path], Iterable[RenderableType]]


def run_in(pipeline: Path, out: Path, *, file_format: str, mode: str) -> None:
    """Run a pipeline in `out`, without the results of an earlier run. End the command if it was stopped."""
    from spark_runtime import run_pipeline

    clear_results(out)
    placed = place_pipeline(pipeline, out, file_format=file_format, mode=mode)
    compile_for(placed)
    if run_pipeline(placed).was_stopped:
        click.get_current_context().exit(EXIT_INTERRUPTED)


def command_of(scenario: Scenario) -> click.Command:
    """Return the command of a scenario."""

    def run(events: int, seed: int, out: Path, file_format: str, mode: str, debug: bool) -> None:
        console = Console()
        console.print(f"generating {events:,} {scenario.what} in {out / 'events'} (seed {seed})")
        manifest = scenario.generate(events, seed, file_format, out)
        console.print(_counts(manifest))
        run_in(scenario.pipeline, out, file_format=file_format, mode=mode)
        for part in scenario.report(out):
            console.print(part)

    run.__doc__ = f"Generate {scenario.what}, run the rules on Spark, compare alerts with the truth."
    options = (
        click.option(
            "--events", type=click.IntRange(scenario.min_events), default=scenario.events, show_default=True
        ),
        click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), default=scenario.out, show_default=True
        ),
        click.option("--format", "file_format", type=_FORMATS, default="json", show_default=True),
        click.option("--mode", type=click.Choice(["stream", "batch"]), default="stream", show_default=True),
        click.option("--debug", is_flag=True, help="Show the traceback of an internal error."),
    )
    command: Any = run
    for option in reversed(options):
        command = option(command)
    made: click.Command = click.group(
        cls=ErrorReportingGroup, invoke_without_command=True, subcommand_metavar=""
    )(command)
    return made


def _counts(manifest: dict[str, Any]) -> str:
    return (
        f"{manifest['lines']:,} lines: {manifest['duplicates']:,} delivered twice, "
        f"{sum(manifest['malformed'].values()):,} malformed, {manifest['stragglers']:,} stragglers, "
        f"{manifest['stories']:,} planted stories"
    )
