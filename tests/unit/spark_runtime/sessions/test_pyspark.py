"""Which versions of PySpark are taken: the number that is asked for is the one that is installed with."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from cep.errors import SetupError
from spark_runtime.sessions.installed import OLDEST, check_pyspark
from spark_runtime.sessions.local_session import session
from tests.e2e.versions import VERSIONS

ROOT = Path(__file__).parents[4]


def install(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a PySpark of another version be the one that Python finds."""
    (folder / "pyspark").mkdir()
    (folder / "pyspark/__init__.py").write_text("raise AssertionError('it need not be imported')")
    (folder / "pyspark/version.py").write_text(f"__version__: str = '{version}'\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)


def test_the_version_is_that_of_the_package() -> None:
    import pyspark

    assert check_pyspark() == pyspark.__version__


@pytest.mark.parametrize("version", ["3.5.0", "4.0.5", "4.1.0", "4.2.1", "4.3.0", "5.0.0.dev1"])
def test_a_new_version_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    install(version, tmp_path, monkeypatch)
    assert check_pyspark() == version


def test_spark_submit_has_pyspark_in_a_zip_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "raise AssertionError('it need not be imported')")
        archive.writestr("pyspark/version.py", "__version__: str = '4.1.4'\n")
    monkeypatch.syspath_prepend(tmp_path / "pyspark.zip")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert check_pyspark() == "4.1.4"


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8"])
def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    install(version, tmp_path, monkeypatch)
    with pytest.raises(SetupError) as raised:
        check_pyspark()
    assert str(raised.value) == (
        f"error[E0801]: PySpark {version} is too old: 3.5 or later is needed\n"
        "help: pip install 'spark-cep[spark]'"
    )


def test_what_is_installed_is_what_is_asked_for_and_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark>={OLDEST[0]}.{OLDEST[1]},<4.4" in project["optional-dependencies"]["spark"]
    # With 4.3 all tests run.
    assert sorted(version.rpartition(".")[0] for version in VERSIONS) == ["3.5", "4.0", "4.1", "4.2"]


def test_a_session_of_spark_connect_cannot_run_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(SetupError) as caught:
        session()
    assert str(caught.value) == (
        "error[E0810]: this process uses Spark Connect; a pipeline and `session` need Spark's Java in this "
        "process\nhelp: call detect with the session that exists; or start cep run or spark-submit without "
        "SPARK_REMOTE"
    )
