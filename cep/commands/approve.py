"""`cep approve` approves a change of rules, and `cep history` shows the rules that ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cep.commands.options import AS_JSON

if TYPE_CHECKING:
    from cep.program.changes import RuleChange
    from spark_runtime.pipeline.generations import Generation
    from spark_runtime.storage.checkpoint_files import CheckpointFiles


def files_of(checkpoint: str) -> CheckpointFiles:
    """Return the files of a checkpoint; only remote storage needs Spark."""
    from spark_runtime.storage.checkpoint_files import HadoopFiles, LocalFiles, is_remote

    if not is_remote(checkpoint):
        return LocalFiles(checkpoint)
    from spark_runtime.sessions.local_session import check_pyspark, session

    check_pyspark()
    return HadoopFiles(session(is_short=True), checkpoint)


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False))
@click.option("--by", help="Who approves; without it, the user of this machine.")
def approve(pipeline: str, by: str | None) -> None:
    """Approve the change from the rules in the checkpoint of a PIPELINE file to those that the file names.

    A run that waits for the approval takes the rules within seconds, another one at its next start. If a
    rule file changes afterwards, that change needs an approval of its own.
    """
    import getpass
    from datetime import UTC, datetime

    from cep.spool.new_files import umask
    from spark_runtime.pipeline.approval import Approval
    from spark_runtime.pipeline.approval import approve as record
    from spark_runtime.pipeline.made import Reload
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.reloading import proposed

    made = load_pipeline(pipeline)
    if not made.is_stream or made.reload is not Reload.AFTER_APPROVAL:
        why = f"it has `reload: {made.reload}`" if made.is_stream else "it is a batch"
        click.echo(f"`{pipeline}` needs no approval: {why}")
        return
    files = files_of(made.checkpoint)
    before, found = proposed(files, made)
    for line in found.lines():
        click.echo(line)
    if found.is_same:
        click.echo("nothing to approve: the rules are those of the checkpoint")
        return
    time = datetime.now(UTC).isoformat(timespec="seconds")
    with umask(made.file_mode.umask):
        record(files, Approval(before.version, found.rules.version, by or getpass.getuser(), time))
    click.echo(f"approved: the rules {found.rules.version} may follow {before.version}")


@click.command()
@click.argument("checkpoint")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(AS_JSON)),
    default="text",
    help="json: a JSON object in each line, with the texts of the rules.",
)
def history(checkpoint: str, output_format: str) -> None:
    """Show the rules that ran on the CHECKPOINT of a pipeline: since when, by whom, and what changed."""
    from spark_runtime.pipeline.checkpoint import recorded_rules

    for generation in recorded_rules(files_of(checkpoint), checkpoint):
        if AS_JSON[output_format]:
            click.echo(json.dumps(_as_json(generation), ensure_ascii=False))
        else:
            click.echo("\n".join(_lines(generation)))


def _lines(generation: Generation) -> Iterator[str]:
    cause = generation.cause
    who = [
        f"{word} {text}"
        for word, text in (
            ("by", cause.author),
            ("commit", cause.commit[:12]),
            ("approved by", cause.approved_by),
        )
        if text
    ]
    since = f"from micro-batch {generation.batch:,}"
    yield "  ".join((f"{generation.number}", generation.rules.version, cause.time or "-", since, *who))
    width = max((len(change.rule) for change in generation.changes), default=0)
    for change in generation.changes:
        past = ["it began with the past"] if change.rule in generation.warm else []
        why = "; ".join((*change.reasons, *past))
        yield f"   {change.verdict.value:<8}  {change.rule:<{width}}  {why}".rstrip()


def _as_json(generation: Generation) -> dict[str, Any]:
    from cep.schema.time_literals import time_for_people

    begins_us = generation.begins_us
    return {
        "number": generation.number,
        "version": generation.rules.version,
        "micro_batch": generation.batch,
        "begins_after": None if begins_us is None else time_for_people(begins_us),
        **{name: text or None for name, text in asdict(generation.cause).items()},
        "changes": list(map(_change, generation.changes)),
        "rules": [{"file": text.name, "text": text.text} for text in generation.rules.texts],
    }


def _change(change: RuleChange) -> dict[str, Any]:
    return {"rule": change.rule, "verdict": change.verdict.value, "reasons": list(change.reasons)}
