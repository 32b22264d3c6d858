"""`cep run` runs a pipeline file on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PASSED_OVER
from cep.commands.options import (
    AS_JSON,
    quiet_option,
    roots_option,
    shadow_option,
    spark_settings_option,
    table_or_json,
)
from cep.commands.progress_line import progress_line
from cep.commands.warm import compile_engine
from cep.errors import CepError

if TYPE_CHECKING:
    from spark_runtime.pipeline.trust import Trust


def compile_for(pipeline: Path, quiet: bool = False, trust: Trust | None = None) -> None:
    """Compile what the rules of a pipeline need of the engine: once here, so that no worker has to do it."""
    from cep.engine.warm import is_warm
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.trust import WHOLE

    if not is_warm():
        rules = load_pipeline(pipeline, trust or WHOLE).rules
        compile_engine(progress_line(quiet, None), quiet, rules.programs)


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option(
    "--accept-source-change",
    is_flag=True,
    help="Continue from the checkpoint although a source has moved to another place.",
)
@click.option(
    "--accept-older-checkpoint",
    is_flag=True,
    help="Continue from the checkpoint although sinks have more than it knows; this is written again.",
)
@table_or_json("How the summary is written: as text to standard error, or as JSON to standard output.")
@click.option(
    "--ui",
    metavar="[HOST:]PORT",
    help="Show the run on a live page in a browser; without HOST only on this machine.",
)
@shadow_option
@roots_option
@spark_settings_option
@quiet_option
def run(  # noqa: PLR0913 - an option of the command is an argument
    pipeline: Path,
    accept_source_change: bool,
    accept_older_checkpoint: bool,
    output_format: str,
    ui: str | None,
    shadow: tuple[str, ...],
    roots: tuple[str, ...],
    allow_spark_settings: bool,
    quiet: bool,
) -> None:
    """Run a PIPELINE file (sources, rules, sinks) on Spark."""
    from spark_runtime.pipeline.address import address_of
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.trust import Trust
    from spark_runtime.sessions.installed import check_pyspark

    address = None if ui is None else address_of(ui)
    if ui is not None and address is None:
        raise click.BadParameter(f"`{ui}` is not an address: write 8080 or 127.0.0.1:8080", param_hint="--ui")
    trust = Trust.of(roots, any_spark_setting=allow_spark_settings)
    try:
        check_pyspark()
    except CepError:
        load_pipeline(pipeline, trust, shadow)  # a mistake in a file is reported before a missing package
        raise
    from spark_runtime import run_pipeline
    from spark_runtime.sessions.signals import ignore_all, interrupt_on_ending

    compile_for(pipeline, quiet, trust)
    as_json = AS_JSON[output_format]
    # Before and after the stream runs: what was opened is closed, such as a lease on an object store.
    interrupt_on_ending()
    summary = run_pipeline(
        pipeline,
        quiet=quiet or as_json,
        accept_source_change=accept_source_change,
        accept_older_checkpoint=accept_older_checkpoint,
        shadow=shadow,
        roots=roots,
        allow_spark_settings=allow_spark_settings,
        ui=address,
    )
    if summary.was_stopped:
        ignore_all()
    if as_json:
        click.echo(json.dumps(summary.to_json(), ensure_ascii=False))
    if summary.counts.passed_over or summary.lacks_fields:
        click.get_current_context().exit(EXIT_PASSED_OVER)
