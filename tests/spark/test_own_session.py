"""`detect` in a session that its user has started: Spark's own settings, and another Python first on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_runtime.sessions import worker_python

ROOT = Path(__file__).parents[2]
VERSION = "{}.{}".format(*sys.version_info[:2])
RUN = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("tests.spark.own_session", run_name="__main__")
"""
HELP = (
    f"help: set PYSPARK_PYTHON to a Python {VERSION} that has spark-cep[spark], on every machine; "
    "see docs/operate/running.md"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """Return what the process said; `python3` on its PATH is a Python without any package."""
    other = folder / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    changed = folder / "changed"
    for name in ("cep", "spark_runtime"):
        shutil.copytree(ROOT / name, changed / name, ignore=shutil.ignore_patterns("__pycache__"))
    (changed / "cep/errors.py").write_text((ROOT / "cep/errors.py").read_text() + "# another version\n")
    wrapper = folder / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{changed}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, ROOT, folder / "data", other / "bin/python3", wrapper],
        cwd=folder,  # a worker looks for modules where it is started
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_none_of_our_settings_is_needed_for_the_local_matches(found: dict[str, Any]) -> None:
    assert found["settings"] == [
        "America/New_York",
        "false",
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
        "10000",
        "min",
    ]
    assert found["n"] > 100
    assert (found["batch"], found["stream"]) == (True, True)


def test_functions_of_the_user_run_where_they_did(found: dict[str, Any], folder: Path) -> None:
    assert found["own function"] == str(folder / "other/bin/python3")
    assert found["named by the context"] == "python3"


def test_a_python_without_our_packages_is_named_before_a_query_starts(
    found: dict[str, Any], folder: Path
) -> None:
    # `make versions` names this folder in PYTHONPATH, so any Python has the project.
    ours = "" if str(ROOT) in os.environ.get("PYTHONPATH", "").split(os.pathsep) else "spark-cep, "
    assert found["other"] == (
        f"error[E0806]: the Python of Spark's workers, {folder}/other/bin/python3, "
        f"has no {ours}numba, numpy, pandas, pyarrow\n{HELP}"
    )


def test_a_python_that_does_not_start_is_named(found: dict[str, Any]) -> None:
    assert found["missing"] == (
        "error[E0805]: the Python of Spark's workers, `/no/such/python`, does not start, or is too old\n"
        f"{HELP}"
    )


def test_another_version_of_ours_is_named(found: dict[str, Any], folder: Path) -> None:
    assert found["version"] == (
        f"error[E0807]: Spark's workers have another spark-cep "
        f"({folder}/changed/spark_runtime/sessions/worker_python.py) than this process "
        f"({ROOT}/spark_runtime/sessions/worker_python.py)\n"
        "help: install the same version on every machine; see docs/operate/running.md"
    )


def test_pyspark_python_counts_when_it_is_set_after_the_session_has_started(found: dict[str, Any]) -> None:
    assert found["named after the start"] == "no error"


def test_a_worker_of_another_version_of_python_is_named() -> None:
    said = (
        "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than "
        "that in driver: 3.11, PySpark cannot run with different minor versions.\n"
    )
    assert str(worker_python.without_answer(said, "python3")) == (
        f"error[E0805]: the Python of Spark's workers, `python3`, is 3.12, this process has 3.11\n{HELP}"
    )
    assert str(worker_python.without_answer(said, "")) == (
        f"error[E0805]: the Python of Spark's workers is 3.12, this process has 3.11\n{HELP}"
    )
    assert worker_python.without_answer("Connection refused", "python3") is None
