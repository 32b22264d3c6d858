"""`cep doctor` says what would keep a pipeline from running."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from cep.commands.group import EXIT_PROBLEMS
from cep.commands.options import roots_option, spark_settings_option


@click.command()
@click.argument("pipeline", required=False, type=click.Path(path_type=Path))
@roots_option
@spark_settings_option
def doctor(pipeline: Path | None, roots: tuple[str, ...], allow_spark_settings: bool) -> None:
    """Say what is missing on this machine, or would keep a PIPELINE file from running.

    Sources and sinks are asked whether they exist, whether this user may read or write them, and
    whether what they hold fits. Nothing is read or written, and Spark is not started.
    """
    from spark_runtime.doctor import examine_machine, examine_pipeline
    from spark_runtime.pipeline.trust import Trust

    n_problems = _told(examine_machine())
    if pipeline is not None:
        n_problems += _told(
            examine_pipeline(pipeline, Trust.of(roots, any_spark_setting=allow_spark_settings))
        )
    if n_problems:
        click.get_current_context().exit(EXIT_PROBLEMS)


def _told(findings: Iterable[object]) -> int:
    """Print findings as they come; return how many are problems."""
    from spark_runtime.doctor import Finding

    n_problems = 0
    for finding in findings:
        assert isinstance(finding, Finding)
        note = f"  {finding.note}" if finding.note else ""
        click.echo(f"{'ok' if finding.problem is None else 'PROBLEM':<8}{finding.what}{note}")
        if finding.problem is not None:
            n_problems += 1
            click.echo("".join(f"        {line}\n" for line in str(finding.problem).splitlines()), nl=False)
    return n_problems
