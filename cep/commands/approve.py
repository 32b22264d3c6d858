"""`cep approve` approves a change of rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cep.commands.group import tell
from cep.commands.options import shadow_option

if TYPE_CHECKING:
    from spark_runtime.storage.checkpoint_files import CheckpointFiles


def files_of(checkpoint: str) -> CheckpointFiles:
    """Return the files of a checkpoint; only remote storage needs Spark."""
    from spark_runtime.storage.checkpoint_files import HadoopFiles, LocalFiles, is_remote

    if not is_remote(checkpoint):
        return LocalFiles(checkpoint)
    from spark_runtime.sessions.installed import check_pyspark
    from spark_runtime.sessions.local_session import session

    check_pyspark()
    return HadoopFiles(session(is_short=True), checkpoint)


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False))
@click.option("--by", help="Who approves; without it, the user of this machine.")
@shadow_option
def approve(pipeline: str, by: str | None, shadow: Sequence[str]) -> None:
    """Approve the change from the rules in the checkpoint of a PIPELINE file to those that the file names.

    A run that waits for the approval takes the rules within seconds; any other run takes them at its next
    start. If a rule file changes afterwards, that change needs an approval of its own.
    """
    import getpass
    from datetime import UTC, datetime

    from cep.spool.new_files import umask
    from spark_runtime.pipeline.approval import Approval
    from spark_runtime.pipeline.approval import approve as record
    from spark_runtime.pipeline.made import Reload
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.reloading import proposed

    made = load_pipeline(pipeline, shadow=shadow)
    if not made.is_stream or made.reload is not Reload.AFTER_APPROVAL:
        why = f"it has `reload: {made.reload}`" if made.is_stream else "it is a batch"
        tell(f"`{pipeline}` needs no approval: {why}")
        return
    files = files_of(made.checkpoint)
    before, found = proposed(files, made)
    for line in found.lines():
        tell(line)
    if found.is_same:
        tell("nothing to approve: the rules are those of the checkpoint")
        return
    time = datetime.now(UTC).isoformat(timespec="seconds")
    with umask(made.file_mode.umask):
        record(files, Approval(before.version, found.rules.version, by or getpass.getuser(), time))
    tell(f"approved: the rules {found.rules.version} may follow {before.version}")
