"""Generate events, run the pipeline and score the alerts with one command: ``python -m scenarios.fraud``."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow.parquet as pq
from rich.console import Console

from cep.commands.group import EXIT_INTERRUPTED, ErrorReportingGroup
from cep.commands.run import compile_for
from scenarios.fraud.generate import MIN_EVENTS, Options, generate
from scenarios.fraud.score import MATCH_COLUMNS, score, score_table
from scenarios.run_folder import clear_results, place_pipeline, read_matches

PIPELINE = Path(__file__).with_name("pipeline.yaml")


@click.group(cls=ErrorReportingGroup, invoke_without_command=True, subcommand_metavar="")
@click.option("--events", type=click.IntRange(min=MIN_EVENTS), default=2_000_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/fraud"), show_default=True
)
@click.option(
    "--format", "file_format", type=click.Choice(["json", "parquet"]), default="json", show_default=True
)
@click.option("--mode", type=click.Choice(["stream", "batch"]), default="stream", show_default=True)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(events: int, seed: int, out: Path, file_format: str, mode: str, debug: bool) -> None:
    """Generate card events with planted fraud, run the rules on Spark, compare alerts with the truth."""
    from spark_runtime import run_pipeline

    console = Console()
    console.print(f"generating {events:,} card events in {out / 'events'} (seed {seed})")
    manifest = generate(Options(events, seed, file_format), out)
    console.print(
        f"{manifest['lines']:,} lines: {manifest['duplicates']:,} delivered twice, "
        f"{sum(manifest['malformed'].values()):,} malformed, {manifest['stragglers']:,} stragglers, "
        f"{manifest['stories']:,} planted stories"
    )
    clear_results(out)
    pipeline = place_pipeline(PIPELINE, out, file_format=file_format, mode=mode)
    compile_for(pipeline)
    summary = run_pipeline(pipeline)
    if summary.was_stopped:
        click.get_current_context().exit(EXIT_INTERRUPTED)
    truth = pq.read_table(out / "truth.parquet")
    console.print(score_table(score(read_matches(out / "matches", MATCH_COLUMNS), truth)))


if __name__ == "__main__":
    main()
