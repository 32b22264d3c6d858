"""`cep savepoint` copies what a pipeline remembers; `cep restore` creates a checkpoint from it."""

from __future__ import annotations

import click

from cep.commands.group import tell
from cep.counts import amount

MOST_KEY_GROUPS = 10_000
"""As `spark_runtime.wire.key_groups.MOST`, which would load that package at each start of `cep`."""


@click.command()
@click.argument("checkpoint")
@click.argument("directory", metavar="DIR")
def savepoint(checkpoint: str, directory: str) -> None:
    """Write what a pipeline remembers to the folder DIR. The pipeline may be running.

    CHECKPOINT is the checkpoint folder of the pipeline. The savepoint contains its state after the last
    finished micro-batch. Only a checkpoint on remote storage other than S3 needs Spark.
    """
    from spark_runtime.pipeline.saving import save

    manifest = save(checkpoint, directory)
    n_bytes = sum(file.bytes for file in manifest.files.values())
    tell(
        f"wrote {directory}: micro-batch {manifest.micro_batch:,}, watermark {manifest.watermark or '-'}, "
        f"{amount(manifest.key_groups, 'key group')}, {n_bytes:,} bytes"
    )


@click.command()
@click.argument("directory", metavar="DIR")
@click.argument("checkpoint")
@click.option(
    "--key-groups",
    type=click.IntRange(1, MOST_KEY_GROUPS),
    help="The number of key groups; without it, that of the savepoint.",
)
@click.option(
    "--pipeline",
    type=click.Path(exists=True, dir_okay=False),
    help="The pipeline file with changed rules; without it, the rules are those of the savepoint.",
)
def restore(directory: str, checkpoint: str, key_groups: int | None, pipeline: str | None) -> None:
    """Write a new CHECKPOINT folder that continues from the savepoint in the folder DIR.

    Then name the folder as `checkpoint` in the pipeline file, and start `cep run`. Nothing is written if the
    savepoint is damaged or the folder is not empty.

    Rules may have changed. Rules that mean the same continue. Others begin after the latest event that was
    read, and their open runs end. `cep diff` says which.
    """
    from spark_runtime.sessions.installed import check_pyspark

    check_pyspark()
    from cep.program.changes import Verdict
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.restoring import restore as restored

    made = None if pipeline is None else load_pipeline(pipeline)
    found = restored(directory, checkpoint, key_groups, made)
    for change in found.changes.rules:
        if change.verdict is not Verdict.SAME:
            tell(f"rule {change.rule}: {change.verdict}{''.join(f', {why}' for why in change.reasons)}")
    tell(
        f"wrote {checkpoint}: continues after micro-batch {found.manifest.micro_batch:,}, "
        f"{amount(found.n_groups, 'key group')}"
    )
