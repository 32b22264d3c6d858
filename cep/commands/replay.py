"""`cep replay` writes the log of matches of a pipeline to a sink."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from cep.commands.options import AS_JSON, spark_settings_option
from cep.commands.state import format_option, show_table
from cep.counts import amount

if TYPE_CHECKING:
    from spark_runtime.sinks.match_log import Entry


@click.command()
@click.argument("file", metavar="PIPELINE", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--into",
    metavar="SINK",
    help="The name of a sink of the pipeline, or settings as in its file: '{format: json, path: out/again}'.",
)
@click.option(
    "--from",
    "start",
    metavar="OFFSET|TIME",
    help="Begin with this entry of the log, or with the first one written at this time or later; without it, "
    "with the oldest.",
)
@click.option(
    "--rule", "rules", metavar="NAME", multiple=True, help="Only rows of this rule; several times: these."
)
@click.option("--list", "is_list", is_flag=True, help="Show the entries of the log, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Show how many rows of each rule there are, and write nothing.")
@spark_settings_option
@format_option
def replay(
    file: str,
    into: str | None,
    start: str | None,
    rules: tuple[str, ...],
    is_list: bool,
    dry_run: bool,
    allow_spark_settings: bool,
    output_format: str,
) -> None:
    """Write the log of matches of a PIPELINE to a sink: the same rows, in their order, under the same ids.

    The pipeline has a log if its file has `log: PATH`. It may be running. Interrupt and repeat a replay as
    you like: a sink of files or a table gets nothing twice.
    """
    from rich.console import Console

    from cep.spool.new_files import umask
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.replaying import Replaying, end_of, entries_from, log_of, sink_of

    if is_list + dry_run + (into is not None) != 1:
        raise click.UsageError("give one of --into, --list and --dry-run")
    pipeline = load_pipeline(file)
    log = log_of(pipeline, file)
    made = Replaying(
        pipeline, log, entries_from(log, **_start(start)), frozenset(rules), allow_spark_settings
    )
    unknown, known = made.unknown_rules()
    if unknown:
        raise click.BadParameter(
            f"the log has no row of rule `{unknown[0]}`, but of {', '.join(known)}", param_hint="'--rule'"
        )
    end = "" if made.entries else f"; the log {end_of(log)}"
    if is_list:
        first = log.first_offset()
        if first and not AS_JSON[output_format]:
            click.echo(f"offsets 0 to {first - 1:,} are not kept")
        _show([_row(entry) for entry in made.entries], output_format, f"no entries{end}")
    elif dry_run:
        counts = sorted(made.counts().items())
        found = [{"rule": rule, "kind": kind, "rows": n} for (rule, kind), n in counts]
        _show(found, output_format, f"no rows{end}")
    else:
        assert into is not None
        with umask(pipeline.file_mode.umask):
            done = made.into(sink_of(pipeline, into), f"`{into}`", Console(highlight=False), _say)
        had = f"; {done.n_skipped:,} the sink had already" if done.n_skipped else ""
        batches = amount(done.n_batches, "micro-batch", "micro-batches")
        click.echo(f"wrote {amount(done.n_rows, 'row')} of {batches}{had}{end}")


def _start(text: str | None) -> dict[str, Any]:
    from cep.schema.time_literals import parse_timestamp

    if text is None:
        return {}
    if text.isdecimal():
        return {"start": int(text)}
    time_us = parse_timestamp(text)
    if time_us is None:
        raise click.BadParameter(
            f"`{text}` is neither an offset nor a time such as 2026-11-09T14:00:00Z", param_hint="'--from'"
        )
    return {"time_us": time_us}


def _row(entry: Entry) -> dict[str, Any]:
    from cep.schema.time_literals import time_for_people

    is_rows = bool(entry.run)
    return {
        "offset": entry.offset,
        "kind": "matches" if is_rows else "rules",
        "written": time_for_people(entry.time_us),
        "rules": entry.rules,
        "run": entry.run or None,
        "micro_batch": entry.micro_batch if is_rows else None,
        "rows": entry.n_rows if is_rows else None,
    }


def _show(rows: list[dict[str, Any]], output_format: str, otherwise: str) -> None:
    if AS_JSON[output_format]:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif rows:
        show_table(list(rows[0]), rows)
    else:
        click.echo(otherwise)


def _say(text: str) -> None:
    click.echo(text, err=True)
