"""One rule text, the same matches: a local run, a Spark batch and a Spark stream over three scenarios."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from cep.local.match_file import match_file
from cep.rule_set import RuleSet
from cep.rulebook import compile_rulebook, load_rulebook
from scenarios.delivery import Faults
from scenarios.fraud.__main__ import PIPELINE as FRAUD_PIPELINE
from scenarios.fraud.__main__ import main as fraud_command
from scenarios.fraud.generate import Options, generate
from scenarios.run_folder import clear_results, place_pipeline
from scenarios.sensor.__main__ import PIPELINE as SENSOR_PIPELINE
from scenarios.sensor.__main__ import main as sensor_command
from scenarios.sensor.series import read_readings, read_windows, write_readings
from scenarios.trading.__main__ import PIPELINE as TRADING_PIPELINE
from scenarios.trading.__main__ import main as trading_command
from scenarios.trading.generate import MIN_EVENTS as MIN_TRADING_EVENTS
from scenarios.trading.generate import Options as TradingOptions
from scenarios.trading.generate import generate as generate_trading
from scenarios.trading.stories import PLOTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"
COUNTRIES = FRAUD_PIPELINE.with_name("countries.csv")
DATA_VARIABLE = "CEP_NAB_DATA"

pytestmark = pytest.mark.spark


def _in_one_order(matches: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    assert set(matches.column_names) == set(schema.names)
    rows = matches.select(schema.names).cast(schema).to_pylist()
    return sorted(rows, key=lambda row: (row["match_end"], row["match_start"], row["rule"], row["match_id"]))


def _local(programs: RuleSet, out: Path, *, as_stream: bool) -> list[dict[str, Any]]:
    tables = {name: COUNTRIES if name == "countries" else out / name for name in programs.tables}
    named = {name: tables.get(name, out / "events") for name in programs.inputs}
    result = match_file(programs, named, as_stream=as_stream)
    assert result.counts.late == 0
    return _in_one_order(result.matches, programs.match_schema)


def _on_spark(
    programs: RuleSet, pipeline: Path, out: Path, file_format: str, mode: str
) -> list[dict[str, Any]]:
    from spark_runtime import run_pipeline

    clear_results(out)
    placed = place_pipeline(
        pipeline, out, file_format=file_format, mode=mode, files_per_trigger=2, to_console=False
    )
    summary = run_pipeline(placed, quiet=True)
    assert summary.counts.late == 0
    assert summary.n_batches > 3 or mode == "batch"
    found = ds.dataset(out / "matches", format="parquet").to_table()
    return _in_one_order(found, programs.match_schema)


def _assert_all_ways_agree(rules: Path, pipeline: Path, out: Path, file_format: str) -> list[dict[str, Any]]:
    programs = compile_rulebook(load_rulebook([rules])).rule_set
    expected = _local(programs, out, as_stream=False)
    assert _local(programs, out, as_stream=True) == expected
    assert _on_spark(programs, pipeline, out, file_format, "batch") == expected
    assert _on_spark(programs, pipeline, out, file_format, "stream") == expected
    return expected


@pytest.mark.deep(but="json")
@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_fraud_matches_are_the_same_locally_in_a_batch_and_in_a_stream(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    # Arrival is out of order, with duplicates and malformed lines; stragglers alone may differ by the way of
    # running, because what is late hangs on how the input is cut into batches.
    options = Options(30_000, seed=5, file_format=file_format, files=8, faults=Faults(stragglers=0.0))
    manifest = generate(options, tmp_path)
    assert manifest["duplicates"] > 0
    matches = _assert_all_ways_agree(RULES / "fraud", FRAUD_PIPELINE, tmp_path, file_format)
    assert {row["rule"] for row in matches} == {path.stem for path in (RULES / "fraud").glob("*.cep")}


def test_trading_matches_are_the_same_locally_in_a_batch_and_in_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = TradingOptions(MIN_TRADING_EVENTS, seed=5, files=8, faults=Faults(stragglers=0.0))
    manifest = generate_trading(options, tmp_path)
    assert manifest["duplicates"] > 0
    matches = _assert_all_ways_agree(RULES / "trading", TRADING_PIPELINE, tmp_path, "json")
    assert {row["rule"] for row in matches} == {path.stem for path in (RULES / "trading").glob("*.cep")} | {
        "self_match"
    }


def write_benchmark(data: Path) -> None:
    rng = np.random.default_rng(1)
    names = ["lab/spike", "lab/drop", "lab/flat", "lab/shift"]
    (data / "data" / "lab").mkdir(parents=True)
    (data / "labels").mkdir()
    (data / "labels" / "combined_windows.json").write_text(json.dumps({f"{name}.csv": [] for name in names}))
    start = datetime(2014, 1, 1)
    for idx, name in enumerate(names):
        values = 100 + rng.standard_normal(500)
        at = 300 + 10 * idx
        match name:
            case "lab/spike":
                values[at] = 190
            case "lab/drop":
                values[at] = 10
            case "lab/flat":
                values[at : at + 20] = values[at]
            case "lab/shift":
                values[at:] += 50
        times = [start + timedelta(minutes=5 * row + idx) for row in range(500)]
        lines = [f"{time},{value}" for time, value in zip(times, values.tolist(), strict=True)]
        (data / "data" / f"{name}.csv").write_text("timestamp,value\n" + "\n".join(lines) + "\n")


def _deliver_shuffled(data: Path, out: Path) -> None:
    """Write the readings in an order of arrival that differs from that of time by less than the lateness."""
    readings = read_readings(data, list(read_windows(data)))
    lateness_us = 3_600_000_000
    times = readings["ts"].cast(pa.int64()).to_numpy()
    arrival = times + np.random.default_rng(2).integers(0, lateness_us, len(times))
    shuffled = readings.take(pa.array(np.argsort(arrival, kind="stable")))
    assert (np.diff(shuffled["ts"].cast(pa.int64()).to_numpy()) < 0).any()
    write_readings(shuffled, out / "events", n_files=8)


def test_sensor_matches_are_the_same_locally_in_a_batch_and_in_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_benchmark(tmp_path / "bench")
    _deliver_shuffled(tmp_path / "bench", tmp_path)
    matches = _assert_all_ways_agree(RULES / "sensor", SENSOR_PIPELINE, tmp_path, "csv")
    assert {row["rule"] for row in matches} == {path.stem for path in (RULES / "sensor").glob("*.cep")}


def test_the_fraud_command_finds_every_planted_fraud(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["--events", "10000", "--out", str(tmp_path), "--mode", "batch"]
    result = CliRunner().invoke(fraud_command, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    rules = {path.stem for path in (RULES / "fraud").glob("*.cep")}
    rows = [line.split()[:4] for line in result.output.splitlines()]
    found = {row[0]: row[1:] for row in rows if row and row[0] in rules}
    score_lines = result.output.partition("Planted fraud")[2].splitlines()
    assert max(map(len, score_lines)) <= 80
    assert found == {rule: ["5", "5", "100.0%"] for rule in rules}


def test_the_trading_command_finds_all_abuse_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["--events", str(MIN_TRADING_EVENTS), "--out", str(tmp_path), "--mode", "batch"]
    result = CliRunner().invoke(trading_command, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    score_lines = result.output.partition("Planted abuse")[2].splitlines()
    found = {row[0]: row[1:] for row in map(str.split, score_lines) if row and row[0] in PLOTS}
    assert found == {rule: ["6", "6", "100.0%", "6", "100.0%", "6", "0", "0"] for rule in PLOTS}


def test_the_sensor_command_says_which_windows_were_hit(spark: SparkSession, tmp_path: Path) -> None:
    write_benchmark(tmp_path / "bench")
    arguments = ["--data", str(tmp_path / "bench"), "--out", str(tmp_path / "run"), "--mode", "batch"]
    result = CliRunner().invoke(sensor_command, arguments, env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    assert "2,000 readings of 4 series, 0 labelled windows" in result.output
    assert "all rules" in result.output


@pytest.mark.skipif(
    DATA_VARIABLE not in os.environ, reason=f"{DATA_VARIABLE} does not name the data's folder"
)
def test_real_series_give_the_same_matches_locally_in_a_batch_and_in_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    _deliver_shuffled(Path(os.environ[DATA_VARIABLE]), tmp_path)
    assert len(_assert_all_ways_agree(RULES / "sensor", SENSOR_PIPELINE, tmp_path, "csv")) > 100
