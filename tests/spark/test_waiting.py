"""A source that is far behind: what happens at the limit of waiting events. `tests.e2e.behind` tries more."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from tests.e2e.behind import Input, Kind, falls_behind, is_silent, nothing

KIND = Kind(behind_s=900, rate=5.0, n_files=3, limit=1500, formats=("json", "parquet"))


def run(pipeline: Path) -> dict[str, Any]:
    return run_pipeline(pipeline, console=Console(file=StringIO()), quiet=True).to_json()


@pytest.mark.parametrize("at_max", ["pause", "go_on"])
def test_a_source_that_is_far_behind_loses_nothing_or_what_is_counted(
    spark: SparkSession, tmp_path: Path, at_max: str
) -> None:
    falls_behind(Input(replace(KIND, at_max=at_max), tmp_path), run, nothing)


def test_all_is_read_before_the_input_is_complete_though_a_source_never_gives_an_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    is_silent(Input(replace(KIND, formats=("json", "json")), tmp_path), run, None)
