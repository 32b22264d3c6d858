from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cep.arrays import F64
from cep.local.match_file import Result, match_file
from cep.rulebook import compile_rulebook, load_rulebook
from scenarios.sensor.__main__ import main
from scenarios.sensor.score import Score, score
from scenarios.sensor.series import N_FILES, Window, read_readings, read_windows, write_readings

ROOT = Path(__file__).resolve().parents[3]
T0 = datetime(2014, 1, 1)
STEP = timedelta(minutes=5)


def write_series(data: Path, name: str, values: F64) -> None:
    path = data / "data" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{T0 + idx * STEP},{value}" for idx, value in enumerate(values.tolist())]
    path.write_text("timestamp,value\n" + "\n".join(lines) + "\n")


def wobble(n: int, level: float = 100.0) -> F64:
    found: F64 = level + np.sin(np.arange(n) * 0.7) + 0.01 * np.arange(n) % 0.13
    return found


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    data = tmp_path / "bench"
    spike, drop, flat, shift, calm = (wobble(400) for _ in range(5))
    spike[300] = 180.0
    drop[310] = 20.0
    flat[320:345] = 100.5
    shift[250:] += 60.0
    for name, values in {"spike": spike, "drop": drop, "flat": flat, "shift": shift, "calm": calm}.items():
        write_series(data, f"lab/{name}", values)
    windows = {
        "lab/spike.csv": [[str(T0 + 290 * STEP), str(T0 + 310 * STEP)]],
        "lab/drop.csv": [[f"{T0 + 100 * STEP}.000000", f"{T0 + 120 * STEP}.000000"]],
        "lab/flat.csv": [],
        "lab/shift.csv": [],
        "lab/calm.csv": [],
        "lab/not_there.csv": [[str(T0), str(T0)]],
    }
    (data / "labels").mkdir()
    (data / "labels" / "combined_windows.json").write_text(json.dumps(windows))
    return data


def _run(data: Path, out: Path, n_files: int = 3) -> Result:
    write_readings(read_readings(data, list(read_windows(data))), out, n_files)
    programs = compile_rulebook(load_rulebook([ROOT / "rules" / "sensor"])).rule_set
    return match_file(programs, out)


def test_each_rule_sees_what_it_is_for_and_only_that(benchmark: Path, tmp_path: Path) -> None:
    result = _run(benchmark, tmp_path / "events")
    found = {(row["rule"], row["series"]): row["match_end"] for row in result.matches.to_pylist()}
    assert found == {
        ("spike", "lab/spike"): (T0 + 300 * STEP).replace(tzinfo=UTC),
        ("drop", "lab/drop"): (T0 + 310 * STEP).replace(tzinfo=UTC),
        ("flat_line", "lab/flat"): (T0 + 331 * STEP).replace(tzinfo=UTC),
        ("level_shift", "lab/shift"): (T0 + 271 * STEP).replace(tzinfo=UTC),
        ("spike", "lab/shift"): (T0 + 250 * STEP).replace(tzinfo=UTC),
    }


def _plain_findings(values: F64, times_us: np.ndarray) -> set[tuple[str, int]]:
    """Return (rule, end in us) of what spike, drop and level_shift find in a series, by numpy alone."""
    hour_us = 3_600_000_000

    def reported(ends: list[int], silent_us: int) -> list[int]:
        kept: list[int] = []
        for end_us in ends:
            if not kept or end_us - kept[-1] >= silent_us:
                kept.append(end_us)
        return kept

    ends: dict[str, list[int]] = {"spike": [], "drop": [], "level_shift": []}
    last_end = -1
    for at in range(len(values)):
        value, before = values[at], values[max(at - 210, 0) : at]
        if len(before) == 210:
            bound = max(6 * before.std(ddof=1), 0.1 * abs(before.mean()))
            if value > before.max() and value - before.mean() > bound:
                ends["spike"].append(int(times_us[at]))
            if value < before.min() and before.mean() - value > bound:
                ends["drop"].append(int(times_us[at]))
        first, second = values[max(at - 47, 0) : max(at - 23, 0)], values[max(at - 23, 0) : at]
        if len(first) == 24 and at - 24 > last_end and times_us[at] - times_us[at - 24] <= 14 * 24 * hour_us:
            bound = max(3 * first.std(ddof=1), 3 * second.std(ddof=1), 0.2 * abs(first.mean()))
            if abs(second.mean() - first.mean()) > bound:
                ends["level_shift"].append(int(times_us[at]))
                last_end = at
    silent_us = {"spike": 16 * hour_us, "drop": 16 * hour_us, "level_shift": 6 * hour_us}
    return {(rule, end_us) for rule in ends for end_us in reported(ends[rule], silent_us[rule])}


