"""Run the sensor rules over real series with real anomalies: ``python -m scenarios.sensor --data NAB``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cep.commands.group import ErrorReportingGroup
from scenarios.command import run_in
from scenarios.run_folder import read_matches
from scenarios.sensor.score import MATCH_COLUMNS, score, score_table
from scenarios.sensor.series import WHERE_TO_GET_IT, read_readings, read_windows, write_readings

PIPELINE = Path(__file__).with_name("pipeline.yaml")


@click.group(cls=ErrorReportingGroup, invoke_without_command=True, subcommand_metavar="")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder with `data` and `labels` of the benchmark."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/sensor"), show_default=True
)
@click.option("--mode", type=click.Choice(["stream", "batch"]), default="stream", show_default=True)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(data: Path | None, out: Path, mode: str, debug: bool) -> None:
    """Run the sensor rules over the Numenta Anomaly Benchmark and count the anomalies that they find."""
    if data is None:
        raise click.ClickException(f"the scenario needs its data: {WHERE_TO_GET_IT}")
    windows = read_windows(data)
    readings = read_readings(data, list(windows))
    write_readings(readings, out / "events")
    console = Console()
    labelled = [window for of_series in windows.values() for window in of_series]
    console.print(f"{len(readings):,} readings of {len(windows)} series, {len(labelled)} labelled windows")
    run_in(PIPELINE, out, file_format="csv", mode=mode)
    console.print(score_table(score(read_matches(out / "matches", MATCH_COLUMNS), labelled)))


if __name__ == "__main__":
    main()
