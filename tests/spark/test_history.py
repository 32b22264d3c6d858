"""`cep backtest --spark`: the figures are those of a local run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.errors import InputError
from spark_runtime import detect
from tests.pages import cep_prints
from tests.unit.commands.test_backtest import folder as folder
from tests.unit.commands.test_backtest import write_view

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "options",
    [
        "--truth truth.csv --set small=10",
        "--sample 50% --set small=10",
        "--from 2024-05-02 --to 2024-05-05 --set small=10",
        "--from 2024-05-02T10:01:00Z --to 2024-05-05 --margin '0 seconds' --set small=10",
        "--sweep small=2,10",
    ],
)
def test_the_figures_are_those_of_a_local_run(spark: SparkSession, folder: Path, options: str) -> None:
    place = folder / "events.jsonl"
    command = f"backtest drain.cep -i {place} {options} --format json"
    expected = json.loads(cep_prints(command))
    assert expected["events"] > 0
    assert json.loads(cep_prints(f"{command} --spark")) == expected


def test_other_formats_and_tables_of_the_catalog_are_read(spark: SparkSession, folder: Path) -> None:
    table = pyarrow.json.read_json(folder / "events.jsonl")
    pq.write_table(table, folder / "events.parquet")
    (folder / "csv").mkdir()
    spark.read.json(str(folder / "events.jsonl")).coalesce(1).write.option("header", True).csv(
        str(folder / "csv/of_day")
    )
    spark.read.parquet(str(folder / "events.parquet")).createOrReplaceTempView("payments_of_may")
    expected = json.loads(cep_prints("backtest drain.cep -i events.jsonl --format json"))
    for given in (f"{folder}/events.parquet", f"{folder}/csv/of_day", "payments_of_may"):
        assert json.loads(cep_prints(f"backtest drain.cep -i {given} --format json --spark")) == expected, (
            given
        )


def test_an_input_of_no_known_format_is_refused(spark: SparkSession, folder: Path) -> None:
    result = CliRunner().invoke(main, ["backtest", "drain.cep", "-i", "no_such_table", "--spark"])
    assert (result.exit_code, "E0608" in result.stderr) == (1, True)


def test_a_rule_is_tuned_on_spark(spark: SparkSession, folder: Path) -> None:
    command = f"tune drain.cep -i {folder}/events.jsonl --alerts-per-day 0.5 --format json --parameter small"
    (found,) = json.loads(cep_prints(f"{command} --spark"))["parameters"]
    (expected,) = json.loads(cep_prints(command))["parameters"]
    assert found == expected  # the values that are tried are quantiles of the column, as in a local run


def test_the_rows_of_a_view_are_those_of_a_local_run(spark: SparkSession, folder: Path) -> None:
    write_view(folder)
    command = f"backtest views/owned.cep -i cards={folder}/cards.jsonl --format json"
    expected = json.loads(cep_prints(command))
    assert expected["rules"][0]["alerts"] == 3
    assert json.loads(cep_prints(f"{command} --spark")) == expected


def test_detect_takes_values_of_parameters(spark: SparkSession, folder: Path) -> None:
    events = spark.read.json(str(folder / "events.jsonl")).selectExpr(
        "tx", "card", "timestamp(ts) AS ts", "amount"
    )
    rules, streams = str(folder / "drain.cep"), str(folder / "streams.yaml")
    for parameters, n in ((None, 2), ({"small": "10"}, 4)):
        assert detect(events, rules, streams=streams, parameters=parameters).count() == n
    from cep.rulebook import load_rules

    with pytest.raises(InputError, match="parameters cannot be given here"):
        detect(events, load_rules(rules), parameters={"small": "10"})
