"""The Numenta Anomaly Benchmark as one keyed stream: many CSV files become readings in order of time."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

N_FILES = 24

_TIME = pa.timestamp("us")

WHERE_TO_GET_IT = (
    "get the Numenta Anomaly Benchmark, the public GitHub repository numenta/NAB, and pass the folder that "
    "holds its `data` and `labels`: --data NAB"
)


@dataclass(frozen=True, slots=True)
class Window:
    """A labelled anomaly of `series`, from `start_us` to `end_us`. Both ends are included."""

    series: str
    start_us: int
    end_us: int


def read_windows(data: Path) -> dict[str, list[Window]]:
    """Return the labelled windows of each series in `data`, by the name of its file without the extension.

    Raises click.ClickException: `data` is not a folder of the benchmark.
    """
    labels = data / "labels" / "combined_windows.json"
    if not labels.is_file():
        raise click.ClickException(f"there is no `{labels}`: {WHERE_TO_GET_IT}")
    known = json.loads(labels.read_text(encoding="utf-8"))
    windows = {
        series: [Window(series, *map(_time_us, bounds)) for bounds in known[f"{series}.csv"]]
        for series in sorted(name.removesuffix(".csv") for name in known)
        if (data / "data" / f"{series}.csv").is_file()
    }
    if not windows:
        raise click.ClickException(
            f"there is no series of the benchmark in `{data / 'data'}`: {WHERE_TO_GET_IT}"
        )
    return windows


def read_readings(data: Path, names: list[str]) -> pa.Table:
    """Return all readings of the named series in order of time, with the columns series, reading, ts, value.

    `reading` counts the values of a series in the order of its file, from 0. It orders values of equal time.
    """
    parts = []
    for name in names:
        table = csv.read_csv(
            data / "data" / f"{name}.csv",
            convert_options=csv.ConvertOptions(column_types={"timestamp": _TIME, "value": pa.float64()}),
        )
        columns = {
            "series": pa.array([name] * len(table)),
            "reading": pa.array(np.arange(len(table))),
            "ts": table["timestamp"],
            "value": table["value"],
        }
        parts.append(pa.table(columns))
    readings = pa.concat_tables(parts)
    order = [("ts", "ascending"), ("series", "ascending"), ("reading", "ascending")]
    return readings.take(pc.sort_indices(readings, order))


def write_readings(readings: pa.Table, folder: Path, n_files: int = N_FILES) -> None:
    """Write the readings into CSV files. Each file continues in time where the file before it ends."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bounds = np.linspace(0, len(readings), n_files + 1).astype(int).tolist()
    for idx, (first, end) in enumerate(pairwise(bounds)):
        path = folder / f"part-{idx:04d}.csv"
        csv.write_csv(readings.slice(first, end - first), path, csv.WriteOptions(quoting_style="none"))
        # A stream reads files by age. The age is set here, so that it does not depend on when the file was
        # written.
        latest_s = pc.max(readings["ts"].slice(first, end - first)).cast(pa.int64()).as_py() // 1_000_000
        os.utime(path, (latest_s, latest_s + idx))


def _time_us(text: str) -> int:
    return int(np.datetime64(text, "us").astype(np.int64))