def _assert_numpy_finds_the_same(data: Path, out: Path) -> int:
    """Compare the rules with numpy over every series of `data`; return the number of findings."""
    result = _run(data, out, n_files=N_FILES)
    assert len(result.dead_letters) == 0
    ends = result.matches["match_end"].cast(pa.int64()).to_pylist()
    rows = zip(result.matches["rule"].to_pylist(), result.matches["series"].to_pylist(), ends, strict=True)
    found = {(series, rule, end) for rule, series, end in rows if rule != "flat_line"}
    expected = set()
    frame = read_readings(data, list(read_windows(data))).to_pandas()
    for series, readings in frame.groupby("series"):
        times_us = readings["ts"].to_numpy().astype("datetime64[us]").astype(np.int64)
        plain = _plain_findings(readings["value"].to_numpy(), times_us)
        expected |= {(series, rule, end_us) for rule, end_us in plain}
    assert found == expected
    return len(found)


def test_numpy_over_sliding_windows_finds_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for number in range(6):
        values = 50 + rng.standard_normal(900)
        values[rng.integers(0, 900, 12)] += rng.choice([-1, 1], 12) * rng.uniform(5, 12, 12)
        start = int(rng.integers(300, 800))
        values[start:] *= rng.uniform(1.1, 1.6)
        write_series(tmp_path / "bench", f"lab/{number}", values)
    labels: dict[str, list[str]] = {f"lab/{number}.csv": [] for number in range(6)}
    (tmp_path / "bench" / "labels").mkdir()
    (tmp_path / "bench" / "labels" / "combined_windows.json").write_text(json.dumps(labels))
    assert _assert_numpy_finds_the_same(tmp_path / "bench", tmp_path / "events") > 15


@pytest.mark.skipif("CEP_NAB_DATA" not in os.environ, reason="CEP_NAB_DATA does not name the data's folder")
def test_numpy_finds_the_same_in_real_series(tmp_path: Path) -> None:
    assert _assert_numpy_finds_the_same(Path(os.environ["CEP_NAB_DATA"]), tmp_path / "events") > 100


def test_the_rules_do_not_depend_on_the_scale(tmp_path: Path) -> None:
    ends = []
    for factor in (1e-3, 1.0, 1e9):
        data = tmp_path / str(factor)
        values = wobble(400)
        values[300] = 180.0
        write_series(data, "s", values * factor)
        (data / "labels").mkdir()
        (data / "labels" / "combined_windows.json").write_text('{"s.csv": []}')
        result = _run(data, tmp_path / f"{factor}-events")
        ends.append(
            list(
                zip(result.matches["rule"].to_pylist(), result.matches["match_end"].to_pylist(), strict=True)
            )
        )
    assert ends[0] == ends[1] == ends[2]
    assert len(ends[0]) == 1


def test_readings_of_all_series_come_in_order_of_time(benchmark: Path, tmp_path: Path) -> None:
    readings = read_readings(benchmark, list(read_windows(benchmark)))
    assert readings.schema.names == ["series", "reading", "ts", "value"]
    assert len(readings) == 5 * 400
    times = readings["ts"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    write_readings(readings, tmp_path / "events", n_files=4)
    files = sorted((tmp_path / "events").iterdir())
    ages = [file.stat().st_mtime for file in files]
    assert ages == sorted(set(ages))
    assert sum(len(file.read_text().splitlines()) - 1 for file in files) == len(readings)


def test_a_window_is_hit_by_the_end_of_a_match_inside_it() -> None:
    windows = [Window("a", 100, 200), Window("a", 300, 400), Window("b", 100, 200)]
    time = pa.timestamp("us", tz="UTC")
    matches = pa.table(
        {
            "rule": ["spike", "spike", "drop", "drop"],
            "series": ["a", "a", "a", "b"],
            "match_end": pa.array([100, 150, 250, 200]).cast(time),
        }
    )
    assert score(matches, windows) == [
        Score("drop", windows=3, windows_hit=1, alerts=2, alerts_outside=1),
        Score("spike", windows=3, windows_hit=1, alerts=2, alerts_outside=0),
        Score("all rules", windows=3, windows_hit=2, alerts=4, alerts_outside=1),
    ]


def test_a_score_without_alerts_still_counts_the_windows() -> None:
    nothing = pa.table(
        {
            "rule": pa.array([], pa.string()),
            "series": pa.array([], pa.string()),
            "match_end": pa.array([], pa.timestamp("us", tz="UTC")),
        }
    )
    assert score(nothing, [Window("a", 1, 2)]) == [Score("all rules", 1, 0, 0, 0)]


@pytest.mark.parametrize("arguments", [[], ["--data", "nowhere"]])
def test_without_its_data_the_scenario_says_where_to_get_it(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert "numenta/NAB" in line
    assert "--data NAB" in line


def test_a_folder_without_series_is_told(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "combined_windows.json").write_text('{"a/b.csv": []}')
    result = CliRunner().invoke(main, ["--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "no series of the benchmark" in result.output
