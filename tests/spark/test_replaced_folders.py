"""A folder that is replaced between two runs of one process: nothing of the first run reaches the second."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.compat.driver import pyspark_version
from tests.kills.ticks import PAIR, Tick, expected_rows, row_of, write_rules
from tests.kills.written import lines_of

N = 30
PIPELINE = """rules: [rules.cep]
source: {stream: ticks, format: json, path: in, max_files_per_trigger: 1}
sinks: [{format: json, path: out}]
checkpoint: checkpoint
spark: {spark.sql.streaming.stateStore.minDeltasForSnapshot: 2}
"""


def run(folder: Path, more: str = "") -> None:
    (folder / "pipeline.yaml").write_text(f"{PIPELINE}{more}\n")
    run_pipeline(folder / "pipeline.yaml", console=Console(file=StringIO()), quiet=True)


def put(folder: Path, file: int, first: int) -> list[Tick]:
    ticks = [Tick(number) for number in range(first, first + N)]
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{file}.json").write_text("".join(f"{tick.text}\n" for tick in ticks))
    return ticks


def test_a_second_run_has_the_state_that_is_in_its_folder_then(spark: SparkSession, tmp_path: Path) -> None:
    place, kept = tmp_path / "place", tmp_path / "kept"
    place.mkdir()
    write_rules(place, PAIR)
    before = [tick for file in range(3) for tick in put(place, file, file * N)]
    run(place)
    stores: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore  # type: ignore[union-attr]
    if pyspark_version() >= (4, 3):  # before, it runs on, with no store
        assert not stores.isMaintenanceRunning()  # which would write into the folder later
    shutil.copytree(place, kept)
    for first in (3 * N, 10 * N):  # other events each time
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        ticks = [*before, *(tick for file in range(3, 6) for tick in put(place, file, first + file * N))]
        run(place)
        run(place, "at_end: finish")
        found = sorted((row_of(json.loads(line)) for line in lines_of(place / "out")), key=lambda row: row[2])
        assert found == expected_rows(place, ticks)
