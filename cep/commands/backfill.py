"""`cep backfill` reads the past for new rules of a pipeline, so that they begin warm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PASSED_OVER, tell
from cep.commands.options import progress_option, quiet_option
from cep.counts import amount

if TYPE_CHECKING:
    from cep.commands.progress_line import ProgressLine
    from cep.counts import Counts
    from spark_runtime.pipeline.backfill import PastResult, Wanted
    from spark_runtime.pipeline.made import Pipeline


_MISSING = ("missing match", "missing matches")
_WRONG = ("reported match is wrong, and is withdrawn", "reported matches are wrong, and are withdrawn")


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
    help="What becomes of matches of the past. none, the default: they are counted; apart: they are written "
    "to --into; alert: the pipeline reports them, in the micro-batch in which the rules begin.",
)
@click.option("--into", metavar="DIR", default="", help="The folder of matches that are written apart.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many events a second.")
@click.option(
    "--gaps",
    "is_gaps",
    is_flag=True,
    help="Fill the gaps that `cep gaps` shows: the rules see what they did not see, and the pipeline reports "
    "the missing matches; with corrections it withdraws wrong ones. With --matches none or apart nothing is "
    "filled: they are only counted or written.",
)
@click.option("--discard", is_flag=True, help="Only remove what an earlier `cep backfill` has prepared.")
@progress_option
@quiet_option
def backfill(  # noqa: PLR0913 - an option of the command is an argument
    pipeline: str,
    from_us: int | None,
    rules: tuple[str, ...],
    matches: str | None,
    into: str,
    rate: float | None,
    is_gaps: bool,
    discard: bool,
    progress: bool | None,
    quiet: bool,
) -> None:
    """Read the past for the new rules of a PIPELINE file, so that they begin with it.

    The pipeline may be running. The rules begin when it takes them, and it then reads what has come since.
    The checkpoint does not change before that. It needs no Spark.
    """
    from cep.commands.progress_line import progress_line
    from cep.commands.run import compile_for
    from cep.spool.new_files import umask
    from spark_runtime.pipeline.backfill import Wanted, backfill_pipeline
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.prepared import PastMatches
    from spark_runtime.pipeline.prepared import discard as discarded

    matches = matches or ("alert" if is_gaps else "none")
    if (matches == "apart") != bool(into):
        raise click.UsageError("--into names the folder of `--matches apart`: give both, or none of them")
    if is_gaps and from_us is not None:
        raise click.UsageError("--gaps reads all of the past: leave --from out")
    made = load_pipeline(pipeline)
    if not made.is_stream:
        tell(f"`{pipeline}` needs no backfill: it is a batch, which reads all events")
        return
    if discard:
        was = discarded(made.checkpoint)
        tell("removed the past that was prepared" if was else "nothing was prepared")
        return
    compile_for(Path(pipeline), quiet)
    line = progress_line(quiet, progress)
    wanted = Wanted(rules, from_us, PastMatches(matches), into, rate)
    with umask(made.file_mode.umask):
        if is_gaps:
            _fill(made, wanted, line, quiet)
            return
        found = backfill_pipeline(made, wanted, _telling(line))
    line.clear()
    _tell_gone(found.counts)
    if found.n_unknown:
        tell(
            f"warning: which of the first {found.n_unknown:,} events were late is not known, so none of them "
            "counts as late: the checkpoint does not say how far the stream had come",
            err=True,
        )
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


def _fill(pipeline: Pipeline, wanted: Wanted, line: ProgressLine, quiet: bool) -> None:
    """Fill the gaps of a pipeline, and say what came of it."""
    from spark_runtime.pipeline.filling import fill_pipeline
    from spark_runtime.pipeline.gaps import Entry
    from spark_runtime.pipeline.prepared import PastMatches

    found = fill_pipeline(pipeline, wanted, _telling(line))
    line.clear()
    _tell_gone(found.counts)
    if quiet:
        return
    if found.waits:
        tell("gaps wait to be filled: the pipeline does it while it runs, or at its next start")
        return
    if found.counts.events:
        tell(f"read {amount(found.counts.events, 'event')} up to micro-batch {found.micro_batch:,}")
    for each in found.filled:
        entry = Entry.of_list(each.entry)
        span = _span(entry.first_us, entry.last_us)
        tell(f"  {entry.loss}, {_names(each.rules)}, {span}: {amount(each.matches, *_MISSING)}")
    if found.n_beside:
        tell(f"  beside the gaps: {amount(found.n_beside, *_MISSING)}")
    if found.n_withdrawn:
        tell(f"  {amount(found.n_withdrawn, *_WRONG)}")
    for gap, why in ((left.gap, left.why) for left in found.left):
        span = _span(gap.first_us, gap.last_us)
        tell(f"  {gap.loss}, {_names(gap.rules)}, {span}: not filled: {why}")
    if not found.filled:
        before = f", {found.n_before:,} are filled" if found.n_before else ""
        tell(f"nothing to fill{before}")
    elif wanted.matches is PastMatches.ALERT:
        tell("the pipeline fills the gaps while it runs, or at its next start")


def _names(names: Sequence[str]) -> str:
    from cep.commands.gaps import listed

    return listed(names) or "-"


def _span(first_us: int | None, last_us: int | None) -> str:
    from cep.schema.time_literals import time_for_people

    times = [(None if us is None else time_for_people(us)) or "-" for us in (first_us, last_us)]
    return " to ".join(times)


def _tell_gone(counts: Counts) -> None:
    gone = "that was read then is gone", "that were read then are gone"
    changed = "that was read then has changed since", "that were read then have changed since"
    for (one, many), names in ((gone, counts.gone), (changed, counts.changed)):
        if names:
            shown = ", ".join(list(names)[:3])
            tell(f"warning: {amount(len(names), f'file {one}', f'files {many}')}: {shown}", err=True)
    for origin, n in counts.lost.items():
        messages = amount(n, f"message of `{origin}` {gone[0]}", f"messages of `{origin}` {gone[1]}")
        tell(f"warning: {messages}", err=True)


def _tell(found: PastResult, quiet: bool) -> None:
    if quiet:
        return
    counts = found.counts
    tell(f"read {amount(counts.events, 'event')} up to micro-batch {found.micro_batch:,}")
    for stream, n in counts.late_of.items():
        late, them = (amount(n, "event was", "events were"), "it" if n == 1 else "them")
        tell(f"  {stream}: {late} late, so the rules do not see {them}")
    for rule, n in found.matches.items():
        tell(f"  {rule}: {amount(n, 'match', 'matches')} in the past")
    tell("the rules begin with it when the pipeline takes them")
