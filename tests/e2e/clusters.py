"""``make cluster-test``: pipelines on a standalone cluster give the results of a local run.

`make test` does not run this file: each run of a pipeline starts a driver and executors.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml

from scenarios.delivery import Faults
from scenarios.fraud.__main__ import PIPELINE as FRAUD
from scenarios.fraud.generate import Options, generate
from scenarios.run_folder import place_pipeline
from scenarios.sensor.__main__ import PIPELINE as SENSOR
from scenarios.sensor.series import read_readings, read_windows, write_readings
from tests.e2e.standalone import HIDES, SPARK_SUBMIT, Driver, Standalone, driver, standalone
from tests.e2e.test_scenarios import write_benchmark

pytestmark = pytest.mark.spark

N_FILES = 12
"""Files of events, one in a micro-batch: enough time for what happens in the middle."""

Results = dict[str, list[str]]


@dataclass(frozen=True)
class Scenario:
    """Events on the shared disk, and the results of a local run."""

    name: str
    pipeline: Path
    folder: Path
    expected: Results

    def settings(self, name: str, **changed: Any) -> Path:
        """Write the pipeline file of a run; its results are in the folder `name` of the shared disk."""
        out = self.folder.parent / name
        return _settings(self.pipeline, self.folder, out, **changed)


def _settings(pipeline: Path, events: Path, out: Path, **changed: Any) -> Path:
    shutil.rmtree(out, ignore_errors=True)
    file_format = "csv" if pipeline == SENSOR else "json"
    placed = place_pipeline(
        pipeline, out, file_format=file_format, mode="stream", files_per_trigger=1, to_console=False
    )
    spec = yaml.safe_load(placed.read_text())
    for source in spec.get("sources", [spec.get("source")]):
        if not Path(source["path"]).is_absolute():
            source["path"] = str(events / Path(source["path"]).name)
    spec |= changed
    placed.write_text(yaml.safe_dump(spec, sort_keys=False))
    return placed


def results(out: Path) -> Results:
    """Return the rows that a run has written, as texts in one order."""
    found = {"matches": ds.dataset(out / "matches", format="parquet").to_table().to_pylist()}
    for name in ("late", "dead_letter"):
        found[name] = [
            json.loads(line)
            for file in sorted((out / name).rglob("*.json"))
            for line in file.read_text().splitlines()
        ]
    return {
        name: sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
        for name, rows in found.items()
    }


def run_locally(pipeline: Path, events: Path, folder: Path) -> Results:
    """Return the results of a run on a local master."""
    out, logs = (folder / f"{events.name}-{name}" for name in ("expected", "local"))
    settings = _settings(pipeline, events, out, spark={"spark.master": "local[2]"})
    logs.mkdir()
    with driver([sys.executable, "-m", "cep", "run", str(settings)], logs) as run:
        assert run.wait() in (0, 3), run.said
    return results(out)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master, a worker with two cores and one with a core."""
    with standalone(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def fraud(cluster: Standalone) -> Scenario:
    """Card events, with late and malformed ones."""
    folder = cluster.shared / "fraud"
    options = Options(20_000, seed=5, file_format="json", files=N_FILES, faults=Faults(stragglers=0.002))
    generate(options, folder)
    expected = run_locally(FRAUD, folder, cluster.folder)
    assert all(len(rows) > 5 for rows in expected.values()), {
        name: len(rows) for name, rows in expected.items()
    }
    return Scenario("fraud", FRAUD, folder, expected)


@pytest.fixture(scope="module")
def sensor(cluster: Standalone) -> Scenario:
    """Readings as CSV, with late and malformed ones; thousands of sensors make the state large."""
    folder, data = cluster.shared / "sensor", cluster.folder / "readings"
    write_benchmark(data)
    readings = read_readings(data, list(read_windows(data)))
    times_us = readings["ts"].cast(pa.int64()).to_numpy()
    n_series, rng = 3000, np.random.default_rng(4)
    at = np.arange(len(readings) * 40)
    more = {
        "series": pa.array([f"many/{number % n_series}" for number in at.tolist()]),
        "reading": pa.array(at // n_series),
        "ts": pa.array(rng.choice(times_us, len(at))).cast(readings.schema.field("ts").type),
        "value": pa.array(rng.standard_normal(len(at)) + 100),
    }
    readings = pa.concat_tables([readings, pa.table(more, readings.schema)])
    delay_us = (
        np.where(rng.random(len(readings)) < 0.002, 40, 0.9) * 3_600_000_000 * rng.random(len(readings))
    )
    arrival = readings["ts"].cast(pa.int64()).to_numpy() + delay_us
    write_readings(readings.take(pa.array(np.argsort(arrival))), folder / "events", n_files=N_FILES)
    with (folder / "events" / "part-0003.csv").open("a") as file:
        file.write("lab/spike,9999,tomorrow,1.5\n")
    expected = run_locally(SENSOR, folder, cluster.folder)
    assert all(expected.values()), {name: len(rows) for name, rows in expected.items()}
    return Scenario("sensor", SENSOR, folder, expected)


@pytest.fixture(params=["fraud", "sensor"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """Each of the scenarios."""
    found: Scenario = request.getfixturevalue(request.param)
    return found


def cep_run(cluster: Standalone, settings: Path) -> list[str]:
    """Return the command that runs a pipeline on the cluster, as in docs/operate/running.md."""
    spec = yaml.safe_load(settings.read_text())
    spec["spark"] = {"spark.master": cluster.url, "spark.executor.memory": "1g"}
    settings.write_text(yaml.safe_dump(spec, sort_keys=False))
    return [sys.executable, "-m", "cep", "run", str(settings)]


def submitted(cluster: Standalone, settings: Path) -> list[str]:
    """Return the command that runs a pipeline by `spark-submit`."""
    script = settings.with_name("job.py")
    script.write_text(f"from spark_runtime import run_pipeline\n\nrun_pipeline({str(settings)!r})\n")
    memory = ("--executor-memory", "1g")
    python = ("--conf", f"spark.pyspark.python={sys.executable}")
    return [str(SPARK_SUBMIT), "--master", cluster.url, *memory, *python, str(script)]


def has_committed(settings: Path, number: int) -> bool:
    """Return whether a run has completed micro-batch `number`."""
    return (settings.parent / "checkpoint" / "query" / "commits" / str(number)).exists()


def ended_well(run: Driver, settings: Path, expected: Results) -> None:
    """Wait for the end of a run, and compare its results."""
    assert run.wait() in (0, 3), run.said
    found = results(settings.parent)
    for name, rows in expected.items():
        assert found[name] == rows, name
    marks = [str(path) for path in settings.parent.rglob(".shared-*")]
    assert marks == []


@pytest.mark.parametrize("way", [cep_run, submitted])
def test_a_cluster_gives_what_a_local_run_gives(cluster: Standalone, scenario: Scenario, way: Any) -> None:
    settings = scenario.settings(f"{scenario.name}-{way.__name__}")
    with driver(way(cluster, settings), cluster.private) as run:
        ended_well(run, settings, scenario.expected)
    known = json.loads((settings.parent / "checkpoint" / "pipeline.json").read_text())
    assert known["key_groups"] == cluster.n_cores


def test_a_worker_that_is_killed_is_replaced_by_one_that_is_added(
    cluster: Standalone, scenario: Scenario
) -> None:
    settings = scenario.settings(f"{scenario.name}-worker-killed", state="files")
    with driver(cep_run(cluster, settings), cluster.private) as run:
        run.wait_for(lambda: has_committed(settings, 2))
        with run.stopped():  # otherwise it may end before the new worker has started
            assert not has_committed(settings, N_FILES - 2)
            cluster.kill_worker(0)
            cluster.add_worker(2)
        ended_well(run, settings, scenario.expected)
    # The rules of the other scenario join a table, and their state is in Spark's store.
    assert (settings.parent / "checkpoint" / "state").exists() == (scenario.name == "sensor")


def test_a_driver_that_is_killed_continues(cluster: Standalone, scenario: Scenario) -> None:
    settings = scenario.settings(f"{scenario.name}-driver-killed")
    command = cep_run(cluster, settings)
    for number in (2, 5):
        with driver(command, cluster.private) as run:
            run.wait_for(partial(has_committed, settings, number))
            run.kill()
    with driver(command, cluster.private) as run:
        ended_well(run, settings, scenario.expected)


needs_hiding = pytest.mark.skipif(not HIDES, reason="workers that have other disks need root and `unshare`")


@needs_hiding
@pytest.mark.parametrize("mode", ["stream", "batch"])
@pytest.mark.parametrize("what", ["checkpoint", "parquet", "json", "late", "events"])
def test_a_folder_of_the_driver_alone_is_refused(
    cluster: Standalone, fraud: Scenario, what: str, mode: str
) -> None:
    if (what, mode) == ("checkpoint", "batch"):
        pytest.skip("a batch has no checkpoint")
    settings = fraud.settings(f"private-{what}", mode=mode)
    spec = yaml.safe_load(settings.read_text())
    private = str(cluster.private / what)
    shutil.rmtree(private, ignore_errors=True)
    match what:
        case "checkpoint":
            spec["checkpoint"] = private
        case "late":
            spec["late"]["path"] = private
        case "events":
            shutil.copytree(fraud.folder / "events", private)
            spec["sources"][0]["path"] = private
        case _:
            spec["sinks"] = [{"format": what, "path": private}]
    settings.write_text(yaml.safe_dump(spec, sort_keys=False))
    with driver(cep_run(cluster, settings), cluster.private) as run:
        assert run.wait() == 1, run.said
    assert "error[E0809]" in run.said, run.said
    assert private in run.said
    assert [path for path in cluster.private.rglob("part-*") if "events" not in path.parts] == []
    assert list(settings.parent.rglob("part-*")) == []


@needs_hiding
def test_a_worker_without_the_shared_disk_that_is_added_writes_nothing(
    cluster: Standalone, fraud: Scenario
) -> None:
    settings = fraud.settings("other-disk")
    command = cep_run(cluster, settings)
    with driver(command, cluster.private) as run:
        run.wait_for(lambda: has_committed(settings, 2))
        with run.stopped():
            while cluster.workers:  # otherwise Spark might give no task to the new one
                cluster.kill_worker(0)
            cluster.add_worker(1, hidden=cluster.shared)
        code = run.wait()
    cluster.kill_worker(0)
    cluster.add_worker(2)
    cluster.add_worker(1)
    assert code == 1, run.said
    assert "error[E0809]" in run.said, run.said
    with driver(command, cluster.private) as run:
        ended_well(run, settings, fraud.expected)
