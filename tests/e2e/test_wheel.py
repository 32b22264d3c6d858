"""What an installation has: built from a copy of the repository and from its source archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def built(kind: str, folder: Path, to: Path) -> Path:
    """Build without a network; return the only file it made."""
    to.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(to)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [file] = to.iterdir()
    return file


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[zipfile.ZipFile, zipfile.ZipFile]:
    """Return the wheel of the repository and the wheel of its source archive."""
    folder = tmp_path_factory.mktemp("wheel")
    without = shutil.ignore_patterns(".*", "__pycache__", "build", "out", "*.egg-info")
    shutil.copytree(ROOT, folder / "clone", symlinks=True, ignore=without)
    archive = built("sdist", folder / "clone", folder / "archive")
    with tarfile.open(archive) as file:
        file.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    return (
        zipfile.ZipFile(built("wheel", folder / "clone", folder / "first")),
        zipfile.ZipFile(built("wheel", unpacked, folder / "second")),
    )


def test_the_package_has_two_names_on_the_import_path(
    wheels: tuple[zipfile.ZipFile, zipfile.ZipFile],
) -> None:
    for wheel in wheels:
        names = {name.split("/")[0] for name in wheel.namelist()}
        assert {name for name in names if not name.endswith(".dist-info")} == {"cep", "spark_runtime"}


def test_the_wheel_of_the_repository_and_of_its_source_archive_have_the_same_files(
    wheels: tuple[zipfile.ZipFile, zipfile.ZipFile],
) -> None:
    first, second = ({name: wheel.read(name) for name in wheel.namelist()} for wheel in wheels)
    first, second = ({k: v for k, v in w.items() if ".dist-info/" not in k} for w in (first, second))
    assert first == second


def test_the_wheel_has_the_whole_rule_library(wheels: tuple[zipfile.ZipFile, zipfile.ZipFile]) -> None:
    library = {
        name.removeprefix("cep/library/"): wheels[0].read(name)
        for name in wheels[0].namelist()
        if name.startswith("cep/library/")
    }
    rules = [path for path in (ROOT / "rules").rglob("*") if path.is_file()]
    assert library == {path.relative_to(ROOT / "rules").as_posix(): path.read_bytes() for path in rules}
    assert len(library) > 10


def test_an_installation_lists_and_copies_its_rules(
    wheels: tuple[zipfile.ZipFile, zipfile.ZipFile], tmp_path: Path
) -> None:
    wheels[0].extractall(tmp_path / "installed")
    code = (
        f"import cep; assert cep.__file__.startswith({str(tmp_path)!r}); import cep.__main__ as m; m.start()"
    )
    for arguments in (["rules", "list"], ["rules", "copy", "sensor", "--to", "mine"], ["check", "mine"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout == "checked 4 files, 4 rules: no problems\n"
