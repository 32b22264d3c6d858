"""Which versions of PySpark are taken: the number that is asked for is the one that is installed with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cep.errors import SetupError
from spark_runtime.sessions.local_session import OLDEST, check_pyspark
from tests.e2e.versions import VERSIONS

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("version", ["3.5.0", "4.0.5", "4.1.0", "4.2.1", "4.3.0", "5.0.0.dev1"])
def test_a_new_version_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    check_pyspark()


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8"])
def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
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
