"""``make package-test``: a wheel and an archive of `cep package` on machines that have compiled nothing.

The Pythons of these tests cannot compile: they refuse to import numba's half of the compiler. `make test`
does not run this file: it needs the wheel of `make wheel`, and starts a cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cep.jit.processors import fitting
from tests.e2e.standalone import SPARK_SUBMIT, Driver, Standalone, driver, standalone
from tests.e2e.test_wheel import environment_with

ROOT = Path(__file__).parents[2]
TAG = "cp{}{}".format(*sys.version_info[:2])
CARRIED = {"x86-64-v3", "aarch64"}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not CARRIED & {*fitting()}, reason="the wheel has no kernels for this processor"),
]

CANNOT_COMPILE = """
import sys

class Refused:
    def find_spec(self, name, path, target=None):
        if name == "cep.jit.numba_compiler":
            raise ImportError("this machine does not compile")

sys.meta_path.insert(0, Refused())
"""

RULES = """\
RULE rising FROM readings PARTITION BY device
PATTERN a -> b{2,3} WITHIN 1 HOUR
DEFINE a AS x > 1, b AS x > a.x
MEASURES LAST(b.x) AS top

RULE often FROM readings PARTITION BY device
PATTERN a DEFINE a AS COUNT(*) OVER LAST 10 MINUTES > 2 AND x > 2.5
"""
PIPELINE = """\
rules: [high.cep]
sources: [{{stream: readings, format: json, path: {shared}/events}}]
sinks: [{{format: json, path: {shared}/matches}}]
mode: batch
"""
PROBE = """\
import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_runtime.pipeline.packaged import pipeline_file
from spark_runtime.pipeline.pipeline_file import load_pipeline

programs = load_pipeline(pipeline_file("pipeline.yaml")).rules.programs


def first_task(batches):
    import time

    wall, used = time.perf_counter(), time.process_time()
    from cep.engine.warm import missing

    left = len(missing(programs))
    took = time.process_time() - used, time.perf_counter() - wall
    answer = [left, "numba.core.compiler" in sys.modules, sys.modules["cep"].__file__, *took]
    yield pa.RecordBatch.from_pylist([{"answer": json.dumps(answer)}])


frame = SparkSession.builder.getOrCreate().range(0, 2, 1, 2).mapInArrow(first_task, "answer string")
with open(sys.argv[1], "w") as file:
    file.write("[" + ",".join(row.answer for row in frame.collect()) + "]")
"""


@dataclass(frozen=True)
class Job:
    """An archive, what its pipeline must report, and the environment of a user who has compiled nothing."""

    archive: Path
    matches: set[str]
    home: Path
    cluster: Standalone
    python: Path

    def submitted(self, script: Path, *arguments: str, master: str) -> Driver:
        """Run a script by `spark-submit` with the archive, in Pythons that have nothing of this package."""
        python = [f"spark.pyspark.{name}={self.python}" for name in ("python", "driver.python")]
        settings = [*python, f"spark.executorEnv.HOME={self.home}", "spark.sql.shuffle.partitions=4"]
        command = [str(SPARK_SUBMIT), "--master", master, "--executor-memory", "1g"]
        command += [word for setting in settings for word in ("--conf", setting)]
        command += ["--py-files", str(self.archive), str(script), *arguments]
        with driver(["env", f"HOME={self.home}", *command], self.cluster.private) as run:
            assert run.wait() == 0, run.said
            return run

    def compiled(self) -> list[Path]:
        """Return the kernels that were compiled and the locks under which they would have been."""
        folders = (self.home, self.cluster.private, self.cluster.folder)
        return [path for folder in folders for path in folder.rglob("*.kernel*")]


def without_compiler(environment: Path) -> Path:
    """Let the Python of an environment not compile; return the Python."""
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text(CANNOT_COMPILE)
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `cep` of an environment with the wheel."""
    wheels = sorted((ROOT / "dist").glob(f"*-{TAG}-none-any.whl"), key=lambda path: path.stat().st_mtime)
    assert wheels, "run `make wheel` first"
    cep = environment_with(wheels[-1], tmp_path_factory.mktemp("installed") / "environment")
    without_compiler(cep.parents[1])
    return cep


def _reading(n: int) -> str:
    time = f"2024-05-01T10:{n // 60:02}:{n % 60:02}Z"
    return json.dumps({"device": f"d{n % 7}", "ts": time, "x": n * 37 % 100 / 33}) + "\n"


def run_cep(cep: Path, home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [cep, *arguments], cwd=home, env={**os.environ, "HOME": str(home)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Job]:
    """An archive that the installed wheel has written, and a cluster of two workers."""
    folder = tmp_path_factory.mktemp("packages")
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    [packages] = bare.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(
        sysconfig.get_path("purelib")
    )  # but not this package, which is a link
    python = without_compiler(bare)
    home = folder / "home"
    home.mkdir()
    with standalone(folder / "cluster", (1, 1)) as cluster:
        place = folder / "job"
        place.mkdir()
        (place / "streams.yaml").write_text(
            "streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}\n"
        )
        (place / "high.cep").write_text(RULES)
        (place / "pipeline.yaml").write_text(PIPELINE.format(shared=cluster.shared))
        (cluster.shared / "events").mkdir()
        (cluster.shared / "events/readings.jsonl").write_text("".join(map(_reading, range(3000))))
        events = str(cluster.shared / "events/readings.jsonl")
        lines = run_cep(installed, home, "match", str(place), "-i", events, "-q").splitlines()
        archive = folder / "job.zip"
        run_cep(installed, home, "package", str(place / "pipeline.yaml"), "-o", str(archive))
        with zipfile.ZipFile(archive) as file:
            file.extract("main.py", folder)
        yield Job(archive, {json.loads(line)["match_id"] for line in lines}, home, cluster, python)


def test_an_installation_of_the_wheel_compiles_nothing(installed: Path, tmp_path: Path) -> None:
    assert run_cep(installed, tmp_path, "warm") == "the engine is compiled already\n"
    assert [*installed.parents[1].rglob("__pycache__/*.kernel"), *tmp_path.rglob("*.kernel")] == []


@pytest.mark.parametrize("where", ["local[2]", "cluster"])
def test_an_archive_gives_the_matches_where_nothing_can_be_compiled(job: Job, where: str) -> None:
    master = job.cluster.url if where == "cluster" else where
    assert len(job.matches) > 100
    job.submitted(job.archive.with_name("main.py"), master=master)
    rows = [
        json.loads(line)
        for file in (job.cluster.shared / "matches").rglob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert len(rows) == len(job.matches)
    assert {row["match_id"] for row in rows} == job.matches
    assert job.compiled() == []


def test_the_first_task_of_an_executor_has_all_kernels(job: Job, tmp_path: Path) -> None:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    job.submitted(script, str(tmp_path / "answer.json"), master=job.cluster.url)
    answers = json.loads((tmp_path / "answer.json").read_text())
    for left, has_compiler, file, processor, wall in answers:
        assert (left, has_compiler) == (0, False)
        assert "job.zip" in file
        print(f"first task: {processor:.1f} s of processor time, {wall:.1f} s")
    assert len(answers) == 2
    assert job.compiled() == []
