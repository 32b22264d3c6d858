"""`cep backfill` reads the past for new rules of a pipeline, so that they begin warm."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PASSED_OVER
from cep.commands.options import progress_option, quiet_option

if TYPE_CHECKING:
    from cep.commands.progress_line import ProgressLine
    from spark_runtime.pipeline.backfill import PastResult


def _time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    from cep.schema.time_literals import parse_timestamp

    if text is None or text == "start":
        return None
    found = parse_timestamp(text)
    if found is None:
        raise click.BadParameter(f"`{text}` is no date, no time and not `start`", context, parameter)
    return found


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--from",
    "from_us",
    metavar="TIME",
    callback=_time,
    help="The rules see the events from this date or time on, in UTC; start, the default: all events.",
)
@click.option(
    "--rules",
    metavar="NAME",
    multiple=True,
    help="Only the new rule of this name; several times: these. Without it, all new rules.",
)
@click.option(
    "--matches",
    type=click.Choice(["none", "apart", "alert"]),
    default="none",
    help="What becomes of matches of the past. none: they are counted; apart: they are written to --into; "
    "alert: the pipeline reports them, in the micro-batch in which the rules begin.",
)
@click.option("--into", metavar="DIR", default="", help="The folder of matches that are written apart.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many events a second.")
@click.option("--discard", is_flag=True, help="Only remove what an earlier `cep backfill` has prepared.")
@progress_option
@quiet_option
def backfill(  # noqa: PLR0913 - an option of the command is an argument
    pipeline: str,
    from_us: int | None,
    rules: tuple[str, ...],
    matches: str,
    into: str,
    rate: float | None,
    discard: bool,
    progress: bool | None,
    quiet: bool,
) -> None:
    """Read the past for the new rules of a PIPELINE file, so that they begin with it.

    The pipeline may be running. The rules begin when it takes them, and it then reads what has come since.
    Nothing of the checkpoint changes before that. It needs no Spark.
    """
    from cep.commands.progress_line import progress_line
    from cep.commands.run import compile_for
    from cep.spool.new_files import umask
    from spark_runtime.pipeline.backfill import Wanted, backfill_pipeline
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.prepared import PastMatches
    from spark_runtime.pipeline.prepared import discard as discarded

    if (matches == "apart") != bool(into):
        raise click.UsageError("--into names the folder of `--matches apart`: give both, or none of them")
    made = load_pipeline(pipeline)
    if not made.is_stream:
        click.echo(f"`{pipeline}` needs no backfill: it is a batch, which reads all events")
        return
    if discard:
        was = discarded(made.checkpoint)
        click.echo("removed the past that was prepared" if was else "nothing was prepared")
        return
    compile_for(Path(pipeline), quiet)
    line = progress_line(quiet, progress)
    wanted = Wanted(rules, from_us, PastMatches(matches), into, rate)
    with umask(made.file_mode.umask):
        found = backfill_pipeline(made, wanted, _telling(line))
    line.clear()
    _tell(found, quiet)
    if found.counts.passed_over or found.counts.lost:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _telling(line: ProgressLine) -> Callable[[int, int, int | None], None]:
    from cep.schema.time_literals import time_for_people

    begun_s = time.monotonic()

    def tell(n_read: int, n_all: int, reached_us: int | None) -> None:
        share = 100 * n_read // max(n_all, 1)
        reached = "-" if reached_us is None else time_for_people(reached_us)
        line.show(
            f"{min(share, 100)} % of the past read, up to {reached}, {time.monotonic() - begun_s:.0f} s"
        )

    return tell


def _tell(found: PastResult, quiet: bool) -> None:
    counts = found.counts
    for what, names in (("are gone", counts.gone), ("have changed since", counts.changed)):
        if names:
            shown = ", ".join(list(names)[:3])
            click.echo(f"warning: {len(names):,} files that were read then {what}: {shown}", err=True)
    for origin, n in counts.lost.items():
        click.echo(f"warning: {n:,} messages of `{origin}` that were read then are gone", err=True)
    if quiet:
        return
    click.echo(f"read {counts.events:,} events up to micro-batch {found.micro_batch:,}")
    for rule, n in found.matches.items():
        click.echo(f"  {rule}: {n:,} matches in the past")
    click.echo("the rules begin with it when the pipeline takes them")
