"""``python -m tests.e2e.crashes``: kills `cep run` while it writes, and compares with a run left alone.

The fraud scenario as a stream of many small micro-batches. The process and its JVM get SIGKILL at moments
when files of a micro-batch are being written, or just were; the command starts again on the same checkpoint.
In the end matches, late events and dead letters must be those of a run that nothing disturbed, each once.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import click
import pyarrow.dataset as ds

from scenarios.fraud.__main__ import PIPELINE
from scenarios.fraud.generate import Options, generate
from scenarios.run_folder import clear_results, place_pipeline
from tests.kills.points import File
from tests.kills.runs import Kill, killed

DELAYS_MS = (0, 0, 10, 30, 60, 100)
"""From the sight of a folder that is being written to the kill."""


def written(folder: Path) -> dict[str, list[str]]:
    """Return what the sinks hold."""
    columns = ["rule", "match_id", "match_start", "match_end"]
    matches = ds.dataset(folder / "matches", format="parquet").to_table(columns=columns).to_pylist()
    found = {"matches": sorted(map(str, matches))}
    for name in ("late", "dead_letter"):
        files = (folder / name).rglob("part-*")
        found[name] = sorted(line for file in files for line in file.read_text().splitlines())
    return found


def run_and_kill(pipeline: Path, drawn: random.Random) -> bool:
    """Run the pipeline and kill it while it writes; return False if it ended before."""
    written_to = File("*/.batch=*")
    return killed(pipeline, Kill(written_to, drawn.randint(1, 4), wait_ms=drawn.choice(DELAYS_MS)))


@click.command(help="Kill a running stream again and again; the output must be that of a quiet run.")
@click.option("--kills", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--events", type=click.IntRange(min=5_000), default=200_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/crashes"), show_default=True
)
def main(kills: int, events: int, seed: int, out: Path) -> None:
    """Run, kill, compare."""
    shutil.rmtree(out, ignore_errors=True)
    generate(Options(events, seed, "json", 60), out)
    pipeline = place_pipeline(
        PIPELINE, out, file_format="json", mode="stream", files_per_trigger=1, to_console=False
    )
    killed(pipeline, Kill())
    expected = written(out)
    clear_results(out)
    drawn = random.Random(seed)
    n_killed = 0
    while n_killed < kills and run_and_kill(pipeline, drawn):
        n_killed += 1
        click.echo(f"killed {n_killed} times, {len(list(out.glob('matches/batch=*')))} folders of matches")
    if n_killed == 0:
        raise click.ClickException("the run ended before it was seen to write")
    killed(pipeline, Kill())
    found = written(out)
    for name, rows in expected.items():
        click.echo(f"{name:<12}{len(rows):>8,}  {'equal' if found[name] == rows else 'DIFFERENT'}")
    if found != expected:
        raise click.ClickException(f"after {n_killed} kills the output is another (seed {seed})")
    click.echo(f"killed {n_killed} times: nothing lost, nothing twice")


if __name__ == "__main__":
    main()
