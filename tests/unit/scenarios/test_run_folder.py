from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scenarios.fraud.__main__ import PIPELINE
from scenarios.run_folder import RESULTS, clear_results, place_pipeline
from scenarios.sensor.__main__ import PIPELINE as SENSOR_PIPELINE
from scenarios.trading.__main__ import PIPELINE as TRADING_PIPELINE

ROOT = Path(__file__).resolve().parents[3]


def test_the_usual_run_uses_the_pipeline_file_that_users_read() -> None:
    for folder, pipeline in (("fraud", PIPELINE), ("trading", TRADING_PIPELINE)):
        assert place_pipeline(pipeline, ROOT / "out" / folder, file_format="json", mode="stream") == pipeline
    assert place_pipeline(SENSOR_PIPELINE, ROOT / "out" / "sensor", file_format="csv", mode="stream") == (
        SENSOR_PIPELINE
    )


TABLES = {
    PIPELINE: {
        "customers": ("parquet", "customers"),
        "countries": ("csv", str(PIPELINE.with_name("countries.csv"))),
    },
    SENSOR_PIPELINE: {},
    TRADING_PIPELINE: {"accounts": ("parquet", "accounts"), "instruments": ("parquet", "instruments")},
}


@pytest.mark.parametrize("pipeline", [PIPELINE, SENSOR_PIPELINE, TRADING_PIPELINE])
def test_a_moved_pipeline_reads_the_same_rules_and_keeps_all_else_in_its_folder(
    pipeline: Path, tmp_path: Path
) -> None:
    placed = place_pipeline(
        pipeline, tmp_path / "run", file_format="parquet", mode="batch", files_per_trigger=9
    )
    before = yaml.safe_load(pipeline.read_text())
    after = yaml.safe_load(placed.read_text())
    assert placed == tmp_path / "run" / "pipeline.yaml"
    assert (placed.parent / after["streams"]).samefile(pipeline.parent / before["streams"])
    assert [Path(path) for path in after["rules"]] == [
        (pipeline.parent / path).resolve() for path in before["rules"]
    ]
    first, *tables = after["sources"] if "sources" in after else [after["source"]]
    assert first == {
        **(before["sources"][0] if "sources" in before else before["source"]),
        "format": "parquet",
        "path": "events",
        "max_files_per_trigger": 9,
    }
    assert {table["table"]: (table["format"], table["path"]) for table in tables} == TABLES[pipeline]
    places = [after[name]["path"] for name in ("late", "dead_letter")] + [after["checkpoint"]]
    assert places == ["late", "dead_letter", "checkpoint"]
    assert [sink.get("path") for sink in after["sinks"]] == ["matches", None]
    assert after["mode"] == "batch"


def test_a_run_can_leave_the_console_alone(tmp_path: Path) -> None:
    placed = place_pipeline(PIPELINE, tmp_path, file_format="json", mode="stream", to_console=False)
    assert [sink["format"] for sink in yaml.safe_load(placed.read_text())["sinks"]] == ["parquet"]


def test_clearing_leaves_the_events(tmp_path: Path) -> None:
    for name in ("events", *RESULTS):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    clear_results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["events"]
